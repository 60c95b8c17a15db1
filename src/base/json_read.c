/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cursor: structure, strings, skipping and checking. Numbers are in json_number.c and
 * json_decimal.c.
 *
 * One bit of state, `first`, is all that iterating needs: whoever has just left a nested container
 * is behind a value of the outer one, so the levels above are the caller's own stack. Only
 * walk_value(), which passes values of any shape by itself, keeps a stack: one bit per level.
 */
#include "base/json.h"

#include "base/arena.h"
#include "base/json_priv.h"
#include "base/mem.h"

void json_init(struct json *j, const char *text, size_t length, struct arena *arena)
{
    *j = (struct json){.p = text, .end = text + length, .text = text, .arena = arena};
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        j->p += 3;
}

bool json_fail(struct json *j, enum json_failure failure, const char *at)
{
    if (j->failure == JSON_OK) {
        j->failure = failure;
        j->failed_at = at;
    }
    return false;
}

const char *json_failure_text(enum json_failure failure)
{
    switch (failure) {
    case JSON_OK:
        break;
    case JSON_SYNTAX:
        return "the text is not valid JSON";
    case JSON_NOT_BOOL:
        return "attempt to access JSON non-boolean as boolean";
    case JSON_NOT_INT:
        return "attempt to access JSON non-signed-integer as signed-integer";
    case JSON_NOT_UINT:
        return "attempt to access JSON non-unsigned-integer as unsigned-integer";
    case JSON_NOT_NUMBER:
        return "attempt to access JSON non-number as double";
    case JSON_NOT_STRING:
        return "attempt to access JSON non-string as string";
    case JSON_NOT_ARRAY:
        return "attempt to access JSON non-array as array";
    case JSON_NOT_OBJECT:
        return "attempt to access JSON non-object as object";
    case JSON_TOO_MANY:
        return "Shape does not match true shape of 'data' field";
    case JSON_TOO_DEEP:
        return "JSON nesting depth exceeds maximum allowed limit (100)";
    case JSON_OUT_OF_MEMORY:
        return "no room for the strings of the JSON text";
    }
    return "";
}

/* ---- strings -------------------------------------------------------------------------------- */

/* Reads four hexadecimal digits; -1 with *ret_at at a character that is none. */
static int parse_hex4(const char *p, const char *end, const char **ret_at)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = json_byte(p + i, end);
        int digit = json_is_digit(c)         ? c - '0'
                    : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                    : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                             : -1;
        if (digit < 0) {
            *ret_at = p + i;
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

struct syntax {
    const char *text;
    const char *at;
};

static const char *set_syntax_error(struct syntax *error, const char *text, const char *at)
{
    error->text = text;
    error->at = at;
    return NULL;
}

static const char BAD_ESCAPE[] = "Invalid escape character in string.";

/* Skips one escape; p is at the backslash. RapidJSON gives most of its errors that position. */
static const char *check_escape(const char *p, const char *end, struct syntax *error)
{
    static const char *const BAD_HEX = "Incorrect hex digit after \\u escape in string.";
    static const char *const BAD_PAIR = "The surrogate pair in string is invalid.";
    const char *at;
    switch (json_byte(p + 1, end)) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return p + 2;
    case 'u':
        break;
    default:
        return set_syntax_error(error, BAD_ESCAPE, p);
    }
    int code = parse_hex4(p + 2, end, &at);
    if (code < 0)
        return set_syntax_error(error, BAD_HEX, p);
    if (code < 0xd800 || code > 0xdbff) /* as there, the second half of a pair may be alone */
        return p + 6;
    if (json_byte(p + 6, end) != '\\' || json_byte(p + 7, end) != 'u')
        return set_syntax_error(error, BAD_PAIR, p);
    int low = parse_hex4(p + 8, end, &at);
    if (low < 0)
        return set_syntax_error(error, BAD_HEX, p);
    if (low < 0xdc00 || low > 0xdfff)
        return set_syntax_error(error, BAD_PAIR, p);
    return p + 12;
}

/* Skips the string whose first character is at p; returns its closing quote. */
static const char *check_string(const char *p, const char *end, bool *ret_escapes,
                                struct syntax *error)
{
    *ret_escapes = false;
    for (;;) {
        p = json_plain_run(p, end);
        char c = json_byte(p, end);
        if (c == '"')
            return p;
        if (c == '\0')
            return set_syntax_error(error, "Missing a closing quotation mark in string.", p);
        if (c != '\\')
            return set_syntax_error(error, BAD_ESCAPE,
                                    p); /* a control character, as the error calls it */
        *ret_escapes = true;
        p = check_escape(p, end, error);
        if (!p)
            return NULL;
    }
}

static size_t put_utf8(unsigned code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/*
 * Writes the string [p, end), which was checked, without its escapes; it is never longer than in
 * the text. If out is NULL, it only counts.
 */
static size_t unescape_string(const char *p, const char *end, char *out)
{
    char scratch[4];
    size_t length = 0;
    while (p < end) {
        const char *stop = memchr(p, '\\', (size_t)(end - p));
        size_t plain = (size_t)((stop ? stop : end) - p);
        if (out)
            memcpy(out + length, p, plain);
        length += plain;
        if (!stop)
            break;
        p = stop + 2;
        unsigned code = (unsigned char)stop[1];
        switch (stop[1]) {
        case 'b':
            code = '\b';
            break;
        case 'f':
            code = '\f';
            break;
        case 'n':
            code = '\n';
            break;
        case 'r':
            code = '\r';
            break;
        case 't':
            code = '\t';
            break;
        case 'u': {
            const char *at;
            code = (unsigned)parse_hex4(p, end, &at);
            p += 4;
            if (code >= 0xd800 && code <= 0xdbff) {
                unsigned low = (unsigned)parse_hex4(p + 2, end, &at);
                code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
                p += 6;
            }
            break;
        }
        default:
            break;
        }
        length += put_utf8(code, out ? out + length : scratch);
    }
    return length;
}

/* ---- Skipping whole values ------------------------------------------------------------------- */

/* Which brackets are open: one bit per level, set for objects. */
struct nesting {
    uint64_t inline_bits[JSON_INLINE_DEPTH / 64];
    uint64_t *bits;
    size_t depth, max_depth;
};

static bool nesting_push(struct nesting *n, bool object)
{
    if (UNLIKELY(n->depth == n->max_depth)) {
        uint64_t *heap = n->bits == n->inline_bits ? NULL : n->bits;
        uint64_t *bits = mem_try_realloc(heap, n->max_depth / 8 * 2);
        if (!bits)
            return false;
        if (!heap)
            memcpy(bits, n->inline_bits, sizeof(n->inline_bits));
        n->bits = bits;
        n->max_depth *= 2;
    }
    uint64_t bit = (uint64_t)1 << (n->depth % 64);
    uint64_t *word = &n->bits[n->depth / 64];
    if (n->depth % 64 == 0)
        *word = 0;
    *word = object ? *word | bit : *word & ~bit;
    n->depth++;
    return true;
}

static bool nesting_in_object(const struct nesting *n)
{
    return n->bits[(n->depth - 1) / 64] >> ((n->depth - 1) % 64) & 1;
}

static const char *check_word(const char *p, const char *end, const char *word,
                              struct syntax *error)
{
    for (; *word; word++, p++) {
        if (json_byte(p, end) != *word)
            return set_syntax_error(error, JSON_TEXT_INVALID_VALUE, p);
    }
    return p;
}

/* Skips a value that is no container. */
static const char *check_scalar(const char *p, const char *end, struct syntax *error)
{
    bool escapes;
    switch (json_byte(p, end)) {
    case '"':
        p = check_string(p + 1, end, &escapes, error);
        return p ? p + 1 : NULL;
    case 't':
        return check_word(p, end, "true", error);
    case 'f':
        return check_word(p, end, "false", error);
    case 'n':
        return check_word(p, end, "null", error);
    default:
        return json_check_number(p, end, &error->text, &error->at);
    }
}

/* Skips a member's name and the colon behind it. */
static const char *check_name(const char *p, const char *end, struct syntax *error)
{
    bool escapes;
    if (json_byte(p, end) != '"')
        return set_syntax_error(error, "Missing a name for object member.", p);
    p = check_string(p + 1, end, &escapes, error);
    if (!p)
        return NULL;
    p = json_skip_space(p + 1, end);
    if (json_byte(p, end) != ':')
        return set_syntax_error(error, "Missing a colon after a name of object member.", p);
    return p + 1;
}

/*
 * Skips what follows a value inside the innermost container: closing brackets, up to the position
 * of the next value. n->depth is 0 afterwards if the outermost container has ended.
 */
static const char *check_after(struct nesting *n, const char *p, const char *end,
                               struct syntax *error)
{
    while (n->depth) {
        bool object = nesting_in_object(n);
        p = json_skip_space(p, end);
        char c = json_byte(p, end);
        if (c == ',') {
            p++;
            return object ? check_name(json_skip_space(p, end), end, error) : p;
        }
        if (c != (object ? '}' : ']'))
            return set_syntax_error(error,
                                    object ? "Missing a comma or '}' after an object member."
                                           : "Missing a comma or ']' after an array element.",
                                    p);
        n->depth--;
        p++;
    }
    return p;
}

/*
 * Skips the value at p with its contents. Otherwise NULL with *error; the error's text is NULL for
 * lack of memory.
 */
static const char *walk_value(const char *p, const char *end, struct syntax *error)
{
    struct nesting n;
    n.bits = n.inline_bits; /* nesting_push() clears each word when it enters it */
    n.depth = 0;
    n.max_depth = JSON_INLINE_DEPTH;

    do {
        p = json_skip_space(p, end);
        char c = json_byte(p, end);
        if (c == '{' || c == '[') {
            if (!nesting_push(&n, c == '{')) {
                p = set_syntax_error(error, NULL, p);
                break;
            }
            p = json_skip_space(p + 1, end);
            if (json_byte(p, end) == (c == '{' ? '}' : ']')) {
                n.depth--;
                p++;
            } else {
                if (c == '{')
                    p = check_name(p, end, error);
                continue;
            }
        } else if (c == ']' || c == '}' || c == ',' || c == ':' || c == '\0') {
            bool empty = c == '\0' && n.depth == 0;
            p = set_syntax_error(error, empty ? "The document is empty." : JSON_TEXT_INVALID_VALUE,
                                 p);
            break;
        } else {
            p = check_scalar(p, end, error);
        }
        if (p)
            p = check_after(&n, p, end, error);
    } while (p && n.depth);

    if (n.bits != n.inline_bits)
        mem_free(n.bits);
    return p;
}

bool json_check(const char *text, size_t length, struct json_error *ret_error)
{
    struct syntax error = {0};
    struct json j;
    json_init(&j, text, length, NULL);
    const char *p = walk_value(j.p, j.end, &error);
    if (p) {
        p = json_skip_space(p, j.end);
        if (json_byte(p, j.end) == '\0')
            return true;
        set_syntax_error(&error, "The document root must not be followed by other values.", p);
    }
    ret_error->text = error.text ? error.text : json_failure_text(JSON_OUT_OF_MEMORY);
    ret_error->offset = (size_t)(error.at - text);
    return false;
}

/* ---- the cursor ----------------------------------------------------------------------------- */

enum json_type json_peek(struct json *j)
{
    if (j->failure != JSON_OK)
        return JSON_NONE;
    j->p = json_skip_space(j->p, j->end);
    char c = json_byte(j->p, j->end);
    switch (c) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
    case 'f':
        return JSON_BOOL;
    case 'n':
        return JSON_NULL;
    case '-':
    case 'N':
    case 'I':
        return JSON_NUMBER;
    default:
        return json_is_digit(c) ? JSON_NUMBER : JSON_NONE;
    }
}

bool json_fail_type(struct json *j, enum json_failure failure)
{
    return json_fail(j, json_peek(j) == JSON_NONE ? JSON_SYNTAX : failure, j->p);
}

static bool enter_container(struct json *j, enum json_type type, enum json_failure otherwise)
{
    if (json_peek(j) != type)
        return json_fail_type(j, otherwise);
    j->p++;
    j->first = true;
    return true;
}

bool json_enter_object(struct json *j)
{
    return enter_container(j, JSON_OBJECT, JSON_NOT_OBJECT);
}

bool json_enter_array(struct json *j)
{
    return enter_container(j, JSON_ARRAY, JSON_NOT_ARRAY);
}

/* Moves to the next value, name or closing bracket of a container; false when it has skipped
 * that bracket. */
static bool next_in_container(struct json *j, char bracket)
{
    if (j->failure != JSON_OK)
        return false;
    j->p = json_skip_space(j->p, j->end);
    char c = json_byte(j->p, j->end);
    bool was_first = j->first;
    j->first = false;
    if (c == bracket) {
        j->p++;
        return false;
    }
    if (!was_first) {
        if (c != ',')
            return json_fail(j, JSON_SYNTAX, j->p);
        j->p = json_skip_space(j->p + 1, j->end);
    }
    return true;
}

bool json_next_element(struct json *j)
{
    return next_in_container(j, ']');
}

/* Reads the string at j->p, which is at its opening quote. */
static bool read_string(struct json *j, struct json_str *ret_value)
{
    bool escapes;
    struct syntax error;
    const char *from = j->p + 1;
    const char *quote = check_string(from, j->end, &escapes, &error);
    if (!quote)
        return json_fail(j, JSON_SYNTAX, error.at);
    struct json_str value = {.at = from, .length = (size_t)(quote - from)};
    if (escapes) {
        char *plain = j->arena ? arena_alloc(j->arena, value.length) : NULL;
        if (!plain)
            return json_fail(j, JSON_OUT_OF_MEMORY, from);
        value.length = unescape_string(from, quote, plain);
        value.at = plain;
    }
    j->p = quote + 1;
    *ret_value = value;
    return true;
}

bool json_next_member(struct json *j, struct json_str *ret_name)
{
    if (!next_in_container(j, '}'))
        return false;
    if (json_byte(j->p, j->end) != '"')
        return json_fail(j, JSON_SYNTAX, j->p);
    struct json_str name;
    if (!read_string(j, &name))
        return false;
    j->p = json_skip_space(j->p, j->end);
    if (json_byte(j->p, j->end) != ':')
        return json_fail(j, JSON_SYNTAX, j->p);
    j->p = json_skip_space(j->p + 1, j->end);
    *ret_name = name;
    return true;
}

bool json_read_string(struct json *j, struct json_str *ret_value)
{
    if (json_peek(j) != JSON_STRING)
        return json_fail_type(j, JSON_NOT_STRING);
    return read_string(j, ret_value);
}

static bool pass_word(struct json *j, const char *word)
{
    struct syntax error;
    const char *p = check_word(j->p, j->end, word, &error);
    if (!p)
        return json_fail(j, JSON_SYNTAX, error.at);
    j->p = p;
    return true;
}

bool json_read_null(struct json *j)
{
    return json_peek(j) == JSON_NULL && pass_word(j, "null");
}

bool json_read_bool(struct json *j, bool *ret_value)
{
    if (json_peek(j) != JSON_BOOL)
        return json_fail_type(j, JSON_NOT_BOOL);
    bool value = *j->p == 't';
    if (!pass_word(j, value ? "true" : "false"))
        return false;
    *ret_value = value;
    return true;
}

bool json_skip_value(struct json *j)
{
    if (j->failure != JSON_OK)
        return false;
    struct syntax error;
    const char *p = walk_value(j->p, j->end, &error);
    if (!p)
        return json_fail(j, error.text ? JSON_SYNTAX : JSON_OUT_OF_MEMORY, error.at);
    j->p = p;
    return true;
}

bool json_read_raw(struct json *j, struct json_str *ret_text)
{
    json_peek(j);
    const char *from = j->p;
    if (!json_skip_value(j))
        return false;
    *ret_text = (struct json_str){.at = from, .length = (size_t)(j->p - from)};
    return true;
}

bool json_end(struct json *j)
{
    if (j->failure != JSON_OK)
        return false;
    j->p = json_skip_space(j->p, j->end);
    if (json_byte(j->p, j->end) != '\0')
        return json_fail(j, JSON_SYNTAX, j->p);
    return true;
}

bool json_next_leaf(struct json *j, unsigned *depth)
{
    for (;;) {
        if (!json_next_element(j)) {
            if (j->failure != JSON_OK || --*depth == 0)
                return false;
        } else {
            if (json_byte(j->p, j->end) != '[')
                return true;
            if (*depth == JSON_MAX_TENSOR_DEPTH)
                return json_fail(j, JSON_TOO_DEEP, j->p);
            ++*depth;
            j->p++;
            j->first = true;
        }
    }
}

bool json_read_strings(struct json *j, char *out, size_t out_bytes, size_t max, size_t *ret_n,
                       size_t *ret_bytes)
{
    unsigned depth = 1;
    size_t n = 0, bytes = 0;
    if (!json_enter_array(j))
        return false;
    for (; json_next_leaf(j, &depth); n++) {
        bool escapes;
        struct syntax error;
        if (n == max)
            return json_fail(j, JSON_TOO_MANY, j->p);
        if (json_byte(j->p, j->end) != '"')
            return json_fail_type(j, JSON_NOT_STRING);
        const char *from = j->p + 1;
        const char *quote = check_string(from, j->end, &escapes, &error);
        if (!quote)
            return json_fail(j, JSON_SYNTAX, error.at);
        size_t length = escapes ? unescape_string(from, quote, NULL) : (size_t)(quote - from);
        if (length > UINT32_MAX || (out && length + 4 > out_bytes - bytes))
            return json_fail(j, JSON_TOO_MANY, j->p);
        if (out) {
            for (int i = 0; i < 4; i++)
                out[bytes + (size_t)i] = (char)(length >> (8 * i));
            if (escapes)
                unescape_string(from, quote, out + bytes + 4);
            else
                memcpy(out + bytes + 4, from, length);
        }
        bytes += 4 + length;
        j->p = quote + 1;
    }
    if (j->failure != JSON_OK)
        return false;
    *ret_n = n;
    *ret_bytes = bytes;
    return true;
}
