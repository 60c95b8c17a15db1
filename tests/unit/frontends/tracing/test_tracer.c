/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that the writer has no room for are dropped and counted; none is lost or written twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/metrics/family.h"
#include "frontends/tracing/trace_writer.h"
#include "frontends/tracing/tracer.h"
#include "lib/fault.h"

enum { RATE = 5 };

static char folder[] = "/tmp/conch-tracer-XXXXXX";
static char path[64];

static struct pool *pool; /* keeps no block: each trace asks the system */

static int make_folder(void **state)
{
    (void)state;
    pool = pool_new("test", 0, 0);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/trace", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    struct pool_stats stats;
    pool_stats(pool, &stats);
    pool_free(pool);
    return rmdir(folder) || stats.used_bytes; /* each trace is freed */
}

/* A server is only a name for the tracer. */
static struct status *try_to_start(int64_t rate, struct tracer **ret)
{
    static int server;
    struct tracer_options options = {
        .path = path,
        .values.of = {TRACE_TIMESTAMPS | TRACE_TENSORS, rate, -1, 0},
    };
    return tracer_start((struct server *)(void *)&server, &options, ret);
}

static struct tracer *start_tracer(int64_t rate)
{
    struct tracer *t;
    assert_null(try_to_start(rate, &t));
    return t;
}

static void end_request(struct traced *t)
{
    struct trace *trace = traced_trace(t);
    trace_set_request(trace, "m", 1, "");
    trace_report(trace, TRACE_REQUEST_START, 1);
    trace_report(trace, TRACE_REQUEST_END, 2);
    trace->ops->release(trace);
    traced_end(t);
}

static double counted(struct metric *m)
{
    double value;
    assert_null(metric_value(m, &value));
    return value;
}

/* How often the file has the text. */
static int count_in_file(const char *text)
{
    static char bytes[1 << 20];
    int n = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    bytes[fread(bytes, 1, sizeof(bytes) - 1, file)] = '\0';
    fclose(file);
    for (const char *at = bytes; (at = strstr(at, text)); at++)
        n++;
    return n;
}

static void a_full_ring_drops_what_comes(void **state)
{
    (void)state;
    struct tracer *t = start_tracer(1);
    struct trace_sampler s;
    trace_sampler_init(&s, t, pool);
    struct traced *first = trace_sample(&s, "m", NULL);
    struct trace_writer *w = CONTAINER_OF(s.home, struct trace_writer, home);
    double before = counted(w->n_dropped[TRACE_DROP_RING]);
    mutex_lock(&w->mu);
    w->n_ring = TRACE_RING; /* as if the disk had stood still */
    mutex_unlock(&w->mu);
    end_request(first);
    assert_true(counted(w->n_dropped[TRACE_DROP_RING]) == before + 1);
    mutex_lock(&w->mu);
    w->n_ring = 0;
    mutex_unlock(&w->mu);
    end_request(trace_sample(&s, "m", NULL));
    trace_sampler_done(&s);
    tracer_stop(t);
    assert_int_equal(count_in_file("REQUEST_END"), 1);
}

static void a_tensor_beyond_the_memory_drops_its_trace(void **state)
{
    (void)state;
    struct tracer *t = start_tracer(1);
    struct trace_sampler s;
    trace_sampler_init(&s, t, pool);
    struct traced *traced = trace_sample(&s, "m", NULL);
    struct trace_writer *w = CONTAINER_OF(s.home, struct trace_writer, home);
    const int64_t shape = 1;
    struct trace_tensor tensor = {"T", 0, &shape, TRACE_MAX_BYTES, &shape, 1, 0, 0};
    struct trace *trace = traced_trace(traced);
    trace->ops->tensor(trace, TRACE_TENSOR_QUEUE_INPUT, &tensor);
    double before = counted(w->n_dropped[TRACE_DROP_MEMORY]);
    end_request(traced);
    assert_true(counted(w->n_dropped[TRACE_DROP_MEMORY]) == before + 1);
    assert_int_equal(atomic_load(&w->home.size_bytes), 0);
    trace_sampler_done(&s);
    tracer_stop(t);
}

static struct status *trace_one(void *arg)
{
    (void)arg;
    struct tracer *t;
    struct trace_sampler s;
    struct status *st = try_to_start(1, &t);
    if (st)
        return st;
    trace_sampler_init(&s, t, pool);
    struct traced *traced = trace_sample(&s, "m", NULL);
    struct trace_writer *w = CONTAINER_OF(s.home, struct trace_writer, home);
    atomic_fetch_add(&w->home.refs, 1);
    double before = counted(w->n_written);
    assert_true(counted(w->n_dropped[TRACE_DROP_MEMORY]) == !traced);
    if (traced)
        end_request(traced);
    trace_sampler_done(&s);
    tracer_stop(t);
    bool is_written = counted(w->n_written) == before + 1;
    trace_home_unref(&w->home);
    return is_written ? NULL : status_no_memory();
}

static void a_lack_of_memory_drops_a_trace_whole(void **state)
{
    (void)state;
    fault_each_allocation(trace_one, NULL);
}

/* ---- Answers to changes ---------------------------------------------------------------------- */

struct told {
    struct tracer *tracer;
    int n;
    int64_t rate, frequency; /* as the last answer has them */
};

static struct status *change_one(struct tracer *t, enum trace_field field, int64_t to,
                                 const struct trace_answer *answer)
{
    struct trace_change change = {0};
    change.fields[field].kind = TRACE_SET;
    change.fields[field].to = to;
    return tracer_change(t, "", &change, answer);
}

/* Reads the settings, and the first time has another change come first. */
static struct status *tell(void *arg, const struct tracer_settings *settings)
{
    struct told *told = arg;
    if (told->n++ == 0) {
        assert_int_equal(tracer_settings(told->tracer, "").values.of[TRACE_RATE], RATE);
        assert_null(change_one(told->tracer, TRACE_LOG_FREQUENCY, 7, NULL));
    }
    told->rate = settings->values.of[TRACE_RATE];
    told->frequency = settings->values.of[TRACE_LOG_FREQUENCY];
    return NULL;
}

static struct status *tell_nothing(void *arg, const struct tracer_settings *settings)
{
    (void)arg;
    (void)settings;
    return status_no_memory();
}

/* The answer has both changes, of which none is lost; it is made without the tracer's lock. */
static void a_change_that_another_overtakes_is_made_again(void **state)
{
    (void)state;
    struct told told = {.tracer = start_tracer(RATE)};
    const struct trace_answer answer = {.make = tell, .arg = &told};
    assert_null(change_one(told.tracer, TRACE_RATE, 3, &answer));
    assert_int_equal(told.n, 2);
    assert_int_equal(told.rate, 3);
    assert_int_equal(told.frequency, 7);
    struct trace_values now = tracer_settings(told.tracer, "").values;
    assert_int_equal(now.of[TRACE_RATE], 3);
    assert_int_equal(now.of[TRACE_LOG_FREQUENCY], 7);
    tracer_stop(told.tracer);
}

static void a_change_without_an_answer_changes_nothing(void **state)
{
    (void)state;
    struct tracer *t = start_tracer(RATE);
    const struct trace_answer answer = {.make = tell_nothing};
    struct status *st = change_one(t, TRACE_RATE, 3, &answer);
    assert_int_equal(status_code(st), status_code(status_no_memory()));
    status_free(st);
    assert_int_equal(tracer_settings(t, "").values.of[TRACE_RATE], RATE);
    tracer_stop(t);
}

/* ---- Many threads ---------------------------------------------------------------------------- */

enum { N_LOOPS = 4, N_REQUESTS = 500 };

static void run_loop(void *arg)
{
    struct trace_sampler s;
    trace_sampler_init(&s, arg, pool);
    for (int i = 0; i < N_REQUESTS; i++) {
        struct traced *t = trace_sample(&s, i % 2 ? "own" : "m", NULL);
        if (t)
            end_request(t);
    }
    trace_sampler_done(&s);
}

static void loops_share_the_rate_while_settings_change(void **state)
{
    (void)state;
    struct tracer *t = start_tracer(RATE);
    struct thread threads[N_LOOPS];
    struct trace_change change = {0};
    change.fields[TRACE_LOG_FREQUENCY].kind = TRACE_SET;
    for (int i = 0; i < N_LOOPS; i++)
        assert_null(thread_start(&threads[i], "loop", run_loop, t));
    for (int i = 0; i < 20; i++)
        assert_null(tracer_change(t, i % 2 ? "own" : "other", &change, NULL));
    for (int i = 0; i < N_LOOPS; i++)
        thread_join(&threads[i]);
    tracer_stop(t);
    int n = count_in_file("REQUEST_END");
    assert_true(n > 0 && n <= N_LOOPS * N_REQUESTS / RATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_ring_drops_what_comes),
        cmocka_unit_test(a_tensor_beyond_the_memory_drops_its_trace),
        cmocka_unit_test(a_lack_of_memory_drops_a_trace_whole),
        cmocka_unit_test(a_change_that_another_overtakes_is_made_again),
        cmocka_unit_test(a_change_without_an_answer_changes_nothing),
        cmocka_unit_test(loops_share_the_rate_while_settings_change),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
