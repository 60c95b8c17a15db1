/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page is a table of families, in the order of printing; a metric is one entry. The format
 * demands all metrics of a family together, so the models are read first, into rows, and then
 * printed family by family. A thousand models make 16 000 lines: a line is a few copies of prepared
 * text, and one number.
 *
 * Threads: any; each thread that prints has a page of its own.
 */
#include "core/server/page.h"

#include <math.h>
#include <string.h>

#include "base/budget.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/load/model_load.h"
#include "core/metrics/exposition.h"
#include "core/metrics/family.h"
#include "core/metrics/machine.h"
#include "core/metrics/process.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_statistics.h"
#include "core/options/server_options.h"
#include "core/sched/watch.h"

struct row {
    struct model *model;
    struct statistics totals;
    struct watch_use use;
    bool has_histograms; /* they are counted, and it has had a request */
};

/* The data of a page. */
struct page {
    struct buf *out;
    const struct server_options *options;
    size_t n_rows;
    struct row *rows;
    bool has_machine;
    struct machine_use machine;
    struct budget_stats connections;
    bool has_process;
    struct process_use process;
    bool has_histograms; /* some row has */
    bool has_caches;     /* some model has the response cache */
};

struct family {
    const char *name, *help;
    enum metric_kind kind;
    bool (*is_shown)(const struct page *p);
    void (*print)(const struct page *p, const struct family *f); /* prints its lines */
    size_t at; /* position of the number in the print function's data; 0 without a choice */
};

/* ---- When a family is shown ------------------------------------------------------------------ */

static bool is_always_shown(const struct page *p)
{
    (void)p;
    return true;
}

/* A family without metrics is not shown. */
static bool has_models(const struct page *p)
{
    return p->n_rows > 0;
}

static bool shows_durations(const struct page *p)
{
    return p->n_rows > 0 && p->options->counter_latencies;
}

static bool shows_histograms(const struct page *p)
{
    return p->n_rows > 0 && p->options->histogram_latencies;
}

/* A model that has had no request has no lines: most of many models. */
static bool has_histograms(const struct page *p)
{
    return p->has_histograms;
}

static bool has_cached_models(const struct page *p)
{
    return p->has_caches;
}

static bool has_process(const struct page *p)
{
    return p->has_process;
}

static bool has_machine(const struct page *p)
{
    return p->has_machine;
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* Prints name{labels with the middle one between them} value. */
static void print_model_line(struct buf *out, const struct family *f, size_t name_length,
                             const struct model_metrics *m, const char *middle, uint64_t value)
{
    buf_add(out, f->name, name_length);
    buf_addc(out, '{');
    buf_add(out, m->labels, m->head_length);
    buf_adds(out, middle);
    buf_add(out, m->labels + m->head_length, m->length - m->head_length);
    buf_add(out, "} ", 2);
    json_write_uint64(out, value);
    buf_addc(out, '\n');
}

static uint64_t number_at(const void *base, size_t at)
{
    uint64_t value;
    memcpy(&value, (const char *)base + at, sizeof(value));
    return value;
}

/* From each model's struct statistics. */
static void print_counts(const struct page *p, const struct family *f)
{
    size_t name_length = strlen(f->name);
    for (size_t i = 0; i < p->n_rows; i++)
        print_model_line(p->out, f, name_length, &p->rows[i].model->metrics, "",
                         number_at(&p->rows[i].totals, f->at));
}

/* The same in nanoseconds, printed as microseconds. */
static void print_durations(const struct page *p, const struct family *f)
{
    size_t name_length = strlen(f->name);
    for (size_t i = 0; i < p->n_rows; i++)
        print_model_line(p->out, f, name_length, &p->rows[i].model->metrics, "",
                         number_at(&p->rows[i].totals, f->at) / NS_PER_US);
}

/* The same numbers of the models that have the response cache. */
static void print_cache_counts(const struct page *p, const struct family *f)
{
    size_t name_length = strlen(f->name);
    for (size_t i = 0; i < p->n_rows; i++) {
        if (p->rows[i].model->cached)
            print_model_line(p->out, f, name_length, &p->rows[i].model->metrics, "",
                             number_at(&p->rows[i].totals, f->at));
    }
}

static void print_cache_durations(const struct page *p, const struct family *f)
{
    size_t name_length = strlen(f->name);
    for (size_t i = 0; i < p->n_rows; i++) {
        if (p->rows[i].model->cached)
            print_model_line(p->out, f, name_length, &p->rows[i].model->metrics, "",
                             number_at(&p->rows[i].totals, f->at) / NS_PER_US);
    }
}

static void print_failures(const struct page *p, const struct family *f)
{
    static const char *const reasons[] = {
        [FAILURE_REJECTED] = ",reason=\"REJECTED\"",
        [FAILURE_CANCELED] = ",reason=\"CANCELED\"",
        [FAILURE_BACKEND] = ",reason=\"BACKEND\"",
        [FAILURE_OTHER] = ",reason=\"OTHER\"",
    };
    size_t name_length = strlen(f->name);
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct row *row = &p->rows[i];
        for (size_t r = 0; r < N_FAILURE_REASONS; r++)
            print_model_line(p->out, f, name_length, &row->model->metrics, reasons[r],
                             row->totals.failures[r]);
    }
}

static void print_refusals(const struct page *p, const struct family *f)
{
    static const char *const reasons[] = {
        [REFUSED_INVALID] = ",reason=\"invalid\"",
        [REFUSED_QUEUE_FULL] = ",reason=\"queue_full\"",
        [REFUSED_STOPPING] = ",reason=\"stopping\"",
        [REFUSED_OTHER] = ",reason=\"other\"",
    };
    size_t name_length = strlen(f->name);
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct model *m = p->rows[i].model;
        for (size_t r = 0; r < N_REFUSAL_REASONS; r++)
            print_model_line(p->out, f, name_length, &m->metrics, reasons[r],
                             atomic_load_explicit(&m->refusals[r], memory_order_relaxed));
    }
}

static void print_pending(const struct page *p, const struct family *f)
{
    size_t name_length = strlen(f->name);
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct model *m = p->rows[i].model;
        print_model_line(p->out, f, name_length, &m->metrics, "",
                         atomic_load_explicit(&m->pending, memory_order_relaxed));
    }
}

static void print_executing(const struct page *p, const struct family *f)
{
    size_t name_length = strlen(f->name);
    for (size_t i = 0; i < p->n_rows; i++)
        print_model_line(p->out, f, name_length, &p->rows[i].model->metrics, "",
                         p->rows[i].use.n_requests);
}

static void print_oldest(const struct page *p, const struct family *f)
{
    for (size_t i = 0; i < p->n_rows; i++)
        exposition_line(p->out, f->name, "", p->rows[i].model->metrics.labels, NULL,
                        (double)p->rows[i].use.oldest_ns / NS_PER_S);
}

static void print_oldest_pending(const struct page *p, const struct family *f)
{
    for (size_t i = 0; i < p->n_rows; i++)
        exposition_line(p->out, f->name, "", p->rows[i].model->metrics.labels, NULL,
                        (double)p->rows[i].use.oldest_pending_ns / NS_PER_S);
}

static void print_load_times(const struct page *p, const struct family *f)
{
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct model_metrics *m = &p->rows[i].model->metrics;
        exposition_line(p->out, f->name, "", m->labels, NULL, (double)m->load_ns / NS_PER_S);
    }
}

static void print_first_responses(const struct page *p, const struct family *f)
{
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct model_metrics *m = &p->rows[i].model->metrics;
        histogram_print(m->first_response, f->name, m->labels, p->out);
    }
}

/* Prints the lines of one histogram. @bounds  n - 1, ascending; the last bucket has none */
static void print_histogram(struct buf *out, const struct family *f, const char *labels,
                            const double *bounds, const uint64_t *counts, size_t n, double sum)
{
    static const double above_all = (double)INFINITY;
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += counts[i];
        exposition_line(out, f->name, "_bucket", labels, i + 1 < n ? &bounds[i] : &above_all,
                        (double)count);
    }
    exposition_line(out, f->name, "_sum", labels, NULL, sum);
    exposition_line(out, f->name, "_count", labels, NULL, (double)count);
}

static uint64_t sum_of_times_ns(const struct statistics *s, enum counted_time which)
{
    switch (which) {
    case TIME_OF_REQUEST:
        return s->success.ns;
    case TIME_IN_QUEUE:
        return s->queue_ns;
    default:
        return s->compute_input_ns + s->compute_infer_ns + s->compute_output_ns;
    }
}

/* f->at is the time. */
static void print_times(const struct page *p, const struct family *f)
{
    double bounds_s[TIME_BUCKETS];
    for (size_t i = 0; i < TIME_BUCKETS; i++)
        bounds_s[i] = (double)time_bounds_ns[i] / NS_PER_S;
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct row *row = &p->rows[i];
        uint64_t counts[TIME_BUCKETS];
        if (!row->has_histograms)
            continue;
        enum counted_time which = (enum counted_time)f->at;
        model_times(row->model, which, counts);
        print_histogram(p->out, f, row->model->metrics.labels, bounds_s, counts, TIME_BUCKETS,
                        (double)sum_of_times_ns(&row->totals, which) / NS_PER_S);
    }
}

enum { BATCH_BUCKETS = 12 }; /* up to 1, 2, 4, … 1024, and above */

/* From the counts of each size, which the statistics have anyway. */
static void print_batch_sizes(const struct page *p, const struct family *f)
{
    double bounds[BATCH_BUCKETS];
    for (size_t i = 0; i < BATCH_BUCKETS; i++)
        bounds[i] = (double)(1ULL << i);
    for (size_t i = 0; i < p->n_rows; i++) {
        uint64_t counts[BATCH_BUCKETS] = {0};
        struct statistics s;
        double sum = 0;
        if (!p->rows[i].has_histograms)
            continue;
        struct status *st = model_statistics(p->rows[i].model, &s);
        if (st) {
            p->out->failed = true;
            status_free(st);
            return;
        }
        for (uint32_t b = 0; b < s.n_batches; b++) {
            size_t k = 0;
            while (k + 1 < BATCH_BUCKETS && s.batches[b].batch_size > 1ULL << k)
                k++;
            counts[k] += s.batches[b].count;
            sum += (double)s.batches[b].batch_size * (double)s.batches[b].count;
        }
        statistics_done(&s);
        print_histogram(p->out, f, p->rows[i].model->metrics.labels, bounds, counts, BATCH_BUCKETS,
                        sum);
    }
}

static void print_build(const struct page *p, const struct family *f)
{
    exposition_line(p->out, f->name, "", "version=\"" CONCH_VERSION "\"", NULL, 1);
}

/* From struct process_use. */
static void print_process(const struct page *p, const struct family *f)
{
    exposition_line(p->out, f->name, "", "", NULL, (double)number_at(&p->process, f->at));
}

static void print_process_seconds(const struct page *p, const struct family *f)
{
    double value;
    memcpy(&value, (const char *)&p->process + f->at, sizeof(value));
    exposition_line(p->out, f->name, "", "", NULL, value);
}

/* Without GPUs there is no pool of pinned memory. */
static void print_zero(const struct page *p, const struct family *f)
{
    exposition_line(p->out, f->name, "", "", NULL, 0);
}

static void print_cpu_utilization(const struct page *p, const struct family *f)
{
    exposition_line(p->out, f->name, "", "", NULL, p->machine.utilization);
}

/* From struct machine_use. */
static void print_machine(const struct page *p, const struct family *f)
{
    exposition_line(p->out, f->name, "", "", NULL, (double)number_at(&p->machine, f->at));
}

/* From struct budget_stats. */
static void print_connections(const struct page *p, const struct family *f)
{
    exposition_line(p->out, f->name, "", "", NULL, (double)number_at(&p->connections, f->at));
}

/* ---- Families ------------------------------------------------------------------------------- */

#define COUNTER(name, help, print, at)                                                             \
    {                                                                                              \
        name, help, METRIC_COUNTER, has_models, print, at                                          \
    }
#define GAUGE(name, help, print)                                                                   \
    {                                                                                              \
        name, help, METRIC_GAUGE, has_models, print, 0                                             \
    }
#define DURATION(name, help, at)                                                                   \
    {                                                                                              \
        name, help, METRIC_COUNTER, shows_durations, print_durations,                              \
            offsetof(struct statistics, at)                                                        \
    }
#define CACHED(name, help, print, at)                                                              \
    {                                                                                              \
        name, help, METRIC_COUNTER, has_cached_models, print, offsetof(struct statistics, at)      \
    }
#define MACHINE(name, help, print, at)                                                             \
    {                                                                                              \
        name, help, METRIC_GAUGE, has_machine, print, at                                           \
    }
#define CONNECTIONS(name, help, kind, at)                                                          \
    {                                                                                              \
        name, help, kind, is_always_shown, print_connections, offsetof(struct budget_stats, at)    \
    }

#define TIMES(name, help, which)                                                                   \
    {                                                                                              \
        name, help, METRIC_HISTOGRAM, has_histograms, print_times, which                           \
    }
#define PROCESS(name, help, kind, print, at)                                                       \
    {                                                                                              \
        name, help, kind, has_process, print, offsetof(struct process_use, at)                     \
    }

/* Names that begin with conch_ or process_ are ours: the reference has none. */
static const struct family families[] = {
    COUNTER("nv_inference_request_success",
            "Number of successful inference requests, all batch sizes", print_counts,
            offsetof(struct statistics, success.count)),
    COUNTER("nv_inference_request_failure", "Number of failed inference requests, all batch sizes",
            print_failures, 0),
    COUNTER("nv_inference_count",
            "Number of inferences performed (does not include cached requests)", print_counts,
            offsetof(struct statistics, inference_count)),
    COUNTER("nv_inference_exec_count",
            "Number of model executions performed (does not include cached requests)", print_counts,
            offsetof(struct statistics, execution_count)),
    DURATION("nv_inference_request_duration_us",
             "Cumulative inference request duration in microseconds (includes cached requests)",
             success.ns),
    DURATION("nv_inference_queue_duration_us",
             "Cumulative inference queuing duration in microseconds (includes cached requests)",
             queue_ns),
    DURATION("nv_inference_compute_input_duration_us",
             "Cumulative compute input duration in microseconds (does not include cached requests)",
             compute_input_ns),
    DURATION("nv_inference_compute_infer_duration_us",
             "Cumulative compute inference duration in microseconds (does not include cached "
             "requests)",
             compute_infer_ns),
    DURATION("nv_inference_compute_output_duration_us",
             "Cumulative inference compute output duration in microseconds (does not include "
             "cached requests)",
             compute_output_ns),
    GAUGE("nv_inference_pending_request_count",
          "Instantaneous number of pending requests awaiting execution per-model.", print_pending),
    GAUGE("conch_pending_request_oldest_secs",
          "How long the oldest of these requests has waited, in seconds", print_oldest_pending),
    GAUGE("conch_executing_request_count", "Number of requests that the backend has now",
          print_executing),
    GAUGE("conch_executing_request_oldest_secs",
          "How long the backend has had the oldest of these requests, in seconds", print_oldest),
    COUNTER("conch_inference_request_refused",
            "Number of inference requests that were not accepted, by reason", print_refusals, 0),
    TIMES("conch_request_duration_seconds",
          "Time from the acceptance of a successful request to its end", TIME_OF_REQUEST),
    TIMES("conch_queue_duration_seconds", "Part of it: until the execution began", TIME_IN_QUEUE),
    TIMES("conch_compute_duration_seconds", "Part of it: in the backend", TIME_OF_COMPUTE),
    {"conch_batch_size", "Size of the batches that were executed", METRIC_HISTOGRAM, has_histograms,
     print_batch_sizes, 0},
    GAUGE("nv_model_load_duration_secs", "Model load time in seconds", print_load_times),
    {"nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes",
     METRIC_GAUGE, is_always_shown, print_zero, 0},
    {"nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes",
     METRIC_GAUGE, is_always_shown, print_zero, 0},
    CACHED("nv_cache_num_hits_per_model", "Number of cache hits per model", print_cache_counts,
           cache_hit.count),
    CACHED("nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds",
           print_cache_durations, cache_hit.ns),
    CACHED("nv_cache_num_misses_per_model", "Number of cache misses per model", print_cache_counts,
           cache_miss.count),
    CACHED("nv_cache_miss_duration_per_model",
           "Total cache miss (insert+lookup) duration per model, in microseconds",
           print_cache_durations, cache_miss.ns),
    MACHINE("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", print_cpu_utilization, 0),
    MACHINE("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", print_machine,
            offsetof(struct machine_use, memory_bytes)),
    MACHINE("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", print_machine,
            offsetof(struct machine_use, memory_used_bytes)),
    {FIRST_RESPONSE_FAMILY, "Duration from request to first response in milliseconds",
     METRIC_HISTOGRAM, shows_histograms, print_first_responses, 0},
    CONNECTIONS("conch_connection_memory_budget_bytes",
                "Memory that requests and replies of all connections may take, in bytes",
                METRIC_GAUGE, limit_bytes),
    CONNECTIONS("conch_connection_memory_used_bytes",
                "Memory that they take, with what is kept for the next ones, in bytes",
                METRIC_GAUGE, used_bytes),
    CONNECTIONS("conch_connection_memory_refusals",
                "Number of times that the budget had no room for a large request or reply",
                METRIC_COUNTER, n_refused),
    CONNECTIONS("conch_connection_memory_evictions",
                "Number of slow connections that were given up for others", METRIC_COUNTER,
                n_evicted),
    {"conch_build_info", "Version of the server; the value is 1", METRIC_GAUGE, is_always_shown,
     print_build, 0},
    PROCESS("process_cpu_seconds_total", "CPU time of the server, in seconds", METRIC_COUNTER,
            print_process_seconds, cpu_s),
    PROCESS("process_resident_memory_bytes", "Resident memory of the server, in bytes",
            METRIC_GAUGE, print_process, resident_bytes),
    PROCESS("process_virtual_memory_bytes", "Address space of the server, in bytes", METRIC_GAUGE,
            print_process, virtual_bytes),
    PROCESS("process_start_time_seconds", "When the server began, in seconds since the epoch",
            METRIC_GAUGE, print_process_seconds, start_s),
    PROCESS("process_threads", "Number of threads of the server", METRIC_GAUGE, print_process,
            n_threads),
    PROCESS("process_open_fds", "Number of open descriptors", METRIC_GAUGE, print_process, n_fds),
    PROCESS("process_max_fds", "Number of descriptors that may be open", METRIC_GAUGE,
            print_process, max_fds),
};

enum { MAX_PARTS = 4 };

/* Set while the library is loaded, constant afterwards. */
static page_part_fn *parts[MAX_PARTS];
static unsigned int n_parts;

void page_add_part(page_part_fn *print)
{
    BUG_ON(n_parts == MAX_PARTS);
    parts[n_parts++] = print;
}

static bool has_own_family(const char *name)
{
    static const char of_parts[] = "conch_frontend_";
    if (strncmp(name, of_parts, sizeof(of_parts) - 1) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        if (strcmp(families[i].name, name) == 0)
            return true;
    }
    return false;
}

__attribute__((constructor)) static void reserve_own_families(void)
{
    metric_families_reserve(has_own_family);
}

/* ---- The page ------------------------------------------------------------------------------- */

static void read_models(struct page *p, struct model *const *models, uint64_t now_ns)
{
    while (models && models[p->n_rows])
        p->n_rows++;
    p->rows = mem_alloc((p->n_rows + 1) * sizeof(*p->rows));
    for (size_t i = 0; i < p->n_rows; i++) {
        p->rows[i].model = models[i];
        model_totals(models[i], &p->rows[i].totals);
        model_executing(models[i], now_ns, &p->rows[i].use);
        p->rows[i].has_histograms =
            models[i]->metrics.has_histograms && p->rows[i].totals.execution_count > 0;
        p->has_histograms |= p->rows[i].has_histograms;
        p->has_caches |= models[i]->cached != NULL;
    }
}

static void print_families(const struct page_source *source, struct buf *out)
{
    uint64_t now_ns = clock_now_ns(source->clock);
    struct page p = {
        .out = out, .options = source->options, .has_machine = source->machine != NULL};
    read_models(&p, source->models, now_ns);
    if (source->machine)
        p.machine = machine_look(source->machine, now_ns);
    budget_stats(source->connections, &p.connections);
    p.has_process = process_look(&p.process);
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        const struct family *f = &families[i];
        if (!f->is_shown(&p))
            continue;
        exposition_family(out, f->name, f->help, f->kind);
        f->print(&p, f);
    }
    mem_free(p.rows);
    for (unsigned int i = 0; i < n_parts; i++)
        parts[i](source->server, out);
}

struct status *page_print(const struct page_source *source, struct buf *out)
{
    if (source->options->metrics)
        print_families(source, out);
    metric_families_print(out);
    return buf_status(out);
}
