/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing floats eight at a time, for processors with AVX2. The text is json_print.c's to the
 * byte: the 17 digits of the float as a double, or 16 where those read back as the same double.
 *
 * A float m·2^(e-23) below 2^16 and not below 2^-16 needs no rounded power of ten. With n decimals,
 * as many as make 17 digits, its first five are the integer part of m·5^(n-12)·2^(e+n-35), a
 * product of two 32-bit numbers with at most 30 bits behind the point; what is behind the point,
 * times 10^4, gives four more digits, and so three times. Each such product has four bits less
 * behind the point, since half of 10^4 = 5^4·2^4 is a shift: 18 bits are left, and all of it is
 * exact. round_last() decides between 17 and 16 digits as shorten_quick() does.
 *
 * One loop makes the digits of 32 floats, another puts them together, because there each number
 * waits for the place where the last one ends. What can be told from exponent, sign and a first
 * digit of zero is in layouts[]. Floats outside the range are left to json_print.c one by one.
 *
 * A picture of 150 528 floats takes 0.75 ms where json_print.c takes 1.75. The shortest digits of
 * the floats (put_eight_shortest()), which are nine at most, take 0.68 where the 17 take 0.83 in
 * the same run.
 */
#include "base/json_priv.h"

enum json_way json_way;

#ifdef __x86_64__
#include <immintrin.h>

struct json_float_scale json_float_scale;
#define factors       json_float_scale.factors
#define halves        json_float_scale.halves
#define short_factors json_float_scale.short_factors

#define AVX2   __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline))

enum {
    BLOCK = 32,
    FIRST_EXPONENT = JSON_FLOAT_FIRST, /* e of the smallest float that is printed here */
    N_EXPONENTS = JSON_FLOAT_EXPONENTS,
    BITS = JSON_FLOAT_BITS, /* behind the point of the first product */
    LAST_BITS = BITS - 12,
    FIVE_4 = 625,
    SHORT_BITS = JSON_SHORT_BITS, /* the same for shortest floats */

    /* Index of a layout, in bytes */
    LAYOUT_SHIFT = 4,
    LAYOUT_NEGATIVE = N_EXPONENTS << LAYOUT_SHIFT,
    LAYOUT_SHORT = 2 * LAYOUT_NEGATIVE, /* the first of all digits is zero */
    N_LAYOUTS = 4 * N_EXPONENTS,
    LAYOUT_SHORTEST = N_LAYOUTS << LAYOUT_SHIFT, /* there are 9 digits, not 17 */
};

/*
 * How the digits of a number are put together: the prefix, digits from the first one on, the point
 * among them if the prefix does not have it, and the digits behind the point once more.
 */
static struct layout {
    char prefix[8]; /* the comma, the sign, and "0.000" of numbers below one */
    uint8_t prefix_bytes;
    uint8_t first;    /* the first digit of the slot that is written */
    uint8_t behind;   /* the first digit behind the point */
    uint8_t point_at; /* behind the prefix; if the prefix has it, where a digit overwrites it */
    uint8_t behind_at;
    uint8_t more;  /* characters that the digits behind the first do not count */
    uint8_t least; /* bits: above one, the digit behind the point is written even if it is zero */
    uint8_t unused;
} layouts[2 * N_LAYOUTS];
_Static_assert(sizeof(struct layout) == 1 << LAYOUT_SHIFT, "an index is shifted to its place");

/*
 * The digits of a block. A slot has the first of 17 in its byte FIRST, the others behind it; the
 * bytes before that are not used.
 */
enum { SLOT_BYTES = 32, FIRST = 15 };
struct digits {
    _Alignas(32) char slots[BLOCK + 1][SLOT_BYTES]; /* one more, which is read but not used */
    _Alignas(32) uint32_t layout[BLOCK];            /* an index in bytes */
    uint16_t set[BLOCK];                            /* bits: which of the 16 are not zero */
};

/*
 * The layouts of one exponent.
 *
 * @at       where the first one is, of layouts[]
 * @n_whole  digits before the point; below 1 zeros follow it
 */
static void prepare_layouts(int at, int n_whole)
{
    for (int kind = 0; kind < 4; kind++) {
        bool negative = kind & 1, is_short = (kind & 2) && n_whole > 1;
        struct layout *l = &layouts[at + kind * N_EXPONENTS];
        size_t n = 0;
        l->prefix[n++] = ',';
        if (negative)
            l->prefix[n++] = '-';
        if (n_whole < 1) {
            l->prefix[n++] = '0';
            l->prefix[n++] = '.';
            for (int zeros = n_whole; zeros < 0; zeros++)
                l->prefix[n++] = '0';
        }
        bool has_point = n_whole >= 1;
        int before = MAX(n_whole, 1) - is_short;
        l->prefix_bytes = (uint8_t)n;
        l->first = (uint8_t)(FIRST + is_short);
        l->behind = (uint8_t)(l->first + before);
        l->point_at = (uint8_t)before;
        l->behind_at = (uint8_t)(before + has_point);
        l->more = (uint8_t)(1 - is_short + has_point);
        l->least = (uint8_t)(1 << (has_point ? n_whole : 0));
    }
}

static uint64_t five_to(int exponent)
{
    return exponent > 0 ? 5 * five_to(exponent - 1) : 1;
}

void json_prepare_floats(void)
{
    for (int i = 0; i < N_EXPONENTS; i++) {
        int e = FIRST_EXPONENT + i, n_decimals = 17 - json_float_wholes(i, false);
        uint64_t factor = five_to(n_decimals - 12) << (BITS + e + n_decimals - 35);
        factors[i] = (uint32_t)factor;
        halves[i] = (uint32_t)((factor * 244140625) >> 30); /* 5^12: of the double's last bit */
        n_decimals = 9 - json_float_wholes(i, true);
        short_factors[i] = (uint32_t)(five_to(n_decimals) << (SHORT_BITS + e + n_decimals - 23));
    }
}

__attribute__((constructor)) static void prepare(void)
{
    __builtin_cpu_init();
    /* json_read_avx2.c also uses instructions that came with AVX2, but that a hypervisor may
     * hide. */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
        json_way = JSON_AVX2;
    if (json_way == JSON_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512cd"))
        json_way = JSON_AVX512;
    json_prepare_floats();
    for (int i = 0; i < N_EXPONENTS; i++) {
        prepare_layouts(i, json_float_wholes(i, false));
        prepare_layouts(i + N_LAYOUTS, json_float_wholes(i, true));
    }
}

/* ---- digits --------------------------------------------------------------------------------- */

#define EACH_16(x) _mm256_set1_epi16(x)
#define EACH_32(x) _mm256_set1_epi32(x)
#define EACH_64(x) _mm256_set1_epi64x(x)

/* In 64-bit lanes: moves the lower halves of b to the upper halves of a. */
AVX2 INLINE __m256i pair(__m256i a, __m256i b)
{
    return _mm256_or_si256(a, _mm256_slli_epi64(b, 32));
}

/* Multiplies x by a constant, in 16-bit lanes; hidden from gcc, which would use shifts and sums. */
AVX2 INLINE __m256i times_16(__m256i x, short factor)
{
    __m256i factors_16 = EACH_16(factor);
    __asm__("" : "+x"(factors_16));
    return _mm256_mullo_epi16(x, factors_16);
}

/* table[index] in each 32-bit lane, index < 32. */
AVX2 INLINE __m256i look_up(const uint32_t table[32], __m256i index)
{
    const __m256i *t = (const __m256i *)(const void *)table;
    __m256 part[4];
    for (int i = 0; i < 4; i++) {
        __m256i eight = _mm256_permutevar8x32_epi32(_mm256_load_si256(t + i), index);
        part[i] = _mm256_castsi256_ps(eight);
    }
    __m256 bit_3 = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    __m256 bit_4 = _mm256_castsi256_ps(_mm256_slli_epi32(index, 27));
    __m256 lower = _mm256_blendv_ps(part[0], part[1], bit_3);
    __m256 upper = _mm256_blendv_ps(part[2], part[3], bit_3);
    return _mm256_castps_si256(_mm256_blendv_ps(lower, upper, bit_4));
}

/* Four floats, one in each 64-bit lane. */
struct four {
    __m256i first;  /* digit */
    __m256i groups; /* three numbers of four digits each, 16 bits wide, the first one lowest */
    __m256i last;   /* the last four digits, and LAST_BITS bits behind them */
};

/* Multiplies the bits behind the point of a product by 10^4; `bits` has a bit for each of them. */
AVX2 INLINE __m256i next_product(__m256i product, int bits)
{
    __m256i behind = _mm256_and_si256(product, EACH_64(((int64_t)1 << bits) - 1));
    return _mm256_mul_epu32(behind, EACH_64(FIVE_4));
}

/* Splits; significands and factors are in the lower halves of the lanes. */
AVX2 INLINE struct four split(__m256i significand, __m256i factor)
{
    struct four f;
    __m256i product = _mm256_mul_epu32(significand, factor);
    __m256i five = _mm256_srli_epi64(product, BITS);
    f.first = _mm256_srli_epi64(_mm256_mul_epu32(five, EACH_64(429497)), 32); /* over 10^4 */
    f.groups = _mm256_sub_epi64(five, _mm256_mul_epu32(f.first, EACH_64(10000)));
    product = next_product(product, BITS);
    __m256i group = _mm256_srli_epi64(product, BITS - 4);
    f.groups = _mm256_or_si256(f.groups, _mm256_slli_epi64(group, 16));
    product = next_product(product, BITS - 4);
    group = _mm256_srli_epi64(product, BITS - 8);
    f.groups = _mm256_or_si256(f.groups, _mm256_slli_epi64(group, 32));
    f.last = next_product(product, BITS - 8);
    return f;
}

/*
 * Rounds the last four digits: to a multiple of ten when one is within `half`, which is half the
 * last bit of the double (two never are), otherwise to the nearest, ties to even. May return 10000.
 */
AVX2 INLINE __m256i round_last(__m256i last, __m256i half)
{
    __m256i ten = EACH_32(10), one = EACH_32(1);
    __m256i group = _mm256_srli_epi32(last, LAST_BITS);
    __m256i tens = times_16(_mm256_mulhi_epu16(group, EACH_32(6554)), 10); /* digit 4 is zero */
    __m256i from_below = _mm256_sub_epi32(last, _mm256_slli_epi32(tens, LAST_BITS));
    __m256i to_above = _mm256_sub_epi32(_mm256_slli_epi32(ten, LAST_BITS), from_below);
    __m256i almost_half = EACH_32((1 << (LAST_BITS - 1)) - 1);
    __m256i up = _mm256_add_epi32(_mm256_and_si256(group, one), almost_half);
    __m256i unit = _mm256_srli_epi32(_mm256_add_epi32(from_below, up), LAST_BITS);
    unit = _mm256_and_si256(unit, _mm256_cmpgt_epi32(from_below, half));
    unit = _mm256_blendv_epi8(ten, unit, _mm256_cmpgt_epi32(to_above, half));
    return _mm256_add_epi32(tens, unit);
}

/* Numbers below 10^4 in 16-bit lanes become two bytes below 100, the first one lower. */
AVX2 INLINE __m256i split_fours(__m256i x)
{
    __m256i hundreds = _mm256_srli_epi16(_mm256_mulhi_epu16(x, EACH_16(5243)), 3);
    x = _mm256_sub_epi16(x, times_16(hundreds, 100));
    return _mm256_or_si256(hundreds, _mm256_slli_epi16(x, 8));
}

/* Sixteen digits for slot i and for slot i + 4, from numbers below 100 in 16-bit lanes. */
AVX2 INLINE void put_digits(struct digits *d, size_t i, __m256i x)
{
    /* tens + 256·(x - 10·tens) */
    __m256i tens = _mm256_mulhi_epu16(x, EACH_16(6554));
    x = _mm256_sub_epi16(_mm256_slli_epi16(x, 8), times_16(tens, 2559));
    uint32_t set = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(x, _mm256_setzero_si256()));
    d->set[i] = (uint16_t)set;
    d->set[i + 4] = (uint16_t)(set >> 16);
    x = _mm256_or_si256(x, _mm256_set1_epi8('0'));
    char *slot = d->slots[i] + FIRST + 1, *other = d->slots[i + 4] + FIRST + 1;
    _mm_store_si128((__m128i *)(void *)slot, _mm256_castsi256_si128(x));
    _mm_store_si128((__m128i *)(void *)other, _mm256_extracti128_si256(x, 1));
}

/* The first digits for slots i and i + 4, from the upper 64 bits of each half. */
AVX2 INLINE void put_first(struct digits *d, size_t i, __m256i x)
{
    _mm_store_si128((__m128i *)(void *)d->slots[i], _mm256_castsi256_si128(x));
    _mm_store_si128((__m128i *)(void *)d->slots[i + 4], _mm256_extracti128_si256(x, 1));
}

/* Slots i, i + 4, and j, j + 4. */
AVX2 INLINE void put_four(struct digits *d, size_t i, size_t j, __m256i first, __m256i groups)
{
    __m256i nothing = _mm256_setzero_si256();
    first = _mm256_slli_epi64(_mm256_or_si256(first, EACH_64('0')), 56);
    put_first(d, i, _mm256_unpacklo_epi64(first, first));
    put_first(d, j, first);
    __m256i pairs = split_fours(groups);
    put_digits(d, i, _mm256_unpacklo_epi8(pairs, nothing));
    put_digits(d, j, _mm256_unpackhi_epi8(pairs, nothing));
}

/* Eight floats, in 32-bit lanes. */
struct eight {
    __m256i bits;
    __m256i significand;
    __m256i nearest; /* index of the exponent; modulo N_EXPONENTS */
    __m256i is_usual;
};

AVX2 INLINE struct eight load_eight(const float *values)
{
    struct eight f;
    f.bits = _mm256_loadu_si256((const __m256i *)(const void *)values);
    __m256i index = _mm256_and_si256(_mm256_srli_epi32(f.bits, 23), EACH_32(0xff));
    index = _mm256_sub_epi32(index, EACH_32(127 + FIRST_EXPONENT));
    f.significand = _mm256_and_si256(f.bits, EACH_32(0x7fffff));
    f.significand = _mm256_or_si256(f.significand, EACH_32(0x800000));

    /* Zero, which is frequent, has the layout of 1.000 with other digits. */
    __m256i is_zero = _mm256_cmpeq_epi32(_mm256_slli_epi32(f.bits, 1), _mm256_setzero_si256());
    index = _mm256_blendv_epi8(index, EACH_32(-FIRST_EXPONENT), is_zero);
    f.significand = _mm256_andnot_si256(is_zero, f.significand);

    f.nearest = _mm256_and_si256(index, EACH_32(N_EXPONENTS - 1));
    f.is_usual = _mm256_cmpeq_epi32(index, f.nearest);
    return f;
}

/* The layouts of slots i to i + 7. is_short: the first digit is zero. */
AVX2 INLINE void put_layouts(struct digits *d, size_t i, const struct eight *f, __m256i is_short,
                             int base)
{
    __m256i sign = _mm256_srai_epi32(f->bits, 31);
    __m256i layout = _mm256_slli_epi32(f->nearest, LAYOUT_SHIFT);
    layout = _mm256_or_si256(layout, _mm256_and_si256(is_short, EACH_32(LAYOUT_SHORT)));
    layout = _mm256_or_si256(layout, _mm256_and_si256(sign, EACH_32(LAYOUT_NEGATIVE)));
    layout = _mm256_or_si256(layout, EACH_32(base));
    _mm256_store_si256((__m256i *)(void *)(d->layout + i), layout);
}

/* Puts eight floats into slots i to i + 7; returns a bit for each that could be printed. */
AVX2 INLINE uint32_t put_eight(struct digits *d, size_t i, const float *values)
{
    struct eight f = load_eight(values);
    __m256i factor = look_up(factors, f.nearest), half = look_up(halves, f.nearest);

    struct four even = split(f.significand, factor);
    struct four odd = split(_mm256_srli_epi64(f.significand, 32), _mm256_srli_epi64(factor, 32));
    __m256i last = round_last(pair(even.last, odd.last), half);
    __m256i carries = _mm256_cmpgt_epi32(last, EACH_32(9999));
    even.groups = _mm256_or_si256(even.groups, _mm256_slli_epi64(last, 48));
    last = _mm256_srli_epi64(last, 32);
    odd.groups = _mm256_or_si256(odd.groups, _mm256_slli_epi64(last, 48));
    put_four(d, i, i + 2, even.first, even.groups);
    put_four(d, i + 1, i + 3, odd.first, odd.groups);

    __m256i first = pair(even.first, odd.first);
    put_layouts(d, i, &f, _mm256_cmpeq_epi32(first, _mm256_setzero_si256()), 0);
    __m256i is_done = _mm256_andnot_si256(carries, f.is_usual);
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_done));
}

/* ---- shortest floats ------------------------------------------------------------------------ */

/* A tenth of the lower halves of 64-bit lanes, below 2^30, truncated, times ten. */
AVX2 INLINE __m256i cut_to_tens(__m256i x)
{
    __m256i tenth = _mm256_srli_epi64(_mm256_mul_epu32(x, EACH_64(429496730)), 32);
    return _mm256_mul_epu32(tenth, EACH_64(10));
}

/*
 * Returns the nine digits of each as a number. shorten_float()'s s, with 27 bits behind its point,
 * is one exact product, and half an ulp is half of its factor; put_shortest() does the same for one
 * float.
 */
AVX2 INLINE __m256i shorten_eight(__m256i significand, __m256i factor)
{
    __m256i ten = EACH_32(10), one = EACH_32(1), mask = EACH_64((1 << SHORT_BITS) - 1);
    __m256i even = _mm256_mul_epu32(significand, factor);
    __m256i odd =
        _mm256_mul_epu32(_mm256_srli_epi64(significand, 32), _mm256_srli_epi64(factor, 32));
    __m256i behind = pair(_mm256_and_si256(even, mask), _mm256_and_si256(odd, mask));
    even = _mm256_srli_epi64(even, SHORT_BITS);
    odd = _mm256_srli_epi64(odd, SHORT_BITS);
    __m256i s = pair(even, odd), tens = pair(cut_to_tens(even), cut_to_tens(odd));

    __m256i rest = _mm256_sub_epi32(s, tens), half = _mm256_srli_epi32(factor, 1);
    __m256i from_below = _mm256_or_si256(_mm256_slli_epi32(rest, SHORT_BITS), behind);
    __m256i to_above = _mm256_sub_epi32(_mm256_slli_epi32(ten, SHORT_BITS), from_below);
    __m256i almost_half = EACH_32((1 << (SHORT_BITS - 1)) - 1);
    __m256i up = _mm256_add_epi32(_mm256_and_si256(s, one), almost_half);
    __m256i unit = _mm256_srli_epi32(_mm256_add_epi32(from_below, up), SHORT_BITS);
    unit = _mm256_and_si256(unit, _mm256_cmpgt_epi32(from_below, half));
    unit = _mm256_blendv_epi8(ten, unit, _mm256_cmpgt_epi32(to_above, half));
    return _mm256_add_epi32(tens, unit);
}

/* Numbers below 10^8 in 32-bit lanes become two of four digits each, the first one lower. */
AVX2 INLINE __m256i split_eights(__m256i x)
{
    __m256i reciprocal = EACH_64(3518437209);
    __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(x, reciprocal), 45);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), reciprocal);
    __m256i high = pair(even, _mm256_srli_epi64(odd, 45));
    __m256i low = _mm256_sub_epi32(x, _mm256_madd_epi16(high, EACH_32(10000)));
    return _mm256_or_si256(high, _mm256_slli_epi32(low, 16));
}

/*
 * Slots i, i + 1, and j, j + 1.
 *
 * @first  in the last byte of each 64-bit lane
 * @x      numbers below 100 in 16-bit lanes
 */
AVX2 INLINE void put_nine(struct digits *d, size_t i, size_t j, __m256i first, __m256i x)
{
    __m256i tens = _mm256_mulhi_epu16(x, EACH_16(6554));
    x = _mm256_sub_epi16(_mm256_slli_epi16(x, 8), times_16(tens, 2559));
    uint32_t set = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(x, _mm256_setzero_si256()));
    d->set[i] = (uint8_t)set;
    d->set[i + 1] = (uint8_t)(set >> 8);
    d->set[j] = (uint8_t)(set >> 16);
    d->set[j + 1] = (uint8_t)(set >> 24);
    x = _mm256_or_si256(x, _mm256_set1_epi8('0'));
    __m256i lower = _mm256_unpacklo_epi64(first, x), upper = _mm256_unpackhi_epi64(first, x);
    enum { AT = FIRST - 7 };
    _mm_storeu_si128((__m128i *)(void *)(d->slots[i] + AT), _mm256_castsi256_si128(lower));
    _mm_storeu_si128((__m128i *)(void *)(d->slots[i + 1] + AT), _mm256_castsi256_si128(upper));
    _mm_storeu_si128((__m128i *)(void *)(d->slots[j] + AT), _mm256_extracti128_si256(lower, 1));
    _mm_storeu_si128((__m128i *)(void *)(d->slots[j + 1] + AT), _mm256_extracti128_si256(upper, 1));
}

/* As put_eight(). */
AVX2 INLINE uint32_t put_eight_shortest(struct digits *d, size_t i, const float *values)
{
    __m256i nothing = _mm256_setzero_si256();
    struct eight f = load_eight(values);
    __m256i digits = shorten_eight(f.significand, look_up(short_factors, f.nearest));
    __m256i has_nine = _mm256_cmpgt_epi32(digits, EACH_32(99999999)); /* then it begins with 1 */
    digits = _mm256_sub_epi32(digits, _mm256_and_si256(has_nine, EACH_32(100000000)));
    __m256i first = _mm256_slli_epi32(_mm256_sub_epi32(EACH_32('0'), has_nine), 24);
    __m256i pairs = split_fours(split_eights(digits));
    put_nine(d, i, i + 4, _mm256_unpacklo_epi32(nothing, first),
             _mm256_unpacklo_epi8(pairs, nothing));
    put_nine(d, i + 2, i + 6, _mm256_unpackhi_epi32(nothing, first),
             _mm256_unpackhi_epi8(pairs, nothing));
    put_layouts(d, i, &f, _mm256_cmpeq_epi32(has_nine, nothing), LAYOUT_SHORTEST);
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(f.is_usual));
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Writes the number in slot i; returns the end. Room for JSON_NUMBER_ROOM bytes. */
AVX2 INLINE char *put_text(char *out, const struct digits *d, size_t i)
{
    const void *at = (const char *)layouts + d->layout[i];
    const struct layout *l = at;
    const char *slot = d->slots[i];
    __m128i digits = _mm_loadu_si128((const __m128i *)(const void *)(slot + l->first));
    __m128i behind = _mm_loadu_si128((const __m128i *)(const void *)(slot + l->behind));
    unsigned set = (unsigned)d->set[i] << 1 | l->least;
    memcpy(out, l->prefix, 8);
    out += l->prefix_bytes;
    _mm_storeu_si128((__m128i *)(void *)out, digits);
    out[l->point_at] = '.';
    _mm_storeu_si128((__m128i *)(void *)(out + l->behind_at), behind);
    return out + (31 ^ (unsigned)__builtin_clz(set)) + l->more;
}

/*
 * Prints n floats by put_eight() or put_eight_shortest(). It is inlined into each caller, whose
 * calls all use the same one.
 */
AVX2 INLINE char *print_floats(char *out, const float *values, size_t n, bool shortest)
{
    struct digits d;
    while (n > 0) {
        float padded[BLOCK];
        size_t n_here = MIN(n, (size_t)BLOCK);
        const float *block = values;
        if (n_here < BLOCK) {
            memset(padded, 0, sizeof(padded));
            memcpy(padded, values, n_here * sizeof(*values));
            block = padded;
        }
        uint32_t done = 0;
        for (size_t i = 0; i < n_here; i += 8)
            done |= (shortest ? put_eight_shortest : put_eight)(&d, i, block + i) << i;
        for (size_t i = 0; i < n_here; i++) {
            if (LIKELY(done >> i & 1))
                out = put_text(out, &d, i);
            else if (shortest)
                out = json_print_shortest(out, block[i]);
            else
                out = json_print_double(out, (double)block[i]);
        }
        values += n_here;
        n -= n_here;
    }
    return out;
}

AVX2 char *json_print_f32s_avx2(char *out, const void *floats, size_t n)
{
    return print_floats(out, floats, n, false);
}

AVX2 char *json_print_shortest_f32s_avx2(char *out, const void *floats, size_t n)
{
    return print_floats(out, floats, n, true);
}

#else

char *json_print_f32s_avx2(char *out, const void *floats, size_t n)
{
    (void)floats;
    BUG_ON(n > 0); /* json_way is JSON_ONE_BY_ONE */
    return out;
}

char *json_print_shortest_f32s_avx2(char *out, const void *floats, size_t n)
{
    return json_print_f32s_avx2(out, floats, n);
}

#endif
