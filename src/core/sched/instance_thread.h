/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker thread of one instance. It starts with the first work that needs it, and ends after
 * some time without work, so that ten thousand idle models do not have ten thousand threads. The
 * next work starts another worker. At most one of them at a time runs code of the backend: a new
 * worker waits for the end of the last one, with the destructors of its thread-local variables.
 *
 *                    work                       no work for idle_ns: told so
 *      no worker ──────────► alive, at work ──► alive, waiting ──────────► ended
 *                              ▲        ▲             │                      │
 *                              │        └─────────────┘ work: woken          │ work: a new one,
 *                              └─────────────────────────────────────────────┘ which joins it
 *
 * The worker waits without a timer of its own, which would cost something with each sleep. The
 * scheduler's deadline timer tells it when it has waited long enough
 * (instance_thread_end_idle_locked()).
 *
 * All transitions are made under the scheduler's lock. A thread that brings work finds the worker
 * either waiting, and rouses it, or ended, and starts another. The system call that wakes the
 * worker is made after the lock is released (base/sleeper.h).
 */
#ifndef CONCH_CORE_SCHED_INSTANCE_THREAD_H
#define CONCH_CORE_SCHED_INSTANCE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct inline_budget;
struct instance;
struct mutex;
struct status;
struct instance_thread;

/* How long a worker waits for more before it ends. */
#define INSTANCE_THREAD_IDLE_NS 10000000000ULL

/* What runs on the thread: work_locked() while has_work_locked(), all under mu. */
struct instance_thread_ops {
    bool (*has_work_locked)(struct instance *in);
    void (*work_locked)(struct instance *in);
    /* The worker begins to wait: instance_thread_end_idle_locked() is to be called at until_ns. */
    void (*waits_locked)(struct instance *in, uint64_t until_ns);
};

/*
 * instance_thread_start_locked - starts the thread of an instance, which looks for work first.
 *
 * @before   the instance's ended worker, or NULL; taken on success
 * @mu       of the scheduler, held by the caller
 * @idle_ns  see INSTANCE_THREAD_IDLE_NS
 * Errors:   STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *instance_thread_start_locked(struct instance *in,
                                                      struct instance_thread *before,
                                                      const struct instance_thread_ops *ops,
                                                      struct mutex *mu, uint64_t idle_ns,
                                                      struct instance_thread **ret_thread);

/*
 * instance_thread_rouse_locked - there is work, and the worker has not ended.
 *
 * Returns the argument for instance_thread_wake(), which the caller calls after unlocking mu. The
 * worker may have done the work and ended by then.
 */
void *instance_thread_rouse_locked(struct instance_thread *w);
void instance_thread_wake(void *asleep);
bool instance_thread_has_ended_locked(const struct instance_thread *w);

/*
 * instance_thread_end_idle_locked - ends a worker that has waited for idle_ns.
 *
 * Returns when to call it again; UINT64_MAX: not before waits_locked() is called.
 */
uint64_t instance_thread_end_idle_locked(struct instance_thread *w, uint64_t now_ns);

/*
 * instance_thread_budget - the worker's inline budget, full: for what it executes of other models
 * after an execution of its own (afterwards.h). Thread: the worker's.
 */
struct inline_budget *instance_thread_budget(struct instance_thread *w);

/* instance_thread_stop - ends and joins a worker that gets no more work. Takes mu. NULL is fine. */
void instance_thread_stop(struct instance_thread *w);

#endif
