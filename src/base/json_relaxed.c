/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass from left to right, without a stack: a colon stands behind names only, so a bare word in
 * front of one is a name, and a comma in front of a closing bracket is one too many.
 */
#include "base/json_relaxed.h"

#include <stdint.h>
#include <string.h>

#include "base/arena.h"

struct tidying {
    const char *p, *end;
    char *out;
};

static bool begins_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool continues_name(char c)
{
    return begins_name(c) || (c >= '0' && c <= '9');
}

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

static void copy_bytes(struct tidying *t, size_t n)
{
    memcpy(t->out, t->p, n);
    t->out += n;
    t->p += n;
}

/* Copies a string as it is, up to its closing quote. */
static void copy_json_string(struct tidying *t)
{
    const char *p = t->p + 1;
    while (p < t->end && *p != '"')
        p += *p == '\\' && p + 1 < t->end ? 2 : 1;
    copy_bytes(t, (size_t)(p - t->p) + (p < t->end));
}

/* Copies a string in single quotes into double ones. One that is not closed stays open. */
static void requote_string(struct tidying *t)
{
    *t->out++ = '"';
    for (t->p++; t->p < t->end && *t->p != '\'';) {
        if (*t->p == '"') {
            *t->out++ = '\\';
            copy_bytes(t, 1);
        } else if (*t->p == '\\' && t->p + 1 < t->end) {
            t->p += t->p[1] == '\''; /* a single quote needs no backslash between double quotes */
            copy_bytes(t, t->p[0] == '\'' ? 1 : 2);
        } else {
            copy_bytes(t, 1);
        }
    }
    if (t->p < t->end) {
        *t->out++ = '"';
        t->p++;
    }
}

static bool equals_word(const char *p, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(p, word, n) == 0;
}

/* Copies a bare word: a name gets its quotes, a value (true, NaN) stays as it is. */
static void copy_word(struct tidying *t)
{
    const char *p = t->p;
    while (p < t->end && continues_name(*p))
        p++;
    size_t n = (size_t)(p - t->p);
    const char *next = skip_blanks(p, t->end);
    bool is_name = next < t->end && *next == ':' && !equals_word(t->p, n, "true") &&
                   !equals_word(t->p, n, "false") && !equals_word(t->p, n, "null");
    if (is_name)
        *t->out++ = '"';
    copy_bytes(t, n);
    if (is_name)
        *t->out++ = '"';
}

static void copy_comma(struct tidying *t)
{
    const char *next = skip_blanks(t->p + 1, t->end);
    bool is_last = next < t->end && (*next == '}' || *next == ']');
    copy_bytes(t, 1);
    if (is_last)
        t->out[-1] = ' ';
}

bool json_relaxed_tidy(const char *text, size_t length, struct arena *arena, const char **ret_text,
                       size_t *ret_length)
{
    /* A name of one letter and its colon become four bytes; a quote between single ones becomes
     * two. */
    char *room = length < SIZE_MAX / 2 ? arena_alloc(arena, 2 * length + 1) : NULL;
    if (!room)
        return false;
    struct tidying t = {.p = text, .end = text + length, .out = room};
    while (t.p < t.end) {
        if (*t.p == '"')
            copy_json_string(&t);
        else if (*t.p == '\'')
            requote_string(&t);
        else if (*t.p == ',')
            copy_comma(&t);
        else if (begins_name(*t.p))
            copy_word(&t);
        else
            copy_bytes(&t, 1);
    }
    *ret_text = room;
    *ret_length = (size_t)(t.out - room);
    return true;
}
