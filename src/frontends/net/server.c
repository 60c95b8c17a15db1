/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most of this file stops services. A loop may be inside a model and not answer, so ask_all() asks
 * all loops at once, and a tally for each worker holds its answer. wait_for_departures() asks again
 * whenever `left` is signalled, since a connection or an exchange is gone. Loops may be shared, so
 * a service attaches to each loop by a call on its thread, and detaches likewise.
 *
 * Threads: start and stop run on the caller's; attach(), drain_service(), count_left(), cut_off()
 * and detach() on the worker's; on_left() on any worker's. mu guards n_left only.
 */
#include "frontends/net/server.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/net/acceptor.h"
#include "frontends/net/conn.h"
#include "frontends/net/upkeep.h"

enum { STOP_LEVEL = 895 }; /* a leaf in the table of core/README.md */

/* A loop that is not stuck gets this much time for a call, even after the deadline. */
#define LAST_WORD_NS (100 * NS_PER_MS)

/* A service whose loops do not attach within this time fails to start. */
#define ATTACH_NS (60 * NS_PER_S)

/*
 * The start's and the stop's record of one worker. The worker writes it, in a call that start or
 * stop waits for.
 */
struct tally {
    struct net_server *server;
    struct worker_service *service;
    struct acceptor acceptor;
    struct status *st; /* of attach() */
    unsigned int n_conns, n_exchanges, n_cut;
    bool attached;
    bool answered; /* the last call; if not, n_conns is worker.n_conns */
    struct worker_call *call;
    struct message begin_stop;
    atomic_bool begin_stop_posted;
};

struct net_server {
    struct http1_settings http1;
    struct net_timeouts timeouts;
    unsigned int n_near_blocks;
    void (*ctx_free)(void *handler_ctx);
    bool (*goes_on)(void *handler_arg);
    void (*on_free)(void *handler_arg);
    void *handler_arg;
    atomic_bool goes_on_now; /* the result of goes_on() for the calls that follow */
    struct listener listener;
    struct tls_files *tls; /* NULL: without TLS */
    struct loops *loops;
    unsigned int n_services;         /* with an env: one for each worker that it uses */
    struct worker_service *services; /* as many */
    struct tally *tallies;           /* as many */

    struct mutex mu;
    struct cond left;    /* a connection or an exchange is gone */
    unsigned int n_left; /* under mu: how often */
};

void net_options_init(struct net_options *o)
{
    *o = (struct net_options){
        .name = "net",
        .address = "0.0.0.0",
        .n_threads = 1,
        .http1.limits = {.max_head_bytes = 16 << 10,
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

/*
 * Frees the service. Shared loops go on, so no connection and no exchange of the service may be
 * left on them.
 */
static void free_server(struct net_server *s)
{
    listener_done(&s->listener);
    for (unsigned int i = 0; i < s->n_services; i++) {
        struct net_env *env = s->services[i].env;
        void *ctx = env->handler_ctx;
        env->protocol->env_free(env);
        if (s->ctx_free)
            s->ctx_free(ctx);
    }
    loops_unref(s->loops);
    tls_files_stop(s->tls);
    mem_free(s->services);
    mem_free(s->tallies);
    cond_done(&s->left);
    mutex_done(&s->mu);
    mem_free(s);
}

static void attach(struct worker *w, void *arg);

/*
 * Calls fn on all workers and waits until the deadline. All calls are posted before the first wait,
 * since a model that executes on a loop may never return.
 */
static void ask_all(struct net_server *s, worker_fn *fn, uint64_t deadline_ns)
{
    deadline_ns = MAX(deadline_ns, monotonic_ns() + LAST_WORD_NS);
    for (unsigned int i = 0; i < s->n_services; i++) {
        struct tally *t = &s->tallies[i];
        if (t->attached || fn == attach)
            t->call = worker_post(s->services[i].worker, fn, t);
    }
    for (unsigned int i = 0; i < s->n_services; i++) {
        struct tally *t = &s->tallies[i];
        t->answered = !t->call || worker_await(TAKE(t->call), deadline_ns);
        if (!t->answered)
            t->n_conns =
                atomic_load_explicit(&s->services[i].worker->n_conns, memory_order_relaxed);
    }
}

/* ---- Starting -------------------------------------------------------------------------------- */

static void attach(struct worker *w, void *arg)
{
    struct tally *t = arg;
    struct worker_service *ws = t->service;
    upkeep_serve(w, ws, &t->server->listener, &t->server->timeouts, ws->env);
    pool_keep_near(w->pool, t->server->n_near_blocks);
    ws->tls = t->server->tls;
    t->attached = true;
}

static void accept_connections(struct worker *w, void *arg)
{
    struct tally *t = arg;
    (void)w;
    t->st = acceptor_start(&t->acceptor, t->service);
}

/* Closes all connections of the service, including those that came meanwhile. */
static void detach(struct worker *w, void *arg)
{
    struct tally *t = arg;
    (void)w;
    acceptor_stop(&t->acceptor);
    upkeep_serve_no_more(t->service);
    t->attached = false;
}

static struct status *ask_to_start(struct net_server *s, worker_fn *fn)
{
    struct status *st = NULL;
    ask_all(s, fn, monotonic_ns() + ATTACH_NS);
    for (unsigned int i = 0; i < s->n_services; i++) {
        struct tally *t = &s->tallies[i];
        if (!t->answered && !st)
            st = status_new(STATUS_UNAVAILABLE, "the event loop '%s' does not answer",
                            s->services[i].worker->thread.name);
        if (!st)
            st = TAKE(t->st);
        status_free(TAKE(t->st));
    }
    return st;
}

/* Each loop accepts, or there is an error. No loop accepts before all are attached: a loop may give
 * a connection to any of them. */
static struct status *attach_all(struct net_server *s)
{
    struct status *st = ask_to_start(s, attach);
    return st ? st : ask_to_start(s, accept_connections);
}

static void on_begin_stop(struct message *m);

static struct status *make_service(struct net_server *s, struct worker *w,
                                   const struct net_options *o)
{
    struct worker_service *ws = &s->services[s->n_services];
    struct tally *t = &s->tallies[s->n_services];
    const struct protocol *protocol = o->protocol ? o->protocol : &http1_protocol;
    struct net_env members = worker_get_env(w, protocol);
    members.on_left = on_left;
    members.on_left_arg = s;
    ws->worker = w;
    ws->env = protocol->env_new(&members, o->protocol ? o->settings : &s->http1);
    if (!ws->env)
        return status_no_memory();
    if (o->ctx_new)
        ws->env->handler_ctx = o->ctx_new(o->handler_arg, ws->env);
    t->server = s;
    t->service = ws;
    t->begin_stop.deliver = on_begin_stop;
    s->n_services++;
    return NULL;
}

static struct status *make_loops(struct net_server *s, const struct net_options *o)
{
    struct loops_options own = {.name = o->name, .n_threads = o->n_threads, .budget = o->budget};
    if (!o->loops)
        return loops_new(&own, &s->loops);
    s->loops = loops_ref(o->loops);
    return NULL;
}

struct status *net_server_start(const struct net_options *o, struct net_server **ret)
{
    struct net_server *s = mem_zalloc(sizeof(*s));
    s->http1 = o->http1;
    s->timeouts = o->timeouts;
    s->n_near_blocks = o->n_near_blocks;
    s->ctx_free = o->ctx_free;
    s->goes_on = o->goes_on;
    s->on_free = o->on_free;
    s->handler_arg = o->handler_arg;
    s->services = mem_zalloc(sizeof(*s->services) * o->n_threads);
    s->tallies = mem_zalloc(sizeof(*s->tallies) * o->n_threads);
    mutex_init(&s->mu, STOP_LEVEL, "net_server.mu");
    cond_init(&s->left);

    struct status *st = o->tls ? tls_files_start(o->tls, &s->tls) : NULL;
    if (!st)
        st = listener_open(&s->listener, o->address, o->port, o->reuse_port);
    if (!st)
        st = make_loops(s, o);
    for (unsigned int i = 0; !st && i < MIN(o->n_threads, s->loops->n_workers); i++)
        st = make_service(s, &s->loops->workers[i], o);
    if (st) {
        free_server(s);
        return st;
    }
    listener_serve(&s->listener, s->services, s->n_services, o->max_conns, o->max_conns_per_address,
                   o->n_reserved_fds);
    st = attach_all(s);
    if (st) {
        ask_all(s, detach, UINT64_MAX); /* calls of one thread come in their order */
        free_server(s);
        return st;
    }
    *ret = s;
    return NULL;
}

int net_server_port(const struct net_server *s)
{
    return s->listener.port;
}

const char *net_server_place(const struct net_server *s)
{
    return s->listener.place;
}

void net_server_add_totals(const struct net_server *s, struct net_totals *totals)
{
    for (unsigned int i = 0; i < s->n_services; i++)
        net_counts_sum(&s->services[i].env->counts, totals);
}

const struct worker *net_server_loop(const struct net_server *s, unsigned int i)
{
    return i < s->n_services ? s->services[i].worker : NULL;
}

bool net_server_certificate_s(const struct net_server *s, double *ret_left_s)
{
    return s->tls && tls_files_certificate_s(s->tls, ret_left_s);
}

/* ---- Stopping ------------------------------------------------------------------------------- */

/* Closes the connections that are idle. Each later call closes those that became idle since. */
static void drain_service(struct tally *t)
{
    struct net_env *env = t->service->env;
    if (env->draining && !env->goes_on)
        return;
    if (!env->draining)
        acceptor_stop(&t->acceptor);
    env->draining = true;
    env->goes_on = atomic_load_explicit(&t->server->goes_on_now, memory_order_relaxed);
    LIST_FOR_EACH_SAFE (link, &t->service->worker->conns) {
        struct conn *c = LIST_ENTRY(link, struct conn, link);
        if (c->service == t->service)
            conn_drain(c);
    }
}

static void on_begin_stop(struct message *m)
{
    drain_service(CONTAINER_OF(m, struct tally, begin_stop));
}

static void cut_off(struct worker *w, void *arg)
{
    struct tally *t = arg;
    LIST_FOR_EACH_SAFE (link, &w->conns) {
        struct conn *c = LIST_ENTRY(link, struct conn, link);
        if (c->service != t->service)
            continue;
        conn_close(c);
        t->n_cut++;
    }
}

static void count_left(struct worker *w, void *arg)
{
    struct tally *t = arg;
    drain_service(t);
    t->n_conns = 0;
    LIST_FOR_EACH (link, &w->conns) {
        t->n_conns += LIST_ENTRY(link, struct conn, link)->service == t->service;
    }
    t->n_exchanges = t->service->env->n_used;
}

static void ask_what_goes_on(struct net_server *s)
{
    bool goes_on = s->goes_on && s->goes_on(s->handler_arg);
    atomic_store_explicit(&s->goes_on_now, goes_on, memory_order_relaxed);
}

/* The sum over all workers. */
static struct tally tally_workers(struct net_server *s, uint64_t deadline_ns)
{
    struct tally sum = {.answered = true};
    ask_what_goes_on(s);
    ask_all(s, count_left, deadline_ns);
    for (unsigned int i = 0; i < s->n_services; i++) {
        const struct tally *t = &s->tallies[i];
        sum.n_conns += t->n_conns;
        sum.n_exchanges += t->n_exchanges;
        sum.n_cut += t->n_cut;
        sum.answered &= t->answered;
    }
    if (sum.answered) /* so no worker accepts any more */
        listener_close(&s->listener);
    return sum;
}

/*
 * Waits until no connection and no exchange is left. Each count is exact; a departure after it ends
 * the wait before the next count.
 */
static void wait_for_departures(struct net_server *s, uint64_t deadline_ns, net_tick_fn *on_tick)
{
    uint64_t tick_ns = on_tick ? monotonic_ns() : deadline_ns;
    for (;;) {
        /* Read before the count, so that no departure during the count is missed. */
        mutex_lock(&s->mu);
        unsigned int seen = s->n_left;
        mutex_unlock(&s->mu);
        /* The count must not wait until the deadline: while one loop is stuck inside a model,
         * connections of other loops still end, and the ticks go on. LAST_WORD_NS keeps this from
         * spinning. */
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
            continue; /* the next count waits for this loop, too */
        mutex_lock(&s->mu);
        if (s->n_left == seen)
            cond_wait_until(&s->left, &s->mu, MIN(tick_ns, deadline_ns));
        mutex_unlock(&s->mu);
    }
}

static void log_stuck(const struct net_server *s)
{
    for (unsigned int i = 0; i < s->n_services; i++) {
        if (!s->tallies[i].answered)
            log_error("the event loop '%s' does not answer: what it executes has not come back",
                      s->services[i].worker->thread.name);
    }
}

void net_server_begin_stop(struct net_server *s)
{
    listener_shut(&s->listener);
    ask_what_goes_on(s);
    for (unsigned int i = 0; i < s->n_services; i++) {
        if (!atomic_exchange(&s->tallies[i].begin_stop_posted, true))
            loop_post(&s->services[i].worker->loop, &s->tallies[i].begin_stop);
    }
}

/*
 * Detaches the service from all loops. No loop accepts any more, and all accepted connections have
 * arrived: see count_left().
 */
static bool detach_all(struct net_server *s, uint64_t deadline_ns)
{
    bool answered = true;
    ask_all(s, detach, deadline_ns);
    for (unsigned int i = 0; i < s->n_services; i++)
        answered &= s->tallies[i].answered;
    return answered;
}

unsigned int net_server_stop(struct net_server *s, uint64_t deadline_ns, net_tick_fn *on_tick,
                             enum net_end *ret_end)
{
    listener_shut(&s->listener);
    wait_for_departures(s, deadline_ns, on_tick);
    ask_all(s, cut_off, deadline_ns);
    struct tally t = tally_workers(s, deadline_ns);
    bool answered = t.answered && (t.n_exchanges > 0 || detach_all(s, deadline_ns));
    if (!answered) {
        log_stuck(s);
        *ret_end = NET_STUCK;
        return MAX(t.n_cut + t.n_conns, 1u);
    }
    if (t.n_exchanges > 0) { /* the handler's answers still come to these loops */
        *ret_end = NET_KEPT;
        return MAX(t.n_cut, t.n_exchanges);
    }
    if (s->on_free)
        s->on_free(s->handler_arg);
    free_server(s);
    *ret_end = NET_FREED;
    return t.n_cut;
}
