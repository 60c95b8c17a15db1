/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ensemble is a model without a backend and without instances: what the core asks of any model
 * has an answer for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/backend/readiness.h"
#include "core/load/model_load.h"
#include "core/model/model_statistics.h"
#include "core/sched/pull.h"
#include "core/sched/watch.h"
#include "lib/fake_model.h"

#define MEMBER                                                                                     \
    "input { name: 'IN' data_type: TYPE_INT32 dims: 1 } "                                          \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: 1 }"

static const char ensemble[] =
    "name: 'e' platform: 'ensemble' " MEMBER " ensemble_scheduling { step { model_name: 'm' "
    "model_version: -1 input_map { key: 'IN' value: 'IN' } output_map { key: 'OUT' value: 'OUT' } "
    "} }";

static struct status *answer_all(struct instance *in, struct request **batch, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        fake_answer(batch[i]);
    return NULL;
}

/* A server whose model "m" is a step of the model "e". */
struct fixture {
    struct fake_model member;
    struct model *model;
};

static void set_up(struct fixture *f)
{
    struct model_config *config;
    fake_model_make(&f->member, MEMBER, 1, answer_all);
    assert_null(model_config_parse_text(ensemble, strlen(ensemble), "config.pbtxt", &config));
    assert_true(model_config_is_ensemble(config));
    assert_false(model_config_is_ensemble(f->member.model->config));
    f->model = model_new(&f->member.server.services, "e", 1, "/nowhere", config);
    assert_null(model_make_specs(f->model));
    f->model->n_members = 1;
    f->model->members = mem_zalloc(sizeof(struct model *));
    f->model->members[0] = f->member.model;
    model_ref(f->member.model);
    assert_null(scheduler_new(f->model, &f->model->scheduler));
    scheduler_use_instances(f->model->scheduler);
    model_open(f->model);
    readiness_begin(f->model);
}

static void tear_down(struct fixture *f)
{
    model_unload(f->model, &f->member.server.backends);
    assert_null(f->model->scheduler);
    model_unref(f->model);
    fake_model_end(&f->member);
}

static void all_questions_have_an_answer(void **state)
{
    (void)state;
    struct fixture f;
    struct watch_use use;
    struct statistics sums;
    set_up(&f);
    assert_string_equal(model_platform(f.model), "ensemble");
    assert_false(readiness_is_asked(f.model));
    assert_true(readiness_known(f.model));
    assert_true(readiness_ask(f.model));
    assert_false(pull_is_always_inline(f.model));
    assert_null(model_stuck_instance(f.model));
    model_executing(f.model, clock_now_ns(f.model->clock), &use);
    assert_int_equal(use.n_requests, 0);
    assert_int_equal(use.oldest_ns, 0);
    assert_null(model_statistics(f.model, &sums));
    assert_int_equal(sums.success.count, 0);
    assert_int_equal(sums.n_batches, 0);
    statistics_done(&sums);
    model_stop(f.model);
    tear_down(&f);
}

static void it_is_flushed_closed_and_stopped(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    model_flush(f.model);
    assert_int_equal(model_n_open(f.model), 0);
    assert_int_equal(model_close(f.model), 0); /* nothing is open: this has stopped it */
    assert_true(atomic_load(&f.model->stopping));
    assert_int_equal(model_inflight(f.model), 0);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_questions_have_an_answer),
        cmocka_unit_test(it_is_flushed_closed_and_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
