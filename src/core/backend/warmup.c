/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads per instance: one executes, since a backend may block in its call for any time. The
 * other one, which loads the model, waits for it and can log what it waits for.
 *
 *     load thread          waits, logs what it waits for, cancels when the server stops
 *     "warm-up" thread     for each sample: makes requests; `count` times executes them, waits
 *     the backend's own    responses and releases: errors are noted, requests counted
 *
 * An instance that has a thread of its own (core/backend/home.h) executes on that instead.
 *
 * A sample's requests are started again for each execution. They live in one block, which is freed
 * when the last of them is destroyed.
 */
#include "core/backend/warmup.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/cpu_binding.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/request/admit.h"
#include "core/backend/home.h"
#include "core/backend/instance.h"
#include "core/backend/warmup_data.h"
#include "core/request/life.h"
#include "core/threads/load_slot.h"
#include "core/model/model.h"
#include "core/model/model_services.h"
#include "core/request/response.h"
#include "core/options/server_options.h"

enum {
    WARMUP_LEVEL = 860,
    MAX_ERRORS_BYTES = 64 << 10,
    MAX_ERROR_BYTES = 8 << 10, /* longer errors of a sample are cut */
    REQUEST_ARENA_BYTES = 1024,
    MAX_LOGGED_RUNS = 10, /* of a sample, each with a log line */
};

#define LOOK_NS     (100 * NS_PER_MS) /* how soon a stop of the server is noticed */
#define LEND_NS     (1 * NS_PER_S)    /* after this time other models may be loaded meanwhile */
#define WARN_NS     (5 * NS_PER_S)   /* when a wait is first logged; then after twice as long … */
#define MAX_WARN_NS (320 * NS_PER_S) /* … up to this */

struct warmup {
    /* Constant. */
    struct model *model;
    struct pool *pool; /* keeps no released block */
    size_t n_samples;

    /* Any thread. */
    atomic_uint n_instances; /* warmed up */
    atomic_uint_least64_t took_ns;

    struct warmup_sample samples[]; /* constant */
};

/* The warm-up of one instance. */
struct drill {
    /* Constant. */
    struct instance *in;
    const struct warmup *warmup;

    struct mutex mu; /* level 860 in core/README.md */
    struct cond changed;
    /* Under mu. */
    const struct warmup_sample *sample; /* the sample in execution */
    uint32_t iteration;
    struct drill_request *requests; /* that may be cancelled, batch_size of them; NULL in between */
    uint32_t n_unanswered;          /* of the current execution */
    uint32_t n_alive;               /* requests that are not destroyed yet */
    bool stopping, done;
    bool timed_out;    /* … which is why it is stopping */
    struct buf errors; /* of the current execution, each followed by "; " */
    size_t last_error; /* where the last one begins */
    struct status *result;
};

struct drill_request {
    struct request request;
    struct drill *drill;
    atomic_bool has_response; /* in the current execution; relaxed: a backend answers in order */
    char memory[REQUEST_ARENA_BYTES];
};

/* ---- Answers of the backend ------------------------------------------------------------------ */

static struct drill_request *to_drill_request(struct request *r)
{
    return CONTAINER_OF(r, struct drill_request, request);
}

/* The copies of a sample mostly fail with the same error, which is noted once. */
static void note_error_locked(struct drill *d, const char *text)
{
    mutex_assert_held(&d->mu);
    size_t length = strnlen(text, MAX_ERROR_BYTES);
    if (d->errors.size && d->errors.size - d->last_error == length + strlen("; ") &&
        memcmp(d->errors.data + d->last_error, text, length) == 0)
        return;
    d->last_error = d->errors.size;
    buf_addf(&d->errors, "%.*s; ", (int)length, text);
}

static void note_warmup_response(struct request *r, struct response *resp, uint32_t flags)
{
    struct drill *d = to_drill_request(r)->drill;
    const char *error = resp && resp->error ? status_message(resp->error) : NULL;
    if (resp)
        atomic_store_explicit(&to_drill_request(r)->has_response, true, memory_order_relaxed);
    if ((flags & RESPONSE_FINAL) && !r->model->decoupled &&
        !atomic_load_explicit(&to_drill_request(r)->has_response, memory_order_relaxed))
        error = "expected a single response, got 0"; /* as a client would get */
    if (error) {
        mutex_lock(&d->mu);
        note_error_locked(d, error);
        mutex_unlock(&d->mu);
    }
    response_free(resp);
}

static void note_warmup_release(struct request *r, uint32_t flags)
{
    struct drill *d = to_drill_request(r)->drill;
    (void)flags;
    mutex_lock(&d->mu);
    if (--d->n_unanswered == 0)
        cond_broadcast(&d->changed);
    mutex_unlock(&d->mu);
}

static void note_warmup_destroyed(struct request *r)
{
    struct drill *d = to_drill_request(r)->drill;
    mutex_lock(&d->mu);
    if (--d->n_alive == 0)
        cond_broadcast(&d->changed);
    mutex_unlock(&d->mu);
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = note_warmup_response,
    .release = note_warmup_release,
    .destroy = note_warmup_destroyed,
};

/* ---- The requests ---------------------------------------------------------------------------- */

static struct status *add_sample_input(struct request *r, const struct warmup_input *from)
{
    struct model *m = r->model;
    size_t batch_dims = m->batching ? 1 : 0;
    int64_t *shape = arena_alloc(&r->arena, (from->n_dims + batch_dims) * sizeof(*shape));
    if (!shape)
        return status_no_memory();
    if (batch_dims)
        shape[0] = 1;
    for (size_t i = 0; i < from->n_dims; i++)
        shape[batch_dims + i] = from->dims[i];

    struct input *in;
    struct tensor_buffer data = {.base = from->data, .size_bytes = from->size_bytes};
    struct status *st = request_add_input(r, from->name, strlen(from->name), from->dtype, shape,
                                          from->n_dims + batch_dims, &in);
    if (st)
        return st;
    in->n_backend_dims = in->n_dims; /* the admission decides, if it knows the input */
    in->backend_shape = in->shape;
    return request_add_data(r, in, &data);
}

/*
 * Fills a request like any other and admits it. Then it adds inputs that the model does not
 * declare, such as the control tensors of sequences, which the admission would refuse.
 */
static struct status *fill_request(struct request *r, const struct warmup_sample *s)
{
    struct status *st = NULL;
    for (size_t i = 0; i < s->n_inputs && !st; i++)
        st = s->inputs[i].spec ? add_sample_input(r, &s->inputs[i]) : NULL;
    if (!st)
        st = request_admit(r);
    for (size_t i = 0; i < s->n_inputs && !st; i++)
        st = s->inputs[i].spec ? NULL : add_sample_input(r, &s->inputs[i]);
    return st;
}

/* The reference's texts do not name the sample that does not fit; our addition follows them. */
static struct status *add_sample_name(struct status *st, const char *name)
{
    if (!st)
        return NULL;
    struct status *whole =
        status_new(status_code(st), "%s (warmup sample '%s')", status_message(st), name);
    status_free(st);
    return whole;
}

static struct status *make_requests(struct drill *d, const struct warmup_sample *s,
                                    struct drill_request **ret_requests)
{
    struct model *m = d->in->model;
    MEM_CHARGE(m->owner, MEM_TENSORS);
    struct drill_request *all = mem_try_zalloc(s->batch_size, sizeof(*all));
    struct status *st = all ? NULL : status_no_memory();
    *ret_requests = all;
    for (uint32_t i = 0; i < s->batch_size && !st; i++) {
        all[i].drill = d;
        model_ref(m);
        request_init(&all[i].request, &ops, m, all[i].memory, sizeof(all[i].memory),
                     d->warmup->pool);
        mutex_lock(&d->mu);
        d->n_alive++;
        mutex_unlock(&d->mu);
        st = fill_request(&all[i].request, s);
    }
    return st;
}

/* The requests have ended; yet the thread that ended the last one may still be using it. */
static void end_requests(struct drill *d, struct drill_request *all)
{
    mutex_lock(&d->mu);
    uint32_t n = d->n_alive;
    mutex_unlock(&d->mu);
    for (uint32_t i = 0; i < n; i++)
        request_unref(&all[i].request);
    mutex_lock(&d->mu);
    while (d->n_alive)
        cond_wait(&d->changed, &d->mu);
    mutex_unlock(&d->mu);
    mem_free(all);
}

/* ---- The executions -------------------------------------------------------------------------- */

static unsigned int timeout_s(const struct drill *d)
{
    return d->in->model->services->options->warmup_timeout_s;
}

static struct status *get_execution_error(struct drill *d, const struct warmup_sample *s)
{
    mutex_lock(&d->mu);
    struct status *st = NULL;
    if (d->timed_out)
        st = status_new(STATUS_UNAVAILABLE,
                        "warm-up of instance '%s' has not ended after %u s, at run %" PRIu32
                        " of %" PRIu32 " of sample '%s' (--model-warmup-timeout-secs)",
                        d->in->name, timeout_s(d), d->iteration, s->count, s->name);
    else if (d->stopping)
        st = status_new(STATUS_UNAVAILABLE,
                        "the server stops: instance '%s' gave up warmup sample '%s'", d->in->name,
                        s->name);
    else if (d->errors.size || d->errors.failed)
        st = status_new(STATUS_INVALID_ARG, "failed to run warmup sample '%s': %s", s->name,
                        d->errors.size ? d->errors.data : "out of memory; ");
    mutex_unlock(&d->mu);
    return st;
}

/* @batch  room for twice the sample's batch, as instance_execute() demands */
static struct status *execute_sample(struct drill *d, const struct warmup_sample *s,
                                     struct drill_request *all, struct request **batch,
                                     uint32_t iteration)
{
    if (iteration <= MAX_LOGGED_RUNS)
        log_verbose(1,
                    "model '%s' instance %s is running warmup sample '%s' for iteration %" PRIu32,
                    d->in->model->name, d->in->name, s->name, iteration);
    if (iteration == MAX_LOGGED_RUNS && s->count > MAX_LOGGED_RUNS)
        log_verbose(1, "model '%s' instance %s: %" PRIu32 " more runs of warmup sample '%s' follow",
                    d->in->model->name, d->in->name, s->count - iteration, s->name);
    mutex_lock(&d->mu);
    buf_reset(&d->errors);
    d->last_error = 0;
    d->sample = s;
    d->iteration = iteration;
    d->n_unanswered = s->batch_size;
    d->requests = all;
    bool stopping = d->stopping;
    mutex_unlock(&d->mu);
    if (stopping)
        return get_execution_error(d, s);

    uint64_t now_ns = clock_now_ns(d->in->model->clock), bytes;
    for (uint32_t i = 0; i < s->batch_size; i++) {
        atomic_store_explicit(&all[i].has_response, false, memory_order_relaxed);
        batch[i] = &all[i].request;
        batch[i]->admitted.start_ns = batch[i]->admitted.queue_ns = now_ns;
        request_begin(batch[i]);
    }
    instance_execute(d->in, batch, s->batch_size, now_ns, &bytes);

    mutex_lock(&d->mu);
    while (d->n_unanswered)
        cond_wait(&d->changed, &d->mu);
    d->requests = NULL;
    mutex_unlock(&d->mu);
    return get_execution_error(d, s);
}

static struct status *run_sample(struct drill *d, const struct warmup_sample *s)
{
    struct request **batch = mem_try_zalloc(s->batch_size, 2 * sizeof(*batch));
    struct drill_request *all = NULL;
    struct status *st = batch ? make_requests(d, s, &all) : status_no_memory();
    st = add_sample_name(st, s->name);
    for (uint64_t i = 1; i <= s->count && !st; i++) {
        st = execute_sample(d, s, all, batch, (uint32_t)i);
        if (st)
            log_verbose(1, "model '%s' instance %s failed to run warmup sample '%s'",
                        d->in->model->name, d->in->name, s->name);
    }
    end_requests(d, all);
    mem_free(batch);
    return st;
}

static struct status *run_samples(struct drill *d)
{
    struct cpu_binding before;
    struct status *st = instance_enter_cpu_binding(d->in, &before);
    for (size_t i = 0; i < d->warmup->n_samples && !st; i++)
        st = run_sample(d, &d->warmup->samples[i]);
    cpu_binding_restore(&before);
    return st;
}

static void run_drill(void *arg)
{
    struct drill *d = arg;
    struct status *st = run_samples(d);
    mutex_lock(&d->mu);
    d->result = st;
    d->done = true;
    cond_broadcast(&d->changed);
    mutex_unlock(&d->mu);
}

/* ---- The wait -------------------------------------------------------------------------------- */

/* Backends that check for it find their requests cancelled; the others go on. */
static void stop_drill_locked(struct drill *d)
{
    mutex_assert_held(&d->mu);
    d->stopping = true;
    for (uint32_t i = 0; d->requests && i < d->sample->batch_size; i++)
        request_cancel(&d->requests[i].request);
}

static void watch_drill(struct drill *d)
{
    struct model *m = d->in->model;
    uint64_t began_ns = clock_now_ns(m->clock), step_ns = WARN_NS, warn_ns = began_ns + step_ns;
    bool has_lent = false;
    mutex_lock(&d->mu);
    while (!d->done) {
        (void)cond_wait_by_clock(&d->changed, &d->mu, m->clock, clock_now_ns(m->clock) + LOOK_NS);
        uint64_t waited_ns = clock_now_ns(m->clock) - began_ns;
        /* Before the server itself is stopped: a client may wait for this load, and its answer
         * delays the stop of a frontend, which comes first. */
        if (!d->stopping && m->services->is_stopping(m->services))
            stop_drill_locked(d);
        if (!d->stopping && !d->done && timeout_s(d) && waited_ns > timeout_s(d) * NS_PER_S) {
            d->timed_out = true;
            stop_drill_locked(d);
        }
        if (!d->done && !has_lent && waited_ns > LEND_NS) {
            mutex_unlock(&d->mu);
            load_slot_lend(m->load_slot);
            has_lent = true;
            mutex_lock(&d->mu);
        }
        if (d->done || clock_now_ns(m->clock) < warn_ns)
            continue;
        step_ns = MIN(2 * step_ns, (uint64_t)MAX_WARN_NS);
        warn_ns += step_ns;
        const char *name = d->sample ? d->sample->name : "";
        uint32_t iteration = d->iteration, n_unanswered = d->n_unanswered;
        mutex_unlock(&d->mu);
        log_warn("model '%s' instance %s: warm-up has taken %u s so far; sample '%s', iteration "
                 "%" PRIu32 ", %" PRIu32 " requests without their final response",
                 m->name, d->in->name,
                 (unsigned int)((clock_now_ns(m->clock) - began_ns) / NS_PER_S), name, iteration,
                 n_unanswered);
        mutex_lock(&d->mu);
    }
    mutex_unlock(&d->mu);
    if (has_lent)
        load_slot_take_back(m->load_slot);
}

struct status *warmup_run(struct warmup *w, struct instance *in)
{
    if (!w || w->n_samples == 0 || in->group->passive)
        return NULL;
    struct drill d = {.in = in, .warmup = w};
    struct thread thread;
    struct clock *clock = in->model->clock;
    uint64_t began_ns = clock_now_ns(clock);
    buf_init(&d.errors, MAX_ERRORS_BYTES);
    mutex_init(&d.mu, WARMUP_LEVEL, "warm-up");
    cond_init(&d.changed);

    struct status *st = NULL;
    if (in->home)
        home_post(in->home, run_drill, &d);
    else
        st = thread_start(&thread, "warm-up", run_drill, &d);
    if (st) {
        log_status(LOG_WARN, "a model is warmed up on the thread that loads it", st);
        run_drill(&d);
    } else {
        watch_drill(&d);
        if (in->home)
            home_wait(in->home);
        else
            thread_join(&thread);
    }
    buf_done(&d.errors);
    cond_done(&d.changed);
    mutex_done(&d.mu);
    atomic_fetch_add(&w->took_ns, clock_now_ns(clock) - began_ns);
    atomic_fetch_add(&w->n_instances, d.result == NULL);
    return d.result;
}

/* ------------------------------------------------------------------------------------------ */

static struct status *make_samples(struct warmup *w)
{
    const Inference__ModelConfig *pb = w->model->config->pb;
    struct status *st = NULL;
    for (size_t i = 0; i < pb->n_model_warmup && !st; i++) {
        const Inference__ModelWarmup *config = pb->model_warmup[i];
        if (config->batch_size == 0) {
            log_warn("model '%s': warmup sample '%s' is skipped, its batch_size is 0",
                     w->model->name, config->name);
            continue;
        }
        log_verbose(1, "Generating warmup sample data for '%s'", config->name);
        st = add_sample_name(
            warmup_sample_make(w->model, config, w->pool, &w->samples[w->n_samples++]),
            config->name);
    }
    return st;
}

struct status *warmup_new(struct model *m, struct warmup **ret_warmup)
{
    size_t n = m->config->pb->n_model_warmup;
    *ret_warmup = NULL;
    if (n == 0)
        return NULL;
    struct warmup *w = mem_try_zalloc(1, sizeof(*w) + n * sizeof(w->samples[0]));
    if (!w)
        return status_no_memory();
    w->model = m;
    w->pool = pool_new("warm-up", 0, 0);
    struct status *st = make_samples(w);
    if (st)
        warmup_free(w);
    else
        *ret_warmup = w;
    return st;
}

void warmup_free(struct warmup *w)
{
    if (!w)
        return;
    unsigned int n = atomic_load(&w->n_instances);
    if (n)
        log_info("warm-up of '%s' version %s: %u instances, %.3f s each", w->model->name,
                 w->model->version_text, n, (double)atomic_load(&w->took_ns) / NS_PER_S / n);
    for (size_t i = 0; i < w->n_samples; i++)
        warmup_sample_done(&w->samples[i]);
    pool_free(w->pool);
    mem_free(w);
}
