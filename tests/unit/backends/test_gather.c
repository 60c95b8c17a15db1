/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fake_backend_api.h"

/* The n-th allocation from now on fails; 0: none does. */
static unsigned int refuse;

static bool refused(void)
{
    return refuse > 0 && --refuse == 0;
}

static void *try_realloc(void *memory, size_t size)
{
    return refused() ? NULL : realloc(memory, size);
}

static int try_posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    return refused() ? 12 : posix_memalign(ret_memory, alignment, size);
}

#define realloc        try_realloc
#define posix_memalign try_posix_memalign
#include "common/batch.c"
#include "common/gather.c"

#define FP32 TRITONSERVER_TYPE_FP32

static const _Alignas(64) float numbers[16] = {1, 2,  3,  4,  5,  6,  7,  8,
                                               9, 10, 11, 12, 13, 14, 15, 16};

static struct batch batch_of(TRITONBACKEND_Request *requests, uint32_t n)
{
    TRITONBACKEND_Request *list[FAKE_MOST];
    struct batch b = {0};

    for (uint32_t i = 0; i < n; i++)
        list[i] = &requests[i];
    fake_requests = requests;
    fake_n_requests = n;
    fake_n_batches = 0;
    fake_batch_size = 0;
    fake_must(batch_begin(&b, NULL, list, n, true));
    return b;
}

static void end(struct batch *b, struct gathered *g)
{
    uint32_t n = b->n_parts;

    batch_finish(b, NULL);
    batch_done(b);
    gathered_done(g);
    fake_forget(fake_requests, n);
}

static void one_buffer_is_used_without_a_copy(void **state)
{
    TRITONBACKEND_Request r[1] = {0};
    struct gathered g = {0};

    (void)state;
    fake_input(&r[0], "IN", FP32, numbers, 16, 2, 2, 2);
    struct batch b = batch_of(r, 1);
    fake_must(gather(&g, &b, "IN", FP32, 0));
    assert_ptr_equal(g.data, numbers);
    assert_false(g.copied);
    assert_int_equal(g.size, 16);
    assert_int_equal(g.rank, 2);
    assert_int_equal(g.shape[0], 2);
    end(&b, &g);
}

static void adjacent_buffers_are_not_copied(void **state)
{
    TRITONBACKEND_Request r[3] = {0};
    struct gathered g = {0};
    TRITONBACKEND_Input *in;

    (void)state;
    in = fake_input(&r[0], "IN", FP32, numbers, 8, 2, 2, 2);
    in->n_buffers = 3; /* the second buffer is empty, and lies elsewhere */
    in->buffers[1] = &g;
    in->buffers[2] = numbers + 2;
    in->sizes[2] = 8;
    fake_input(&r[1], "IN", FP32, numbers + 4, 8, 2, 1, 2);
    fake_input(&r[2], "IN", FP32, numbers + 6, 24, 2, 3, 2);
    struct batch b = batch_of(r, 3);
    fake_must(gather(&g, &b, "IN", FP32, 0));
    assert_ptr_equal(g.data, numbers);
    assert_int_equal(g.size, 48);
    assert_int_equal(g.shape[0], 6);
    assert_int_equal(b.rows, 6);
    end(&b, &g);
    assert_int_equal(fake_batch_size, 6);
    assert_int_equal(fake_n_batches, 1);
}

static void separate_buffers_are_copied_once_and_aligned(void **state)
{
    TRITONBACKEND_Request r[2] = {0};
    struct gathered g = {0};

    (void)state;
    fake_input(&r[0], "IN", FP32, numbers + 4, 8, 2, 1, 2);
    fake_input(&r[1], "IN", FP32, numbers, 16, 2, 2, 2);
    for (int round = 0; round < 2; round++) {
        struct batch b = batch_of(r, 2);
        const void *before = g.scratch;

        fake_must(gather(&g, &b, "IN", FP32, 0));
        assert_true(g.copied);
        assert_int_equal((uintptr_t)g.data % 64, 0);
        assert_memory_equal(g.data, ((float[]){5, 6, 1, 2, 3, 4}), 24);
        if (round)
            assert_ptr_equal(g.scratch, before); /* its memory is reused */
        batch_finish(&b, NULL);
        batch_done(&b);
        fake_forget(r, 2);
        r[0].n_sent = r[1].n_sent = 0;
    }
    gathered_done(&g);
}

static void an_unaligned_buffer_is_copied(void **state)
{
    _Alignas(64) char odd[1 + sizeof(float)];
    TRITONBACKEND_Request r[1] = {0};
    struct gathered g = {0};

    (void)state;
    memcpy(odd + 1, numbers, sizeof(float));
    fake_input(&r[0], "IN", FP32, odd + 1, sizeof(float), 2, 1, 1);
    struct batch b = batch_of(r, 1);
    fake_must(gather(&g, &b, "IN", TRITONSERVER_TYPE_INVALID, 0));
    assert_true(g.copied);
    assert_int_equal(g.type, FP32);
    assert_float_equal(*(const float *)g.data, 1, 0);
    end(&b, &g);
}

static void ragged_inputs_become_one_list(void **state)
{
    TRITONBACKEND_Request r[3] = {0};
    struct gathered g = {0};

    (void)state;
    fake_input(&r[0], "IN", FP32, numbers, 12, 2, 1, 3);
    fake_input(&r[1], "IN", FP32, numbers + 3, 0, 3, 1, 0, 5);
    fake_input(&r[2], "IN", FP32, numbers + 8, 16, 2, 2, 2);
    struct batch b = batch_of(r, 3);
    fake_must(gather(&g, &b, "IN", FP32, GATHER_RAGGED));
    assert_int_equal(g.rank, 1);
    assert_int_equal(g.shape[0], 7);
    assert_memory_equal(g.data, ((float[]){1, 2, 3, 9, 10, 11, 12}), 28);
    end(&b, &g);
}

static void an_empty_tensor_is_gathered(void **state)
{
    TRITONBACKEND_Request r[1] = {0};
    struct gathered g = {0};

    (void)state;
    fake_input(&r[0], "IN", FP32, NULL, 0, 2, 1, 0)->n_buffers = 0;
    struct batch b = batch_of(r, 1);
    fake_must(gather(&g, &b, "IN", FP32, 0));
    assert_true(g.present);
    assert_non_null(g.data);
    assert_int_equal(g.size, 0);
    end(&b, &g);
}

static void an_optional_input_is_in_all_requests_or_in_none(void **state)
{
    TRITONBACKEND_Request r[2] = {0};
    struct gathered g = {0};

    (void)state;
    fake_input(&r[0], "IN", FP32, numbers, 4, 2, 1, 1);
    fake_input(&r[1], "IN", FP32, numbers, 4, 2, 1, 1);
    fake_input(&r[1], "MORE", FP32, numbers, 4, 2, 1, 1);
    struct batch b = batch_of(r, 2);
    fake_must(gather(&g, &b, "LESS", FP32, GATHER_OPTIONAL));
    assert_false(g.present);
    fake_expect(gather(&g, &b, "MORE", FP32, GATHER_OPTIONAL),
                "input 'MORE' is in 1 of the 2 requests of a batch");
    fake_must(gather(&g, &b, "IN", FP32, GATHER_OPTIONAL));
    assert_true(g.present);
    fake_expect(
        gather(&g, &b, "LESS", FP32, 0),
        "there is no LESS; the model needs this input, though it is optional in the configuration");
    end(&b, &g);
}

static void inputs_that_do_not_fit_together_are_refused(void **state)
{
    TRITONBACKEND_Request r[2] = {0};
    struct gathered g = {0};

    (void)state;
    fake_input(&r[0], "SHAPE", FP32, numbers, 8, 2, 1, 2);
    fake_input(&r[0], "TYPE", FP32, numbers, 4, 2, 1, 1);
    fake_input(&r[0], "HUGE", FP32, numbers, 4, 2, 1, 1)->shape[0] = INT64_MAX;
    fake_input(&r[1], "SHAPE", FP32, numbers, 12, 2, 1, 3);
    fake_input(&r[1], "TYPE", TRITONSERVER_TYPE_INT32, numbers, 4, 2, 1, 1);
    fake_input(&r[1], "HUGE", FP32, numbers, 4, 2, 1, 1)->sizes[0] = UINT64_MAX;
    struct batch b = batch_of(r, 2);
    fake_expect(gather(&g, &b, "SHAPE", FP32, 0),
                "input 'SHAPE' differs in shape between the requests of a batch");
    fake_expect(gather(&g, &b, "TYPE", TRITONSERVER_TYPE_INVALID, 0),
                "input 'TYPE' has type INT32, FP32 is expected");
    fake_expect(gather(&g, &b, "HUGE", FP32, 0),
                "input 'HUGE' differs in shape between the requests of a batch");
    fake_expect(gather(&g, &b, "HUGE", FP32, GATHER_RAGGED), "a batch has too many elements");
    r[0].inputs[2].shape[0] = 1;
    fake_expect(gather(&g, &b, "HUGE", FP32, 0), "input 'HUGE' is too large");
    r[1].inputs[2].sizes[0] = UINT64_MAX - 4;
    fake_expect(gather(&g, &b, "HUGE", FP32, 0), "out of memory for 18446744073709551615 bytes");
    r[0].inputs[0].memory = TRITONSERVER_MEMORY_GPU;
    r[1].inputs[0].shape[1] = 2;
    fake_expect(gather(&g, &b, "SHAPE", FP32, 0), "input data in GPU memory is not supported");
    end(&b, &g);
}

static void lack_of_memory_is_an_error_of_the_batch(void **state)
{
    TRITONBACKEND_Request r[2] = {0}, *list[] = {&r[0], &r[1]};
    struct gathered g = {0};
    struct batch none = {0};

    (void)state;
    fake_input(&r[0], "IN", FP32, numbers + 4, 8, 2, 1, 2);
    fake_input(&r[1], "IN", FP32, numbers, 8, 2, 1, 2);
    refuse = 1;
    fake_expect(batch_begin(&none, NULL, list, 2, true), "out of memory for a batch of 2 requests");
    assert_int_equal(r[0].n_responses, 0); /* the server still owns the requests */
    struct batch b = batch_of(r, 2);
    refuse = 1;
    fake_expect(gather(&g, &b, "IN", FP32, 0), "out of memory for 16 bytes");
    fake_must(gather(&g, &b, "IN", FP32, 0)); /* and the next call gets memory again */
    assert_memory_equal(g.data, ((float[]){5, 6, 1, 2}), 16);
    end(&b, &g);
}

/* ---- Batches -------------------------------------------------------------------------------- */

static void a_request_that_failed_is_skipped(void **state)
{
    TRITONBACKEND_Request r[3] = {0};
    struct gathered g = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        fake_input(&r[i], "IN", FP32, numbers + 4 * i, 16, 2, 2, 2);
    r[1].cancelled = true;
    struct batch b = batch_of(r, 3);
    batch_drop_cancelled(&b);
    assert_int_equal(b.rows, 4);
    fake_must(gather(&g, &b, "IN", FP32, 0));
    assert_memory_equal(g.data, ((float[]){1, 2, 3, 4, 9, 10, 11, 12}), 32);
    batch_fail(&b, &b.parts[1], backend_error(TRITONSERVER_ERROR_INTERNAL, "the second error"));
    batch_computes(&b);
    batch_computed(&b);
    end(&b, &g);
    assert_string_equal(r[1].error, "cancelled while it was executed");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r[i].n_sent, 1);
        assert_int_equal(r[i].n_released, 1);
        assert_int_equal(r[i].n_reported, 1);
        assert_int_equal(r[i].n_succeeded, i != 1);
    }
    assert_int_equal(fake_batch_size, 6);
}

static void a_batch_error_answers_all_its_requests(void **state)
{
    TRITONBACKEND_Request r[2] = {0};

    (void)state;
    fake_input(&r[0], "IN", FP32, numbers, 8, 2, 1, 2);
    fake_input(&r[1], "IN", FP32, numbers, 8, 1, 2)->rank = 0;
    struct batch b = batch_of(r, 2);
    assert_false(batch_empty(&b));
    batch_finish(&b, backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no"));
    batch_done(&b);
    fake_forget(r, 2);
    assert_string_equal(r[0].error, "no");
    assert_string_equal(r[1].error, "an input has no batch dimension");
    assert_int_equal(r[0].n_succeeded + r[1].n_succeeded, 0);
}

static void requests_of_a_batch_may_be_gathered_one_by_one(void **state)
{
    TRITONBACKEND_Request r[2] = {0};
    struct gathered g = {0};

    (void)state;
    fake_input(&r[0], "IN", FP32, numbers, 8, 2, 1, 2);
    fake_input(&r[1], "IN", FP32, numbers, 16, 2, 2, 2);
    struct batch b = batch_of(r, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct batch one;

        batch_single(&b, i, &one);
        fake_must(gather(&g, &one, "IN", FP32, 0));
        assert_int_equal(g.shape[0], i + 1);
        batch_finish(&one, NULL);
        assert_int_equal(r[i].n_responses, 2);
    }
    assert_int_equal(fake_n_batches, 2);
    assert_int_equal(fake_batch_size, 3);
    batch_done(&b);
    gathered_done(&g);
    fake_forget(r, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_buffer_is_used_without_a_copy),
        cmocka_unit_test(adjacent_buffers_are_not_copied),
        cmocka_unit_test(separate_buffers_are_copied_once_and_aligned),
        cmocka_unit_test(an_unaligned_buffer_is_copied),
        cmocka_unit_test(ragged_inputs_become_one_list),
        cmocka_unit_test(an_empty_tensor_is_gathered),
        cmocka_unit_test(an_optional_input_is_in_all_requests_or_in_none),
        cmocka_unit_test(inputs_that_do_not_fit_together_are_refused),
        cmocka_unit_test(lack_of_memory_is_an_error_of_the_batch),
        cmocka_unit_test(a_request_that_failed_is_skipped),
        cmocka_unit_test(a_batch_error_answers_all_its_requests),
        cmocka_unit_test(requests_of_a_batch_may_be_gathered_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
