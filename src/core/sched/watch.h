/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who watches the requests that a backend has taken: one per scheduler. A backend that never
 * answers is told in the log, after 10 s and ever more rarely, by model, instance and request; with
 * an execution limit (the model's parameter CONCH_EXECUTION_LIMIT_MS) its requests are then
 * answered with STATUS_TIMED_OUT, and the instance is stuck until the backend lets go of them.
 *
 * The request path pays a few stores to lines that it has anyway: no lock and no read-modify-write.
 * What it leaves behind is looked at by a deadline timer, which fires only while something
 * executes.
 *
 *     instance_execute()     notes when the call of the backend began, and that it has returned
 *       watch_arm()          … and nobody has for a while
 *       watch_keep_late()    … and the backend still has the request
 *       watch_returned()     … and a look is about to read the batch
 *     request_sender_done()
 *       watch_request_ended()  … of a request that was late
 * the deadline timer
 *       watch_look()        … and a helper of the server tells and answers what it has found
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
#include "core/control.h"
#include "core/sched/deadline_timer.h"

struct instance;
struct model;
struct request;
struct status;
struct watch_finding;

#define WATCH_LIMIT_PARAMETER "CONCH_EXECUTION_LIMIT_MS"
/* After the first warning each further one comes after twice the time, from an hour on each hour.
 */
#define WATCH_WARN_MAX_NS 3600000000000ULL
/* How long a look waits until what it has written is seen by a backend's thread that returns. */
#define WATCH_SETTLE_NS 10000000ULL

struct watch {
    /* Constant once made. */
    struct model *model;
    uint64_t limit_ns; /* UINT64_MAX: none */
    uint64_t warn_ns;  /* after which the first warning comes; UINT64_MAX: none */
    uint64_t pause_ns; /* between two looks: the first thing that can be due after a start */

    struct deadline_timer deadline_timer;
    atomic_bool armed;   /* the timer is set; whoever finds it false sets it */
    atomic_uint n_stuck; /* instances; for who asks whether the model is ready */

    struct mutex mu; /* level 550 in core/README.md */
    struct cond told;
    /* Under mu. */
    struct list late; /* requests that the backend still has after its call has returned */
    size_t n_late;
    struct watch_finding *findings; /* what looks have found, for a helper to tell and answer */
    bool is_answering;              /* that helper is at work, or about to be */

    struct control_job answers; /* the helper's */
};

/* What is with the backend now. */
struct watch_use {
    uint64_t n_requests;
    uint64_t oldest_ns; /* how long; 0: nothing is there */
};

/*
 * watch_limit - reads the parameter; NULL means no limit.
 *
 * Errors: STATUS_INVALID_ARG  no whole number from 1 to 86400000
 */
NODISCARD struct status *watch_limit(const char *parameter, uint64_t *ret_limit_ns);

/*
 * watch_init - watches nobody yet.
 *
 * Thread: control. The thread of the timers runs from here on.
 * Errors: STATUS_INVALID_ARG  the parameter
 *         STATUS_UNAVAILABLE  the system has no room for the thread of the timers
 */
NODISCARD struct status *watch_init(struct watch *w, struct model *m);
/* watch_done - waits for the end of a look and of its helper; nothing executes. One that was never
 * made is fine. */
void watch_done(struct watch *w);

/* watch_arm - an execution begins, and `armed` is false. */
void watch_arm(struct watch *w, uint64_t now_ns);
/* watch_returned - the instance is `watched`, and its call has returned. */
void watch_returned(struct instance *in);
/*
 * watch_keep_late - the call that began at start_ns has returned, and the request seems to be with
 * the backend still. The caller, the instance's runner, has a reference to it.
 */
void watch_keep_late(struct instance *in, struct request *r, uint64_t start_ns);

/* watch_has_answered - it was beyond the limit, and has its error. Only of one marked as late. */
bool watch_has_answered(const struct request *r);

/* watch_request_ended - for request_sender_done(): it is marked as late. Takes mu. */
void watch_request_ended(struct request *r);

/*
 * watch_look - has a helper tell and answer what is due, one for each model: an embedder's callback
 * may take its time, and the timers are all models' (core/helpers.h).
 *
 * Thread: the timers'. No lock is held.
 * Returns when it wants to look again; UINT64_MAX: when something executes
 */
uint64_t watch_look(struct watch *w, uint64_t now_ns);

/* watch_read - for the metrics. Thread: any that keeps the instances from going. Takes mu. */
void watch_read(struct watch *w, uint64_t now_ns, struct watch_use *ret);

#endif
