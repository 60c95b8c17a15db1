/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses are sent in the order of their requests: first step by step, with the test itself as
 * the backend, then from many threads at once, which is meant to run under tsan.
 */
#include "core/sched/response_order.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/server/server.h"
#include "lib/fake_model.h"

#define TENSORS                                                                                    \
    "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"                                     \
    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n"

static void prepare(struct fake_request *fr, struct fake_model *f, const struct request_ops *ops)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t shape[2] = {1, 1};
    fake_request_make(fr, f);
    fr->request.ops = ops;
    assert_null(
        request_add_input(&fr->request, "A", 1, DTYPE_FP32, shape, 1 + f->model->batching, &in));
    assert_null(request_add_data(&fr->request, in, &data));
}

/* ---- Step by step --------------------------------------------------------------------------- */

/*
 * What the maker of the requests a, b, c … gets: `a` a response, `a!` a response with the final
 * flag, `-a!` the flag alone, `a.` the release of the request.
 */
static char heard[256];
static const struct request_ops *fake_ops;

static void note(const char *before, const struct request *r, const char *after)
{
    size_t used = strlen(heard);
    snprintf(heard + used, sizeof(heard) - used, "%s%s%s ", before, r->maker.id, after);
}

static void note_respond(struct request *r, struct response *resp, uint32_t flags)
{
    note(resp ? "" : "-", r, flags & RESPONSE_FINAL ? "!" : "");
    fake_ops->respond(r, resp, flags);
}

static void note_release(struct request *r, uint32_t flags)
{
    note("", r, ".");
    fake_ops->release(r, flags);
}

static struct request_ops noting_ops;

static void assert_heard(const char *what)
{
    assert_string_equal(heard, what);
    heard[0] = '\0';
}

struct steps {
    struct fake_model model;
    struct response_order order;
    struct fake_request requests[4];
};

static struct status *never(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    (void)requests;
    fail_msg("%u requests are executed, which nobody has submitted", n);
    return NULL;
}

/* The backend has four requests, whose positions are in alphabetical order. */
static struct steps *steps_new(void)
{
    struct steps *s = calloc(1, sizeof(*s));
    heard[0] = '\0';
    fake_model_make(&s->model, TENSORS, 1, never);
    response_order_init(&s->order);
    for (int i = 0; i < 4; i++) {
        struct request *r = &s->requests[i].request;
        prepare(&s->requests[i], &s->model, NULL);
        r->ops = &noting_ops;
        assert_null(request_set_id(r, &"abcd"[i], 1));
        request_begin(r);
        response_order_add(&s->order, r);
        atomic_store(&r->life.stage, REQUEST_EXECUTING);
    }
    return s;
}

/* Call it after all requests are answered. */
static void steps_free(struct steps *s)
{
    response_order_done(&s->order);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(s->requests[i].n_final, 1);
        assert_int_equal(s->requests[i].n_released, 1);
        fake_request_end(&s->requests[i]);
    }
    fake_model_end(&s->model);
    free(s);
}

static void send(struct steps *s, int which, uint32_t flags)
{
    struct response *resp;
    assert_null(response_new(&s->requests[which].request, &resp));
    assert_null(response_send(resp, flags, NULL));
}

static void release(struct steps *s, int which)
{
    assert_null(request_release(&s->requests[which].request));
}

static void finish(struct steps *s, int which)
{
    send(s, which, RESPONSE_FINAL);
    release(s, which);
}

static void a_late_response_holds_up_later_positions(void **state)
{
    (void)state;
    struct steps *s = steps_new();
    finish(s, 2);
    finish(s, 1);
    assert_heard("");
    finish(s, 0);
    /* A request is released after its thread has sent the responses that waited behind it. The
     * backend's release of the first request comes last. */
    assert_heard("a! b! b. c! c. a. ");
    finish(s, 3);
    assert_heard("d! d. ");
    steps_free(s);
}

static void responses_in_order_do_not_wait(void **state)
{
    (void)state;
    struct steps *s = steps_new();
    for (int i = 0; i < 4; i++)
        finish(s, i);
    assert_heard("a! a. b! b. c! c. d! d. ");
    steps_free(s);
}

static void a_request_that_waits_for_its_position_has_not_ended(void **state)
{
    (void)state;
    struct steps *s = steps_new();
    struct fake_request *b = &s->requests[1];
    finish(s, 1);
    assert_int_equal(b->n_released, 0);
    assert_int_equal(model_inflight(s->model.model), 4);
    struct status *st = server_infer(&s->model.server, &b->request);
    assert_string_equal(status_message(st), "[request id: b] request is in flight already");
    status_free(st);
    for (int i = 0; i < 4; i++) {
        if (i != 1)
            finish(s, i);
    }
    assert_int_equal(b->n_released, 1);
    steps_free(s);
}

static void a_request_may_have_several_responses(void **state)
{
    (void)state;
    struct steps *s = steps_new();
    send(s, 1, 0);
    send(s, 1, 0);
    send(s, 0, 0);
    assert_heard("a "); /* responses of the first request are sent as they come */
    send(s, 0, 0);
    assert_heard("a ");
    send(s, 2, 0);
    assert_null(request_send_flags(&s->requests[0].request, RESPONSE_FINAL));
    assert_heard("-a! b b ");
    send(s, 1, 0);
    assert_heard("b ");
    assert_null(request_send_flags(&s->requests[2].request, RESPONSE_FINAL));
    finish(s, 1);
    assert_heard("b! c -c! b. ");
    release(s, 0);
    release(s, 2);
    finish(s, 3);
    assert_heard("a. c. d! d. ");
    steps_free(s);
}

static void empty_sends_without_a_flag_are_not_kept(void **state)
{
    (void)state;
    struct steps *s = steps_new();
    assert_null(request_send_flags(&s->requests[1].request, 0));
    assert_null(request_send_flags(&s->requests[1].request, RESPONSE_FINAL));
    finish(s, 0);
    assert_heard("a! -b! a. ");
    release(s, 1);
    finish(s, 2);
    finish(s, 3);
    steps_free(s);
}

static void the_core_answers_a_forgotten_request_in_its_position(void **state)
{
    (void)state;
    struct steps *s = steps_new();
    release(s, 1);
    send(s, 2, 0);
    release(s, 2);
    assert_heard("");
    assert_int_equal(s->requests[1].n_released + s->requests[2].n_released, 0);
    finish(s, 0);
    assert_heard("a! b! b. c c! c. a. ");
    assert_true(s->requests[1].failed);
    assert_true(s->requests[2].failed);
    assert_string_equal(s->requests[2].last_error,
                        "model 'm' released the request without a final response");
    finish(s, 3);
    steps_free(s);
}

static void errors_and_rejections_keep_their_position(void **state)
{
    (void)state;
    struct steps *s = steps_new();
    struct response *resp;
    request_fail_queued(&s->requests[3].request, FAILURE_REJECTED,
                        status_new(STATUS_UNAVAILABLE, "too late"));
    request_fail(&s->requests[1].request, status_new(STATUS_INTERNAL, "broken"));
    assert_null(response_new(&s->requests[2].request, &resp));
    assert_null(response_send(resp, RESPONSE_FINAL, status_new(STATUS_INTERNAL, "of its own")));
    release(s, 2);
    release(s, 1);
    assert_heard("");
    finish(s, 0);
    assert_heard("a! b! b. c! c. d! d. a. ");
    assert_string_equal(s->requests[1].last_error, "broken");
    assert_string_equal(s->requests[2].last_error, "of its own");
    assert_string_equal(s->requests[3].last_error, "too late");
    steps_free(s);
}

/* Two threads of a backend send at once: the final flag is claimed, and its response is not sent
 * yet. */
static void a_response_after_the_final_one_is_dropped(void **state)
{
    (void)state;
    struct steps *s = steps_new();
    struct response *late;
    assert_null(response_make(&s->requests[1].request, &late));
    late->sent = true;
    send(s, 1, RESPONSE_FINAL);
    response_order_respond(&s->requests[1].request, late, 0);
    response_order_respond(&s->requests[1].request, NULL, RESPONSE_FINAL);
    finish(s, 0);
    assert_heard("a! b! a. ");
    release(s, 1);
    finish(s, 2);
    finish(s, 3);
    steps_free(s);
}

/* ---- All at once ---------------------------------------------------------------------------- */

enum { N_SUBMITTERS = 4, N_EACH = 1000, N_OPEN = 16, N_NESTED = 1000, N_COMPLETERS = 3, BAG = 256 };

static const char batching[] = TENSORS "max_batch_size: 4\n"
                                       "dynamic_batching { preserve_ordering: true }\n";

/* Requests that are executed and not answered yet. Each completing thread takes any of them. */
static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    struct request *requests[BAG];
    int n;
    bool over;
} bag = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct status *put_into_bag(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    pthread_mutex_lock(&bag.mu);
    for (uint32_t i = 0; i < n; i++)
        bag.requests[bag.n++] = requests[i];
    pthread_cond_broadcast(&bag.changed);
    pthread_mutex_unlock(&bag.mu);
    return NULL;
}

/* Answers in the ways of good and of bad backends. */
static void complete(struct request *r, unsigned int *seed)
{
    struct response *resp;
    switch (rand_r(seed) % 8) {
    case 0: /* the core answers in its place */
        assert_null(request_release(r));
        break;
    case 1:
        assert_null(response_new(r, &resp));
        assert_null(response_send(resp, 0, NULL));
        assert_null(request_send_flags(r, RESPONSE_FINAL));
        assert_null(request_release(r));
        break;
    case 2: /* the response comes after the release */
        assert_null(response_new(r, &resp));
        assert_null(request_release(r));
        assert_null(response_send(resp, RESPONSE_FINAL, NULL));
        break;
    default:
        fake_answer(r);
    }
}

static void *complete_many(void *arg)
{
    unsigned int seed = (unsigned int)(uintptr_t)arg;
    pthread_mutex_lock(&bag.mu);
    for (;;) {
        while (bag.n == 0 && !bag.over)
            pthread_cond_wait(&bag.changed, &bag.mu);
        if (bag.n == 0)
            break;
        int i = rand_r(&seed) % bag.n;
        struct request *r = bag.requests[i];
        bag.requests[i] = bag.requests[--bag.n];
        pthread_mutex_unlock(&bag.mu);
        complete(r, &seed);
        pthread_mutex_lock(&bag.mu);
    }
    pthread_mutex_unlock(&bag.mu);
    return NULL;
}

/* A request that knows its submitter and its number. */
struct numbered {
    struct fake_request fake;
    int of, number;
};

static struct {
    struct fake_model model;
    atomic_int n_inside;              /* threads in a response callback */
    int next[N_SUBMITTERS + 1];       /* the number expected next; written in callbacks alone */
    int n_nested;                     /* requests that callbacks have submitted; written in
                                       * callbacks alone */
    struct numbered nested[N_NESTED]; /* requests of the last submitter */
    atomic_int n_wrong;
} all;

static struct request_ops checking_ops;

static void submit(struct numbered *n, int of, int number)
{
    prepare(&n->fake, &all.model, &checking_ops);
    n->of = of;
    n->number = number;
    assert_null(server_infer(&all.model.server, &n->fake.request));
}

static void check_respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct numbered *n = CONTAINER_OF(r, struct numbered, fake.request);
    if (atomic_fetch_add(&all.n_inside, 1) != 0 || n->number != all.next[n->of])
        atomic_fetch_add(&all.n_wrong, 1);
    if (flags & RESPONSE_FINAL) {
        all.next[n->of]++;
        if (n->of < N_SUBMITTERS && all.n_nested < N_NESTED && n->number % 3 == 0) {
            int number = all.n_nested++;
            submit(&all.nested[number], N_SUBMITTERS, number);
        }
    }
    atomic_fetch_sub(&all.n_inside, 1);
    fake_ops->respond(r, resp, flags);
}

static void *submit_many(void *arg)
{
    int of = (int)(uintptr_t)arg;
    struct numbered *ring = calloc(N_OPEN, sizeof(*ring));
    for (int i = 0; i < N_EACH + N_OPEN; i++) {
        struct numbered *n = &ring[i % N_OPEN];
        if (i >= N_OPEN) {
            fake_request_wait(&n->fake);
            fake_request_end(&n->fake);
        }
        if (i < N_EACH) {
            submit(n, of, i);
            if (i % 7 == 0)
                request_cancel(&n->fake.request);
        }
    }
    free(ring);
    return NULL;
}

static void many_threads_complete_requests_in_any_order(void **state)
{
    (void)state;
    pthread_t submitters[N_SUBMITTERS], completers[N_COMPLETERS];
    memset(&all, 0, sizeof(all));
    bag.over = false;
    fake_model_make(&all.model, batching, 3, put_into_bag);
    for (uintptr_t i = 0; i < N_COMPLETERS; i++)
        pthread_create(&completers[i], NULL, complete_many, (void *)(i + 1));
    for (uintptr_t i = 0; i < N_SUBMITTERS; i++)
        pthread_create(&submitters[i], NULL, submit_many, (void *)i);
    for (int i = 0; i < N_SUBMITTERS; i++)
        pthread_join(submitters[i], NULL);
    /* The callbacks of the other submitters have ended, so no more requests are submitted. */
    for (int i = 0; i < all.n_nested; i++) {
        fake_request_wait(&all.nested[i].fake);
        fake_request_end(&all.nested[i].fake);
    }
    fake_model_end(&all.model);
    pthread_mutex_lock(&bag.mu);
    bag.over = true;
    pthread_cond_broadcast(&bag.changed);
    pthread_mutex_unlock(&bag.mu);
    for (int i = 0; i < N_COMPLETERS; i++)
        pthread_join(completers[i], NULL);
    assert_int_equal(atomic_load(&all.n_wrong), 0);
    for (int i = 0; i < N_SUBMITTERS; i++)
        assert_int_equal(all.next[i], N_EACH);
    assert_int_equal(all.next[N_SUBMITTERS], all.n_nested);
    assert_int_equal(all.n_nested, N_NESTED);
}

/* ---- Inline, on the thread of the request ---------------------------------------------------- */

static struct {
    struct fake_model model;
    struct inline_budget inline_budget;
    struct fake_request requests[20];
    int n, n_done;
} chain;

static struct request_ops chain_ops;

/* Each response submits the next request, which may be executed inside the call. */
static void chain_respond(struct request *r, struct response *resp, uint32_t flags)
{
    assert_ptr_equal(r, &chain.requests[chain.n_done].request);
    chain.n_done++;
    if (chain.n < 20) {
        struct fake_request *next = &chain.requests[chain.n++];
        prepare(next, &chain.model, &chain_ops);
        next->request.maker.inline_budget = &chain.inline_budget;
        assert_null(server_infer(&chain.model.server, &next->request));
        assert_int_equal(next->n_responses, 0); /* not from inside the callback */
    }
    fake_ops->respond(r, resp, flags);
}

static struct status *answer_all(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = n; i-- > 0;)
        fake_answer(requests[i]);
    return NULL;
}

static void a_callback_that_submits_is_not_entered_again(void **state)
{
    (void)state;
    memset(&chain, 0, sizeof(chain));
    chain.inline_budget.left_ns = UINT64_MAX;
    fake_model_make(&chain.model,
                    TENSORS
                    "max_batch_size: 4 dynamic_batching { preserve_ordering: true }\n"
                    "parameters { key: 'CONCH_EXECUTION' value { string_value: 'inline' } }",
                    2, answer_all);
    chain.n = 1;
    prepare(&chain.requests[0], &chain.model, &chain_ops);
    chain.requests[0].request.maker.inline_budget = &chain.inline_budget;
    assert_null(server_infer(&chain.model.server, &chain.requests[0].request));
    assert_int_equal(chain.n_done, 20); /* one instance is busy all the time, the other executes */
    fake_model_end(&chain.model);
    for (int i = 0; i < 20; i++)
        fake_request_end(&chain.requests[i]);
}

static int make_ops(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    fake_model_make(&f, TENSORS, 1, never);
    fake_request_make(&fr, &f);
    fake_ops = fr.request.ops;
    noting_ops = checking_ops = chain_ops = *fake_ops;
    noting_ops.respond = note_respond;
    noting_ops.release = note_release;
    checking_ops.respond = check_respond;
    chain_ops.respond = chain_respond;
    fake_request_end(&fr);
    fake_model_end(&f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(responses_in_order_do_not_wait),
        cmocka_unit_test(a_late_response_holds_up_later_positions),
        cmocka_unit_test(a_request_that_waits_for_its_position_has_not_ended),
        cmocka_unit_test(a_request_may_have_several_responses),
        cmocka_unit_test(empty_sends_without_a_flag_are_not_kept),
        cmocka_unit_test(the_core_answers_a_forgotten_request_in_its_position),
        cmocka_unit_test(errors_and_rejections_keep_their_position),
        cmocka_unit_test(a_response_after_the_final_one_is_dropped),
        cmocka_unit_test(many_threads_complete_requests_in_any_order),
        cmocka_unit_test(a_callback_that_submits_is_not_entered_again),
    };
    return cmocka_run_group_tests(tests, make_ops, NULL);
}
