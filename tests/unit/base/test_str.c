/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void reads_whole_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"7", 7},
        {"007", 7},
        {"-12", -12},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        int64_t value = 99;
        assert_true(str_to_int64(good[i].text, strlen(good[i].text), &value));
        assert_true(value == good[i].value);
    }
    uint64_t u = 99;
    assert_true(str_to_uint64("18446744073709551615", 20, &u));
    assert_true(u == UINT64_MAX);
    assert_true(str_to_uint64("123", 2, &u)); /* the length counts, not a zero byte */
    assert_true(u == 12);
}

static void refuses_what_is_no_number(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "-",
        "+1",
        " 1",
        "1 ",
        "1x",
        "0x10",
        "1.0",
        "1e3",
        "--1",
        "\xd9\xa1",
        "٣",
        "1\n",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int64_t value = 99;
        if (str_to_int64(bad[i], strlen(bad[i]), &value))
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(value, 99); /* untouched */
    }
    uint64_t u = 99;
    assert_false(str_to_uint64("-1", 2, &u));
    assert_false(str_to_uint64("18446744073709551616", 20, &u));
    assert_false(str_to_uint64("184467440737095516150", 21, &u));
    assert_false(str_to_uint64("1\0", 2, &u));
    assert_true(u == 99);
}

static void compares(void **state)
{
    (void)state;
    assert_true(str_has_prefix("abc", "ab"));
    assert_true(str_has_prefix("abc", ""));
    assert_false(str_has_prefix("abc", "abcd"));
    assert_false(str_has_prefix("abc", "b"));
    assert_true(str_has_suffix("abc", "bc"));
    assert_true(str_has_suffix("abc", "abc"));
    assert_true(str_has_suffix("abc", ""));
    assert_false(str_has_suffix("bc", "abc"));
    assert_false(str_has_suffix("abc", "ab"));
    assert_true(str_equal_nocase("Content-Length", "cONTENT-lENGTH"));
    assert_false(str_equal_nocase("a", "ab"));
    assert_false(str_equal_nocase("[", "{")); /* not letters, though 0x20 apart */
    assert_false(str_equal_nocase("\xc4", "\xe4"));
    assert_true(str_equal_nocase_n("AbX", 2, "aBY", 2));
}

static void measures_edits(void **state)
{
    (void)state;
    assert_int_equal(str_edit_distance("", ""), 0);
    assert_int_equal(str_edit_distance("", "abc"), 3);
    assert_int_equal(str_edit_distance("abc", ""), 3);
    assert_int_equal(str_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(str_edit_distance("abcd", "acbd"), 1); /* neighbours exchanged */
    assert_int_equal(str_edit_distance("model", "Model"), 1);
    assert_int_equal(str_edit_distance("flaw", "lawn"), 2);
    char longest[STR_EDIT_MAX + 2];
    memset(longest, 'x', sizeof(longest));
    longest[STR_EDIT_MAX + 1] = '\0';
    assert_true(str_edit_distance(longest, "x") == SIZE_MAX);
    assert_true(str_edit_distance("x", longest) == SIZE_MAX);
    longest[STR_EDIT_MAX] = '\0';
    assert_int_equal(str_edit_distance(longest, longest), 0);
    assert_int_equal(str_edit_distance(longest, ""), STR_EDIT_MAX);
}

static void finds_what_was_meant(void **state)
{
    (void)state;
    static const char *const words[] = {"http-port", "grpc-port", "http-address", "x", NULL};
    assert_string_equal(str_closest("htpp-port", words), "http-port");
    assert_string_equal(str_closest("http-adress", words), "http-address");
    assert_string_equal(str_closest("grpc-port", words), "grpc-port");
    assert_null(str_closest("verbose", words));
    assert_null(str_closest("y", words)); /* any word of one letter would do */
    assert_null(str_closest("", words));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_whole_numbers),
        cmocka_unit_test(refuses_what_is_no_number),
        cmocka_unit_test(compares),
        cmocka_unit_test(measures_edits),
        cmocka_unit_test(finds_what_was_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
