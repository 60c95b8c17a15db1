/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers: control threads (control.h) that do what may take as long as somebody else likes, or
 * long for a loop, though no model comes or goes. They start with the first job; one stays.
 * CONTROL_MAX_OTHERS of them may be at work; when all are kept, the other jobs wait.
 *
 * A server's do answers that call embedders from the timers, and statistics of all models. A model
 * keeps two of them at most, while an embedder's callback does not return (one for requests that
 * were refused, one for those beyond the execution limit). Those of a backend (`backend.askers`)
 * ask whether its models are ready; a model keeps one at most, while the backend does not answer.
 */
#ifndef CONCH_CORE_HELPERS_H
#define CONCH_CORE_HELPERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "core/control.h"

struct helpers {
    struct mutex mu; /* level 865 in core/README.md */
    struct cond told;
    atomic_bool has_threads; /* set under mu, read without */
    struct control control;  /* its own, once there are threads */
};

void helpers_init(struct helpers *h);
/* helpers_done - when all jobs are done, nobody posting any more. */
void helpers_done(struct helpers *h);

/*
 * helpers_post - has the job run by one of them; or now, by the caller, when the system has no room
 * for any thread.
 *
 * Thread: any; with locks held of levels below 865 only when the job may run under them.
 */
void helpers_post(struct helpers *h, struct control_job *job);

/* helpers_control - NULL when the system has no room for a thread. */
struct control *helpers_control(struct helpers *h);

/* helpers_tell, helpers_wait - a job has changed something; waits until then. */
void helpers_tell(struct helpers *h);
/* Returns whether done(arg), which is asked under mu; false: the time (monotonic) is over. */
bool helpers_wait(struct helpers *h, bool (*done)(void *arg), void *arg, uint64_t until_ns);

#endif
