/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops that several services share: workers with their threads, and a context for each loop. A
 * service (server.h) listens on as many of the loops as it wants; a connection stays on its loop.
 * The loops run from loops_new() on and end with the last reference.
 */
#ifndef CONCH_FRONTENDS_NET_LOOPS_H
#define CONCH_FRONTENDS_NET_LOOPS_H

#include "frontends/net/worker.h"

struct loops_options {
    const char *name;         /* "http" names the threads http-0, http-1, … */
    unsigned int n_threads;   /* to begin with; at least 1 */
    unsigned int max_threads; /* the most that loops_grow() may ask for; 0: n_threads */
    struct budget *budget;    /* of what connections keep; NULL: the loops make one */
    /*
     * The context of a loop, for all services: made before its thread runs, freed after it.
     * Optional.
     */
    void *(*ctx_new)(void *arg, struct loop *loop);
    void (*ctx_stop)(void *ctx); /* the loop has stopped, and still is there; optional */
    void (*ctx_free)(void *ctx);
    void *ctx_arg;
};

struct loops {
    /* Set by loops_new(), constant afterwards. */
    char name[9];
    unsigned int max_threads;
    struct budget *budget;
    void *(*ctx_new)(void *arg, struct loop *loop);
    void (*ctx_stop)(void *ctx); /* the loop has stopped, and still is there; optional */
    void (*ctx_free)(void *ctx);
    void *ctx_arg;

    /* The threads that start and stop services, one at a time. */
    unsigned int refs;
    unsigned int n_workers; /* with a thread */
    struct worker *workers; /* room for max_threads; the first n_workers are initialised */
};

/*
 * loops_new - starts loops. loops_unref() ends them.
 *
 * Errors: as worker_init() and worker_start()
 */
NODISCARD struct status *loops_new(const struct loops_options *o, struct loops **ret);

/*
 * loops_grow - starts more loops, until there are n_threads, or max_threads.
 *
 * Errors: as loops_new(); loops that were started stay
 */
NODISCARD struct status *loops_grow(struct loops *l, unsigned int n_threads);

/*
 * loops_turned - whether each loop has delivered its messages since the last call, or since it
 * began. A loop in which something does not come back, has not. Thread: one, not a loop's.
 */
bool loops_turned(struct loops *l);

/*
 * loops_ref, loops_unref - references. With the last one the threads end and all is freed; no
 * service may be left. Thread: not a worker's.
 */
struct loops *loops_ref(struct loops *l);
void loops_unref(struct loops *l);

#endif
