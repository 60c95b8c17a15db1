/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any dynamic batcher, any clients, any backend. Several threads ask models with random rules and
 * limits, cancel requests, and stop the model, while its instances answer well and badly. Each
 * accepted request is answered once, with what happened to it. Batches keep to their sizes and mix
 * nothing. No request is overtaken, executed too late or executed twice. Meant to run under tsan
 * and asan.
 *
 * A failure prints the seed of the round and its configuration. If it depends on the order of
 * threads, the round must be run several times.
 */
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
#include "base/status.h"
#include "core/sched/execution.h"
#include "core/server/server.h"
#include "core/model/model_statistics.h"
#include "lib/fake_model.h"

enum {
    N_ROUNDS = 80,
    N_CLIENTS = 4,
    N_EACH = 80,
    N_OPEN = 12, /* of one client at a time */
    MAX_INSTANCES = 3,
    MAX_LEVELS = 3,
};

/* The model of a round. */
struct plan {
    unsigned int seed;
    uint32_t max_batch, n_instances, n_levels, max_queue;
    uint32_t timeout_us; /* of the queue policy; 0: none */
    bool override, delays, in_order, ragged, cancels, stops;
    char config[2048];
};

/* What is known of a request before it is sent, and what was seen of it. */
struct asked {
    struct fake_request fake;
    int client, number; /* among the accepted ones of the client */
    uint32_t rows, width, level;
    bool has_more;    /* the optional input */
    uint64_t late_us; /* after this time it is too late; 0: never */
    bool cancelled;
    atomic_int n_executed;
};

static struct {
    struct plan plan;
    struct fake_model model;
    atomic_int n_wrong;
    atomic_int n_late, n_cancelled, n_failed, n_full, n_stopped, n_good;

    /* Per instance; one thread at a time runs an instance. */
    atomic_int n_inside[MAX_INSTANCES];
    uint64_t ended_ns[MAX_INSTANCES];
    unsigned int seeds[MAX_INSTANCES];

    int last[N_CLIENTS][MAX_LEVELS + 1]; /* the last number executed, of one instance */
    atomic_int n_responding;
    int next[N_CLIENTS]; /* the number that is answered next, in order */
} storm;

static void wrong(const char *what, const struct asked *a)
{
    if (atomic_fetch_add(&storm.n_wrong, 1) < 5)
        fprintf(stderr, "seed %u: %s: client %d, request %d\n%s\n", storm.plan.seed, what,
                a->client, a->number, storm.plan.config);
}

static struct asked *of(struct request *r)
{
    return CONTAINER_OF(r, struct asked, fake.request);
}

/* ---- The model ------------------------------------------------------------------------------ */

static unsigned int any(unsigned int *seed, unsigned int n)
{
    return (unsigned int)rand_r(seed) % n;
}

static void make_plan(struct plan *p, unsigned int seed)
{
    static const char *const executions[] = {"auto", "inline", "thread"};
    static const uint32_t delays_us[] = {0, 0, 50, 400}, timeouts_us[] = {0, 0, 200, 2000};
    *p = (struct plan){.seed = seed};
    unsigned int s = seed;
    p->max_batch = any(&s, 9);
    p->n_instances = 1 + any(&s, MAX_INSTANCES);
    p->n_levels = any(&s, 3) ? 0 : MAX_LEVELS;
    p->max_queue = any(&s, 2) ? 0 : 1 + any(&s, 10);
    p->timeout_us = timeouts_us[any(&s, 4)];
    p->override = any(&s, 2);
    p->delays = any(&s, 2);
    p->in_order = p->n_levels == 0 && !p->delays && any(&s, 2);
    p->ragged = any(&s, 2);
    p->cancels = any(&s, 2);
    p->stops = any(&s, 3) == 0;

    FILE *to = fmemopen(p->config, sizeof(p->config), "w");
    fprintf(to, "max_batch_size: %u\n", p->max_batch);
    fprintf(to, "input { name: \"A\" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: %s }\n",
            p->ragged ? "true" : "false");
    fprintf(to, "input { name: \"B\" data_type: TYPE_FP32 dims: [ 1 ] optional: true }\n"
                "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                "dynamic_batching {\n");
    for (unsigned int i = any(&s, 3); i > 0 && p->max_batch > 0; i--)
        fprintf(to, "preferred_batch_size: %u\n", 1 + any(&s, p->max_batch));
    fprintf(to, "max_queue_delay_microseconds: %u\n", delays_us[any(&s, 4)]);
    if (p->n_levels)
        fprintf(to, "priority_levels: %u default_priority_level: 2\n", p->n_levels);
    fprintf(to, "preserve_ordering: %s\n", p->in_order ? "true" : "false");
    fprintf(to,
            "default_queue_policy { max_queue_size: %u default_timeout_microseconds: %u "
            "allow_timeout_override: %s timeout_action: %s }\n}\n",
            p->max_queue, p->timeout_us, p->override ? "true" : "false",
            p->delays ? "DELAY" : "REJECT");
    fprintf(to, "parameters { key: \"CONCH_EXECUTION\" value { string_value: \"%s\" } }\n",
            executions[any(&s, 3)]);
    fclose(to);
}

/* ---- The backend ---------------------------------------------------------------------------- */

static void check_batch(int which, struct request **requests, uint32_t n)
{
    const struct plan *p = &storm.plan;
    const struct asked *first = of(requests[0]);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct asked *a = of(requests[i]);
        uint64_t late_ns = a->fake.request.admitted.queue_ns + a->late_us * NS_PER_US;
        rows += a->rows;
        if (atomic_fetch_add(&a->n_executed, 1) != 0)
            wrong("executed twice", a);
        if ((!p->ragged && a->width != first->width) || a->has_more != first->has_more)
            wrong("in a batch with others", a);
        /* The instance took this batch after it had ended the one before. */
        if (a->late_us && !p->delays && late_ns <= storm.ended_ns[which])
            wrong("executed too late", a);
        bool may_overtake = p->n_instances > 1 || (p->timeout_us && p->delays);
        if (!may_overtake && storm.last[a->client][a->level] >= a->number)
            wrong("overtaken", a);
        if (!may_overtake)
            storm.last[a->client][a->level] = a->number;
    }
    if (n > MAX(p->max_batch, 1u) || (p->max_batch && rows > p->max_batch))
        wrong("too large a batch", first);
    /* Requests in the queue, requests that other instances have just taken, and requests about
     * to be queued. */
    if (p->max_queue && !p->timeout_us && !p->cancels &&
        atomic_load(&storm.model.model->pending) > p->max_queue * MAX(p->n_levels, 1u) +
                                                       p->n_instances * MAX(p->max_batch, 1u) +
                                                       N_CLIENTS)
        wrong("too many wait", first);
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    int which = in->name[2] - '0';
    unsigned int *seed = &storm.seeds[which];
    if (atomic_fetch_add(&storm.n_inside[which], 1) != 0)
        wrong("executed beside another", of(requests[0]));
    check_batch(which, requests, n);
    for (unsigned int i = any(seed, 8); i > 0; i--)
        sched_yield();
    struct status *error = NULL;
    switch (any(seed, 12)) {
    case 0:
        error = status_new(STATUS_INTERNAL, "on purpose");
        break;
    case 1: /* sends no answer */
        for (uint32_t i = 0; i < n; i++)
            status_free(request_release(requests[i]));
        break;
    case 2:
        for (uint32_t i = 0; i < n; i++)
            fake_answer(requests[i]);
        break;
    default:
        for (uint32_t i = n; i-- > 0;)
            fake_answer(requests[i]);
    }
    storm.ended_ns[which] = monotonic_ns();
    atomic_fetch_sub(&storm.n_inside[which], 1);
    return error;
}

/* ---- Clients -------------------------------------------------------------------------------- */

static const struct request_ops *fake_ops;
static struct request_ops ops;

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct asked *a = of(r);
    if (storm.plan.in_order) {
        if (atomic_fetch_add(&storm.n_responding, 1) != 0)
            wrong("answered beside another", a);
        if (storm.next[a->client]++ != a->number)
            wrong("answered out of order", a);
        atomic_fetch_sub(&storm.n_responding, 1);
    }
    fake_ops->respond(r, resp, flags);
}

static void add_input(struct asked *a, const char *name, uint32_t width)
{
    static const float values[64];
    int64_t shape[] = {a->rows, width};
    bool batching = storm.plan.max_batch > 0;
    struct tensor_buffer data = {.base = values,
                                 .size_bytes = (size_t)a->rows * width * sizeof(float)};
    struct input *in;
    assert_null(request_add_input(&a->fake.request, name, 1, DTYPE_FP32,
                                  batching ? shape : shape + 1, 1 + batching, &in));
    assert_null(request_add_data(&a->fake.request, in, &data));
}

static void prepare(struct asked *a, unsigned int *seed, struct inline_budget *budget)
{
    static const uint64_t asked_us[] = {0, 0, 1, 100, 100000};
    const struct plan *p = &storm.plan;
    fake_request_make(&a->fake, &storm.model);
    struct request *r = &a->fake.request;
    r->ops = &ops;
    r->maker.inline_budget = budget;
    r->maker.priority = any(seed, MAX_LEVELS + 3); /* also 0 and levels that do not exist */
    r->maker.timeout_us = asked_us[any(seed, 5)];
    a->rows = p->max_batch ? 1 + any(seed, p->max_batch) : 1;
    a->width = 1 + any(seed, 2);
    a->has_more = any(seed, 4) == 0;
    a->level = p->n_levels && r->maker.priority && r->maker.priority <= p->n_levels
                   ? (uint32_t)r->maker.priority
               : p->n_levels ? 2
                             : 0;
    a->late_us = p->timeout_us;
    if (p->timeout_us && p->override && r->maker.timeout_us && r->maker.timeout_us < p->timeout_us)
        a->late_us = r->maker.timeout_us;
    a->cancelled = false;
    atomic_init(&a->n_executed, 0);
    bool reversed = any(seed, 2);
    if (a->has_more && reversed)
        add_input(a, "B", 1);
    add_input(a, "A", a->width);
    if (a->has_more && !reversed)
        add_input(a, "B", 1);
}

/* Asserts that the request was refused for a reason that it has. */
static void check_refusal(const struct asked *a, struct status *st)
{
    const char *text = status_message(st);
    bool full = strstr(text, "Exceeds maximum queue size") && storm.plan.max_queue;
    bool stopped = strstr(text, "has stopped accepting new inference requests") && storm.plan.stops;
    if (status_code(st) != STATUS_UNAVAILABLE || (!full && !stopped))
        wrong(text, a);
    atomic_fetch_add(full ? &storm.n_full : &storm.n_stopped, 1);
    if (a->fake.n_responses + a->fake.n_final + a->fake.n_released != 0)
        wrong("refused, yet answered", a);
    status_free(st);
}

/* Asserts that the request ended as it had to. */
static void check_end(const struct asked *a)
{
    const struct fake_request *f = &a->fake;
    bool executed = atomic_load(&a->n_executed) == 1;
    if (f->n_responses != 1 || f->n_final != 1 || f->n_released != 1)
        wrong("not answered exactly once", a);
    if (!f->failed) {
        atomic_fetch_add(&storm.n_good, 1);
        if (!executed)
            wrong("answered without being executed", a);
    } else if (f->last_code == STATUS_CANCELLED) {
        atomic_fetch_add(&storm.n_cancelled, 1);
        if (!a->cancelled || executed)
            wrong("cancelled by nobody, or executed all the same", a);
    } else if (strcmp(f->last_error, "Request timeout expired") == 0) {
        atomic_fetch_add(&storm.n_late, 1);
        if (!a->late_us || storm.plan.delays || executed)
            wrong("rejected without a limit, or executed all the same", a);
    } else if (!executed || (strcmp(f->last_error, "on purpose") != 0 &&
                             !strstr(f->last_error, "without a final response"))) {
        wrong(f->last_error, a);
    } else if (strcmp(f->last_error, "on purpose") == 0) {
        atomic_fetch_add(&storm.n_failed, 1);
    }
}

static void ignore(struct inline_budget *budget)
{
    (void)budget; /* pull_run_deferred() is called elsewhere */
}

static void *be_a_client(void *arg)
{
    int client = (int)(uintptr_t)arg, n_accepted = 0;
    unsigned int seed = storm.plan.seed * N_CLIENTS + (unsigned int)client;
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS,
                                   .on_wait = client % 2 ? ignore : NULL};
    struct asked *ring = calloc(N_OPEN, sizeof(*ring));
    bool open[N_OPEN] = {false};
    for (int i = 0; i < N_EACH + N_OPEN; i++) {
        struct asked *a = &ring[i % N_OPEN];
        if (open[i % N_OPEN]) {
            pull_run_deferred(&budget);
            fake_request_wait(&a->fake);
            check_end(a);
            fake_request_end(&a->fake);
            open[i % N_OPEN] = false;
        }
        if (i >= N_EACH)
            continue;
        prepare(a, &seed, any(&seed, 2) ? &budget : NULL);
        a->client = client;
        a->number = n_accepted;
        /* The flag must be set before another thread may examine the request's end. */
        a->cancelled = storm.plan.cancels && any(&seed, 4) == 0;
        struct status *st = server_infer(&storm.model.server, &a->fake.request);
        if (st) {
            check_refusal(a, st);
            fake_request_end(&a->fake);
            continue;
        }
        n_accepted++;
        open[i % N_OPEN] = true;
        if (a->cancelled)
            request_cancel(&a->fake.request);
        if (any(&seed, 3) == 0) {
            pull_run_deferred(&budget);
            budget.left_ns = EXECUTION_BUDGET_NS;
        }
    }
    pull_run_deferred(&budget);
    free(ring);
    return NULL;
}

static void run_round(unsigned int seed)
{
    pthread_t clients[N_CLIENTS];
    memset(&storm, 0, sizeof(storm));
    make_plan(&storm.plan, seed);
    memset(storm.last, -1, sizeof(storm.last));
    for (unsigned int i = 0; i < MAX_INSTANCES; i++)
        storm.seeds[i] = seed + i;
    fake_model_make(&storm.model, storm.plan.config, storm.plan.n_instances, execute);
    for (uintptr_t i = 0; i < N_CLIENTS; i++)
        pthread_create(&clients[i], NULL, be_a_client, (void *)i);
    if (storm.plan.stops) {
        for (unsigned int i = seed % 200; i > 0; i--)
            sched_yield();
        model_stop(storm.model.model);
    }
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(clients[i], NULL);

    struct statistics statistics;
    assert_null(model_statistics(storm.model.model, &statistics));
    assert_int_equal(statistics.failures[FAILURE_CANCELED], atomic_load(&storm.n_cancelled));
    assert_int_equal(statistics.failures[FAILURE_REJECTED], atomic_load(&storm.n_late));
    assert_int_equal(statistics.failures[FAILURE_BACKEND], atomic_load(&storm.n_failed));
    statistics_done(&statistics);
    assert_int_equal(atomic_load(&storm.model.model->pending), 0);
    fake_model_end(&storm.model);
    assert_int_equal(atomic_load(&storm.n_wrong), 0);
}

static void each_request_is_answered_once_by_any_batcher(void **state)
{
    (void)state;
    int n_late = 0, n_cancelled = 0, n_full = 0, n_stopped = 0, n_good = 0;
    for (unsigned int seed = 1; seed <= N_ROUNDS; seed++) {
        run_round(seed);
        n_late += atomic_load(&storm.n_late);
        n_cancelled += atomic_load(&storm.n_cancelled);
        n_full += atomic_load(&storm.n_full);
        n_stopped += atomic_load(&storm.n_stopped);
        n_good += atomic_load(&storm.n_good);
    }
    /* Each possible end of a request has occurred. */
    print_message("%d executed, %d late, %d cancelled, %d too many, %d after the stop\n", n_good,
                  n_late, n_cancelled, n_full, n_stopped);
    assert_true(n_good > N_ROUNDS * N_EACH);
    assert_true(n_late > 0 && n_cancelled > 0 && n_full > 0 && n_stopped > 0);
}

static int make_ops(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    make_plan(&storm.plan, 1);
    fake_model_make(&f, storm.plan.config, 1, execute);
    fake_request_make(&fr, &f);
    fake_ops = fr.request.ops;
    ops = *fake_ops;
    ops.respond = respond;
    fake_request_end(&fr);
    fake_model_end(&f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_is_answered_once_by_any_batcher),
    };
    return cmocka_run_group_tests(tests, make_ops, NULL);
}
