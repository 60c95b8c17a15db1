/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/utf8.h"

/* The encoding of each code point is valid, alone and after any number of other bytes. No other
 * bytes are. */
static void every_code_point_is_valid(void **state)
{
    char text[32];
    for (uint32_t c = 0; c < 0x120000; c++) {
        char bytes[4];
        size_t n = utf8_encode(c, bytes);
        bool is_one = c < 0x110000 && (c < 0xd800 || c > 0xdfff);
        assert_true((n > 0) == is_one);
        if (!n)
            continue;
        size_t before = c % 9;
        memset(text, 'a', before);
        memcpy(text + before, bytes, n);
        assert_true(utf8_is_valid(text, before + n));
        if (n > 1)
            assert_false(utf8_is_valid(text, before + n - 1)); /* cut off */
    }
}

static void malformed_utf8_is_refused(void **state)
{
    static const char *const wrong[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xe1\x80",
        "\xc3(",
        "\xe2\x82(",
        "\xf0\x9f\x98(",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        assert_false(utf8_is_valid(wrong[i], strlen(wrong[i])));
    assert_true(utf8_is_valid("", 0));
    assert_true(utf8_is_valid("a\0b", 3));
}

static void printable_text_escapes_malformed_utf8(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"", ""},
        {"plain \xc3\xa9", "plain \xc3\xa9"},
        {"\xff", "\\xFF"},
        {"a\xc3(\xe9", "a\\xC3(\\xE9"},
        {"\x01\n", "\x01\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        char *got = utf8_printable(texts[i][0]);
        assert_string_equal(got, texts[i][1]);
        mem_free(got);
    }
}

static void a_text_that_was_cut_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *text, *cut;
    } cases[] = {
        {"abc", "abc…(99 bytes)"},
        {"", "…(99 bytes)"},
        {"ab\xc3\xa9", "ab\xc3\xa9…(99 bytes)"},
        {"ab\xc3", "ab…(99 bytes)"},
        {"a\xe2\x80", "a…(99 bytes)"},
        {"a\xe2\x80\xa8", "a\xe2\x80\xa8…(99 bytes)"},
        {"a\xf0\x9f\x98", "a…(99 bytes)"},
        {"a\x80\x80\x80\x80\x80", "a\x80\x80\x80\x80\x80…(99 bytes)"}, /* not UTF-8 in any case */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[64] = "";
        size_t n = strlen(cases[i].text);
        memcpy(text, cases[i].text, n);
        assert_int_equal(utf8_mark_cut(text, n, 99), strlen(cases[i].cut));
        assert_string_equal(text, cases[i].cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_is_valid),
        cmocka_unit_test(malformed_utf8_is_refused),
        cmocka_unit_test(printable_text_escapes_malformed_utf8),
        cmocka_unit_test(a_text_that_was_cut_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
