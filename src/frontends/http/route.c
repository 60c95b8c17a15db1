/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table is short, so a path is compared with one pattern after the other. A pattern has {m}
 * for a model, {r} for a repository, {s} for a region and [/versions/{v}] for an optional version;
 * all else must be equal. The spans of a match point into the path. No state; any thread.
 */
#include "frontends/http/route.h"

#include <string.h>

static bool starts_with(const char *at, const char *end, const char *text, size_t length)
{
    return (size_t)(end - at) >= length && memcmp(at, text, length) == 0;
}

/* Reads the segment that begins at *at; false when it is empty. */
static bool take_segment(const char **at, const char *end, struct span *ret)
{
    const char *from = *at;
    while (*at < end && **at != '/')
        ++*at;
    *ret = (struct span){from, (size_t)(*at - from)};
    return ret->length > 0;
}

/* The span of {m}, {r} or {s}. */
static struct span *find_span(struct route_match *m, char name)
{
    return name == 'm' ? &m->model : name == 'r' ? &m->repository : &m->region;
}

/* Compares pattern and path in one pass. */
static bool fits_pattern(const char *pattern, struct span path, struct route_match *m)
{
    static const char versions[] = "[/versions/{v}]";
    const char *at = path.at, *end = path.at + path.length;

    m->model = m->version = m->repository = m->region = (struct span){NULL, 0};
    while (*pattern) {
        if (*pattern == '{') {
            if (!take_segment(&at, end, find_span(m, pattern[1])))
                return false;
            pattern += 3;
        } else if (*pattern == '[') {
            if (starts_with(at, end, "/versions/", 10)) {
                const char *from = at + 10, *p = from;
                while (p < end && *p >= '0' && *p <= '9')
                    p++;
                if (p == from)
                    return false;
                m->version = (struct span){from, (size_t)(p - from)};
                at = p;
            }
            pattern += sizeof(versions) - 1;
        } else {
            if (at == end || *at != *pattern)
                return false;
            at++;
            pattern++;
        }
    }
    return at == end;
}

struct route_match route_find(const struct route *routes, size_t n_routes, enum http_method method,
                              struct span path)
{
    struct route_match m, first = {0};
    for (size_t i = 0; i < n_routes; i++) {
        if (!fits_pattern(routes[i].pattern, path, &m))
            continue;
        m.route = &routes[i];
        if (m.route->method == method)
            return m;
        if (!first.route)
            first = m;
    }
    return first;
}
