/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading runs of numbers, for processors with AVX-512 (VBMI2 and the older parts).
 *
 * As json_read_avx2.c, whose comments hold here, except for the step from the characters to the
 * digits. This instruction set computes with words that have a bit for each of 64 characters: they
 * close the gaps of signs, points and commas between digits (compress), and turn positions into
 * numbers. Then all digits of up to 64 numbers are contiguous, and by the numbers' lengths each
 * gets a field of 16 or 32 characters, with zeros in front (expand). So no number is handled alone.
 *
 * Integers are read here, too, and the end of a text: bytes beyond it are not loaded.
 *
 * On an AMD EPYC a picture of 150 528 values takes 0.39 ms where json_read_avx2.c takes 0.73, with
 * seven digits each; whole numbers 0.24 and 0.54. A word takes two cycles from a mask register to
 * another. Windows that do not depend on each other were not faster (0.45), nor was reading
 * alternated with finding (0.50), or a product in place of the quotient (0.39).
 */
#include "base/json_priv.h"

#ifdef __x86_64__
#include <immintrin.h>

#define AVX512                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,"    \
                          "lzcnt,popcnt")))
#define INLINE static inline __attribute__((always_inline))

enum {
    WINDOW = 64,                  /* characters that are examined together */
    MAX_FOUND = 160,              /* numbers, in several windows; one window has 32 at most */
    LAST_START = 128,             /* a window is examined when no more were found before it */
    SHORT = 16,                   /* characters of a field */
    LONG = 32,                    /* the same of long numbers */
    SPARE = 32,                   /* elements beyond the last that may be written and read */
    MAX_WINDOWS = LAST_START + 1, /* each adds a number */
    NEGATIVE = 0x80,
};

/* The type to read, which decides which numbers are accepted. */
enum kind { FLOATS, DOUBLES, SIGNED, UNSIGNED };

/* The numbers, from a position in the text on. */
struct found {
    unsigned n;
    unsigned n_passed; /* characters of the text */
    unsigned n_digits;
    bool has_long;
    uint8_t lengths[MAX_FOUND + SPARE];         /* digits */
    uint8_t decimals[MAX_FOUND + SPARE];        /* digits behind the point; and NEGATIVE */
    uint16_t ends[MAX_FOUND + SPARE];           /* the position of its comma */
    uint8_t digits[(MAX_WINDOWS + 4) * WINDOW]; /* of all numbers, 0 to 9, contiguous */
};

static const double powers[16] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
static const double parts[LONG] = {1e0,   1e-1,  1e-2,  1e-3,  1e-4,  1e-5,  1e-6,  1e-7,
                                   1e-8,  1e-9,  1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15,
                                   1e-16, 1e-17, 1e-18, 1e-19, 1e-20, 1e-21, 1e-22, 1e-23,
                                   1e-24, 1e-25, 1e-26, 1e-27, 1e-28, 1e-29, 1e-30, 1e-31};

#define COUNT_4(n)  (n), (n) + 1, (n) + 2, (n) + 3
#define COUNT_16(n) COUNT_4(n), COUNT_4((n) + 4), COUNT_4((n) + 8), COUNT_4((n) + 12)
static const _Alignas(64) uint8_t places[WINDOW] = {COUNT_16(0), COUNT_16(16), COUNT_16(32),
                                                    COUNT_16(48)};

/* ---- finding -------------------------------------------------------------------------------- */

AVX512 INLINE uint64_t where(__m512i text, char c)
{
    return _mm512_cmpeq_epi8_mask(text, _mm512_set1_epi8(c));
}

/* Returns the positions of the set bits, in order. */
AVX512 INLINE __m256i places_of(uint64_t bits)
{
    __m512i all = _mm512_load_si512(places);
    return _mm512_castsi512_si256(_mm512_maskz_compress_epi8(bits, all));
}

/* Returns how many digits a short number, or any, may have. */
AVX512 INLINE unsigned most_digits(enum kind kind, bool is_long)
{
    if (kind == FLOATS && is_long)
        return LONG;
    return kind == FLOATS || kind == DOUBLES ? SHORT - 1 : SHORT;
}

/* Returns a bit for each of the first n numbers that has more digits. */
AVX512 INLINE uint32_t has_more(__m256i lengths, unsigned digits, unsigned n)
{
    return _bzhi_u32(_mm256_cmpgt_epu8_mask(lengths, _mm256_set1_epi8((char)digits)), n);
}

/*
 * Adds the numbers whose commas are among the next 64 characters, or as many as there are, up to
 * the first that is wrong or too long; false when that was the end of the run. Adding a set bit to
 * a word in which it is set moves it one position up.
 */
AVX512 INLINE bool find_numbers(struct found *f, const char *p, const char *end, enum kind kind)
{
    unsigned from = f->n_passed;
    size_t left = (size_t)(end - p) - from;
    __mmask64 there = left < WINDOW ? _bzhi_u64(~(uint64_t)0, (unsigned)left) : ~(uint64_t)0;
    __m512i text = _mm512_maskz_loadu_epi8(there, p + from);
    __m512i values = _mm512_sub_epi8(text, _mm512_set1_epi8('0'));
    uint64_t commas = where(text, ','), points = where(text, '.');
    uint64_t signs = where(text, '-'), blanks = where(text, ' '), zeros = where(text, '0');
    uint64_t digits = _mm512_cmplt_epu8_mask(values, _mm512_set1_epi8(10));
    if (UNLIKELY(commas == 0))
        return false;
    /* From here on the next window can be examined while this one is not finished. */
    unsigned n_passed = 64 - (unsigned)__builtin_clzll(commas);
    f->n_passed += n_passed;

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
    if (kind == SIGNED || kind == UNSIGNED)
        wrong |= points;
    if (kind == UNSIGNED)
        wrong |= signs;

    uint64_t right = ~wrong & (wrong - 1); /* wrong is anything between the commas of its number */
    bool go_on = (commas & ~right) == 0;
    unsigned n = f->n, n_more = (unsigned)__builtin_popcountll(commas & right);

    __m256i ends = places_of(commas);
    __m256i behind = _mm256_sub_epi8(ends, places_of(wholes)); /* 0, or the point and its digits */
    __m256i point = _mm256_min_epu8(behind, _mm256_set1_epi8(1));
    __m256i lengths = _mm256_sub_epi8(_mm256_sub_epi8(ends, places_of(starts)), point);
    if (UNLIKELY(has_more(lengths, most_digits(kind, false), n_more))) {
        uint32_t too_long = has_more(lengths, most_digits(kind, true), n_more);
        f->has_long = true;
        if (too_long) {
            n_more = (unsigned)__builtin_ctz(too_long);
            go_on = false;
        }
    }
    __m256i decimals = _mm256_sub_epi8(behind, point), sign = _mm256_set1_epi8((char)NEGATIVE);
    uint32_t is_negative = (uint32_t)_pext_u64(negative << 1, starts);
    decimals = _mm256_mask_add_epi8(decimals, is_negative, decimals, sign);
    _mm256_storeu_si256((__m256i *)(void *)(f->lengths + n), lengths);
    _mm256_storeu_si256((__m256i *)(void *)(f->decimals + n), decimals);
    __m512i wide = _mm512_add_epi16(_mm512_cvtepu8_epi16(ends), _mm512_set1_epi16((short)from));
    _mm512_storeu_si512(f->ends + n, wide);
    _mm512_storeu_si512(f->digits + f->n_digits, _mm512_maskz_compress_epi8(digits, values));
    f->n_digits += (unsigned)__builtin_popcountll(_bzhi_u64(digits, n_passed));
    f->n += n_more;
    return go_on;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Makes the fields: which characters the digits of numbers i to i + 31 are. A word for four
 * short ones, or for two long ones of the first sixteen. */
AVX512 INLINE void make_fields(uint64_t *fields, const uint8_t *lengths, bool is_long)
{
    __m512i ones = _mm512_set1_epi8(-1), x;
    if (is_long) {
        x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)lengths));
        x = _mm512_sllv_epi32(ones, _mm512_sub_epi32(_mm512_set1_epi32(LONG), x));
    } else {
        x = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)lengths));
        x = _mm512_sllv_epi16(ones, _mm512_sub_epi16(_mm512_set1_epi16(SHORT), x));
    }
    _mm512_storeu_si512(fields, x);
}

/* Takes the digits of a word of fields; they become numbers of four digits, in 32-bit lanes. */
AVX512 INLINE __m512i take_fours(const uint8_t **digits, uint64_t field)
{
    __m512i x = _mm512_maskz_expand_epi8(field, _mm512_loadu_si512(*digits));
    *digits += __builtin_popcountll(field);
    x = _mm512_maddubs_epi16(x, _mm512_set1_epi16(10 | 1 << 8));
    return _mm512_madd_epi16(x, _mm512_set1_epi32(100 | 1 << 16));
}

/* Numbers of sixteen digits, in 64-bit lanes; packing goes by quarters: two of a, two of b, … */
AVX512 INLINE __m512i sum_sixteens(__m512i a, __m512i b)
{
    __m512i x = _mm512_packus_epi32(a, b);
    x = _mm512_madd_epi16(x, _mm512_set1_epi32(10000 | 1 << 16));
    __m512i low = _mm512_srli_epi64(x, 32);
    return _mm512_add_epi64(_mm512_mul_epu32(x, _mm512_set1_epi64(100000000)), low);
}

/* Eight short numbers without point and sign. */
AVX512 INLINE __m512i take_eight(const uint8_t **digits, const uint64_t fields[2])
{
    __m512i a = take_fours(digits, fields[0]), b = take_fours(digits, fields[1]);
    __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_permutexvar_epi64(order, sum_sixteens(a, b));
}

AVX512 INLINE __m512i decimals_of_eight(const struct found *f, unsigned i)
{
    const void *from = f->decimals + i;
    return _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)from));
}

/* table[index % 16] in each 64-bit lane */
AVX512 INLINE __m512d look_up(const double *table, __m512i index)
{
    return _mm512_permutex2var_pd(_mm512_loadu_pd(table), index, _mm512_loadu_pd(table + 8));
}

/* Makes values negative that have NEGATIVE in their decimals. */
AVX512 INLINE __m512d set_signs(__m512d values, __m512i decimals)
{
    enum { A = 0xf0, B = 0xcc, C = 0xaa };
    __m512i sign = _mm512_slli_epi64(decimals, 56), x = _mm512_castpd_si512(values);
    x = _mm512_ternarylogic_epi64(x, sign, _mm512_set1_epi64(INT64_MIN), A | (B & C));
    return _mm512_castsi512_pd(x);
}

/* The same for any numbers; the result may be off by eight of its last bits. */
AVX512 INLINE __m512d long_eight(const struct found *f, unsigned i, const uint8_t **digits,
                                 const uint64_t fields[4])
{
    __m512i x[4];
    for (int n = 0; n < 4; n++)
        x[n] = take_fours(digits, fields[n]);
    __m512i a = sum_sixteens(x[0], x[1]), b = sum_sixteens(x[2], x[3]);
    __m512i high = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 4, 1, 5, 8, 12, 9, 13), b);
    __m512i low = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(2, 6, 3, 7, 10, 14, 11, 15), b);
    __m512d value =
        _mm512_fmadd_pd(_mm512_cvtepi64_pd(high), _mm512_set1_pd(1e16), _mm512_cvtepi64_pd(low));
    __m512i decimals = decimals_of_eight(f, i);
    __mmask8 many = _mm512_test_epi64_mask(decimals, _mm512_set1_epi64(16));
    __m512d part = look_up(parts, decimals);
    part = _mm512_mask_blend_pd(many, part, look_up(parts + 16, decimals));
    return set_signs(_mm512_mul_pd(value, part), decimals);
}

/* Returns a bit for each double so near the middle of two floats that NEAR last bits matter. */
AVX512 INLINE unsigned near_middle(__m512d values)
{
    enum { NEAR = 16 };
    __m512i below = _mm512_set1_epi64((1 << 28) - NEAR);
    __m512i rest = _mm512_sub_epi64(_mm512_castpd_si512(values), below);
    rest = _mm512_and_si512(rest, _mm512_set1_epi64((1 << 29) - 1));
    return _mm512_cmplt_epu64_mask(rest, _mm512_set1_epi64(2 * NEAR));
}

/* Reads numbers i to i + 7, which are short. */
AVX512 INLINE __m512d short_eight(const struct found *f, unsigned i, const uint8_t **digits,
                                  const uint64_t fields[2])
{
    __m512i decimals = decimals_of_eight(f, i);
    __m512d value = _mm512_cvtepi64_pd(take_eight(digits, fields));
    return set_signs(_mm512_div_pd(value, look_up(powers, decimals)), decimals);
}

/* Reads number n, exactly. */
static __attribute__((noinline)) float read_float_exactly(const char *text, const struct found *f,
                                                          unsigned n)
{
    float value = 0;
    const char *from = n > 0 ? text + f->ends[n - 1] + 1 : text;
    from += *from == ' ';
    json_parse_float(from, text + f->ends[n], &value);
    return value;
}

/* ---- storing -------------------------------------------------------------------------------- */

/* Stores the first n of eight values, n > 0. */
AVX512 INLINE void put_floats(float *out, __m512d values, unsigned n)
{
    __m256 x = _mm512_cvtpd_ps(values);
    if (LIKELY(n >= 8))
        _mm256_storeu_ps(out, x);
    else
        _mm256_mask_storeu_ps(out, (__mmask8)_bzhi_u32(0xff, n), x);
}

AVX512 INLINE void put_doubles(double *out, __m512d values, unsigned n)
{
    if (LIKELY(n >= 8))
        _mm512_storeu_pd(out, values);
    else
        _mm512_mask_storeu_pd(out, (__mmask8)_bzhi_u32(0xff, n), values);
}

/* Stores their low bits, as many as an element has room for. */
AVX512 INLINE void put_integers(char *out, size_t element_bytes, __m512i values, unsigned n)
{
    __mmask8 which = (__mmask8)_bzhi_u32(0xff, MIN(n, 8u));
    switch (element_bytes) {
    case 1:
        _mm512_mask_cvtepi64_storeu_epi8(out, which, values);
        break;
    case 2:
        _mm512_mask_cvtepi64_storeu_epi16(out, which, values);
        break;
    case 4:
        _mm512_mask_cvtepi64_storeu_epi32(out, which, values);
        break;
    default:
        _mm512_mask_storeu_epi64(out, which, values);
        break;
    }
}

/* Reads the first n numbers that were found. */
AVX512 INLINE void read_found(const struct found *f, enum kind kind, char *out,
                              size_t element_bytes, unsigned n)
{
    uint64_t fields[8];
    const uint8_t *digits = f->digits;
    for (unsigned i = 0; i < n; i += 8, out += 8 * element_bytes) {
        if (i % 32 == 0)
            make_fields(fields, f->lengths + i, false);
        const uint64_t *here = fields + i % 32 / 4;
        if (kind == FLOATS) {
            put_floats((float *)(void *)out, short_eight(f, i, &digits, here), n - i);
        } else if (kind == DOUBLES) {
            put_doubles((double *)(void *)out, short_eight(f, i, &digits, here), n - i);
        } else {
            __m512i x = take_eight(&digits, here);
            __mmask8 negative =
                _mm512_test_epi64_mask(decimals_of_eight(f, i), _mm512_set1_epi64(NEGATIVE));
            x = _mm512_mask_sub_epi64(x, negative, _mm512_setzero_si512(), x);
            put_integers(out, element_bytes, x, n - i);
        }
    }
}

/* The same for floats, some of which are long. */
AVX512 INLINE void read_long_floats(const char *text, const struct found *f, float *out, unsigned n)
{
    uint64_t fields[8];
    const uint8_t *digits = f->digits;
    for (unsigned i = 0; i < n; i += 8) {
        if (i % 16 == 0)
            make_fields(fields, f->lengths + i, true);
        __m512d values = long_eight(f, i, &digits, fields + i % 16 / 2);
        put_floats(out + i, values, n - i);
        for (unsigned left = near_middle(values); UNLIKELY(left); left &= left - 1) {
            unsigned which = i + (unsigned)__builtin_ctz(left);
            if (which < n)
                out[which] = read_float_exactly(text, f, which);
        }
    }
}

AVX512 INLINE const char *read_run(const char *p, const char *end, enum kind kind, void *out,
                                   size_t element_bytes, size_t room, size_t *ret_n)
{
    size_t n = 0;
    const char *after = NULL;
    struct found f;
    bool go_on = true;
    while (go_on && n < room) {
        f.n = f.n_passed = f.n_digits = 0;
        f.has_long = false;
        while (go_on && f.n <= LAST_START)
            go_on = find_numbers(&f, p, end, kind);
        if (f.n == 0)
            break;
        /* Lanes beyond the last number have no digits, and are zero. */
        __m256i none = _mm256_setzero_si256();
        _mm256_storeu_si256((__m256i *)(void *)(f.lengths + f.n), none);
        _mm256_storeu_si256((__m256i *)(void *)(f.decimals + f.n), none);
        unsigned n_here = (unsigned)MIN((size_t)f.n, room - n);
        char *to = (char *)out + n * element_bytes;
        if (kind == FLOATS && f.has_long)
            read_long_floats(p, &f, (float *)(void *)to, n_here);
        else
            read_found(&f, kind, to, element_bytes, n_here);
        n += n_here;
        after = p + f.ends[n_here - 1];
        p = after + 1;
    }
    *ret_n = n;
    return after;
}

AVX512 const char *json_read_f32s_avx512(const char *p, const char *end, float *out, size_t room,
                                         size_t *ret_n)
{
    return read_run(p, end, FLOATS, out, sizeof(*out), room, ret_n);
}

AVX512 const char *json_read_f64s_avx512(const char *p, const char *end, double *out, size_t room,
                                         size_t *ret_n)
{
    return read_run(p, end, DOUBLES, out, sizeof(*out), room, ret_n);
}

AVX512 const char *json_read_ints_avx512(const char *p, const char *end, void *out,
                                         size_t element_bytes, bool is_signed, size_t room,
                                         size_t *ret_n)
{
    if (is_signed)
        return read_run(p, end, SIGNED, out, element_bytes, room, ret_n);
    return read_run(p, end, UNSIGNED, out, element_bytes, room, ret_n);
}

#else

const char *json_read_f32s_avx512(const char *p, const char *end, float *out, size_t room,
                                  size_t *ret_n)
{
    (void)p, (void)end, (void)out, (void)room, (void)ret_n;
    return NULL;
}

const char *json_read_f64s_avx512(const char *p, const char *end, double *out, size_t room,
                                  size_t *ret_n)
{
    (void)p, (void)end, (void)out, (void)room, (void)ret_n;
    return NULL;
}

const char *json_read_ints_avx512(const char *p, const char *end, void *out, size_t element_bytes,
                                  bool is_signed, size_t room, size_t *ret_n)
{
    (void)p, (void)end, (void)out, (void)element_bytes, (void)is_signed, (void)room, (void)ret_n;
    return NULL;
}

#endif
