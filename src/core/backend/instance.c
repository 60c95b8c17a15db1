/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instance in the order of its life: it is made where its host policy binds it, executes
 * batches, and counts what its backend reports.
 *
 * Only the instance's runner calls instance_execute(), and its warm-up before there is a runner.
 * The watch gets its information by a few stores without a lock. Backends report from any thread:
 * the thread that executes counts without a lock, all others under stats->mu.
 */
#include "core/backend/instance.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/cpu_binding.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/home.h"
#include "core/backend/host_policy.h"
#include "core/request/life.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/model/model_statistics.h"
#include "core/options/server_options.h"
#include "core/model/statistics.h"
#include "core/request/request_trace.h"
#include "core/request/step_times.h"

void instance_report_memory(struct instance *in, const size_t bytes[N_MEMORY_PLACES])
{
    for (enum memory_place at = 0; at < N_MEMORY_PLACES; at++) {
        size_t before =
            atomic_exchange_explicit(&in->reported_bytes[at], bytes[at], memory_order_relaxed);
        atomic_fetch_add_explicit(&in->model->instances_reported_bytes[at], bytes[at] - before,
                                  memory_order_relaxed);
    }
}

static enum instance_kind to_instance_kind(Inference__ModelInstanceGroup__Kind kind)
{
    switch (kind) {
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU:
        return INSTANCE_GPU;
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL:
        return INSTANCE_MODEL;
    default:
        return INSTANCE_CPU;
    }
}

NODISCARD static struct status *follow_host_policy(struct instance *in)
{
    const struct server_options *o = in->model->services->options;
    struct host_policy_name name;
    const char *policy = host_policy_on(in->group, in->device_id, &name);
    struct status *st = host_policy_document(o->host_policies, o->n_host_policies, policy,
                                             &in->host_policy_document);
    if (st)
        return st;
    return host_policy_cpu_binding(o->host_policies, o->n_host_policies, policy, &in->cpu_binding);
}

NODISCARD static struct status *initialize_backend_instance(struct instance *in)
{
    const struct backend_functions *fns = &in->model->backend->fns;
    MEM_CHARGE(in->model->owner, MEM_BACKEND);
    in->known_to_backend = true;
    return fns->instance_initialize ? fns->instance_initialize(in) : NULL;
}

struct status *instance_enter_cpu_binding(const struct instance *in, struct cpu_binding *ret_before)
{
    struct host_policy_name name;
    return host_policy_enter(in->cpu_binding, host_policy_on(in->group, in->device_id, &name),
                             ret_before);
}

/* Threads that the backend starts meanwhile inherit the binding. */
NODISCARD static struct status *initialize_where_bound(struct instance *in)
{
    struct cpu_binding before;
    struct status *st = instance_enter_cpu_binding(in, &before);
    if (!st)
        st = initialize_backend_instance(in);
    cpu_binding_restore(&before);
    return st;
}

struct initialization {
    struct instance *in;
    struct status *result;
};

static void run_initialization(void *arg)
{
    struct initialization *i = arg;
    i->result = initialize_where_bound(i->in);
}

bool model_wants_homes(const struct model *m)
{
    const char *execution = model_config_parameter(m->config, "CONCH_EXECUTION");
    return m->backend->attribute.instance_threads ||
           (execution && strcmp(execution, "thread") == 0);
}

NODISCARD static struct status *initialize_instance(struct instance *in)
{
    if (!model_wants_homes(in->model))
        return initialize_where_bound(in);
    struct status *st = home_new(in->name, &in->home);
    if (st)
        return st;
    struct initialization i = {.in = in};
    home_call(in->home, run_initialization, &i);
    return i.result;
}

/* They belong to the model, and outlive the instance. */
static struct instance_stats *new_counters(struct model *m)
{
    MEM_CHARGE(m->owner, MEM_CONFIG);
    return instance_stats_add(&m->statistics, m->metrics.has_histograms);
}

void instance_ref(struct instance *in)
{
    atomic_fetch_add_explicit(&in->n_users, 1, memory_order_relaxed);
}

void instance_unref(struct instance *in)
{
    if (atomic_fetch_sub_explicit(&in->n_users, 1, memory_order_acq_rel) == 1)
        in->on_unused(in);
}

/* Returns zeros. The state of a loan stays as it is, LOAN_NONE: another thread may look at it. */
static struct instance *new_struct(struct model *m)
{
    enum { AFTER_STATE = offsetof(struct instance, loan) + offsetof(struct loan, slot) };
    mutex_lock(&m->config_mu);
    struct list *link = list_pop(&m->spare_instances);
    mutex_unlock(&m->config_mu);
    if (!link)
        return mem_zalloc_on_line(sizeof(struct instance));
    struct instance *in = LIST_ENTRY(link, struct instance, leaving_link);
    memset((void *)in, 0, offsetof(struct instance, loan));
    memset((char *)in + AFTER_STATE, 0, sizeof(*in) - AFTER_STATE);
    return in;
}

struct status *instance_new(struct model *m, struct model_config *config,
                            const Inference__ModelInstanceGroup *group, int index, int device,
                            struct instance **ret_instance)
{
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    struct instance *in = new_struct(m);
    in->model = m;
    in->config = model_config_ref(config);
    in->group = group;
    atomic_init(&in->n_users, 1);
    in->name = mem_printf("%s_%d", group->name, index);
    in->kind = to_instance_kind(group->kind);
    in->device_id = device;
    /* A configuration may allow a batch of billions, but never so many requests wait. */
    in->batch_capacity = MIN(MAX(m->max_batch_size, 1u), (uint32_t)INSTANCE_MAX_REQUESTS);
    in->stats = new_counters(m);

    if (in->kind == INSTANCE_GPU)
        log_verbose(1, "initializing instance '%s' of model '%s' version %s on GPU %d", in->name,
                    m->name, m->version_text, device);
    else
        log_verbose(1, "initializing instance '%s' of model '%s' version %s", in->name, m->name,
                    m->version_text);
    struct status *st = follow_host_policy(in);
    if (!st)
        st = initialize_instance(in);
    if (st)
        instance_free(in);
    else
        *ret_instance = in;
    return st;
}

static void finalize_instance(void *arg)
{
    struct instance *in = arg;
    log_status(LOG_ERROR, "failed to finalize model instance",
               in->model->backend->fns.instance_finalize(in));
}

static void end_parts(struct instance *in)
{
    bool is_due = in->known_to_backend && in->model->backend->fns.instance_finalize;
    if (is_due && in->home)
        home_call(in->home, finalize_instance, in);
    else if (is_due)
        finalize_instance(in);
    home_free(in->home);
    instance_report_memory(in, (size_t[N_MEMORY_PLACES]){0});
    instance_stats_release(in->stats);
    model_config_free(in->config);
    mem_free(in->host_policy_document.json);
    mem_free(in->cpu_binding);
    if (in->batch != in->batch_of_one)
        mem_free(in->batch);
    mem_free(in->name);
}

void instance_free(struct instance *in)
{
    if (!in)
        return;
    end_parts(in);
    mem_free_on_line(in);
}

void instance_end(struct instance *in)
{
    struct model *m = in->model;
    end_parts(in);
    mutex_lock(&m->config_mu);
    list_push(&m->spare_instances, &in->leaving_link);
    mutex_unlock(&m->config_mu);
}

void instances_free_spare(struct model *m)
{
    struct list *link;
    while ((link = list_pop(&m->spare_instances)))
        mem_free_on_line(LIST_ENTRY(link, struct instance, leaving_link));
}

/* A backend may report times in a wrong order; the sums must not wrap. */
static uint64_t elapsed_ns(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/*
 * Removes requests that are cancelled or late, which are not executed. As in the reference, the
 * error of a cancelled one has no text.
 */
static uint32_t drop_given_up(struct request **batch, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (LIKELY(!request_is_given_up(batch[i]))) {
            batch[kept++] = batch[i];
            continue;
        }
        request_fail_queued(batch[i], FAILURE_CANCELED, status_given_up(batch[i]));
    }
    return kept;
}

/* ---- For the watch (core/sched/watch.h): a few stores each, no lock, no read-modify-write ---- */

static void begin_call(struct instance *in, uint32_t n, uint64_t start_ns)
{
    struct call_watcher *w = in->watcher;
    atomic_store_explicit(&in->n_executing, n, memory_order_relaxed);
    /* Release: a look that reads the time finds the batch. */
    atomic_store_explicit(&in->since_ns, start_ns, memory_order_release);
    if (UNLIKELY(w && !atomic_load_explicit(&w->armed, memory_order_relaxed)))
        w->ops->arm(w, start_ns);
}

/* Tells the maker, too, unless the request ends at this moment. */
static void note_kept(struct instance *in, struct request *r, uint64_t start_ns)
{
    if (r->ops->on_kept && request_sender_join(r, in)) {
        r->ops->on_kept(r);
        request_sender_done(r);
    }
    if (in->watcher)
        in->watcher->ops->on_kept(in, r, start_ns);
}

/* Notes the request if the backend still has it. */
static void watch_if_kept(struct instance *in, struct request *r, uint64_t start_ns)
{
    if (UNLIKELY(atomic_load_explicit(&r->life.taken_by, memory_order_relaxed) == in))
        note_kept(in, r, start_ns);
}

/* Afterwards the runner may stop using the batch. */
static void end_call(struct instance *in)
{
    atomic_store_explicit(&in->n_executing, 0, memory_order_relaxed);
    atomic_store_explicit(&in->since_ns, 0, memory_order_release);
    /* In this order for the compiler. A processor may still reorder the two; the look handles
     * that (WATCH_SETTLE_NS), so that a call needs no barrier. */
    atomic_signal_fence(memory_order_seq_cst);
    if (UNLIKELY(atomic_load_explicit(&in->watched, memory_order_relaxed)))
        in->watcher->ops->on_returned(in);
}

/* The call has returned, or the execution that has left is over. */
static void end_execution(struct instance *in, struct request **batch, uint32_t n,
                          uint64_t start_ns)
{
    for (uint32_t i = 0; i < n; i++)
        watch_if_kept(in, batch[i], start_ns);
    end_call(in);
    for (uint32_t i = 0; i < n; i++)
        request_unref(batch[i]);
}

/* ---- Execution ------------------------------------------------------------------------------ */

/* The backend has returned an error, and may have released the request all the same. */
static void fail_request(struct instance *in, struct request *r, struct status *error,
                         uint64_t start_ns)
{
    struct execution_times times = {.exec_start_ns = start_ns,
                                    .exec_end_ns = clock_now_ns(in->model->clock)};
    instance_report_statistics(in, r, false, &times); /* counted before it is sent */
    request_fail(r, status_ref(error));
    status_free(request_release(r));
}

/* What this thread executes now, and the end that its backend has reported; 0: none yet. A
 * callback may execute another instance in between. */
static THREAD_WORD const struct instance *executing;
static THREAD_WORD uint64_t reported_end_ns;

bool instance_executes_here(const struct instance *in)
{
    return in && executing == in;
}

const struct instance *instance_executing(void)
{
    return executing;
}

enum { CLOCK_EVERY = 8 };

/*
 * Returns how long the call, which has just returned, has taken. The result decides whether the
 * model may run inline, and is charged to the inline budget of its loop. (Statistics use the
 * backend's reports.) A backend that has reported its end has read the clock a moment ago, and the
 * rest of its call, mostly the answers, is usually short. So the reported time is used, except for
 * calls that were not short and for every eighth call, which are measured here, so that no report
 * is trusted for long. Every eighth is enough: a model leaves its loop when a 17th of the measured
 * calls is long (execution.c), and the watchdog needs no measurement.
 */
static uint64_t measure_call_ns(struct instance *in, uint64_t start_ns)
{
    uint64_t said_ns = reported_end_ns - start_ns;
    if (LIKELY(said_ns < SHORT_CALL_NS) && in->n_runs++ % CLOCK_EVERY != 0)
        return said_ns;
    return clock_now_ns(in->model->clock) - start_ns;
}

uint64_t instance_execute(struct instance *in, struct request **batch, uint32_t n,
                          uint64_t start_ns, uint64_t *ret_bytes)
{
    /* Public backends write into the array that they get (they set released requests to NULL):
     * it belongs to them, and is never read again. */
    struct request **given = batch + n;

    /* In a batch of sequences each request has its position; these were removed before. */
    if (LIKELY(!in->instance_slots))
        n = drop_given_up(batch, n);
    *ret_bytes = 0;
    if (n == 0)
        return 0;

    for (uint32_t i = 0; i < n; i++) {
        /* A backend that releases a request and then returns an error is wrong, yet must not
         * make us use freed memory: the requests stay until the call has returned. */
        request_ref(batch[i]);
        given[i] = batch[i];
        if (batch[i]->seq.states)
            in->model->scheduler_ops->fill_states(batch[i]);
        for (uint32_t j = 0; j < batch[i]->maker.n_inputs; j++)
            *ret_bytes += batch[i]->maker.inputs[j]->size_bytes;
        atomic_store_explicit(&batch[i]->life.taken_by, in, memory_order_relaxed);
        atomic_store_explicit(&batch[i]->life.stage, REQUEST_EXECUTING, memory_order_release);
        trace_execution(batch, i, n);
    }

    mutex_assert_none_held();
    begin_call(in, n, start_ns);
    const struct instance *outer = executing;
    executing = in;
    reported_end_ns = 0;
    in->leave.has_left = false;
    struct status *error = in->model->backend->fns.instance_execute(in, given, n);
    uint64_t took_ns = measure_call_ns(in, start_ns);
    executing = outer;
    reported_end_ns = 0;

    if (UNLIKELY(in->leave.has_left) && !error)
        return took_ns;
    in->leave.has_left = false; /* what has failed is over */
    for (uint32_t i = 0; UNLIKELY(error != NULL) && i < n; i++)
        fail_request(in, batch[i], error, start_ns);
    end_execution(in, batch, n, start_ns);
    if (UNLIKELY(error != NULL))
        log_verbose(1, "model '%s', instance '%s': execution failed: %s", in->model->name, in->name,
                    status_message(error));
    status_free(error);
    return took_ns;
}

enum finish instance_finish(struct instance *in, bool may_wait, uint64_t start_ns,
                            uint64_t *ret_took_ns)
{
    uint32_t n = atomic_load_explicit(&in->n_executing, memory_order_relaxed);
    uint64_t began_ns = atomic_load_explicit(&in->since_ns, memory_order_relaxed);
    const struct instance *outer = executing;
    mutex_assert_none_held();
    executing = in;
    reported_end_ns = 0;
    enum finish how = (enum finish)in->leave.finish(in, may_wait);
    *ret_took_ns = measure_call_ns(in, start_ns);
    executing = outer;
    reported_end_ns = 0;
    if (how == FINISH_OVER)
        end_execution(in, in->batch, n, began_ns);
    return how;
}

/* ---- Reports of backends --------------------------------------------------------------------- */

static inline struct compute_ns compute_of(const struct execution_times *t)
{
    return (struct compute_ns){.input = elapsed_ns(t->exec_start_ns, t->compute_start_ns),
                               .infer = elapsed_ns(t->compute_start_ns, t->compute_end_ns),
                               .output = elapsed_ns(t->compute_end_ns, t->exec_end_ns)};
}

static inline struct request_ns request_ns_of(const struct request *r,
                                              const struct execution_times *t)
{
    return (struct request_ns){.all = elapsed_ns(r->admitted.start_ns, t->exec_end_ns),
                               .queue = elapsed_ns(r->admitted.queue_ns, t->exec_start_ns),
                               .compute = compute_of(t)};
}

/* Counts on the thread that executes the instance. */
static void count_here(struct instance_stats *s, struct request_ns ns, uint32_t n_inferences)
{
    executor_counts_begin(s);
    executor_add(s, EXECUTOR_SUCCESSES, 1);
    executor_add(s, EXECUTOR_SUCCESS_NS, ns.all);
    executor_add(s, EXECUTOR_QUEUE_NS, ns.queue);
    executor_add(s, EXECUTOR_INPUT_NS, ns.compute.input);
    executor_add(s, EXECUTOR_INFER_NS, ns.compute.infer);
    executor_add(s, EXECUTOR_OUTPUT_NS, ns.compute.output);
    executor_add(s, EXECUTOR_INFERENCES, n_inferences);
    executor_counts_end(s);
    request_times_add(s->times, &ns);
}

void instance_report_statistics(struct instance *in, const struct request *r, bool success,
                                const struct execution_times *t)
{
    if (UNLIKELY(r->seq.padding))
        return;
    if (UNLIKELY(request_is_overdue(r)))
        return; /* counted as a failure, whatever has happened to it */
    trace_compute(r, t->exec_start_ns, t->compute_start_ns, t->compute_end_ns, t->exec_end_ns);
    if (!success) {
        model_count_failure(in->model, FAILURE_BACKEND,
                            elapsed_ns(r->admitted.start_ns, t->exec_end_ns));
        return;
    }
    struct request_ns ns = request_ns_of(r, t);
    uint32_t n_inferences = MAX(r->admitted.batch_size, 1u);
    if (UNLIKELY(r->maker.step_times != NULL))
        step_times_add(r->maker.step_times, &ns.compute);
    if (LIKELY(executing == in))
        count_here(in->stats, ns, n_inferences);
    else
        instance_stats_request(in->stats, &ns, n_inferences);
}

/* Counts a batch on the thread that executes the instance. */
static void count_batch_here(struct instance_stats *s, uint64_t batch_size, uint64_t now_ms,
                             struct compute_ns ns)
{
    if (UNLIKELY(atomic_load_explicit(&s->counts[EXECUTOR_BATCH_SIZE], memory_order_relaxed) !=
                 batch_size))
        executor_batch_size(s, batch_size);
    executor_counts_begin(s);
    executor_set(s, EXECUTOR_LAST_MS, now_ms);
    executor_add(s, EXECUTOR_BATCHES, 1);
    executor_add(s, EXECUTOR_BATCH_INPUT_NS, ns.input);
    executor_add(s, EXECUTOR_BATCH_INFER_NS, ns.infer);
    executor_add(s, EXECUTOR_BATCH_OUTPUT_NS, ns.output);
    executor_counts_end(s);
}

void instance_report_batch(struct instance *in, uint64_t batch_size,
                           const struct execution_times *t)
{
    struct compute_ns ns = compute_of(t);
    if (LIKELY(executing == in)) {
        reported_end_ns = t->exec_end_ns;
        count_batch_here(in->stats, batch_size, statistics_now_ms(), ns);
    } else {
        instance_stats_batch(in->stats, batch_size, &ns);
    }
}
