/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: one thread with one event loop, and all that its connections share. Connections come
 * to it once and never leave; nothing here is shared with other workers but the few atomics.
 */
#ifndef CONCH_FRONTENDS_NET_WORKER_H
#define CONCH_FRONTENDS_NET_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/budget.h"
#include "base/heap.h"
#include "base/loop.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "frontends/net/exchange.h"

struct worker_call;

/* How long a connection may take, nanoseconds; 0 = for ever. */
struct net_timeouts {
    uint64_t head_ns;   /* from the first byte of a head to its last */
    uint64_t body_ns;   /* without a byte of a body that is being received */
    uint64_t write_ns;  /* without a byte of a reply going out */
    uint64_t idle_ns;   /* between requests */
    uint64_t linger_ns; /* after a last reply, for the client to read it */
    uint64_t min_rate;  /* bytes per second of a body or a reply that is under way … */
    uint64_t rate_ns;   /* … as an average over this time */
};

/*
 * What is done in one iteration of the loop before others are served: a health check waits for no
 * more than this. Bytes of bodies are read when all else of the iteration is done.
 */
struct net_budget {
    size_t portion_bytes;   /* of one connection */
    size_t iteration_bytes; /* of all */
    unsigned int requests;  /* that begin; as many again when all else is done */
};

struct worker {
    /* Set by worker_start(), constant afterwards. */
    const struct net_timeouts *timeouts;
    uint64_t sweep_ns;         /* how often they are looked at */
    struct listener *listener; /* counts connections */
    struct pool *pool;
    struct thread thread;

    /* The worker's thread. */
    struct loop loop;
    struct http_env env;
    struct net_budget budget; /* constant while it runs */
    size_t left_bytes;        /* of the iteration's */
    uint64_t iteration_ns;    /* when it began to read bodies; 0: not yet */
    uint64_t iteration;       /* the loop's, for which the above was set */
    struct list ready;        /* connections that have more to read or to parse; oldest first */
    struct loop_work go_on;   /* with them; while there are any */
    struct list conns;
    struct heap by_use; /* the connections, the longest unused first, as far as ranked_ns knows */
    uint64_t swept_ns;  /* when the connections' times were looked at; 0: not yet */
    bool swept_late;    /* the loop stood still: whoever seems slow may have waited for us */
    struct timer sweep; /* looks for connections that take too long, and gives back what a peak has
                           left; while there are any, and until that is done */
    struct message shortage; /* the budget is short */

    struct budget_member member;

    /* Any thread, relaxed: a stale value makes one worse choice. */
    atomic_uint n_conns;
    _Atomic uint64_t idle_since_ns; /* no connection has been idle for longer; set by
                                       worker_close_idle(), so it may be long ago */
    struct message close_idle;      /* posted by who sets the flag below … */
    atomic_bool close_idle_posted;
    atomic_uint n_to_close; /* … and these */
    _Atomic uint64_t close_before_ns;
    atomic_bool shortage_posted;
};

/*
 * worker_start - starts the thread.
 *
 * @handler_ctx  the handler's own for this loop
 * @budget       what all that its connections keep counts in; outlives the worker
 * Errors: STATUS_UNAVAILABLE  no thread, no descriptor
 */
NODISCARD struct status *worker_init(struct worker *w, const struct http_handler *handler,
                                     void *handler_ctx, const struct http_limits *limits,
                                     const struct net_timeouts *timeouts, struct budget *budget);
NODISCARD struct status *worker_start(struct worker *w, const char *name);
/* worker_stop - ends the thread. worker_done() then frees what is left, if nothing is in use. */
void worker_stop(struct worker *w);
void worker_done(struct worker *w);

/* worker_add_conn, worker_remove_conn - a connection to look after, by its links (conn.h). Thread:
 * the worker's. */
void worker_add_conn(struct worker *w, struct list *link, struct heap_node *use);
void worker_remove_conn(struct worker *w, struct list *link, struct list *ready,
                        struct heap_node *use);

/* worker_sweep_later - sets the timer of the next look at all connections. Thread: the worker's. */
void worker_sweep_later(struct worker *w);

/* worker_begin_iteration - sets what may be done in the loop's iteration, once in each. */
static inline void worker_begin_iteration(struct worker *w)
{
    if (w->iteration == w->loop.iteration)
        return;
    w->iteration = w->loop.iteration;
    w->left_bytes = w->budget.iteration_bytes;
    w->iteration_ns = 0;
    w->env.requests_left = w->budget.requests;
}

/* worker_may_read_body - has the iteration bytes and time left for a portion? Thread: the worker's.
 */
bool worker_may_read_body(struct worker *w);

/* worker_go_on_later - the connection has more, and waits for its portion. @ready  of it */
void worker_go_on_later(struct worker *w, struct list *ready);

/* What runs on a loop for another thread: it must not wait for anything. */
typedef void worker_fn(struct worker *w, void *arg);

/*
 * worker_post - has fn(arg) run on the worker's thread; worker_await() must follow, once. Calls of
 * one thread run in their order.
 *
 * Thread: any but the worker's, as below.
 */
struct worker_call *worker_post(struct worker *w, worker_fn *fn, void *arg);

/*
 * worker_await - waits until the call has run, and ends it. False: the loop has not come to it by
 * the deadline (monotonic), and fn will not be called: what arg points to may go.
 */
bool worker_await(struct worker_call *call, uint64_t deadline_ns);

#endif
