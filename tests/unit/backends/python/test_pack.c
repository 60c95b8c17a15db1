/* SPDX-License-Identifier: Apache-2.0 */
#include "python/pack.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void fields_come_out_as_they_went_in(void **state)
{
    char message[256];
    struct packer count = {0}, p = {.to = message, .room = sizeof message};

    (void)state;
    for (struct packer *q = &count;; q = &p) {
        pack_u8(q, 7);
        pack_u32(q, 0x01020304);
        pack_align(q, 64);
        pack_u64(q, UINT64_MAX - 1);
        pack_i64(q, -5);
        pack_f64(q, 0.25);
        pack_text(q, "text");
        pack_text(q, NULL);
        pack_str(q, "a\0b", 3);
        if (q == &p)
            break;
    }
    assert_int_equal(count.used, p.used);
    assert_int_equal(p.used, 64 + 24 + 8 + 4 + 7);

    struct unpacker u = {.at = message, .left = p.used};
    size_t len;
    assert_int_equal(unpack_u8(&u), 7);
    assert_int_equal(unpack_u32(&u), 0x01020304);
    for (int i = 5; i < 64; i++)
        assert_int_equal(unpack_u8(&u), 0);
    assert_true(unpack_u64(&u) == UINT64_MAX - 1);
    assert_int_equal(unpack_i64(&u), -5);
    assert_true(unpack_f64(&u) == 0.25);
    const char *text = unpack_str(&u, &len);
    assert_int_equal(len, 4);
    assert_memory_equal(text, "text", 4);
    unpack_str(&u, &len);
    assert_int_equal(len, 0);
    text = unpack_str(&u, &len);
    assert_int_equal(len, 3);
    assert_memory_equal(text, "a\0b", 3);
    assert_int_equal(u.left, 0);
    assert_false(u.failed);
}

static void nothing_is_written_beyond_the_room(void **state)
{
    char message[16];
    struct packer p = {.to = message, .room = 9};

    (void)state;
    memset(message, 'x', sizeof message);
    pack_u64(&p, 1);
    pack_u32(&p, 2); /* does not fit */
    pack_u8(&p, 3);  /* nor does what follows it, though there is a byte left */
    pack_str(&p, "long enough", 11);
    assert_int_equal(p.used, 8 + 4 + 1 + 4 + 11);
    for (size_t i = 8; i < sizeof message; i++)
        assert_int_equal(message[i], 'x');
}

static void a_message_cut_anywhere_is_a_mistake(void **state)
{
    char message[64];
    struct packer p = {.to = message, .room = sizeof message};

    (void)state;
    pack_u8(&p, 1);
    pack_u32(&p, 2);
    pack_text(&p, "abc");
    pack_u64(&p, 3);
    for (uint64_t left = 0; left <= p.used; left++) {
        /* A copy of exactly that size, so that a sanitizer sees what is read beyond it. */
        char *cut = malloc(left ? left : 1);
        size_t len;

        memcpy(cut, message, left);
        struct unpacker u = {.at = cut, .left = left};
        unpack_u8(&u);
        unpack_u32(&u);
        unpack_str(&u, &len);
        const uint64_t last = unpack_u64(&u);
        assert_int_equal(u.failed, left < p.used);
        assert_int_equal(last, left < p.used ? 0 : 3);
        free(cut);
    }
}

static void nothing_follows_a_mistake(void **state)
{
    char message[64] = {0};
    struct unpacker u = {.at = message, .left = sizeof message};
    size_t len;

    (void)state;
    memset(message, 0xff, 4);
    assert_string_equal(unpack_str(&u, &len), "");
    assert_int_equal(len, 0);
    assert_true(u.failed);
    assert_int_equal(unpack_u32(&u), 0);
    assert_int_equal(unpack_count(&u, UINT32_MAX, 0), 0);
    assert_true(u.failed);
}

static void a_count_fits_its_limit_and_what_is_left(void **state)
{
    char message[4 + 8];
    struct packer p = {.to = message, .room = sizeof message};

    (void)state;
    pack_u32(&p, 2);
    pack_u64(&p, 0);
    struct unpacker u = {.at = message, .left = p.used};
    assert_int_equal(unpack_count(&u, 2, 4), 2);
    assert_false(u.failed);
    u = (struct unpacker){.at = message, .left = p.used};
    assert_int_equal(unpack_count(&u, 1, 4), 0);
    assert_true(u.failed);
    u = (struct unpacker){.at = message, .left = p.used};
    assert_int_equal(unpack_count(&u, 2, 5), 0);
    assert_true(u.failed);
    memset(message, 0xff, 4);
    u = (struct unpacker){.at = message, .left = p.used};
    assert_int_equal(unpack_count(&u, UINT32_MAX, UINT32_MAX), 0);
    assert_true(u.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_come_out_as_they_went_in),
        cmocka_unit_test(nothing_is_written_beyond_the_room),
        cmocka_unit_test(a_message_cut_anywhere_is_a_mistake),
        cmocka_unit_test(nothing_follows_a_mistake),
        cmocka_unit_test(a_count_fits_its_limit_and_what_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
