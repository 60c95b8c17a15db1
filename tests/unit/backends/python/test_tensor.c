/* SPDX-License-Identifier: Apache-2.0 */
#include "common/backend.c"
#include "common/doc.c"
#include "python/channel.c"
#include "python/memory.c"
#include "python/pack.c"
#include "python/tensor.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MB (UINT64_C(1) << 20)

/* A tensor as the child sends it. */
struct from_child {
    const char *name;
    uint32_t type, rank;
    int64_t shape[4];
    uint64_t size, at, block;
};

static const struct from_child good = {"OUT", TRITONSERVER_TYPE_FP32, 2, {2, 3, 0, 0}, 24, 128, 64};

static bool read_sent(struct from_child s, struct tensor *ret_tensor)
{
    static char message[100000];
    struct packer p = {.to = message, .room = sizeof message};
    struct channel c = {0};

    assert_null(channel_open(&c, MB, MB, 4 * MB));
    assert_int_equal(ftruncate(c.up_fd, (off_t)MB), 0);
    pack_text(&p, s.name);
    pack_u32(&p, s.type);
    pack_u32(&p, s.rank);
    for (uint32_t d = 0; d < s.rank && d < 4; d++)
        pack_i64(&p, s.shape[d]);
    pack_u64(&p, s.size);
    pack_u64(&p, s.at);
    pack_u64(&p, s.block);
    struct unpacker u = {.at = message, .left = p.used};
    const bool possible = tensor_read(ret_tensor, &c, &u);
    channel_close(&c);
    return possible;
}

static void a_tensor_is_read(void **state)
{
    struct tensor t;

    (void)state;
    assert_true(read_sent(good, &t));
    assert_string_equal(t.name, "OUT");
    assert_int_equal(t.type, TRITONSERVER_TYPE_FP32);
    assert_int_equal(t.rank, 2);
    assert_int_equal(t.shape[1], 3);
    assert_int_equal(t.n_elements, 6);
    assert_int_equal(t.size_bytes, 24);
    assert_int_equal(t.block, 64);
}

static void an_empty_tensor_is_possible(void **state)
{
    struct from_child s = good;
    struct tensor t;

    (void)state;
    s.shape[0] = 0;
    s.size = 0;
    assert_true(read_sent(s, &t));
    assert_int_equal(t.n_elements, 0);
    s.rank = 0; /* a scalar */
    s.size = 4;
    assert_true(read_sent(s, &t));
    assert_int_equal(t.n_elements, 1);
}

static void impossible_tensors_are_refused(void **state)
{
    static char long_name[TENSOR_MAX_NAME + 1];
    struct from_child cases[] = {good, good, good, good, good, good, good,
                                 good, good, good, good, good, good};
    struct tensor t;
    size_t n = 0;

    (void)state;
    memset(long_name, 'n', TENSOR_MAX_NAME);
    cases[n++].name = long_name;
    cases[n++].type = TRITONSERVER_TYPE_INVALID;
    cases[n++].type = 15;
    cases[n++].type = UINT32_MAX;
    cases[n++].rank = 65;
    cases[n++].rank = UINT32_MAX;
    cases[n++].shape[0] = -1;
    cases[n].shape[0] = INT64_MAX; /* more elements than can be counted */
    cases[n++].shape[1] = INT64_MAX;
    cases[n++].size = 23;
    cases[n++].size = UINT64_MAX;
    cases[n++].at = 129;
    cases[n++].at = MB;
    cases[n].type = TRITONSERVER_TYPE_BYTES; /* no room for six lengths */
    cases[n++].size = 20;
    assert_int_equal(n, sizeof cases / sizeof cases[0]);
    for (size_t i = 0; i < n; i++) {
        if (read_sent(cases[i], &t))
            fail_msg("case %zu is possible", i);
    }
}

static void a_product_that_wraps_around_is_refused(void **state)
{
    struct from_child s = {
        "OUT", TRITONSERVER_TYPE_FP64, 2, {INT64_C(1) << 32, INT64_C(1) << 29, 0, 0}, 0, 128, 0};
    struct tensor t;

    (void)state;
    assert_false(read_sent(s, &t)); /* 2^61 elements of 8 bytes are 0 bytes in 64 bits */
}

static void a_text_is_cut_to_its_room(void **state)
{
    char message[32], text[5];
    struct packer p = {.to = message, .room = sizeof message};

    (void)state;
    pack_text(&p, "abcdefgh");
    struct unpacker u = {.at = message, .left = p.used};
    tensor_text(&u, text, sizeof text);
    assert_string_equal(text, "abcd");
    assert_int_equal(u.left, 0);
    tensor_text(&u, text, sizeof text); /* beyond the message */
    assert_string_equal(text, "");
    assert_true(u.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_is_read),
        cmocka_unit_test(an_empty_tensor_is_possible),
        cmocka_unit_test(impossible_tensors_are_refused),
        cmocka_unit_test(a_product_that_wraps_around_is_refused),
        cmocka_unit_test(a_text_is_cut_to_its_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
