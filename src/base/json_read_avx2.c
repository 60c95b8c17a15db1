/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading runs of numbers, for processors with AVX2: "0.25,-3,17.125,".
 *
 * First find_numbers() examines 64 characters and makes words with a bit for each: where the commas
 * are, the digits, and so on. A few operations on those words show up to which comma everything is
 * well-formed, and where each number and its fraction end. Then short_four() takes the 16
 * characters in front of four commas, closes the gap of the point, and sums the digits up by pairs,
 * fours and eights. Fifteen digits are exact as a double, and so is the power of ten below them:
 * one division rounds right (Clinger). Longer numbers, of up to 31 characters as doubles are
 * printed, leave long_four() with a small error. That decides a float unless the double is near the
 * middle of two floats, which json_number.c then reads.
 *
 * Anything else (exponents, longer numbers, line breaks, brackets, mistakes) ends the run;
 * json_number.c goes on there, and has the errors.
 *
 * A picture of 150 528 values takes 0.6 ms where json_number.c takes 1.75, with seven digits each;
 * with seventeen 1.2 and 2.4.
 */
#include "base/json_priv.h"

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2   __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define INLINE static inline __attribute__((always_inline))

enum {
    WINDOW = 64,     /* characters that are examined together */
    MAX_FOUND = 64,  /* numbers, in several windows; one window has at most half as many */
    LAST_START = 32, /* a window is examined when no more were found before it */
    SHORT = 16,      /* characters of a short number with comma and blank before it, at most */
    LONG = 32,       /* the same for any number */
    SPARE = 8,       /* elements beyond the last that may be written and read */
};

/* The numbers, from a position in the text on. */
struct found {
    unsigned n;
    uint64_t negative; /* a bit for each, the first one lowest */
    bool has_long;
    /* Positions: after the whole digits, and after the number, which is at its comma. */
    uint16_t wholes[MAX_FOUND + SPARE], ends_room[SPARE + MAX_FOUND + SPARE];
};

/* The ends, and at [-1] where the first number begins. */
#define ENDS(f) ((f)->ends_room + SPARE)

static const double powers[SHORT] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
static const double parts[LONG] = {1e0,   1e-1,  1e-2,  1e-3,  1e-4,  1e-5,  1e-6,  1e-7,
                                   1e-8,  1e-9,  1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15,
                                   1e-16, 1e-17, 1e-18, 1e-19, 1e-20, 1e-21, 1e-22, 1e-23,
                                   1e-24, 1e-25, 1e-26, 1e-27, 1e-28, 1e-29, 1e-30, 1e-31};

/* close_up[n] - for a shuffle: the characters in front of the last n move one to the right, over
 * the point; none moves for 0. */
#define FROM(at, n) ((n) == 0 || (at) > 15 - (n) ? (at) : (at)-1)
#define ROW(n)                                                                                     \
    {                                                                                              \
        FROM(0, n), FROM(1, n), FROM(2, n), FROM(3, n), FROM(4, n), FROM(5, n), FROM(6, n),        \
            FROM(7, n), FROM(8, n), FROM(9, n), FROM(10, n), FROM(11, n), FROM(12, n),             \
            FROM(13, n), FROM(14, n), FROM(15, n)                                                  \
    }
static const int8_t close_up[SHORT][16] = {
    ROW(0), ROW(1), ROW(2),  ROW(3),  ROW(4),  ROW(5),  ROW(6),  ROW(7),
    ROW(8), ROW(9), ROW(10), ROW(11), ROW(12), ROW(13), ROW(14), ROW(15),
};

/* From byte n on: a mask of the last n of 32. */
static const int8_t last_ones[64] = {[32 ... 63] = -1};

/* ---- finding -------------------------------------------------------------------------------- */

AVX2 INLINE uint64_t join(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high)
                                                     << 32;
}

/* Returns a bit for each character that is c. */
AVX2 INLINE uint64_t where(__m256i low, __m256i high, char c)
{
    __m256i wanted = _mm256_set1_epi8(c);
    return join(_mm256_cmpeq_epi8(low, wanted), _mm256_cmpeq_epi8(high, wanted));
}

AVX2 INLINE uint64_t where_digits(__m256i low, __m256i high)
{
    __m256i zero = _mm256_set1_epi8('0'), nine = _mm256_set1_epi8(9);
    low = _mm256_sub_epi8(low, zero);
    high = _mm256_sub_epi8(high, zero);
    return join(_mm256_cmpeq_epi8(_mm256_min_epu8(low, nine), low),
                _mm256_cmpeq_epi8(_mm256_min_epu8(high, nine), high));
}

/*
 * Adds the numbers whose commas are among the 64 characters at p, where a number begins, up to the
 * first that is wrong or too long; false when that was the end of the run. Adding a set bit to a
 * word in which it is set moves it one position up.
 *
 * @offset      of p, for the positions; set to that after the last comma
 * @allow_long  numbers of up to LONG characters are accepted, too
 */
AVX2 INLINE bool find_numbers(struct found *f, const char *p, unsigned *offset, bool allow_long)
{
    __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)p);
    __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));
    uint64_t commas = where(low, high, ','), points = where(low, high, '.');
    uint64_t signs = where(low, high, '-'), blanks = where(low, high, ' ');
    uint64_t zeros = where(low, high, '0'), digits = where_digits(low, high);
    uint64_t wrong = ~(commas | points | signs | blanks | digits);
    uint64_t starts = commas << 1 | 1;
    wrong |= blanks & ~starts;
    starts += starts & blanks;
    uint64_t negative = starts & signs;
    wrong |= signs ^ negative;
    starts += negative;
    wrong |= starts & ~digits;
    wrong |= (starts & zeros) << 1 & digits;
    uint64_t wholes = (digits + starts) & ~digits; /* behind the digits that begin there */
    wrong |= points & ~wholes;
    wrong |= points << 1 & ~digits;

    uint64_t run = ~commas; /* of SHORT characters without a comma */
    run &= run >> 1;
    run &= run >> 2;
    run &= run >> 4;
    run &= run >> 8;
    wrong |= allow_long ? run & run >> SHORT : run;
    if (UNLIKELY(commas == 0))
        return false;
    /* From here on the next window can be examined while this one is not finished. */
    unsigned from = *offset;
    *offset += 64 - (unsigned)__builtin_clzll(commas);
    uint64_t right = ~wrong & (wrong - 1); /* wrong is anything between the commas of its number */
    bool go_on = (commas & ~right) == 0;
    commas &= right;
    if (allow_long)
        f->has_long |= run != 0;

    unsigned n = f->n;
    f->n += (unsigned)__builtin_popcountll(commas);
    f->negative |= _pext_u64(negative << 1, starts) << n;
    do { /* four at a time, because the count cannot be predicted */
        for (unsigned i = n; i < n + 4; i++) {
            f->wholes[i] = (uint16_t)(from + (unsigned)_tzcnt_u64(wholes));
            ENDS(f)[i] = (uint16_t)(from + (unsigned)_tzcnt_u64(commas));
            wholes &= wholes - 1;
            commas &= commas - 1;
        }
        n += 4;
    } while (n < f->n);
    return go_on;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Of eight numbers: digits behind the point, and characters from the comma in front, which
 * counts, to the end, without the point. */
struct extents {
    _Alignas(16) uint16_t decimals[8];
    _Alignas(16) uint16_t lengths[8];
};

AVX2 INLINE void find_extents(struct extents *e, const struct found *f, unsigned i)
{
    __m128i end = _mm_loadu_si128((const __m128i *)(const void *)(ENDS(f) + i));
    __m128i previous = _mm_loadu_si128((const __m128i *)(const void *)(ENDS(f) + i - 1));
    __m128i whole = _mm_loadu_si128((const __m128i *)(const void *)(f->wholes + i));
    __m128i behind = _mm_sub_epi16(end, whole); /* 0, or the point and its digits */
    __m128i point = _mm_min_epu16(behind, _mm_set1_epi16(1));
    __m128i length = _mm_sub_epi16(_mm_sub_epi16(end, previous), point);
    _mm_store_si128((__m128i *)(void *)e->decimals, _mm_sub_epi16(behind, point));
    _mm_store_si128((__m128i *)(void *)e->lengths, length);
}

AVX2 INLINE __m256i load_two(const void *a, const void *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(a)), _mm_loadu_si128(b),
                                   1);
}

AVX2 INLINE __m256i load_32(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

/* Digits become numbers of four digits each, in 32-bit lanes. */
AVX2 INLINE __m256i sum_fours(__m256i x)
{
    x = _mm256_maddubs_epi16(x, _mm256_set1_epi16(10 | 1 << 8));
    return _mm256_madd_epi16(x, _mm256_set1_epi32(100 | 1 << 16));
}

/* The same for numbers of eight; packing goes by halves: of a, of b, of a, of b. */
AVX2 INLINE __m256i sum_eights(__m256i a, __m256i b)
{
    return _mm256_madd_epi16(_mm256_packus_epi32(a, b), _mm256_set1_epi32(10000 | 1 << 16));
}

/* high·10^8 + low */
AVX2 INLINE __m256d add_eight(__m256d high, __m128i low)
{
    return _mm256_add_pd(_mm256_mul_pd(high, _mm256_set1_pd(1e8)), _mm256_cvtepi32_pd(low));
}

/* table[places[0..3]] */
AVX2 INLINE __m256d pick_four(const double *table, const uint16_t *places)
{
    return _mm256_setr_pd(table[places[0]], table[places[1]], table[places[2]], table[places[3]]);
}

/* Sets the sign of each value that has its bit set in `negative`. */
AVX2 INLINE __m256d set_signs(__m256d values, uint64_t negative)
{
    __m256i bits = _mm256_set1_epi64x((int64_t)negative);
    bits = _mm256_sllv_epi64(bits, _mm256_setr_epi64x(63, 62, 61, 60));
    bits = _mm256_and_si256(bits, _mm256_set1_epi64x(INT64_MIN));
    return _mm256_or_pd(values, _mm256_castsi256_pd(bits));
}

/* The digits of short numbers a and b of the extents, which end there. */
AVX2 INLINE __m256i short_two(const char *text, const uint16_t *ends, const struct extents *e,
                              int a, int b)
{
    const int8_t *ones = last_ones + 16;
    __m256i x = load_two(text + ends[a] - 16, text + ends[b] - 16);
    x = _mm256_subs_epu8(x, _mm256_set1_epi8('0')); /* comma, blank, sign: zeros */
    x = _mm256_shuffle_epi8(x, load_two(close_up[e->decimals[a]], close_up[e->decimals[b]]));
    return sum_fours(_mm256_and_si256(x, load_two(ones + e->lengths[a], ones + e->lengths[b])));
}

/* Short numbers k to k + 3 of the extents, which are numbers i + k of those found. */
AVX2 INLINE __m256d short_four(const char *text, const struct found *f, unsigned i,
                               const struct extents *e, int k)
{
    const uint16_t *ends = ENDS(f) + i;
    __m256i x =
        sum_eights(short_two(text, ends, e, k, k + 2), short_two(text, ends, e, k + 1, k + 3));
    x = _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    __m256d value = _mm256_cvtepi32_pd(_mm256_castsi256_si128(x));
    value = add_eight(value, _mm256_extracti128_si256(x, 1));
    value = _mm256_div_pd(value, pick_four(powers, e->decimals + k));
    return set_signs(value, f->negative >> i >> k);
}

/* Returns the digits of a long number: those in front of the point are read one position further
 * left. */
AVX2 INLINE __m256i long_one(const char *end, unsigned decimals, unsigned length)
{
    __m256i behind = load_32(last_ones + (decimals ? decimals : 32));
    __m256i x = _mm256_blendv_epi8(load_32(end - 33), load_32(end - 32), behind);
    x = _mm256_subs_epu8(x, _mm256_set1_epi8('0'));
    return sum_fours(_mm256_and_si256(x, load_32(last_ones + length)));
}

/* As short_four(), for long numbers; the result may be off by eight of its last bits. */
AVX2 INLINE __m256d long_four(const char *text, const struct found *f, unsigned i,
                              const struct extents *e, int k)
{
    __m256i x[4];
    for (int n = 0; n < 4; n++)
        x[n] = long_one(text + ENDS(f)[i + k + n], e->decimals[k + n], e->lengths[k + n]);
    /* Of each number four sums of eight digits: the first and second in the lower halves. */
    __m256 a = _mm256_castsi256_ps(sum_eights(x[0], x[1]));
    __m256 b = _mm256_castsi256_ps(sum_eights(x[2], x[3]));
    __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
    __m256d value = _mm256_cvtepi32_pd(_mm256_castsi256_si128(even));
    value = add_eight(value, _mm256_castsi256_si128(odd));
    value = add_eight(value, _mm256_extracti128_si256(even, 1));
    value = add_eight(value, _mm256_extracti128_si256(odd, 1));
    value = _mm256_mul_pd(value, pick_four(parts, e->decimals + k));
    return set_signs(value, f->negative >> i >> k);
}

/* Returns a bit for each double so near the middle of two floats that NEAR last bits matter. */
AVX2 INLINE unsigned near_middle(__m256d values)
{
    enum { NEAR = 16 };
    __m256i below = _mm256_set1_epi64x((1 << 28) - NEAR);
    __m256i rest = _mm256_sub_epi64(_mm256_castpd_si256(values), below);
    rest = _mm256_and_si256(rest, _mm256_set1_epi64x((1 << 29) - 1));
    __m256i is_near = _mm256_cmpgt_epi64(_mm256_set1_epi64x(2 * NEAR), rest);
    return (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(is_near));
}

/* Stores number n, exactly. */
static __attribute__((noinline)) void store_float_exactly(const char *text, const struct found *f,
                                                          unsigned n, float *out)
{
    const char *from = text + ENDS(f)[(int)n - 1];
    from += *from == ',';
    from += *from == ' ';
    json_parse_float(from, text + ENDS(f)[n], out);
}

AVX2 INLINE void read_doubles(const char *text, const struct found *f, double *out)
{
    for (unsigned i = 0; i < f->n; i += 8) {
        struct extents e;
        find_extents(&e, f, i);
        for (int k = 0; k < 8; k += 4)
            _mm256_storeu_pd(out + i + k, short_four(text, f, i, &e, k));
    }
}

AVX2 INLINE void read_floats(const char *text, const struct found *f, float *out)
{
    for (unsigned i = 0; i < f->n; i += 8) {
        struct extents e;
        find_extents(&e, f, i);
        for (int k = 0; k < 8; k += 4)
            _mm_storeu_ps(out + i + k, _mm256_cvtpd_ps(short_four(text, f, i, &e, k)));
    }
}

AVX2 INLINE void read_long_floats(const char *text, const struct found *f, float *out)
{
    for (unsigned i = 0; i < f->n; i += 8) {
        struct extents e;
        find_extents(&e, f, i);
        for (unsigned k = 0; k < 8; k += 4) {
            __m256d values = long_four(text, f, i, &e, (int)k);
            _mm_storeu_ps(out + i + k, _mm256_cvtpd_ps(values));
            for (unsigned left = near_middle(values); UNLIKELY(left); left &= left - 1) {
                unsigned n = i + k + (unsigned)__builtin_ctz(left);
                store_float_exactly(text, f, n, &out[n]);
            }
        }
    }
}

/* For either type of output: one of floats and doubles is not NULL. */
AVX2 INLINE const char *read_run(const char *p, const char *end, float *floats, double *doubles,
                                 size_t room, size_t *ret_n)
{
    size_t n = 0;
    const char *after = NULL;
    struct found f;
    ENDS(&f)[-1] = 0;
    while (room - n >= MAX_FOUND) {
        unsigned offset = 0;
        f.n = 0;
        f.negative = 0;
        f.has_long = false;
        while (f.n <= LAST_START && end - p >= WINDOW + (ptrdiff_t)offset &&
               find_numbers(&f, p + offset, &offset, floats != NULL))
            ;
        if (f.n == 0)
            break;
        /* Lanes beyond the last number have no characters, and are zero. */
        __m128i last = _mm_set1_epi16((short)ENDS(&f)[f.n - 1]);
        _mm_storeu_si128((__m128i *)(void *)(ENDS(&f) + f.n), last);
        _mm_storeu_si128((__m128i *)(void *)(f.wholes + f.n), last);
        if (!floats)
            read_doubles(p, &f, doubles + n);
        else if (f.has_long)
            read_long_floats(p, &f, floats + n);
        else
            read_floats(p, &f, floats + n);
        n += f.n;
        after = p + ENDS(&f)[f.n - 1];
        p = after + 1;
    }
    *ret_n = n;
    return after;
}

AVX2 const char *json_read_f32s_avx2(const char *p, const char *end, float *out, size_t room,
                                     size_t *ret_n)
{
    return read_run(p, end, out, NULL, room, ret_n);
}

AVX2 const char *json_read_f64s_avx2(const char *p, const char *end, double *out, size_t room,
                                     size_t *ret_n)
{
    return read_run(p, end, NULL, out, room, ret_n);
}

#else

const char *json_read_f32s_avx2(const char *p, const char *end, float *out, size_t room,
                                size_t *ret_n)
{
    (void)p, (void)end, (void)out, (void)room, (void)ret_n;
    return NULL;
}

const char *json_read_f64s_avx2(const char *p, const char *end, double *out, size_t room,
                                size_t *ret_n)
{
    (void)p, (void)end, (void)out, (void)room, (void)ret_n;
    return NULL;
}

#endif
