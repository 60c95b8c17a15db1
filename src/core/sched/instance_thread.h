/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of one instance. It starts with the first work that needs it and ends when it had none
 * for a while, so that ten thousand idle models are not ten thousand threads; the next work starts
 * another one. At any time at most one of them runs code of the backend: a new one waits for the
 * end of the one before, destructors of the backend's thread-local variables included.
 *
 *                    work                       no work for idle_ns: told so
 *      no worker ──────────► alive, at work ──► alive, waiting ──────────► ended
 *                              ▲        ▲             │                      │
 *                              │        └─────────────┘ work: woken          │ work: a new one,
 *                              └─────────────────────────────────────────────┘ which joins it
 *
 * It waits without a timer of its own, which each sleep would pay for: somebody who has a timer
 * tells it that it has waited for long enough (instance_thread_end_idle_locked()).
 *
 * All transitions are made under the lock of the scheduler: who brings work sees the worker either
 * waiting, and rouses it, or ended, and starts one. The system call that wakes it comes when the
 * lock is let go of (base/sleeper.h).
 */
#ifndef CONCH_CORE_SCHED_INSTANCE_THREAD_H
#define CONCH_CORE_SCHED_INSTANCE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

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
    /* It begins to wait: instance_thread_end_idle_locked() is due at that time. */
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
 * Returns what instance_thread_wake() is to get when mu is let go of. The worker may have done the
 * work and ended by then.
 */
void *instance_thread_rouse_locked(struct instance_thread *w);
void instance_thread_wake(void *asleep);
bool instance_thread_has_ended_locked(const struct instance_thread *w);

/*
 * instance_thread_end_idle_locked - has a worker end that has waited for as long as it should.
 *
 * Returns when to look again; UINT64_MAX: not before waits_locked() says so.
 */
uint64_t instance_thread_end_idle_locked(struct instance_thread *w, uint64_t now_ns);

/* instance_thread_stop - ends a worker that has no work, and never will. Takes mu. NULL is fine. */
void instance_thread_stop(struct instance_thread *w);

#endif
