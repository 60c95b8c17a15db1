/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading numbers (json_number.c, json_decimal.c), compared with the C library: a number that is
 * read has strtod's bits. Millions of random values each (the environment variable
 * CONCH_JSON_ROUNDS multiplies them), and numbers that are known to be difficult.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

/* Reads text as a double, at the end of the text and far before it, which are two paths in the
 * code. */
static void check_read(const char *text)
{
    double want = strtod(text, NULL);
    double got[2] = {-1, -1};
    char longer[4096];
    struct json j;
    json_init(&j, text, strlen(text), NULL);
    bool ok = json_read_double(&j, &got[0]) && json_end(&j);
    if (isinf(want)) {
        if (ok)
            fail_msg("%s was read as %.17g, it is too big", text, got[0]);
        return;
    }
    if (!ok || bits_of(got[0]) != bits_of(want))
        fail_msg("%s was read as %.17g (%d), strtod says %.17g", text, got[0], ok, want);
    snprintf(longer, sizeof(longer), "[%s,%s,                                           1]", text,
             text);
    double three[3];
    size_t n;
    json_init(&j, longer, strlen(longer), NULL);
    if (!json_read_f64s(&j, three, 3, &n) || n != 3 || bits_of(three[0]) != bits_of(want) ||
        bits_of(three[1]) != bits_of(want))
        fail_msg("%s was read as %.17g %.17g in an array, strtod says %.17g", text, three[0],
                 three[1], want);
}

static void random_doubles_are_read(void **unused)
{
    (void)unused;
    char text[64];
    for (size_t i = 0; i < 300000 * rounds / FEWER; i++) {
        double value = double_of(random_bits());
        if (!isfinite(value))
            continue;
        snprintf(text, sizeof(text), "%.*e", (int)(random_bits() % 22), value);
        check_read(text);
    }
}

static void random_decimals_are_read(void **unused)
{
    (void)unused;
    char text[128];
    for (size_t i = 0; i < 300000 * rounds / FEWER; i++) {
        /* up to 25 digits, a point at any position, a small exponent now and then */
        int n = 1 + (int)(random_bits() % 25), point = (int)(random_bits() % (unsigned)(n + 1));
        int length = 0;
        if (random_bits() & 1)
            text[length++] = '-';
        if (point == 0)
            text[length++] = '0';
        for (int at = 0; at < n; at++) {
            if (at == point)
                text[length++] = '.';
            unsigned digit = (unsigned)(random_bits() >> 33) % 10;
            if (at == 0 && point > 1 && digit == 0)
                digit = 1;
            text[length++] = (char)('0' + digit);
        }
        if (random_bits() % 4 == 0)
            length += snprintf(text + length, 8, "e%d", (int)(random_bits() % 61) - 30);
        text[length] = '\0';
        check_read(text);
    }
}

/* Every number of digits before the point, of zeros after it, and of digits after those. */
static void every_layout_is_read(void **unused)
{
    (void)unused;
    static const char digits[] = "98765432109876543210987654321098765432109876543210";
    char text[128];
    for (int before = 1; before <= 12; before++) {
        for (int zeros = 0; zeros <= 24; zeros++) {
            for (int after = 0; after <= 24; after++) {
                if (zeros + after == 0)
                    continue;
                snprintf(text, sizeof(text), "%.*s.%0*d%.*s", before, digits, zeros, 0, after,
                         digits);
                if (zeros == 0)
                    snprintf(text, sizeof(text), "%.*s.%.*s", before, digits, after, digits);
                check_read(text);
                text[before - 1] = '0'; /* a zero before the point */
                check_read(text + before - 1);
            }
        }
    }
}

static void decimals_between_two_doubles_are_read(void **unused)
{
    (void)unused;
    /* The exact middle of two neighbours, and a value a little above and below it. */
    char text[1200];
    for (size_t i = 0; i < 2000 * rounds / FEWER; i++) {
        uint64_t bits = random_bits() & 0x7fffffffffffffff;
        if (i % 4 == 0)
            bits &= 0x000fffffffffffff; /* subnormal */
        else if (i % 4 == 1)
            bits = (bits & 0x000fffffffffffff) | (uint64_t)(1000 + i % 60) << 52;
        double low = double_of(bits), high = double_of(bits + 1);
        if (!isfinite(low) || !isfinite(high))
            continue;
        long double middle = ((long double)low + (long double)high) / 2;
        snprintf(text, sizeof(text), "%.800Le", middle);
        check_read(text);
        char *e = strchr(text, 'e');
        char exponent[16];
        snprintf(exponent, sizeof(exponent), "%s", e);
        snprintf(e, 64, "1%s", exponent);
        check_read(text);
        snprintf(text, sizeof(text), "%.19Le", middle);
        check_read(text);
        snprintf(text, sizeof(text), "%.18Le", middle);
        check_read(text);
    }
}

static void difficult_numbers_are_read(void **unused)
{
    (void)unused;
    static const char *const texts[] = {
        "0",
        "-0",
        "0.0",
        "-0.0",
        "0e5",
        "0.000e-400",
        "1",
        "-1",
        "10",
        "1e0",
        "1E+2",
        "1e-2",
        "0.1",
        "0.3",
        "123456789012345678",
        "1234567890123456789",
        "12345678901234567890",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993.0",
        "9007199254740991.5",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "1e308",
        "1e309",
        "-1e309",
        "1e400",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "2.2250738585072014e-308",
        "2.2250738585072011e-308",
        "2.2250738585072012e-308",
        "4.9406564584124654e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "5e-324",
        "1e-323",
        "1e-342",
        "1e-343",
        "1e-400",
        "8.5e22",
        "1e22",
        "1e23",
        "9.5367431640625e-07",
        "7.2057594037927933e16",
        "3.5844466002796428e298",
        "6.02214076e23",
        "1.23456789e-20",
        "100000000000000016777215",
        "100000000000000016777216",
        "0.000000000000000000000000001",
        "5708990770823839207320493820740630171355185151999e-3",
        "5708990770823839524233143877797980545530986496.0",
        "1.00000000000000011102230246251565404236316680908203125",
        "1.00000000000000011102230246251565404236316680908203124",
        "1.00000000000000011102230246251565404236316680908203126",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        check_read(texts[i]);
    char zeros[1500] = "0.";
    memset(zeros + 2, '0', 400);
    memcpy(zeros + 402, "123e400", 8);
    check_read(zeros);
    memset(zeros, '7', 1100);
    memcpy(zeros + 1100, "e-1000", 7);
    check_read(zeros);
    zeros[0] = '1';
    memset(zeros + 1, '0', 1000);
    memcpy(zeros + 1001, "1e-1001", 8);
    check_read(zeros);
}

static void check_float(const char *text)
{
    float want = (float)strtod(text, NULL), got[2];
    char array[256];
    struct json j;
    size_t n;
    snprintf(array, sizeof(array), "[%s,%s%64s]", text, text, ""); /* far from the end */
    json_init(&j, array, strlen(array), NULL);
    if (!json_read_f32s(&j, got, 2, &n) || n != 2 || memcmp(&got[0], &want, 4) != 0 ||
        memcmp(&got[1], &want, 4) != 0)
        fail_msg("%s was read as %.9g %.9g, it is %.9g", text, (double)got[0], (double)got[1],
                 (double)want);
}

/* Floats are rounded twice, as Triton rounds them. A shortcut would fail in the middle between
 * two of them. */
static void floats_are_read_by_way_of_doubles(void **unused)
{
    (void)unused;
    char text[64];
    check_float("1.0000000596046448");
    check_float("1.00000005960464477539062");
    check_float("1.0000000596046449");
    for (size_t i = 0; i < 300000 * rounds / FEWER; i++) {
        uint32_t bits = (uint32_t)random_bits() & 0x7fffffff;
        if (i % 2)
            bits = (bits & 0x7fffff) | (uint32_t)(100 + i % 50) << 23;
        if (bits >= 0x7f7fffff)
            continue;
        float low, high;
        memcpy(&low, &bits, 4);
        bits++;
        memcpy(&high, &bits, 4);
        double middle = ((double)low + (double)high) / 2;
        int precision = 5 + (int)(random_bits() % 14);
        snprintf(text, sizeof(text), "%.*e", precision, middle);
        check_float(text);
        snprintf(text, sizeof(text), "%.17g", double_of(bits_of(middle) + random_bits() % 9 - 4));
        check_float(text);
        snprintf(text, sizeof(text), "-%.*g", precision, (double)low);
        check_float(text);
        if (middle > 1e-6 && middle < 1e6) {
            snprintf(text, sizeof(text), "%.*f", precision, middle);
            check_float(text);
        }
    }
}

static void integers_are_recognised_as_by_the_reference(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        int kind;
        uint64_t bits;
    } cases[] = {
        {"0", JSON_INT64, 0},
        {"-0", JSON_INT64, 0},
        {"7", JSON_INT64, 7},
        {"-7", JSON_INT64, (uint64_t)-7},
        {"12345678", JSON_INT64, 12345678},
        {"9223372036854775807", JSON_INT64, INT64_MAX},
        {"9223372036854775808", JSON_UINT64, (uint64_t)INT64_MAX + 1},
        {"-9223372036854775808", JSON_INT64, (uint64_t)INT64_MIN},
        {"18446744073709551615", JSON_UINT64, UINT64_MAX},
        {"18446744073709551616", JSON_DOUBLE, 0x43f0000000000000},
        {"-9223372036854775809", JSON_DOUBLE, 0xc3e0000000000000},
        {"10000000000000000000", JSON_UINT64, 10000000000000000000u},
        {"1.0", JSON_DOUBLE, 0x3ff0000000000000},
        {"1e0", JSON_DOUBLE, 0x3ff0000000000000},
        {"10e-1", JSON_DOUBLE, 0x3ff0000000000000},
        {"NaN", JSON_DOUBLE, 0x7ff8000000000000},
        {"-NaN", JSON_DOUBLE, 0x7ff8000000000000},
        {"Inf", JSON_DOUBLE, 0x7ff0000000000000},
        {"Infinity", JSON_DOUBLE, 0x7ff0000000000000},
        {"-Inf", JSON_DOUBLE, 0xfff0000000000000},
        {"-Infinity", JSON_DOUBLE, 0xfff0000000000000},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (int padded = 0; padded < 2; padded++) {
            char text[128];
            snprintf(text, sizeof(text),
                     padded ? "%s                                        "
                              "          "
                            : "%s",
                     cases[i].text);
            struct json_number number;
            struct json j;
            json_init(&j, text, strlen(text), NULL);
            assert_true(json_read_number(&j, &number));
            assert_true(json_end(&j));
            assert_int_equal(number.kind, cases[i].kind);
            assert_true(number.u64 == cases[i].bits);

            int64_t i64;
            uint64_t u64;
            json_init(&j, text, strlen(text), NULL);
            bool fits = cases[i].kind == JSON_INT64;
            assert_int_equal(json_read_int64(&j, &i64), fits);
            if (fits)
                assert_true(i64 == (int64_t)cases[i].bits);
            else
                assert_int_equal(j.failure, JSON_NOT_INT);
            json_init(&j, text, strlen(text), NULL);
            fits = cases[i].kind == JSON_UINT64 ||
                   (cases[i].kind == JSON_INT64 && (int64_t)cases[i].bits >= 0);
            assert_int_equal(json_read_uint64(&j, &u64), fits);
            if (fits)
                assert_true(u64 == cases[i].bits);
            else
                assert_int_equal(j.failure, JSON_NOT_UINT);
        }
    }
}

int main(void)
{
    const char *more = getenv("CONCH_JSON_ROUNDS");
    if (more)
        rounds = strtoull(more, NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(difficult_numbers_are_read),
        cmocka_unit_test(every_layout_is_read),
        cmocka_unit_test(random_doubles_are_read),
        cmocka_unit_test(random_decimals_are_read),
        cmocka_unit_test(decimals_between_two_doubles_are_read),
        cmocka_unit_test(floats_are_read_by_way_of_doubles),
        cmocka_unit_test(integers_are_recognised_as_by_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
