/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate limiter: every order of events of small systems, the order of turns, the amounts of
 * resources; then in a scheduler, where executions never take more than there is, and nothing waits
 * for ever.
 */
#include "core/sched/limiter.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lib/fake_model.h"

static const char config[] =
    "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] optional: true }\n"
    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

/* ---- Instances without a scheduler ----------------------------------------------------------- */

enum { MOST = 8, KINDS = 3 };

/* Instances whose groups need need[k] of the resource k, "0" … */
struct set {
    struct server_options *options;
    struct limiter *limiter;
    uint32_t n;
    struct instance instances[MOST], *pointers[MOST];
    Inference__ModelInstanceGroup groups[MOST];
    Inference__ModelRateLimiter wants[MOST];
    Inference__ModelRateLimiter__Resource resources[MOST][KINDS], *lists[MOST][KINDS];
};

static struct fake_model fake; /* the model of all: granted instances keep it */

static char names[KINDS][2] = {"0", "1", "2"};

static void begin_set(struct set *s)
{
    memset(s, 0, sizeof(*s));
    s->options = server_options_new();
    s->options->limits_rate = true;
}

static void add(struct set *s, uint32_t priority, const uint32_t need[KINDS], bool global)
{
    uint32_t i = s->n++;
    inference__model_instance_group__init(&s->groups[i]);
    inference__model_rate_limiter__init(&s->wants[i]);
    for (size_t k = 0; k < KINDS; k++) {
        if (!need[k])
            continue;
        Inference__ModelRateLimiter__Resource *r = &s->resources[i][k];
        inference__model_rate_limiter__resource__init(r);
        r->name = names[k];
        r->count = need[k];
        r->global = global;
        s->lists[i][s->wants[i].n_resources++] = r;
    }
    s->wants[i].resources = s->lists[i];
    s->wants[i].priority = priority;
    s->groups[i].rate_limiter = &s->wants[i];
    s->instances[i].group = &s->groups[i];
    s->instances[i].model = fake.model;
    s->pointers[i] = &s->instances[i];
}

static struct status *join(struct set *s)
{
    s->limiter = limiter_new(s->options);
    return limiter_add_instances(s->limiter, s->pointers, s->n);
}

static void end_set(struct set *s)
{
    limiter_remove_instances(s->limiter, s->pointers, s->n);
    limiter_free(s->limiter);
    server_options_free(s->options);
}

static struct limit *limit_of(struct set *s, uint32_t i)
{
    return s->instances[i].limit;
}

/* Takes the granted instances over as a scheduler does; returns them as bits. */
static uint32_t take_granted(struct set *s, struct list *granted)
{
    uint32_t bits = 0;
    struct list *link;
    while ((link = list_pop(granted))) {
        struct instance *in = LIST_ENTRY(link, struct limit, link)->instance;
        bits |= 1u << (in - s->instances);
        model_request_ended(in->model);
        model_unref(in->model);
    }
    return bits;
}

static uint32_t next_turn(struct set *s, uint32_t i, bool wants, enum turn *ret)
{
    struct list granted = LIST_INIT(granted);
    *ret = limit_next_turn(limit_of(s, i), wants, true, &granted);
    return take_granted(s, &granted);
}

/* ---- Every order of events ------------------------------------------------------------------- */

/* Which resources are free, by the states of the instances alone. */
static void count_free(struct set *s, const uint64_t amount[KINDS], uint64_t ret_free[KINDS])
{
    memcpy(ret_free, amount, KINDS * sizeof(*amount));
    for (uint32_t i = 0; i < s->n; i++) {
        for (size_t k = 0; k < KINDS && limit_of(s, i)->state == LIMIT_HELD; k++) {
            assert_in_range(s->resources[i][k].count, 0, ret_free[k]);
            ret_free[k] -= s->resources[i][k].count;
        }
    }
}

static bool fits(struct set *s, uint32_t i, const uint64_t free[KINDS])
{
    bool yes = true;
    for (size_t k = 0; k < KINDS; k++)
        yes &= s->resources[i][k].count <= free[k];
    return yes;
}

static bool share(struct set *s, uint32_t a, uint32_t b)
{
    bool yes = false;
    for (size_t k = 0; k < KINDS; k++)
        yes |= s->resources[a][k].count && s->resources[b][k].count;
    return yes;
}

/* Nothing is taken twice. One that fits waits only for one that has been passed often enough. */
static void check(struct set *s, const uint64_t amount[KINDS])
{
    uint64_t free[KINDS];
    count_free(s, amount, free);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct limit *l = limit_of(s, i);
        if (l->state != LIMIT_WAITING)
            continue;
        assert_in_range(l->n_passed, 0, LIMITER_MAX_PASSED);
        bool may_wait = !fits(s, i, free);
        for (uint32_t other = 0; other < s->n; other++)
            may_wait |= other != i && limit_of(s, other)->state == LIMIT_WAITING &&
                        limit_of(s, other)->n_passed >= LIMITER_MAX_PASSED && share(s, i, other);
        assert_true(may_wait);
    }
}

enum {
    EVENTS = 4
}; /* of an instance: it has work; its batch ends, with more or not; it withdraws */

/* Returns whether the event was possible. */
static bool happen(struct set *s, uint32_t i, int event)
{
    enum turn turn;
    struct limit *l = limit_of(s, i);
    switch (event) {
    case 0:
        if (l->state != LIMIT_FREE)
            return false;
        turn = limit_begin_turn(l);
        assert_int_equal(turn == TURN_BEGUN, l->state == LIMIT_HELD);
        return true;
    case 1:
    case 2:
        if (l->state != LIMIT_HELD)
            return false;
        while (next_turn(s, i, event == 1, &turn) && event == 1 && turn == TURN_NONE)
            ;
        assert_int_equal(turn == TURN_NONE, event == 2);
        return true;
    default:
        return l->state == LIMIT_WAITING && limit_withdraw(l);
    }
}

static const uint32_t systems[][4][KINDS] = {
    {{1}, {1}, {1}},
    {{2}, {1}, {1}},
    {{3}, {2}, {1}, {1}},
    {{1, 1}, {1, 0}, {0, 1}},
    {{1, 1, 0}, {0, 1, 1}, {1, 0, 1}},
    {{2, 1}, {1, 2}, {1, 0}, {0, 0}},
};

static void make_system(struct set *s, size_t which, uint64_t amount[KINDS])
{
    memset(amount, 0, KINDS * sizeof(*amount));
    begin_set(s);
    for (uint32_t i = 0; i < 4; i++) {
        add(s, i, systems[which][i], false);
        for (size_t k = 0; k < KINDS; k++)
            amount[k] = MAX(amount[k], (uint64_t)systems[which][i][k]);
    }
    assert_null(join(s));
}

static void every_order_of_five_events_is_right(void **state)
{
    (void)state;
    enum { DEPTH = 5, CHOICES = 4 * EVENTS };
    for (size_t which = 0; which < ARRAY_SIZE(systems); which++) {
        int path[DEPTH] = {0};
        size_t n_paths = 0;
        for (;;) {
            struct set s;
            uint64_t amount[KINDS];
            int done = 0;
            make_system(&s, which, amount);
            while (done < DEPTH && happen(&s, (uint32_t)path[done] / EVENTS, path[done] % EVENTS)) {
                check(&s, amount);
                done++;
            }
            n_paths += done == DEPTH;
            for (uint32_t i = 0; i < s.n; i++)
                (void)(happen(&s, i, 3) || happen(&s, i, 2));
            for (uint32_t i = 0; i < s.n; i++)
                (void)happen(&s, i, 2); /* granted by the ends before */
            end_set(&s);
            /* The next path that differs at the event that was not possible, or at the last. */
            int at = MIN(done, DEPTH - 1);
            for (int i = at + 1; i < DEPTH; i++)
                path[i] = 0;
            while (at >= 0 && ++path[at] == CHOICES)
                path[at--] = 0;
            if (at < 0)
                break;
        }
        assert_true(n_paths > 100);
    }
}

static void many_random_events_are_right(void **state)
{
    (void)state;
    uint64_t random = 88172645463325252;
    for (size_t which = 0; which < ARRAY_SIZE(systems); which++) {
        struct set s;
        uint64_t amount[KINDS];
        make_system(&s, which, amount);
        for (int i = 0; i < 20000; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (void)happen(&s, random % 4, (int)(random >> 8) % EVENTS);
            check(&s, amount);
        }
        for (int i = 0; i < 8; i++)
            (void)(happen(&s, (uint32_t)i % 4, 3) || happen(&s, (uint32_t)i % 4, 2));
        for (uint32_t i = 0; i < s.n; i++)
            assert_int_equal(limit_of(&s, i)->state, LIMIT_FREE);
        end_set(&s);
    }
}

/* ---- The order of turns ---------------------------------------------------------------------- */

/* All always have work. Each turn ends after those that began before it. */
static void run_turns(struct set *s, int n_turns, int counts[MOST])
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < s->n; i++)
        running |= (uint32_t)(limit_begin_turn(limit_of(s, i)) == TURN_BEGUN) << i;
    for (int t = 0; t < n_turns;) {
        for (uint32_t i = 0; i < s->n; i++) {
            enum turn turn = TURN_NONE;
            if (!(running >> i & 1))
                continue;
            t++;
            counts[i]++;
            running &= ~(1u << i);
            while (turn == TURN_NONE)
                running |= next_turn(s, i, true, &turn);
            running |= (uint32_t)(turn == TURN_BEGUN) << i;
        }
    }
    for (uint32_t i = 0; i < s->n; i++)
        (void)limit_withdraw(limit_of(s, i));
    for (uint32_t i = 0; i < s->n; i++) {
        enum turn turn;
        if (running >> i & 1)
            (void)next_turn(s, i, false, &turn);
    }
}

static void eight_share_one_resource_alike(void **state)
{
    (void)state;
    struct set s;
    int counts[MOST] = {0};
    begin_set(&s);
    for (int i = 0; i < MOST; i++)
        add(&s, 0, (const uint32_t[KINDS]){1}, true);
    assert_null(join(&s));
    run_turns(&s, 8000, counts);
    for (int i = 0; i < MOST; i++)
        assert_in_range(counts[i], 990, 1010);
    end_set(&s);
}

static void a_higher_priority_has_more_turns(void **state)
{
    (void)state;
    struct set s;
    int counts[MOST] = {0};
    begin_set(&s);
    add(&s, 1, (const uint32_t[KINDS]){1}, true);
    add(&s, 2, (const uint32_t[KINDS]){1}, true);
    add(&s, 4, (const uint32_t[KINDS]){1}, true);
    assert_null(join(&s));
    run_turns(&s, 7000, counts);
    assert_in_range(counts[0], 3990, 4010);
    assert_in_range(counts[1], 1990, 2010);
    assert_in_range(counts[2], 990, 1010);
    end_set(&s);
}

/* One that needs all is not passed for ever by those that need less. */
static void one_that_needs_all_has_turns(void **state)
{
    (void)state;
    struct set s;
    int counts[MOST] = {0};
    begin_set(&s);
    add(&s, 1, (const uint32_t[KINDS]){4}, true);
    for (int i = 1; i < MOST; i++)
        add(&s, 1, (const uint32_t[KINDS]){1}, true);
    assert_null(join(&s));
    run_turns(&s, 8000, counts);
    for (int i = 0; i < MOST; i++)
        assert_in_range(counts[i], 400, 1300);
    end_set(&s);
}

static void one_that_was_idle_does_not_make_up_for_it(void **state)
{
    (void)state;
    struct set s;
    int counts[MOST] = {0};
    begin_set(&s);
    add(&s, 1, (const uint32_t[KINDS]){1}, true);
    add(&s, 1, (const uint32_t[KINDS]){1}, true);
    assert_null(join(&s));
    s.n = 1;
    run_turns(&s, 1000, counts);
    s.n = 2;
    memset(counts, 0, sizeof(counts));
    run_turns(&s, 100, counts);
    assert_in_range(counts[0], 48, 52);
    end_set(&s);
}

/* ---- Amounts --------------------------------------------------------------------------------- */

static void expect(struct set *s, const char *error)
{
    struct status *st = join(s);
    if (error)
        assert_string_equal(status_message(st), error);
    else
        assert_null(st);
    status_free(st);
    end_set(s);
}

static void options_limit_resources(void **state)
{
    (void)state;
    struct set s;
    begin_set(&s);
    server_options_add_rate_resource(s.options, "0", 2, -1);
    add(&s, 1, (const uint32_t[KINDS]){3}, false);
    expect(&s, "Resource count for \"0\" is limited to 2 which will prevent scheduling of one or "
               "more model instances, the minimum required count is 3");
    begin_set(&s); /* the larger one of the device's and any's */
    server_options_add_rate_resource(s.options, "0", 2, -1);
    server_options_add_rate_resource(s.options, "0", 3, 0);
    add(&s, 1, (const uint32_t[KINDS]){3}, false);
    expect(&s, NULL);
    begin_set(&s); /* only another device has it */
    server_options_add_rate_resource(s.options, "0", 9, 1);
    add(&s, 1, (const uint32_t[KINDS]){3}, false);
    expect(&s, "Resource count for \"0\" is limited to 0 which will prevent scheduling of one or "
               "more model instances, the minimum required count is 3");
    begin_set(&s); /* given twice: the smaller */
    server_options_add_rate_resource(s.options, "0", 9, -1);
    server_options_add_rate_resource(s.options, "0", 3, -1);
    server_options_add_rate_resource(s.options, "0", 9, -1);
    add(&s, 1, (const uint32_t[KINDS]){3}, false);
    expect(&s, NULL);
    begin_set(&s); /* a global one has no device */
    server_options_add_rate_resource(s.options, "0", 2, 1);
    add(&s, 1, (const uint32_t[KINDS]){3}, true);
    expect(&s, "Resource count for \"0\" is limited to 2 which will prevent scheduling of one or "
               "more model instances, the minimum required count is 3");
    begin_set(&s);
    add(&s, 1, (const uint32_t[KINDS]){3}, true);
    add(&s, 1, (const uint32_t[KINDS]){3}, false);
    expect(&s, "Resource \"0\" is present as both global and device-specific resource in the model "
               "configuration.");
}

static void without_the_option_there_is_no_limiter(void **state)
{
    (void)state;
    struct server_options *o = server_options_new();
    struct instance in = {.number = 0}, *one = &in;
    assert_null(limiter_new(o));
    assert_null(limiter_add_instances(NULL, &one, 1));
    assert_null(in.limit);
    limiter_remove_instances(NULL, &one, 1);
    limiter_free(NULL);
    server_options_free(o);
}

/* ---- In a scheduler -------------------------------------------------------------------------- */

enum { INSTANCES = 4, AMOUNT = 2, THREADS = 3, ROUNDS = 100 };

static atomic_int n_inside, n_clashes, n_executed;
static atomic_uint_least64_t n_asked; /* each request is a whole sequence of its own */
static atomic_bool is_open;

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    if (atomic_fetch_add(&n_inside, 1) >= AMOUNT)
        atomic_fetch_add(&n_clashes, 1);
    while (!atomic_load(&is_open))
        sched_yield();
    atomic_fetch_add(&n_executed, (int)n);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    sched_yield();
    atomic_fetch_sub(&n_inside, 1);
    return NULL;
}

static void make_limited(struct fake_model *f, const char *more)
{
    char text[1024];
    snprintf(
        text, sizeof(text),
        "%s%s\ninstance_group { count: 1 rate_limiter { resources { name: \"R\" count: 1 } } }",
        config, more);
    struct server_options *o = server_options_new();
    o->limits_rate = true;
    server_options_add_rate_resource(o, "R", AMOUNT, -1);
    fake_model_make_with(f, o, text, INSTANCES, execute);
    atomic_store(&n_clashes, 0);
    atomic_store(&n_executed, 0);
    atomic_store(&is_open, true);
}

static void *ask_often(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct fake_request requests[4];
        for (int k = 0; k < 4; k++) {
            fake_request_make(&requests[k], arg);
            requests[k].request.maker.correlation_id.number = atomic_fetch_add(&n_asked, 1) + 1;
            requests[k].request.maker.flags = REQUEST_SEQUENCE_START | REQUEST_SEQUENCE_END;
            assert_null(server_infer(&((struct fake_model *)arg)->server, &requests[k].request));
        }
        if (i % 3 == 0)
            request_cancel(&requests[2].request);
        for (int k = 0; k < 4; k++) {
            fake_request_wait(&requests[k]);
            fake_request_end(&requests[k]);
        }
    }
    return NULL;
}

static void executions_never_take_more_than_there_is(void **state)
{
    (void)state;
    static const char *const kinds[] = {
        "", "sequence_batching { max_sequence_idle_microseconds: 60000000 }",
        "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 60000000 oldest { } }",
        "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 50 }",
        "parameters { key: \"CONCH_EXECUTION\" value { string_value: \"thread\" } }"};
    for (size_t kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
        struct fake_model f;
        pthread_t threads[THREADS];
        make_limited(&f, kinds[kind]);
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, ask_often, &f);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        fake_model_end(&f);
        assert_int_equal(atomic_load(&n_clashes), 0);
        assert_true(atomic_load(&n_executed) >= THREADS * ROUNDS * 3);
    }
}

/* The model ends while instances wait for a resource and have nothing to execute any more. */
static void a_model_ends_whose_instances_wait(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request requests[INSTANCES];
    make_limited(&f, "parameters { key: \"CONCH_EXECUTION\" value { string_value: \"thread\" } }");
    atomic_store(&is_open, false);
    for (int i = 0; i < INSTANCES; i++) {
        fake_request_make(&requests[i], &f);
        assert_null(server_infer(&f.server, &requests[i].request));
    }
    while (atomic_load(&n_inside) < AMOUNT)
        sched_yield();
    for (int i = 0; i < INSTANCES; i++)
        request_cancel(&requests[i].request);
    atomic_store(&is_open, true);
    for (int i = 0; i < INSTANCES; i++) {
        fake_request_wait(&requests[i]);
        fake_request_end(&requests[i]);
    }
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_clashes), 0);
    assert_int_equal(atomic_load(&n_executed), AMOUNT);
}

static int make_fake(void **state)
{
    (void)state;
    fake_model_make(&fake, config, 1, execute);
    return 0;
}

static int end_fake(void **state)
{
    (void)state;
    fake_model_end(&fake);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_of_five_events_is_right),
        cmocka_unit_test(many_random_events_are_right),
        cmocka_unit_test(eight_share_one_resource_alike),
        cmocka_unit_test(a_higher_priority_has_more_turns),
        cmocka_unit_test(one_that_needs_all_has_turns),
        cmocka_unit_test(one_that_was_idle_does_not_make_up_for_it),
        cmocka_unit_test(options_limit_resources),
        cmocka_unit_test(without_the_option_there_is_no_limiter),
        cmocka_unit_test(executions_never_take_more_than_there_is),
        cmocka_unit_test(a_model_ends_whose_instances_wait),
    };
    return cmocka_run_group_tests(tests, make_fake, end_fake);
}
