/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: one thread with one event loop, and everything that its connections share, of whatever
 * service (server.h) they are. A connection is given to a worker once and stays with it. Workers
 * share nothing but the few atomics below.
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
#include "frontends/net/session.h"

struct listener;
struct tls_files;
struct worker_call;

/* Time limits of a connection in nanoseconds; 0: no limit. */
struct net_timeouts {
    uint64_t head_ns;   /* from the first byte of a head to its last */
    uint64_t body_ns;   /* without a byte, while a body is being received */
    uint64_t write_ns;  /* without a byte sent, while a reply is being sent */
    uint64_t idle_ns;   /* between requests */
    uint64_t linger_ns; /* after the last reply, for the client to read it */
    uint64_t min_rate;  /* bytes per second of a body or reply in progress … */
    uint64_t rate_ns;   /* … as an average over this time */
};

/*
 * The most work of one iteration of the loop: a health check never waits for more. Bytes of bodies
 * are read after all other work of the iteration.
 */
struct net_budget {
    size_t portion_bytes;   /* for one connection */
    size_t iteration_bytes; /* for all connections */
    unsigned int requests;  /* requests that may begin; as many again after the other work */
};

/*
 * Walks over all connections, which may last several iterations. Each connection that is removed
 * meanwhile leaves them, too.
 */
enum conn_walk {
    WALK_TIMES,  /* checks times, once a second */
    WALK_RELIEF, /* measures burdens, or evicts the greatest */
    WALK_ROOM,   /* goes round: each body that lacks memory looks at the next ones */
    N_CONN_WALKS,
};

/* How a worker frees memory of its connections; upkeep.c. The worker's thread. */
struct relief {
    struct loop_work work;               /* deferred while WALK_RELIEF is under way */
    bool evicts;                         /* this walk evicts; otherwise it measures */
    bool only_stalled;                   /* … those that have stalled, and otherwise any … */
    uint64_t least;                      /* … with a greater burden than this */
    uint64_t greatest, greatest_stalled; /* burdens found so far */
    bool has_evicted;                    /* in this walk … */
    bool has_helped;                     /* … in any since the relief began */
    uint64_t took_ns;                    /* since the relief began */
    uint64_t not_before_ns;              /* of the next relief, unless a second passes */
};

struct worker {
    /* Set by worker_init(), constant afterwards. */
    struct budget *memory; /* counts all memory that connections keep */
    struct pool *pool;
    char *scratch; /* sockets are read into this buffer */
    size_t scratch_bytes;
    void *ctx; /* of its owner (loops.h) */
    struct thread thread;

    /* The worker's thread. */
    struct loop loop;
    struct list services;       /* struct worker_service */
    uint64_t sweep_ns;          /* the time between two checks of the connections' timeouts */
    struct net_budget budget;   /* constant while it runs */
    unsigned int requests_left; /* of budget.requests, in this iteration */
    size_t left_bytes;          /* of budget.iteration_bytes, in this iteration */
    uint64_t iteration_ns;      /* when this iteration began to read bodies; 0: not yet */
    uint64_t iteration;         /* the loop's iteration that the three above belong to */
    struct list ready;          /* connections that have more to read or to parse; oldest first */
    struct loop_work go_on;     /* works on `ready`; deferred while it has any */
    struct list conns;
    struct list *walks[N_CONN_WALKS]; /* the next connection of each; NULL: none is under way */
    struct heap by_use;               /* connections, longest unused first, by their ranked_ns */
    uint64_t swept_ns;  /* the last check of the connections' times began; 0: none yet */
    bool swept_late;    /* the loop stood still: a client that seems slow may have waited for us */
    struct timer sweep; /* checks connections' timeouts, and frees memory that a peak has left; set
                           while there are connections or such memory */
    struct loop_work check; /* deferred while WALK_TIMES is under way */
    struct relief relief;
    struct message shortage; /* the budget is short */

    struct budget_member member;

    /* Any thread, relaxed: a stale value costs one worse choice. */
    atomic_uint n_conns;
    _Atomic uint64_t idle_since_ns; /* no connection has been idle since before this time;
                                       upkeep_close_idle() sets it, so it may be out of date */
    struct message turn;            /* of loops_turned(), while … */
    atomic_bool turn_posted;        /* … this is set */
    struct message close_idle;      /* posted by the thread that sets the flag below … */
    atomic_bool close_idle_posted;
    atomic_uint n_to_close; /* … and these */
    _Atomic uint64_t close_before_ns;
    atomic_bool shortage_posted;
};

/* A worker's part of one service. */
struct worker_service {
    /* Set by upkeep_serve(), constant afterwards. */
    struct worker *worker;
    struct listener *listener; /* counts connections */
    const struct net_timeouts *timeouts;
    struct net_env *env;
    struct tls_files *tls; /* its connections speak TLS; NULL: they do not */

    struct list link; /* in worker->services; the worker's thread */
};

/*
 * worker_init - makes a worker; worker_done() ends it.
 * worker_start - starts its thread.
 *
 * @memory  counts everything that the worker's connections keep; must outlive the worker
 * Errors: STATUS_UNAVAILABLE  no thread or no descriptor is left
 */
NODISCARD struct status *worker_init(struct worker *w, struct budget *memory);
NODISCARD struct status *worker_start(struct worker *w, const char *name);
/* worker_stop - ends the thread. worker_done() then frees the worker; nothing may be in use. */
void worker_stop(struct worker *w);
void worker_done(struct worker *w);

/*
 * worker_get_env - what sessions of a service on this worker share, for protocol.env_new(); members
 * of the handler are not set.
 */
struct net_env worker_get_env(struct worker *w, const struct protocol *protocol);

/*
 * worker_add_conn, worker_remove_conn - add and remove a connection, given by its links (conn.h).
 * Thread: the worker's.
 */
void worker_add_conn(struct worker *w, struct list *link, struct heap_node *use);
void worker_remove_conn(struct worker *w, struct list *link, struct list *ready,
                        struct heap_node *use);

/*
 * worker_sweep_later - sets the timer of the next check of all connections. Thread: the worker's.
 */
void worker_sweep_later(struct worker *w);

/* worker_begin_iteration - refills the worker's budget, once per iteration of the loop. */
static inline void worker_begin_iteration(struct worker *w)
{
    if (w->iteration == w->loop.iteration)
        return;
    w->iteration = w->loop.iteration;
    w->left_bytes = w->budget.iteration_bytes;
    w->iteration_ns = 0;
    w->requests_left = w->budget.requests;
}

/*
 * worker_may_read_body - whether this iteration has bytes and time left for a portion. Thread: the
 * worker's.
 */
bool worker_may_read_body(struct worker *w);

/*
 * worker_go_on_later - queues a connection that has more to read until its next portion.
 *
 * @ready  the link of the connection
 */
void worker_go_on_later(struct worker *w, struct list *ready);

/* A function that runs on a loop for another thread. It must not block. */
typedef void worker_fn(struct worker *w, void *arg);

/*
 * worker_post - has fn(arg) run on the worker's thread. worker_await() must follow, once. Calls
 * that one thread posts run in their order.
 *
 * Thread: any but the worker's; worker_await(), too.
 */
struct worker_call *worker_post(struct worker *w, worker_fn *fn, void *arg);

/*
 * worker_await - waits until the call has run, and frees it. False: the loop has not run the call
 * by the deadline (monotonic) and will not run it, so that what arg points to may be freed.
 */
bool worker_await(struct worker_call *call, uint64_t deadline_ns);

#endif
