/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of a worker's connections, the budget of a loop iteration, start and stop, and calls of
 * other threads. upkeep.c has the work on the connections.
 *
 * Thread: the worker's; worker_post(), worker_await() and the functions of start and stop run on
 * others.
 */
#include "frontends/net/worker.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"

enum {
    SCRATCH_BYTES = 128 << 10,    /* frames of HTTP/2 are read into it, as many as have come */
    POOL_UNUSED_BYTES = 64 << 20, /* per loop, kept for the next bodies and outputs */
    CALL_LEVEL = 890,             /* a leaf in the table of core/README.md */
    PORTION_BYTES = 1 << 20,
    ITERATION_BYTES = 2 << 20,
    ITERATION_REQUESTS = 512,
};

/*
 * The time that an iteration may read bodies, besides the limit of bytes. The first byte in new
 * memory makes the kernel clear 2 MiB. With 64 bodies of 32 MiB that began together, single reads
 * took 7 to 11 ms for that.
 */
#define ITERATION_NS (5 * NS_PER_MS)

/* ---- Connections ----------------------------------------------------------------------------- */

void worker_sweep_later(struct worker *w)
{
    loop_set_timer(&w->loop, &w->sweep, loop_now_ns(&w->loop) + w->sweep_ns);
}

void worker_add_conn(struct worker *w, struct list *link, struct heap_node *use)
{
    if (list_empty(&w->conns))
        worker_sweep_later(w);
    list_push(&w->conns, link);
    heap_push(&w->by_use, use);
}

void worker_remove_conn(struct worker *w, struct list *link, struct list *ready,
                        struct heap_node *use)
{
    for (int i = 0; i < N_CONN_WALKS; i++) {
        if (w->walks[i] == link)
            w->walks[i] = link->next;
    }
    list_remove(link);
    list_remove(ready);
    heap_remove(&w->by_use, use);
}

/* ---- Iterations ------------------------------------------------------------------------------ */

bool worker_may_read_body(struct worker *w)
{
    uint64_t now_ns = clock_now_ns(w->loop.clock);
    if (w->iteration_ns == 0)
        w->iteration_ns = now_ns;
    return w->left_bytes > 0 && now_ns - w->iteration_ns < ITERATION_NS;
}

void worker_go_on_later(struct worker *w, struct list *ready)
{
    if (!list_empty(ready))
        return;
    list_push(&w->ready, ready);
    loop_defer_last(&w->loop, &w->go_on);
}

/* ---- Start and stop ------------------------------------------------------------------------- */

struct status *worker_init(struct worker *w, struct budget *memory)
{
    struct status *st = loop_init(&w->loop, clock_real());
    if (st)
        return st;
    w->memory = memory;
    w->sweep_ns = NS_PER_S;
    struct budget_stats stats;
    budget_stats(memory, &stats);
    w->pool = pool_new("http", MIN((uint64_t)POOL_UNUSED_BYTES, stats.limit_bytes / 16), 0);
    pool_set_budget(w->pool, memory);
    (void)pool_settle(w->pool);
    w->scratch = mem_alloc(SCRATCH_BYTES);
    w->scratch_bytes = SCRATCH_BYTES;
    w->budget = (struct net_budget){.portion_bytes = PORTION_BYTES,
                                    .iteration_bytes = ITERATION_BYTES,
                                    .requests = ITERATION_REQUESTS};
    list_init(&w->services);
    list_init(&w->ready);
    list_init(&w->conns);
    atomic_init(&w->n_conns, 0);
    atomic_init(&w->idle_since_ns, 0);
    atomic_init(&w->close_idle_posted, false);
    atomic_init(&w->n_to_close, 0);
    atomic_init(&w->close_before_ns, 0);
    atomic_init(&w->shortage_posted, false);
    return NULL;
}

struct net_env worker_get_env(struct worker *w, const struct protocol *protocol)
{
    return (struct net_env){.protocol = protocol,
                            .loop_ctx = w->ctx,
                            .pool = w->pool,
                            .budget = w->memory,
                            .loop = &w->loop,
                            .scratch = w->scratch,
                            .scratch_bytes =
                                protocol->max_scratch_bytes
                                    ? MIN(protocol->max_scratch_bytes, w->scratch_bytes)
                                    : w->scratch_bytes,
                            .requests_left = &w->requests_left};
}

static void run_worker(void *arg)
{
    struct worker *w = arg;
    pool_attach(w->pool); /* most blocks are taken and released by this thread */
    loop_run(&w->loop);
    pool_detach(w->pool);
}

struct status *worker_start(struct worker *w, const char *name)
{
    return thread_start(&w->thread, name, run_worker, w);
}

void worker_stop(struct worker *w)
{
    loop_stop(&w->loop);
    thread_join(&w->thread);
}

void worker_done(struct worker *w)
{
    budget_detach(w->memory, &w->member); /* before loop_done() delivers the last messages */
    loop_done(&w->loop);
    mem_free(w->scratch);
    pool_free(w->pool);
}

/* ---- Calls from other threads --------------------------------------------------------------- */

/*
 *     WAITS ──the loop comes to it──► RUNS ──► OVER       the caller frees it
 *       └──the caller's time is over──► GIVEN_UP          the loop frees it, when it comes to it
 */
struct worker_call {
    struct message message;
    struct worker *worker;
    worker_fn *fn;
    void *arg;
    struct mutex mu;
    struct cond over;
    enum { CALL_WAITS, CALL_RUNS, CALL_OVER, CALL_GIVEN_UP } stage; /* under mu */
};

static void call_free(struct worker_call *call)
{
    cond_done(&call->over);
    mutex_done(&call->mu);
    mem_free(call);
}

static void on_call(struct message *m)
{
    struct worker_call *call = CONTAINER_OF(m, struct worker_call, message);
    mutex_lock(&call->mu);
    bool given_up = call->stage == CALL_GIVEN_UP;
    if (!given_up)
        call->stage = CALL_RUNS;
    mutex_unlock(&call->mu);
    if (given_up) {
        call_free(call);
        return;
    }
    call->fn(call->worker, call->arg);
    mutex_lock(&call->mu);
    call->stage = CALL_OVER;
    cond_signal(&call->over);
    mutex_unlock(&call->mu);
}

struct worker_call *worker_post(struct worker *w, worker_fn *fn, void *arg)
{
    struct worker_call *call = mem_zalloc(sizeof(*call));
    call->message.deliver = on_call;
    call->worker = w;
    call->fn = fn;
    call->arg = arg;
    mutex_init(&call->mu, CALL_LEVEL, "worker call");
    cond_init(&call->over);
    loop_post(&w->loop, &call->message);
    return call;
}

bool worker_await(struct worker_call *call, uint64_t deadline_ns)
{
    mutex_lock(&call->mu);
    while (call->stage == CALL_WAITS) {
        if (!cond_wait_until(&call->over, &call->mu, deadline_ns) && call->stage == CALL_WAITS)
            call->stage = CALL_GIVEN_UP;
    }
    bool given_up = call->stage == CALL_GIVEN_UP;
    while (call->stage == CALL_RUNS) /* the function is ours, and never blocks */
        cond_wait(&call->over, &call->mu);
    mutex_unlock(&call->mu);
    if (given_up)
        return false;
    call_free(call);
    return true;
}
