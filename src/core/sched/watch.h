/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watch of a scheduler watches the requests that a backend has. If a backend does not answer,
 * the watch logs model, instance and request: after 10 s, and then ever more rarely. A model may
 * have an execution limit (its parameter CONCH_EXECUTION_LIMIT_MS). Requests beyond the limit are
 * answered with STATUS_TIMED_OUT, and the instance is stuck until the backend releases them.
 *
 * The request path only makes a few stores to cache lines that it writes anyway: it takes no lock
 * and has no read-modify-write. A deadline timer reads these, and fires only while something
 * executes.
 *
 *     instance_execute()     notes when the call of the backend began, and that it has returned
 *       watcher->ops->arm()  when the timer is not set
 *       … on_kept()          when the call has returned, and the backend still has a request
 *       … on_returned()      when the timer is about to read the batch
 *     request_sender_done()
 *       watch_request_ended()  when the request was late
 *     the deadline timer
 *       watch_look()         a helper of the server then logs, and answers requests
 */
#ifndef CONCH_CORE_SCHED_WATCH_H
#define CONCH_CORE_SCHED_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/mutex.h"
#include "core/backend/instance.h"
#include "core/threads/control.h"
#include "core/threads/deadline_timer.h"

struct instance;
struct model;
struct request;
struct status;
struct watch_finding;

#define WATCH_LIMIT_PARAMETER "CONCH_EXECUTION_LIMIT_MS"
/* The time between two warnings doubles with each of them, up to this: an hour. */
#define WATCH_WARN_MAX_NS 3600000000000ULL
/* How long a look waits until a thread that returns from the backend sees what the look has
 * written. */
#define WATCH_SETTLE_NS 10000000ULL

struct watch {
    struct call_watcher watcher; /* of the model's instances */

    /* Constant once made. */
    struct model *model;
    uint64_t limit_ns; /* UINT64_MAX: none */
    uint64_t warn_ns;  /* after which the first warning comes; UINT64_MAX: none */
    uint64_t pause_ns; /* between two looks: the earliest that anything is due after a start */

    struct deadline_timer deadline_timer;
    atomic_uint n_stuck; /* stuck instances; the model is not ready while there are any */

    struct mutex mu; /* level 550 in core/README.md */
    struct cond reported;
    /* Under mu. */
    struct list leaving; /* instances out of service that execute yet: looked at like the model's */
    struct list late;    /* requests that the backend still has after its call has returned */
    size_t n_late;
    struct watch_finding *findings; /* found by looks; a helper logs and answers them */
    bool is_answering;              /* that helper is at work, or about to be */

    struct control_job answers; /* the helper's */
};

/* What the backend has now. */
struct watch_use {
    uint64_t n_requests;
    uint64_t oldest_ns;         /* how long it has had the oldest request; 0: it has none */
    uint64_t oldest_pending_ns; /* how long the oldest request that it does not have yet waits */
};

/*
 * watch_limit - reads the parameter, in milliseconds; NULL means no limit.
 *
 * Errors: STATUS_INVALID_ARG  it is no whole number from 1 to 86400000
 */
NODISCARD struct status *watch_limit(const char *parameter, uint64_t *ret_limit_ns);

/*
 * watch_init - initialises the watch, and starts the thread of the timers. The caller ends it with
 * watch_done().
 *
 * Thread: control.
 * Errors: STATUS_INVALID_ARG  the parameter has a wrong value
 *         STATUS_UNAVAILABLE  the system has no room for the thread of the timers
 */
NODISCARD struct status *watch_init(struct watch *w, struct model *m);
/* watch_done - waits for the end of a look and of its helper. Nothing executes any more. A watch
 * that was never initialised is fine. */
void watch_done(struct watch *w);

/* watch_request_ended - a request that is marked as late has ended. Takes mu. */
void watch_request_ended(struct watch *w, struct request *r);

/*
 * watch_look - finds what is due, and has a helper log and answer it; one helper for each model. An
 * embedder's callback may take long, and all models share the timers' thread
 * (core/threads/helpers.h).
 *
 * Thread: the timers'. No lock is held.
 * Returns when to look again; UINT64_MAX: when the next execution begins
 */
uint64_t watch_look(struct watch *w, uint64_t now_ns);

/* watch_read - what the backend has now, for the metrics. Thread: any that ensures that the
 * instances live on. Takes mu. */
void watch_read(struct watch *w, uint64_t now_ns, struct watch_use *ret);

/* watch_stuck_instance - the name of an instance with requests beyond the limit, which the caller
 * frees; NULL: there is none. Thread: as above. Takes mu. */
char *watch_stuck_instance(struct watch *w);

/*
 * watch_set_instances - the model has other instances from now on. The caller has scheduler.mu.
 * watch_leaves, watch_has_left - an instance that was the model's goes on executing; does not.
 */
void watch_set_instances(struct watch *w, struct instance **instances, uint32_t n);
void watch_leaves(struct watch *w, struct instance *in);
void watch_has_left(struct watch *w, struct instance *in);

#endif
