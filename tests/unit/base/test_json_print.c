/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing numbers (json_print.c), compared with the C library. A number that is written reads back
 * as the same double or float, and no shorter text does. Millions of random values each (the
 * environment variable CONCH_JSON_ROUNDS multiplies them), and numbers that are known to be
 * difficult.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json_priv.h"

#ifdef __SANITIZE_THREAD__
enum { FEWER = 20 }; /* no thread is in it, and it takes a minute */
#else
enum { FEWER = 1 };
#endif
static size_t rounds = 1;

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t random_bits(void) /* xorshift64*: the same values in every run */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1d;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

/* Returns the number of digits in the text of a number, without zeros at either end. */
static int significant(const char *text)
{
    int n = 0, zeros = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text < '0' || *text > '9')
            continue;
        if (*text == '0') {
            zeros += n > 0;
        } else {
            n += zeros + 1;
            zeros = 0;
        }
    }
    return n;
}

static const char *written(double value)
{
    static char text[64];
    AUTO(buf) b = BUF_INIT(63);
    json_write_double(&b, value);
    assert_false(b.failed);
    memcpy(text, buf_text(&b), b.size + 1);
    return text;
}

static void check_write(double value)
{
    const char *text = written(value);
    if (bits_of(strtod(text, NULL)) != bits_of(value))
        fail_msg("%.17g was written as %s", value, text);
    /* The shortest of %.Ng that reads back as the value; %.Ng is the nearest number of N digits. */
    char other[64];
    int n = significant(text);
    if (n > 1) {
        snprintf(other, sizeof(other), "%.*e", n - 2, value);
        if (strtod(other, NULL) == value)
            fail_msg("%.17g was written as %s, but %s is shorter", value, text, other);
    }
    snprintf(other, sizeof(other), "%.*e", n - 1, value);
    if (n > 0 && strtod(other, NULL) == value && strtold(other, NULL) != strtold(text, NULL)) {
        long double mine = fabsl(strtold(text, NULL) - (long double)value);
        long double theirs = fabsl(strtold(other, NULL) - (long double)value);
        if (theirs < mine)
            fail_msg("%.17g was written as %s, but %s is nearer", value, text, other);
    }
}

static void random_doubles_are_written(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 300000 * rounds / FEWER; i++) {
        double value = double_of(random_bits());
        if (isfinite(value))
            check_write(value);
    }
}

static void random_floats_are_written(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 300000 * rounds / FEWER; i++) {
        uint32_t bits = (uint32_t)random_bits();
        float value;
        memcpy(&value, &bits, 4);
        if (isfinite(value))
            check_write((double)value);
        check_write((double)(float)((double)(int64_t)random_bits() * 0x1p-63));
    }
}

/* Floats of the usual size have a path of their own, compared here with the path of doubles;
 * check_write() compares that with the C library. With CONCH_JSON_ROUNDS=997 these are all
 * floats. */
static void floats_are_written_as_their_doubles(void **unused)
{
    (void)unused;
    AUTO(buf) as_float = BUF_INIT(100);
    AUTO(buf) as_double = BUF_INIT(100);
    size_t step = rounds < 997 ? 997 / rounds : 1;
    enum json_way best = json_way; /* the subject of test_json_avx2.c */
    json_way = JSON_ONE_BY_ONE;
    for (uint32_t exponent = 112; exponent < 132; exponent++) {
        for (size_t fraction = 0; fraction < (size_t)1 << 23; fraction += step) {
            uint32_t bits = exponent << 23 | (uint32_t)fraction;
            float value;
            memcpy(&value, &bits, 4);
            double wide = (double)value;
            buf_reset(&as_float);
            buf_reset(&as_double);
            json_write_f32s(&as_float, &value, 1);
            json_write_f64s(&as_double, &wide, 1);
            if (as_float.size != as_double.size ||
                memcmp(as_float.data, as_double.data, as_float.size) != 0)
                fail_msg("%s as a float, %s as a double", buf_text(&as_float),
                         buf_text(&as_double));
            if (fraction % 16 == 0)
                check_write(wide);
        }
    }
    json_way = best;
    check_write(0x1.01p-13); /* exactly in the middle of two numbers of 17 digits */
    check_write(0x1.05p-13);
}

/* Copies the digits of a number's text, without zeros at either end, and returns how many there
 * are. */
static size_t digits_of(const char *text, char *ret_digits)
{
    size_t n = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text >= '0' && *text <= '9' && (n > 0 || *text != '0'))
            ret_digits[n++] = *text;
    }
    while (n > 0 && ret_digits[n - 1] == '0')
        n--;
    ret_digits[n] = '\0';
    return n;
}

/* Does a number of n digits near the value read back as the value? */
static bool has_digits(float value, int n)
{
    char text[64];
    snprintf(text, sizeof(text), "%.*e", n - 1, (double)value);
    int exponent = atoi(strchr(text, 'e') + 1) - (n - 1);
    long digits = strtol(text, NULL, 10);
    for (const char *c = strchr(text, '.') ? strchr(text, '.') + 1 : "e"; *c != 'e'; c++)
        digits = digits * 10 + (value < 0 ? '0' - *c : *c - '0');
    for (long each = digits - 1; each <= digits + 1; each++) {
        snprintf(text, sizeof(text), "%lde%d", each, exponent);
        if (strtof(text, NULL) == value)
            return true;
    }
    return false;
}

static void check_shortest_text(float value, const char *text)
{
    char mine[64], nearest[64], nearest_digits[64];
    char *end;
    assert_true(text[0] == '[');
    float back = strtof(text + 1, &end);
    float by_double = (float)strtod(text + 1, NULL);
    if (strcmp(end, "]") != 0 || memcmp(&back, &value, 4) != 0 || memcmp(&by_double, &value, 4))
        fail_msg("%a was written as %s", (double)value, text);
    size_t n = digits_of(text + 1, mine);
    if (n == 0)
        return;
    if (n > 1 && has_digits(value, (int)n - 1))
        fail_msg("%a was written as %s, there is a shorter one", (double)value, text);
    snprintf(nearest, sizeof(nearest), "%.*e", (int)n - 1, (double)value);
    digits_of(nearest, nearest_digits);
    if (strtof(nearest, NULL) == value && strcmp(mine, nearest_digits) != 0)
        fail_msg("%a was written as %s, nearer is %s", (double)value, text, nearest);
}

/* Writes and reads the value with either sign. */
static void check_shortest(float positive)
{
    AUTO(buf) b = BUF_INIT(100);
    enum json_way best = json_way;
    for (int way = 0; way < 2 * (int)(best + 1); way++) {
        float value = way & 1 ? -positive : positive;
        json_way = (enum json_way)(way / 2);
        buf_reset(&b);
        json_write_shortest_f32s(&b, &value, 1);
        json_way = best;
        check_shortest_text(value, buf_text(&b));
    }
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void floats_are_written_with_the_fewest_digits(void **unused)
{
    (void)unused;
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        for (uint32_t i = 0; i < 20; i++) {
            check_shortest(float_of(exponent << 23 | i));
            check_shortest(float_of(exponent << 23 | (0x7fffff - i)));
            check_shortest(float_of(exponent << 23 | 1U << i));
        }
        for (size_t i = 0; i < 300 * rounds / FEWER; i++)
            check_shortest(float_of(exponent << 23 | (uint32_t)(random_bits() >> 41)));
    }
    for (size_t i = 0; i < 30000 * rounds / FEWER; i++) {
        char text[64];
        snprintf(text, sizeof(text), "%de%d", (int)(random_bits() % 100000),
                 (int)(random_bits() % 50) - 30);
        check_shortest(strtof(text, NULL));
        check_shortest((float)(random_bits() % 20000) / 16);
    }
}

static void the_shortest_floats_have_the_forms_of_doubles(void **unused)
{
    (void)unused;
    static const float values[] = {
        0,           -0.0F,         1,        0.1F,      -0.1F,      100,
        16777216,    3.4028235e38F, 1e20F,    1e21F,     1e-6F,      1e-7F,
        1.5e-7F,     1.4e-45F,      0.3F,     1e10F,     123456.79F, 0.00001F,
        0.99999994F, 1.0000001F,    INFINITY, -INFINITY, NAN,        0x1.5c87fap-84F};
    static const char text[] = "[0.0,-0.0,1.0,0.1,-0.1,100.0,16777216.0,3.4028235e38,"
                               "100000000000000000000.0,1e21,0.000001,1e-7,1.5e-7,1e-45,0.3,"
                               "10000000000.0,123456.79,0.00001,0.99999994,1.0000001,"
                               "Infinity,-Infinity,NaN,"
                               "7.0385307e-26]"; /* 7.038531e-26 is a different double */
    assert_true((float)strtod("7.0385307e-26", NULL) == 0x1.5c87fap-84F);
    assert_true((float)strtod("7.038531e-26", NULL) != 0x1.5c87fap-84F);
    enum json_way best = json_way;
    for (int way = 0; way <= (int)best; way++) {
        AUTO(buf) b = BUF_INIT(1000);
        json_way = (enum json_way)way;
        json_write_shortest_f32s(&b, values, sizeof(values) / sizeof(values[0]));
        json_way = best;
        assert_string_equal(buf_text(&b), text);
    }
}

static void numbers_of_few_digits_are_written(void **unused)
{
    (void)unused;
    char text[64];
    for (size_t i = 0; i < 300000 * rounds / FEWER; i++) {
        int n = (int)(random_bits() % 16);
        snprintf(text, sizeof(text), "%.*e", n, (double)(int64_t)random_bits() * 0x1p-63);
        snprintf(strchr(text, 'e'), 8, "e%d", (int)(random_bits() % 50) - 25);
        check_write(strtod(text, NULL));
    }
}

static void difficult_numbers_are_written(void **unused)
{
    (void)unused;
    for (int e = 0; e < 2047; e++) {
        check_write(double_of((uint64_t)e << 52 | (e == 0)));
        check_write(double_of(((uint64_t)e << 52) + 1));
        check_write(double_of(((uint64_t)e << 52) - (e > 0)));
    }
    for (int k = -323; k <= 308; k++) {
        char text[16];
        snprintf(text, sizeof(text), "1e%d", k);
        double value = strtod(text, NULL);
        check_write(value);
        check_write(nextafter(value, 0));
        check_write(nextafter(value, INFINITY));
    }
    check_write(9007199254740991.0);
    check_write(9007199254740993.0);
    check_write(2e-323);
    check_write(9.5367431640625e-07);
}

static void numbers_are_written_in_the_known_forms(void **unused)
{
    (void)unused;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {1, "1.0"},
        {-1, "-1.0"},
        {255, "255.0"},
        {(double)0.1f, "0.10000000149011612"},
        {0.1, "0.1"},
        {1.5, "1.5"},
        {12.34, "12.34"},
        {123456.789, "123456.789"},
        {0.001, "0.001"},
        {0.000001, "0.000001"},
        {0.0000012345, "0.0000012345"},
        {1e-7, "1e-7"},
        {1.25e-7, "1.25e-7"},
        {1e20, "100000000000000000000.0"},
        {1.2345e20, "123450000000000000000.0"},
        {1e21, "1e21"},
        {1.5e21, "1.5e21"},
        {9007199254740992.0, "9007199254740992.0"},
        {12345678901234567.0, "12345678901234568.0"},
        {1e300, "1e300"},
        {1.7976931348623157e308, "1.7976931348623157e308"},
        {5e-324, "5e-324"},
        {-2.2250738585072014e-308, "-2.2250738585072014e-308"},
        {INFINITY, "Infinity"},
        {-INFINITY, "-Infinity"},
        {NAN, "NaN"},
        {-NAN, "NaN"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(written(cases[i].value), cases[i].text);
}

static void integers_are_written(void **unused)
{
    (void)unused;
    char want[32];
    for (size_t i = 0; i < 200000 * rounds / FEWER; i++) {
        uint64_t value = random_bits() >> (random_bits() % 64);
        AUTO(buf) b = BUF_INIT(100);
        json_write_uint64(&b, value);
        snprintf(want, sizeof(want), "%" PRIu64, value);
        assert_string_equal(buf_text(&b), want);
        buf_reset(&b);
        json_write_int64(&b, (int64_t)value);
        snprintf(want, sizeof(want), "%" PRId64, (int64_t)value);
        assert_string_equal(buf_text(&b), want);
        buf_reset(&b);
        json_write_int64(&b, (int64_t)-value);
        snprintf(want, sizeof(want), "%" PRId64, (int64_t)-value);
        assert_string_equal(buf_text(&b), want);
    }
    static const uint64_t edges[] = {0,
                                     9,
                                     10,
                                     99999999,
                                     100000000,
                                     9999999999999999,
                                     10000000000000000,
                                     INT64_MAX,
                                     (uint64_t)INT64_MAX + 1,
                                     UINT64_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(edges); i++) {
        AUTO(buf) b = BUF_INIT(100);
        json_write_uint64(&b, edges[i]);
        snprintf(want, sizeof(want), "%" PRIu64, edges[i]);
        assert_string_equal(buf_text(&b), want);
    }
}

int main(void)
{
    const char *more = getenv("CONCH_JSON_ROUNDS");
    if (more)
        rounds = strtoull(more, NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_in_the_known_forms),
        cmocka_unit_test(difficult_numbers_are_written),
        cmocka_unit_test(random_doubles_are_written),
        cmocka_unit_test(random_floats_are_written),
        cmocka_unit_test(floats_are_written_as_their_doubles),
        cmocka_unit_test(floats_are_written_with_the_fewest_digits),
        cmocka_unit_test(the_shortest_floats_have_the_forms_of_doubles),
        cmocka_unit_test(numbers_of_few_digits_are_written),
        cmocka_unit_test(integers_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
