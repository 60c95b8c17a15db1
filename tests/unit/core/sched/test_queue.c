/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sched/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "core/sched/pull.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

/*
 * A queue beside the model's scheduler, with requests that are never executed. `refuser` only
 * collects them.
 */
struct bench {
    struct fake_model f;
    struct queue q;
    struct pull_scheduler refuser;
    struct fake_request requests[40];
    int n;
};

static struct status *never(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    (void)requests;
    (void)n;
    return NULL;
}

static void set_up(struct bench *b, const char *batching)
{
    char config[1024];
    snprintf(config, sizeof(config),
             "max_batch_size: 8\n"
             "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
             "dynamic_batching { %s }\n",
             batching);
    b->n = 0;
    fake_model_make(&b->f, config, 1, never);
    b->refuser.model = b->f.model;
    queue_init(&b->q, b->f.model, b->f.model->config->pb->dynamic_batching);
    list_init(&b->refuser.refused);
}

static struct request *push_at(struct bench *b, uint64_t priority, uint64_t timeout_us,
                               uint64_t at_ns)
{
    bool is_last;
    struct fake_request *fr = &b->requests[b->n++];
    fake_request_make(fr, &b->f);
    fr->request.maker.priority = priority;
    fr->request.maker.timeout_us = timeout_us;
    fr->request.admitted.queue_ns = at_ns;
    fr->request.admitted.batch_size = 1;
    assert_null(queue_push(&b->q, &fr->request, &is_last));
    const struct request *next = queue_next(&b->q, &fr->request);
    assert_int_equal(is_last, next == NULL);
    return &fr->request;
}

static struct request *push(struct bench *b, uint64_t priority)
{
    return push_at(b, priority, 0, 0);
}

/* Asserts the order in which the requests would be executed, each by the number of its push. */
static void assert_order(const struct bench *b, const char *expected)
{
    char text[256] = "";
    size_t n = 0;
    for (struct request *r = queue_first(&b->q); r; r = queue_next(&b->q, r)) {
        char one[16];
        snprintf(one, sizeof(one), "%s%d", n++ ? " " : "",
                 (int)(CONTAINER_OF(r, struct fake_request, request) - b->requests));
        strncat(text, one, sizeof(text) - strlen(text) - 1);
    }
    assert_string_equal(text, expected);
    assert_int_equal(b->q.n, n);
}

static void tear_down(struct bench *b)
{
    struct request *r;
    while ((r = queue_first(&b->q)))
        queue_remove(&b->q, r);
    struct list *link;
    while ((link = list_pop(&b->refuser.refused)))
        status_free(LIST_ENTRY(link, struct request, queue.link)->queue.refusal);
    assert_int_equal(queue_next_limit_ns(&b->q), UINT64_MAX);
    queue_done(&b->q);
    for (int i = 0; i < b->n; i++)
        fake_request_end(&b->requests[i]);
    fake_model_end(&b->f);
}

static void requests_leave_in_the_order_of_their_pushes(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, "");
    assert_null(queue_first(&b.q));
    for (int i = 0; i < 4; i++)
        push(&b, i == 2 ? 7 : 0); /* the model has no priorities */
    assert_order(&b, "0 1 2 3");
    queue_remove(&b.q, &b.requests[1].request);
    assert_order(&b, "0 2 3");
    queue_remove(&b.q, &b.requests[3].request);
    queue_remove(&b.q, &b.requests[0].request);
    assert_order(&b, "2");
    assert_false(queue_limits_time(&b.q));
    tear_down(&b);
}

static void requests_of_lower_levels_leave_first(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, "priority_levels: 5 default_priority_level: 3");
    push(&b, 5);
    push(&b, 3);
    push(&b, 0); /* 3 */
    push(&b, 1);
    push(&b, 6); /* there is no such level: 3 */
    push(&b, 3);
    push(&b, UINT64_MAX); /* 3 */
    push(&b, 1);
    assert_order(&b, "3 7 1 2 4 5 6 0");
    tear_down(&b);
}

/* A client may name any of very many levels. Empty levels are freed. */
static void empty_levels_are_freed(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, "priority_levels: 18446744073709551615 default_priority_level: 1");
    push(&b, UINT64_MAX);
    push(&b, 2);
    for (uint64_t i = 0; i < 1000; i++) {
        b.n = 2;
        struct request *r = push(&b, 3 + i * 1000003);
        assert_true(b.q.levels.count <= 20);
        queue_remove(&b.q, r);
        fake_request_end(&b.requests[2]);
    }
    b.n = 2;
    assert_order(&b, "1 0");
    tear_down(&b);
}

/* 50 000 levels with a request each: a push or a pop looks at some of the levels, not at all. */
static void many_levels_are_searched_in_logarithmic_time(void **state)
{
    (void)state;
    enum { N = 50000 };
    struct bench b;
    bool is_last;
    struct request *all = mem_zalloc((N + 1) * sizeof(*all));
    set_up(&b, "priority_levels: 100000 default_priority_level: 1");
    for (uint64_t i = 0; i < N; i++) {
        all[i].maker.id = "";
        all[i].maker.priority = 1 + i * 40503 % N; /* each level once, in no order */
        assert_null(queue_push(&b.q, &all[i], &is_last));
    }
    assert_int_equal(b.q.levels.count, N);
    uint64_t looks = b.q.levels.n_looks, rounds = 0;
    for (struct request *r = queue_first(&b.q), *next; r; r = next, rounds++) {
        struct request *one = &all[N];
        one->maker.id = "";
        one->maker.priority = 1 + r->maker.priority * 48271 % N;
        assert_int_equal(r->maker.priority, rounds + 1);
        assert_null(queue_push(&b.q, one, &is_last));
        queue_remove(&b.q, one);
        next = queue_next(&b.q, r);
        queue_remove(&b.q, r);
    }
    assert_int_equal(rounds, N);
    assert_in_range(b.q.levels.n_looks - looks, 0, (uint64_t)N * 60); /* log2(N) is 16 */
    tear_down(&b);
    mem_free(all);
}

/* Each level has its own policy, whatever the order in the configuration. */
static void each_level_has_its_own_policy(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, "priority_levels: 9 default_priority_level: 5 "
               "priority_queue_policy { key: 7 value { max_queue_size: 1 } } "
               "priority_queue_policy { key: 2 value { max_queue_size: 2 } } "
               "priority_queue_policy { key: 4 value { max_queue_size: 3 } } "
               "default_queue_policy { max_queue_size: 4 }");
    const uint64_t levels[] = {2, 4, 5, 7}, sizes[] = {2, 3, 4, 1};
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        for (uint64_t j = 0; j < sizes[i]; j++)
            push(&b, levels[i]);
        struct request more = {.maker.id = "", .maker.priority = levels[i]};
        bool is_last;
        struct status *st = queue_push(&b.q, &more, &is_last);
        assert_non_null(st);
        status_free(st);
    }
    tear_down(&b);
}

static void a_level_holds_no_more_than_its_policy_allows(void **state)
{
    (void)state;
    struct bench b;
    bool is_last;
    struct fake_request one_more;
    set_up(&b,
           "priority_levels: 2 default_priority_level: 2 default_queue_policy { max_queue_size: 3 }"
           "priority_queue_policy { key: 1 value { max_queue_size: 1 } }");
    for (int i = 0; i < 3; i++)
        push(&b, 2);
    push(&b, 1);
    for (uint64_t priority = 1; priority <= 2; priority++) {
        fake_request_make(&one_more, &b.f);
        one_more.request.maker.priority = priority;
        assert_null(request_set_id(&one_more.request, "x", 1));
        struct status *st = queue_push(&b.q, &one_more.request, &is_last);
        assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
        assert_string_equal(status_message(st), "[request id: x] Exceeds maximum queue size");
        status_free(st);
        fake_request_end(&one_more);
    }
    assert_order(&b, "3 0 1 2");
    queue_remove(&b.q, &b.requests[3].request);
    push(&b, 1);
    assert_order(&b, "4 0 1 2");
    tear_down(&b);
}

static void an_expired_request_is_refused(void **state)
{
    (void)state;
    struct bench b;
    set_up(
        &b,
        "default_queue_policy { default_timeout_microseconds: 10 allow_timeout_override: true }");
    assert_true(queue_limits_time(&b.q));
    push_at(&b, 0, 0, 1000);  /* until 11000 */
    push_at(&b, 0, 20, 1500); /* longer than the default limit: 11500 */
    push_at(&b, 0, 3, 2000);  /* until 5000 */
    assert_int_equal(queue_next_limit_ns(&b.q), 5000);
    assert_false(queue_expire(&b.q, 4999, &b.refuser));
    assert_true(queue_expire(&b.q, 5000, &b.refuser));
    assert_order(&b, "0 1");
    assert_int_equal(queue_next_limit_ns(&b.q), 11000);
    assert_true(queue_expire(&b.q, 20000, &b.refuser));
    assert_order(&b, "");
    for (int i = 0; i < 3; i++) {
        const struct request *r = &b.requests[i].request;
        assert_int_equal(status_code(r->queue.refusal), STATUS_UNAVAILABLE);
        assert_string_equal(status_message(r->queue.refusal), "Request timeout expired");
        assert_int_equal(r->queue.refusal_reason, FAILURE_REJECTED);
    }
    tear_down(&b);
}

/* reference/behaviours §10.6: without a default limit there is no limit that a request can
 * shorten. */
static void a_request_cannot_set_a_limit_where_there_is_none(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, "default_queue_policy { allow_timeout_override: true }");
    push_at(&b, 0, 5, 1000);
    assert_int_equal(queue_next_limit_ns(&b.q), UINT64_MAX);
    assert_false(queue_limits_time(&b.q));
    tear_down(&b);
}

static void a_delayed_request_stays_behind_its_level(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, "priority_levels: 2 default_priority_level: 1 default_queue_policy {"
               "timeout_action: DELAY default_timeout_microseconds: 10 max_queue_size: 4 }");
    push_at(&b, 1, 0, 1000);
    push_at(&b, 1, 0, 2000);
    push_at(&b, 2, 0, 9000);
    assert_true(queue_expire(&b.q, 11000, &b.refuser));
    assert_order(&b, "1 0 2");
    push_at(&b, 1, 0, 12000);
    assert_order(&b, "1 3 0 2");
    assert_true(queue_expire(&b.q, 12000, &b.refuser));
    assert_order(&b, "3 0 1 2");
    assert_false(queue_expire(&b.q, 12500, &b.refuser));
    push_at(&b, 1, 0, 12500);
    assert_order(&b, "3 4 0 1 2");
    /* Delayed requests count as waiting. */
    bool is_last;
    struct fake_request one_more;
    fake_request_make(&one_more, &b.f);
    struct status *st = queue_push(&b.q, &one_more.request, &is_last);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_free(st);
    fake_request_end(&one_more);
    assert_true(list_empty(&b.refuser.refused));
    tear_down(&b);
}

static void a_limit_beyond_the_largest_time_never_expires(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, "default_queue_policy { default_timeout_microseconds: 18446744073709551615 }");
    push_at(&b, 0, 0, UINT64_MAX - 5);
    assert_int_equal(queue_next_limit_ns(&b.q), UINT64_MAX);
    assert_false(queue_expire(&b.q, UINT64_MAX, &b.refuser));
    tear_down(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_leave_in_the_order_of_their_pushes),
        cmocka_unit_test(requests_of_lower_levels_leave_first),
        cmocka_unit_test(empty_levels_are_freed),
        cmocka_unit_test(many_levels_are_searched_in_logarithmic_time),
        cmocka_unit_test(each_level_has_its_own_policy),
        cmocka_unit_test(a_level_holds_no_more_than_its_policy_allows),
        cmocka_unit_test(an_expired_request_is_refused),
        cmocka_unit_test(a_request_cannot_set_a_limit_where_there_is_none),
        cmocka_unit_test(a_delayed_request_stays_behind_its_level),
        cmocka_unit_test(a_limit_beyond_the_largest_time_never_expires),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
