/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping is most of this file. A loop may be inside a model and not answer, so ask_all() asks
 * all loops at once, and a tally for each worker holds its answer. wait_for_departures() asks
 * again whenever `left` says that a connection or an exchange is gone.
 *
 * Threads: start and stop run on the caller's; drain_worker(), count_left() and cut_off() on the
 * worker's; on_left() on any worker's. mu guards n_left only.
 */
#include "frontends/net/server.h"

#include <stdio.h>

#include "base/budget.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "frontends/net/acceptor.h"
#include "frontends/net/conn.h"
#include "frontends/net/upkeep.h"

enum { STOP_LEVEL = 895 }; /* a leaf in the table of core/README.md */

/* A loop that runs has this much time to do what it is told, even when the deadline is over. */
#define LAST_WORD_NS (100 * NS_PER_MS)

/* What a stop knows of one worker; written by the worker, in a call that the stop waits for. */
struct tally {
    struct net_server *server;
    unsigned int n_conns, n_exchanges, n_cut;
    bool answered; /* the last call; if not, n_conns is what the counter says */
    struct worker_call *call;
};

struct net_server {
    struct http_limits limits;
    struct net_timeouts timeouts;
    void (*ctx_free)(void *handler_ctx);
    struct budget *budget;
    bool (*goes_on)(void *handler_arg);
    void *handler_arg;
    bool goes_on_now; /* what it has said before the loops were asked */
    struct listener listener;
    unsigned int n_workers; /* initialised */
    unsigned int n_running; /* with a thread */
    struct worker *workers;
    struct tally *tallies; /* one for each worker */

    struct mutex mu;
    struct cond left;    /* a worker has less under way than before */
    unsigned int n_left; /* under mu: how often */
};

void net_options_init(struct net_options *o)
{
    *o = (struct net_options){
        .name = "net",
        .address = "0.0.0.0",
        .n_threads = 1,
        .limits = {.max_head_bytes = 16 << 10,
                   .max_body_bytes = INT32_MAX,
                   .max_chunks = HTTP_MAX_CHUNKS,
                   .max_pipeline = 64,
                   .max_pipeline_bytes = 4 << 20},
        .timeouts = {.head_ns = 30 * NS_PER_S,
                     .body_ns = 60 * NS_PER_S,
                     .write_ns = 60 * NS_PER_S,
                     .idle_ns = 3600 * NS_PER_S,
                     .linger_ns = 2 * NS_PER_S,
                     .min_rate = 1024,
                     .rate_ns = 30 * NS_PER_S},
    };
}

static void on_left(void *arg)
{
    struct net_server *s = arg;
    mutex_lock(&s->mu);
    s->n_left++;
    cond_signal(&s->left);
    mutex_unlock(&s->mu);
}

static void server_free(struct net_server *s)
{
    for (unsigned int i = 0; i < s->n_running; i++)
        worker_stop(&s->workers[i]);
    acceptors_end(&s->listener);
    for (unsigned int i = 0; i < s->n_workers; i++) {
        struct worker *w = &s->workers[i];
        void *ctx = w->env.net.handler_ctx;
        worker_done(w);
        if (s->ctx_free)
            s->ctx_free(ctx);
    }
    mem_free(s->workers);
    mem_free(s->tallies);
    if (s->budget) {
        budget_stop(s->budget);
        budget_unref(s->budget);
    }
    cond_done(&s->left);
    mutex_done(&s->mu);
    mem_free(s);
}

struct status *net_server_start(const struct net_options *o, struct net_server **ret)
{
    struct net_server *s = mem_zalloc(sizeof(*s));
    s->limits = o->limits;
    s->timeouts = o->timeouts;
    s->ctx_free = o->ctx_free;
    s->goes_on = o->goes_on;
    s->handler_arg = o->handler_arg;
    s->workers = mem_zalloc(sizeof(*s->workers) * o->n_threads);
    s->tallies = mem_zalloc(sizeof(*s->tallies) * o->n_threads);
    mutex_init(&s->mu, STOP_LEVEL, "net_server.mu");
    cond_init(&s->left);

    struct budget *budget =
        o->budget ? budget_ref(o->budget) : budget_new(memory_limit_bytes() / 4);
    struct status *st = budget_start(budget);
    if (st) {
        budget_unref(budget);
        goto fail;
    }
    s->budget = budget;
    st = listener_open(&s->listener, o->address, o->port, o->reuse_port);
    if (st)
        goto fail;
    for (unsigned int i = 0; i < o->n_threads; i++) {
        struct worker *w = &s->workers[i];
        st = worker_init(w, o->handler, NULL, &s->limits, &s->timeouts, s->budget);
        if (st)
            goto fail;
        upkeep_begin(w);
        s->n_workers++;
        if (o->ctx_new)
            w->env.net.handler_ctx = o->ctx_new(o->handler_arg, &w->env);
        w->env.net.on_left = on_left;
        w->env.net.on_left_arg = s;
    }
    st = acceptors_start(&s->listener, s->workers, s->n_workers, o->max_conns, o->n_reserved_fds);
    if (st)
        goto fail;
    for (unsigned int i = 0; i < s->n_workers; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%.8s-%u", o->name, i % 1000);
        st = worker_start(&s->workers[i], name);
        if (st)
            goto fail;
        s->n_running++;
    }
    *ret = s;
    return NULL;
fail:
    server_free(s);
    return st;
}

int net_server_port(const struct net_server *s)
{
    return s->listener.port;
}

/* ---- Stopping ------------------------------------------------------------------------------- */

/*
 * A loop may be inside a model that executes on it and does not come back. So whatever is asked of
 * the loops is asked of all of them at once, and waited for as long as there is time.
 */
static void ask_all(struct net_server *s, worker_fn *fn, uint64_t deadline_ns)
{
    deadline_ns = MAX(deadline_ns, monotonic_ns() + LAST_WORD_NS);
    for (unsigned int i = 0; i < s->n_workers; i++) {
        s->tallies[i].server = s;
        s->tallies[i].call = worker_post(&s->workers[i], fn, &s->tallies[i]);
    }
    for (unsigned int i = 0; i < s->n_workers; i++) {
        struct tally *t = &s->tallies[i];
        t->answered = worker_await(TAKE(t->call), deadline_ns);
        if (!t->answered)
            t->n_conns = atomic_load_explicit(&s->workers[i].n_conns, memory_order_relaxed);
    }
}

/* With each call that a loop comes to: first all that is idle, later what has become so. */
static void drain_worker(struct worker *w, struct net_server *s)
{
    if (w->env.net.draining && !w->env.net.goes_on)
        return;
    if (!w->env.net.draining)
        acceptors_stop(&s->listener, w);
    w->env.net.draining = true;
    w->env.net.goes_on = s->goes_on_now;
    LIST_FOR_EACH_SAFE (link, &w->conns) {
        conn_drain(LIST_ENTRY(link, struct conn, link));
    }
}

static void cut_off(struct worker *w, void *arg)
{
    struct tally *t = arg;
    LIST_FOR_EACH_SAFE (link, &w->conns) {
        conn_close(LIST_ENTRY(link, struct conn, link));
        t->n_cut++;
    }
}

static void count_left(struct worker *w, void *arg)
{
    struct tally *t = arg;
    drain_worker(w, t->server);
    t->n_conns = 0;
    LIST_FOR_EACH (link, &w->conns) {
        t->n_conns++;
    }
    t->n_exchanges = w->env.net.n_used;
}

/* Of all workers. */
static struct tally tally_workers(struct net_server *s, uint64_t deadline_ns)
{
    struct tally sum = {.answered = true};
    s->goes_on_now = s->goes_on && s->goes_on(s->handler_arg);
    ask_all(s, count_left, deadline_ns);
    for (unsigned int i = 0; i < s->n_workers; i++) {
        const struct tally *t = &s->tallies[i];
        sum.n_conns += t->n_conns;
        sum.n_exchanges += t->n_exchanges;
        sum.n_cut += t->n_cut;
        sum.answered &= t->answered;
    }
    if (sum.answered) /* so none accepts any more */
        acceptors_end(&s->listener);
    return sum;
}

/* Waits until all is gone. Each look is exact; a departure after it is an event that ends the wait
 * for the next one. */
static void wait_for_departures(struct net_server *s, uint64_t deadline_ns, net_tick_fn *on_tick)
{
    uint64_t tick_ns = on_tick ? monotonic_ns() : deadline_ns;
    for (;;) {
        /* Read before the look, so that no departure during it is missed. */
        mutex_lock(&s->mu);
        unsigned int seen = s->n_left;
        mutex_unlock(&s->mu);
        struct tally t =
            tally_workers(s, MIN(deadline_ns, MAX(tick_ns, monotonic_ns() + LAST_WORD_NS)));
        uint64_t now_ns = monotonic_ns();
        if ((t.answered && t.n_conns == 0 && t.n_exchanges == 0) || now_ns >= deadline_ns)
            return;
        if (now_ns >= tick_ns) {
            on_tick((unsigned int)((deadline_ns - now_ns + NS_PER_S - 1) / NS_PER_S),
                    MAX(t.n_conns, t.n_exchanges));
            tick_ns += NS_PER_S;
        }
        if (!t.answered)
            continue; /* the next look is what waits, for this loop, too */
        mutex_lock(&s->mu);
        if (s->n_left == seen)
            cond_wait_until(&s->left, &s->mu, MIN(tick_ns, deadline_ns));
        mutex_unlock(&s->mu);
    }
}

static void tell_stuck(const struct net_server *s)
{
    for (unsigned int i = 0; i < s->n_workers; i++) {
        if (!s->tallies[i].answered)
            log_error("the event loop '%s' does not answer: what it executes has not come back",
                      s->workers[i].thread.name);
    }
}

unsigned int net_server_stop(struct net_server *s, uint64_t deadline_ns, net_tick_fn *on_tick,
                             enum net_end *ret_end)
{
    listener_shut(&s->listener);
    wait_for_departures(s, deadline_ns, on_tick);
    ask_all(s, cut_off, deadline_ns);
    struct tally t = tally_workers(s, deadline_ns);
    if (!t.answered) {
        tell_stuck(s);
        *ret_end = NET_STUCK;
        return MAX(t.n_cut + t.n_conns, 1u);
    }
    if (t.n_exchanges > 0) { /* still with the handler, whose answers come to these loops */
        *ret_end = NET_KEPT;
        return MAX(t.n_cut, t.n_exchanges);
    }
    server_free(s);
    *ret_end = NET_FREED;
    return t.n_cut;
}
