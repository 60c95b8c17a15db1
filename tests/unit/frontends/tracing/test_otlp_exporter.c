/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of the exporter is bounded, and each span is counted once, whatever becomes of it. The
 * collector of these tests is a port at which nobody listens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/metrics/family.h"
#include "frontends/tracing/otlp_exporter.h"
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/tracer.h"
#include "lib/fault.h"

enum { N_LOOPS = 4, N_REQUESTS = 500, TRACE_SPANS = 2 /* InferRequest and m */ };

static struct pool *pool; /* keeps no block: each trace asks the system */

static int make_pool(void **state)
{
    (void)state;
    pool = pool_new("test", 0, 0);
    return 0;
}

/* Each trace is freed. */
static int free_pool(void **state)
{
    (void)state;
    struct pool_stats stats;
    pool_stats(pool, &stats);
    pool_free(pool);
    return (int)stats.used_bytes;
}

static char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

static struct status *try_to_export(const char *const given[], size_t n, struct tracer **ret)
{
    static int server; /* only a name for the tracer */
    struct otlp_settings *otlp;
    struct status *st = otlp_settings_new(given, n, no_variable, &otlp);
    if (st)
        return st;
    struct tracer_options options = {
        .path = "", .otlp = otlp, .values.of = {TRACE_TIMESTAMPS, 1, -1, 0}};
    st = tracer_start((struct server *)(void *)&server, &options, ret);
    if (st)
        otlp_settings_free(otlp);
    return st;
}

static void end_exported_request(struct traced *t)
{
    struct trace *trace = traced_trace(t);
    trace_set_request(trace, "m", 1, "");
    trace_report(trace, TRACE_REQUEST_START, 1);
    trace_report(trace, TRACE_REQUEST_END, 2);
    trace->ops->release(trace);
    traced_end(t);
}

/* The spans that were dropped for all reasons. */
static double count_dropped(const struct otlp_exporter *x)
{
    double all = 0, value;
    for (int i = 0; i < N_OTLP_DROPS; i++) {
        assert_null(metric_value(x->n_dropped[i], &value));
        all += value;
    }
    return all;
}

static void run_exporting_loop(void *arg)
{
    struct trace_sampler s;
    trace_sampler_init(&s, arg, pool);
    for (int i = 0; i < N_REQUESTS; i++)
        end_exported_request(trace_sample(&s, "m", NULL));
    trace_sampler_done(&s);
}

static void spans_of_many_threads_are_counted_once(void **state)
{
    (void)state;
    static const char *const given[] = {"url=127.0.0.1:1", "bsp_max_queue_size=9",
                                        "bsp_schedule_delay=3600000"};
    struct tracer *t;
    struct trace_sampler s;
    struct thread threads[N_LOOPS];
    assert_null(try_to_export(given, ARRAY_SIZE(given), &t));
    trace_sampler_init(&s, t, pool);
    end_exported_request(trace_sample(&s, "m", NULL));
    struct otlp_exporter *x = CONTAINER_OF(s.home, struct otlp_exporter, home);
    atomic_fetch_add(&x->home.refs, 1);
    for (int i = 0; i < N_LOOPS; i++)
        assert_null(thread_start(&threads[i], "loop", run_exporting_loop, t));
    for (int i = 0; i < N_LOOPS; i++)
        thread_join(&threads[i]);
    mutex_lock(&x->mu);
    assert_in_range(x->n_spans, 0, 9);
    mutex_unlock(&x->mu);
    trace_sampler_done(&s);
    tracer_stop(t);
    assert_true(count_dropped(x) == TRACE_SPANS * (N_LOOPS * N_REQUESTS + 1));
    trace_home_unref(&x->home);
}

static struct status *export_one(void *arg)
{
    static const char *const given[] = {"url=127.0.0.1:1", "bsp_schedule_delay=3600000"};
    (void)arg;
    struct tracer *t;
    struct trace_sampler s;
    struct status *st = try_to_export(given, ARRAY_SIZE(given), &t);
    if (st)
        return st;
    trace_sampler_init(&s, t, pool);
    struct traced *traced = trace_sample(&s, "m", NULL);
    struct otlp_exporter *x = CONTAINER_OF(s.home, struct otlp_exporter, home);
    atomic_fetch_add(&x->home.refs, 1);
    double before, lost;
    assert_null(metric_value(x->n_dropped[OTLP_DROP_COLLECTOR], &before));
    assert_null(metric_value(x->n_dropped[OTLP_DROP_MEMORY], &lost));
    assert_true(lost == !traced);
    if (traced)
        end_exported_request(traced);
    trace_sampler_done(&s);
    tracer_stop(t);
    double after;
    assert_null(metric_value(x->n_dropped[OTLP_DROP_COLLECTOR], &after));
    trace_home_unref(&x->home);
    return after == before + TRACE_SPANS ? NULL : status_no_memory();
}

static void a_lack_of_memory_drops_spans(void **state)
{
    (void)state;
    fault_each_allocation(export_one, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_of_many_threads_are_counted_once),
        cmocka_unit_test(a_lack_of_memory_drops_spans),
    };
    return cmocka_run_group_tests(tests, make_pool, free_pool);
}
