/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Line by line. Only the two lines in front of a family differ, and the line at the end. The line
 * HELP comes first, but what it says of the name depends on the type in the line behind it.
 */
#include "core/metrics/openmetrics.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

#define HELP  "# HELP "
#define TYPE  "# TYPE "
#define TOTAL "_total"

struct text {
    const char *at, *end;
};

/* Takes the text up to the character, or all of it. The character itself is skipped. */
static struct text take_until(struct text *from, char end)
{
    const char *found = memchr(from->at, end, (size_t)(from->end - from->at));
    struct text taken = {from->at, found ? found : from->end};
    from->at = found ? found + 1 : from->end;
    return taken;
}

static bool take_prefix(struct text *t, const char *prefix)
{
    size_t n = strlen(prefix);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, prefix, n) != 0)
        return false;
    t->at += n;
    return true;
}

static bool token_is(struct text t, const char *text)
{
    return take_prefix(&t, text) && t.at == t.end;
}

static void add(struct buf *out, struct text t)
{
    buf_add(out, t.at, (size_t)(t.end - t.at));
}

/* Removes _total. Returns whether the name had it. */
static bool remove_total(struct text *name)
{
    size_t n = sizeof(TOTAL) - 1;
    if ((size_t)(name->end - name->at) <= n || memcmp(name->end - n, TOTAL, n) != 0)
        return false;
    name->end -= n;
    return true;
}

/* In this format quotation marks are escaped, too. */
static void add_help(struct buf *out, struct text help)
{
    for (; help.at < help.end; help.at++) {
        if (*help.at == '"')
            buf_addc(out, '\\');
        buf_addc(out, *help.at);
    }
}

/* @help  of the family; its line has been read */
static void add_family(struct buf *out, struct text help, struct text type_line)
{
    struct text name = take_until(&type_line, ' '), type = type_line;
    bool is_counter = token_is(type, "counter");
    bool is_known = !is_counter || remove_total(&name);
    buf_adds(out, HELP);
    add(out, name);
    buf_addc(out, ' ');
    add_help(out, help);
    buf_adds(out, "\n" TYPE);
    add(out, name);
    buf_addc(out, ' ');
    if (is_known)
        add(out, type);
    else
        buf_adds(out, "unknown");
    buf_addc(out, '\n');
}

void openmetrics_write(const char *page, size_t length, struct buf *out)
{
    struct text rest = {page, page + length}, help = {page, page};
    while (rest.at < rest.end) {
        struct text line = take_until(&rest, '\n'), after = line;
        if (take_prefix(&after, HELP)) {
            take_until(&after, ' ');
            help = after;
        } else if (take_prefix(&after, TYPE)) {
            add_family(out, help, after);
        } else {
            add(out, line);
            buf_addc(out, '\n');
        }
    }
    buf_adds(out, "# EOF\n");
}
