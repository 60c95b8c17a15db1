/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and asking restrictions. The texts of errors are the reference's (reference/behaviours
 * §21). */
#include "frontends/ops/restrictions.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

static const char *const names[] = {
#define OPS_API(name, text) text,
#include "base/apis.def"
};

enum ops_api restrictions_find_api(const char *name, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return (enum ops_api)i;
    }
    return OPS_API_OPEN;
}

static struct restriction make_restriction(const char *prefix, const char *key, size_t key_length,
                                           const char *value)
{
    size_t prefix_length = strlen(prefix);
    struct restriction r = {.name_length = prefix_length + key_length, .value = mem_strdup(value)};
    r.name = mem_alloc(r.name_length + 1);
    memcpy(r.name, prefix, prefix_length);
    memcpy(r.name + prefix_length, key, key_length);
    r.name[r.name_length] = '\0';
    r.wire_name = mem_strdup(r.name);
    for (char *c = r.wire_name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return r;
}

static struct status *restrict_api(struct restrictions *r, const char *what, const char *api,
                                   size_t length, const struct restriction *made)
{
    enum ops_api found = restrictions_find_api(api, length);
    if (found == OPS_API_OPEN)
        return status_new(STATUS_INVALID_ARG, "unknown restricted %s '%.*s' ", what, (int)length,
                          api);
    struct restriction *of = &r->of[found];
    if (of->name)
        return status_new(STATUS_INVALID_ARG,
                          "restricted %s '%.*s' can not be specified in multiple config groups",
                          what, (int)length, api);
    *of = (struct restriction){.name = mem_strdup(made->name),
                               .wire_name = mem_strdup(made->wire_name),
                               .name_length = made->name_length,
                               .value = mem_strdup(made->value)};
    return NULL;
}

static void free_restriction(struct restriction *r)
{
    mem_free(r->name);
    mem_free(r->wire_name);
    mem_free(r->value);
    *r = (struct restriction){0};
}

struct status *restrictions_add(struct restrictions *r, const char *what, const char *prefix,
                                const char *text)
{
    const char *colon = strchr(text, ':'), *equals = colon ? strchr(colon + 1, '=') : NULL;
    struct status *st = NULL;
    if (!colon || colon == text || !equals || equals == colon + 1 || !equals[1])
        return status_new(STATUS_INVALID_ARG,
                          "a restricted %s has the form '<config name>:<setting>=<value>'. Got %s",
                          what, text);
    struct restriction made =
        make_restriction(prefix, colon + 1, (size_t)(equals - colon - 1), equals + 1);
    for (const char *at = text; at < colon && !st;) {
        size_t length = strcspn(at, ",:");
        st = restrict_api(r, what, at, length, &made);
        at += length + 1;
    }
    free_restriction(&made);
    return st;
}

void restrictions_done(struct restrictions *r)
{
    for (size_t i = 0; i < OPS_N_APIS; i++)
        free_restriction(&r->of[i]);
}

bool secret_equals(const char *secret, size_t secret_length, const char *value, size_t length)
{
    unsigned char difference = !value || length != secret_length;
    for (size_t i = 0; i < secret_length; i++)
        difference |= (unsigned char)(secret[i] ^ (value && i < length ? value[i] : 0));
    return difference == 0;
}

bool restriction_admits(const struct restriction *r, const char *value, size_t length)
{
    return secret_equals(r->value, strlen(r->value), value, length);
}
