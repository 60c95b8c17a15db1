/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences: which sequence gets a slot, which one waits, when a sequence ends. Many threads at
 * once test that order is kept, that a backend never has two requests of a sequence, and that each
 * request has one answer. Meant to run under tsan.
 */
#include "core/sched/sequence.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/model/statistics.h"
#include "core/server/server.h"
#include "lib/fake_model.h"
#include "lib/fault.h"

static struct clock_fake fake; /* of the tests in which time matters */

#define START REQUEST_SEQUENCE_START
#define END   REQUEST_SEQUENCE_END

#define TENSORS                                                                                    \
    "input { name: \"A\" data_type: TYPE_INT32 dims: [ 1 ] }\n"                                    \
    "output { name: \"X\" data_type: TYPE_INT32 dims: [ 1 ] }\n"
#define CONTROLS                                                                                   \
    "control_input [ { name: \"START\" control [ { kind: CONTROL_SEQUENCE_START "                  \
    "int32_false_true: [ 3, 4 ] } ] }, { name: \"END\" control [ { kind: CONTROL_SEQUENCE_END "    \
    "fp32_false_true: [ 0.5, 1.5 ] } ] }, { name: \"READY\" control [ { kind: "                    \
    "CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] }, { name: \"CORRID\" control [ " \
    "{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ]\n"
#define STATE                                                                                      \
    "state [ { input_name: \"SI\" output_name: \"SO\" data_type: TYPE_INT32 dims: [ 1 ] } ]\n"

static const char direct2[] =
    TENSORS "max_batch_size: 2 sequence_batching { max_sequence_idle_microseconds: 60000000 "
            "direct { } " CONTROLS "}";

/* ---- Requests -------------------------------------------------------------------------------- */

/* A request of a sequence, with a number as its input. */
struct step {
    struct fake_request fr;
    struct list link; /* in the list of the thread that answers later */
    int32_t value;
};

static void make_step(struct step *s, struct fake_model *f, uint64_t id, uint32_t flags,
                      int32_t value)
{
    struct tensor_buffer data = {.base = &s->value, .size_bytes = sizeof(s->value)};
    struct input *in;
    int64_t shape[] = {1, 1};
    fake_request_make(&s->fr, f);
    s->value = value;
    s->fr.request.maker.correlation_id.number = id;
    s->fr.request.maker.flags = flags;
    uint32_t batch_dims = f->model->batching;
    assert_null(request_add_input(&s->fr.request, "A", 1, DTYPE_INT32, shape, 1 + batch_dims, &in));
    assert_null(request_add_data(&s->fr.request, in, &data));
}

/* Returns NULL, or the refusal; a refused step needs no wait. */
static struct status *send_step(struct step *s, struct fake_model *f, uint64_t id, uint32_t flags,
                                int32_t value)
{
    make_step(s, f, id, flags, value);
    return server_infer(&f->server, &s->fr.request);
}

static void must_send(struct step *s, struct fake_model *f, uint64_t id, uint32_t flags,
                      int32_t value)
{
    struct status *st = send_step(s, f, id, flags, value);
    if (st)
        fail_msg("%s", status_message(st));
}

/* The request is refused at once, with this text. */
static void must_not_send(struct fake_model *f, uint64_t id, uint32_t flags, const char *text)
{
    struct step s;
    struct status *st = send_step(&s, f, id, flags, 0);
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    status_free(st);
    fake_request_end(&s.fr);
}

static void expect_answer(struct step *s)
{
    fake_request_wait(&s->fr);
    if (s->fr.failed)
        fail_msg("%s", s->fr.last_error);
    assert_int_equal(s->fr.n_final, 1);
    fake_request_end(&s->fr);
}

static void expect_error(struct step *s, enum status_code code, const char *text)
{
    fake_request_wait(&s->fr);
    assert_true(s->fr.failed);
    assert_int_equal(s->fr.last_code, code);
    assert_string_equal(s->fr.last_error, text);
    assert_int_equal(s->fr.n_final, 1);
    fake_request_end(&s->fr);
}

#define NO_START(id)                                                                               \
    "inference request for sequence " id " to model 'm' must specify the START flag on the first " \
    "request of the sequence"

/* ---- What the backend sees ------------------------------------------------------------------- */

static const struct input *injected(const struct request *r, const char *name)
{
    for (uint32_t i = 0; i < r->seq.n_injected; i++) {
        if (strcmp(r->seq.injected[i]->name, name) == 0)
            return r->seq.injected[i];
    }
    return NULL;
}

/* Are the controls of a request as its flags say, and those of a padding "not ready"? */
static bool controls_are_right(const struct request *r)
{
    const int32_t *start = injected(r, "START")->buffers[0].base;
    const float *end = injected(r, "END")->buffers[0].base;
    const char *ready = injected(r, "READY")->buffers[0].base;
    const uint64_t *id = injected(r, "CORRID")->buffers[0].base;
    return *start == (r->maker.flags & START ? 4 : 3) &&
           *end == (r->maker.flags & END ? 1.5F : 0.5F) && *ready == !r->seq.padding &&
           *id == (r->seq.padding ? 0 : r->maker.correlation_id.number) &&
           injected(r, "START")->n_backend_dims == 1u + r->model->batching &&
           injected(r, "READY")->size_bytes == 1 && injected(r, "CORRID")->size_bytes == 8;
}

static int32_t value_of(const struct request *r)
{
    return *(const int32_t *)r->maker.inputs[0]->buffers[0].base;
}

/* A door that executions pass one at a time. Each execution notes its requests. */
static struct {
    pthread_mutex_t mu;
    pthread_cond_t cv;
    int n_arrived, n_let_in;
    char batches[128 << 10]; /* "[1:10 - 2:20]": id:value of each request, - for a padding */
    bool wrong;
} door = {.mu = PTHREAD_MUTEX_INITIALIZER, .cv = PTHREAD_COND_INITIALIZER};

static void close_door(void)
{
    door.n_arrived = door.n_let_in = 0;
    door.batches[0] = '\0';
    door.wrong = false;
}

static void let_in(int n)
{
    pthread_mutex_lock(&door.mu);
    door.n_let_in += n;
    pthread_cond_broadcast(&door.cv);
    pthread_mutex_unlock(&door.mu);
}

/* Waits until n executions have arrived at the door. */
static void await_arrivals(int n)
{
    pthread_mutex_lock(&door.mu);
    while (door.n_arrived < n)
        pthread_cond_wait(&door.cv, &door.mu);
    pthread_mutex_unlock(&door.mu);
}

static void note_locked(struct request **requests, uint32_t n)
{
    size_t at = strlen(door.batches), room = sizeof(door.batches);
    if (room - at < 64 * (size_t)n + 64)
        abort(); /* a test notes more than the buffer holds */
    for (uint32_t i = 0; i < n; i++) {
        const struct request *r = requests[i];
        if (r->seq.n_injected >= 4)
            door.wrong |= !controls_are_right(r);
        at += (size_t)snprintf(door.batches + at, room - at, i ? " " : "[");
        if (r->seq.padding)
            at += (size_t)snprintf(door.batches + at, room - at, "-");
        else
            at += (size_t)snprintf(door.batches + at, room - at, "%d:%d",
                                   (int)r->maker.correlation_id.number, value_of(r));
    }
    snprintf(door.batches + at, room - at, "]");
}

static struct status *execute_at_door(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    pthread_mutex_lock(&door.mu);
    int mine = ++door.n_arrived;
    note_locked(requests, n);
    pthread_cond_broadcast(&door.cv);
    while (door.n_let_in < mine)
        pthread_cond_wait(&door.cv, &door.mu);
    pthread_mutex_unlock(&door.mu);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

/* Answers and releases the requests before the backend's call returns. */
static struct status *answer_and_stay(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    pthread_mutex_lock(&door.mu);
    int mine = ++door.n_arrived;
    pthread_cond_broadcast(&door.cv);
    while (door.n_let_in < mine)
        pthread_cond_wait(&door.cv, &door.mu);
    pthread_mutex_unlock(&door.mu);
    return NULL;
}

static void expect_batches(const char *text)
{
    assert_string_equal(door.batches, text);
    assert_false(door.wrong);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

static void requests_that_belong_to_no_sequence_are_refused(void **state)
{
    (void)state;
    struct fake_model f;
    fake_model_make(&f, direct2, 1, execute_at_door);
    must_not_send(&f, 0, START,
                  "inference request to model 'm' must specify a non-zero or non-empty correlation "
                  "ID");
    must_not_send(&f, 7, 0, NO_START("7"));
    must_not_send(&f, UINT64_MAX, END, NO_START("18446744073709551615"));
    struct step s;
    make_step(&s, &f, 0, START, 0);
    assert_null(request_set_correlation_string(&s.fr.request, "seven", 5));
    struct status *st = server_infer(&f.server, &s.fr.request);
    assert_non_null(strstr(status_message(st), "sequence batching control 'CORRID' data-type is "
                                               "'BYTES', but model 'm' expects 'UINT64'"));
    status_free(st);
    fake_request_end(&s.fr);
    assert_int_equal(f.model->failures.counts[FAILURE_OTHER], 0); /* reference/behaviours §16.5 */
    fake_model_end(&f);
}

/* Slots are filled from the first on. A sequence that finds no slot waits and gets the first
 * slot that is freed. */
static void sequences_keep_their_slots(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[12];
    fake_model_make(&f, direct2, 1, execute_at_door);
    close_door();
    must_send(&s[0], &f, 1, START, 10);
    await_arrivals(1);
    must_send(&s[1], &f, 2, START, 20);
    must_send(&s[2], &f, 3, START, 30); /* no slot */
    must_send(&s[3], &f, 4, START | END, 40);
    must_send(&s[4], &f, 3, 0, 31);
    must_send(&s[5], &f, 2, END, 21);
    must_not_send(&f, 2, 0,
                  NO_START("2")); /* its END has arrived, although it has not been executed */
    must_not_send(&f, 4, 0, NO_START("4"));
    let_in(1);
    await_arrivals(2);
    let_in(1);
    await_arrivals(3);
    must_send(&s[6], &f, 1, END, 11);
    let_in(1);
    await_arrivals(4);
    must_send(&s[7], &f, 3, END, 32);
    let_in(5);
    for (int i = 0; i < 8; i++)
        expect_answer(&s[i]);
    expect_batches("[1:10][- 2:20][- 2:21][1:11 3:30][4:40 3:31][- 3:32]");
    assert_int_equal(f.model->pending, 0);
    fake_model_end(&f);
}

/* Slots of several instances are filled evenly. */
static void sequences_spread_over_instances(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[4];
    struct sequence_scheduler *ss;
    fake_model_make(&f, direct2, 2, execute_at_door);
    close_door();
    ss = CONTAINER_OF(f.model->scheduler, struct sequence_scheduler, scheduler);
    for (int i = 0; i < 4; i++)
        must_send(&s[i], &f, (uint64_t)i + 1, START, i);
    await_arrivals(2);
    mutex_lock(&ss->scheduler.mu);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(ss->instance_slots[i % 2]->by_number[i / 2]->sequence->number, i + 1);
    mutex_unlock(&ss->scheduler.mu);
    let_in(4);
    for (int i = 0; i < 4; i++)
        expect_answer(&s[i]);
    fake_model_end(&f);
}

static void a_second_start_keeps_the_slot(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[4];
    fake_model_make(&f, direct2, 1, execute_at_door);
    close_door();
    let_in(100);
    must_send(&s[0], &f, 1, START, 10);
    expect_answer(&s[0]);
    must_send(&s[1], &f, 1, START, 11);
    expect_answer(&s[1]);
    must_send(&s[2], &f, 1, END, 12);
    expect_answer(&s[2]);
    must_send(&s[3], &f, 1, START | END, 13);
    expect_answer(&s[3]);
    expect_batches("[1:10][1:11][1:12][1:13]");
    fake_model_end(&f);
}

/* If the shapes of a model's input vary, requests of different shapes are not in one batch. */
static void a_request_of_another_shape_waits_behind_a_padding(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[3];
    static const int32_t pair[2] = {7, 8};
    struct tensor_buffer data = {.base = pair, .size_bytes = sizeof(pair)};
    struct input *in;
    int64_t shape[] = {1, 2};
    fake_model_make(&f,
                    "input { name: \"A\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
                    "output { name: \"X\" data_type: TYPE_INT32 dims: [ 1 ] }\n"
                    "max_batch_size: 3 sequence_batching { " CONTROLS "}",
                    1, execute_at_door);
    close_door();
    must_send(&s[0], &f, 1, START, 10);
    await_arrivals(1);
    fake_request_make(&s[1].fr, &f);
    s[1].fr.request.maker.correlation_id.number = 2;
    s[1].fr.request.maker.flags = START | END;
    assert_null(request_add_input(&s[1].fr.request, "A", 1, DTYPE_INT32, shape, 2, &in));
    assert_null(request_add_data(&s[1].fr.request, in, &data));
    struct step more;
    must_send(&more, &f, 1, END, 11);
    assert_null(server_infer(&f.server, &s[1].fr.request));
    must_send(&s[2], &f, 3, START | END, 30);
    let_in(3);
    expect_answer(&s[0]);
    expect_answer(&more);
    expect_answer(&s[1]);
    expect_answer(&s[2]);
    expect_batches("[1:10][1:11 - 3:30][- 2:7]");
    fake_model_end(&f);
}

static const char oldest3[] =
    TENSORS "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 60000000 "
            "oldest { max_candidate_sequences: 3 } " CONTROLS "}";

static void the_oldest_strategy_makes_batches_of_one_request_each(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[8];
    fake_model_make(&f, oldest3, 1, execute_at_door);
    close_door();
    must_send(&s[0], &f, 1, START, 10);
    await_arrivals(1);
    must_send(&s[1], &f, 1, 0, 11); /* waits for the request before it */
    must_send(&s[2], &f, 2, START, 20);
    must_send(&s[3], &f, 2, END, 21);
    must_send(&s[4], &f, 3, START, 30);
    must_send(&s[5], &f, 4, START | END, 40); /* no slot */
    let_in(1);
    await_arrivals(2);
    must_send(&s[6], &f, 3, END, 31);
    must_send(&s[7], &f, 1, END, 12);
    let_in(3);
    for (int i = 0; i < 8; i++)
        expect_answer(&s[i]);
    expect_batches("[1:10][2:20 3:30 1:11][2:21 3:31 1:12][4:40]");
    fake_model_end(&f);
}

/* Waits until the scheduler knows that n sequences on the first instance are silent: the clock may
 * not move before, since their silence begins then. */
static void await_silence(struct fake_model *f, int n)
{
    struct sequence_scheduler *ss =
        CONTAINER_OF(f->model->scheduler, struct sequence_scheduler, scheduler);
    for (int n_silent = 0; n_silent != n; sched_yield()) {
        n_silent = 0;
        mutex_lock(&ss->scheduler.mu);
        LIST_FOR_EACH (link, &ss->instance_slots[0]->silent)
            n_silent++;
        mutex_unlock(&ss->scheduler.mu);
    }
}

/* Begins two sequences, each with a request; both are executed together. */
static void begin_two(struct fake_model *f)
{
    struct step s[2];
    close_door();
    let_in(100);
    must_send(&s[0], f, 1, START, 10);
    must_send(&s[1], f, 2, START, 20);
    expect_answer(&s[0]);
    expect_answer(&s[1]);
    expect_batches("[1:10 2:20]");
    await_silence(f, 2);
}

/* Enough requests are executed at once, fewer when the delay of 30 ms is over. */
static void waits_for_others(const char *config, const char *alone)
{
    struct fake_model f;
    struct step s;
    fake_model_make_timed(&f, &fake, config, 1, execute_at_door);
    begin_two(&f);
    close_door();
    let_in(100);
    must_send(&s, &f, 2, END, 21);
    clock_fake_await(&fake, 30 * NS_PER_MS);
    clock_fake_advance(&fake, 30 * NS_PER_MS - 1);
    clock_fake_await(&fake, 1); /* the timer waits for the end of the delay */
    assert_int_equal(door.n_arrived, 0);
    clock_fake_advance(&fake, 1);
    expect_answer(&s);
    expect_batches(alone);
    fake_model_end(&f);
}

static void the_oldest_strategy_waits_for_a_preferred_size(void **state)
{
    (void)state;
    waits_for_others(
        TENSORS "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 60000000 "
                "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] "
                "max_queue_delay_microseconds: 30000 } }",
        "[2:21]");
}

static void the_direct_strategy_waits_until_slots_are_used(void **state)
{
    (void)state;
    waits_for_others(
        TENSORS "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 60000000 "
                "direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 30000 } }",
        "[- 2:21]");
}

/* The backend answers the last request of a batch first, yet its client gets the answer last. */
static struct status *execute_backwards(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = n; i-- > 0;) {
        struct fake_request *last = CONTAINER_OF(requests[n - 1], struct fake_request, request);
        fake_answer(requests[i]);
        if (i > 0 && last->n_final)
            door.wrong = true;
    }
    return NULL;
}

static void the_oldest_strategy_may_preserve_order(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[4];
    fake_model_make(&f,
                    TENSORS "max_batch_size: 4 sequence_batching { oldest { "
                            "max_candidate_sequences: 2 preferred_batch_size: [ 2 ] "
                            "max_queue_delay_microseconds: 600000000 preserve_ordering: true } }",
                    1, execute_backwards);
    close_door();
    for (int round = 0; round < 2; round++) {
        must_send(&s[0], &f, 1, START | END, 10);
        must_send(&s[1], &f, 2, START | END, 20);
        expect_answer(&s[0]);
        expect_answer(&s[1]);
    }
    assert_false(door.wrong);
    fake_model_end(&f);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void a_silent_sequence_loses_its_slot(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[3];
    fake_model_make_timed(&f, &fake,
                          TENSORS
                          "sequence_batching { max_sequence_idle_microseconds: 20000 " CONTROLS "}",
                          1, execute_at_door);
    close_door();
    let_in(1);
    must_send(&s[0], &f, 1, START, 10);
    must_send(&s[1], &f, 2, START, 20); /* waits for the only slot */
    expect_answer(&s[0]);
    await_silence(&f, 1);
    clock_fake_await(&fake, 20 * NS_PER_MS);
    clock_fake_advance(&fake, 20 * NS_PER_MS - 1);
    clock_fake_await(&fake, 1); /* the timer waits for the end of the silence */
    assert_int_equal(door.n_arrived, 1);
    clock_fake_advance(&fake, 1);
    await_arrivals(2);
    must_not_send(&f, 1, END, NO_START("1"));
    must_send(&s[2], &f, 2, END, 21);
    let_in(100);
    expect_answer(&s[1]);
    expect_answer(&s[2]);
    fake_model_end(&f);
}

/* The backend's time is not the client's: a client can only continue its sequence after the
 * answer. */
static void a_sequence_is_not_silent_while_its_backend_works(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[5];
    fake_model_make_timed(&f, &fake,
                          TENSORS "max_batch_size: 2 sequence_batching { "
                                  "max_sequence_idle_microseconds: 20000 "
                                  "oldest { max_candidate_sequences: 2 } }",
                          1, execute_at_door);
    close_door();
    let_in(1);
    must_send(&s[0], &f, 1, START, 10);
    expect_answer(&s[0]);
    must_send(&s[1], &f, 2, START, 20); /* in execution … */
    await_arrivals(2);
    must_send(&s[2], &f, 3, START, 30); /* … while the first sequence is silent */
    clock_fake_await(&fake, 20 * NS_PER_MS);
    clock_fake_advance(&fake, 3600 * NS_PER_S);
    struct sequence_scheduler *ss =
        CONTAINER_OF(f.model->scheduler, struct sequence_scheduler, scheduler);
    for (bool gone = false; !gone; sched_yield()) {
        mutex_lock(&ss->scheduler.mu);
        gone = list_empty(&ss->backlog);
        mutex_unlock(&ss->scheduler.mu);
    }
    must_not_send(&f, 1, END, NO_START("1"));
    must_send(&s[3], &f, 2, 0, 21); /* a second request waits there, too */
    let_in(100);
    expect_answer(&s[1]);
    expect_answer(&s[2]);
    expect_answer(&s[3]);
    clock_fake_advance(&fake, 20 * NS_PER_MS - 1); /* the silence began with the answer */
    must_send(&s[4], &f, 2, END, 22);
    expect_answer(&s[4]);
    fake_model_end(&f);
}

#define TIME_IS_OVER "timeout of the corresponding sequence has been expired"

static void requests_wait_for_a_slot_until_their_limit(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[5];
    fake_model_make_timed(&f, &fake, TENSORS "sequence_batching { " CONTROLS "}", 1,
                          execute_at_door);
    close_door();
    must_send(&s[0], &f, 1, START, 10);
    await_arrivals(1); /* busy until the end of the test */
    must_send(&s[1], &f, 2, START, 20);
    make_step(&s[2], &f, 2, 0, 21);
    s[2].fr.request.maker.timeout_us = 20000;
    make_step(&s[3], &f, 3, START, 30);
    s[3].fr.request.maker.timeout_us = 20001;
    assert_null(server_infer(&f.server, &s[3].fr.request));
    assert_null(server_infer(&f.server, &s[2].fr.request));
    clock_fake_await(&fake, 20 * NS_PER_MS);
    clock_fake_advance(&fake, 20 * NS_PER_MS - 1);
    clock_fake_await(&fake, 1);
    assert_int_equal(s[1].fr.n_final + s[2].fr.n_final, 0);
    clock_fake_advance(&fake, 1);
    expect_error(&s[1], STATUS_UNAVAILABLE, TIME_IS_OVER);
    expect_error(&s[2], STATUS_UNAVAILABLE, TIME_IS_OVER);
    assert_int_equal(f.model->failures.counts[FAILURE_REJECTED], 2);
    must_not_send(&f, 2, 0, NO_START("2"));
    must_send(&s[4], &f, 1, END, 11);
    let_in(100);
    expect_answer(&s[0]);
    expect_answer(&s[4]);
    expect_answer(&s[3]);
    expect_batches("[1:10][1:11][3:30]");
    fake_model_end(&f);
}

static void cancelling_a_request_ends_its_sequence(void **state)
{
    (void)state;
    static const char *const configs[] = {direct2, oldest3};
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct fake_model f;
        struct step s[4];
        fake_model_make(&f, configs[i], 1, execute_at_door);
        close_door();
        must_send(&s[0], &f, 1, START, 10);
        await_arrivals(1);
        must_send(&s[1], &f, 1, 0, 11);
        must_send(&s[2], &f, 1, 0, 12);
        must_send(&s[3], &f, 2, START | END, 20);
        request_cancel(&s[1].fr.request);
        let_in(100);
        expect_answer(&s[0]);
        expect_error(&s[1], STATUS_CANCELLED, "");
        expect_error(&s[2], STATUS_CANCELLED, "");
        expect_answer(&s[3]);
        assert_int_equal(f.model->failures.counts[FAILURE_CANCELED], 2);
        must_not_send(&f, 1, 0, NO_START("1"));
        expect_batches(i == 0 ? "[1:10][- 2:20]" : "[1:10][2:20]");
        fake_model_end(&f);
    }
}

/* The answer does not even wait for the end of the call in which the earlier request was
 * released. */
static void a_cancelled_request_does_not_wait_for_the_backend(void **state)
{
    (void)state;
    static const char *const configs[] = {direct2, oldest3};
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct fake_model f;
        struct step s[4];
        fake_model_make(&f, configs[i], 1, answer_and_stay);
        close_door();
        must_send(&s[0], &f, 1, START, 10);
        fake_request_wait(&s[0].fr);
        await_arrivals(1); /* the execution stays there */
        must_send(&s[1], &f, 1, 0, 11);
        must_send(&s[2], &f, 2, START, 20);
        request_cancel(&s[1].fr.request);
        expect_error(&s[1], STATUS_CANCELLED, "");
        must_not_send(&f, 1, 0, NO_START("1"));
        let_in(100);
        expect_answer(&s[0]);
        expect_answer(&s[2]);
        must_send(&s[3], &f, 2, END, 21);
        expect_answer(&s[3]);
        fake_model_end(&f);
    }
}

/* No execution and no delay comes before the answer: in this test the delay never ends. */
static void a_cancelled_request_is_answered_at_once(void **state)
{
    (void)state;
    static const char *const configs[] = {
        TENSORS "max_batch_size: 4 sequence_batching { direct { minimum_slot_utilization: 1 "
                "max_queue_delay_microseconds: 600000000 } }",
        TENSORS "max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 "
                "preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 600000000 } }",
    };
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct fake_model f;
        struct step s[5];
        fake_model_make(&f, configs[i], 1, execute_at_door);
        close_door();
        let_in(100);
        for (int k = 0; k < 3; k++)
            must_send(&s[k], &f, (uint64_t)k + 1, START, k);
        must_send(&s[3], &f, 2, 0, 3);
        request_cancel(&s[1].fr.request);
        expect_error(&s[1], STATUS_CANCELLED, "");
        expect_error(&s[3], STATUS_CANCELLED, "");
        must_not_send(&f, 2, 0, NO_START("2"));
        must_send(&s[1], &f, 5, START | END, 4); /* with its number */
        must_send(&s[3], &f, 6, START | END, 5);
        for (int k = 0; k < 4; k++)
            expect_answer(&s[k]);
        expect_batches(i == 0 ? "[1:0 5:4 3:2 6:5]" : "[1:0 3:2 5:4 6:5]");
        fake_model_end(&f);
    }
}

static void a_cancelled_sequence_leaves_the_backlog(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[5];
    fake_model_make(&f, TENSORS "sequence_batching { }", 1, execute_at_door);
    close_door();
    must_send(&s[0], &f, 1, START | END, 10);
    await_arrivals(1);
    must_send(&s[1], &f, 2, START | END, 20); /* has a slot by now */
    must_send(&s[2], &f, 3, START, 30);
    must_send(&s[3], &f, 3, 0, 31);
    must_send(&s[4], &f, 4, START | END, 40);
    request_cancel(&s[3].fr.request);
    expect_error(&s[2], STATUS_CANCELLED, ""); /* at once, while the execution lasts */
    expect_error(&s[3], STATUS_CANCELLED, "");
    let_in(100);
    expect_answer(&s[0]);
    expect_answer(&s[1]);
    expect_answer(&s[4]);
    must_not_send(&f, 3, 0, NO_START("3"));
    expect_batches("[1:10][2:20][4:40]");
    fake_model_end(&f);
}

/* No request can continue the sequence that has the only slot, so this sequence does not keep
 * the others waiting. */
static void a_stop_does_not_wait_for_silent_sequences(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[4];
    fake_model_make(&f, TENSORS "sequence_batching { max_sequence_idle_microseconds: 600000000 }",
                    1, execute_at_door);
    close_door();
    must_send(&s[0], &f, 1, START, 10);
    await_arrivals(1);
    must_send(&s[1], &f, 2, START, 20);
    must_send(&s[2], &f, 2, 0, 21);
    must_send(&s[3], &f, 3, START, 30);
    let_in(1);
    expect_answer(&s[0]);
    let_in(3);
    fake_model_end(&f);
    for (int i = 1; i < 4; i++)
        expect_answer(&s[i]);
    expect_batches("[1:10][2:20][2:21][3:30]");
}

/*
 * Before a stop thousands of sequences have slots, and one of them has many requests. The number of
 * slots examined depends on how many can be freed, not on how many there are.
 */
static void a_stop_examines_only_slots_it_can_free(void **state)
{
    (void)state;
    enum { N = 2000, N_WAITING = 500 };
    struct fake_model f;
    struct step *s = calloc(N + N_WAITING + 1, sizeof(*s));
    fake_model_make(&f,
                    TENSORS
                    "sequence_batching { max_sequence_idle_microseconds: 600000000 oldest { "
                    "max_candidate_sequences: 2000 } }",
                    1, execute_at_door);
    struct sequence_scheduler *ss =
        CONTAINER_OF(f.model->scheduler, struct sequence_scheduler, scheduler);
    let_in(1 << 30);
    for (int i = 0; i < N; i++) {
        must_send(&s[i], &f, (uint64_t)i + 1, START, i);
        expect_answer(&s[i]);
    }
    close_door();
    for (int i = 0; i < N_WAITING; i++) /* of the last sequence, which is the youngest */
        must_send(&s[N + i], &f, N, 0, i);
    must_send(&s[N + N_WAITING], &f, N + 1, START | END, 0); /* there is no slot for it */
    model_flush(f.model);
    let_in(1 << 30);
    for (int i = 0; i <= N_WAITING; i++)
        expect_answer(&s[N + i]);
    mutex_lock(&ss->scheduler.mu);
    uint64_t n_looks = ss->instance_slots[0]->n_looks;
    mutex_unlock(&ss->scheduler.mu);
    /* One slot was freed. For each request, at most, the scheduler asked whether another one can
     * be. */
    assert_in_range(n_looks, 1, 4 * N_WAITING);
    fake_model_end(&f);
    free(s);
}

/* ---- Iterative sequences --------------------------------------------------------------------- */

/* Each request is executed as often as its value says. */
static struct status *execute_repeatedly(struct instance *in, struct request **requests, uint32_t n)
{
    static _Thread_local int32_t n_times[8];
    (void)in;
    pthread_mutex_lock(&door.mu);
    note_locked(requests, n);
    pthread_mutex_unlock(&door.mu);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = requests[i];
        int32_t *times = &n_times[r->maker.correlation_id.number % ARRAY_SIZE(n_times)];
        *times = r->maker.flags & START ? 1 : *times + 1;
        if (!r->seq.padding && *times < value_of(r))
            assert_null(request_reschedule(r));
        else
            fake_answer(r);
    }
    return NULL;
}

#define ITERATIVE(more)                                                                            \
    TENSORS "max_batch_size: 2 sequence_batching { iterative_sequence: true " more CONTROLS        \
            " } parameters { key: \"CONCH_EXECUTION\" value { string_value: \"thread\" } }"

static void a_backend_may_reschedule_a_request(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s;
    fake_model_make(&f, ITERATIVE(""), 1, execute_repeatedly);
    close_door();
    make_step(&s, &f, 0, END, 3); /* in no sequence: it is a sequence of its own */
    assert_null(server_infer(&f.server, &s.fr.request));
    fake_request_wait(&s.fr);
    assert_int_equal(s.fr.n_final, 1);
    assert_false(s.fr.failed);
    assert_int_equal(s.fr.request.maker.correlation_id.number, 0); /* its maker finds the request
                                                                    * unchanged */
    assert_int_equal(s.fr.request.maker.flags, END);
    fake_request_end(&s.fr);
    must_send(&s, &f, 7, START, 2);
    expect_answer(&s);
    must_not_send(&f, 7, 0, NO_START("7")); /* the answer has ended it */
    must_send(&s, &f, 7, START | END, 2);
    expect_answer(&s);
    must_send(&s, &f, 0, 0, 1);
    expect_answer(&s);
    expect_batches("[1:3][1:3][1:3][7:2][7:2][7:2][7:2][2:1]");
    assert_int_equal(f.model->pending, 0);
    fake_model_end(&f);
}

static struct status *try_to_reschedule(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++) {
        struct status *st = request_reschedule(requests[i]);
        assert_non_null(st);
        snprintf(door.batches, sizeof(door.batches), "%s", status_message(st));
        status_free(st);
        fake_answer(requests[i]);
    }
    return NULL;
}

static struct status *reschedule_after_the_answer(struct instance *in, struct request **requests,
                                                  uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct response *resp;
        assert_null(response_new(requests[i], &resp));
        assert_null(response_send(resp, RESPONSE_FINAL, NULL));
        struct status *st = request_reschedule(requests[i]);
        assert_non_null(st);
        snprintf(door.batches, sizeof(door.batches), "%s", status_message(st));
        status_free(st);
        assert_null(request_release(requests[i]));
    }
    (void)in;
    return NULL;
}

static void only_unanswered_iterative_requests_may_be_rescheduled(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s;
    fake_model_make(&f, direct2, 1, try_to_reschedule);
    must_send(&s, &f, 1, START | END, 1);
    expect_answer(&s);
    assert_string_equal(door.batches,
                        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while "
                        "the model is not configured to handle such a flag.");
    fake_model_end(&f);
    fake_model_make(&f, ITERATIVE(""), 1, reschedule_after_the_answer);
    must_send(&s, &f, 0, 0, 1);
    expect_answer(&s);
    assert_string_equal(door.batches,
                        "[request id: <id_unknown>] request is to be rescheduled, but "
                        "has its final response");
    fake_model_end(&f);
}

/* A backend that would reschedule a request for ever stops when it is cancelled. */
static atomic_int n_rounds;

static struct status *execute_for_ever(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        assert_null(request_reschedule(requests[i]));
    atomic_fetch_add(&n_rounds, 1);
    return NULL;
}

static void a_cancelled_request_is_not_executed_again(void **state)
{
    (void)state;
    static const char *const configs[] = {ITERATIVE(""),
                                          ITERATIVE("oldest { max_candidate_sequences: 2 }")};
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct fake_model f;
        struct step s[3];
        fake_model_make(&f, configs[i], 1, execute_for_ever);
        atomic_store(&n_rounds, 0);
        for (int k = 0; k < 3; k++) /* the last one waits for a slot */
            must_send(&s[k], &f, 0, 0, 1);
        while (atomic_load(&n_rounds) < 10)
            sched_yield();
        for (int k = 0; k < 3; k++)
            request_cancel(&s[k].fr.request);
        for (int k = 0; k < 3; k++)
            expect_error(&s[k], STATUS_CANCELLED, "");
        fake_model_end(&f);
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void ids_and_slots_take_memory_only_while_they_are_used(void **state)
{
    (void)state;
    static const char *const configs[] = {
        TENSORS "max_batch_size: 2147483647 sequence_batching { max_sequence_idle_microseconds: "
                "60000000 direct { } " CONTROLS "}",
        TENSORS "max_batch_size: 2147483647 sequence_batching { max_sequence_idle_microseconds: "
                "60000000 oldest { max_candidate_sequences: 2147483647 } " CONTROLS STATE "}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct fake_model f;
        struct step s;
        fake_model_make(&f, configs[i], 1, execute_at_door);
        close_door();
        let_in(INT32_MAX / 2);
        uint64_t id = 1;
        size_t after_first = 0;
        for (; id <= 2000; id++) {
            must_send(&s, &f, id, START, 1);
            expect_answer(&s);
            must_send(&s, &f, id, END, 1);
            expect_answer(&s);
            close_door();
            let_in(INT32_MAX / 2);
            if (id == 1)
                after_first = mem_owner_bytes(f.model->owner, MEM_INSTANCES);
        }
        assert_int_equal(mem_owner_bytes(f.model->owner, MEM_INSTANCES), after_first);
        assert_true(after_first < 128 << 10);
        fake_model_end(&f);
    }
}

/* Clients that never end their sequences use as much memory as there are slots; then sequences
 * wait. */
static void unended_sequences_use_bounded_memory(void **state)
{
    (void)state;
    struct fake_model f;
    struct step s[64];
    fake_model_make(&f,
                    TENSORS "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: "
                            "2000 " CONTROLS STATE "}",
                    2, execute_at_door);
    close_door();
    let_in(100000);
    for (int round = 0; round < 20; round++) {
        for (unsigned int i = 0; i < ARRAY_SIZE(s); i++)
            must_send(&s[i], &f, 1 + i + (unsigned int)round * 1000, START, 1);
        for (unsigned int i = 0; i < ARRAY_SIZE(s); i++)
            expect_answer(&s[i]);
        close_door();
        let_in(100000);
    }
    struct sequence_scheduler *ss =
        CONTAINER_OF(f.model->scheduler, struct sequence_scheduler, scheduler);
    mutex_lock(&ss->scheduler.mu);
    assert_true(ss->numbers.count <= 8);
    assert_true(ss->numbers.capacity <= 512);
    mutex_unlock(&ss->scheduler.mu);
    fake_model_end(&f);
}

/* ---- Everything at once ---------------------------------------------------------------------- */

enum { N_CLIENTS = 4, N_SEQUENCES = 60, MAX_STEPS = 6, MAX_IDS = N_CLIENTS * N_SEQUENCES + 1 };

/* The requests of a sequence as the backend saw them. */
static struct {
    atomic_int inside, last, place, n_foreign;
} seen[MAX_IDS];
static atomic_int n_two_at_once, n_wrong_order, n_moved, n_wrong_controls, n_answers, n_refused,
    n_failed;
static bool places_count;

/* Some requests are answered after their execution, by another thread. */
static struct {
    pthread_mutex_t mu;
    pthread_cond_t cv;
    struct list late;
    bool end;
} answerer = {.mu = PTHREAD_MUTEX_INITIALIZER, .cv = PTHREAD_COND_INITIALIZER};

static struct step *step_of(struct request *r)
{
    return CONTAINER_OF(CONTAINER_OF(r, struct fake_request, request), struct step, fr);
}

static void finish(struct request *r)
{
    atomic_fetch_sub(&seen[r->maker.correlation_id.number].inside, 1);
    fake_answer(r);
}

static void *answer_late(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&answerer.mu);
    while (!answerer.end || !list_empty(&answerer.late)) {
        struct list *link = list_pop(&answerer.late);
        if (!link) {
            pthread_cond_wait(&answerer.cv, &answerer.mu);
            continue;
        }
        pthread_mutex_unlock(&answerer.mu);
        sched_yield();
        finish(&LIST_ENTRY(link, struct step, link)->fr.request);
        pthread_mutex_lock(&answerer.mu);
    }
    pthread_mutex_unlock(&answerer.mu);
    return NULL;
}

static void look_at(struct request *r, int place)
{
    uint64_t id = r->maker.correlation_id.number;
    int value = value_of(r);
    if (!controls_are_right(r))
        atomic_fetch_add(&n_wrong_controls, 1);
    if (r->seq.padding)
        return;
    if (atomic_fetch_add(&seen[id].inside, 1) != 0)
        atomic_fetch_add(&n_two_at_once, 1);
    if (atomic_exchange(&seen[id].last, value) != value - 1)
        atomic_fetch_add(&n_wrong_order, 1);
    if (r->maker.flags & START)
        atomic_store(&seen[id].place, place);
    else if (places_count && atomic_load(&seen[id].place) != place)
        atomic_fetch_add(&n_moved, 1);
}

static struct status *execute_some_late(struct instance *in, struct request **requests, uint32_t n)
{
    int which = in->name[2] - '0';
    for (uint32_t i = 0; i < n; i++)
        look_at(requests[i], which * 1000 + (int)i);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = requests[i];
        if (r->seq.padding) {
            fake_answer(r);
        } else if (r->maker.correlation_id.number % 3 == 0) {
            pthread_mutex_lock(&answerer.mu);
            list_push(&answerer.late, &step_of(r)->link);
            pthread_cond_signal(&answerer.cv);
            pthread_mutex_unlock(&answerer.mu);
        } else {
            finish(r);
        }
    }
    return NULL;
}

struct client {
    pthread_t thread;
    struct fake_model *model;
    unsigned int number, seed;
};

static unsigned int chance(struct client *c, unsigned int n)
{
    c->seed = c->seed * 1103515245u + 12345;
    return (c->seed >> 16) % n;
}

/*
 * Sends a few requests of one sequence without waiting for their answers. Now and then it cancels
 * one of them, or leaves the sequence without an END.
 */
static void run_sequence(struct client *c, uint64_t id)
{
    struct step steps[MAX_STEPS];
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
    int n = 1 + (int)chance(c, MAX_STEPS), sent = 0;
    bool ends = chance(c, 8) != 0;
    for (int i = 0; i < n; i++, sent++) {
        uint32_t flags = (i == 0 ? START : 0) | (i == n - 1 && ends ? END : 0);
        make_step(&steps[i], c->model, id, flags, i + 1);
        steps[i].fr.request.maker.inline_budget = chance(c, 2) ? &budget : NULL;
        steps[i].fr.request.maker.timeout_us = chance(c, 10) == 0 ? 500 : 0;
        struct status *st = server_infer(&c->model->server, &steps[i].fr.request);
        if (st) {
            /* An earlier request was cancelled or expired, or the sequence was silent too long. */
            assert_non_null(strstr(status_message(st), "must specify the START flag"));
            assert_true(i > 0);
            status_free(st);
            fake_request_end(&steps[i].fr);
            atomic_fetch_add(&n_refused, 1);
            break;
        }
        if (chance(c, 30) == 0)
            request_cancel(&steps[i].fr.request);
        if (chance(c, 4) == 0)
            fake_request_wait(&steps[i].fr);
    }
    for (int i = 0; i < sent; i++) {
        fake_request_wait(&steps[i].fr);
        atomic_fetch_add(&n_answers, steps[i].fr.n_final);
        atomic_fetch_add(&n_failed, steps[i].fr.failed);
        assert_int_equal(steps[i].fr.n_final, 1);
        assert_int_equal(steps[i].fr.n_released, 1);
        fake_request_end(&steps[i].fr);
    }
}

static void *run_client(void *arg)
{
    struct client *c = arg;
    for (unsigned int i = 0; i < N_SEQUENCES; i++)
        run_sequence(c, 1 + c->number * N_SEQUENCES + i);
    return NULL;
}

static void storm(const char *strategy, unsigned int idle_us, const char *execution)
{
    struct fake_model f;
    struct client clients[N_CLIENTS];
    pthread_t late;
    char config[2048];
    snprintf(config, sizeof(config),
             TENSORS "max_batch_size: 3 sequence_batching { max_sequence_idle_microseconds: %u %s "
                     "%s } parameters { key: \"CONCH_EXECUTION\" value { string_value: \"%s\" } }",
             idle_us, strategy, CONTROLS STATE, execution);
    memset(seen, 0, sizeof(seen));
    n_two_at_once = n_wrong_order = n_moved = n_wrong_controls = n_answers = n_refused = 0;
    places_count = strncmp(strategy, "direct", 6) == 0;
    answerer.end = false;
    list_init(&answerer.late);
    pthread_create(&late, NULL, answer_late, NULL);
    fake_model_make(&f, config, 2, execute_some_late);
    for (unsigned int i = 0; i < N_CLIENTS; i++) {
        clients[i] = (struct client){.model = &f, .number = i, .seed = i * 77 + idle_us};
        pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
    }
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(clients[i].thread, NULL);
    assert_int_equal(f.model->pending, 0);
    fake_model_end(&f);
    pthread_mutex_lock(&answerer.mu);
    answerer.end = true;
    pthread_cond_signal(&answerer.cv);
    pthread_mutex_unlock(&answerer.mu);
    pthread_join(late, NULL);
    assert_int_equal(n_two_at_once, 0);
    assert_int_equal(n_wrong_order, 0);
    assert_int_equal(n_moved, 0);
    assert_int_equal(n_wrong_controls, 0);
    assert_true(n_answers > N_CLIENTS * N_SEQUENCES);
}

static void many_threads_keep_the_order_of_sequences(void **state)
{
    (void)state;
    static const char *const executions[] = {"auto", "inline", "thread"};
    for (size_t i = 0; i < ARRAY_SIZE(executions); i++) {
        storm("direct { }", 300, executions[i]);
        storm("direct { minimum_slot_utilization: 0.6 max_queue_delay_microseconds: 200 }", 2000,
              executions[i]);
        storm("oldest { max_candidate_sequences: 2 }", 300, executions[i]);
        storm("oldest { max_candidate_sequences: 9 preferred_batch_size: [ 2 ] "
              "max_queue_delay_microseconds: 200 }",
              2000, executions[i]);
    }
}

/* ---- Without memory -------------------------------------------------------------------------- */

/* A backend that may find no memory for its responses either. */
static struct status *execute_without_memory(struct instance *in, struct request **requests,
                                             uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        fake_answer_or_fail(requests[i]);
    return NULL;
}

/* Sends three sequences; the first two are silent at times, so that there are paddings. */
static struct status *batches_with_paddings(void *arg)
{
    struct fake_model *f = arg;
    struct status *error = NULL;
    static const struct {
        uint64_t id;
        uint32_t flags;
    } steps[] = {{1, START}, {2, START}, {3, START}, {3, 0}, {1, END}, {2, END}, {3, END}};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct step s;
        struct status *st = send_step(&s, f, steps[i].id, steps[i].flags, 1);
        if (st) {
            assert_non_null(error); /* the sequence has ended for lack of memory */
            status_free(st);
        } else {
            fake_request_wait(&s.fr);
            if (s.fr.n_responses == 0 && !error)
                error = status_no_memory(); /* not even the first one is sent */
            else if (s.fr.failed && !error)
                error = status_new(STATUS_UNAVAILABLE, "%s", s.fr.last_error);
        }
        fake_request_end(&s.fr);
    }
    return error;
}

static void lack_of_memory_ends_sequences_not_the_server(void **state)
{
    (void)state;
    struct fake_model f;
    fake_model_make(&f,
                    TENSORS "max_batch_size: 3 sequence_batching { "
                            "max_sequence_idle_microseconds: 60000000 " CONTROLS STATE
                            "} parameters { "
                            "key: \"CONCH_EXECUTION\" value { string_value: \"thread\" } }",
                    1, execute_without_memory);
    assert_true(fault_each_allocation(batches_with_paddings, &f) > 10);
    assert_int_equal(f.model->pending, 0);
    fake_model_end(&f);
}

/* ---------------------------------------------------------------------------------------------- */

int main(void)
{
    clock_fake_init(&fake, 1000 * NS_PER_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_that_belong_to_no_sequence_are_refused),
        cmocka_unit_test(sequences_keep_their_slots),
        cmocka_unit_test(sequences_spread_over_instances),
        cmocka_unit_test(a_second_start_keeps_the_slot),
        cmocka_unit_test(a_request_of_another_shape_waits_behind_a_padding),
        cmocka_unit_test(the_oldest_strategy_makes_batches_of_one_request_each),
        cmocka_unit_test(the_oldest_strategy_waits_for_a_preferred_size),
        cmocka_unit_test(the_direct_strategy_waits_until_slots_are_used),
        cmocka_unit_test(the_oldest_strategy_may_preserve_order),
        cmocka_unit_test(a_silent_sequence_loses_its_slot),
        cmocka_unit_test(a_sequence_is_not_silent_while_its_backend_works),
        cmocka_unit_test(requests_wait_for_a_slot_until_their_limit),
        cmocka_unit_test(cancelling_a_request_ends_its_sequence),
        cmocka_unit_test(a_cancelled_request_does_not_wait_for_the_backend),
        cmocka_unit_test(a_cancelled_request_is_answered_at_once),
        cmocka_unit_test(a_cancelled_sequence_leaves_the_backlog),
        cmocka_unit_test(a_stop_does_not_wait_for_silent_sequences),
        cmocka_unit_test(a_stop_examines_only_slots_it_can_free),
        cmocka_unit_test(a_backend_may_reschedule_a_request),
        cmocka_unit_test(only_unanswered_iterative_requests_may_be_rescheduled),
        cmocka_unit_test(a_cancelled_request_is_not_executed_again),
        cmocka_unit_test(ids_and_slots_take_memory_only_while_they_are_used),
        cmocka_unit_test(unended_sequences_use_bounded_memory),
        cmocka_unit_test(many_threads_keep_the_order_of_sequences),
        cmocka_unit_test(lack_of_memory_ends_sequences_not_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
