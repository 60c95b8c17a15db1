/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing numbers, one at a time and whole tensors of them.
 *
 * A double is printed with the shortest digits that read back as the same double, and of those the
 * ones nearest to it. In nearly every case one product with a 128-bit power of ten decides that
 * (shorten_quick()). Where the result depends on bits that this product does not have, the
 * Schubfach algorithm decides exactly (R. Giulietti, "The Schubfach way to render doubles", 2020),
 * with a trick: its bounds are 4c ± 2 where the value is 4c, so their products are not multiplied
 * again but differ from the value's by a shifted power.
 *
 * Floats are printed as the doubles that they are equal to or, on request, with the shortest digits
 * that read back as the same float, by the same methods with numbers of half the width.
 *
 * Digits are made sixteen at once. The path of the usual number has no branch on what cannot be
 * predicted: its sign, how many digits it has, whether it is below one. Where the processor has
 * AVX-512 or AVX2, json_print_avx512.c or json_print_avx2.c prints the usual floats.
 */
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/buf.h"
#include "base/json_priv.h"

/* ---- digits --------------------------------------------------------------------------------- */

enum {
    MAX_NUMBER_BYTES = 25, /* "-0.00000" and 17 digits */
    SLACK = 4,             /* the largest error of our products, in their last bits */
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

static inline void store_word(char *out, uint64_t word)
{
    memcpy(out, &word, 8);
}

/*
 * Writes the eight digits of high and the eight of low, both < 10^8; returns how many there are up
 * to the last one that is not zero.
 *
 * @least  1, or 3 to count one even when all are zero
 */
static inline unsigned put_sixteen(char *out, uint32_t high, uint32_t low, unsigned least)
{
#ifdef __SSE2__
    /* The same steps as above on both halves: fours, pairs, single digits, by reciprocals. */
    __m128i hundred = _mm_set1_epi16(100), ten = _mm_set1_epi16(10);
    __asm__("" : "+x"(hundred), "+x"(ten)); /* gcc would replace the products by shifts and sums */
    __m128i v = _mm_set_epi64x(low, high);
    __m128i q = _mm_srli_epi64(_mm_mul_epu32(v, _mm_set1_epi64x(3518437209)), 45);
    v = _mm_sub_epi64(v, _mm_mul_epu32(q, _mm_set1_epi64x(10000)));
    v = _mm_or_si128(q, _mm_slli_epi64(v, 32));
    q = _mm_srli_epi16(_mm_mulhi_epu16(v, _mm_set1_epi16(5243)), 3);
    v = _mm_sub_epi16(v, _mm_mullo_epi16(q, hundred));
    v = _mm_or_si128(q, _mm_slli_epi32(v, 16));
    q = _mm_mulhi_epu16(v, _mm_set1_epi16(6554));
    v = _mm_sub_epi16(v, _mm_mullo_epi16(q, ten));
    v = _mm_or_si128(q, _mm_slli_epi16(v, 8));
    unsigned some = (unsigned)_mm_movemask_epi8(_mm_cmpgt_epi8(v, _mm_setzero_si128()));
    _mm_storeu_si128((__m128i *)(void *)out, _mm_or_si128(v, _mm_set1_epi8('0')));
    return 31 - (unsigned)__builtin_clz(some << 1 | least);
#else
    uint64_t a = split_digits(high), b = split_digits(low);
    store_word(out, a | ASCII_ZEROS);
    store_word(out + 8, b | ASCII_ZEROS);
    unsigned n = b   ? 16 - ((unsigned)__builtin_clzll(b) >> 3)
                 : a ? 8 - ((unsigned)__builtin_clzll(a) >> 3)
                     : 0;
    return MAX(n, least >> 1);
#endif
}

/* Writes x without leading zeros; returns the end. Room for 24 bytes. */
static inline char *put_uint64(char *out, uint64_t x)
{
    if (LIKELY(x < 100000000)) {
        uint64_t digits = split_digits((uint32_t)x);
        unsigned zeros = digits ? (unsigned)__builtin_ctzll(digits) >> 3 : 7;
        store_word(out, (digits | ASCII_ZEROS) >> (8 * zeros));
        return out + 8 - zeros;
    }
    uint64_t high = x / 100000000;
    if (high >= 100000000) {
        out = put_uint64(out, high / 100000000);
        store_word(out, split_digits((uint32_t)(high % 100000000)) | ASCII_ZEROS);
        out += 8;
    } else {
        out = put_uint64(out, high);
    }
    store_word(out, split_digits((uint32_t)(x % 100000000)) | ASCII_ZEROS);
    return out + 8;
}

static inline char *put_int64(char *out, int64_t x)
{
    *out = '-';
    return put_uint64(out + (x < 0), x < 0 ? -(uint64_t)x : (uint64_t)x);
}

/* a or b, without a branch. */
static inline uint64_t choose_word(bool condition, uint64_t a, uint64_t b)
{
    return b ^ ((a ^ b) & -(uint64_t)condition);
}

/* ---- shortest doubles ----------------------------------------------------------------------- */

/* digits · 10^exponent, 10^16 <= digits < 10^17; of a float 10^8 <= digits < 10^9 */
struct shortest {
    uint64_t digits;
    int exponent;
};

/* Returns the integer part of a product with a power of ten; its lowest bit is set when there is
 * a fraction. */
static inline uint64_t round_to_odd(uint64_t hi, uint64_t mid)
{
    return hi | (mid > 1);
}

/*
 * Returns the shortest decimal of the double with these fields, which is positive and finite. The
 * paper's s, s' and w' are the 17 digit and 16 digit candidates below and above.
 */
static __attribute__((noinline)) struct shortest shorten_double(uint64_t fraction, int biased)
{
    uint64_t c = biased ? fraction | (uint64_t)1 << 52 : fraction;
    int q = biased ? biased - 1075 : -1074;
    bool closer_below = fraction == 0 && biased > 1; /* the gap below is half the one above */
    unsigned odd = c & 1;                            /* the interval then lacks its bounds */

    int k = (q * 1262611 - (closer_below ? 524031 : 0)) >> 22; /* log10 of the interval, floored */
    int h = q + json_log2_pow10(-k) + 1;
    struct json_pow10 power = json_pow10_table[-k - JSON_POW10_MIN];
    if ((-k < 0 || -k > 55) && ++power.lo == 0) /* rounded up unless it is exact */
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
    while (digits < 10000000000000000u) { /* once at most, except for subnormals */
        digits *= 10;
        k--;
    }
    return (struct shortest){digits, k};
}

/*
 * The same for nearly all doubles: false for the others. With 10^k <= 2^q < 10^(k+1), the value is
 * s + f in units of 10^k, and everything within `half`, which is 0.5 to 5 such units, reads back as
 * it. A multiple of ten in that range is the shorter answer; there is one or none. Otherwise the
 * nearest integer is, at most 0.5 away.
 */
static inline bool shorten_quick(uint64_t fraction, int biased, struct shortest *ret_shortest)
{
    if (UNLIKELY(fraction == 0 || biased == 0))
        return false; /* the interval is not symmetric, or there are fewer digits */
    uint64_t c = fraction | (uint64_t)1 << 52;
    int q = biased - 1075;
    int k = (q * 1262611) >> 22;
    int h = q + json_log2_pow10(-k) + 1; /* 1 to 4 */
    const struct json_pow10 *power = &json_pow10_table[-k - JSON_POW10_MIN];

    /* The power is truncated, so f may be too small by at most 2 of its units. */
    uint64_t cp = c << h;
    unsigned __int128 product =
        (unsigned __int128)power->hi * cp + (uint64_t)((unsigned __int128)power->lo * cp >> 64);
    uint64_t s = (uint64_t)(product >> 64), f = (uint64_t)product;

    /* With 60 bits after the point: the distance from the multiple of ten below, and to the one
     * above; half a unit in the last place of the double. */
    uint64_t rest = s % 10;
    uint64_t from_below = rest << 60 | f >> 4;
    uint64_t to_above = ((uint64_t)10 << 60) - from_below;
    uint64_t half = power->hi >> (5 - h);
    if (UNLIKELY((from_below - half + SLACK <= 2 * SLACK) | (to_above - half + SLACK <= 2 * SLACK) |
                 (f - ((uint64_t)1 << 63) + SLACK <= 2 * SLACK)))
        return false; /* too close to call */
    bool above = to_above <= half;
    uint64_t ten = s - rest + choose_word(above, 10, 0);
    uint64_t digits = choose_word((from_below <= half) | above, ten, s + (f >> 63));

    bool sixteen = digits < 10000000000000000u;
    ret_shortest->digits = digits * choose_word(sixteen, 10, 1);
    ret_shortest->exponent = k - sixteen;
    return true;
}

static char *put_exponent(char *out, int exponent)
{
    *out++ = 'e';
    return put_int64(out, exponent);
}

/*
 * Writes 17 digits, the first one, eight and eight, without the zeros at their end; returns the
 * end. Room for JSON_NUMBER_ROOM bytes.
 *
 * @point  the digits before it; RapidJSON's forms depend on that
 */
static inline char *put_decimal(char *out, uint32_t first, uint32_t high, uint32_t low, int point)
{
    if (LIKELY(point <= 1 && point > -6)) {
        /* Below 10 and not tiny: one way for "1.23" and "0.00123", which come in any order. */
        bool one = point == 1;
        store_word(out, 0x3030303030302e30); /* "0.000000" */
        out += choose_word(one, 0, (uint64_t)(2 - point));
        *out = (char)('0' + first);
        out += 1 + one;
        return out + put_sixteen(out, high, low, one ? 3 : 1);
    }
    if (point > 0 && point <= 21) {
        char digits[40];
        digits[0] = (char)('0' + first);
        int n = 1 + (int)put_sixteen(digits + 1, high, low, 1);
        store_word(digits + 17, ASCII_ZEROS);
        store_word(digits + 25, ASCII_ZEROS);
        memcpy(out, digits, 24);
        memcpy(out + point + 1, digits + MIN(point, 17), 16);
        out[point] = '.';
        if (n > point)
            return out + n + 1;
        out[point + 1] = '0';
        return out + point + 2;
    }
    out[0] = (char)('0' + first);
    out[1] = '.';
    unsigned n = put_sixteen(out + 2, high, low, 1);
    return put_exponent(out + (n ? 2 + n : 1), point - 1);
}

/* Writes a finite value; returns the end. Room for JSON_NUMBER_ROOM bytes. */
static __attribute__((noinline)) char *put_finite(char *out, uint64_t bits)
{
    uint64_t fraction = bits & 0xfffffffffffff;
    int biased = (int)(bits >> 52 & 0x7ff);
    *out = '-';
    out += bits >> 63;

    /* Integers below 2^53 are their own shortest digits: no bit is set below the point. */
    uint64_t c = fraction | (uint64_t)1 << 52;
    if ((unsigned)(1075 - biased) <= (unsigned)__builtin_ctzll(c)) {
        out = put_uint64(out, c >> (1075 - biased));
        memcpy(out, ".0", 2);
        return out + 2;
    }
    if (UNLIKELY((bits << 1) == 0)) {
        memcpy(out, "0.0", 3);
        return out + 3;
    }

    struct shortest v;
    if (UNLIKELY(!shorten_quick(fraction, biased, &v)))
        v = shorten_double(fraction, biased);
    uint64_t top = v.digits / 100000000; /* 9 digits */
    uint32_t low = (uint32_t)(v.digits - top * 100000000);
    uint32_t first = (uint32_t)top / 100000000, high = (uint32_t)top - first * 100000000;
    return put_decimal(out, first, high, low, 17 + v.exponent);
}

/* Writes NaN or an infinity. */
static char *put_word(char *out, bool is_nan, bool negative)
{
    const char *word = is_nan ? "NaN" : negative ? "-Infinity" : "Infinity";
    size_t length = strlen(word);
    memcpy(out, word, length);
    return out + length;
}

/* Writes any double. */
static __attribute__((noinline)) char *put_any(char *out, uint64_t bits)
{
    if ((bits >> 52 & 0x7ff) != 0x7ff)
        return put_finite(out, bits);
    return put_word(out, (bits & 0xfffffffffffff) != 0, bits >> 63);
}

/*
 * The values that shorten_quick() and put_finite() compute from the exponent alone, for doubles
 * from 1e-4 to 8: usual models' tensors consist of those.
 */
static struct usual {
    uint64_t hi, lo; /* the power of ten, for a significand of 57 bits */
    uint64_t half;
    unsigned char first_at, rest_at; /* where the first of 17 digits goes, and the others */
    unsigned char least;             /* of put_sixteen(): above one, a digit follows the point */
} usual_table[16];
enum { USUAL_FROM = 1010, USUAL_END = 1026 }; /* biased exponents: 2^-13 to 2^3 */

/* The same for shortest floats of this size, which need no rounded power of ten. */
static struct usual_float {
    uint32_t factor; /* of the significand: the product has SHORT_BITS bits behind the point */
    uint32_t scale;  /* 10 where that has 8 digits, 1 where it has 9 */
    unsigned char first_at, rest_at, least; /* as above; the first of 9 digits */
} usual_floats[USUAL_END - USUAL_FROM];
enum { USUAL_TO_FLOAT = 1023 - 127, SHORT_BITS = 27 };

static void prepare_floats(void)
{
    for (int biased = USUAL_FROM; biased < USUAL_END; biased++) {
        int q = biased - 1023 - 23;
        int k = (q * 1262611) >> 22; /* log10 of the float's last bit, floored */
        bool is_whole = biased >= 1023;
        int point = 9 + k - is_whole; /* at most 1 */
        uint64_t factor = 1;
        for (int i = k; i < 0; i++)
            factor *= 5;
        usual_floats[biased - USUAL_FROM] = (struct usual_float){
            .factor = (uint32_t)(factor << (SHORT_BITS + q - k)),
            .scale = is_whole ? 10 : 1,
            .first_at = (unsigned char)(point == 1 ? 0 : 2 - point),
            .rest_at = (unsigned char)(point == 1 ? 2 : 3 - point),
            .least = point == 1 ? 3 : 1,
        };
    }
}

void json_print_prepare(void)
{
    for (int biased = USUAL_FROM; biased < USUAL_END; biased++) {
        int q = biased - 1075;
        int k = (q * 1262611) >> 22;
        int h = q + json_log2_pow10(-k) + 1; /* 1 to 4 */
        int point = 17 + k; /* at most 1; the first digit may be zero, which is right there */
        struct json_pow10 power = json_pow10_table[-k - JSON_POW10_MIN];
        unsigned __int128 shifted = ((unsigned __int128)power.hi << 64 | power.lo) >> (4 - h);
        usual_table[biased - USUAL_FROM] = (struct usual){
            .hi = (uint64_t)(shifted >> 64),
            .lo = (uint64_t)shifted,
            .half = power.hi >> (5 - h),
            .first_at = (unsigned char)(point == 1 ? 0 : 2 - point),
            .rest_at = (unsigned char)(point == 1 ? 2 : 3 - point),
            .least = point == 1 ? 3 : 1,
        };
    }
    prepare_floats();
}

/*
 * Writes any double, the usual ones fast; shorten_quick() explains how.
 *
 * @is_float  the value was a float. Of floats that are no ties none is too close to call: all 134
 *            million with these exponents were compared with the exact way, and the unit test
 *            takes samples.
 */
static inline __attribute__((always_inline)) char *put_quick(char *out, uint64_t bits,
                                                             bool is_float)
{
    unsigned index = (unsigned)(bits >> 52 & 0x7ff) - USUAL_FROM;
    if (index >= USUAL_END - USUAL_FROM || (bits & 0xfffffffffffff) == 0)
        return put_any(out, bits);
    const struct usual *u = &usual_table[index];
    uint64_t cp = bits << 12 >> 8 | (uint64_t)1 << 56;
    unsigned __int128 product =
        (unsigned __int128)u->hi * cp + (uint64_t)((unsigned __int128)u->lo * cp >> 64);
    uint64_t s = (uint64_t)(product >> 64), f = (uint64_t)product;

    uint64_t tens = s / 10 * 10;
    uint64_t from_below = (s - tens) << 60 | f >> 4;
    uint64_t to_above = ((uint64_t)10 << 60) - from_below;
    if (UNLIKELY(f - ((uint64_t)1 << 63) + SLACK <= 2 * SLACK))
        return put_any(out, bits);
    if (!is_float && UNLIKELY((from_below - u->half + SLACK <= 2 * SLACK) |
                              (to_above - u->half + SLACK <= 2 * SLACK)))
        return put_any(out, bits);
    uint64_t unit = (from_below + ((uint64_t)1 << 59)) >> 60; /* the nearest, 0 to 10 */
    unit &= -(uint64_t)(from_below > u->half);
    unit = choose_word(to_above <= u->half, 10, unit);
    uint64_t digits = tens + unit;

    uint64_t top = digits / 100000000;
    uint32_t first = (uint32_t)top / 100000000;
    *out = '-';
    out += bits >> 63;
    store_word(out, 0x3030303030302e30); /* "0.000000" */
    out[u->first_at] = (char)('0' + first);
    out += u->rest_at;
    return out + put_sixteen(out, (uint32_t)top - first * 100000000,
                             (uint32_t)(digits - top * 100000000), u->least);
}

static inline __attribute__((always_inline)) char *put_double(char *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return put_quick(out, bits, false);
}

static inline __attribute__((always_inline)) char *put_float(char *out, float value)
{
    double wide = (double)value;
    uint64_t bits;
    memcpy(&bits, &wide, 8);
    return put_quick(out, bits, true);
}

char *json_print_double(char *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    *out = ',';
    return put_any(out + 1, bits);
}

/* ---- shortest floats ------------------------------------------------------------------------ */

/* As round_to_odd(), for a product of 32 bits with a power of ten of 64 bits. */
static inline uint32_t float_to_odd(unsigned __int128 product)
{
    return (uint32_t)(product >> 64) | ((uint32_t)(product >> 32) > 1);
}

/*
 * Returns the shortest decimal of the float with these fields, which is positive and finite; as
 * shorten_double(), whose comments hold here, but with 9 digits. The power of ten is always rounded
 * up: its 64 bits are more than enough to distinguish the products from integers.
 */
static inline struct shortest shorten_float(uint32_t fraction, int biased)
{
    uint32_t c = biased ? fraction | (uint32_t)1 << 23 : fraction;
    int q = biased ? biased - 150 : -149;
    bool closer_below = fraction == 0 && biased > 1;
    unsigned odd = c & 1;

    int k = (q * 1262611 - (closer_below ? 524031 : 0)) >> 22;
    int h = q + json_log2_pow10(-k) + 1;
    unsigned __int128 power =
        (unsigned __int128)json_pow10_table[-k - JSON_POW10_MIN].hi + 1; /* may be 2^64 */
    unsigned __int128 value = power * ((uint64_t)c << (2 + h));
    uint32_t vb = float_to_odd(value);
    uint32_t upper = float_to_odd(value + (power << (h + 1))) - odd;
    uint32_t lower = float_to_odd(value - (power << (h + 1 - closer_below))) + odd;

    uint32_t s = vb / 4, tenth = s / 10, digits;
    bool under = lower <= 40 * tenth, over = 40 * tenth + 40 <= upper;
    if (under != over) {
        digits = (tenth + over) * 10;
    } else {
        under = lower <= 4 * s;
        over = 4 * s + 4 <= upper;
        uint32_t middle = 4 * s + 2;
        bool round_up = vb > middle || (vb == middle && (s & 1));
        digits = s + (under != over ? over : round_up);
    }
    while (digits < 100000000) { /* twice at most, except for subnormals */
        digits *= 10;
        k--;
    }
    return (struct shortest){digits, k};
}

/* Writes any float, by its own shortest digits. */
static __attribute__((noinline)) char *put_any_shortest(char *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t fraction = bits & 0x7fffff;
    int biased = (int)(bits >> 23 & 0xff);
    if (UNLIKELY(biased == 0xff))
        return put_word(out, fraction != 0, bits >> 31);
    *out = '-';
    out += bits >> 31;
    if (UNLIKELY((bits << 1) == 0)) {
        memcpy(out, "0.0", 3);
        return out + 3;
    }
    struct shortest v = shorten_float(fraction, biased);
    /* 7.038531e-26 is so near the middle of two floats that most clients, which round it to a
     * double first, read the other one. All floats were tried: no other has such digits. */
    if (UNLIKELY((bits & 0x7fffffff) == 0x15ae43fd))
        v = (struct shortest){703853070, -34};
    uint32_t digits = (uint32_t)v.digits, first = digits / 100000000;
    return put_decimal(out, first, digits - first * 100000000, 0, 9 + v.exponent);
}

/*
 * The same, fast for the usual floats. Their product with a power of ten is exact, and the
 * distances to the multiples of ten decide what shorten_float() decides by three bounds, as in
 * shorten_quick(). No decimal lies on the bounds. A power of two, whose lower bound is nearer,
 * comes out right, too: all floats of this size were compared with the exact way.
 */
static inline char *put_shortest(char *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    unsigned index = (bits >> 23 & 0xff) + USUAL_TO_FLOAT - USUAL_FROM;
    if (index >= USUAL_END - USUAL_FROM)
        return put_any_shortest(out, value);
    const struct usual_float *u = &usual_floats[index];
    uint64_t product = (uint64_t)u->factor * ((bits & 0x7fffff) | 0x800000);
    uint32_t s = (uint32_t)(product >> SHORT_BITS), tens = s / 10 * 10;
    uint64_t from_below = product - ((uint64_t)tens << SHORT_BITS);
    uint64_t to_above = ((uint64_t)10 << SHORT_BITS) - from_below, half = u->factor >> 1;
    uint64_t up = ((uint64_t)1 << (SHORT_BITS - 1)) - 1 + (s & 1); /* ties to even */
    uint64_t unit = (from_below + up) >> SHORT_BITS & -(uint64_t)(from_below > half);
    unit = choose_word(to_above <= half, 10, unit);
    uint32_t digits = (tens + (uint32_t)unit) * u->scale, first = digits / 100000000;

    *out = '-';
    out += bits >> 31;
    store_word(out, 0x3030303030302e30); /* "0.000000" */
    out[u->first_at] = (char)('0' + first);
    out += u->rest_at;
    return out + put_sixteen(out, digits - first * 100000000, 0, u->least);
}

char *json_print_shortest(char *out, float value)
{
    *out = ',';
    return put_any_shortest(out + 1, value);
}

/* ---- single values -------------------------------------------------------------------------- */

void json_write_int64(struct buf *b, int64_t value)
{
    char text[JSON_NUMBER_ROOM];
    buf_add(b, text, (size_t)(put_int64(text, value) - text));
}

void json_write_uint64(struct buf *b, uint64_t value)
{
    char text[JSON_NUMBER_ROOM];
    buf_add(b, text, (size_t)(put_uint64(text, value) - text));
}

void json_write_double(struct buf *b, double value)
{
    char text[JSON_NUMBER_ROOM];
    buf_add(b, text, (size_t)(put_double(text, value) - text));
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* PRINT_VALUES(name, type, put) - defines a function that writes n values, each behind a comma,
 * and returns the end. */
#define PRINT_VALUES(name, type, put)                                                              \
    char *json_print_##name(char *out, const void *array, size_t n)                                \
    {                                                                                              \
        const type *values = array;                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            *out = ',';                                                                            \
            out = put(out + 1, values[i]);                                                         \
        }                                                                                          \
        return out;                                                                                \
    }

static inline char *put_bool(char *out, uint8_t value)
{
    memcpy(out, value ? "true\0" : "false", 5);
    return out + (value ? 4 : 5);
}

PRINT_VALUES(f32s, float, put_float)
PRINT_VALUES(shortest_f32s, float, put_shortest)
PRINT_VALUES(f64s, double, put_double)
PRINT_VALUES(i8s, int8_t, put_int64)
PRINT_VALUES(i16s, int16_t, put_int64)
PRINT_VALUES(i32s, int32_t, put_int64)
PRINT_VALUES(i64s, int64_t, put_int64)
PRINT_VALUES(u8s, uint8_t, put_uint64)
PRINT_VALUES(u16s, uint16_t, put_uint64)
PRINT_VALUES(u32s, uint32_t, put_uint64)
PRINT_VALUES(u64s, uint64_t, put_uint64)
PRINT_VALUES(bools, uint8_t, put_bool)
