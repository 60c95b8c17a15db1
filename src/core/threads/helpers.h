/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers are control threads (control.h) for work that changes no model, but may take long for a
 * loop, or as long as an embedder's callback or a backend takes. The first job starts a helper; one
 * then always exists. At most CONTROL_MAX_OTHERS run jobs; when all are busy, further jobs wait.
 *
 * A server's helpers send responses that timers cause, since these call embedders, and collect the
 * statistics of all models. While an embedder's callback does not return, one model blocks at most
 * two of them: one for refused requests, one for those beyond the execution limit. The helpers of a
 * backend (`backend.askers`) ask whether its models are ready. While the backend does not answer,
 * one model blocks at most one of them, and after some seconds another one takes its place.
 */
#ifndef CONCH_CORE_THREADS_HELPERS_H
#define CONCH_CORE_THREADS_HELPERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "core/threads/control.h"

struct clock;

struct helpers {
    struct mutex mu; /* level 865 in core/README.md */
    struct cond notified;
    atomic_bool has_threads; /* set under mu, read without */
    struct control control;  /* its own, once there are threads */
};

void helpers_init(struct helpers *h);
/* helpers_done - waits until all jobs are done, and joins the threads. No thread may post jobs any
 * more. */
void helpers_done(struct helpers *h);

/*
 * helpers_post - has a helper run the job. When no helper is idle and the system has no room for
 * another thread, the caller runs it before this function returns.
 *
 * Thread: any; with locks held of levels below 865 only when the job may run under them.
 */
void helpers_post(struct helpers *h, struct control_job *job);

/* helpers_look - as control_look(). Thread: any, without locks. */
void helpers_look(struct helpers *h, uint64_t now_ns, uint64_t patience_ns);

/* helpers_control - NULL when the system has no room for a thread. */
struct control *helpers_control(struct helpers *h);

/* helpers_notify - wakes the threads in helpers_wait(): a job has changed what they wait for. */
void helpers_notify(struct helpers *h);
/* helpers_wait - waits until done(arg), which is called under mu, returns true. False: until_ns
 * of the clock has passed. */
bool helpers_wait(struct helpers *h, bool (*done)(void *arg), void *arg, struct clock *clock,
                  uint64_t until_ns);

#endif
