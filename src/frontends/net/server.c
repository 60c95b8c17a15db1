/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/net/server.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/status.h"
#include "frontends/net/conn.h"

enum { STOP_LEVEL = 895 }; /* a leaf in the table of core/README.md */

struct net_server {
    struct http_limits limits;
    struct net_timeouts timeouts;
    void (*ctx_free)(void *handler_ctx);
    struct listener listener;
    unsigned int n_workers; /* initialised */
    unsigned int n_running; /* with a thread */
    struct worker *workers;

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
                   .max_chunks = 65536,
                   .max_pipeline = 64},
        .timeouts = {.head_ns = 30 * NS_PER_S,
                     .body_ns = 60 * NS_PER_S,
                     .write_ns = 60 * NS_PER_S,
                     .idle_ns = 3600 * NS_PER_S,
                     .linger_ns = 2 * NS_PER_S},
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
    listener_close(&s->listener);
    for (unsigned int i = 0; i < s->n_workers; i++) {
        struct worker *w = &s->workers[i];
        void *ctx = w->env.handler_ctx;
        worker_done(w);
        if (s->ctx_free)
            s->ctx_free(ctx);
    }
    mem_free(s->workers);
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
    s->workers = mem_zalloc(sizeof(*s->workers) * o->n_threads);
    mutex_init(&s->mu, STOP_LEVEL, "net_server.mu");
    cond_init(&s->left);

    struct status *st = listener_open(&s->listener, o->address, o->port, o->reuse_port);
    if (st)
        goto fail;
    for (unsigned int i = 0; i < o->n_threads; i++) {
        struct worker *w = &s->workers[i];
        st = worker_init(w, o->handler, NULL, &s->limits, &s->timeouts);
        if (st)
            goto fail;
        s->n_workers++;
        if (o->ctx_new)
            w->env.handler_ctx = o->ctx_new(o->handler_arg, &w->env);
        w->env.on_left = on_left;
        w->env.on_left_arg = s;
    }
    st = listener_start(&s->listener, s->workers, s->n_workers, o->max_conns, o->n_reserved_fds);
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

static void drain(struct worker *w, void *arg)
{
    listener_stop(arg, w);
    w->env.draining = true;
    LIST_FOR_EACH_SAFE (link, &w->conns) {
        conn_drain(LIST_ENTRY(link, struct conn, link));
    }
}

static void cut_off(struct worker *w, void *arg)
{
    unsigned int *n_cut = arg;
    LIST_FOR_EACH_SAFE (link, &w->conns) {
        conn_close(LIST_ENTRY(link, struct conn, link));
        ++*n_cut;
    }
}

struct tally {
    unsigned int conns, exchanges;
};

static void count_left(struct worker *w, void *arg)
{
    struct tally *t = arg;
    LIST_FOR_EACH (link, &w->conns) {
        t->conns++;
    }
    t->exchanges += w->env.n_used;
}

static struct tally tally(struct net_server *s)
{
    struct tally t = {0};
    for (unsigned int i = 0; i < s->n_workers; i++)
        worker_run(&s->workers[i], count_left, &t);
    return t;
}

/* Waits until all is gone. Each look is exact; a departure after it is an event that ends the wait
 * for the next one. */
static void wait_for_departures(struct net_server *s, uint64_t deadline_ns, net_tick_fn *on_tick)
{
    uint64_t tick_ns = on_tick ? monotonic_ns() : deadline_ns;
    for (;;) {
        mutex_lock(&s->mu);
        unsigned int seen = s->n_left;
        mutex_unlock(&s->mu);
        struct tally t = tally(s);
        uint64_t now_ns = monotonic_ns();
        if ((t.conns == 0 && t.exchanges == 0) || now_ns >= deadline_ns)
            return;
        if (now_ns >= tick_ns) {
            on_tick((unsigned int)((deadline_ns - now_ns + NS_PER_S - 1) / NS_PER_S),
                    MAX(t.conns, t.exchanges));
            tick_ns += NS_PER_S;
        }
        mutex_lock(&s->mu);
        if (s->n_left == seen)
            cond_wait_until(&s->left, &s->mu, MIN(tick_ns, deadline_ns));
        mutex_unlock(&s->mu);
    }
}

unsigned int net_server_stop(struct net_server *s, uint64_t deadline_ns, net_tick_fn *on_tick,
                             bool *ret_freed)
{
    listener_shut(&s->listener);
    for (unsigned int i = 0; i < s->n_workers; i++)
        worker_run(&s->workers[i], drain, &s->listener);
    listener_close(&s->listener);

    wait_for_departures(s, deadline_ns, on_tick);
    unsigned int n_cut = 0;
    for (unsigned int i = 0; i < s->n_workers; i++)
        worker_run(&s->workers[i], cut_off, &n_cut);
    struct tally t = tally(s);
    *ret_freed = t.exchanges == 0;
    if (t.exchanges > 0) /* still with the handler, whose answers come to these loops */
        return MAX(n_cut, t.exchanges);
    server_free(s);
    return n_cut;
}
