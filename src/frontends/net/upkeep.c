/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of a worker besides the events of its connections. It gives up connections when the
 * budget is short. It checks the times of all connections about once a second. It shares the bytes
 * and requests of a loop iteration between them, and closes idle ones when descriptors are short.
 *
 * What looks at all connections is a walk (worker.h): it stops after some milliseconds and goes on
 * in the next iteration, so that no request waits until ten thousand connections are closed.
 *
 * Thread: the worker's; only on_short() and upkeep_ask_close_idle() run on others.
 */
#include "frontends/net/upkeep.h"

#include "base/log.h"
#include "base/pool.h"
#include "frontends/net/conn.h"
#include "frontends/net/worker.h"

#define LATE_NS (2 * NS_PER_S)

/*
 * The longest time that one walk takes of an iteration. A look at a connection takes 0.1 to 1 µs, a
 * close 10 to 100, since the kernel frees what the client has not read.
 */
#define SLICE_NS (2 * NS_PER_MS)

#define ROOM_CONNS ((size_t)256) /* that a body looks at */

enum {
    LOOKS = 16,       /* between two readings of the clock */
    RELIEF_SHARE = 8, /* while nothing can be evicted, looking for it takes a ninth of the time */
};

/* ---- Walks ---------------------------------------------------------------------------------- */

/* The part of a walk that one iteration does. */
struct slice {
    const struct worker *worker;
    uint64_t began_ns;
    unsigned int n_looks;
    size_t n_conns; /* at the last look */
};

static struct slice begin_slice(const struct worker *w)
{
    return (struct slice){
        .worker = w, .began_ns = clock_now_ns(w->loop.clock), .n_conns = w->by_use.count};
}

static uint64_t slice_took_ns(const struct slice *s)
{
    return clock_now_ns(s->worker->loop.clock) - s->began_ns;
}

/* Whether there is time for another look. Reads the clock after each close, and now and then. */
static bool has_time(struct slice *s)
{
    bool has_closed = s->worker->by_use.count < s->n_conns;
    s->n_conns = s->worker->by_use.count;
    return (!has_closed && s->n_looks++ % LOOKS != 0) || slice_took_ns(s) < SLICE_NS;
}

static void begin_walk(struct worker *w, enum conn_walk walk)
{
    w->walks[walk] = w->conns.next;
}

/* NULL: the walk has come to its end. */
static struct conn *next_conn(struct worker *w, enum conn_walk walk)
{
    struct list *link = w->walks[walk];
    if (link == &w->conns) {
        w->walks[walk] = NULL;
        return NULL;
    }
    w->walks[walk] = link->next;
    return LIST_ENTRY(link, struct conn, link);
}

/* ---- A short budget ------------------------------------------------------------------------- */

static bool lacks_memory(struct worker *w)
{
    return budget_lacks(w->memory, loop_now_ns(&w->loop));
}

static bool is_exceeded(struct worker *w)
{
    return budget_is_exceeded(w->memory) && budget_is_heaviest(w->memory, &w->member);
}

static void evict_conn(struct worker *w, struct conn *c)
{
    conn_evict(c);
    pool_trim(w->pool, 0);
}

static void measure_conn(struct worker *w, struct conn *c)
{
    bool stalled;
    uint64_t burden = conn_burden(c, loop_now_ns(&w->loop), &stalled);
    w->relief.greatest = MAX(w->relief.greatest, burden);
    if (stalled)
        w->relief.greatest_stalled = MAX(w->relief.greatest_stalled, burden);
}

static void evict_if_worse(struct worker *w, struct conn *c)
{
    struct relief *r = &w->relief;
    bool stalled;
    uint64_t burden = conn_burden(c, loop_now_ns(&w->loop), &stalled);
    if (burden <= r->least || (r->only_stalled && !stalled))
        return;
    if (r->only_stalled ? !lacks_memory(w) : !is_exceeded(w)) {
        w->walks[WALK_RELIEF] = &w->conns; /* the end of the walk */
        return;
    }
    r->has_evicted = r->has_helped = true;
    evict_conn(w, c);
}

static void begin_relief_walk(struct worker *w, bool evicts)
{
    struct relief *r = &w->relief;
    r->evicts = evicts;
    r->has_evicted = false;
    r->greatest = r->greatest_stalled = 0;
    begin_walk(w, WALK_RELIEF);
}

/*
 * After a walk that has measured: begins one that evicts the connections whose burden is more than
 * half of the greatest, so that one walk evicts many. Returns false when there is nothing to do.
 */
static bool begin_evictions(struct worker *w)
{
    struct relief *r = &w->relief;
    atomic_store_explicit(&w->member.burden, r->greatest, memory_order_relaxed);
    r->only_stalled = r->greatest_stalled > 0 && lacks_memory(w);
    if (!r->only_stalled && (r->greatest == 0 || !is_exceeded(w)))
        return false;
    r->least = (r->only_stalled ? r->greatest_stalled : r->greatest) / 2;
    begin_relief_walk(w, true);
    return true;
}

/* After each walk. Returns false when it was the last. */
static bool begin_next_walk(struct worker *w)
{
    if (!w->relief.evicts)
        return begin_evictions(w);
    if (!w->relief.has_evicted) /* the clients have gone on meanwhile */
        return false;
    begin_relief_walk(w, false);
    return true;
}

static void end_relief(struct worker *w)
{
    struct relief *r = &w->relief;
    r->not_before_ns = r->has_helped ? 0 : clock_now_ns(w->loop.clock) + RELIEF_SHARE * r->took_ns;
}

/* Returns whether the relief is over. */
static bool relieve_for_a_slice(struct worker *w, struct slice *s)
{
    while (has_time(s)) {
        struct conn *c = next_conn(w, WALK_RELIEF);
        if (!c && !begin_next_walk(w))
            return true;
        if (c && w->relief.evicts)
            evict_if_worse(w, c);
        else if (c)
            measure_conn(w, c);
    }
    return false;
}

static void on_relief(struct loop_work *work)
{
    struct worker *w = CONTAINER_OF(work, struct worker, relief.work);
    struct slice s = begin_slice(w);
    bool over = relieve_for_a_slice(w, &s);
    w->relief.took_ns += slice_took_ns(&s);
    if (over)
        end_relief(w);
    else
        loop_defer_last(&w->loop, work);
}

/*
 * Begins to evict stalled connections while the budget lacks memory. Then, while small requests
 * alone exceed the limit, the greatest burden of all loops is evicted.
 */
static void relieve_memory(struct worker *w)
{
    if (w->walks[WALK_RELIEF])
        return;
    w->relief.has_helped = false;
    w->relief.took_ns = 0;
    begin_relief_walk(w, false);
    loop_defer_last(&w->loop, &w->relief.work);
}

static void trim_services(struct worker *w)
{
    LIST_FOR_EACH (link, &w->services) {
        struct net_env *env = LIST_ENTRY(link, struct worker_service, link)->env;
        env->protocol->trim(env);
    }
}

static void on_shortage(struct message *m)
{
    struct worker *w = CONTAINER_OF(m, struct worker, shortage);
    atomic_store(&w->shortage_posted, false); /* before the work: a later shortage posts again */
    trim_services(w);
    pool_trim(w->pool, 0);
    if (loop_now_ns(&w->loop) >= w->relief.not_before_ns)
        relieve_memory(w);
}

static void on_short(struct budget_member *m)
{
    struct worker *w = CONTAINER_OF(m, struct worker, member);
    if (!atomic_exchange(&w->shortage_posted, true))
        loop_post(&w->loop, &w->shortage);
}

/*
 * Evicts, among the next connections of the round, those with a greater burden than least, until
 * the bytes fit. Returns whether they do.
 */
static bool evict_for_body(struct worker *w, uint64_t least, const struct session *for_whom,
                           size_t bytes, struct slice *s)
{
    size_t n = MIN(w->by_use.count, ROOM_CONNS);
    for (size_t i = 0; i < n && has_time(s) && !budget_could_take(w->memory, bytes); i++) {
        if (!w->walks[WALK_ROOM])
            begin_walk(w, WALK_ROOM);
        struct conn *c = next_conn(w, WALK_ROOM);
        bool stalled;
        if (c && &c->session != for_whom && conn_burden(c, loop_now_ns(&w->loop), &stalled) > least)
            evict_conn(w, c);
    }
    return budget_could_take(w->memory, bytes);
}

/*
 * Makes room for a body in progress that cannot grow: evicts connections that are a greater burden
 * than its own, the greatest of them first.
 */
static bool make_room_for_body(void *arg, struct session *for_whom, size_t bytes)
{
    struct worker *w = arg;
    bool stalled;
    uint64_t own =
        conn_burden(CONTAINER_OF(for_whom, struct conn, session), loop_now_ns(&w->loop), &stalled);
    uint64_t greatest = atomic_load_explicit(&w->member.burden, memory_order_relaxed);
    struct slice s = begin_slice(w);
    return evict_for_body(w, MAX(own, greatest / 2), for_whom, bytes, &s) ||
           evict_for_body(w, own, for_whom, bytes, &s);
}

/* ---- Each second ---------------------------------------------------------------------------- */

static bool settle_services(struct worker *w)
{
    bool at_rest = true;
    LIST_FOR_EACH (link, &w->services) {
        struct net_env *env = LIST_ENTRY(link, struct worker_service, link)->env;
        at_rest &= env->protocol->settle(env);
    }
    return at_rest;
}

static void end_sweep(struct worker *w)
{
    relieve_memory(w);
    bool at_rest = settle_services(w);
    at_rest &= pool_settle(w->pool);
    if (list_empty(&w->conns) && at_rest)
        w->swept_ns = 0;
    else
        worker_sweep_later(w);
}

static void on_check_work(struct loop_work *work)
{
    struct worker *w = CONTAINER_OF(work, struct worker, check);
    struct slice s = begin_slice(w);
    while (has_time(&s)) {
        struct conn *c = next_conn(w, WALK_TIMES);
        if (!c) {
            end_sweep(w);
            return;
        }
        conn_check_time(c, loop_now_ns(&w->loop));
    }
    loop_defer_last(&w->loop, work);
}

static void on_sweep(struct timer *t)
{
    struct worker *w = CONTAINER_OF(t, struct worker, sweep);
    uint64_t now_ns = loop_now_ns(&w->loop);
    if (w->walks[WALK_TIMES]) /* its end sets the timer again */
        return;
    log_flush(); /* repeated log lines are written within a second */
    w->swept_late = w->swept_ns > 0 && now_ns - w->swept_ns > w->sweep_ns + LATE_NS;
    w->swept_ns = now_ns;
    begin_walk(w, WALK_TIMES);
    loop_defer_last(&w->loop, &w->check);
}

/* ---- Iterations ------------------------------------------------------------------------------ */

/*
 * Gives each ready connection one portion, in their order. Connections that had none in this
 * iteration come first in the next one.
 */
static void on_go_on(struct loop_work *work)
{
    struct worker *w = CONTAINER_OF(work, struct worker, go_on);
    struct list waiting, *link;
    list_init(&waiting);
    list_move_all(&waiting, &w->ready);
    worker_begin_iteration(w);
    w->left_bytes = w->budget.iteration_bytes;
    w->iteration_ns = 0;
    w->requests_left = w->budget.requests;
    while (worker_may_read_body(w) && w->requests_left > 0 && (link = list_pop(&waiting)))
        conn_go_on(LIST_ENTRY(link, struct conn, ready));
    list_move_all(&waiting, &w->ready);
    list_move_all(&w->ready, &waiting);
    if (!list_empty(&w->ready))
        loop_defer_last(&w->loop, work);
}

/* ---- Idle connections ----------------------------------------------------------------------- */

static bool used_before(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF((uintptr_t)a, struct conn, use)->ranked_ns <
           CONTAINER_OF((uintptr_t)b, struct conn, use)->ranked_ns;
}

/*
 * Finds the connection that has been idle for longest; NULL when none is idle. A rank may be older
 * than the last use, so that requests need not update the heap. The top is the answer if its rank
 * is up to date. Otherwise the top gets an up-to-date rank, and there is another top.
 */
static struct conn *longest_idle(struct worker *w)
{
    uint64_t now_ns = loop_now_ns(&w->loop);
    struct heap_node *top;
    while ((top = heap_top(&w->by_use))) {
        struct conn *c = CONTAINER_OF(top, struct conn, use);
        bool idle = conn_is_idle(c);
        if (idle && conn_active_ns(c) <= c->ranked_ns)
            return c;
        if (!idle && c->ranked_ns >= now_ns)
            return NULL; /* all connections have been checked */
        heap_remove(&w->by_use, top);
        c->ranked_ns = idle ? conn_active_ns(c) : now_ns;
        heap_push(&w->by_use, top);
    }
    return NULL;
}

/*
 * The time at which the longest idle connection became idle. Without one it is now, since a busy
 * connection becomes idle later.
 */
static uint64_t idle_since(struct worker *w, const struct conn *longest)
{
    return longest ? conn_active_ns(longest) : loop_now_ns(&w->loop);
}

unsigned int upkeep_close_idle(struct worker *w, unsigned int n, uint64_t before_ns)
{
    unsigned int n_closed = 0;
    struct conn *c;
    while ((c = longest_idle(w)) && n_closed < n && conn_active_ns(c) <= before_ns) {
        conn_close(c);
        n_closed++;
    }
    atomic_store_explicit(&w->idle_since_ns, idle_since(w, c), memory_order_relaxed);
    /* These connections count for a request of another loop, too. */
    unsigned int n_asked = atomic_load_explicit(&w->n_to_close, memory_order_relaxed);
    atomic_store_explicit(&w->n_to_close, n_asked - MIN(n_asked, n_closed), memory_order_relaxed);
    return n_closed;
}

static void on_close_idle(struct message *m)
{
    struct worker *w = CONTAINER_OF(m, struct worker, close_idle);
    (void)upkeep_close_idle(w, atomic_load_explicit(&w->n_to_close, memory_order_relaxed),
                            atomic_load_explicit(&w->close_before_ns, memory_order_relaxed));
    atomic_store(&w->close_idle_posted, false); /* after the close: a later shortage posts again */
}

void upkeep_ask_close_idle(struct worker *w, unsigned int n, uint64_t before_ns)
{
    if (atomic_exchange(&w->close_idle_posted, true))
        return;
    atomic_store_explicit(&w->n_to_close, n, memory_order_relaxed);
    atomic_store_explicit(&w->close_before_ns, before_ns, memory_order_relaxed);
    loop_post(&w->loop, &w->close_idle);
}

/* ---- The beginning -------------------------------------------------------------------------- */

void upkeep_begin(struct worker *w)
{
    loop_work_init(&w->go_on, on_go_on);
    loop_work_init(&w->check, on_check_work);
    loop_work_init(&w->relief.work, on_relief);
    heap_init(&w->by_use, used_before);
    timer_init(&w->sweep, on_sweep);
    w->close_idle.deliver = on_close_idle;
    w->shortage.deliver = on_shortage;
    w->member.on_short = on_short;
    budget_attach(w->memory, &w->member);
}

/* ---- Services -------------------------------------------------------------------------------- */

/* Once a second, more often where a timeout is shorter than that. */
static uint64_t sweep_interval_ns(const struct net_timeouts *t)
{
    const uint64_t all[] = {t->head_ns, t->body_ns,   t->write_ns,
                            t->idle_ns, t->linger_ns, t->min_rate > 0 ? t->rate_ns : 0};
    uint64_t ns = NS_PER_S;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (all[i] > 0 && all[i] / 2 < ns)
            ns = MAX(all[i] / 2, 10 * NS_PER_MS);
    }
    return ns;
}

void upkeep_serve(struct worker *w, struct worker_service *s, struct listener *listener,
                  const struct net_timeouts *timeouts, struct net_env *env)
{
    *s = (struct worker_service){
        .worker = w, .listener = listener, .timeouts = timeouts, .env = env};
    list_push(&w->services, &s->link);
    w->sweep_ns = MIN(w->sweep_ns, sweep_interval_ns(timeouts));
    env->make_room = make_room_for_body;
    env->make_room_arg = w;
    env->on_space = conn_on_space;
}

void upkeep_serve_no_more(struct worker_service *s)
{
    LIST_FOR_EACH_SAFE (link, &s->worker->conns) {
        struct conn *c = LIST_ENTRY(link, struct conn, link);
        if (c->service == s)
            conn_close(c);
    }
    list_remove(&s->link);
}
