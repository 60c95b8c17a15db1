/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading numbers, one at a time and as whole tensors. This file is quick for the usual numbers,
 * and calls json_decimal.c for all others.
 *
 * One mask marks which of the next 32 characters are no digits, and so shows the point and the end
 * of the digits. Eight digits at a time become a value, by three multiplications within a 64-bit
 * word. A number of up to 19 digits becomes w·10^q with an exact w. This is rounded to a double by
 *   - one multiplication or division of doubles when both sides are exact (Clinger's fast path),
 *   - else one or two 64-bit multiplications with a 128-bit power of ten (D. Lemire, "Number
 *     parsing at a gigabyte per second", 2021),
 *   - else, for subnormal results and for longer numbers whose first 19 digits do not decide, by
 *     strtod.
 * tests/unit/base/test_json_number.c compares the results with strtod, bit for bit.
 *
 * Where the processor has AVX-512 or AVX2, json_read_avx512.c or json_read_avx2.c reads tensors of
 * short numbers.
 */
#include "base/json.h"

#include <math.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/json_priv.h"

static const uint64_t pow10_u64[] = {
    1,
    10,
    100,
    1000,
    10000,
    100000,
    1000000,
    10000000,
    100000000,
    1000000000,
    10000000000,
    100000000000,
    1000000000000,
    10000000000000,
    100000000000000,
    1000000000000000,
    10000000000000000,
    100000000000000000,
    1000000000000000000,
    10000000000000000000u,
};

static const double pow10_double[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                        1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* ---- scanning ------------------------------------------------------------------------------- */

/*
 * Loads eight characters as digits. Exclusive or removes '0' from each without a borrow between
 * them.
 */
static inline uint64_t load_digits(const char *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x ^ 0x3030303030303030;
}

/* The value of eight digits, the first one in the lowest byte. */
static inline uint64_t eight_digits(uint64_t x)
{
    x = (x * (1 + (10 << 8))) >> 8 & 0x00ff00ff00ff00ff;
    x = (x * (1 + (100 << 16))) >> 16 & 0x0000ffff0000ffff;
    return x * (1 + (10000ull << 32)) >> 32;
}

/* A bit for each of the 32 characters at p that is no digit, the first one lowest. */
static inline uint32_t no_digits(const char *p)
{
#ifdef __SSE2__
    __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
    __m128i a = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(const void *)p), zero);
    __m128i b = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16)), zero);
    a = _mm_cmpeq_epi8(_mm_min_epu8(a, nine), a);
    b = _mm_cmpeq_epi8(_mm_min_epu8(b, nine), b);
    return ~((uint32_t)_mm_movemask_epi8(a) | (uint32_t)_mm_movemask_epi8(b) << 16);
#else
    uint32_t mask = 0;
    for (int i = 3; i >= 0; i--) {
        uint64_t x = load_digits(p + 8 * i);
        x = ((((x & 0x7f7f7f7f7f7f7f7f) + 0x7676767676767676) | x) >> 7) & 0x0101010101010101;
        mask = mask << 8 | (uint32_t)(x * 0x0102040810204080 >> 56);
    }
    return mask;
#endif
}

enum { SCAN_AHEAD = 40 }; /* bytes that scan_number() may read without a check of the end */

/*
 * Joins the n_digits digits at p, which have the point behind the first n (1 to 8). start is
 * load_digits(p). False: there are too many digits to be exact here.
 */
static inline __attribute__((always_inline)) bool
join_fraction(const char *p, uint64_t start, unsigned n, unsigned n_digits, uint64_t *ret_digits)
{
    /* The first eight digits: up to the point as they stand, then one to the left. */
    uint64_t behind = load_digits(p + 1);
    start = behind ^ ((start ^ behind) & ~(uint64_t)0 >> (64 - 8 * n));
    if (n_digits <= 8) {
        *ret_digits = eight_digits(start << (64 - 8 * n_digits));
        return true;
    }
    if (n_digits <= 12) {
        *ret_digits = eight_digits(start) * pow10_u64[n_digits - 8] +
                      eight_digits(load_digits(p + 9) << (64 - 8 * (n_digits - 8)));
        return true;
    }
    if (n_digits > 23)
        return false;
    /* No branch on 15, 16 or 17 digits: printed doubles have any mixture of these. */
    unsigned over = n_digits > 16 ? n_digits - 16 : 0;
    unsigned under = n_digits < 16 ? 16 - n_digits : 0;
    uint64_t digits = eight_digits(start) * pow10_u64[8 - under] +
                      eight_digits(load_digits(p + 9) << (8 * under));
    if (UNLIKELY(digits >= pow10_u64[19 - over]))
        return false; /* more than 19 digits but for zeros in front */
    *ret_digits =
        digits * pow10_u64[over] + eight_digits(load_digits(p + 17) << (8 * (7 - over)) << 8);
    return true;
}

/*
 * Adds an exponent of one, two or three digits, with or without a sign; p is at the letter. NULL:
 * the exponent is longer, or invalid.
 */
static inline __attribute__((always_inline)) const char *
scan_short_exponent(const char *p, const char *end, int *exponent)
{
    const char *e = p + 1;
    bool minus = *e == '-';
    e += minus || *e == '+';
    unsigned value = (unsigned)(*e++ - '0');
    if (end - p < 8 || value > 9)
        return NULL;
    for (int i = 0; i < 2 && json_is_digit(*e); i++)
        value = value * 10 + (unsigned)(*e++ - '0');
    if (json_is_digit(*e))
        return NULL;
    *exponent += minus ? -(int)value : (int)value;
    return e;
}

/*
 * Scans any number, the usual ones without a loop. NULL: there is no number at p. Everything stays
 * in registers: nothing here may take the address of *d.
 */
static inline __attribute__((always_inline)) const char *
scan_number(const char *from, const char *end, struct json_decimal *d)
{
    const char *p = from, *after;
    if (UNLIKELY(end - p < SCAN_AHEAD))
        goto slow;
    d->negative = *p == '-';
    uint32_t others = no_digits(p) >> d->negative;
    p += d->negative;
    unsigned n = (unsigned)__builtin_ctz(others | 1u << 31);
    if (UNLIKELY((n - 1 >= 8) | ((n > 1) & (*p == '0'))))
        goto slow; /* none, more than eight, or a zero in front */
    d->integer = true;
    d->special = false;
    d->more = false;
    d->many = false;
    int exponent = 0;
    uint64_t digits, start = load_digits(p);
    if (p[n] != '.') {
        digits = eight_digits(start << (64 - 8 * n));
        p += n;
    } else {
        unsigned length = (unsigned)__builtin_ctz((others & (others - 1)) | 1u << 31);
        unsigned n_digits = length - 1;
        exponent = (int)(n - n_digits);
        if (UNLIKELY(exponent == 0))
            goto slow; /* nothing behind the point, which is an error */
        if (!join_fraction(p, start, n, n_digits, &digits))
            goto slow;
        d->integer = false;
        d->many = n_digits > 15;
        p += length;
    }
    d->digits = digits;
    if (UNLIKELY((*p | 0x20) == 'e')) {
        p = scan_short_exponent(p, end, &exponent);
        if (!p)
            goto slow;
        d->integer = false;
    }
    d->exponent = exponent;
    return p;
slow:
    *d = json_scan_any(from, end, &after);
    return after;
}

/* ---- rounding to double --------------------------------------------------------------------- */

/*
 * digits · 10^q rounded to double, by the product with the power's first 64 or 128 bits. false
 * when the result is no normal number, which the caller leaves to strtod.
 */
static inline __attribute__((always_inline)) bool round_by_table(uint64_t w, int64_t q,
                                                                 double *ret_value)
{
    uint64_t bits;
    if (w == 0) {
        *ret_value = 0;
        return true;
    }
    if (q < JSON_POW10_MIN || q > 308)
        return false;
    struct json_pow10 power = json_pow10_table[q - JSON_POW10_MIN];
    if (q < 0 && ++power.lo == 0) /* the algorithm wants reciprocals rounded up */
        power.hi++;
    int shift = __builtin_clzll(w);
    w <<= shift;
    unsigned __int128 product = (unsigned __int128)w * power.hi;
    uint64_t hi = (uint64_t)(product >> 64), lo = (uint64_t)product;
    if ((hi & 0x1ff) == 0x1ff) { /* 55 bits and a carry could still change them */
        uint64_t more = (uint64_t)((unsigned __int128)w * power.lo >> 64);
        lo += more;
        hi += lo < more;
    }
    int top = (int)(hi >> 63);
    uint64_t mantissa = hi >> (top + 9);
    int exponent = json_log2_pow10((int)q) + 63 + top - shift + 1023;
    if (exponent <= 0)
        return false;
    /* Exactly between two doubles: to the even one. Only these powers leave such a product. */
    if (lo <= 1 && q >= -4 && q <= 23 && (mantissa & 3) == 1 && mantissa << (top + 9) == hi)
        mantissa--;
    mantissa = (mantissa + (mantissa & 1)) >> 1;
    if (mantissa >> 53) {
        mantissa >>= 1;
        exponent++;
    }
    if (exponent >= 0x7ff)
        return false;
    bits = (mantissa & 0xfffffffffffff) | (uint64_t)exponent << 52;
    memcpy(ret_value, &bits, 8);
    return true;
}

/* The double nearest to the decimal d, whose text is [from, end). For the rare cases. */
static __attribute__((noinline)) double round_slow(struct json_decimal d, const char *from,
                                                   const char *end)
{
    double value, above;
    if (d.special) {
        memcpy(&value, &d.digits, 8);
        return value;
    }
    bool decided = round_by_table(d.digits, d.exponent, &value);
    if (decided && d.more)
        decided = round_by_table(d.digits + 1, d.exponent, &above) && above == value;
    if (!decided)
        value = json_round_by_strtod(from + d.negative, end);
    return d.negative ? -value : value;
}

/* Sets the sign's bit without a branch, since signs cannot be predicted. */
static inline double with_sign(double value, bool negative)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    bits |= (uint64_t)negative << 63;
    memcpy(&value, &bits, 8);
    return value;
}

/* The double nearest to d, unless that takes more than a few multiplications. */
static inline __attribute__((always_inline)) bool round_quick(const struct json_decimal *d,
                                                              double *ret_value)
{
    double value;
    /* Branch prediction finds "many digits" easier than "exact digits". */
    if (d->many) {
        if (UNLIKELY(!round_by_table(d->digits, d->exponent, &value)))
            return false;
    } else {
        if (UNLIKELY(d->digits > (uint64_t)1 << 53 || d->exponent + 22 < 0 || d->exponent > 22 ||
                     d->special || d->more))
            return false;
        value = (double)(int64_t)d->digits;
        value = d->exponent < 0 ? value / pow10_double[-d->exponent]
                                : value * pow10_double[d->exponent];
    }
    *ret_value = with_sign(value, d->negative);
    return true;
}

/* ---- one number ----------------------------------------------------------------------------- */

/* The double at p; NULL when there is no number, or it exceeds the largest double. */
static inline __attribute__((always_inline)) const char *
parse_double(const char *p, const char *end, double *ret_value)
{
    struct json_decimal d;
    const char *after = scan_number(p, end, &d);
    if (UNLIKELY(!after))
        return NULL;
    if (UNLIKELY(!round_quick(&d, ret_value))) {
        *ret_value = round_slow(d, p, after);
        if (isinf(*ret_value) && !d.special)
            return NULL;
    }
    return after;
}

/* The nearest doubles to these powers; the negative ones are not exact. */
enum { NEAR_FROM = -37, NEAR_TO = 18 };
static const double near_pow10[NEAR_TO - NEAR_FROM + 1] = {
    1e-37, 1e-36, 1e-35, 1e-34, 1e-33, 1e-32, 1e-31, 1e-30, 1e-29, 1e-28, 1e-27, 1e-26,
    1e-25, 1e-24, 1e-23, 1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16, 1e-15, 1e-14,
    1e-13, 1e-12, 1e-11, 1e-10, 1e-9,  1e-8,  1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,
    1e-1,  1e0,   1e1,   1e2,   1e3,   1e4,   1e5,   1e6,   1e7,   1e8,   1e9,   1e10,
    1e11,  1e12,  1e13,  1e14,  1e15,  1e16,  1e17,  1e18};

/*
 * The number at p rounded to double and that to float, as Triton does it.
 *
 * One product of doubles is off by less than 2 of its last bits. That decides the float unless the
 * value lies so near the middle of two floats that 4 of them matter; then, and for numbers beyond
 * the range of normal floats, the double is found first.
 */
static inline __attribute__((always_inline)) const char *parse_float(const char *p, const char *end,
                                                                     float *ret_value)
{
    struct json_decimal d;
    const char *after = scan_number(p, end, &d);
    if (UNLIKELY(!after))
        return NULL;
    if (LIKELY(!d.special && !d.more && d.exponent >= NEAR_FROM && d.exponent <= NEAR_TO &&
               (int64_t)d.digits >= 0)) {
        double value = (double)(int64_t)d.digits * near_pow10[d.exponent - NEAR_FROM];
        uint64_t bits;
        memcpy(&bits, &value, 8);
        if (LIKELY(((bits - (1 << 28) + 4) & ((1 << 29) - 1)) > 8)) {
            *ret_value = (float)with_sign(value, d.negative);
            return after;
        }
    }
    double wide;
    if (!round_quick(&d, &wide)) {
        wide = round_slow(d, p, after);
        if (isinf(wide) && !d.special)
            return NULL;
    }
    *ret_value = (float)wide;
    return after;
}

const char *json_parse_double(const char *p, const char *end, double *ret_value)
{
    return parse_double(p, end, ret_value);
}

const char *json_parse_float(const char *p, const char *end, float *ret_value)
{
    return parse_float(p, end, ret_value);
}

/* Whether d is an integer of 64 bits. Integers of 20 digits get their last digit here. */
static bool is_whole_number(const struct json_decimal *d, const char *end, uint64_t *ret_value)
{
    if (!d->integer)
        return false;
    if (d->exponent == 0) {
        *ret_value = d->digits;
        return true;
    }
    if (d->exponent != 1)
        return false;
    uint64_t last = (uint64_t)(end[-1] - '0');
    return !__builtin_mul_overflow(d->digits, (uint64_t)10, ret_value) &&
           !__builtin_add_overflow(*ret_value, last, ret_value);
}

const char *json_parse_number(const char *p, const char *end, struct json_number *ret_value)
{
    struct json_decimal d;
    uint64_t magnitude;
    const char *after = scan_number(p, end, &d);
    if (!after)
        return NULL;
    if (is_whole_number(&d, after, &magnitude) && !(d.negative && magnitude > (uint64_t)1 << 63)) {
        ret_value->kind = d.negative || magnitude <= INT64_MAX ? JSON_INT64 : JSON_UINT64;
        ret_value->u64 = d.negative ? -magnitude : magnitude;
        return after;
    }
    ret_value->kind = JSON_DOUBLE;
    ret_value->d = round_slow(d, p, after);
    return isinf(ret_value->d) && !d.special ? NULL : after;
}

bool json_read_number(struct json *j, struct json_number *ret_value)
{
    if (json_peek(j) != JSON_NUMBER)
        return json_fail_type(j, JSON_NOT_NUMBER);
    const char *after = json_parse_number(j->p, j->end, ret_value);
    if (!after)
        return json_fail(j, JSON_SYNTAX, j->p);
    j->p = after;
    return true;
}

bool json_read_double(struct json *j, double *ret_value)
{
    if (json_peek(j) != JSON_NUMBER)
        return json_fail_type(j, JSON_NOT_NUMBER);
    const char *after = parse_double(j->p, j->end, ret_value);
    if (!after)
        return json_fail(j, JSON_SYNTAX, j->p);
    j->p = after;
    return true;
}

/*
 * The integer at p. NULL: there is no number. *ret_fits is false when the number is no integer of
 * that signedness.
 */
static inline const char *parse_int(const char *p, const char *end, bool is_signed,
                                    uint64_t *ret_value, bool *ret_fits)
{
    struct json_number number;
    struct json_decimal d;
    *ret_fits = true;
    const char *after = scan_number(p, end, &d);
    if (LIKELY(after && d.integer && d.exponent == 0 && d.digits <= INT64_MAX &&
               (is_signed || !d.negative))) {
        *ret_value = d.negative ? -d.digits : d.digits;
        return after;
    }
    if (!after || !json_parse_number(p, end, &number))
        return NULL;
    /* The remaining cases for unsigned are -0, which RapidJSON takes for 0, and numbers above
     * INT64_MAX. */
    *ret_fits = number.kind == JSON_INT64 ? is_signed || number.i64 == 0
                                          : number.kind == JSON_UINT64 && !is_signed;
    *ret_value = number.u64;
    return after;
}

static bool read_int(struct json *j, bool is_signed, uint64_t *ret_value)
{
    enum json_failure failure = is_signed ? JSON_NOT_INT : JSON_NOT_UINT;
    bool fits;
    if (json_peek(j) != JSON_NUMBER)
        return json_fail_type(j, failure);
    const char *after = parse_int(j->p, j->end, is_signed, ret_value, &fits);
    if (!after || !fits)
        return json_fail(j, after ? failure : JSON_SYNTAX, j->p);
    j->p = after;
    return true;
}

bool json_read_int64(struct json *j, int64_t *ret_value)
{
    uint64_t value = 0;
    if (!read_int(j, true, &value))
        return false;
    *ret_value = (int64_t)value;
    return true;
}

bool json_read_uint64(struct json *j, uint64_t *ret_value)
{
    return read_int(j, false, ret_value);
}

/* ---- tensors -------------------------------------------------------------------------------- */

/*
 * After an element: the address of the next number, if it is right behind the comma or, as Python
 * prints it, behind one blank. Else NULL, and the general reader goes on.
 */
static inline const char *next_number(const char *p, const char *end)
{
    if (UNLIKELY(end - p < 3) || *p != ',')
        return NULL;
    p++;
    if (*p == ' ')
        p++;
    return json_is_digit(*p) || *p == '-' ? p : NULL;
}

/*
 * The first comma in the 32 bytes at p; another address or NULL when there is none.
 *
 * The number at p usually ends there. Predicting its end, before its digits are read, lets the
 * processor work on several numbers at once (a third of the time of long arrays). The caller checks
 * the prediction afterwards.
 */
static inline const char *foresee_end(const char *p, const char *end)
{
#ifdef __SSE2__
    if (LIKELY(end - p >= 32)) {
        __m128i comma = _mm_set1_epi8(',');
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + 16));
        unsigned at = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(a, comma)) |
                      (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(b, comma)) << 16;
        return p + __builtin_ctz(at | 1u << 31);
    }
#endif
    return NULL;
}

/* When to look for numbers that can be read together. */
struct runs {
    unsigned left;  /* values to read one by one before the next look */
    unsigned pause; /* the number that `left` began with */
};

/*
 * FIND_RUN(read) - the run at p into out[n..max), by a function of json_priv.h. Sets n and `after`
 * if there is one. A vain look costs about as much as reading a number, and a text seldom changes
 * its format. So after each vain look the next one comes later.
 */
#define FIND_RUN(read)                                                                             \
    do {                                                                                           \
        size_t n_read = 0;                                                                         \
        if (runs.left > 0) {                                                                       \
            runs.left--;                                                                           \
            break;                                                                                 \
        }                                                                                          \
        after = read(j, p, out + n, max - n, &n_read);                                             \
        n += n_read;                                                                               \
        runs.pause = n_read >= 16 ? 1 : MIN(2 * runs.pause, 1024u);                                \
        runs.left = runs.pause;                                                                    \
    } while (0)

/* Reads the run at p by the processor's widest instructions; NULL when there is none. */
static inline const char *run_of_f32s(const struct json *j, const char *p, float *out, size_t room,
                                      size_t *ret_n)
{
    if (json_way == JSON_AVX512)
        return json_read_f32s_avx512(p, j->end, out, room, ret_n);
    if (json_way == JSON_AVX2 && p - j->text >= JSON_AVX2_BEFORE)
        return json_read_f32s_avx2(p, j->end, out, room, ret_n);
    return NULL;
}

static inline const char *run_of_f64s(const struct json *j, const char *p, double *out, size_t room,
                                      size_t *ret_n)
{
    if (json_way == JSON_AVX512)
        return json_read_f64s_avx512(p, j->end, out, room, ret_n);
    if (json_way == JSON_AVX2 && p - j->text >= JSON_AVX2_BEFORE)
        return json_read_f64s_avx2(p, j->end, out, room, ret_n);
    return NULL;
}

static inline const char *run_of_ints(const struct json *j, const char *p, void *out,
                                      size_t element_bytes, bool is_signed, size_t room,
                                      size_t *ret_n)
{
    if (json_way == JSON_AVX512)
        return json_read_ints_avx512(p, j->end, out, element_bytes, is_signed, room, ret_n);
    return NULL;
}

#define RUN_OF_SIGNED(j, p, out, room, ret_n)                                                      \
    run_of_ints(j, p, out, sizeof(*(out)), true, room, ret_n)
#define RUN_OF_UNSIGNED(j, p, out, room, ret_n)                                                    \
    run_of_ints(j, p, out, sizeof(*(out)), false, room, ret_n)

/*
 * READ_NUMBERS(name, type, RUN, PARSE, FAILURE) - a bulk reader. PARSE has p, end and out[n], sets
 * `after` and `fits`; RUN may set `after` instead, and n.
 */
#define READ_NUMBERS(name, type, RUN, PARSE, FAILURE)                                              \
    bool name(struct json *j, type *out, size_t max, size_t *ret_n)                                \
    {                                                                                              \
        unsigned depth = 1;                                                                        \
        size_t n = 0;                                                                              \
        const char *end = j->end;                                                                  \
        struct runs runs = {0, 1};                                                                 \
        if (!json_enter_array(j))                                                                  \
            return false;                                                                          \
        while (json_next_leaf(j, &depth)) {                                                        \
            const char *p = j->p, *after;                                                          \
            if (n == max)                                                                          \
                return json_fail(j, JSON_TOO_MANY, p);                                             \
            if (json_peek(j) != JSON_NUMBER)                                                       \
                return json_fail_type(j, FAILURE);                                                 \
            do {                                                                                   \
                bool fits = true;                                                                  \
                after = NULL;                                                                      \
                RUN;                                                                               \
                if (!after) {                                                                      \
                    const char *foreseen = foresee_end(p, end);                                    \
                    PARSE;                                                                         \
                    if (UNLIKELY(!after || !fits)) {                                               \
                        j->p = p;                                                                  \
                        return json_fail(j, after ? FAILURE : JSON_SYNTAX, p);                     \
                    }                                                                              \
                    n++;                                                                           \
                    if (LIKELY(after == foreseen)) {                                               \
                        __asm__("" : "+r"(foreseen)); /* or the compiler would go on with after */ \
                        after = foreseen;                                                          \
                    }                                                                              \
                }                                                                                  \
                p = next_number(after, end);                                                       \
            } while (LIKELY(p && n < max));                                                        \
            j->p = after;                                                                          \
        }                                                                                          \
        if (j->failure != JSON_OK)                                                                 \
            return false;                                                                          \
        *ret_n = n;                                                                                \
        return true;                                                                               \
    }

#define PARSE_F64 after = parse_double(p, end, &out[n])
#define PARSE_F32 after = parse_float(p, end, &out[n])
#define PARSE_INT(type, is_signed)                                                                 \
    uint64_t wide = 0;                                                                             \
    after = parse_int(p, end, is_signed, &wide, &fits);                                            \
    out[n] = (type)wide

READ_NUMBERS(json_read_f32s, float, FIND_RUN(run_of_f32s), PARSE_F32, JSON_NOT_NUMBER)
READ_NUMBERS(json_read_f64s, double, FIND_RUN(run_of_f64s), PARSE_F64, JSON_NOT_NUMBER)
READ_NUMBERS(json_read_i8s, int8_t, FIND_RUN(RUN_OF_SIGNED), PARSE_INT(int8_t, true), JSON_NOT_INT)
READ_NUMBERS(json_read_i16s, int16_t, FIND_RUN(RUN_OF_SIGNED), PARSE_INT(int16_t, true),
             JSON_NOT_INT)
READ_NUMBERS(json_read_i32s, int32_t, FIND_RUN(RUN_OF_SIGNED), PARSE_INT(int32_t, true),
             JSON_NOT_INT)
READ_NUMBERS(json_read_i64s, int64_t, FIND_RUN(RUN_OF_SIGNED), PARSE_INT(int64_t, true),
             JSON_NOT_INT)
READ_NUMBERS(json_read_u8s, uint8_t, FIND_RUN(RUN_OF_UNSIGNED), PARSE_INT(uint8_t, false),
             JSON_NOT_UINT)
READ_NUMBERS(json_read_u16s, uint16_t, FIND_RUN(RUN_OF_UNSIGNED), PARSE_INT(uint16_t, false),
             JSON_NOT_UINT)
READ_NUMBERS(json_read_u32s, uint32_t, FIND_RUN(RUN_OF_UNSIGNED), PARSE_INT(uint32_t, false),
             JSON_NOT_UINT)
READ_NUMBERS(json_read_u64s, uint64_t, FIND_RUN(RUN_OF_UNSIGNED), PARSE_INT(uint64_t, false),
             JSON_NOT_UINT)

bool json_read_bools(struct json *j, uint8_t *out, size_t max, size_t *ret_n)
{
    unsigned depth = 1;
    size_t n = 0;
    if (!json_enter_array(j))
        return false;
    for (; json_next_leaf(j, &depth); n++) {
        bool value;
        if (n == max)
            return json_fail(j, JSON_TOO_MANY, j->p);
        if (!json_read_bool(j, &value))
            return false;
        out[n] = value;
    }
    if (j->failure != JSON_OK)
        return false;
    *ret_n = n;
    return true;
}
