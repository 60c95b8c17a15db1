/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of requests that are cancelled from the begin on, and the thread that ends them. A watch
 * that cannot start its thread says why. */
#include "lib/fake_backend_api.h"

#include <errno.h>
#include <time.h>

#include "common/watch.c"

#include "lib/thread_fault.h"

static TRITONBACKEND_Request request = {.cancelled = true};
static const struct batch_part parts[] = {{.request = &request}};

/* One watched run. */
struct run {
    struct watched *watched;
    uint64_t begun_ms;
    atomic_uint_least64_t lasted_ms; /* until it was ended; 0: it was not */
};

static uint64_t read_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static TRITONSERVER_Error *end_run(void *arg)
{
    struct run *run = arg;

    atomic_store(&run->lasted_ms, read_clock_ms() - run->begun_ms + 1);
    return NULL;
}

static const struct watch_action action = {.end = end_run};

static void begin_run(struct watch *w, struct run *run, uint64_t least_ms)
{
    fake_must(watch_add(w, &action, run, least_ms, &run->watched));
    run->begun_ms = read_clock_ms();
    watch_begin(run->watched, parts, 1);
}

static void await_end(const struct run *run)
{
    while (atomic_load(&run->lasted_ms) == 0)
        sched_yield();
}

/* The thread looks at the run that was added last first. */
static void a_run_is_ended_when_it_has_lasted_for_as_long_as_its_end_costs(void **state)
{
    struct run never = {0}, later = {0}, soon = {0};
    struct watch *w;

    (void)state;
    fake_must(watch_new(&w));
    begin_run(w, &never, UINT64_MAX);
    begin_run(w, &later, 100);
    begin_run(w, &soon, 0);
    await_end(&soon);
    await_end(&later);
    assert_true(atomic_load(&later.lasted_ms) >= 100);
    assert_true(watch_end(soon.watched));
    assert_true(watch_end(later.watched));
    assert_false(watch_end(never.watched));
    assert_int_equal(atomic_load(&never.lasted_ms), 0);
    watch_remove(soon.watched);
    watch_remove(later.watched);
    watch_remove(never.watched);
    watch_free(w);
}

static void a_thread_that_does_not_start_has_its_reason_told(void **state)
{
    struct watch *w = NULL;
    TRITONSERVER_Error *err;

    (void)state;
    fail_threads(true);
    err = watch_new(&w);
    fail_threads(false);
    assert_non_null(err);
    assert_null(w);
    assert_int_equal(TRITONSERVER_ErrorCode(err), TRITONSERVER_ERROR_UNAVAILABLE);
    assert_non_null(strstr(TRITONSERVER_ErrorMessage(err), strerror(EAGAIN)));
    TRITONSERVER_ErrorDelete(err);
    fake_must(watch_new(&w));
    watch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_does_not_start_has_its_reason_told),
        cmocka_unit_test(a_run_is_ended_when_it_has_lasted_for_as_long_as_its_end_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
