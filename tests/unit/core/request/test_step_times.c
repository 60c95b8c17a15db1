/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics of an ensemble's requests, from what the instances of its steps report. A model of
 * the fake backend stands for the ensemble, and for the models of its steps.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/model/model_statistics.h"
#include "core/request/step_times.h"
#include "lib/fake_model.h"

static const char config[] = "max_batch_size: 8\n"
                             "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";
static const struct execution_times times = {1100, 1110, 1130, 1160};

struct fixture {
    struct clock_fake clock;
    struct fake_model ensemble, member;
    struct fake_request outer, step;
    struct step_times step_times;
};

static void make(struct fixture *f)
{
    clock_fake_init(&f->clock, 1000);
    fake_model_make_timed(&f->ensemble, &f->clock, config, 1, NULL);
    fake_model_make(&f->member, config, 1, NULL);
    fake_request_make(&f->outer, &f->ensemble);
    fake_request_make(&f->step, &f->member);
    f->outer.request.admitted.start_ns = 1000;
    f->outer.request.admitted.batch_size = 4;
    f->step.request.admitted.start_ns = f->step.request.admitted.queue_ns = 1050;
    f->step.request.admitted.batch_size = 4;
    f->step.request.maker.step_times = &f->step_times;
}

static void unmake(struct fixture *f)
{
    fake_request_end(&f->step);
    fake_request_end(&f->outer);
    fake_model_end(&f->member);
    fake_model_end(&f->ensemble);
}

static void report(struct fixture *f, bool success)
{
    instance_report_statistics(f->member.model->instances[0], &f->step.request, success, &times);
}

static struct statistics of(const struct fake_model *f)
{
    struct statistics s;
    assert_null(model_statistics(f->model, &s));
    return s;
}

static void an_ensemble_counts_the_times_of_its_steps(void **state)
{
    struct fixture f = {0};
    (void)state;
    make(&f);
    report(&f, true);
    report(&f, true);
    report(&f, false); /* a failed step has computed nothing */
    clock_fake_advance(&f.clock, 500);
    request_count_ensemble(&f.outer.request, &f.step_times, true);
    struct statistics s = of(&f.ensemble);
    assert_int_equal(s.success.count, 1);
    assert_int_equal(s.success.ns, 500);
    assert_int_equal(s.queue_ns, 0);
    assert_int_equal(s.compute_input_ns, 2 * 10);
    assert_int_equal(s.compute_infer_ns, 2 * 20);
    assert_int_equal(s.compute_output_ns, 2 * 30);
    assert_int_equal(s.inference_count, 4);
    assert_int_equal(s.execution_count, 1);
    assert_true(s.last_inference_ms > 0);
    assert_int_equal(s.n_batches, 1);
    assert_memory_equal(&s.batches[0], (&(struct batch_stats){4, 1, 20, 40, 60}),
                        sizeof(s.batches[0]));
    assert_int_equal(s.fail.count, 0);
    statistics_done(&s);
    struct statistics member = of(&f.member);
    assert_int_equal(member.success.count, 2);
    assert_int_equal(member.queue_ns, 2 * 50);
    assert_int_equal(member.failures[FAILURE_BACKEND], 1);
    statistics_done(&member);
    unmake(&f);
}

static void a_request_without_a_batch_counts_as_one_inference(void **state)
{
    struct fixture f = {0};
    (void)state;
    make(&f);
    f.outer.request.admitted.batch_size = 0;
    request_count_ensemble(&f.outer.request, &f.step_times, true);
    struct statistics s = of(&f.ensemble);
    assert_int_equal(s.inference_count, 1);
    assert_int_equal(s.batches[0].batch_size, 1);
    statistics_done(&s);
    unmake(&f);
}

static void a_failed_ensemble_counts_twice(void **state)
{
    struct fixture f = {0};
    (void)state;
    make(&f);
    report(&f, true);
    clock_fake_advance(&f.clock, 70);
    request_count_ensemble(&f.outer.request, &f.step_times, false);
    struct statistics s = of(&f.ensemble);
    assert_int_equal(s.failures[FAILURE_OTHER], 2);
    assert_int_equal(s.fail.count, 2);
    assert_int_equal(s.fail.ns, 2 * 70);
    assert_int_equal(s.success.count + s.inference_count + s.execution_count + s.n_batches, 0);
    assert_int_equal(s.compute_infer_ns, 0);
    statistics_done(&s);
    unmake(&f);
}

static void the_times_of_an_inner_ensemble_count_in_the_outer_one(void **state)
{
    struct fixture f = {0};
    struct step_times inner = {0};
    (void)state;
    make(&f);
    f.step.request.maker.step_times = &inner;
    report(&f, true);
    f.step.request.maker.step_times = &f.step_times;
    request_count_ensemble(&f.step.request, &inner, true);
    request_count_ensemble(&f.outer.request, &f.step_times, true);
    struct statistics s = of(&f.ensemble);
    assert_int_equal(s.compute_input_ns, 10);
    assert_int_equal(s.compute_infer_ns, 20);
    assert_int_equal(s.compute_output_ns, 30);
    statistics_done(&s);
    unmake(&f);
}

enum { THREADS = 8, COUNTS = 2000 };

static void *count_many(void *arg)
{
    struct fixture *f = arg;
    for (int i = 0; i < COUNTS; i++) {
        step_times_add(&f->step_times, &(struct compute_ns){1, 2, 3});
        model_count_ensemble(f->ensemble.model, &(struct request_ns){5, 0, {1, 2, 3}},
                             1 + (uint32_t)i % 3);
    }
    return NULL;
}

static void many_threads_count_at_the_same_time(void **state)
{
    struct fixture f = {0};
    pthread_t threads[THREADS];
    (void)state;
    make(&f);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_many, &f), 0);
    for (uint64_t n = 0; n < 100; n++) {
        struct statistics s = of(&f.ensemble); /* a reader sees whole requests */
        assert_int_equal(s.success.ns, 5 * s.success.count);
        assert_int_equal(s.compute_output_ns, 3 * s.success.count);
        assert_int_equal(s.execution_count, s.success.count);
        statistics_done(&s);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct statistics s = of(&f.ensemble), totals;
    assert_int_equal(s.success.count, THREADS * COUNTS);
    assert_int_equal(s.n_batches, 3);
    model_totals(f.ensemble.model, &totals);
    assert_int_equal(totals.compute_infer_ns, 2 * THREADS * COUNTS);
    statistics_done(&s);
    assert_int_equal(atomic_load(&f.step_times.infer_ns), 2 * THREADS * COUNTS);
    unmake(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ensemble_counts_the_times_of_its_steps),
        cmocka_unit_test(a_request_without_a_batch_counts_as_one_inference),
        cmocka_unit_test(a_failed_ensemble_counts_twice),
        cmocka_unit_test(the_times_of_an_inner_ensemble_count_in_the_outer_one),
        cmocka_unit_test(many_threads_count_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
