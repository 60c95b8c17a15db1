/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recursive descent parser; MAX_DEPTH limits the recursion. doc_parse() allocates three blocks
 * before it reads: a copy of the text, room for all decoded strings, and a value for each comma
 * and opening bracket. None of them grows. A document is constant once it is parsed, so several
 * threads may read it.
 */
#include "common/doc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64

struct doc {
    char *text;               /* the raw text, and a zero byte */
    char *strings;            /* decoded strings, one behind the other */
    struct doc_value *values; /* values[0] is the root */
};

struct reader {
    const char *at;
    const char *end;
    char *strings;            /* where the next decoded string goes */
    struct doc_value *values; /* where the next value goes */
    const char *why;
    int depth;
};

static bool fail_reading(struct reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
    return false;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool accept_char(struct reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool read_hex4(struct reader *r, unsigned int *ret_code)
{
    unsigned int code = 0;

    if (r->end - r->at < 4)
        return fail_reading(r, "unfinished \\u escape");
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;

        code <<= 4;
        if (c >= '0' && c <= '9')
            code |= (unsigned int)(c - '0');
        else if (c >= 'a' && c <= 'f')
            code |= (unsigned int)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            code |= (unsigned int)(c - 'A' + 10);
        else
            return fail_reading(r, "wrong \\u escape");
    }
    *ret_code = code;
    return true;
}

static char *put_code_point(char *to, unsigned int code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | (code >> 6));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | (code >> 12));
        *to++ = (char)(0x80 | ((code >> 6) & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | (code >> 18));
        *to++ = (char)(0x80 | ((code >> 12) & 0x3f));
        *to++ = (char)(0x80 | ((code >> 6) & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* Reads one code point after "\u", from one escape or from a surrogate pair. */
static bool read_code_point(struct reader *r, unsigned int *ret_code)
{
    unsigned int high, low;

    if (!read_hex4(r, &high))
        return false;
    if (high >= 0xdc00 && high <= 0xdfff)
        return fail_reading(r, "lone surrogate");
    if (high < 0xd800 || high > 0xdbff) {
        *ret_code = high;
        return true;
    }
    if (!accept_char(r, '\\') || !accept_char(r, 'u'))
        return fail_reading(r, "lone surrogate");
    if (!read_hex4(r, &low))
        return false;
    if (low < 0xdc00 || low > 0xdfff)
        return fail_reading(r, "lone surrogate");
    *ret_code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

static bool read_escape(struct reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const char *known;
    unsigned int code;

    if (r->at == r->end)
        return fail_reading(r, "unfinished string");
    if (*r->at == 'u') {
        r->at++;
        if (!read_code_point(r, &code))
            return false;
        *to = put_code_point(*to, code);
        return true;
    }
    known = memchr(from, *r->at, sizeof(from) - 1);
    if (!known)
        return fail_reading(r, "unknown escape");
    r->at++;
    *(*to)++ = meaning[known - from];
    return true;
}

/* A decoded string is never longer than its raw form with quotes, so strings always has room. */
static bool read_doc_string(struct reader *r, const char **ret_string, size_t *ret_len)
{
    char *start = r->strings, *to = start;

    if (!accept_char(r, '"'))
        return fail_reading(r, "expected a string");
    for (;;) {
        if (r->at == r->end)
            return fail_reading(r, "unfinished string");
        if ((unsigned char)*r->at < 0x20)
            return fail_reading(r, "control character in a string");
        if (*r->at == '"')
            break;
        if (*r->at == '\\') {
            r->at++;
            if (!read_escape(r, &to))
                return false;
        } else {
            *to++ = *r->at++;
        }
    }
    r->at++;
    *to = '\0';
    r->strings = to + 1;
    *ret_string = start;
    *ret_len = (size_t)(to - start);
    return true;
}

static size_t read_digits(struct reader *r)
{
    const char *start = r->at;

    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return (size_t)(r->at - start);
}

static bool skip_number(struct reader *r)
{
    accept_char(r, '-');
    if (!accept_char(r, '0') && !read_digits(r))
        return fail_reading(r, "expected a value");
    if (accept_char(r, '.') && !read_digits(r))
        return fail_reading(r, "wrong number");
    if (accept_char(r, 'e') || accept_char(r, 'E')) {
        if (!accept_char(r, '+'))
            accept_char(r, '-');
        if (!read_digits(r))
            return fail_reading(r, "wrong number");
    }
    return true;
}

static bool read_word(struct reader *r, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
        return fail_reading(r, "expected a value");
    r->at += len;
    return true;
}

static bool read_doc_value(struct reader *r, struct doc_value *v);

/* Reads the items of an array or an object up to its closing bracket. */
static bool read_items(struct reader *r, struct doc_value *v, char close)
{
    struct doc_value **link = &v->first;

    r->at++;
    if (++r->depth > MAX_DEPTH)
        return fail_reading(r, "nested too deep");
    skip_space(r);
    if (!accept_char(r, close)) {
        do {
            struct doc_value *item = r->values++;
            const char *key = NULL;
            size_t key_len;

            skip_space(r);
            if (close == '}') {
                if (!read_doc_string(r, &key, &key_len))
                    return false;
                skip_space(r);
                if (!accept_char(r, ':'))
                    return fail_reading(r, "expected ':'");
                skip_space(r);
            }
            item->key = key;
            if (!read_doc_value(r, item))
                return false;
            *link = item;
            link = &item->next;
            v->n_items++;
            skip_space(r);
        } while (accept_char(r, ','));
        if (!accept_char(r, close))
            return fail_reading(r, "expected ',' or a closing bracket");
    }
    r->depth--;
    return true;
}

static bool read_doc_value(struct reader *r, struct doc_value *v)
{
    const char *start = r->at;
    bool ok;

    if (r->at == r->end)
        return fail_reading(r, "expected a value");
    switch (*r->at) {
    case '{':
        v->type = DOC_OBJECT;
        ok = read_items(r, v, '}');
        break;
    case '[':
        v->type = DOC_ARRAY;
        ok = read_items(r, v, ']');
        break;
    case '"':
        v->type = DOC_STRING;
        ok = read_doc_string(r, &v->string, &v->string_len);
        break;
    case 't':
        v->type = DOC_BOOL;
        v->boolean = true;
        ok = read_word(r, "true");
        break;
    case 'f':
        v->type = DOC_BOOL;
        ok = read_word(r, "false");
        break;
    case 'n':
        v->type = DOC_NULL;
        ok = read_word(r, "null");
        break;
    default:
        v->type = DOC_NUMBER;
        ok = skip_number(r);
        break;
    }
    v->raw = start;
    v->raw_len = (size_t)(r->at - start);
    return ok;
}

/* Every value but the root follows a comma or an opening bracket. */
static size_t count_values(const char *text, size_t len)
{
    size_t n = 1;

    for (size_t i = 0; i < len; i++)
        n += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return n;
}

struct doc *doc_parse(const char *text, size_t len, const char **ret_why)
{
    struct doc *d = calloc(1, sizeof(*d));
    struct reader r = {0};

    *ret_why = "out of memory";
    if (!d)
        return NULL;
    d->text = malloc(len + 1);
    d->strings = malloc(len + 1);
    d->values = calloc(count_values(text, len), sizeof(*d->values));
    if (!d->text || !d->strings || !d->values)
        goto fail;
    if (len > 0)
        memcpy(d->text, text, len);
    d->text[len] = '\0';

    r.at = d->text;
    r.end = d->text + len;
    r.strings = d->strings;
    r.values = d->values + 1;
    skip_space(&r);
    if (read_doc_value(&r, d->values)) {
        skip_space(&r);
        if (r.at == r.end)
            return d;
        fail_reading(&r, "text behind the value");
    }
    *ret_why = r.why;
fail:
    doc_free(d);
    return NULL;
}

void doc_free(struct doc *d)
{
    if (!d)
        return;
    free(d->text);
    free(d->strings);
    free(d->values);
    free(d);
}

const struct doc_value *doc_root(const struct doc *d)
{
    return d->values;
}

const struct doc_value *doc_get(const struct doc_value *v, const char *key)
{
    if (!v || v->type != DOC_OBJECT)
        return NULL;
    for (const struct doc_value *item = v->first; item; item = item->next)
        if (strcmp(item->key, key) == 0)
            return item;
    return NULL;
}

const struct doc_value *doc_first(const struct doc_value *v)
{
    return v ? v->first : NULL;
}

size_t doc_count(const struct doc_value *v)
{
    return v ? v->n_items : 0;
}

const char *doc_string(const struct doc_value *v, const char *otherwise)
{
    return v && v->type == DOC_STRING ? v->string : otherwise;
}

bool doc_true(const struct doc_value *v)
{
    return v && v->type == DOC_BOOL && v->boolean;
}

bool doc_int(const struct doc_value *v, int64_t *ret_number)
{
    const char *text;
    char *end;
    long long number;

    if (!v || (v->type != DOC_NUMBER && v->type != DOC_STRING))
        return false;
    /* A raw number is followed by a bracket, a comma, white space or the text's zero byte. */
    text = v->type == DOC_STRING ? v->string : v->raw;
    if (*text != '-' && (*text < '0' || *text > '9'))
        return false;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno || end != text + (v->type == DOC_STRING ? v->string_len : v->raw_len))
        return false;
    *ret_number = number;
    return true;
}

void doc_write_string(FILE *to, const char *s)
{
    putc('"', to);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(to, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(to, "\\u%04x", (unsigned int)*s);
        else
            putc(*s, to);
    }
    putc('"', to);
}
