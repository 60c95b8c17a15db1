/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring holds traces, and its size is counted in spans, as OpenTelemetry's settings are. A batch
 * is sent when there are enough spans for one, or when its first trace has waited for the delay.
 * While a batch is sent, or waits for its next try, the ring fills, and drops what it has no room
 * for. A stop sends what there is, without further tries and within STOP_NS.
 *
 * Invariant: a trace counts in its setting's n_open until it is encoded or dropped.
 */
#include "frontends/tracing/otlp_exporter.h"

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/compress.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "core/metrics/family.h"
#include "frontends/tracing/otlp_encode.h"
#include "frontends/tracing/otlp_post.h"
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/trace_setting.h"

enum { EXPORTER_LEVEL = 886, MAX_BODY_BYTES = 256 << 20, KEPT_BODY_BYTES = 1 << 20 };

#define STOP_NS      (3 * NS_PER_S)
#define FIRST_WAIT   (200 * NS_PER_MS) /* before the second try; twice as long before each other */
#define LONGEST_WAIT (5 * NS_PER_S)

static void count_spans(struct metric *metric, uint64_t n)
{
    if (n > 0)
        status_free(metric_increment(metric, (double)n));
}

/* ---- What other threads call ---------------------------------------------------------------- */

static void end_exported(struct trace_home *home, struct trace_setting *s)
{
    (void)home;
    atomic_fetch_sub(&s->n_open, 1);
}

/* What the span of the frontend would have been; how many others, nobody knows. */
static void lose_spans(struct trace_home *home)
{
    count_spans(CONTAINER_OF(home, struct otlp_exporter, home)->n_dropped[OTLP_DROP_MEMORY], 1);
}

static void end_trace(struct otlp_exporter *x, struct traced *t)
{
    end_exported(&x->home, t->setting);
    traced_free(t);
}

static void put_in_ring(struct trace_home *home, struct traced *t)
{
    struct otlp_exporter *x = CONTAINER_OF(home, struct otlp_exporter, home);
    uint32_t n_spans = otlp_count_spans(t);
    enum otlp_drop why = OTLP_DROP_QUEUE;
    bool is_taken = false;
    mutex_lock(&x->mu);
    if (atomic_load(&t->is_cut))
        why = OTLP_DROP_MEMORY;
    else
        is_taken =
            !t->is_refused && !x->is_ending && n_spans <= x->settings->max_queue_size - x->n_spans;
    if (is_taken) {
        bool was_full = x->n_spans >= x->settings->max_batch_size;
        list_push(&x->ring, &t->link);
        x->n_spans += n_spans;
        if (x->is_idle || (!was_full && x->n_spans >= x->settings->max_batch_size))
            cond_signal(&x->changed);
        x->is_idle = false;
    }
    mutex_unlock(&x->mu);
    if (is_taken)
        return;
    if (!t->is_refused)
        count_spans(x->n_dropped[why], n_spans);
    end_trace(x, t);
}

static void stop_exporter(struct trace_home *home)
{
    struct otlp_exporter *x = CONTAINER_OF(home, struct otlp_exporter, home);
    mutex_lock(&x->mu);
    bool was_ending = x->is_ending;
    x->is_ending = true;
    x->stop_ns = monotonic_ns() + STOP_NS;
    cond_signal(&x->changed);
    mutex_unlock(&x->mu);
    if (!was_ending)
        thread_join(&x->thread);
}

/* ---- Sending -------------------------------------------------------------------------------- */

/* libcurl asks while a request lasts. */
static bool is_stop_over(void *arg)
{
    struct otlp_exporter *x = arg;
    mutex_lock(&x->mu);
    bool is_over = x->is_ending && monotonic_ns() >= x->stop_ns;
    mutex_unlock(&x->mu);
    return is_over;
}

/* Logs the first of several failures. */
static void log_export_failure(struct otlp_exporter *x, const struct otlp_post *post)
{
    if (x->has_failed)
        return;
    x->has_failed = true;
    if (post->status == 0)
        log_error("traces are dropped: no answer from '%s': %s", x->settings->url, post->error);
    else
        log_error("traces are dropped: '%s' has answered with status %ld", x->settings->url,
                  post->status);
}

static void take_collectors_answer(struct otlp_exporter *x, const struct otlp_post *post,
                                   uint32_t n_spans)
{
    struct otlp_answer answer;
    otlp_read_answer(post->is_json, buf_text(&post->body), post->body.size, &answer);
    uint64_t n_rejected = MIN(answer.n_rejected, (uint64_t)n_spans);
    count_spans(x->n_sent, n_spans - n_rejected);
    count_spans(x->n_dropped[OTLP_DROP_REJECTED], n_rejected);
    if (n_rejected > 0)
        log_warn("'%s' has rejected %llu of %u spans: %s", x->settings->url,
                 (unsigned long long)n_rejected, n_spans, answer.message);
    if (x->has_failed)
        log_info("traces are sent again to '%s'", x->settings->url);
    x->has_failed = false;
}

static bool may_be_repeated(long status)
{
    return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

/* Waits before another try; false: there is no time for one, or the server stops. */
static bool wait_for_try(struct otlp_exporter *x, uint64_t wait_ns, uint64_t deadline_ns)
{
    uint64_t until_ns = monotonic_ns() + wait_ns;
    if (until_ns >= deadline_ns)
        return false;
    mutex_lock(&x->mu);
    while (!x->is_ending && cond_wait_until(&x->changed, &x->mu, until_ns))
        ;
    bool goes_on = !x->is_ending;
    mutex_unlock(&x->mu);
    return goes_on;
}

/* What is to be sent: a body, which may be a packed one. */
struct export_body {
    const void *bytes;
    size_t n_bytes;
    bool is_packed;
    uint32_t n_spans;
};

static void send_body(struct otlp_exporter *x, const struct export_body *body)
{
    struct otlp_post post = {.body = BUF_INIT(OTLP_ANSWER_BYTES), .error = "the server stops"};
    uint64_t deadline_ns = monotonic_ns() + x->settings->export_timeout_ms * NS_PER_MS;
    uint64_t wait_ns = FIRST_WAIT;
    bool is_done = false, goes_on = true;
    while (goes_on && !is_stop_over(x)) {
        otlp_poster_send(x->poster, body->bytes, body->n_bytes, body->is_packed, &post);
        is_done = post.status >= 200 && post.status < 300;
        goes_on = !is_done && may_be_repeated(post.status);
        uint64_t told_ns = post.retry_after_ms * NS_PER_MS;
        goes_on = goes_on && wait_for_try(x, told_ns ? told_ns : wait_ns, deadline_ns);
        wait_ns = MIN(2 * wait_ns, LONGEST_WAIT);
    }
    if (is_done) {
        take_collectors_answer(x, &post, body->n_spans);
    } else {
        log_export_failure(x, &post);
        count_spans(x->n_dropped[OTLP_DROP_COLLECTOR], body->n_spans);
    }
    buf_done(&post.body);
}

/* Sends the body packed, if it is to be and there is memory for that. */
static void send_export(struct otlp_exporter *x, uint32_t n_spans)
{
    const struct buf *plain = &x->body;
    struct export_body body = {buf_text(plain), plain->size, false, n_spans};
    char *block = NULL;
    if (x->settings->is_packed) {
        struct iovec piece = {plain->data, plain->size};
        if (!x->compress)
            x->compress = compress_new();
        struct status *st = compress_pack(x->compress, COMPRESS_GZIP, &piece, 1, thread_pool(),
                                          NULL, &block, &body.n_bytes);
        body.is_packed = !st;
        if (!st)
            body.bytes = block;
        else
            body.n_bytes = plain->size;
        status_free(st);
    }
    send_body(x, &body);
    pool_release(block);
}

/* ---- Batches -------------------------------------------------------------------------------- */

enum { BATCH_TRACES = 512 };

/* What the wall clock is ahead of the monotonic one. */
static int64_t get_wall_offset(void)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * (int64_t)NS_PER_S + wall.tv_nsec - (int64_t)monotonic_ns();
}

/* Takes traces for one batch out of the ring: at least one, if there is any. */
static size_t take_export_locked(struct otlp_exporter *x, struct traced **batch)
{
    mutex_assert_held(&x->mu);
    size_t n = 0;
    uint32_t n_spans = 0;
    struct list *link;
    while (n < BATCH_TRACES && n_spans < x->settings->max_batch_size &&
           (link = list_pop(&x->ring))) {
        batch[n] = LIST_ENTRY(link, struct traced, link);
        n_spans += otlp_count_spans(batch[n]);
        n++;
    }
    x->n_spans -= n_spans;
    return n;
}

static void export_batch(struct otlp_exporter *x, struct traced **batch, size_t n)
{
    uint32_t n_spans = 0;
    buf_reset(&x->body);
    struct status *st = otlp_encode(x->settings, (const struct traced *const *)batch, n,
                                    get_wall_offset(), &x->body, &n_spans);
    for (size_t i = 0; i < n; i++)
        end_trace(x, batch[i]);
    if (st)
        count_spans(x->n_dropped[OTLP_DROP_MEMORY], n_spans);
    else
        send_export(x, n_spans);
    status_free(st);
    if (x->body.capacity > KEPT_BODY_BYTES)
        buf_done(&x->body);
}

/*
 * Waits until a batch is due; false: the thread ends. Where traces come all the time, the first of
 * a batch wakes nobody: a thread that has found none looks once more when one might be due.
 */
static bool await_batch_locked(struct otlp_exporter *x)
{
    mutex_assert_held(&x->mu);
    uint64_t delay_ns = x->settings->schedule_delay_ms * NS_PER_MS;
    for (;;) {
        struct list *first = list_empty(&x->ring) ? NULL : x->ring.next;
        if (x->is_ending || x->n_spans >= x->settings->max_batch_size)
            return first != NULL;
        if (x->is_idle) {
            cond_wait(&x->changed, &x->mu);
            continue;
        }
        uint64_t from_ns =
            first ? LIST_ENTRY(first, struct traced, link)->span.ended_ns : monotonic_ns();
        bool is_due = !cond_wait_until(&x->changed, &x->mu, from_ns + delay_ns);
        if (is_due && first)
            return true;
        x->is_idle = is_due && list_empty(&x->ring);
    }
}

static void run_exporter(void *arg)
{
    struct otlp_exporter *x = arg;
    struct traced *batch[BATCH_TRACES];
    MEM_CHARGE(NULL, 0);
    mutex_lock(&x->mu);
    while (await_batch_locked(x)) {
        size_t n = take_export_locked(x, batch);
        mutex_unlock(&x->mu);
        export_batch(x, batch, n);
        mutex_lock(&x->mu);
    }
    mutex_unlock(&x->mu);
    compress_free(TAKE(x->compress));
}

/* ---- Start and stop ------------------------------------------------------------------------- */

static struct status *make_export_metrics(struct otlp_exporter *x)
{
    static const char *const reasons[] = {[OTLP_DROP_QUEUE] = "queue",
                                          [OTLP_DROP_MEMORY] = "memory",
                                          [OTLP_DROP_COLLECTOR] = "collector",
                                          [OTLP_DROP_REJECTED] = "rejected"};
    struct status *st =
        metric_family_new(METRIC_COUNTER, "conch_spans_sent",
                          "Number of spans of traces that a collector has taken", &x->families[0]);
    if (!st)
        st = metric_family_new(METRIC_COUNTER, "conch_spans_dropped",
                               "Number of spans of traces that no collector has taken, by reason",
                               &x->families[1]);
    if (!st)
        st = metric_new(x->families[0], NULL, 0, NULL, &x->n_sent);
    for (int i = 0; i < N_OTLP_DROPS && !st; i++) {
        const struct metric_label label = {"reason", reasons[i]};
        st = metric_new(x->families[1], &label, 1, NULL, &x->n_dropped[i]);
    }
    return st;
}

static void free_exporter(struct trace_home *home)
{
    struct otlp_exporter *x = CONTAINER_OF(home, struct otlp_exporter, home);
    if (x->n_sent)
        metric_free(x->n_sent);
    for (int i = 0; i < N_OTLP_DROPS; i++) {
        if (x->n_dropped[i])
            metric_free(x->n_dropped[i]);
    }
    for (int i = 0; i < 2; i++) {
        if (x->families[i])
            status_free(metric_family_free(x->families[i]));
    }
    otlp_poster_free(x->poster);
    buf_done(&x->body);
    cond_done(&x->changed);
    mutex_done(&x->mu);
    mem_free(x);
}

struct status *otlp_exporter_start(const struct otlp_settings *settings, struct trace_home **ret)
{
    MEM_CHARGE(NULL, 0);
    struct otlp_exporter *x = mem_zalloc(sizeof(*x));
    x->settings = settings;
    x->home.put = put_in_ring;
    x->home.end = end_exported;
    x->home.stop = stop_exporter;
    x->home.lose = lose_spans;
    x->home.free = free_exporter;
    x->home.has_spans = true;
    atomic_init(&x->home.refs, 1);
    mutex_init(&x->mu, EXPORTER_LEVEL, "otlp_exporter.mu");
    cond_init(&x->changed);
    list_init(&x->ring);
    buf_init(&x->body, MAX_BODY_BYTES);
    struct status *st = otlp_poster_new(settings, is_stop_over, x, &x->poster);
    if (!st)
        st = make_export_metrics(x);
    if (!st)
        st = thread_start(&x->thread, "spans", run_exporter, x);
    if (st) {
        x->is_ending = true;
        trace_home_unref(&x->home);
        return st;
    }
    *ret = &x->home;
    return NULL;
}
