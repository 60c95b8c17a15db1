/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the JSON reader and writer share.
 */
#ifndef CONCH_BASE_JSON_PRIV_H
#define CONCH_BASE_JSON_PRIV_H

#include "base/json.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "characters are looked at eight in a word, the first one in its lowest byte"
#endif

/* Messages of RapidJSON for a syntax error. Clients see them, so they must not change. */
#define JSON_TEXT_INVALID_VALUE "Invalid value."
#define JSON_TEXT_TOO_BIG       "Number too big to be stored in double."
#define JSON_TEXT_NO_FRACTION   "Miss fraction part in number."
#define JSON_TEXT_NO_EXPONENT   "Miss exponent in number."

/* A 128-bit power of ten, truncated: 10^k = (hi·2^64 + lo) · 2^-s with 2^127 <= value < 2^128. */
struct json_pow10 {
    uint64_t hi, lo;
};
enum { JSON_POW10_MIN = -342, JSON_POW10_MAX = 325 };
extern struct json_pow10 json_pow10_table[JSON_POW10_MAX - JSON_POW10_MIN + 1];

/*
 * json_print_prepare - fills json_print.c's tables from that one; called once, when that is filled.
 */
void json_print_prepare(void);

enum { JSON_NUMBER_ROOM = 56 }; /* a number, its comma, and what whole-word stores write beyond */

/* json_print_double - writes a comma and the double, whatever its value; returns the end. */
char *json_print_double(char *out, double value);

/* json_print_shortest - writes a comma and the float's own shortest digits; returns the end. */
char *json_print_shortest(char *out, float value);

/* json_print_f32s, … - write n values, each behind a comma; return the end. The output has room for
 * n times JSON_NUMBER_ROOM bytes. Shortest floats: see json_write_shortest_f32s(). */
char *json_print_f32s(char *out, const void *array, size_t n);
char *json_print_shortest_f32s(char *out, const void *array, size_t n);
char *json_print_f64s(char *out, const void *array, size_t n);
char *json_print_i8s(char *out, const void *array, size_t n);
char *json_print_i16s(char *out, const void *array, size_t n);
char *json_print_i32s(char *out, const void *array, size_t n);
char *json_print_i64s(char *out, const void *array, size_t n);
char *json_print_u8s(char *out, const void *array, size_t n);
char *json_print_u16s(char *out, const void *array, size_t n);
char *json_print_u32s(char *out, const void *array, size_t n);
char *json_print_u64s(char *out, const void *array, size_t n);
char *json_print_bools(char *out, const void *array, size_t n);

/* How tensors of numbers are read and printed: many values at once if the CPU supports it. */
enum json_way { JSON_ONE_BY_ONE, JSON_AVX2, JSON_AVX512 };
extern enum json_way json_way; /* the best that the CPU supports; only tests change it */

/*
 * Tensors of floats, on CPUs with AVX2.
 *
 * json_print_f32s_avx2, json_print_shortest_f32s_avx2 - write n floats, each behind a comma, as
 * json_write_f32s() and json_write_shortest_f32s() do; return the end.
 *
 * json_read_f32s_avx2, json_read_f64s_avx2 - read the run of numbers at p. In such a run a comma
 * follows each number, and at most one blank follows the comma. A number has no exponent and at
 * most 31 characters (doubles: 15). JSON_AVX2_BEFORE bytes of text must precede p. They return the
 * comma behind the last number that was read, or NULL when none was. Something else, a malformed
 * number, or the end of the text or of the room being near ends the run.
 */
enum { JSON_AVX2_BEFORE = 33 };
char *json_print_f32s_avx2(char *out, const void *floats, size_t n);
char *json_print_shortest_f32s_avx2(char *out, const void *floats, size_t n);
const char *json_read_f32s_avx2(const char *p, const char *end, float *out, size_t room,
                                size_t *ret_n);
const char *json_read_f64s_avx2(const char *p, const char *end, double *out, size_t room,
                                size_t *ret_n);

/*
 * Constants for printing floats m·2^(e-23), one per exponent e = JSON_FLOAT_FIRST + index; see
 * json_print_avx2.c.
 */
enum {
    JSON_FLOAT_FIRST = -16,
    JSON_FLOAT_EXPONENTS = 32,
    JSON_FLOAT_BITS = 30, /* fraction bits of m times its factor */
    JSON_SHORT_BITS = 27, /* the same for shortest floats */
};
struct json_float_scale {
    _Alignas(64) uint32_t factors[JSON_FLOAT_EXPONENTS];       /* for the first five of 17 digits */
    _Alignas(64) uint32_t halves[JSON_FLOAT_EXPONENTS];        /* half of the double's last bit */
    _Alignas(64) uint32_t short_factors[JSON_FLOAT_EXPONENTS]; /* for all nine digits */
};
extern struct json_float_scale json_float_scale; /* filled by json_prepare_floats() */
void json_prepare_floats(void);

/*
 * Of the 17 (shortest: 9) digits, the number that stand before the decimal point. Negative for
 * small values: then so many zeros follow the point.
 */
static inline int json_float_wholes(int index, bool shortest)
{
    int last_bit = JSON_FLOAT_FIRST + index - (shortest ? 23 : 52);
    return (shortest ? 9 : 17) + ((last_bit * 1262611) >> 22);
}

/*
 * The same, on CPUs with AVX-512 (VBMI2). These read up to the end of the text and of the room, and
 * need no bytes before p. A number has up to 32 digits (doubles: 15, integers: 16), not counting a
 * sign and a point. Integers keep as many low bits as an element of the output has.
 */
const char *json_read_f32s_avx512(const char *p, const char *end, float *out, size_t room,
                                  size_t *ret_n);
const char *json_read_f64s_avx512(const char *p, const char *end, double *out, size_t room,
                                  size_t *ret_n);
const char *json_read_ints_avx512(const char *p, const char *end, void *out, size_t element_bytes,
                                  bool is_signed, size_t room, size_t *ret_n);

char *json_print_f32s_avx512(char *out, const void *floats, size_t n);
char *json_print_shortest_f32s_avx512(char *out, const void *floats, size_t n);

/* floor(log2(10^k)) for |k| < 1650. */
static inline int json_log2_pow10(int k)
{
    return (k * 1741647) >> 19;
}

static inline bool json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline const char *json_skip_space(const char *p, const char *end)
{
    while (p < end && json_is_space(*p))
        p++;
    return p;
}

/* The next byte, or a zero byte at the end. */
static inline char json_byte(const char *p, const char *end)
{
    return p < end ? *p : '\0';
}

static inline bool json_is_digit(char c)
{
    return (unsigned char)(c - '0') <= 9;
}

/* Sets the high bit of every byte of x that is zero. Only the lowest such bit is reliable. */
static inline uint64_t json_zero_bytes(uint64_t x)
{
    return (x - 0x0101010101010101) & ~x & 0x8080808080808080;
}

/* The first byte at or after p that is a quote, a backslash or a control character, or end. */
static inline const char *json_plain_run(const char *p, const char *end)
{
    while (end - p >= 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        uint64_t stop = json_zero_bytes(x ^ 0x2222222222222222) |
                        json_zero_bytes(x ^ 0x5c5c5c5c5c5c5c5c) |
                        ((x - 0x2020202020202020) & ~x & 0x8080808080808080);
        if (stop)
            return p + (__builtin_ctzll(stop) >> 3);
        p += 8;
    }
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20)
        p++;
    return p;
}

/* json_fail - records the first failure; returns false, for the caller to return. */
bool json_fail(struct json *j, enum json_failure failure, const char *at);

/*
 * json_fail_type - the value at j->p has the wrong type: records `failure` when another value is
 * there, and a syntax error when no value is there.
 */
bool json_fail_type(struct json *j, enum json_failure failure);

/* A decimal number as it stands in the text: digits · 10^exponent. */
struct json_decimal {
    uint64_t digits;
    int64_t exponent;
    bool negative;
    bool integer; /* neither fraction nor exponent */
    bool special; /* NaN or an infinity; digits are the bits of the double */
    bool more;    /* non-zero digits follow those: the value is greater */
    bool many;    /* so many digits that they are hardly exact as a double */
};

/*
 * json_scan_any - the number at `from`, of any form and length. *ret_after is the byte behind it,
 * or NULL when no number that JSON allows is there; the result then means nothing.
 */
struct json_decimal json_scan_any(const char *from, const char *end, const char **ret_after);

/*
 * json_round_by_strtod - the double nearest to what stands in [p, end), which is a finite decimal
 * without its sign: the last resort. More than 767 digits are never needed to tell which double is
 * nearest, when a digit behind them says that the number goes on.
 */
double json_round_by_strtod(const char *p, const char *end);

/*
 * json_parse_number - reads the number at p. Returns the byte behind it, or NULL when no number
 * that JSON allows is there.
 */
const char *json_parse_number(const char *p, const char *end, struct json_number *ret_value);

/* json_parse_double - the same; a number larger than any double is none. */
const char *json_parse_double(const char *p, const char *end, double *ret_value);

/* json_parse_float - the same; the value is rounded to double and then to float. */
const char *json_parse_float(const char *p, const char *end, float *ret_value);

/*
 * json_check_number - skips the number at `from` and returns the byte behind it. On a syntax error
 * it returns NULL and sets *ret_text and *ret_at.
 */
const char *json_check_number(const char *from, const char *end, const char **ret_text,
                              const char **ret_at);

/*
 * json_next_leaf - goes to the next value that is not an array, in arrays nested *depth deep (1
 * after the outermost was entered). False at the end of the outermost array, and on failure.
 */
bool json_next_leaf(struct json *j, unsigned *depth);

#endif
