/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON: a pull parser over one contiguous text, and a writer onto a buffer.
 *
 * Reading. A struct json is a cursor of a few words. A copy remembers a position, and assigning the
 * copy back returns to it. The parser builds no tree in memory; the caller's own loops follow the
 * structure:
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
 * Between two calls of json_next_member() or json_next_element() the caller reads or skips exactly
 * one value. The first failure sticks: every later call on the cursor returns false, so that one
 * check at the end is enough. The parser checks every byte that it passes, in skipped values, too.
 * A text for which json_end() has returned true is therefore well-formed.
 *
 * json_check() gives the text of a syntax error: it finds the first one of the whole document.
 * Triton parses a whole document before it reads any field. A caller that must give the same answer
 * as Triton therefore calls json_check() on its error path before it reports a wrong type.
 *
 * The parser accepts what Triton's parser accepts. That is RFC 8259, and also NaN, Inf, Infinity,
 * -Inf, -Infinity, bytes that are not UTF-8, a byte order mark at the start, and anything after a
 * zero byte that follows the document. Of several members with the same name Triton uses the first.
 * This parser returns all of them, so the caller must remember which names it has seen.
 *
 * Numbers are exact: reading rounds as strtod() does, and writing prints the shortest digits that
 * read back as the same double. The arena is used only for strings with escapes. Memory from the
 * system is used only for a skipped value that is nested more than JSON_INLINE_DEPTH levels deep.
 *
 * Thread: any, one thread at a time per cursor.
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
    JSON_NONE, /* no value starts here: the text ends, or is malformed */
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

enum json_failure {
    JSON_OK,
    JSON_SYNTAX, /* the text is not JSON; json_check() gives the error text */
    /* There is a value, but not of the requested type: */
    JSON_NOT_BOOL,
    JSON_NOT_INT,  /* … within int64, without fraction and exponent */
    JSON_NOT_UINT, /* … within uint64 */
    JSON_NOT_NUMBER,
    JSON_NOT_STRING,
    JSON_NOT_ARRAY,
    JSON_NOT_OBJECT,
    JSON_TOO_MANY,      /* a tensor reader met more values than there is room for */
    JSON_TOO_DEEP,      /* a tensor reader met more than JSON_MAX_TENSOR_DEPTH nested arrays */
    JSON_OUT_OF_MEMORY, /* the arena is full, or there is none and a string has escapes */
};

enum {
    JSON_MAX_TENSOR_DEPTH = 100,
    JSON_INLINE_DEPTH = 4096,
};

/* A string: a view into the text, or into the arena if it had escapes. No zero byte follows it. */
struct json_str {
    const char *at;
    size_t length;
};

struct json {
    const char *p; /* the next byte */
    const char *end;
    const char *text; /* the first byte */
    struct arena *arena;
    const char *failed_at; /* NULL, or roughly where the failure is */
    enum json_failure failure;
    bool first; /* a container was entered, and no member or element read yet */
};

/*
 * json_init - sets the cursor to the start of a text.
 *
 * @text   borrowed: it must outlive the cursor and the strings that the cursor returned
 * @arena  for strings with escapes; NULL: such strings fail with JSON_OUT_OF_MEMORY
 */
void json_init(struct json *j, const char *text, size_t length, struct arena *arena);

/* json_peek - the type of the next value, judged by its first byte. Never fails. */
enum json_type json_peek(struct json *j);

/* json_enter_object, json_enter_array - step inside; fail with JSON_NOT_OBJECT, JSON_NOT_ARRAY. */
bool json_enter_object(struct json *j);
bool json_enter_array(struct json *j);

/*
 * json_next_member, json_next_element - go to the next value inside. They return false at the end
 * of the container, with the cursor behind it, and on failure.
 */
bool json_next_member(struct json *j, struct json_str *ret_name);
bool json_next_element(struct json *j);

/* Scalars. After false with a JSON_NOT_… failure the cursor is at the start of the value. */
bool json_read_null(struct json *j); /* another value: false, but no failure */
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

/* json_skip_value - skips one value of any type and checks its syntax. */
bool json_skip_value(struct json *j);

/* json_read_raw - the same, and returns the unchanged text of the value. */
bool json_read_raw(struct json *j, struct json_str *ret_text);

/* json_end - true when nothing follows the value that was read, and no failure has occurred. */
bool json_end(struct json *j);

/*
 * json_failure_text - Triton's message for such a failure: "attempt to access JSON non-string as
 * string", "Shape does not match true shape of 'data' field", …. Not for JSON_OK.
 */
const char *json_failure_text(enum json_failure failure);

/* A syntax error: the message of RapidJSON, and the offset that RapidJSON reports with it. */
struct json_error {
    const char *text;
    size_t offset;
};

/*
 * json_check - whether the text is a JSON document; false returns its first syntax error.
 *
 * The check covers the whole document, whatever its nesting.
 */
bool json_check(const char *text, size_t length, struct json_error *ret_error);

/*
 * Tensors. Each function reads one array, flat or nested in any shape, into out[0..max) in order.
 * *ret_n is the number of values. They fail with
 *   - JSON_TOO_MANY when there are more than max values, whatever the type of the first one beyond;
 *   - JSON_TOO_DEEP beyond JSON_MAX_TENSOR_DEPTH levels;
 *   - JSON_NOT_… for a value of another type.
 * An integer must fit int64, or uint64 for the unsigned types. Its low bits are then kept, as
 * Triton does: 128 as int8 is -128. Floats are rounded to double and then to float. Booleans become
 * 0 and 1.
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
 * json_read_strings - reads an array of strings into the layout of a BYTES tensor: for each string
 * its length (32 bits, little endian) and its bytes.
 *
 * @out        room for out_bytes. NULL only counts, so that a caller can first ask with a copy of
 *             the cursor
 * @ret_bytes  the size of the tensor in bytes
 * Fails with JSON_TOO_MANY when out_bytes or max is too small.
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
 * Writing single values, with no punctuation around them. As with everything that adds to a struct
 * buf, the buffer records a value that does not fit, and buf_status() reports it.
 */
void json_write_string(struct buf *b, const char *s, size_t length); /* quoted and escaped */
void json_write_bool(struct buf *b, bool value);
void json_write_int64(struct buf *b, int64_t value);
void json_write_uint64(struct buf *b, uint64_t value);

/*
 * json_write_double - the shortest digits that read back as the same double, in RapidJSON's form.
 * There is at least one decimal ("1.0"). Values below 1e-6 and from 1e21 have an exponent ("1e-7",
 * "1.5e300"). NaN, Infinity and -Infinity are not quoted.
 */
void json_write_double(struct buf *b, double value);

/*
 * Tensors as a flat array, brackets included. Floats are widened to double first, as Triton does.
 */
void json_write_f32s(struct buf *b, const float *values, size_t n);
/*
 * json_write_shortest_f32s - the shortest digits that read back as the same float, whether they are
 * parsed as a float or first as a double. It writes 0.1 where json_write_f32s() writes
 * 0.10000000149011612. The form is otherwise that of json_write_double().
 */
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
 * A writer that adds the commas and colons. The caller opens and closes objects and arrays in
 * pairs. A value after json_put_name() belongs to that member.
 *
 *     struct json_writer w = {.out = &buf};
 *     json_put_open(&w, '{');
 *     json_put_name(&w, "id");
 *     json_put_string(&w, id, length);
 *     json_put_close(&w, '}');
 */
struct json_writer {
    struct buf *out;
    bool comma; /* a value precedes at this level */
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

/* json_put_value - writes the comma, if needed, before a value of json_write_…(). */
void json_put_value(struct json_writer *w);

#endif
