/* SPDX-License-Identifier: Apache-2.0 */
/* The length of a body's JSON, as a header gives it: which texts are numbers, and which are too
 * large. */
#include "frontends/http/header_length.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static enum header_length parse(const char *text, int64_t *ret_length)
{
    return header_length_parse((struct span){text, strlen(text)}, ret_length);
}

static void numbers_of_32_bits_are_taken(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t length;
    } cases[] = {
        {"0", 0},
        {"74", 74},
        {"+74", 74},
        {" \t74", 74},
        {"74 and more", 74},
        {"000000000000000074", 74},
        {"-1", -1},
        {"2147483647", INT32_MAX},
        {"-2147483648", INT32_MIN},
        {"-00002147483648", INT32_MIN},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t length = 7;
        assert_int_equal(parse(cases[i].text, &length), HEADER_LENGTH_FINE);
        assert_int_equal(length, cases[i].length);
    }
}

static void larger_numbers_are_out_of_range(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "2147483648",
        "21474836470",
        "4294967296",
        "99999999999999999999999999",
        "-2147483649",
        "-21474836480",
        "-99999999999999999999999999",
        "-214748364800000000000000000",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int64_t length = 7;
        assert_int_equal(parse(texts[i], &length), HEADER_LENGTH_RANGE);
        assert_int_equal(length, 7);
    }
}

static void other_texts_are_no_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {"", " ", "-", "+", "+-1", "x", "- 1", ".5"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int64_t length = 7;
        assert_int_equal(parse(texts[i], &length), HEADER_LENGTH_BAD);
        assert_int_equal(length, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_32_bits_are_taken),
        cmocka_unit_test(larger_numbers_are_out_of_range),
        cmocka_unit_test(other_texts_are_no_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
