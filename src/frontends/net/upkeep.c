/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of a worker besides the events of its connections. It gives up connections when the
 * budget is short. It checks the times of all connections about once a second. It shares the bytes
 * and requests of a loop iteration between them, and closes idle ones when descriptors are short.
 *
 * Thread: the worker's; only on_short() and upkeep_ask_close_idle() run on others. Walks of `conns`
 * that may close a connection use LIST_FOR_EACH_SAFE.
 */
#include "frontends/net/upkeep.h"

#include "base/log.h"
#include "base/pool.h"
#include "frontends/net/conn.h"
#include "frontends/net/worker.h"

#define LATE_NS (2 * NS_PER_S)

/* ---- A short budget ------------------------------------------------------------------------- */

/* Finds the connection that is the greatest burden; NULL when none is above least. */
static struct conn *find_worst_conn(struct worker *w, bool only_stalled, uint64_t least,
                                    const struct session *except)
{
    struct conn *found = NULL;
    LIST_FOR_EACH (link, &w->conns) {
        struct conn *c = LIST_ENTRY(link, struct conn, link);
        bool stalled;
        uint64_t burden = conn_burden(c, loop_now_ns(&w->loop), &stalled);
        if (burden > least && (stalled || !only_stalled) && &c->session != except) {
            least = burden;
            found = c;
        }
    }
    return found;
}

/* Evicts the connections whose burden is more than half of c's, so that one walk evicts many. */
static void evict_worst(struct worker *w, bool only_stalled, const struct conn *c,
                        bool (*needed)(struct worker *w))
{
    bool stalled;
    uint64_t now_ns = loop_now_ns(&w->loop), least = conn_burden(c, now_ns, &stalled) / 2;
    LIST_FOR_EACH_SAFE (link, &w->conns) {
        struct conn *each = LIST_ENTRY(link, struct conn, link);
        if (conn_burden(each, now_ns, &stalled) <= least || (only_stalled && !stalled))
            continue;
        conn_evict(each);
        pool_trim(w->pool, 0);
        if (!needed(w))
            return;
    }
}

static bool lacks_memory(struct worker *w)
{
    return budget_lacks(w->memory, loop_now_ns(&w->loop));
}

static bool is_exceeded(struct worker *w)
{
    return budget_is_exceeded(w->memory) && budget_is_heaviest(w->memory, &w->member);
}

/* Reports the greatest burden of this worker to the budget. */
static void report_burden(struct worker *w)
{
    bool stalled;
    struct conn *c = find_worst_conn(w, false, 0, NULL);
    uint64_t burden = c ? conn_burden(c, loop_now_ns(&w->loop), &stalled) : 0;
    atomic_store_explicit(&w->member.burden, burden, memory_order_relaxed);
}

/*
 * Evicts stalled connections while the budget lacks memory. Then, while small requests alone exceed
 * the limit, evicts the greatest burden of all loops.
 */
static void relieve_memory(struct worker *w)
{
    struct conn *c;
    while (lacks_memory(w) && (c = find_worst_conn(w, true, 0, NULL)))
        evict_worst(w, true, c, lacks_memory);
    report_burden(w);
    while (is_exceeded(w) && (c = find_worst_conn(w, false, 0, NULL))) {
        evict_worst(w, false, c, is_exceeded);
        report_burden(w);
    }
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
    relieve_memory(w);
}

static void on_short(struct budget_member *m)
{
    struct worker *w = CONTAINER_OF(m, struct worker, member);
    if (!atomic_exchange(&w->shortage_posted, true))
        loop_post(&w->loop, &w->shortage);
}

/*
 * Makes room for a body in progress that cannot grow: evicts connections that are a greater burden
 * than its own.
 */
static bool make_room_for_body(void *arg, struct session *for_whom, size_t bytes)
{
    struct worker *w = arg;
    bool stalled;
    uint64_t own =
        conn_burden(CONTAINER_OF(for_whom, struct conn, session), loop_now_ns(&w->loop), &stalled);
    while (!budget_could_take(w->memory, bytes)) {
        struct conn *c = find_worst_conn(w, false, own, for_whom);
        if (!c)
            return false;
        conn_evict(c);
        pool_trim(w->pool, 0);
    }
    return true;
}

/* ---- Each second ---------------------------------------------------------------------------- */

static void check_conn_times(struct worker *w, uint64_t now_ns)
{
    LIST_FOR_EACH_SAFE (link, &w->conns)
        conn_check_time(LIST_ENTRY(link, struct conn, link), now_ns);
}

static bool settle_services(struct worker *w)
{
    bool at_rest = true;
    LIST_FOR_EACH (link, &w->services) {
        struct net_env *env = LIST_ENTRY(link, struct worker_service, link)->env;
        at_rest &= env->protocol->settle(env);
    }
    return at_rest;
}

static void on_sweep(struct timer *t)
{
    struct worker *w = CONTAINER_OF(t, struct worker, sweep);
    uint64_t now_ns = loop_now_ns(&w->loop);
    log_flush(); /* repeated log lines are written within a second */
    w->swept_late = w->swept_ns > 0 && now_ns - w->swept_ns > w->sweep_ns + LATE_NS;
    w->swept_ns = now_ns;
    check_conn_times(w, now_ns);
    relieve_memory(w);
    bool at_rest = settle_services(w);
    at_rest &= pool_settle(w->pool);
    if (list_empty(&w->conns) && at_rest)
        w->swept_ns = 0;
    else
        worker_sweep_later(w);
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
