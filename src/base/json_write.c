/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing JSON.
 *
 * A double is printed with the shortest digits that read back as the same double, and of those the
 * ones nearest to it: the Schubfach algorithm (R. Giulietti, "The Schubfach way to render doubles",
 * 2020). Its three products with a 128-bit power of ten are one here: the bounds of the rounding
 * interval are 4c ± 2 where the value is 4c, so theirs differ from the value's by a shifted power.
 * Digits are made eight in a 64-bit word.
 */
#include <math.h>

#include "base/buf.h"
#include "base/json_priv.h"

/* ---- digits --------------------------------------------------------------------------------- */

enum {
    MAX_NUMBER_BYTES = 25, /* "-0.00000" and 17 digits */
    NUMBER_ROOM = 56,      /* a number, its comma, and what whole words write behind it */
};

#define ASCII_ZEROS 0x3030303030303030u

/* The eight decimal digits of x < 10^8 as numbers, the first one in the lowest byte. */
static inline uint64_t split_digits(uint32_t x)
{
    uint64_t v = x / 10000 | (uint64_t)(x % 10000) << 32;
    uint64_t hundreds = (v * 10486) >> 20 & 0x0000007f0000007f;
    v = hundreds | (v - hundreds * 100) << 16;
    uint64_t tens = (v * 103) >> 10 & 0x000f000f000f000f;
    return tens | (v - tens * 10) << 8;
}

static inline void store(char *out, uint64_t word)
{
    memcpy(out, &word, 8);
}

/* Writes x without leading zeros; returns the end. Room for 24 bytes. */
static inline char *put_uint64(char *out, uint64_t x)
{
    if (LIKELY(x < 100000000)) {
        uint64_t digits = split_digits((uint32_t)x);
        unsigned zeros = digits ? (unsigned)__builtin_ctzll(digits) >> 3 : 7;
        store(out, (digits | ASCII_ZEROS) >> (8 * zeros));
        return out + 8 - zeros;
    }
    uint64_t high = x / 100000000;
    if (high >= 100000000) {
        out = put_uint64(out, high / 100000000);
        store(out, split_digits((uint32_t)(high % 100000000)) | ASCII_ZEROS);
        out += 8;
    } else {
        out = put_uint64(out, high);
    }
    store(out, split_digits((uint32_t)(x % 100000000)) | ASCII_ZEROS);
    return out + 8;
}

static inline char *put_int64(char *out, int64_t x)
{
    *out = '-';
    return put_uint64(out + (x < 0), x < 0 ? -(uint64_t)x : (uint64_t)x);
}

/* ---- shortest doubles ----------------------------------------------------------------------- */

/* digits · 10^exponent, 10^16 <= digits < 10^17 */
struct shortest {
    uint64_t digits;
    int exponent;
};

/* A product with a power of ten: its integer part, the lowest bit set when there is a fraction. */
static inline uint64_t round_to_odd(uint64_t hi, uint64_t mid)
{
    return hi | (mid > 1);
}

/*
 * The shortest decimal of the double with these fields, which is positive and finite. Where the
 * paper speaks of s, s' and w', these are the 17 digit and 16 digit candidates below and above.
 */
static inline struct shortest shorten(uint64_t fraction, int biased)
{
    uint64_t c = biased ? fraction | (uint64_t)1 << 52 : fraction;
    int q = biased ? biased - 1075 : -1074;
    bool closer_below = fraction == 0 && biased > 1; /* the gap below is half the one above */
    unsigned odd = c & 1;                            /* the interval then lacks its bounds */

    int k = (q * 1262611 - (closer_below ? 524031 : 0)) >> 22; /* log10 of the interval, floored */
    int h = q + json_log2_pow10(-k) + 1;
    struct json_pow10 power = json_pow10_table[-k - JSON_POW10_MIN];
    if ((-k < 0 || -k > 55) && ++power.lo == 0) /* wanted rounded up unless it is exact */
        power.hi++;

    /* hi·2^64 + mid: the value; up, down: the distances to the bounds, all times the power. */
    uint64_t cp = c << (2 + h);
    unsigned __int128 low = (unsigned __int128)power.lo * cp;
    unsigned __int128 value = (unsigned __int128)power.hi * cp + (uint64_t)(low >> 64);
    uint64_t low_lo = (uint64_t)low;
    /* power << (h + 1) in 192 bits, h <= 4 */
    unsigned __int128 power_128 = (unsigned __int128)power.hi << 64 | power.lo;
    int up_shift = h + 1, down_shift = h + 1 - closer_below;
    unsigned __int128 up = power_128 >> (64 - up_shift);
    uint64_t up_lo = power.lo << up_shift;
    unsigned __int128 down = power_128 >> (64 - down_shift);
    uint64_t down_lo = power.lo << down_shift;
    unsigned __int128 above = value + up + (low_lo + up_lo < low_lo);
    unsigned __int128 below = value - down - (low_lo < down_lo);

    uint64_t vb = round_to_odd((uint64_t)(value >> 64), (uint64_t)value);
    uint64_t upper = round_to_odd((uint64_t)(above >> 64), (uint64_t)above) - odd;
    uint64_t lower = round_to_odd((uint64_t)(below >> 64), (uint64_t)below) + odd;

    uint64_t s = vb / 4, digits;
    uint64_t tenth = s / 10;
    bool under = lower <= 40 * tenth;
    bool over = 40 * tenth + 40 <= upper;
    if (under != over) {
        digits = (tenth + over) * 10;
    } else {
        under = lower <= 4 * s;
        over = 4 * s + 4 <= upper;
        uint64_t middle = 4 * s + 2;
        bool round_up = vb > middle || (vb == middle && (s & 1));
        digits = s + (under != over ? over : round_up);
    }
    while (digits < 10000000000000000u) { /* once at most, but for subnormals */
        digits *= 10;
        k--;
    }
    return (struct shortest){digits, k};
}

static char *put_exponent(char *out, int exponent)
{
    *out++ = 'e';
    return put_int64(out, exponent);
}

/* Writes a finite value; returns the end. Room for NUMBER_ROOM bytes. */
static inline char *put_finite(char *out, uint64_t bits)
{
    uint64_t fraction = bits & 0xfffffffffffff;
    int biased = (int)(bits >> 52 & 0x7ff);
    *out = '-';
    out += bits >> 63;

    /* Integers below 2^53 are their own shortest digits. */
    if (biased >= 1023 && biased <= 1075) {
        uint64_t c = fraction | (uint64_t)1 << 52;
        int below_point = 1075 - biased;
        if ((c & (((uint64_t)1 << below_point) - 1)) == 0) {
            out = put_uint64(out, c >> below_point);
            memcpy(out, ".0", 2);
            return out + 2;
        }
    } else if (biased == 0 && fraction == 0) {
        memcpy(out, "0.0", 3);
        return out + 3;
    }

    struct shortest v = shorten(fraction, biased);
    char first = (char)('0' + v.digits / 10000000000000000u);
    uint64_t rest = v.digits % 10000000000000000u;
    uint64_t d1 = split_digits((uint32_t)(rest / 100000000));
    uint64_t d2 = split_digits((uint32_t)(rest % 100000000));
    int zeros = d2 ? __builtin_clzll(d2) >> 3 : d1 ? 8 + (__builtin_clzll(d1) >> 3) : 16;
    int n = 17 - zeros;
    int point = 17 + v.exponent; /* the digits before it; RapidJSON's forms depend on that */
    d1 |= ASCII_ZEROS;
    d2 |= ASCII_ZEROS;

    if (point == 1) {
        out[0] = first;
        out[1] = '.';
        store(out + 2, d1);
        store(out + 10, d2);
        return out + MAX(n + 1, 3);
    }
    if (point <= 0 && point > -6) {
        store(out, 0x3030303030302e30); /* "0.000000" */
        out += 2 - point;
        *out = first;
        store(out + 1, d1);
        store(out + 9, d2);
        return out + n;
    }
    if (point > 0 && point <= 21) {
        char digits[33];
        digits[0] = first;
        store(digits + 1, d1);
        store(digits + 9, d2);
        store(digits + 17, ASCII_ZEROS);
        store(digits + 25, ASCII_ZEROS);
        memcpy(out, digits, 24);
        memcpy(out + point + 1, digits + MIN(point, 17),
               16); /* point > 1: at most 15 digits follow it */
        out[point] = '.';
        if (n > point)
            return out + n + 1;
        out[point + 1] = '0';
        return out + point + 2;
    }
    out[0] = first;
    out[1] = '.';
    store(out + 2, d1);
    store(out + 10, d2);
    return put_exponent(out + (n == 1 ? 1 : n + 1), point - 1);
}

static inline char *put_double(char *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    if (LIKELY((bits >> 52 & 0x7ff) != 0x7ff))
        return put_finite(out, bits);
    const char *word = isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
    size_t length = strlen(word);
    memcpy(out, word, length);
    return out + length;
}

/* ---- single values -------------------------------------------------------------------------- */

void json_write_bool(struct buf *b, bool value)
{
    buf_adds(b, value ? "true" : "false");
}

void json_write_int64(struct buf *b, int64_t value)
{
    char text[NUMBER_ROOM];
    buf_add(b, text, (size_t)(put_int64(text, value) - text));
}

void json_write_uint64(struct buf *b, uint64_t value)
{
    char text[NUMBER_ROOM];
    buf_add(b, text, (size_t)(put_uint64(text, value) - text));
}

void json_write_double(struct buf *b, double value)
{
    char text[NUMBER_ROOM];
    buf_add(b, text, (size_t)(put_double(text, value) - text));
}

void json_write_string(struct buf *b, const char *s, size_t length)
{
    static const char hex[16] = "0123456789ABCDEF";
    const char *end = s + length;
    buf_addc(b, '"');
    for (;;) {
        const char *stop = json_plain_run(s, end);
        buf_add(b, s, (size_t)(stop - s));
        if (stop == end)
            break;
        unsigned char c = (unsigned char)*stop;
        char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        const char *name = c == '"' || c == '\\' ? stop
                           : c == '\b'           ? "b"
                           : c == '\f'           ? "f"
                           : c == '\n'           ? "n"
                           : c == '\r'           ? "r"
                           : c == '\t'           ? "t"
                                                 : NULL;
        if (name)
            escape[1] = *name;
        buf_add(b, escape, name ? 2 : 6);
        s = stop + 1;
    }
    buf_addc(b, '"');
}

/* ---- tensors -------------------------------------------------------------------------------- */

enum { BLOCK = 64 };

/*
 * WRITE_ARRAY(name, type, put) - a bulk writer: blocks of values straight into the buffer, or by
 * way of the stack where the buffer's maximum is near, so that it is met to the byte.
 */
#define WRITE_ARRAY(name, type, put)                                                               \
    void name(struct buf *b, const type *values, size_t n)                                         \
    {                                                                                              \
        char block[BLOCK * NUMBER_ROOM];                                                           \
        buf_addc(b, '[');                                                                          \
        for (size_t i = 0; i < n && !b->failed;) {                                                 \
            bool direct = b->max - b->size >= sizeof(block);                                       \
            char *from = direct ? buf_reserve(b, sizeof(block)) : block;                           \
            if (!from)                                                                             \
                return;                                                                            \
            char *out = from;                                                                      \
            for (size_t stop = MIN(n, i + BLOCK); i < stop; i++) {                                 \
                out = put(out, values[i]);                                                         \
                *out++ = ',';                                                                      \
            }                                                                                      \
            if (direct)                                                                            \
                b->size += (size_t)(out - from);                                                   \
            else                                                                                   \
                buf_add(b, block, (size_t)(out - from));                                           \
        }                                                                                          \
        if (b->failed)                                                                             \
            return;                                                                                \
        b->size -= n > 0; /* the last comma */                                                     \
        buf_addc(b, ']');                                                                          \
    }

static inline char *put_bool(char *out, uint8_t value)
{
    memcpy(out, value ? "true\0" : "false", 5);
    return out + (value ? 4 : 5);
}

WRITE_ARRAY(json_write_f32s, float, put_double)
WRITE_ARRAY(json_write_f64s, double, put_double)
WRITE_ARRAY(json_write_i8s, int8_t, put_int64)
WRITE_ARRAY(json_write_i16s, int16_t, put_int64)
WRITE_ARRAY(json_write_i32s, int32_t, put_int64)
WRITE_ARRAY(json_write_i64s, int64_t, put_int64)
WRITE_ARRAY(json_write_u8s, uint8_t, put_uint64)
WRITE_ARRAY(json_write_u16s, uint16_t, put_uint64)
WRITE_ARRAY(json_write_u32s, uint32_t, put_uint64)
WRITE_ARRAY(json_write_u64s, uint64_t, put_uint64)
WRITE_ARRAY(json_write_bools, uint8_t, put_bool)

/* ---- the writer that sets commas ------------------------------------------------------------ */

void json_put_value(struct json_writer *w)
{
    if (w->comma)
        buf_addc(w->out, ',');
    w->comma = true;
}

void json_put_open(struct json_writer *w, char bracket)
{
    json_put_value(w);
    buf_addc(w->out, bracket);
    w->comma = false;
}

void json_put_close(struct json_writer *w, char bracket)
{
    buf_addc(w->out, bracket);
    w->comma = true;
}

void json_put_name_n(struct json_writer *w, const char *name, size_t length)
{
    json_put_value(w);
    json_write_string(w->out, name, length);
    buf_addc(w->out, ':');
    w->comma = false;
}

void json_put_name(struct json_writer *w, const char *name)
{
    json_put_name_n(w, name, strlen(name));
}

void json_put_string(struct json_writer *w, const char *s, size_t length)
{
    json_put_value(w);
    json_write_string(w->out, s, length);
}

void json_put_text(struct json_writer *w, const char *s)
{
    json_put_string(w, s, strlen(s));
}

void json_put_bool(struct json_writer *w, bool value)
{
    json_put_value(w);
    json_write_bool(w->out, value);
}

void json_put_int64(struct json_writer *w, int64_t value)
{
    json_put_value(w);
    json_write_int64(w->out, value);
}

void json_put_uint64(struct json_writer *w, uint64_t value)
{
    json_put_value(w);
    json_write_uint64(w->out, value);
}

void json_put_double(struct json_writer *w, double value)
{
    json_put_value(w);
    json_write_double(w->out, value);
}
