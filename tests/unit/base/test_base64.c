/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void stands_for(const char *text, const char *bytes, size_t size)
{
    uint8_t out[64];
    size_t n = 99;
    assert_true(base64_decode(text, strlen(text), out, &n));
    assert_int_equal(n, size);
    assert_memory_equal(out, bytes, size);
    assert_true(n <= base64_room(strlen(text)));
}

/* The examples of RFC 4648 §10, and both alphabets. */
static void texts_are_encoded_and_decoded(void **state)
{
    (void)state;
    stands_for("", "", 0);
    stands_for("Zg==", "f", 1);
    stands_for("Zm8=", "fo", 2);
    stands_for("Zm9v", "foo", 3);
    stands_for("Zm9vYg==", "foob", 4);
    stands_for("Zm9vYg", "foob", 4);
    stands_for("Zm9vYmE=", "fooba", 5);
    stands_for("Zm9vYmFy", "foobar", 6);
    stands_for("+/-_AAAA", "\xfb\xff\xbf\0\0\0", 6);
}

static void malformed_texts_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"Z", "Zg=a", "Zm9vY", "Zm 9", "Zm9\n", "%%%", "Zm9v\x80"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        uint8_t out[16];
        size_t n = 99;
        assert_false(base64_decode(wrong[i], strlen(wrong[i]), out, &n));
        assert_int_equal(n, 99);
    }
}

static void a_text_may_be_decoded_in_place(void **state)
{
    (void)state;
    char text[] = "Zm9vYmFy";
    size_t n;
    assert_true(base64_decode(text, 8, (uint8_t *)text, &n));
    assert_int_equal(n, 6);
    assert_memory_equal(text, "foobar", 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_encoded_and_decoded),
        cmocka_unit_test(malformed_texts_are_refused),
        cmocka_unit_test(a_text_may_be_decoded_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
