/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model gets other instances while threads ask it: every request is executed once, those of a
 * sequence on one instance, and each instance that leaves is finalised once, when it is not used
 * any more. Meant to run under tsan.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/instance_group.h"
#include "core/load/model_load.h"
#include "core/sched/limiter.h"
#include "core/sched/scheduler.h"
#include "core/sched/sequence.h"
#include "lib/fake_model.h"
#include "lib/fault.h"

#define TENSORS                                                                                    \
    "input { name: 'A' data_type: TYPE_FP32 dims: 1 } "                                            \
    "output { name: 'X' data_type: TYPE_FP32 dims: 1 } "

#define SEQUENCES "sequence_batching { max_sequence_idle_microseconds: 600000000 direct { } }"
#define OLDEST                                                                                     \
    "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 600000000 "             \
    "oldest { max_candidate_sequences: 2 preserve_ordering: true } }"

enum { N_THREADS = 4, N_CHANGES = 150, LENGTH = 3 /* of a sequence of the storm */ };

static atomic_int n_executed, n_initialized, n_finalized, n_used_after_end;
static atomic_int n_inside, n_together; /* executions at once; the most of them */
static atomic_bool is_over;
static struct instance *_Atomic executed_by[N_THREADS + 2]; /* by sequence */
static struct clock_fake fake;
static struct backend_registry registry;

/* The state of an instance is its own address while it may be used. */
static struct status *initialize(struct instance *in)
{
    in->state = in;
    atomic_fetch_add(&n_initialized, 1);
    return NULL;
}

static struct status *finalize(struct instance *in)
{
    in->state = NULL;
    atomic_fetch_add(&n_finalized, 1);
    return NULL;
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    int n_now = atomic_fetch_add(&n_inside, 1) + 1;
    if (n_now > atomic_load(&n_together))
        atomic_store(&n_together, n_now);
    if (in->state != in)
        atomic_fetch_add(&n_used_after_end, 1);
    int n_asked = 0;
    for (uint32_t i = 0; i < n; i++)
        n_asked += !requests[i]->seq.padding;
    atomic_fetch_add(&n_executed, n_asked);
    for (uint32_t i = 0; i < n; i++) {
        atomic_store(&executed_by[requests[i]->maker.correlation_id.number], in);
        fake_answer(requests[i]);
    }
    if (in->state != in)
        atomic_fetch_add(&n_used_after_end, 1);
    atomic_fetch_sub(&n_inside, 1);
    return NULL;
}

static void made(struct fake_model *f)
{
    atomic_store(&n_executed, 0);
    atomic_store(&n_finalized, 0);
    atomic_store(&n_used_after_end, 0);
    f->backend.fns.instance_initialize = initialize;
    f->backend.fns.instance_finalize = finalize;
    f->model->instances[0]->state = f->model->instances[0];
    atomic_store(&n_initialized, 1);
}

static void make(struct fake_model *f, struct server_options *options, const char *more,
                 fake_execute_fn execution)
{
    char config[1024];
    snprintf(config, sizeof(config), TENSORS "%s", more);
    if (options)
        fake_model_make_with(f, options, config, 1, execution);
    else
        fake_model_make_initialized(f, config, 1, execution, initialize);
    made(f);
}

/* Begins a change to these groups. @ret_change  NULL: the model would have to be loaded anew */
static struct status *begin(struct fake_model *f, const char *more, const char *groups,
                            struct model_change **ret_change)
{
    struct model_config *config;
    char text[1024];
    snprintf(text, sizeof(text), "name: 'm' backend: 'fake' " TENSORS "%s %s", more, groups);
    struct status *st = model_config_parse_text(text, strlen(text), "config.pbtxt", &config);
    if (st)
        return st;
    struct config_facts facts = {.model_name = "m"};
    st = model_config_prepare(config, &facts);
    if (!st)
        return model_change_begin(f->model, &registry, config, &facts, ret_change);
    model_config_free(config);
    return st;
}

static void change(struct fake_model *f, const char *more, const char *groups)
{
    struct model_change *change;
    assert_null(begin(f, more, groups, &change));
    assert_non_null(change);
    model_change_commit(change);
}

static void await_finalized(int n)
{
    while (atomic_load(&n_finalized) < n)
        sched_yield();
    assert_int_equal(atomic_load(&n_finalized), n);
}

static void prepare(struct fake_request *fr, struct fake_model *f, struct inline_budget *budget)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t one[] = {1, 1};
    fake_request_make(fr, f);
    fr->request.maker.inline_budget = budget;
    uint32_t n_dims = f->model->batching ? 2 : 1;
    assert_null(request_add_input(&fr->request, "A", 1, DTYPE_FP32, one, n_dims, &in));
    assert_null(request_add_data(&fr->request, in, &data));
}

struct submitter {
    pthread_t thread;
    struct fake_model *model;
    bool may_inline;
    uint64_t sequence; /* 0: its requests are of none */
    int n_asked;
};

static void join_sequence(struct request *r, uint64_t sequence, int step)
{
    r->maker.correlation_id.number = sequence;
    r->maker.flags = (step == 0 ? REQUEST_SEQUENCE_START : 0u) |
                     (step == LENGTH - 1 ? REQUEST_SEQUENCE_END : 0u);
}

static void *keep_asking(void *arg)
{
    struct submitter *s = arg;
    struct instance *before = NULL;
    int step = 0;
    while (!atomic_load(&is_over) || step > 0) {
        struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
        struct fake_request fr;
        prepare(&fr, s->model, s->may_inline ? &budget : NULL);
        if (s->sequence)
            join_sequence(&fr.request, s->sequence, step);
        assert_null(server_infer(&s->model->server, &fr.request));
        fake_request_wait(&fr);
        assert_int_equal(fr.n_responses, 1);
        assert_false(fr.failed);
        fake_request_end(&fr);
        s->n_asked++;
        if (!s->sequence)
            continue;
        struct instance *in = atomic_load(&executed_by[s->sequence]);
        if (step > 0)
            assert_ptr_equal(in, before);
        before = in;
        step = (step + 1) % LENGTH;
    }
    return NULL;
}

/* Groups of several kinds of instances; those of one kind stay, whatever the name of their group.
 */
static void change_somehow(struct fake_model *f, const char *more, const char *limits, int round)
{
    char groups[512];
    snprintf(groups, sizeof(groups),
             "instance_group { name: '%s' count: %d kind: KIND_CPU %s } "
             "instance_group { count: %d kind: KIND_MODEL %s }",
             round % 5 < 3 ? "a" : "b", 1 + round % 3, limits, 1 + 29 * round % 80,
             round % 7 < 4 ? limits : "");
    change(f, more, groups);
}

/* @exclusive  one instance executes at a time */
static void storm(struct server_options *options, const char *more, const char *limits,
                  bool exclusive)
{
    struct fake_model f;
    struct submitter submitters[N_THREADS];
    int n_asked = 0;
    make(&f, options, more, execute);
    pull_scheduler_of(f.model)->exclusive = exclusive;
    atomic_store(&is_over, false);
    atomic_store(&n_together, 0);
    for (int i = 0; i < N_THREADS; i++) {
        bool has_sequences = model_config_sequences(f.model->config) != NULL;
        submitters[i] = (struct submitter){
            .model = &f, .may_inline = i % 2 == 0, .sequence = has_sequences ? (uint64_t)i + 1 : 0};
        pthread_create(&submitters[i].thread, NULL, keep_asking, &submitters[i]);
    }
    for (int i = 0; i < N_CHANGES; i++) {
        int n_before = atomic_load(&n_executed);
        change_somehow(&f, more, limits, i);
        while (atomic_load(&n_executed) < n_before + 4 * N_THREADS)
            sched_yield();
    }
    change(&f, more, "instance_group { name: 'last' passive: false kind: KIND_MODEL }");
    atomic_store(&is_over, true);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(submitters[i].thread, NULL);
        n_asked += submitters[i].n_asked;
    }
    await_finalized(atomic_load(&n_initialized) - 1);
    assert_int_equal(f.model->n_instances, 1);
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_executed), n_asked);
    assert_int_equal(atomic_load(&n_finalized), atomic_load(&n_initialized));
    assert_int_equal(atomic_load(&n_used_after_end), 0);
    if (exclusive)
        assert_int_equal(atomic_load(&n_together), 1);
}

static void one_instance_at_a_time_executes_while_they_change(void **state)
{
    (void)state;
    storm(NULL, "", "", true);
    storm(NULL, "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 }", "",
          true);
}

static void requests_go_on_while_instances_change(void **state)
{
    (void)state;
    storm(NULL, "", "", false);
    storm(NULL, "parameters { key: 'CONCH_EXECUTION' value { string_value: 'inline' } }", "",
          false);
    storm(NULL, "parameters { key: 'CONCH_EXECUTION' value { string_value: 'thread' } }", "",
          false);
    storm(NULL, "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 }", "",
          false);
}

static void sequences_go_on_while_instances_change(void **state)
{
    (void)state;
    storm(NULL, SEQUENCES, "", false);
    storm(NULL, OLDEST, "", false);
}

static void limits_follow_the_instances(void **state)
{
    (void)state;
    static const char *const more[] = {"", SEQUENCES};
    for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
        struct server_options *o = server_options_new();
        o->limits_rate = true;
        storm(o, more[i], "rate_limiter { resources { name: 'R' count: 1 } priority: 2 }", false);
    }
}

/* ---- One change ------------------------------------------------------------------------------ */

static void instances_of_the_same_kind_stay(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f, NULL, "", execute);
    struct instance *first = f.model->instances[0];
    change(
        &f, "",
        "instance_group { name: 'x' kind: KIND_MODEL } instance_group { count: 2 kind: KIND_CPU }");
    assert_int_equal(f.model->n_instances, 3);
    assert_string_equal(f.model->instances[0]->name, "x_0");
    assert_ptr_equal(f.model->instances[1], first);
    assert_string_equal(f.model->instances[2]->name, "m_1_1");
    assert_int_equal(f.model->config->pb->n_instance_group, 2);
    struct instance *model = f.model->instances[0];
    change(&f, "", "instance_group { name: 'x' count: 2 kind: KIND_MODEL }");
    assert_ptr_equal(f.model->instances[0], model);
    assert_string_equal(f.model->instances[1]->name, "x_1");
    await_finalized(2);
    /* x_0 and x_1 stay in a group of another name; a third gets a name that nobody has. */
    change(&f, "",
           "instance_group { name: 'y' count: 2 kind: KIND_MODEL } "
           "instance_group { name: 'x' count: 1 kind: KIND_CPU }");
    assert_string_equal(f.model->instances[0]->name, "x_0");
    assert_string_equal(f.model->instances[2]->name, "x_2");
    fake_model_end(&f);
}

static void the_counts_of_an_instance_that_left_are_used_again(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f, NULL, "", execute);
    size_t n_parts = 0;
    for (int i = 0; i < 20; i++) {
        change(&f, "",
               i % 2 ? "instance_group { kind: KIND_CPU }" : "instance_group { kind: KIND_MODEL }");
        await_finalized(i + 1);
        while (model_inflight(f.model) > 0) /* the helper is done with it */
            sched_yield();
    }
    for (struct instance_stats *s = f.model->statistics; s; s = s->next)
        n_parts++;
    assert_int_equal(n_parts, 2);
    fake_model_end(&f);
}

static struct status *initialize_but_one(struct instance *in)
{
    if (strcmp(in->name, "m_0_2") != 0)
        return initialize(in);
    return status_new(STATUS_INTERNAL, "this one does not want to");
}

static void a_failure_changes_nothing(void **state)
{
    (void)state;
    struct fake_model f;
    struct model_change *change;
    make(&f, NULL, "", execute);
    struct instance *first = f.model->instances[0];
    f.backend.fns.instance_initialize = initialize_but_one;
    struct status *st = begin(&f, "", "instance_group { count: 4 kind: KIND_CPU }", &change);
    assert_non_null(st);
    assert_string_equal(status_message(st), "this one does not want to");
    status_free(st);
    assert_null(change);
    assert_int_equal(f.model->n_instances, 1);
    assert_ptr_equal(f.model->instances[0], first);
    assert_int_equal(f.model->config->pb->instance_group[0]->count, 1);
    assert_int_equal(atomic_load(&n_initialized), 2);
    assert_int_equal(atomic_load(&n_finalized), 2); /* the second, and the third in vain */
    fake_model_end(&f);
}

/* What the scheduler knows of all its instances does not change. */
static void other_changes_are_loads(void **state)
{
    (void)state;
    struct fake_model f;
    struct model_change *change;
    make(&f, NULL, "", execute);
    assert_null(begin(&f, "", "instance_group { passive: true }", &change));
    assert_null(change);
    assert_int_equal(f.model->n_instances, 1);
    fake_model_end(&f);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

static void begin_request(struct fake_request *fr, struct fake_model *f, uint64_t id,
                          uint32_t flags)
{
    atomic_store(&executed_by[id], NULL);
    prepare(fr, f, NULL);
    fr->request.maker.correlation_id.number = id;
    fr->request.maker.flags = flags;
    assert_null(server_infer(&f->server, &fr->request));
}

static struct instance *end_request(struct fake_request *fr, uint64_t id)
{
    fake_request_wait(fr);
    assert_false(fr->failed);
    fake_request_end(fr);
    return atomic_load(&executed_by[id]);
}

/* Each instance has one slot. */
static void sequences_of_the_backlog_enter_new_instances(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request one, two;
    make(&f, NULL, SEQUENCES, execute);
    struct instance *first = f.model->instances[0];
    begin_request(&one, &f, 1, REQUEST_SEQUENCE_START);
    assert_ptr_equal(end_request(&one, 1), first);
    begin_request(&two, &f, 2, REQUEST_SEQUENCE_START);
    begin_request(&one, &f, 1, 0);
    assert_ptr_equal(end_request(&one, 1), first);
    assert_null(atomic_load(&executed_by[2])); /* it waits for a slot */
    change(&f, SEQUENCES, "instance_group { count: 2 kind: KIND_CPU }");
    assert_ptr_equal(f.model->instances[0], first);
    assert_ptr_equal(end_request(&two, 2), f.model->instances[1]);
    begin_request(&one, &f, 1, REQUEST_SEQUENCE_END);
    assert_ptr_equal(end_request(&one, 1), first);
    begin_request(&two, &f, 2, REQUEST_SEQUENCE_END);
    assert_ptr_equal(end_request(&two, 2), f.model->instances[1]);
    fake_model_end(&f);
}

static struct instance *ask(struct fake_model *f, uint64_t id, uint32_t flags)
{
    struct fake_request fr;
    begin_request(&fr, f, id, flags);
    return end_request(&fr, id);
}

static uint32_t count_instances(struct fake_model *f)
{
    struct pull_scheduler *s = pull_scheduler_of(f->model);
    mutex_lock(&s->mu);
    uint32_t n = f->model->n_instances;
    mutex_unlock(&s->mu);
    return n;
}

/* Each instance has one slot. */
static void a_sequence_keeps_its_instance_to_its_end(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request waits;
    make(&f, NULL, SEQUENCES, execute);
    change(&f, SEQUENCES, "instance_group { count: 2 kind: KIND_CPU }");
    struct instance *first = f.model->instances[0], *second = f.model->instances[1];
    assert_ptr_equal(ask(&f, 1, REQUEST_SEQUENCE_START), first);
    assert_ptr_equal(ask(&f, 2, REQUEST_SEQUENCE_START), second);
    begin_request(&waits, &f, 3, REQUEST_SEQUENCE_START);
    change(&f, SEQUENCES, "instance_group { kind: KIND_CPU }");
    assert_int_equal(f.model->config->pb->instance_group[0]->count, 1);
    assert_int_equal(count_instances(&f), 2);
    assert_ptr_equal(ask(&f, 2, 0), second);
    assert_ptr_equal(ask(&f, 2, REQUEST_SEQUENCE_END), second);
    await_finalized(1);
    assert_int_equal(count_instances(&f), 1);
    assert_null(atomic_load(&executed_by[3])); /* the slot that was free was none for it */
    assert_ptr_equal(ask(&f, 1, REQUEST_SEQUENCE_END), first);
    assert_ptr_equal(end_request(&waits, 3), first);
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_finalized), 2);
    assert_int_equal(atomic_load(&n_used_after_end), 0);
}

/* Each instance has two slots. */
static void the_last_sequence_of_several_ends_the_instance(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f, NULL, OLDEST, execute);
    struct instance *first = f.model->instances[0];
    assert_ptr_equal(ask(&f, 1, REQUEST_SEQUENCE_START), first);
    assert_ptr_equal(ask(&f, 2, REQUEST_SEQUENCE_START), first);
    assert_ptr_equal(ask(&f, 2, REQUEST_SEQUENCE_END), first);
    assert_ptr_equal(ask(&f, 3, REQUEST_SEQUENCE_START), first); /* both slots were made */
    assert_ptr_equal(ask(&f, 3, REQUEST_SEQUENCE_END), first);
    change(&f, OLDEST, "instance_group { kind: KIND_MODEL }");
    struct instance *second = f.model->instances[0];
    assert_ptr_equal(ask(&f, 2, REQUEST_SEQUENCE_START), second); /* not in the free slot */
    assert_ptr_equal(ask(&f, 1, 0), first);
    assert_int_equal(atomic_load(&n_finalized), 0);
    assert_ptr_equal(ask(&f, 1, REQUEST_SEQUENCE_START), first); /* it has not ended */
    assert_ptr_equal(ask(&f, 1, REQUEST_SEQUENCE_END), first);
    await_finalized(1);
    assert_ptr_equal(ask(&f, 2, REQUEST_SEQUENCE_END), second);
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_used_after_end), 0);
}

/* Instances of three changes drain at a time; what an earlier one has left is not asked for. */
static void changes_follow_while_instances_drain(void **state)
{
    (void)state;
    static const char *const groups[] = {"instance_group { kind: KIND_MODEL }",
                                         "instance_group { kind: KIND_CPU }"};
    struct fake_model f;
    struct instance *in[4];
    make(&f, NULL, SEQUENCES, execute);
    for (uint64_t i = 0; i < 4; i++) {
        in[i] = ask(&f, i + 1, REQUEST_SEQUENCE_START);
        for (uint64_t before = 0; before < i; before++)
            assert_ptr_not_equal(in[i], in[before]);
        assert_int_equal(count_instances(&f), i + 1);
        if (i < 3)
            change(&f, SEQUENCES, groups[i % 2]);
    }
    assert_int_equal(atomic_load(&n_finalized), 0);
    static const uint64_t order[] = {1, 0, 2};
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(ask(&f, order[i] + 1, REQUEST_SEQUENCE_END), in[order[i]]);
        await_finalized(i + 1);
        assert_int_equal(count_instances(&f), 3 - i);
    }
    assert_ptr_equal(ask(&f, 4, REQUEST_SEQUENCE_END), in[3]);
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_finalized), 4);
}

static void an_instance_without_sequences_leaves_at_once(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f, NULL, SEQUENCES, execute);
    ask(&f, 1, REQUEST_SEQUENCE_START);
    ask(&f, 1, REQUEST_SEQUENCE_END);
    change(&f, SEQUENCES,
           "instance_group { kind: KIND_MODEL } instance_group { passive: true kind: KIND_CPU }");
    await_finalized(1);
    change(&f, SEQUENCES, "instance_group { kind: KIND_MODEL }");
    await_finalized(2);
    assert_int_equal(count_instances(&f), 1);
    fake_model_end(&f);
}

/* Waits until the scheduler knows that a sequence of the instance is silent: the clock may not move
 * before, since its silence begins then. */
static void await_silence(struct fake_model *f, const struct instance *in)
{
    struct pull_scheduler *s = pull_scheduler_of(f->model);
    for (bool is_silent = false; !is_silent; sched_yield()) {
        mutex_lock(&s->mu);
        is_silent = !list_empty(&in->instance_slots->silent);
        mutex_unlock(&s->mu);
    }
}

static void silence_ends_an_instance_that_drains(void **state)
{
    (void)state;
    static const char more[] = "sequence_batching { max_sequence_idle_microseconds: 20000 }";
    struct fake_model f;
    clock_fake_init(&fake, 1000 * NS_PER_S);
    fake_model_make_timed(&f, &fake,
                          TENSORS "sequence_batching { max_sequence_idle_microseconds: "
                                  "20000 }",
                          1, execute);
    made(&f);
    struct instance *first = ask(&f, 1, REQUEST_SEQUENCE_START);
    change(&f, more, "instance_group { kind: KIND_MODEL }");
    assert_ptr_not_equal(ask(&f, 2, REQUEST_SEQUENCE_START | REQUEST_SEQUENCE_END), first);
    assert_int_equal(count_instances(&f), 2);
    await_silence(&f, first);
    clock_fake_advance(&fake, 20 * NS_PER_MS - 1);
    assert_ptr_equal(ask(&f, 1, 0), first);
    await_silence(&f, first);
    clock_fake_advance(&fake, 20 * NS_PER_MS - 1);
    clock_fake_await(&fake, 1);
    assert_int_equal(count_instances(&f), 2);
    clock_fake_advance(&fake, 1);
    await_finalized(1);
    assert_int_equal(count_instances(&f), 1);
    fake_model_end(&f);
}

static void a_model_may_end_while_instances_drain(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f, NULL, SEQUENCES, execute);
    ask(&f, 1, REQUEST_SEQUENCE_START);
    change(&f, SEQUENCES, "instance_group { kind: KIND_MODEL }");
    ask(&f, 2, REQUEST_SEQUENCE_START);
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_finalized), 2);
}

/* ---- Without memory -------------------------------------------------------------------------- */

#define WITH_STATES                                                                                \
    "max_batch_size: 2 sequence_batching { max_sequence_idle_microseconds: 600000000 "             \
    "control_input { name: 'READY' control { kind: CONTROL_SEQUENCE_READY "                        \
    "bool_false_true: [ false, true ] } } "                                                        \
    "state { input_name: 'SI' output_name: 'SO' data_type: TYPE_INT32 dims: 1 } }"

/* Finds no memory for its responses either. */
static struct status *execute_without_memory(struct instance *in, struct request **requests,
                                             uint32_t n)
{
    if (in->state != in)
        atomic_fetch_add(&n_used_after_end, 1);
    for (uint32_t i = 0; i < n; i++)
        fake_answer_or_fail(requests[i]);
    return NULL;
}

/* NULL, or that there was no memory for a request of the sequence, or for one before. */
static struct status *try_to_ask(struct fake_model *f, uint64_t id, uint32_t flags)
{
    struct fake_request fr;
    prepare(&fr, f, NULL);
    fr.request.maker.correlation_id.number = id;
    fr.request.maker.flags = flags;
    struct status *st = server_infer(&f->server, &fr.request);
    if (!st) {
        fake_request_wait(&fr);
        if (fr.failed || fr.n_responses == 0)
            st = status_no_memory();
    }
    bool has_ended = st && strstr(status_message(st), "must specify the START flag");
    fake_request_end(&fr);
    if (!has_ended)
        return st;
    status_free(st); /* what has ended the sequence is the cause */
    return status_no_memory();
}

static struct status *try_to_change(struct fake_model *f, const char *groups)
{
    struct model_change *change;
    struct status *st = begin(f, WITH_STATES, groups, &change);
    if (st)
        return st;
    assert_non_null(change);
    model_change_commit(change);
    return NULL;
}

/* Instances of two changes drain, with the sequences of each, and some requests lack a partner. */
static struct status *drain_without_memory(void *arg)
{
    struct fake_model *f = arg;
    static const char *const groups[] = {"instance_group { kind: KIND_MODEL }",
                                         "instance_group { count: 2 kind: KIND_CPU }",
                                         "instance_group { kind: KIND_CPU }"};
    struct status *results[16];
    size_t n = 0;
    uint64_t id = 0;
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
        results[n++] = try_to_ask(f, ++id, REQUEST_SEQUENCE_START);
        results[n++] = try_to_ask(f, ++id, REQUEST_SEQUENCE_START);
        results[n] = try_to_change(f, groups[i]);
        if (results[n++])
            break; /* the slots are taken */
    }
    for (; id > 0; id--)
        results[n++] = try_to_ask(f, id, REQUEST_SEQUENCE_END);
    mem_set_test_hook(NULL); /* the next run begins as this one did */
    change(f, WITH_STATES, groups[2]);
    /* All that had sequences have none. */
    await_finalized(atomic_load(&n_initialized) - 1);
    assert_int_equal(count_instances(f), 1);
    struct status *st = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!st)
            st = results[i];
        else
            status_free(results[i]);
    }
    return st;
}

static void instances_drain_without_memory(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f, NULL, WITH_STATES, execute_without_memory);
    assert_true(fault_each_allocation(drain_without_memory, &f) > 10);
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_finalized), atomic_load(&n_initialized));
    assert_int_equal(atomic_load(&n_used_after_end), 0);
}

/* ---- Instances that are in use --------------------------------------------------------------- */

static _Atomic(struct request *) kept;

static struct status *keep(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    (void)n;
    atomic_store(&kept, requests[0]);
    return NULL;
}

static void an_instance_stays_while_the_backend_has_a_request_of_it(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    make(&f, NULL, "", keep);
    prepare(&fr, &f, NULL);
    assert_null(server_infer(&f.server, &fr.request));
    while (!atomic_load(&kept))
        sched_yield();
    change(&f, "", "instance_group { kind: KIND_MODEL }");
    /* One that is idle ends: so the timer and the helper have been there. */
    change(&f, "", "instance_group { kind: KIND_CPU }");
    await_finalized(1);
    fake_answer(atomic_load(&kept));
    fake_request_wait(&fr);
    assert_false(fr.failed);
    fake_request_end(&fr);
    await_finalized(2);
    fake_model_end(&f);
}

static atomic_bool is_open;

static struct status *wait_until_open(struct instance *in, struct request **requests, uint32_t n)
{
    atomic_fetch_add(&n_inside, 1);
    while (!atomic_load(&is_open))
        sched_yield();
    atomic_fetch_sub(&n_inside, 1);
    return execute(in, requests, n);
}

/* One at a time: the instance that leaves goes on, and the other one begins when it has ended. */
static void one_that_leaves_is_waited_for(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request one, two;
    make(&f, NULL, "", wait_until_open);
    struct pull_scheduler *s = pull_scheduler_of(f.model);
    s->exclusive = true;
    atomic_store(&is_open, false);
    prepare(&one, &f, NULL);
    prepare(&two, &f, NULL);
    assert_null(server_infer(&f.server, &one.request));
    while (atomic_load(&n_inside) == 0)
        sched_yield();
    assert_null(server_infer(&f.server, &two.request));
    change(&f, "", "instance_group { kind: KIND_MODEL }");
    mutex_lock(&s->mu);
    assert_int_equal(s->n_running, 0);
    assert_int_equal(s->n_leaving, 1);
    mutex_unlock(&s->mu);
    atomic_store(&is_open, true);
    fake_request_wait(&one);
    fake_request_wait(&two);
    assert_false(one.failed || two.failed);
    fake_request_end(&one);
    fake_request_end(&two);
    await_finalized(1);
    fake_model_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instances_of_the_same_kind_stay),
        cmocka_unit_test(the_counts_of_an_instance_that_left_are_used_again),
        cmocka_unit_test(a_failure_changes_nothing),
        cmocka_unit_test(other_changes_are_loads),
        cmocka_unit_test(sequences_of_the_backlog_enter_new_instances),
        cmocka_unit_test(a_sequence_keeps_its_instance_to_its_end),
        cmocka_unit_test(the_last_sequence_of_several_ends_the_instance),
        cmocka_unit_test(changes_follow_while_instances_drain),
        cmocka_unit_test(an_instance_without_sequences_leaves_at_once),
        cmocka_unit_test(silence_ends_an_instance_that_drains),
        cmocka_unit_test(a_model_may_end_while_instances_drain),
        cmocka_unit_test(instances_drain_without_memory),
        cmocka_unit_test(an_instance_stays_while_the_backend_has_a_request_of_it),
        cmocka_unit_test(requests_go_on_while_instances_change),
        cmocka_unit_test(sequences_go_on_while_instances_change),
        cmocka_unit_test(one_that_leaves_is_waited_for),
        cmocka_unit_test(one_instance_at_a_time_executes_while_they_change),
        cmocka_unit_test(limits_follow_the_instances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
