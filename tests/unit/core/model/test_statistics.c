/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/model_statistics.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib/fake_model.h"
#include "lib/fault.h"

static const char config[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

static void batch_sizes_are_kept_in_order(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {4, 1, 9, 4, UINT64_MAX, 0, 2, 1};
    static const uint64_t expected[] = {0, 1, 2, 4, 9, UINT64_MAX};
    struct statistics s = {0};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        statistics_batch(&s, sizes[i])->count++;
    assert_int_equal(s.n_batches, ARRAY_SIZE(expected));
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
        assert_true(s.batches[i].batch_size == expected[i]);
    assert_int_equal(s.batches[1].count, 2);
    assert_int_equal(s.batches[2].count, 1);
    assert_int_equal(s.batches[3].count, 2);
    statistics_done(&s);
    assert_null(s.batches);
}

/* Clients choose the batch sizes, which must not fill the memory. */
static void batch_sizes_have_a_limit(void **state)
{
    (void)state;
    struct statistics s = {0}, sum = {0};
    for (uint64_t size = 1; size <= MAX_BATCH_SIZES; size++)
        statistics_batch(&s, size)->count++;
    assert_null(statistics_batch(&s, MAX_BATCH_SIZES + 1));
    assert_non_null(statistics_batch(&s, MAX_BATCH_SIZES));
    assert_int_equal(s.n_batches, MAX_BATCH_SIZES);

    statistics_batch(&sum, MAX_BATCH_SIZES + 7)->count++;
    assert_null(statistics_add(&sum, &s)); /* no room for the last size: no error */
    assert_int_equal(sum.n_batches, MAX_BATCH_SIZES);
    assert_int_equal(sum.batches[MAX_BATCH_SIZES - 1].batch_size, MAX_BATCH_SIZES + 7);
    statistics_done(&s);
    statistics_done(&sum);
}

static void statistics_are_added_up(void **state)
{
    (void)state;
    struct statistics a = {.success = {1, 10},
                           .fail = {2, 20},
                           .failures = {[FAILURE_CANCELED] = 2},
                           .queue_ns = 3,
                           .compute_input_ns = 4,
                           .compute_infer_ns = 5,
                           .compute_output_ns = 6,
                           .inference_count = 7,
                           .execution_count = 8,
                           .last_inference_ms = 1000};
    struct statistics b = {.last_inference_ms = 999}, sum = {0};
    *statistics_batch(&a, 2) = (struct batch_stats){2, 1, 2, 3, 4};
    *statistics_batch(&b, 1) = (struct batch_stats){1, 1, 1, 1, 1};
    *statistics_batch(&b, 2) = (struct batch_stats){2, 10, 20, 30, 40};
    *statistics_response(&a, 3) = (struct response_stats){.success = {1, 2}, .cancel = {3, 4}};
    *statistics_response(&b, 0) = (struct response_stats){.fail = {5, 6}};
    *statistics_response(&b, 3) = (struct response_stats){.success = {10, 20},
                                                          .compute_infer = {1, 7},
                                                          .compute_output = {1, 8},
                                                          .empty_response = {1, 9}};
    assert_null(statistics_add(&sum, &a));
    assert_null(statistics_add(&sum, &b));
    assert_null(statistics_add(&sum, &a));

    assert_int_equal(sum.success.count, 2);
    assert_int_equal(sum.success.ns, 20);
    assert_int_equal(sum.fail.count, 4);
    assert_int_equal(sum.fail.ns, 40);
    assert_int_equal(sum.failures[FAILURE_CANCELED], 4);
    assert_int_equal(sum.queue_ns, 6);
    assert_int_equal(sum.compute_input_ns, 8);
    assert_int_equal(sum.compute_infer_ns, 10);
    assert_int_equal(sum.compute_output_ns, 12);
    assert_int_equal(sum.inference_count, 14);
    assert_int_equal(sum.execution_count, 16);
    assert_int_equal(sum.last_inference_ms, 1000); /* the latest time of all */
    assert_int_equal(sum.n_batches, 2);
    assert_memory_equal(&sum.batches[0], (&(struct batch_stats){1, 1, 1, 1, 1}),
                        sizeof(struct batch_stats));
    assert_memory_equal(&sum.batches[1], (&(struct batch_stats){2, 12, 24, 36, 48}),
                        sizeof(struct batch_stats));
    static const struct response_stats nothing, first = {.fail = {5, 6}},
                                                third = {.success = {12, 24},
                                                         .cancel = {6, 8},
                                                         .compute_infer = {1, 7},
                                                         .compute_output = {1, 8},
                                                         .empty_response = {1, 9}};
    assert_memory_equal(&sum.responses[0], &first, sizeof(first));
    assert_memory_equal(&sum.responses[1], &nothing, sizeof(nothing));
    assert_memory_equal(&sum.responses[3], &third, sizeof(third));
    statistics_done(&a);
    statistics_done(&b);
    statistics_done(&sum);
}

/* ---- Of a model ----------------------------------------------------------------------------- */

static void report(struct fake_model *f, uint32_t instance, uint64_t batch_size)
{
    static const struct execution_times times = {100, 110, 130, 160};
    instance_report_batch(f->model->instances[instance], batch_size, &times);
}

static void statistics_outlive_their_instances(void **state)
{
    (void)state;
    struct fake_model f;
    struct statistics s;
    fake_model_make(&f, config, 3, NULL);
    report(&f, 0, 1);
    report(&f, 2, 1);
    report(&f, 1, 64);
    struct model *m = f.model;
    model_ref(m);
    fake_model_end(&f);

    assert_null(model_statistics(m, &s));
    assert_int_equal(s.execution_count, 3);
    assert_true(s.last_inference_ms > 0);
    assert_int_equal(s.n_batches, 2);
    assert_memory_equal(&s.batches[0], (&(struct batch_stats){1, 2, 20, 40, 60}),
                        sizeof(struct batch_stats));
    assert_int_equal(s.batches[1].batch_size, 64);
    statistics_done(&s);
    model_unref(m);
}

/* Times that a backend reports wrongly must not make sums wrap. */
static void times_that_go_backwards_count_as_zero(void **state)
{
    (void)state;
    static const struct execution_times times = {400, 300, 200, 100};
    struct fake_model f;
    struct fake_request fr;
    struct statistics s;
    fake_model_make(&f, config, 1, NULL);
    fake_request_make(&fr, &f);
    fr.request.admitted.start_ns = fr.request.admitted.queue_ns = 500;
    struct instance *in = f.model->instances[0];
    instance_report_batch(in, 1, &times);
    instance_report_statistics(in, &fr.request, true, &times);
    instance_report_statistics(in, &fr.request, false, &times);
    assert_null(model_statistics(f.model, &s));
    assert_int_equal(s.success.count, 1);
    assert_int_equal(s.fail.count, 1);
    assert_int_equal(s.success.ns + s.fail.ns + s.queue_ns, 0);
    assert_int_equal(s.compute_input_ns + s.compute_infer_ns + s.compute_output_ns, 0);
    assert_int_equal(s.batches[0].compute_input_ns + s.batches[0].compute_infer_ns +
                         s.batches[0].compute_output_ns,
                     0);
    statistics_done(&s);
    fake_request_end(&fr);
    fake_model_end(&f);
}

enum { FAILING_CALLS = 9, WORK_NS = 300 * 1000 }; /* more calls than the server believes in a row */

/* Sends its final response, goes on for a while, and fails. */
static struct status *fail_late(struct instance *in, struct request **requests, uint32_t n)
{
    (void)requests;
    uint64_t now_ns = monotonic_ns();
    instance_report_batch(in, n, &(struct execution_times){now_ns, now_ns, now_ns, now_ns});
    while (monotonic_ns() < now_ns + WORK_NS)
        ;
    return status_new(STATUS_INTERNAL, "no");
}

static void a_failure_counts_until_its_call_ends(void **state)
{
    (void)state;
    static const int64_t one = 1;
    static const float value = 1;
    struct fake_model f;
    struct statistics s;
    fake_model_make(&f, config, 1, fail_late);
    for (int i = 0; i < FAILING_CALLS; i++) {
        struct fake_request fr;
        struct input *in;
        fake_request_make(&fr, &f);
        assert_null(request_add_input(&fr.request, "A", 1, DTYPE_FP32, &one, 1, &in));
        assert_null(request_add_data(&fr.request, in,
                                     &(struct tensor_buffer){.base = (void *)(uintptr_t)&value,
                                                             .size_bytes = sizeof(value)}));
        assert_null(server_infer(&f.server, &fr.request));
        fake_request_wait(&fr);
        fake_request_end(&fr);
    }
    assert_null(model_statistics(f.model, &s));
    assert_int_equal(s.fail.count, FAILING_CALLS);
    assert_true(s.fail.ns >= (uint64_t)FAILING_CALLS * WORK_NS);
    statistics_done(&s);
    fake_model_end(&f);
}

static void failures_are_counted_by_reason(void **state)
{
    (void)state;
    static const struct execution_times times = {100, 100, 100, 160};
    struct fake_model f;
    struct fake_request fr;
    struct statistics s;
    fake_model_make(&f, config, 1, NULL);
    fake_request_make(&fr, &f);
    fr.request.admitted.start_ns = 100;
    instance_report_statistics(f.model->instances[0], &fr.request, false, &times);
    instance_report_statistics(f.model->instances[0], &fr.request, false, &times);
    model_count_failure(f.model, FAILURE_REJECTED, 7);
    model_count_failure(f.model, FAILURE_OTHER, 1000);
    assert_null(model_statistics(f.model, &s));
    assert_int_equal(s.failures[FAILURE_REJECTED], 1);
    assert_int_equal(s.failures[FAILURE_CANCELED], 0);
    assert_int_equal(s.failures[FAILURE_BACKEND], 2);
    assert_int_equal(s.failures[FAILURE_OTHER], 1);
    assert_int_equal(s.fail.count, 4);
    assert_int_equal(s.fail.ns, 60 + 60 + 7 + 1000);
    statistics_done(&s);
    fake_request_end(&fr);
    fake_model_end(&f);
}

/* ---- While it executes ---------------------------------------------------------------------- */

static atomic_bool is_over;

/* Each request reports 10 ns of input, 20 of inference, 30 of output; batch sizes change now and
 * then. */
static struct status *execute_and_report(struct instance *in, struct request **requests, uint32_t n)
{
    static const struct execution_times times = {100, 110, 130, 160};
    static uint64_t n_runs;
    (void)n;
    instance_report_statistics(in, requests[0], true, &times);
    instance_report_batch(in, 1 + n_runs++ / 10 % 3, &times);
    fake_answer(requests[0]);
    return NULL;
}

static void look(const struct model *m)
{
    struct statistics s;
    uint64_t n = 0, infer_ns = 0;
    assert_null(model_statistics(m, &s));
    assert_int_equal(s.compute_input_ns, 10 * s.success.count);
    assert_int_equal(s.compute_infer_ns, 20 * s.success.count);
    assert_int_equal(s.compute_output_ns, 30 * s.success.count);
    assert_int_equal(s.inference_count, s.success.count);
    for (uint32_t i = 0; i < s.n_batches; i++) {
        n += s.batches[i].count;
        infer_ns += s.batches[i].compute_infer_ns;
    }
    assert_int_equal(s.execution_count, n);
    assert_int_equal(infer_ns, 20 * n);
    assert_in_range(n, s.success.count - MIN(s.success.count, 1u), s.success.count);
    statistics_done(&s);
    model_totals(m, &s);
    assert_int_equal(s.compute_infer_ns, 20 * s.success.count);
}

static void *look_again_and_again(void *arg)
{
    while (!atomic_load(&is_over))
        look(arg);
    return NULL;
}

static void executions_count_without_a_lock_and_are_read_consistently(void **state)
{
    (void)state;
    enum { N = 3000 };
    struct fake_model f;
    struct statistics s;
    pthread_t reader;
    fake_model_make(&f, config, 1, execute_and_report);
    pthread_create(&reader, NULL, look_again_and_again, f.model);
    for (int i = 0; i < N; i++) {
        static const float value = 1;
        struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
        struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
        struct fake_request fr;
        struct input *in;
        int64_t one = 1;
        fake_request_make(&fr, &f);
        fr.request.maker.inline_budget = i % 3 ? &budget : NULL; /* inline, and on a worker */
        assert_null(request_add_input(&fr.request, "A", 1, DTYPE_FP32, &one, 1, &in));
        assert_null(request_add_data(&fr.request, in, &data));
        assert_null(server_infer(&f.server, &fr.request));
        fake_request_wait(&fr);
        fake_request_end(&fr);
    }
    atomic_store(&is_over, true);
    pthread_join(reader, NULL);
    assert_null(model_statistics(f.model, &s));
    assert_int_equal(s.success.count, N);
    assert_int_equal(s.execution_count, N);
    assert_int_equal(s.n_batches, 3);
    statistics_done(&s);
    assert_int_equal(f.model->instances[0]->stats->sums.success.count, 0); /* no lock was taken */
    fake_model_end(&f);
}

static struct fake_model shared;

static struct status *read_it(void *arg)
{
    (void)arg;
    struct statistics s;
    struct status *st = model_statistics(shared.model, &s);
    if (st)
        return st;
    assert_int_equal(s.execution_count, 6);
    assert_int_equal(s.n_batches, 6);
    assert_int_equal(s.n_responses, 4);
    statistics_done(&s);
    return NULL;
}

static struct status *count_it(void *arg)
{
    (void)arg;
    struct statistics s = {0};
    uint32_t n = 0;
    for (uint64_t size = 1; size <= 40; size++)
        n += statistics_batch(&s, size) != NULL;
    bool all = n == 40 && statistics_response(&s, 5) && statistics_response(&s, 50);
    assert_int_equal(s.n_batches, n);
    statistics_done(&s);
    return all ? NULL : status_no_memory();
}

static void statistics_survive_lack_of_memory(void **state)
{
    (void)state;
    fake_model_make(&shared, config, 2, NULL);
    for (uint64_t size = 1; size <= 6; size++)
        report(&shared, size % 2, size);
    assert_non_null(statistics_response(&shared.model->instances[0]->stats->sums, 3));
    assert_true(fault_each_allocation(read_it, NULL) > 0);
    fake_model_end(&shared);
    assert_true(fault_each_allocation(count_it, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_sizes_are_kept_in_order),
        cmocka_unit_test(batch_sizes_have_a_limit),
        cmocka_unit_test(statistics_are_added_up),
        cmocka_unit_test(statistics_outlive_their_instances),
        cmocka_unit_test(times_that_go_backwards_count_as_zero),
        cmocka_unit_test(a_failure_counts_until_its_call_ends),
        cmocka_unit_test(failures_are_counted_by_reason),
        cmocka_unit_test(executions_count_without_a_lock_and_are_read_consistently),
        cmocka_unit_test(statistics_survive_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
