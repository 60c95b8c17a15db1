/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/net/worker.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/net/conn.h"

enum {
    SCRATCH_BYTES = 16 << 10,
    POOL_UNUSED_BYTES = 64 << 20, /* per loop, kept for the next bodies and outputs for good */
    CALL_LEVEL = 890,             /* a leaf in the table of core/README.md */
};

static void on_sweep(struct timer *t)
{
    struct worker *w = CONTAINER_OF(t, struct worker, sweep);
    uint64_t now_ns = loop_now_ns(&w->loop);
    log_flush(); /* repeats are told within a second */
    LIST_FOR_EACH_SAFE (link, &w->conns) {
        conn_check_time(LIST_ENTRY(link, struct conn, link), now_ns);
    }
    pool_settle(w->pool);
    if (!list_empty(&w->conns))
        worker_sweep_later(w);
    else
        pool_trim(w->pool, POOL_UNUSED_BYTES); /* nobody is there to do so in a second */
}

void worker_sweep_later(struct worker *w)
{
    loop_set_timer(&w->loop, &w->sweep, loop_now_ns(&w->loop) + w->sweep_ns);
}

/* Once a second, more often where a timeout is shorter than that. */
static uint64_t sweep_interval_ns(const struct net_timeouts *t)
{
    const uint64_t all[] = {t->head_ns, t->body_ns, t->write_ns, t->idle_ns, t->linger_ns};
    uint64_t ns = NS_PER_S;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (all[i] > 0 && all[i] / 2 < ns)
            ns = MAX(all[i] / 2, 10 * NS_PER_MS);
    }
    return ns;
}

struct status *worker_init(struct worker *w, const struct http_handler *handler, void *handler_ctx,
                           const struct http_limits *limits, const struct net_timeouts *timeouts)
{
    struct status *st = loop_init(&w->loop, clock_real());
    if (st)
        return st;
    w->timeouts = timeouts;
    w->sweep_ns = sweep_interval_ns(timeouts);
    w->pool = pool_new("http", POOL_UNUSED_BYTES, 0);
    pool_settle(w->pool);
    list_init(&w->conns);
    timer_init(&w->sweep, on_sweep);
    atomic_init(&w->n_conns, 0);
    http_env_init(&w->env, handler, handler_ctx, limits, w->pool, &w->loop,
                  mem_alloc(SCRATCH_BYTES), SCRATCH_BYTES);
    return NULL;
}

static void run(void *arg)
{
    struct worker *w = arg;
    loop_run(&w->loop);
}

struct status *worker_start(struct worker *w, const char *name)
{
    return thread_start(&w->thread, name, run, w);
}

void worker_stop(struct worker *w)
{
    loop_stop(&w->loop);
    thread_join(&w->thread);
}

void worker_done(struct worker *w)
{
    loop_done(&w->loop);
    http_env_done(&w->env);
    mem_free(w->env.scratch);
    pool_free(w->pool);
}

/* ---- Calls from other threads --------------------------------------------------------------- */

struct call {
    struct message message;
    struct worker *worker;
    void (*fn)(struct worker *w, void *arg);
    void *arg;
    struct mutex mu;
    struct cond done_cond;
    bool done; /* under mu */
};

static void on_call(struct message *m)
{
    struct call *call = CONTAINER_OF(m, struct call, message);
    call->fn(call->worker, call->arg);
    mutex_lock(&call->mu);
    call->done = true;
    cond_signal(&call->done_cond);
    mutex_unlock(&call->mu);
}

void worker_run(struct worker *w, void (*fn)(struct worker *w, void *arg), void *arg)
{
    struct call call = {.message.deliver = on_call, .worker = w, .fn = fn, .arg = arg};
    mutex_init(&call.mu, CALL_LEVEL, "worker call");
    cond_init(&call.done_cond);
    loop_post(&w->loop, &call.message);
    mutex_lock(&call.mu);
    while (!call.done)
        cond_wait(&call.done_cond, &call.mu);
    mutex_unlock(&call.mu);
    cond_done(&call.done_cond);
    mutex_done(&call.mu);
}
