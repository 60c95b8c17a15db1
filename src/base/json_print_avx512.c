/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing floats sixteen at a time, for processors with AVX-512 (VBMI2 and the older parts).
 *
 * The digits are json_print_avx2.c's, whose comments hold here. Then each number's text is made in
 * a register: rows[] give for each of its characters the digit or other character, by exponent,
 * sign and whether the first digit is zero. A number takes one permutation of bytes and one store.
 * The lengths of the texts are computed before, for all together.
 *
 * On an AMD EPYC a picture of 150 528 floats takes 0.43 ms where json_print_avx2.c takes 0.83; by
 * shortest digits 0.35 and 0.69.
 */
#include "base/json_priv.h"

#ifdef __x86_64__
#include <immintrin.h>

#define AVX512                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vbmi,avx512vbmi2")))
#define INLINE static inline __attribute__((always_inline))

enum {
    BLOCK = 64,
    N_EXPONENTS = JSON_FLOAT_EXPONENTS,
    BITS = JSON_FLOAT_BITS,
    LAST_BITS = BITS - 12,
    SHORT_BITS = JSON_SHORT_BITS,
    FIVE_4 = 625,
    TEXT = 32, /* characters of a row; a number has 26 at most */

    /* Index of a row, in bytes */
    ROW_SHIFT = 6,
    ROW_NEGATIVE = N_EXPONENTS << ROW_SHIFT,
    ROW_SHORT = 2 * ROW_NEGATIVE, /* the first of all digits is zero */
    N_ROWS = 4 * N_EXPONENTS,
    ROW_SHORTEST = N_ROWS << ROW_SHIFT, /* there are 9 digits, not 17 */
};

/* A character of a row is the digit at index `from` (FROM_FIRST: the first digit, FROM_NOTHING:
 * 0) plus `plus`. */
enum { FROM_FIRST = 32, FROM_NOTHING = 33 };
static _Alignas(64) struct row {
    uint8_t from[TEXT], plus[TEXT];
} rows[2 * N_ROWS];
_Static_assert(sizeof(struct row) == 1 << ROW_SHIFT, "an index is shifted to its place");

/* Of each exponent: the length of a text without all zeros that may be omitted, and 31; and the
 * bit for a digit that is written even if it is zero. */
static _Alignas(64) uint32_t lengths[2][N_EXPONENTS], least[2][N_EXPONENTS];
/* 1: a first digit of zero is not written. */
static uint32_t drops_first[2];

/*
 * A block. The digits behind the first are in groups of 16, or of 8 for shortest floats, in the
 * order of unpacking.
 */
struct digits {
    _Alignas(64) uint8_t text[BLOCK * 16 + 32];
    _Alignas(64) uint32_t first[BLOCK];
    _Alignas(64) uint32_t row[BLOCK];    /* an index in bytes */
    _Alignas(64) uint32_t length[BLOCK]; /* without the part that depends on the last digits */
    _Alignas(64) uint32_t least[BLOCK];
    _Alignas(
        64) uint64_t set[BLOCK / 4]; /* bits: which digits are not zero, in the order of text */
};

static void prepare_row(struct row *r, bool shortest, int n_whole, bool negative, bool is_short)
{
    int n_digits = shortest ? 9 : 17, n = 0;
    memset(r->from, FROM_NOTHING, TEXT);
    memset(r->plus, 0, TEXT);
    r->plus[n++] = ',';
    if (negative)
        r->plus[n++] = '-';
    if (n_whole < 1) {
        r->plus[n++] = '0';
        r->plus[n++] = '.';
        for (int zeros = n_whole; zeros < 0; zeros++)
            r->plus[n++] = '0';
    }
    for (int digit = is_short && n_whole > 1; digit < n_digits; digit++) {
        r->from[n] = (uint8_t)(digit > 0 ? digit - 1 : FROM_FIRST);
        r->plus[n++] = '0';
        if (digit + 1 == n_whole)
            r->plus[n++] = '.';
    }
}

__attribute__((constructor)) static void prepare(void)
{
    for (int shortest = 0; shortest < 2; shortest++) {
        for (int i = 0; i < N_EXPONENTS; i++) {
            int n_whole = json_float_wholes(i, shortest);
            bool has_point = n_whole >= 1;
            for (int kind = 0; kind < 4; kind++)
                prepare_row(&rows[shortest * N_ROWS + kind * N_EXPONENTS + i], shortest, n_whole,
                            kind & 1, kind & 2);
            /* Comma, "0." and zeros; the first digit, the point; and the correction. */
            int prefix = has_point ? 1 : 3 - n_whole;
            lengths[shortest][i] = (uint32_t)(prefix + 1 + has_point + 31);
            least[shortest][i] = 1u << (has_point ? n_whole : 0);
            if (n_whole > 1)
                drops_first[shortest] |= 1u << i;
        }
    }
}

/* ---- digits --------------------------------------------------------------------------------- */

#define EACH_16(x) _mm512_set1_epi16(x)
#define EACH_32(x) _mm512_set1_epi32(x)
#define EACH_64(x) _mm512_set1_epi64(x)

/* Alternates the lower halves of 64-bit lanes of both. */
AVX512 INLINE __m512i pair(__m512i even, __m512i odd)
{
    return _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
}

/* Multiplies x by a constant, in 16-bit lanes; hidden from gcc, which would use shifts and sums. */
AVX512 INLINE __m512i times_16(__m512i x, short factor)
{
    __m512i factors = EACH_16(factor);
    __asm__("" : "+v"(factors));
    return _mm512_mullo_epi16(x, factors);
}

/* table[index] in each 32-bit lane, index < 32. */
AVX512 INLINE __m512i look_up(const uint32_t table[32], __m512i index)
{
    return _mm512_permutex2var_epi32(_mm512_load_si512(table), index,
                                     _mm512_load_si512(table + 16));
}

/* Eight floats, one in each 64-bit lane. */
struct eight {
    __m512i first;  /* digit */
    __m512i groups; /* three numbers of four digits each, 16 bits wide, the first one lowest */
    __m512i last;   /* the last four digits, and LAST_BITS bits behind them */
};

/* Multiplies the bits behind the point of a product by 10^4; `bits` has a bit for each of them. */
AVX512 INLINE __m512i next_product(__m512i product, int bits)
{
    __m512i behind = _mm512_and_si512(product, EACH_64(((int64_t)1 << bits) - 1));
    return _mm512_mul_epu32(behind, EACH_64(FIVE_4));
}

/* Splits; significands and factors are in the lower halves of the lanes. */
AVX512 INLINE struct eight split(__m512i significand, __m512i factor)
{
    struct eight f;
    __m512i product = _mm512_mul_epu32(significand, factor);
    __m512i five = _mm512_srli_epi64(product, BITS);
    f.first = _mm512_srli_epi64(_mm512_mul_epu32(five, EACH_64(429497)), 32); /* over 10^4 */
    f.groups = _mm512_sub_epi64(five, _mm512_mul_epu32(f.first, EACH_64(10000)));
    product = next_product(product, BITS);
    __m512i group = _mm512_srli_epi64(product, BITS - 4);
    f.groups = _mm512_or_si512(f.groups, _mm512_slli_epi64(group, 16));
    product = next_product(product, BITS - 4);
    group = _mm512_srli_epi64(product, BITS - 8);
    f.groups = _mm512_or_si512(f.groups, _mm512_slli_epi64(group, 32));
    f.last = next_product(product, BITS - 8);
    return f;
}

/*
 * Rounds to a multiple of ten, or to the nearest integer, ties to even: as round_last() of
 * json_print_avx2.c.
 *
 * @tens        a multiple of ten
 * @from_below  the distance from it, with `bits` bits behind the point
 * @is_odd      in the lowest bit: its integer part is odd
 */
AVX512 INLINE __m512i round_unit(__m512i tens, __m512i from_below, __m512i is_odd, __m512i half,
                                 unsigned bits)
{
    __m512i to_above = _mm512_sub_epi32(_mm512_slli_epi32(EACH_32(10), bits), from_below);
    __m512i up =
        _mm512_add_epi32(_mm512_and_si512(is_odd, EACH_32(1)), EACH_32((1 << (bits - 1)) - 1));
    __mmask16 is_unit = _mm512_cmpgt_epu32_mask(from_below, half);
    __mmask16 is_ten = _mm512_cmple_epu32_mask(to_above, half);
    __m512i unit = _mm512_maskz_srli_epi32(is_unit, _mm512_add_epi32(from_below, up), bits);
    return _mm512_add_epi32(tens, _mm512_mask_mov_epi32(unit, is_ten, EACH_32(10)));
}

/* Rounds the last four digits. May return 10000. */
AVX512 INLINE __m512i round_last(__m512i last, __m512i half)
{
    __m512i group = _mm512_srli_epi32(last, LAST_BITS);
    __m512i tens = times_16(_mm512_mulhi_epu16(group, EACH_32(6554)), 10); /* digit 4 is zero */
    __m512i from_below = _mm512_sub_epi32(last, _mm512_slli_epi32(tens, LAST_BITS));
    return round_unit(tens, from_below, group, half, LAST_BITS);
}

/* Numbers below 10^4 in 16-bit lanes become two bytes below 100, the first one lower. */
AVX512 INLINE __m512i split_fours(__m512i x)
{
    /* hundreds + 256·(x - 100·hundreds) */
    __m512i hundreds = _mm512_srli_epi16(_mm512_mulhi_epu16(x, EACH_16(5243)), 3);
    return _mm512_sub_epi16(_mm512_slli_epi16(x, 8), times_16(hundreds, 25599));
}

/* 64 digits, from numbers below 100 in 16-bit lanes. */
AVX512 INLINE void put_digits(struct digits *d, size_t i, __m512i x)
{
    __m512i tens = _mm512_mulhi_epu16(x, EACH_16(6554));
    x = _mm512_sub_epi16(_mm512_slli_epi16(x, 8), times_16(tens, 2559));
    d->set[i] = _mm512_test_epi8_mask(x, x);
    _mm512_store_si512(d->text + 64 * i, x);
}

/* Sixteen floats, in 32-bit lanes. */
struct sixteen {
    __m512i bits;
    __m512i significand;
    __m512i nearest; /* index of the exponent; modulo N_EXPONENTS */
    __mmask16 is_usual;
};

AVX512 INLINE struct sixteen load_sixteen(const float *values)
{
    struct sixteen f;
    f.bits = _mm512_loadu_si512(values);
    __m512i index = _mm512_and_si512(_mm512_srli_epi32(f.bits, 23), EACH_32(0xff));
    index = _mm512_sub_epi32(index, EACH_32(127 + JSON_FLOAT_FIRST));
    f.significand = _mm512_and_si512(f.bits, EACH_32(0x7fffff));
    f.significand = _mm512_or_si512(f.significand, EACH_32(0x800000));

    /* Zero, which is frequent, has the row of 1.000 with other digits. */
    __mmask16 is_zero = _mm512_testn_epi32_mask(f.bits, EACH_32(0x7fffffff));
    index = _mm512_mask_mov_epi32(index, is_zero, EACH_32(-JSON_FLOAT_FIRST));
    f.significand = _mm512_mask_mov_epi32(f.significand, is_zero, _mm512_setzero_si512());

    f.nearest = _mm512_and_si512(index, EACH_32(N_EXPONENTS - 1));
    f.is_usual = _mm512_cmpeq_epi32_mask(index, f.nearest);
    return f;
}

/* Sets rows and lengths of floats i to i + 15. */
AVX512 INLINE void put_rows(struct digits *d, size_t i, const struct sixteen *f, __m512i first,
                            bool shortest)
{
    __m512i row = _mm512_slli_epi32(f->nearest, ROW_SHIFT);
    __m512i length = look_up(lengths[shortest], f->nearest);
    __mmask16 is_short = _mm512_testn_epi32_mask(first, first);
    __mmask16 is_negative = _mm512_movepi32_mask(f->bits);
    __m512i drops = _mm512_srlv_epi32(EACH_32((int)drops_first[shortest]), f->nearest);
    drops = _mm512_and_si512(drops, EACH_32(1));
    row = _mm512_mask_or_epi32(row, is_short, row, EACH_32(ROW_SHORT));
    row = _mm512_mask_or_epi32(row, is_negative, row, EACH_32(ROW_NEGATIVE));
    row = _mm512_add_epi32(row, EACH_32(shortest ? ROW_SHORTEST : 0));
    length = _mm512_mask_add_epi32(length, is_negative, length, EACH_32(1));
    length = _mm512_mask_sub_epi32(length, is_short, length, drops);
    _mm512_store_si512(d->row + i, row);
    _mm512_store_si512(d->length + i, length);
    _mm512_store_si512(d->least + i, look_up(least[shortest], f->nearest));
    _mm512_store_si512(d->first + i, first);
}

/* Prints floats i to i + 15; returns a bit for each that could be printed. */
AVX512 INLINE uint32_t put_sixteen(struct digits *d, size_t i, const float *values)
{
    struct sixteen f = load_sixteen(values);
    __m512i factor = look_up(json_float_scale.factors, f.nearest);
    __m512i half = look_up(json_float_scale.halves, f.nearest), nothing = _mm512_setzero_si512();

    struct eight even = split(f.significand, factor);
    struct eight odd = split(_mm512_srli_epi64(f.significand, 32), _mm512_srli_epi64(factor, 32));
    __m512i last = round_last(pair(even.last, odd.last), half);
    __mmask16 carries = _mm512_cmpgt_epu32_mask(last, EACH_32(9999));
    even.groups = _mm512_or_si512(even.groups, _mm512_slli_epi64(last, 48));
    last = _mm512_slli_epi64(_mm512_srli_epi64(last, 32), 48);
    odd.groups = _mm512_or_si512(odd.groups, last);

    even.groups = split_fours(even.groups);
    odd.groups = split_fours(odd.groups);
    put_digits(d, i / 4, _mm512_unpacklo_epi8(even.groups, nothing));
    put_digits(d, i / 4 + 1, _mm512_unpacklo_epi8(odd.groups, nothing));
    put_digits(d, i / 4 + 2, _mm512_unpackhi_epi8(even.groups, nothing));
    put_digits(d, i / 4 + 3, _mm512_unpackhi_epi8(odd.groups, nothing));
    put_rows(d, i, &f, pair(even.first, odd.first), false);
    return f.is_usual & ~(uint32_t)carries;
}

/* ---- shortest floats ------------------------------------------------------------------------ */

/* A tenth of x / 2^SHORT_BITS, truncated, times ten. */
AVX512 INLINE __m512i cut_to_tens(__m512i x)
{
    x = _mm512_srli_epi64(x, SHORT_BITS);
    __m512i tenth = _mm512_srli_epi64(_mm512_mul_epu32(x, EACH_64(429496730)), 32);
    return _mm512_mul_epu32(tenth, EACH_64(10));
}

/* Returns the nine digits of each, as a number. */
AVX512 INLINE __m512i shorten_sixteen(__m512i significand, __m512i factor)
{
    __m512i even = _mm512_mul_epu32(significand, factor);
    __m512i odd =
        _mm512_mul_epu32(_mm512_srli_epi64(significand, 32), _mm512_srli_epi64(factor, 32));
    __m512i even_tens = cut_to_tens(even), odd_tens = cut_to_tens(odd);
    even = _mm512_sub_epi64(even, _mm512_slli_epi64(even_tens, SHORT_BITS));
    odd = _mm512_sub_epi64(odd, _mm512_slli_epi64(odd_tens, SHORT_BITS));
    __m512i from_below = pair(even, odd);
    return round_unit(pair(even_tens, odd_tens), from_below,
                      _mm512_srli_epi32(from_below, SHORT_BITS), _mm512_srli_epi32(factor, 1),
                      SHORT_BITS);
}

/* Numbers below 10^8 in 32-bit lanes become two of four digits each, the first one lower. */
AVX512 INLINE __m512i split_eights(__m512i x)
{
    __m512i reciprocal = EACH_64(3518437209);
    __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(x, reciprocal), 45);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), reciprocal);
    __m512i high = pair(even, _mm512_srli_epi64(odd, 45));
    __m512i low = _mm512_sub_epi32(x, _mm512_madd_epi16(high, EACH_32(10000)));
    return _mm512_or_si512(high, _mm512_slli_epi32(low, 16));
}

/* As put_sixteen(). */
AVX512 INLINE uint32_t put_sixteen_shortest(struct digits *d, size_t i, const float *values)
{
    __m512i nothing = _mm512_setzero_si512();
    struct sixteen f = load_sixteen(values);
    __m512i digits =
        shorten_sixteen(f.significand, look_up(json_float_scale.short_factors, f.nearest));
    /* It then begins with 1. */
    __mmask16 has_nine = _mm512_cmpgt_epu32_mask(digits, EACH_32(99999999));
    digits = _mm512_mask_sub_epi32(digits, has_nine, digits, EACH_32(100000000));
    __m512i pairs = split_fours(split_eights(digits));
    put_digits(d, i / 8, _mm512_unpacklo_epi8(pairs, nothing));
    put_digits(d, i / 8 + 1, _mm512_unpackhi_epi8(pairs, nothing));
    put_rows(d, i, &f, _mm512_maskz_mov_epi32(has_nine, EACH_32(1)), true);
    return f.is_usual;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Returns where the digits of float i begin. */
AVX512 INLINE const uint8_t *digits_of(const struct digits *d, size_t i, bool shortest)
{
    size_t sixteen = i / 16, k = i % 16;
    if (shortest)
        return d->text + sixteen * 128 + k / 2 % 2 * 64 + k / 4 * 16 + k % 2 * 8;
    return d->text + sixteen * 256 + k % 4 * 64 + k / 4 * 16;
}

/* Completes the lengths of floats i to i + 15, up to the last digit that is not zero. */
AVX512 INLINE void add_lengths(struct digits *d, size_t i, bool shortest)
{
    __m512i set, order;
    const char *from = (const char *)d->set;
    if (shortest) {
        set = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)(from + i)));
        order = _mm512_setr_epi32(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    } else {
        set =
            _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(const void *)(from + 2 * i)));
        order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    }
    set = _mm512_slli_epi32(_mm512_permutexvar_epi32(order, set), 1);
    set = _mm512_or_si512(set, _mm512_load_si512(d->least + i));
    __m512i length = _mm512_load_si512(d->length + i);
    _mm512_store_si512(d->length + i, _mm512_sub_epi32(length, _mm512_lzcnt_epi32(set)));
}

/* Writes float i; returns the end. Room for JSON_NUMBER_ROOM bytes. */
AVX512 INLINE char *put_text(char *out, const struct digits *d, size_t i, bool shortest)
{
    const void *at = (const char *)rows + d->row[i];
    const __m256i *row = at;
    __m256i digits = _mm256_loadu_si256((const __m256i *)(const void *)digits_of(d, i, shortest));
    __m256i first = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)d->first[i]));
    __m256i text = _mm256_permutex2var_epi8(digits, _mm256_load_si256(row), first);
    text = _mm256_or_si256(text, _mm256_load_si256(row + 1));
    _mm256_storeu_si256((__m256i *)(void *)out, text);
    return out + d->length[i];
}

static __attribute__((noinline)) char *put_unusual(char *out, float value, bool shortest)
{
    return shortest ? json_print_shortest(out, value) : json_print_double(out, (double)value);
}

/* As print_floats() of json_print_avx2.c. */
AVX512 INLINE char *print_floats(char *out, const float *values, size_t n, bool shortest)
{
    struct digits d;
    while (n > 0) {
        float padded[BLOCK];
        size_t n_here = MIN(n, (size_t)BLOCK);
        const float *block = values;
        uint64_t done = 0;
        if (n_here < BLOCK) {
            memset(padded, 0, sizeof(padded));
            memcpy(padded, values, n_here * sizeof(*values));
            block = padded;
        }
        for (size_t i = 0; i < n_here; i += 16) {
            uint32_t some =
                shortest ? put_sixteen_shortest(&d, i, block + i) : put_sixteen(&d, i, block + i);
            done |= (uint64_t)some << i;
        }
        for (size_t i = 0; i < n_here; i += 16)
            add_lengths(&d, i, shortest);
        if (LIKELY(done == ~(uint64_t)0 && n_here == BLOCK)) {
            for (size_t i = 0; i < BLOCK; i += 16) {
#pragma GCC unroll 16
                for (size_t k = 0; k < 16; k++)
                    out = put_text(out, &d, i + k, shortest);
            }
        } else {
            for (size_t i = 0; i < n_here; i++)
                out = done >> i & 1 ? put_text(out, &d, i, shortest)
                                    : put_unusual(out, block[i], shortest);
        }
        values += n_here;
        n -= n_here;
    }
    return out;
}

AVX512 char *json_print_f32s_avx512(char *out, const void *floats, size_t n)
{
    return print_floats(out, floats, n, false);
}

AVX512 char *json_print_shortest_f32s_avx512(char *out, const void *floats, size_t n)
{
    return print_floats(out, floats, n, true);
}

#else

char *json_print_f32s_avx512(char *out, const void *floats, size_t n)
{
    return json_print_f32s_avx2(out, floats, n);
}

char *json_print_shortest_f32s_avx512(char *out, const void *floats, size_t n)
{
    return json_print_f32s_avx2(out, floats, n);
}

#endif
