/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All sequences of up to three bytes, and those of four with every lead and second byte, against
 * the definition: what some code point encodes to, and nothing else, is valid.
 */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Whether the bytes are exactly one character, by way of decoding and encoding again. */
static bool is_one_character(const unsigned char *s, size_t n)
{
    static const unsigned char lead_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = s[0] & lead_bits[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3f);
    char again[4];
    return utf8_encode(c, again) == n && memcmp(again, s, n) == 0;
}

/* Valid is what falls into characters from the left. */
static bool expected(const unsigned char *s, size_t n)
{
    if (n == 0)
        return true;
    for (size_t first = 1; first <= n && first <= 4; first++) {
        if (is_one_character(s, first))
            return expected(s + first, n - first);
    }
    return false;
}

static void check(const unsigned char *s, size_t n)
{
    if (utf8_is_valid((const char *)s, n) != expected(s, n))
        fail_msg("%02x %02x %02x %02x (%zu)", s[0], s[1], s[2], s[3], n);
}

static void up_to_three_bytes(void **state)
{
    (void)state;
    unsigned char s[4] = {0};
    assert_true(utf8_is_valid("", 0));
    for (unsigned int a = 0; a < 256; a++) {
        s[0] = (unsigned char)a;
        check(s, 1);
        for (unsigned int b = 0; b < 256; b++) {
            s[1] = (unsigned char)b;
            check(s, 2);
            for (unsigned int c = 0; c < 256; c++) {
                s[2] = (unsigned char)c;
                check(s, 3);
            }
        }
    }
}

static void four_bytes(void **state)
{
    (void)state;
    static const unsigned char ends[] = {0, 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    unsigned char s[4];
    for (unsigned int a = 0xe0; a < 256; a++) {
        for (unsigned int b = 0; b < 256; b++) {
            for (size_t c = 0; c < sizeof(ends); c++) {
                for (size_t d = 0; d < sizeof(ends); d++) {
                    s[0] = (unsigned char)a;
                    s[1] = (unsigned char)b;
                    s[2] = ends[c];
                    s[3] = ends[d];
                    check(s, 4);
                }
            }
        }
    }
}

/* Plain text is passed eight bytes at a time: a fault must be seen wherever it stands. */
static void in_long_texts(void **state)
{
    (void)state;
    char text[64];
    for (size_t length = 1; length <= sizeof(text); length++) {
        for (size_t at = 0; at < length; at++) {
            memset(text, 'x', sizeof(text));
            text[at] = (char)0xff;
            assert_false(utf8_is_valid(text, length));
            assert_true(utf8_is_valid(text, at));
            text[at] = (char)0xc3; /* the first half of a letter */
            assert_false(utf8_is_valid(text, length));
            if (at + 1 < length) {
                text[at + 1] = (char)0xa9;
                assert_true(utf8_is_valid(text, length));
            }
        }
    }
}

static void encodes_every_code_point(void **state)
{
    (void)state;
    char bytes[4];
    for (uint32_t c = 0; c < 0x110000; c++) {
        size_t n = utf8_encode(c, bytes);
        bool surrogate = c >= 0xd800 && c < 0xe000;
        assert_int_equal(n, surrogate ? 0 : c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        if (n)
            assert_true(utf8_is_valid(bytes, n));
    }
    assert_int_equal(utf8_encode(0x110000, bytes), 0);
    assert_int_equal(utf8_encode(UINT32_MAX, bytes), 0);
    assert_int_equal(utf8_encode(0x20ac, bytes), 3);
    assert_memory_equal(bytes, "\xe2\x82\xac", 3);
    assert_int_equal(utf8_encode(0x1f41a, bytes), 4);
    assert_memory_equal(bytes, "\xf0\x9f\x90\x9a", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(up_to_three_bytes),
        cmocka_unit_test(four_bytes),
        cmocka_unit_test(in_long_texts),
        cmocka_unit_test(encodes_every_code_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
