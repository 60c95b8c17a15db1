/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pbwire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Copies the bytes into memory of their own, so that a sanitizer sees a read beyond them. */
static char *copy_of(const void *bytes, size_t n)
{
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    return copy;
}

/* Returns how many fields the bytes have; -1: they are no message. */
static int count_fields(const void *bytes, size_t n)
{
    char *copy = copy_of(bytes, n);
    struct pbwire in = pbwire_of(copy, n);
    struct pbwire_field f;
    int count = 0;
    while (pbwire_next(&in, &f))
        count++;
    assert_true(in.at == in.end);
    free(copy);
    return in.bad ? -1 : count;
}

#define COUNT(text) count_fields(text, sizeof(text) - 1)

static void every_type_of_field_is_read(void **state)
{
    (void)state;
    static const char message[] = "\x08\x96\x01"                         /* 1: 150 */
                                  "\x11\x01\x02\x03\x04\x05\x06\x07\x08" /* 2: fixed64 */
                                  "\x1a\x03xyz"                          /* 3: bytes */
                                  "\x25\x01\x02\x03\x04"                 /* 4: fixed32 */
                                  "\xfa\xff\xff\xff\x0f\x00"             /* 2^29-1: no bytes */
                                  "\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"; /* 5: 2^64-1 */
    struct pbwire in = pbwire_of(message, sizeof(message) - 1);
    struct pbwire_field f;
    assert_true(pbwire_next(&in, &f) && pbwire_is(&f, 1, PBWIRE_VARINT));
    assert_int_equal(f.value, 150);
    assert_true(pbwire_next(&in, &f) && pbwire_is(&f, 2, PBWIRE_FIXED64));
    assert_true(f.value == 0x0807060504030201);
    assert_true(pbwire_next(&in, &f) && pbwire_is(&f, 3, PBWIRE_BYTES));
    assert_memory_equal(f.bytes.at, "xyz", f.bytes.length);
    assert_int_equal(f.bytes.length, 3);
    assert_true(pbwire_next(&in, &f) && pbwire_is(&f, 4, PBWIRE_FIXED32));
    assert_int_equal(f.value, 0x04030201);
    assert_true(pbwire_next(&in, &f) && pbwire_is(&f, (1 << 29) - 1, PBWIRE_BYTES));
    assert_int_equal(f.bytes.length, 0);
    assert_true(pbwire_next(&in, &f) && pbwire_is(&f, 5, PBWIRE_VARINT));
    assert_true(f.value == UINT64_MAX);
    assert_false(pbwire_next(&in, &f));
    assert_false(in.bad);
}

static void no_bytes_are_a_message_without_fields(void **state)
{
    (void)state;
    struct pbwire in = pbwire_of(NULL, 0);
    struct pbwire_field f;
    assert_false(pbwire_next(&in, &f));
    assert_false(in.bad);
}

static void a_message_cut_anywhere_is_refused_or_has_fewer_fields(void **state)
{
    (void)state;
    static const char message[] = "\x08\x96\x01\x1a\x03xyz\x25\x01\x02\x03\x04";
    assert_int_equal(COUNT(message), 3);
    for (size_t n = 0; n < sizeof(message) - 1; n++) {
        int whole = n == 0 ? 0 : n == 3 ? 1 : n == 8 ? 2 : -1;
        assert_int_equal(count_fields(message, n), whole);
    }
}

static void malformed_fields_are_refused(void **state)
{
    (void)state;
    assert_int_equal(COUNT("\x00\x01"), -1);                    /* the number 0 */
    assert_int_equal(COUNT("\x80\x80\x80\x80\x20\x01"), -1);    /* above 2^29-1 */
    assert_int_equal(COUNT("\x0e"), -1);                        /* the type 6 */
    assert_int_equal(COUNT("\x0f"), -1);                        /* the type 7 */
    assert_int_equal(COUNT("\x0a\xff\xff\xff\xff\x07xxx"), -1); /* a length of 2^31-1 */
    assert_int_equal(COUNT("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), -1);     /* of 2^64-1 */
    assert_int_equal(COUNT("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), -1); /* 11 bytes */
}

static void groups_are_skipped(void **state)
{
    (void)state;
    assert_int_equal(COUNT("\x0b\x10\x05\x13\x1a\x01x\x14\x0c\x08\x01"), 1);
    assert_int_equal(COUNT("\x0b\x0c"), 0);
    assert_int_equal(COUNT("\x0b\x10\x05"), -1); /* no end */
    assert_int_equal(COUNT("\x0b\x14"), -1);     /* the end of another one */
    assert_int_equal(COUNT("\x0c"), -1);         /* an end without a beginning */
    char deep[2000];
    memset(deep, 0x0b, 1000);
    memset(deep + 1000, 0x0c, 1000);
    assert_int_equal(count_fields(deep, sizeof(deep)), -1);
    assert_int_equal(count_fields(deep + 1000 - 32, 64), 0);
}

static void varints_are_counted(void **state)
{
    (void)state;
    size_t n = 77;
    assert_true(pbwire_count_varints((struct pbwire_bytes){"\x01\x80\x01\x00", 4}, &n));
    assert_int_equal(n, 3);
    assert_true(pbwire_count_varints((struct pbwire_bytes){"", 0}, &n));
    assert_int_equal(n, 0);
    assert_false(pbwire_count_varints((struct pbwire_bytes){"\x01\x80", 2}, &n));
}

static void fields_are_written_as_they_are_read(void **state)
{
    (void)state;
    static const uint64_t values[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        char bytes[64];
        char *end = pbwire_put_number(bytes, 300, values[i]);
        assert_int_equal(end - bytes, 2 + pbwire_varint_size(values[i]));
        struct pbwire in = pbwire_of(bytes, (size_t)(end - bytes));
        struct pbwire_field f;
        assert_true(pbwire_next(&in, &f) && pbwire_is(&f, 300, PBWIRE_VARINT));
        assert_true(f.value == values[i]);
        assert_true(in.at == in.end);
    }
    char bytes[300], text[200];
    memset(text, 'x', sizeof(text));
    char *end = pbwire_put_bytes(bytes, 7, text, sizeof(text));
    assert_int_equal(end - bytes, pbwire_bytes_size(7, sizeof(text)));
    struct pbwire in = pbwire_of(bytes, (size_t)(end - bytes));
    struct pbwire_field f;
    assert_true(pbwire_next(&in, &f) && pbwire_is(&f, 7, PBWIRE_BYTES));
    assert_int_equal(f.bytes.length, sizeof(text));
    assert_memory_equal(f.bytes.at, text, sizeof(text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_of_field_is_read),
        cmocka_unit_test(no_bytes_are_a_message_without_fields),
        cmocka_unit_test(a_message_cut_anywhere_is_refused_or_has_fewer_fields),
        cmocka_unit_test(malformed_fields_are_refused),
        cmocka_unit_test(groups_are_skipped),
        cmocka_unit_test(varints_are_counted),
        cmocka_unit_test(fields_are_written_as_they_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
