/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs are copied before their response is delivered, and responses keep their order, whatever
 * comes while a copy is under way. The test's own threads copy, as helpers would. The copy is the
 * test's: it notes the response, fails, or waits.
 */
#include "frontends/ops/region_delivery.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/model/model.h"
#include "core/request/response.h"
#include "frontends/shm/region.h"
#include "frontends/shm/region_limits.h"

enum { N = 3, MU_LEVEL = 700 };

static struct pool *pool;
static struct model model;
static struct region region;
static struct request request;
static struct response responses[N];
static struct region_delivery *delivery;

static char seen[64]; /* what has happened, in its order */
static void (*on_copy)(struct response *resp);

static void note_event(char what, const struct response *resp)
{
    size_t n = strlen(seen);
    seen[n] = what;
    seen[n + 1] = resp ? (char)('0' + (resp - responses)) : '-';
}

static struct status *copy_outputs(const struct tensor_regions *t, struct response *resp)
{
    (void)t;
    note_event('c', resp);
    if (on_copy)
        on_copy(resp);
    return resp == &responses[1] ? status_new(STATUS_INTERNAL, "the copy fails") : NULL;
}

static void deliver(struct request *r, struct response *resp, uint32_t flags)
{
    assert_ptr_equal(r, &request);
    note_event(flags & RESPONSE_FINAL ? 'D' : 'd', resp);
    if (flags & RESPONSE_FINAL) { /* the request is over: nothing touches it any more */
        region_delivery_free(delivery);
        delivery = NULL;
    }
}

static int start(void **state)
{
    (void)state;
    pool = pool_new("test", 0, 0);
    request = (struct request){.pool = pool, .model = &model};
    region = (struct region){.limits = region_limits_new(1, 1, NULL)};
    memset(responses, 0, sizeof(responses));
    for (int i = 0; i < N; i++)
        list_init(&responses[i].link);
    memset(seen, 0, sizeof(seen));
    on_copy = NULL;
    delivery = region_delivery_new(&request, NULL, copy_outputs, &region);
    assert_non_null(delivery);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    assert_null(delivery);
    for (int i = 0; i < N; i++)
        status_free(responses[i].error);
    region_limits_unref(region.limits);
    pool_free(pool);
    return 0;
}

static void take(int i, uint32_t flags)
{
    assert_false(region_delivery_take(delivery, i < N ? &responses[i] : NULL, flags, deliver));
}

static void without_such_outputs_the_caller_goes_on(void **state)
{
    (void)state;
    assert_true(region_delivery_take(NULL, &responses[0], 0, deliver));
    assert_true(region_delivery_take(NULL, NULL, RESPONSE_FINAL, deliver));
    take(N, RESPONSE_FINAL);
    assert_string_equal(seen, "D-");
}

static void each_response_is_copied_and_then_delivered(void **state)
{
    (void)state;
    take(0, 0);
    take(N, 0); /* says nothing */
    take(2, 0);
    take(N, RESPONSE_FINAL);
    assert_string_equal(seen, "c0d0c2d2D-");
    assert_null(responses[0].error);
}

static void the_last_response_may_have_the_final_flag(void **state)
{
    (void)state;
    take(0, 0);
    take(2, RESPONSE_FINAL);
    assert_string_equal(seen, "c0d0c2D2");
}

static void a_failed_copy_is_the_error_of_its_response(void **state)
{
    (void)state;
    take(1, 0);
    assert_string_equal(status_message(responses[1].error), "the copy fails");
    take(1, RESPONSE_FINAL); /* a response with an error has no outputs */
    assert_string_equal(seen, "c1d1D1");
}

/* ---- While a copy is under way --------------------------------------------------------------- */

static struct mutex mu;
static struct cond changed;
static bool is_copying, may_go_on;

static void set_and_signal(bool *what)
{
    mutex_lock(&mu);
    *what = true;
    cond_broadcast(&changed);
    mutex_unlock(&mu);
}

static void await_flag(const bool *what)
{
    mutex_lock(&mu);
    while (!*what)
        cond_wait(&changed, &mu);
    mutex_unlock(&mu);
}

static void wait_in_first(struct response *resp)
{
    if (resp != &responses[0])
        return;
    set_and_signal(&is_copying);
    await_flag(&may_go_on);
}

static void take_first(void *arg)
{
    (void)arg;
    take(0, 0);
}

/* Returns when the first response is being copied, by another thread. */
static void begin_copy(struct thread *t)
{
    is_copying = may_go_on = false;
    mutex_init(&mu, MU_LEVEL, "test");
    cond_init(&changed);
    on_copy = wait_in_first;
    assert_null(thread_start(t, "helper", take_first, NULL));
    await_flag(&is_copying);
}

static void end_copy(struct thread *t)
{
    assert_string_equal(seen, "c0");
    set_and_signal(&may_go_on);
    thread_join(t);
    cond_done(&changed);
    mutex_done(&mu);
}

static void what_comes_meanwhile_waits_for_its_turn(void **state)
{
    (void)state;
    struct thread helper;
    begin_copy(&helper);
    take(1, 0);
    take(2, RESPONSE_FINAL);
    end_copy(&helper);
    assert_string_equal(seen, "c0d0c1d1c2D2");
}

static void a_final_flag_alone_waits_for_all_responses(void **state)
{
    (void)state;
    struct thread helper;
    begin_copy(&helper);
    take(2, 0);
    take(N, RESPONSE_FINAL);
    end_copy(&helper);
    assert_string_equal(seen, "c0d0c2d2D-");
}

static void a_copy_is_not_the_last_before_the_final_flag(void **state)
{
    (void)state;
    struct thread helper;
    begin_copy(&helper);
    end_copy(&helper);
    assert_string_equal(seen, "c0d0");
    take(N, RESPONSE_FINAL);
    assert_string_equal(seen, "c0d0D-");
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(without_such_outputs_the_caller_goes_on),
        TEST(each_response_is_copied_and_then_delivered),
        TEST(the_last_response_may_have_the_final_flag),
        TEST(a_failed_copy_is_the_error_of_its_response),
        TEST(what_comes_meanwhile_waits_for_its_turn),
        TEST(a_final_flag_alone_waits_for_all_responses),
        TEST(a_copy_is_not_the_last_before_the_final_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
