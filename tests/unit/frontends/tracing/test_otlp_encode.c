/* SPDX-License-Identifier: Apache-2.0 */
/* What backends report becomes spans, bad texts do no harm, each allocation may fail, and answers
 * of collectors are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/trace/trace.h"
#include "frontends/tracing/otlp_encode.h"
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/trace_setting.h"
#include "frontends/tracing/traced.h"
#include "lib/fault.h"
#include "proto/otlp.pb-c.h"

enum { WALL_NS = 1000 };

/* A home that keeps what it is given. */
static struct traced *kept;

static void keep_trace(struct trace_home *home, struct traced *t)
{
    (void)home;
    kept = t;
}

static void free_no_home(struct trace_home *home)
{
    (void)home;
}

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

static const char *const no_names[] = {NULL};

/* The trace of a request that reports these names one after the other, at 10, 11, … */
static struct traced *trace_names(struct trace_home *home, const char *const *names, const char *id)
{
    static const bool is_own[N_TRACE_FIELDS];
    const struct trace_values values = {.of = {TRACE_TIMESTAMPS, 1, -1, 0}};
    *home = (struct trace_home){.put = keep_trace, .free = free_no_home, .has_spans = true};
    atomic_init(&home->refs, 1);
    struct trace_setting *setting = trace_setting_new(&values, is_own, NULL);
    struct traced *t = traced_new(home, setting, pool, NULL);
    struct trace *trace = traced_trace(t);
    trace_set_request(trace, "m", 1, id);
    trace_report(trace, TRACE_REQUEST_START, 1);
    trace_report(trace, TRACE_QUEUE_START, 2);
    for (uint64_t ns = 10; *names; names++, ns++)
        trace_custom(trace, *names, ns);
    trace_report(trace, TRACE_COMPUTE_START, 100);
    trace_report(trace, TRACE_COMPUTE_END, 101);
    trace_report(trace, TRACE_REQUEST_END, 200);
    trace->ops->release(trace);
    traced_end(t);
    trace_setting_unref(setting);
    return kept;
}

/* Encodes a trace, and gives it back as messages. */
static Otlp__ExportRequest *encode_trace(const struct traced *t, uint32_t *ret_spans)
{
    AUTO(buf) body = BUF_INIT(1 << 20);
    struct otlp_settings *settings;
    assert_null(otlp_settings_new(NULL, 0, no_variable, &settings));
    assert_null(otlp_encode(settings, &t, 1, WALL_NS, &body, ret_spans));
    otlp_settings_free(settings);
    Otlp__ExportRequest *request =
        otlp__export_request__unpack(NULL, body.size, (const uint8_t *)body.data);
    assert_non_null(request);
    return request;
}

static const Otlp__Span *find_span(const Otlp__ExportRequest *request, const char *name)
{
    const Otlp__ScopeSpans *scope = request->resourcespans[0]->scopespans[0];
    for (size_t i = 0; i < scope->n_spans; i++) {
        if (strcmp(scope->spans[i]->name, name) == 0)
            return scope->spans[i];
    }
    return NULL;
}

static bool is_below(const Otlp__Span *span, const Otlp__Span *above)
{
    return memcmp(span->parentspanid.data, above->spanid.data, SPAN_ID_BYTES) == 0;
}

static void what_a_backend_reports_is_nested(void **state)
{
    (void)state;
    static const char *const names[] = {"A_START", "x",       "B_START", "C_END", "A_END",
                                        "y",       "D_START", "_END",    NULL};
    struct trace_home home;
    uint32_t n_spans;
    struct traced *t = trace_names(&home, names, "r");
    Otlp__ExportRequest *request = encode_trace(t, &n_spans);
    assert_int_equal(n_spans, 7); /* InferRequest, m, queue, compute, A, B, D */
    assert_true(otlp_count_spans(t) >= n_spans);
    const Otlp__Span *m = find_span(request, "m"), *a = find_span(request, "A");
    const Otlp__Span *b = find_span(request, "B"), *d = find_span(request, "D");
    assert_true(is_below(m, find_span(request, "InferRequest")));
    assert_true(is_below(a, m) && is_below(b, a) && is_below(d, m));
    assert_int_equal(a->starttimeunixnano, WALL_NS + 10);
    assert_int_equal(a->endtimeunixnano, WALL_NS + 14);
    assert_int_equal(b->endtimeunixnano, WALL_NS + 14); /* ended with the span around it */
    assert_int_equal(d->endtimeunixnano, WALL_NS + 200);
    assert_int_equal(a->n_events, 3); /* A_START, x, A_END */
    assert_int_equal(b->n_events, 2); /* B_START, C_END */
    assert_int_equal(m->n_events, 4); /* three of the request, and y */
    otlp__export_request__free_unpacked(request, NULL);
    traced_free(t);
}

static void many_reports_and_bad_texts_are_fine(void **state)
{
    (void)state;
    enum { N = 3000 };
    static const char *names[N + 1];
    for (int i = 0; i < N; i++)
        names[i] = i % 3 == 0 ? "S_START" : i % 3 == 1 ? "\"\\\n\xff" : "";
    struct trace_home home;
    uint32_t n_spans;
    struct traced *t = trace_names(&home, names, "\xff\xc3[id]");
    Otlp__ExportRequest *request = encode_trace(t, &n_spans);
    assert_int_equal(n_spans, 4 + N / 3);
    const Otlp__Span *m = find_span(request, "m");
    assert_string_equal(m->attributes[4]->value->stringvalue, "??[id]");
    otlp__export_request__free_unpacked(request, NULL);
    traced_free(t);
}

static struct status *encode_one(void *arg)
{
    AUTO(buf) body = BUF_INIT(1 << 20);
    const struct traced *t = arg;
    struct otlp_settings *settings;
    uint32_t n_spans;
    struct status *st = otlp_settings_new(NULL, 0, no_variable, &settings);
    if (st)
        return st;
    settings->is_json = true;
    st = otlp_encode(settings, &t, 1, 0, &body, &n_spans);
    otlp_settings_free(settings);
    return st;
}

static void a_lack_of_memory_is_told(void **state)
{
    (void)state;
    static const char *const names[] = {"A_START", "x", "A_END", NULL};
    struct trace_home home;
    struct traced *t = trace_names(&home, names, "\xff");
    fault_each_allocation(encode_one, t);
    traced_free(t);
}

static void a_batch_of_no_reports_has_four_spans(void **state)
{
    (void)state;
    struct trace_home home;
    uint32_t n_spans;
    struct traced *t = trace_names(&home, no_names, "");
    Otlp__ExportRequest *request = encode_trace(t, &n_spans);
    assert_int_equal(n_spans, 4);
    assert_int_equal(otlp_count_spans(t), 4);
    assert_int_equal(find_span(request, "m")->n_attributes, 4); /* no request_id */
    otlp__export_request__free_unpacked(request, NULL);
    traced_free(t);
}

static void expect_answer(bool is_json, const char *body, uint64_t n_rejected, const char *message)
{
    struct otlp_answer answer;
    otlp_read_answer(is_json, body, strlen(body), &answer);
    assert_int_equal(answer.n_rejected, n_rejected);
    assert_string_equal(answer.message, message);
}

static void answers_are_read(void **state)
{
    (void)state;
    expect_answer(false, "", 0, "");
    expect_answer(false, "\x0a\x06\x08\x03\x12\x02no", 3, "no");
    expect_answer(false, "\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0, ""); /* -1 */
    expect_answer(false, "rubbish", 0, "");
    expect_answer(true, "{}", 0, "");
    expect_answer(true, "{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}", 3, "");
    expect_answer(true, "{\"partialSuccess\":{\"rejectedSpans\":4,\"errorMessage\":\"x\"}}", 4,
                  "x");
    expect_answer(true, "rubbish", 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_backend_reports_is_nested),
        cmocka_unit_test(many_reports_and_bad_texts_are_fine),
        cmocka_unit_test(a_lack_of_memory_is_told),
        cmocka_unit_test(a_batch_of_no_reports_has_four_spans),
        cmocka_unit_test(answers_are_read),
    };
    return cmocka_run_group_tests(tests, make_pool, free_pool);
}
