/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void numbers_are_parsed_whole(void **state)
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

static void malformed_numbers_are_refused(void **state)
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
        assert_int_equal(value, 99); /* not written */
    }
    uint64_t u = 99;
    assert_false(str_to_uint64("-1", 2, &u));
    assert_false(str_to_uint64("18446744073709551616", 20, &u));
    assert_false(str_to_uint64("184467440737095516150", 21, &u));
    assert_false(str_to_uint64("1\0", 2, &u));
    assert_true(u == 99);
}

static void strings_are_compared_without_case(void **state)
{
    (void)state;
    assert_true(str_equal_nocase_n("Content-Length", sizeof("Content-Length") - 1, "cONTENT-lENGTH",
                                   sizeof("cONTENT-lENGTH") - 1));
    assert_false(str_equal_nocase_n("a", sizeof("a") - 1, "ab", sizeof("ab") - 1));
    assert_false(str_equal_nocase_n("[", sizeof("[") - 1, "{",
                                    sizeof("{") - 1)); /* no letters, although 0x20 apart */
    assert_false(str_equal_nocase_n("\xc4", sizeof("\xc4") - 1, "\xe4", sizeof("\xe4") - 1));
    assert_true(str_equal_nocase_n("AbX", 2, "aBY", 2));
}

static void the_edit_distance_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(str_edit_distance("", ""), 0);
    assert_int_equal(str_edit_distance("", "abc"), 3);
    assert_int_equal(str_edit_distance("abc", ""), 3);
    assert_int_equal(str_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(str_edit_distance("abcd", "acbd"), 1); /* two neighbours exchanged */
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

static void the_nearest_name_is_suggested(void **state)
{
    (void)state;
    size_t least = SIZE_MAX;
    assert_false(str_nearer("color", "shape", &least));
    assert_true(str_nearer("execute_delay", "execute_delay_ms", &least));
    assert_true(str_nearer("execute_delay", "execute_delays", &least));
    assert_false(str_nearer("execute_delay", "execute_delay_ms", &least)); /* the other is nearer */
    least = SIZE_MAX;
    assert_false(str_nearer("I", "O", &least)); /* different letters have nothing in common */
    assert_false(str_nearer("", "a", &least));
    assert_true(str_nearer("I0", "I1", &least));
}

static void words_for_true_and_false_are_read(void **state)
{
    (void)state;
    static const char *const yes[] = {"true", "TRUE", "on", "On", "1"};
    static const char *const no[] = {"false", "False", "off", "OFF", "0"};
    static const char *const neither[] = {"", "yes", "tru", "truee", "2", " 1", "of", "01"};
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        bool a = false, b = true;
        assert_true(str_to_bool(yes[i], &a) && a);
        assert_true(str_to_bool(no[i], &b) && !b);
    }
    for (size_t i = 0; i < ARRAY_SIZE(neither); i++) {
        bool value = true;
        assert_false(str_to_bool(neither[i], &value));
        assert_true(value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_for_true_and_false_are_read),
        cmocka_unit_test(numbers_are_parsed_whole),
        cmocka_unit_test(malformed_numbers_are_refused),
        cmocka_unit_test(strings_are_compared_without_case),
        cmocka_unit_test(the_edit_distance_counts_edits),
        cmocka_unit_test(the_nearest_name_is_suggested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
