/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format wants all metrics of a family together, so the models are read first, into rows, and
 * then printed family by family. A thousand models make 16 000 lines: a line is a few copies of
 * what is ready, and one number.
 */
#include "core/metrics/page.h"

#include <string.h>

#include "base/budget.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/metrics/exposition.h"
#include "core/metrics/family.h"
#include "core/metrics/machine.h"
#include "core/model.h"
#include "core/model_priv.h"
#include "core/sched/watch.h"
#include "core/server_options.h"
#include "core/server_priv.h"

struct row {
    struct model *model;
    struct statistics totals;
    struct watch_use use;
};

struct rows {
    size_t n;
    struct row *list;
    struct model **models; /* NULL ends; each is a reference */
};

/* ---- Families ------------------------------------------------------------------------------- */

/* A number of each model's statistics. */
struct counter {
    const char *name, *help;
    size_t at;  /* in struct statistics: a uint64_t */
    bool is_ns; /* printed as microseconds; left out without latencies */
};

#define COUNT(field)    offsetof(struct statistics, field), false
#define DURATION(field) offsetof(struct statistics, field), true

static const struct counter successes = {"nv_inference_request_success",
                                         "Number of successful inference requests, all batch sizes",
                                         COUNT(success.count)};

static const char failures_name[] = "nv_inference_request_failure";
static const char failures_help[] = "Number of failed inference requests, all batch sizes";

static const struct counter counters[] = {
    {"nv_inference_count", "Number of inferences performed (does not include cached requests)",
     COUNT(inference_count)},
    {"nv_inference_exec_count",
     "Number of model executions performed (does not include cached requests)",
     COUNT(execution_count)},
    {"nv_inference_request_duration_us",
     "Cumulative inference request duration in microseconds (includes cached requests)",
     DURATION(success.ns)},
    {"nv_inference_queue_duration_us",
     "Cumulative inference queuing duration in microseconds (includes cached requests)",
     DURATION(queue_ns)},
    {"nv_inference_compute_input_duration_us",
     "Cumulative compute input duration in microseconds (does not include cached requests)",
     DURATION(compute_input_ns)},
    {"nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds (does not include cached requests)",
     DURATION(compute_infer_ns)},
    {"nv_inference_compute_output_duration_us",
     "Cumulative inference compute output duration in microseconds (does not include cached "
     "requests)",
     DURATION(compute_output_ns)},
};

static const char pending_name[] = "nv_inference_pending_request_count";
static const char pending_help[] =
    "Instantaneous number of pending requests awaiting execution per-model.";

/* Ours: the reference has no such. */
static const char executing_name[] = "conch_executing_request_count";
static const char executing_help[] = "Number of requests that the backend has now";

static const char oldest_name[] = "conch_executing_request_oldest_secs";
static const char oldest_help[] =
    "How long the backend has had the oldest of these requests, in seconds";

static const char load_name[] = "nv_model_load_duration_secs";
static const char load_help[] = "Model load time in seconds";

static const char first_name[] = FIRST_RESPONSE_FAMILY;
static const char first_help[] = "Duration from request to first response in milliseconds";

enum { PINNED_TOTAL, PINNED_USED, CPU_UTILIZATION, CPU_MEMORY_TOTAL, CPU_MEMORY_USED, N_GAUGES };

/* Of the machine: without labels. */
static const struct {
    const char *name, *help;
} gauges[] = {
    [PINNED_TOTAL] = {"nv_pinned_memory_pool_total_bytes",
                      "Pinned memory pool total memory size, in bytes"},
    [PINNED_USED] = {"nv_pinned_memory_pool_used_bytes",
                     "Pinned memory pool used memory size, in bytes"},
    [CPU_UTILIZATION] = {"nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]"},
    [CPU_MEMORY_TOTAL] = {"nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes"},
    [CPU_MEMORY_USED] = {"nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes"},
};
_Static_assert(ARRAY_SIZE(gauges) == N_GAUGES, "one line each");

/* Of the connections: without labels, and ours. */
static const struct {
    const char *name, *help;
    enum metric_kind kind;
    size_t at; /* in struct budget_stats: a uint64_t */
} connection_metrics[] = {
    {"conch_connection_memory_budget_bytes",
     "Memory that requests and replies of all connections may take, in bytes", METRIC_GAUGE,
     offsetof(struct budget_stats, limit_bytes)},
    {"conch_connection_memory_used_bytes",
     "Memory that they take, with what is kept for the next ones, in bytes", METRIC_GAUGE,
     offsetof(struct budget_stats, used_bytes)},
    {"conch_connection_memory_refusals",
     "Number of times that the budget had no room for a large request or reply", METRIC_COUNTER,
     offsetof(struct budget_stats, n_refused)},
    {"conch_connection_memory_evictions",
     "Number of slow connections that were given up for others", METRIC_COUNTER,
     offsetof(struct budget_stats, n_evicted)},
};

bool page_has_family(const char *name)
{
    const char *const others[] = {successes.name, failures_name, pending_name, executing_name,
                                  oldest_name,    load_name,     first_name};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (strcmp(others[i], name) == 0)
            return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
        if (strcmp(counters[i].name, name) == 0)
            return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(gauges); i++) {
        if (strcmp(gauges[i].name, name) == 0)
            return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(connection_metrics); i++) {
        if (strcmp(connection_metrics[i].name, name) == 0)
            return true;
    }
    return false;
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* name{labels with the middle one between them} value */
static void print_model_line(struct buf *out, const char *name, size_t name_length,
                             const struct model_metrics *m, const char *middle, uint64_t value)
{
    buf_add(out, name, name_length);
    buf_addc(out, '{');
    buf_add(out, m->labels, m->head_length);
    buf_adds(out, middle);
    buf_add(out, m->labels + m->head_length, m->length - m->head_length);
    buf_add(out, "} ", 2);
    json_write_uint64(out, value);
    buf_addc(out, '\n');
}

static void print_counter(struct buf *out, const struct counter *c, const struct rows *rows)
{
    size_t name_length = strlen(c->name);
    exposition_family(out, c->name, c->help, METRIC_COUNTER);
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->list[i];
        uint64_t value;
        memcpy(&value, (const char *)&row->totals + c->at, sizeof(value));
        print_model_line(out, c->name, name_length, &row->model->metrics, "",
                         c->is_ns ? value / NS_PER_US : value);
    }
}

static void print_failures(struct buf *out, const struct rows *rows)
{
    static const char *const reasons[] = {
        [FAILURE_REJECTED] = ",reason=\"REJECTED\"",
        [FAILURE_CANCELED] = ",reason=\"CANCELED\"",
        [FAILURE_BACKEND] = ",reason=\"BACKEND\"",
        [FAILURE_OTHER] = ",reason=\"OTHER\"",
    };
    exposition_family(out, failures_name, failures_help, METRIC_COUNTER);
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->list[i];
        for (size_t r = 0; r < N_FAILURE_REASONS; r++)
            print_model_line(out, failures_name, sizeof(failures_name) - 1, &row->model->metrics,
                             reasons[r], row->totals.failures[r]);
    }
}

static void print_pending(struct buf *out, const struct rows *rows)
{
    exposition_family(out, pending_name, pending_help, METRIC_GAUGE);
    for (size_t i = 0; i < rows->n; i++) {
        const struct model *m = rows->list[i].model;
        print_model_line(out, pending_name, sizeof(pending_name) - 1, &m->metrics, "",
                         atomic_load_explicit(&m->pending, memory_order_relaxed));
    }
}

static void print_executing(struct buf *out, const struct rows *rows)
{
    exposition_family(out, executing_name, executing_help, METRIC_GAUGE);
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->list[i];
        print_model_line(out, executing_name, sizeof(executing_name) - 1, &row->model->metrics, "",
                         row->use.n_requests);
    }
    exposition_family(out, oldest_name, oldest_help, METRIC_GAUGE);
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->list[i];
        exposition_line(out, oldest_name, "", row->model->metrics.labels, NULL,
                        (double)row->use.oldest_ns / NS_PER_S);
    }
}

static void print_load_times(struct buf *out, const struct rows *rows)
{
    exposition_family(out, load_name, load_help, METRIC_GAUGE);
    for (size_t i = 0; i < rows->n; i++) {
        const struct model_metrics *m = &rows->list[i].model->metrics;
        exposition_line(out, load_name, "", m->labels, NULL, (double)m->load_ns / NS_PER_S);
    }
}

static void print_first_responses(struct buf *out, const struct rows *rows)
{
    exposition_family(out, first_name, first_help, METRIC_HISTOGRAM);
    for (size_t i = 0; i < rows->n; i++) {
        const struct model_metrics *m = &rows->list[i].model->metrics;
        histogram_print(m->first_response, first_name, m->labels, out);
    }
}

static void print_gauge(struct buf *out, int which, double value)
{
    exposition_family(out, gauges[which].name, gauges[which].help, METRIC_GAUGE);
    exposition_line(out, gauges[which].name, "", "", NULL, value);
}

static void print_machine(struct buf *out, struct machine *machine)
{
    struct machine_use use = machine_look(machine, monotonic_ns());
    print_gauge(out, CPU_UTILIZATION, use.utilization);
    print_gauge(out, CPU_MEMORY_TOTAL, (double)use.memory_bytes);
    print_gauge(out, CPU_MEMORY_USED, (double)use.memory_used_bytes);
}

static void print_connections(struct buf *out, const struct budget *budget)
{
    struct budget_stats stats;
    budget_stats(budget, &stats);
    for (size_t i = 0; i < ARRAY_SIZE(connection_metrics); i++) {
        uint64_t value;
        memcpy(&value, (const char *)&stats + connection_metrics[i].at, sizeof(value));
        exposition_family(out, connection_metrics[i].name, connection_metrics[i].help,
                          connection_metrics[i].kind);
        exposition_line(out, connection_metrics[i].name, "", "", NULL, (double)value);
    }
}

/* ---- The page ------------------------------------------------------------------------------- */

/* No models is no error: there are none yet, or none any more. */
static struct rows read_models(struct server *s)
{
    struct rows rows = {0};
    struct status *st =
        repository_serving(&s->repository, "", 0, CONCH_VERSION_LATEST, &rows.models);
    if (st) {
        status_free(st);
        return rows;
    }
    while (rows.models[rows.n])
        rows.n++;
    uint64_t now_ns = monotonic_ns();
    rows.list = mem_alloc((rows.n + 1) * sizeof(*rows.list));
    for (size_t i = 0; i < rows.n; i++) {
        rows.list[i].model = rows.models[i];
        model_totals(rows.models[i], &rows.list[i].totals);
        model_executing(rows.models[i], now_ns, &rows.list[i].use);
    }
    return rows;
}

static void print_models(struct buf *out, const struct server_options *o, const struct rows *rows)
{
    if (rows->n == 0)
        return; /* a family without metrics is not shown */
    print_counter(out, &successes, rows);
    print_failures(out, rows);
    for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
        if (o->counter_latencies || !counters[i].is_ns)
            print_counter(out, &counters[i], rows);
    }
    print_pending(out, rows);
    print_executing(out, rows);
    print_load_times(out, rows);
}

struct status *page_print(struct server *s, struct buf *out)
{
    if (s->options->metrics) {
        struct rows rows = read_models(s);
        print_models(out, s->options, &rows);
        print_gauge(out, PINNED_TOTAL, 0); /* without GPUs there is no such pool */
        print_gauge(out, PINNED_USED, 0);
        if (s->machine)
            print_machine(out, s->machine);
        if (s->options->histogram_latencies && rows.n)
            print_first_responses(out, &rows);
        print_connections(out, s->budget);
        if (rows.models)
            repository_unref_models(rows.models);
        mem_free(rows.list);
    }
    metric_families_print(out);
    return buf_status(out);
}
