/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fake_backend_api.h"

#include "common/batch.c"
#include "common/bytes.c"
#include "common/gather.c"
#include "common/scatter.c"

#define INT32 TRITONSERVER_TYPE_INT32

static const int32_t numbers[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

/* Makes a batch of requests with these numbers of rows, each of which requests OUT. */
static struct batch begin(TRITONBACKEND_Request *requests, const int *rows, uint32_t n)
{
    TRITONBACKEND_Request *list[FAKE_MOST];
    struct batch b = {0};

    for (uint32_t i = 0; i < n; i++) {
        fake_input(&requests[i], "IN", INT32, numbers, (uint64_t)rows[i] * 8, 2, rows[i], 2);
        requests[i].wanted[0] = "OUT";
        requests[i].n_wanted = 1;
        list[i] = &requests[i];
    }
    fake_requests = requests;
    fake_n_requests = n;
    fake_must(batch_begin(&b, NULL, list, n, true));
    return b;
}

static void end(struct batch *b)
{
    batch_finish(b, NULL);
    batch_done(b);
}

static void the_output_of_one_request_is_computed_in_place(void **state)
{
    TRITONBACKEND_Request r[1] = {0};
    struct scattered s = {0};

    (void)state;
    struct batch b = begin(r, (int[]){2}, 1);
    fake_must(scatter_begin(&s, &b, "OUT", 0, INT32, (int64_t[]){2, 3}, 2));
    assert_true(s.in_place);
    assert_int_equal(s.size, 24);
    memcpy(s.data, numbers, s.size);
    fake_must(scatter_end(&s, &b));
    end(&b);
    assert_int_equal(r[0].sent.n_outputs, 1);
    assert_ptr_equal(r[0].sent.outputs[0].data, s.data);
    assert_memory_equal(r[0].sent.outputs[0].data, numbers, 24);
    scattered_done(&s);
    fake_forget(r, 1);
}

static void an_unaligned_output_is_not_computed_in_place(void **state)
{
    TRITONBACKEND_Request r[1] = {0};
    struct scattered s = {0};

    (void)state;
    fake_offset = 3;
    struct batch b = begin(r, (int[]){1}, 1);
    fake_must(scatter_begin(&s, &b, "OUT", 0, INT32, (int64_t[]){1, 3}, 2));
    assert_false(s.in_place);
    assert_int_equal((uintptr_t)s.data % 64, 0);
    memcpy(s.data, numbers, s.size);
    fake_must(scatter_end(&s, &b));
    end(&b);
    fake_offset = 0;
    assert_memory_equal(r[0].sent.outputs[0].data, numbers, 12);
    scattered_done(&s);
    fake_forget(r, 1);
}

static void each_request_gets_its_rows_if_requested(void **state)
{
    TRITONBACKEND_Request r[4] = {0};
    struct scattered s = {0};

    (void)state;
    struct batch b = begin(r, (int[]){1, 2, 1, 3}, 4);
    r[1].wanted[0] = "OTHER";
    r[3].wanted[0] = "OTHER";
    r[3].wanted[1] = "OUT";
    r[3].n_wanted = 2;
    batch_fail(&b, &b.parts[2], backend_error(TRITONSERVER_ERROR_INTERNAL, "no"));
    fake_must(scatter_begin(&s, &b, "OUT", 0, INT32, (int64_t[]){6, 2}, 2));
    assert_false(s.in_place);
    memcpy(s.data, numbers, s.size);
    fake_must(scatter_end(&s, &b));
    end(&b);
    assert_int_equal(r[0].sent.outputs[0].shape[0], 1);
    assert_memory_equal(r[0].sent.outputs[0].data, ((int32_t[]){1, 2}), 8);
    assert_int_equal(r[1].sent.n_outputs, 0);
    assert_int_equal(r[2].sent.n_outputs, 0);
    assert_int_equal(r[3].sent.outputs[0].shape[0], 3);
    assert_int_equal(r[3].sent.outputs[0].shape[1], 2);
    assert_memory_equal(r[3].sent.outputs[0].data, ((int32_t[]){7, 8, 9, 10, 11, 12}), 24);
    scattered_done(&s);
    fake_forget(r, 4);
}

static void strings_are_split_by_requests(void **state)
{
    static const char texts[] = "\3\0\0\0abc"
                                "\0\0\0\0"
                                "\1\0\0\0d"
                                "\2\0\0\0ef";
    TRITONBACKEND_Request r[2] = {0};

    (void)state;
    struct batch b = begin(r, (int[]){1, 3}, 2);
    fake_must(scatter_rows(&b, "OUT", 0, TRITONSERVER_TYPE_BYTES, (int64_t[]){4}, 1, texts,
                           sizeof(texts) - 1));
    end(&b);
    assert_int_equal(r[0].sent.outputs[0].size, 7);
    assert_memory_equal(r[0].sent.outputs[0].data, texts, 7);
    assert_int_equal(r[1].sent.outputs[0].size, 4 + 5 + 6);
    assert_memory_equal(r[1].sent.outputs[0].data, texts + 7, 15);
    fake_forget(r, 2);
}

static void an_output_may_have_the_shape_of_its_input(void **state)
{
    TRITONBACKEND_Request r[2] = {0};

    (void)state;
    struct batch b = begin(r, (int[]){1, 3}, 2);
    fake_must(scatter_like_input(&b, "OUT", 0, INT32, "IN", numbers, 32));
    fake_expect(scatter_like_input(&b, "OTHER", 0, INT32, "IN", numbers, 28),
                "output 'OTHER': 28 bytes are not what its shape asks for");
    fake_expect(scatter_like_input(&b, "OTHER", 0, INT32, "IN", numbers, 36),
                "output 'OTHER': 36 bytes are not what its shape asks for");
    end(&b);
    assert_int_equal(r[1].sent.outputs[0].shape[0], 3);
    assert_memory_equal(r[1].sent.outputs[0].data, numbers + 2, 24);
    fake_forget(r, 2);
}

static void outputs_that_do_not_fit_are_refused(void **state)
{
    TRITONBACKEND_Request r[2] = {0};
    struct scattered s = {0};
    int64_t rows3[] = {3, 2}, rows2[] = {2, 2}, huge[] = {2, INT64_MAX}, below[] = {2, -1};

    (void)state;
    struct batch b = begin(r, (int[]){1, 1}, 2);
    fake_expect(scatter_begin(&s, &b, "OUT", 0, INT32, rows3, 2),
                "output 'OUT' has 3 rows for a batch of 2");
    fake_expect(scatter_rows(&b, "OUT", 0, INT32, rows3, 0, numbers, 24),
                "output 'OUT' has 0 rows for a batch of 2");
    fake_expect(scatter_begin(&s, &b, "OUT", 0, TRITONSERVER_TYPE_BYTES, rows2, 2),
                "output 'OUT': elements of type BYTES have no size of their own");
    fake_expect(scatter_begin(&s, &b, "OUT", 0, INT32, huge, 2),
                "a shape has a dimension below 0, or more elements than can be counted");
    fake_expect(scatter_begin(&s, &b, "OUT", 0, INT32, below, 2),
                "a shape has a dimension below 0, or more elements than can be counted");
    fake_expect(scatter_begin(&s, &b, "OUT", 0, INT32, huge, 65),
                "output 'OUT' has 65 dimensions, more than 64");
    huge[1] = INT64_MAX / 2;
    fake_expect(scatter_begin(&s, &b, "OUT", 0, INT32, huge, 2), "output 'OUT' is too large");
    fake_expect(scatter_rows(&b, "OTHER", 0, INT32, rows2, 2, numbers, 12),
                "output 'OTHER': 4 bytes are not what its shape asks for");
    fake_expect(scatter_rows(&b, "OTHER", 0, INT32, rows2, 2, numbers, 20),
                "output 'OTHER': 20 bytes are not what its shape asks for");
    end(&b);
    scattered_done(&s);
    fake_forget(r, 2);
}

/* ---- Elements of BYTES ---------------------------------------------------------------------- */

static void elements_are_read_as_they_were_written(void **state)
{
    char memory[32], *at = memory;
    const char *data;
    uint32_t len;

    (void)state;
    at = bytes_put(at, "one", 3);
    at = bytes_put(at, NULL, 0);
    at = bytes_put(at, "x\0y", 3);
    assert_int_equal(at - memory, bytes_size(3) + bytes_size(0) + bytes_size(3));
    struct bytes_reader r = bytes_begin(memory, (uint64_t)(at - memory));
    fake_must(bytes_next(&r, "IN", &data, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(data, "one", 3);
    fake_must(bytes_next(&r, "IN", &data, &len));
    assert_int_equal(len, 0);
    fake_must(bytes_next(&r, "IN", &data, &len));
    assert_memory_equal(data, "x\0y", 3);
    fake_must(bytes_check("IN", memory, (uint64_t)(at - memory), 3));
}

static void malformed_elements_are_refused(void **state)
{
    (void)state;
    fake_expect(bytes_check("IN", "\1\0\0", 3, 1),
                "tensor 'IN': the length of element 0 is cut off, 3 bytes are left");
    fake_expect(bytes_check("IN", "\1\0\0\0a\2\0\0\0b", 10, 2),
                "tensor 'IN': element 1 says that it has 2 bytes, 1 are left");
    fake_expect(bytes_check("IN", "\377\377\377\377abcd", 8, 1),
                "tensor 'IN': element 0 says that it has 4294967295 bytes, 4 are left");
    fake_expect(bytes_check("IN", "\1\0\0\0a", 5, 2),
                "tensor 'IN': the length of element 1 is cut off, 0 bytes are left");
    fake_expect(bytes_check("IN", "\1\0\0\0a\0", 6, 1),
                "tensor 'IN': 1 bytes follow its 1 elements");
    fake_must(bytes_check("IN", NULL, 0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_output_of_one_request_is_computed_in_place),
        cmocka_unit_test(an_unaligned_output_is_not_computed_in_place),
        cmocka_unit_test(each_request_gets_its_rows_if_requested),
        cmocka_unit_test(strings_are_split_by_requests),
        cmocka_unit_test(an_output_may_have_the_shape_of_its_input),
        cmocka_unit_test(outputs_that_do_not_fit_are_refused),
        cmocka_unit_test(elements_are_read_as_they_were_written),
        cmocka_unit_test(malformed_elements_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
