/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON: a pull parser over one contiguous text, and a writer onto a buffer.
 *
 * Reading. A struct json is a cursor: a few words, copied to remember a position and assigned back
 * to return there. Nothing is built in memory; the caller's own loops are the structure:
 *
 *     json_init(&j, text, length, arena);
 *     if (json_enter_object(&j)) {
 *         while (json_next_member(&j, &key)) {
 *             if (json_str_is(key, "id"))
 *                 json_read_string(&j, &id);
 *             else
 *                 json_skip_value(&j);
 *         }
 *     }
 *     if (!json_end(&j))
 *         ... j.failure says why
 *
 * Between two calls of json_next_member() or json_next_element() exactly one value is read or
 * skipped. The first failure sticks: whatever is asked of the cursor afterwards returns false, so
 * that one look at the end is enough. Every byte that is passed is checked, skipped values too: a
 * text that was walked to its json_end() is well-formed.
 *
 * Who needs the text of a syntax error calls json_check(), which finds the first one of the whole
 * document. Triton parses all of a document before it looks at any field, so a caller that wants
 * the same answer calls json_check() on its error path before it reports a wrong type.
 *
 * What is accepted is what Triton's parser accepts: RFC 8259, and besides NaN, Inf, Infinity,
 * -Inf, -Infinity, bytes that are no UTF-8, a byte order mark in front, and anything after a zero
 * byte that follows the document. Of members with the same name the first counts in Triton; they
 * are all shown here, so a consumer remembers which names it has had.
 *
 * Numbers are exact: reading rounds as strtod does, writing prints the shortest digits that read
 * back as the same double. Memory is taken from the arena only for strings with escapes, and from
 * the system only for texts nested more than JSON_INLINE_DEPTH levels deep in a skipped value.
 */
#ifndef CONCH_BASE_JSON_H
#define CONCH_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

struct arena;
struct buf;

enum json_type {
    JSON_NONE, /* no value starts here: the text ends, or is wrong */
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

enum json_failure {
    JSON_OK,
    JSON_SYNTAX, /* the text is not JSON; json_check() has the words */
    /* There is a value, but not of the type that was asked for: */
    JSON_NOT_BOOL,
    JSON_NOT_INT,  /* … within int64, without fraction and exponent */
    JSON_NOT_UINT, /* … within uint64 */
    JSON_NOT_NUMBER,
    JSON_NOT_STRING,
    JSON_NOT_ARRAY,
    JSON_NOT_OBJECT,
    JSON_TOO_MANY,      /* a bulk reader met more values than there is room for */
    JSON_TOO_DEEP,      /* a bulk reader met more than JSON_MAX_TENSOR_DEPTH arrays in arrays */
    JSON_OUT_OF_MEMORY, /* the arena is full, or there is none and a string has escapes */
};

enum {
    JSON_MAX_TENSOR_DEPTH = 100,
    JSON_INLINE_DEPTH = 4096,
};

/* A string: a view into the text, or into the arena when it had escapes. No zero byte ends it. */
struct json_str {
    const char *at;
    size_t length;
};

struct json {
    const char *p; /* the next byte */
    const char *end;
    const char *text; /* where it began */
    struct arena *arena;
    const char *failed_at; /* NULL, or about where the failure is */
    enum json_failure failure;
    bool first; /* a container was entered and none of its members or elements was seen */
};

/*
 * json_init - a cursor at the start of a text.
 *
 * @text   borrowed as long as the cursor and the strings that it gave
 * @arena  for strings with escapes; NULL refuses them with JSON_OUT_OF_MEMORY
 */
void json_init(struct json *j, const char *text, size_t length, struct arena *arena);

/* json_peek - the type of the value that comes next, told by its first byte. Fails nothing. */
enum json_type json_peek(struct json *j);

/* json_enter_object, json_enter_array - step inside; JSON_NOT_OBJECT, JSON_NOT_ARRAY otherwise. */
bool json_enter_object(struct json *j);
bool json_enter_array(struct json *j);

/*
 * json_next_member, json_next_element - go to the next value inside; false when the container has
 * ended (the cursor is then behind it) and when something failed.
 */
bool json_next_member(struct json *j, struct json_str *ret_name);
bool json_next_element(struct json *j);

/* Scalars. false with JSON_NOT_… leaves the cursor where the value begins. */
bool json_read_null(struct json *j); /* false without a failure when it is something else */
bool json_read_bool(struct json *j, bool *ret_value);
bool json_read_int64(struct json *j, int64_t *ret_value);
bool json_read_uint64(struct json *j, uint64_t *ret_value);
bool json_read_double(struct json *j, double *ret_value); /* any number */
bool json_read_string(struct json *j, struct json_str *ret_value);

/* A number as it stands: an integer when it has neither fraction nor exponent and fits. */
struct json_number {
    enum { JSON_INT64, JSON_UINT64, JSON_DOUBLE } kind; /* UINT64: above INT64_MAX only */
    union {
        int64_t i64;
        uint64_t u64;
        double d;
    };
};
bool json_read_number(struct json *j, struct json_number *ret_value);

/* json_skip_value - passes one value of any type, checking it. */
bool json_skip_value(struct json *j);

/* json_read_raw - the same, and shows the value's text as it stands. */
bool json_read_raw(struct json *j, struct json_str *ret_text);

/* json_end - nothing more follows the value that was read; false also when anything failed. */
bool json_end(struct json *j);

/*
 * json_failure_text - what Triton says of such a failure: "attempt to access JSON non-string as
 * string", "Shape does not match true shape of 'data' field", …; not for JSON_OK.
 */
const char *json_failure_text(enum json_failure failure);

/* A syntax error: RapidJSON's words for it and the offset into the text that goes with them. */
struct json_error {
    const char *text;
    size_t offset;
};

/*
 * json_check - is this text a JSON document? false gives its first syntax error.
 *
 * Goes through the whole document, whatever the nesting.
 */
bool json_check(const char *text, size_t length, struct json_error *ret_error);

/*
 * Tensors. Each reads one array, flat or nested in any shape, into out[0..max) in order; *ret_n is
 * how many values there were. JSON_TOO_MANY when there are more than max (checked before the type
 * of the value that is too much), JSON_TOO_DEEP beyond JSON_MAX_TENSOR_DEPTH levels, JSON_NOT_… for
 * a value of another type. Integers keep their low bits: 128 as int8 is -128, as Triton has it;
 * but an integer must fit int64 (uint64 for the unsigned types) before that. Floats are rounded to
 * double and then to float. Booleans become 0 and 1.
 */
bool json_read_f32s(struct json *j, float *out, size_t max, size_t *ret_n);
bool json_read_f64s(struct json *j, double *out, size_t max, size_t *ret_n);
bool json_read_i8s(struct json *j, int8_t *out, size_t max, size_t *ret_n);
bool json_read_i16s(struct json *j, int16_t *out, size_t max, size_t *ret_n);
bool json_read_i32s(struct json *j, int32_t *out, size_t max, size_t *ret_n);
bool json_read_i64s(struct json *j, int64_t *out, size_t max, size_t *ret_n);
bool json_read_u8s(struct json *j, uint8_t *out, size_t max, size_t *ret_n);
bool json_read_u16s(struct json *j, uint16_t *out, size_t max, size_t *ret_n);
bool json_read_u32s(struct json *j, uint32_t *out, size_t max, size_t *ret_n);
bool json_read_u64s(struct json *j, uint64_t *out, size_t max, size_t *ret_n);
bool json_read_bools(struct json *j, uint8_t *out, size_t max, size_t *ret_n);

/*
 * json_read_strings - an array of strings in the layout of a BYTES tensor: for each its length
 * (32 bits, little endian) and its bytes.
 *
 * @out      room for out_bytes; NULL only counts, so that a copy of the cursor can be asked first
 * @ret_bytes  how much that is
 * Fails with JSON_TOO_MANY when out_bytes or max do not suffice.
 */
bool json_read_strings(struct json *j, char *out, size_t out_bytes, size_t max, size_t *ret_n,
                       size_t *ret_bytes);

/* json_str_is - compares with a string literal. */
#define json_str_is(s, literal)                                                                    \
    ((s).length == sizeof(literal) - 1 && memcmp((s).at, literal, sizeof(literal) - 1) == 0)

/* json_str_equals - compares with a C string. */
static inline bool json_str_equals(struct json_str s, const char *other)
{
    return s.length == strlen(other) && memcmp(s.at, other, s.length) == 0;
}

/*
 * Writing single values, with no punctuation around them. As everything that adds to a struct buf,
 * these remember in the buffer that something did not fit.
 */
void json_write_string(struct buf *b, const char *s, size_t length); /* quoted and escaped */
void json_write_bool(struct buf *b, bool value);
void json_write_int64(struct buf *b, int64_t value);
void json_write_uint64(struct buf *b, uint64_t value);

/*
 * json_write_double - the shortest digits that read back as the same double, in RapidJSON's form:
 * at least one decimal ("1.0"), an exponent below 1e-6 and from 1e21 ("1e-7", "1.5e300"), and
 * NaN, Infinity and -Infinity bare.
 */
void json_write_double(struct buf *b, double value);

/* Tensors as a flat array, brackets included. Floats are widened to double first, as Triton does.
 */
void json_write_f32s(struct buf *b, const float *values, size_t n);
/* json_write_shortest_f32s - with the shortest digits that read back as the same float, also by way
 * of a double: 0.1 where json_write_f32s() has 0.10000000149011612. The same forms otherwise. */
void json_write_shortest_f32s(struct buf *b, const float *values, size_t n);
void json_write_f64s(struct buf *b, const double *values, size_t n);
void json_write_i8s(struct buf *b, const int8_t *values, size_t n);
void json_write_i16s(struct buf *b, const int16_t *values, size_t n);
void json_write_i32s(struct buf *b, const int32_t *values, size_t n);
void json_write_i64s(struct buf *b, const int64_t *values, size_t n);
void json_write_u8s(struct buf *b, const uint8_t *values, size_t n);
void json_write_u16s(struct buf *b, const uint16_t *values, size_t n);
void json_write_u32s(struct buf *b, const uint32_t *values, size_t n);
void json_write_u64s(struct buf *b, const uint64_t *values, size_t n);
void json_write_bools(struct buf *b, const uint8_t *values, size_t n);

/*
 * A writer that sets the commas and colons. Objects and arrays are opened and closed in pairs by
 * the caller; a value after json_put_name() is that member's.
 *
 *     struct json_writer w = {.out = &buf};
 *     json_put_open(&w, '{');
 *     json_put_name(&w, "id");
 *     json_put_string(&w, id, length);
 *     json_put_close(&w, '}');
 */
struct json_writer {
    struct buf *out;
    bool comma; /* a value precedes on this level */
};

void json_put_open(struct json_writer *w, char bracket);
void json_put_close(struct json_writer *w, char bracket);
void json_put_name(struct json_writer *w, const char *name);
void json_put_name_n(struct json_writer *w, const char *name, size_t length);
void json_put_string(struct json_writer *w, const char *s, size_t length);
void json_put_text(struct json_writer *w, const char *s); /* a C string */
void json_put_bool(struct json_writer *w, bool value);
void json_put_int64(struct json_writer *w, int64_t value);
void json_put_uint64(struct json_writer *w, uint64_t value);
void json_put_double(struct json_writer *w, double value);

/* json_put_value - before a value that is written with json_write_…() directly: its comma. */
void json_put_value(struct json_writer *w);

#endif
