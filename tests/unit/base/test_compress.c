/* SPDX-License-Identifier: Apache-2.0 */
#include "base/compress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/pool.h"
#include "base/status.h"

/* gzip and zlib streams of "hello hello hello hello", made by Python's modules. */
static const char hello[] = "hello hello hello hello";
static const unsigned char hello_gzip[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xcb, 0x48, 0xcd, 0xc9,
    0xc9, 0x57, 0xc8, 0x40, 0x27, 0x01, 0xe3, 0x51, 0x3d, 0x8d, 0x17, 0x00, 0x00, 0x00};
static const unsigned char hello_zlib[] = {0x78, 0x9c, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57,
                                           0xc8, 0x40, 0x27, 0x01, 0x68, 0x03, 0x08, 0xb1};

static struct pool *pool;
static struct compress *c;

static int start(void **state)
{
    (void)state;
    pool = pool_new("test", 1 << 20, 256 << 20);
    c = compress_new();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    struct pool_stats stats;
    pool_stats(pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
    compress_free(c);
    compress_free(NULL);
    pool_free(pool);
    return 0;
}

static void expect_error(struct status *st, enum status_code code, const char *text)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

static struct status *unpack(enum compress_format format, const void *bytes, size_t n, size_t max,
                             char **ret_block, size_t *ret_bytes)
{
    char *copy = malloc(n + !n); /* an exact copy, so that a read beyond its end is seen */
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    struct compress_target target = {.pool = pool, .max_bytes = max};
    struct status *st = compress_unpack(c, format, copy, n, &target, ret_block, ret_bytes);
    free(copy);
    return st;
}

static void streams_of_python_are_unpacked(void **state)
{
    (void)state;
    char *block;
    size_t n;
    for (int i = 0; i < 3; i++) {
        assert_null(unpack(COMPRESS_GZIP, hello_gzip, sizeof(hello_gzip), 1000, &block, &n));
        assert_int_equal(n, sizeof(hello) - 1);
        assert_memory_equal(block, hello, n);
        pool_release(block);
        assert_null(unpack(COMPRESS_ZLIB, hello_zlib, sizeof(hello_zlib), 23, &block, &n));
        assert_int_equal(n, sizeof(hello) - 1);
        assert_memory_equal(block, hello, n);
        pool_release(block);
    }
}

static void damaged_cut_and_too_long_streams_are_refused(void **state)
{
    (void)state;
    char *block, bytes[64];
    size_t n;
    for (size_t i = 0; i < sizeof(hello_gzip); i++)
        expect_error(unpack(COMPRESS_GZIP, hello_gzip, i, 1000, &block, &n), STATUS_INVALID_ARG,
                     (snprintf(bytes, sizeof(bytes), "%zu bytes are not valid gzip", i), bytes));
    memcpy(bytes, hello_gzip, sizeof(hello_gzip));
    bytes[12] ^= 1;
    expect_error(unpack(COMPRESS_GZIP, bytes, sizeof(hello_gzip), 1000, &block, &n),
                 STATUS_INVALID_ARG, "28 bytes are not valid gzip");
    memcpy(bytes, hello_zlib, sizeof(hello_zlib));
    expect_error(unpack(COMPRESS_ZLIB, bytes, sizeof(hello_zlib) + 1, 1000, &block, &n),
                 STATUS_INVALID_ARG, "17 bytes are not valid deflate");
    expect_error(unpack(COMPRESS_ZLIB, hello_gzip, sizeof(hello_gzip), 1000, &block, &n),
                 STATUS_INVALID_ARG, "28 bytes are not valid deflate");
    expect_error(unpack(COMPRESS_GZIP, hello_gzip, sizeof(hello_gzip), 22, &block, &n),
                 STATUS_UNSUPPORTED, "28 bytes unpack to more than 22 bytes");
    expect_error(unpack(COMPRESS_ZLIB, hello_zlib, sizeof(hello_zlib), 22, &block, &n),
                 STATUS_UNSUPPORTED, "16 bytes unpack to more than 22 bytes");
}

/* Pieces of varying content, so that they pack to some extent. */
static void packed_messages_are_unpacked(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100, 5000, 3 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        for (int format = COMPRESS_ZLIB; format <= COMPRESS_GZIP; format++) {
            size_t n = sizes[i], n_packed, n_unpacked;
            char *bytes = malloc(n + 1), *packed, *unpacked;
            assert_non_null(bytes);
            for (size_t k = 0; k < n; k++)
                bytes[k] = (char)(k * k / 1000);
            struct iovec one = {bytes, n},
                         three[] = {{bytes, n / 3}, {bytes, 0}, {bytes + n / 3, n - n / 3}};
            for (int pieces = 1; pieces <= 3; pieces += 2) {
                assert_null(compress_pack(c, (enum compress_format)format,
                                          pieces == 1 ? &one : three, (size_t)pieces, pool, NULL,
                                          &packed, &n_packed));
                assert_null(unpack((enum compress_format)format, packed, n_packed, n, &unpacked,
                                   &n_unpacked));
                assert_int_equal(n_unpacked, n);
                assert_memory_equal(unpacked, bytes, n);
                pool_release(packed);
                pool_release(unpacked);
            }
            free(bytes);
        }
    }
}

/* A reply with one large tensor: its bytes are not copied, so that they need no second block. */
static void a_short_head_is_stored_in_front_of_a_large_piece(void **state)
{
    (void)state;
    enum { BULK = 100000 };
    static const size_t head_bytes[] = {1, 200, 4096};
    char *bytes = malloc(4096 + BULK), *packed, *unpacked;
    size_t n_packed, n_unpacked;
    assert_non_null(bytes);
    for (size_t k = 0; k < 4096 + BULK; k++)
        bytes[k] = (char)(k * k / 1000);
    for (int format = COMPRESS_ZLIB; format <= COMPRESS_GZIP; format++) {
        for (size_t i = 0; i < ARRAY_SIZE(head_bytes); i++) {
            size_t head = head_bytes[i], total = head + BULK;
            struct iovec pieces[] = {{bytes, head / 2},
                                     {NULL, 0},
                                     {bytes + head / 2, head - head / 2},
                                     {bytes + head, BULK}};
            /* Room for the packed bytes and hardly more: joined ones would not fit. */
            struct pool *narrow = pool_new("narrow", 0, BULK + BULK / 2);
            assert_null(compress_pack(c, (enum compress_format)format, pieces, ARRAY_SIZE(pieces),
                                      narrow, NULL, &packed, &n_packed));
            assert_in_range(n_packed, head, total - BULK / 4);
            assert_null(unpack((enum compress_format)format, packed, n_packed, total, &unpacked,
                               &n_unpacked));
            assert_int_equal(n_unpacked, total);
            assert_memory_equal(unpacked, bytes, total);
            pool_release(unpacked);
            /* its sum covers the head, too */
            packed[format == COMPRESS_GZIP ? 15 : 7] ^= 1;
            struct status *st = unpack((enum compress_format)format, packed, n_packed, total,
                                       &unpacked, &n_unpacked);
            assert_non_null(st);
            assert_int_equal(status_code(st), STATUS_INVALID_ARG);
            status_free(st);
            pool_release(packed);
            pool_free(narrow);
        }
    }
    free(bytes);
}

/* 64 MiB of zeros pack to 64 KiB. */
static void a_bomb_takes_at_most_the_maximum(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20, MAX = 1 << 20 };
    char *zeros = calloc(1, BYTES), *packed, *block, text[64];
    size_t n_packed, n;
    assert_non_null(zeros);
    struct iovec piece = {zeros, BYTES};
    assert_null(compress_pack(c, COMPRESS_GZIP, &piece, 1, pool, NULL, &packed, &n_packed));
    free(zeros);
    struct pool *small = pool_new("small", 0, 2 * MAX);
    snprintf(text, sizeof(text), "%zu bytes unpack to more than %d bytes", n_packed, MAX);
    struct compress_target target = {.pool = small, .max_bytes = MAX};
    expect_error(compress_unpack(c, COMPRESS_GZIP, packed, n_packed, &target, &block, &n),
                 STATUS_UNSUPPORTED, text);
    /* the last packed bytes promise a wrong size */
    memset(packed + n_packed - 4, 0, 4);
    struct status *st = compress_unpack(c, COMPRESS_GZIP, packed, n_packed, &target, &block, &n);
    expect_error(st, STATUS_UNSUPPORTED, text);
    /* more than the pool has is a lack of memory */
    target.max_bytes = BYTES;
    st = compress_unpack(c, COMPRESS_GZIP, packed, n_packed, &target, &block, &n);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_free(st);
    pool_release(packed);
    pool_free(small);
}

/* A body of HTTP: its first bytes say what it is, and gzip may have several members. */
static void the_format_is_detected_and_members_are_joined(void **state)
{
    (void)state;
    char *block, bytes[3 * sizeof(hello_gzip)], text[64];
    size_t n, length = sizeof(hello_gzip);
    assert_null(unpack(COMPRESS_DETECT, hello_zlib, sizeof(hello_zlib), 23, &block, &n));
    assert_int_equal(n, sizeof(hello) - 1);
    pool_release(block);
    for (size_t i = 1; i <= 3; i++) {
        memcpy(bytes + (i - 1) * length, hello_gzip, length);
        assert_null(unpack(COMPRESS_DETECT, bytes, i * length, 23 * i, &block, &n));
        assert_int_equal(n, 23 * i);
        assert_memory_equal(block + 23 * (i - 1), hello, 23);
        pool_release(block);
        snprintf(text, sizeof(text), "%zu bytes unpack to more than %zu bytes", i * length,
                 23 * i - 1);
        expect_error(unpack(COMPRESS_DETECT, bytes, i * length, 23 * i - 1, &block, &n),
                     STATUS_UNSUPPORTED, text);
    }
    /* rubbish behind a member, a cut second one, and what is neither */
    bytes[2 * length] = 'x';
    expect_error(unpack(COMPRESS_DETECT, bytes, 2 * length + 1, 1000, &block, &n),
                 STATUS_INVALID_ARG, "57 bytes are not valid gzip");
    expect_error(unpack(COMPRESS_DETECT, bytes, 2 * length - 1, 1000, &block, &n),
                 STATUS_INVALID_ARG, "55 bytes are not valid gzip");
    expect_error(unpack(COMPRESS_DETECT, "{}", 2, 1000, &block, &n), STATUS_INVALID_ARG,
                 "2 bytes are not valid deflate");
    expect_error(unpack(COMPRESS_GZIP, bytes, 2 * length, 1000, &block, &n), STATUS_INVALID_ARG,
                 "56 bytes are not valid gzip"); /* a message of gRPC has one member */
}

static void bytes_in_front_stay_free(void **state)
{
    (void)state;
    struct compress_target target = {.pool = pool, .lead_bytes = 40, .max_bytes = 23};
    char *block;
    size_t n;
    assert_null(
        compress_unpack(c, COMPRESS_GZIP, hello_gzip, sizeof(hello_gzip), &target, &block, &n));
    assert_int_equal(n, 23);
    assert_memory_equal(block + 40, hello, 23);
    pool_release(block);
}

/* A promise costs memory only as far as the packed bytes make it likely. */
static void a_promise_alone_takes_no_memory(void **state)
{
    (void)state;
    enum { PACKED = 64 << 10 };
    struct pool *small = pool_new("small", 0, (size_t)PACKED * 16 + (64 << 10));
    char *bytes = calloc(1, PACKED), *block;
    size_t n;
    assert_non_null(bytes);
    memcpy(bytes, hello_gzip, 10); /* a head; then a block that is no deflate */
    bytes[10] = 7;
    memcpy(bytes + PACKED - 4, "\0\0\0\x03", 4); /* 48 MiB */
    struct compress_target target = {.pool = small, .max_bytes = 64 << 20};
    expect_error(compress_unpack(c, COMPRESS_GZIP, bytes, PACKED, &target, &block, &n),
                 STATUS_INVALID_ARG, "65536 bytes are not valid gzip");
    free(bytes);
    pool_free(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_of_python_are_unpacked),
        cmocka_unit_test(damaged_cut_and_too_long_streams_are_refused),
        cmocka_unit_test(packed_messages_are_unpacked),
        cmocka_unit_test(a_short_head_is_stored_in_front_of_a_large_piece),
        cmocka_unit_test(a_bomb_takes_at_most_the_maximum),
        cmocka_unit_test(the_format_is_detected_and_members_are_joined),
        cmocka_unit_test(bytes_in_front_stay_free),
        cmocka_unit_test(a_promise_alone_takes_no_memory),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
