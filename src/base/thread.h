/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named threads. They block no signal of their own accord, since backends run on them, and a child
 * process that a backend starts inherits the mask of its thread. So a signal may arrive on any of
 * these threads, and its handler must work on any thread. Each thread has an alternate stack for
 * handlers with SA_ONSTACK, since its own stack may be full.
 */
#ifndef CONCH_BASE_THREAD_H
#define CONCH_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

#include "base/compiler.h"

struct thread {
    pthread_t id;
    void (*run)(void *arg);
    void *arg;
    char name[16]; /* as top -H and gdb show it; longer names are cut */
};

/*
 * thread_keep_mask - all threads that are started from now on, by any thread, get the calling
 * thread's signal mask. Without this call a thread inherits the mask of the thread that starts it.
 *
 * Thread: any, before it starts the threads in question.
 */
void thread_keep_mask(void);

/*
 * thread_start - runs run(arg) on a new thread.
 *
 * @t     must stay at its address until thread_join()
 * @name  copied
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *thread_start(struct thread *t, const char *name, void (*run)(void *),
                                      void *arg);
void thread_join(struct thread *t);

/*
 * thread_call - runs run(arg) on a new thread and waits until that thread has ended. Thread-local
 * data that run() leaves is freed by then.
 *
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread; run() was not called
 */
NODISCARD struct status *thread_call(const char *name, void (*run)(void *arg), void *arg);

/*
 * thread_waited_ns - how long the calling thread has been runnable without a CPU since it started;
 * 0 where the system does not report it.
 */
uint64_t thread_waited_ns(void);

/* thread_preemptions - how often the calling thread has been preempted. */
long thread_preemptions(void);

#endif
