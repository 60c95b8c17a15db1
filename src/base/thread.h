/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named threads. They block no signal of their own accord: backends run on them, and a child that a
 * backend starts has the mask of the thread that starts it. So signals may come to any of them, and
 * whoever handles one does so in a way that suits any thread; a handler that wants a stack of its
 * own (SA_ONSTACK), for the thread's may be full, has one.
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
    char name[16]; /* what top -H and gdb show; longer ones are cut */
};

/*
 * thread_keep_mask - the calling thread's signal mask is that of all threads started from now on,
 * whoever starts them. Without it a thread has the mask of the one that starts it.
 *
 * Thread: any, before the threads that it is meant for.
 */
void thread_keep_mask(void);

/*
 * thread_start - runs run(arg) on a new thread.
 *
 * @t     stays where it is until thread_join()
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *thread_start(struct thread *t, const char *name, void (*run)(void *),
                                      void *arg);
void thread_join(struct thread *t);

/*
 * thread_call - runs run(arg) on a thread of its own and waits for its end: nothing that run()
 * leaves with its thread is there afterwards.
 *
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread; run() was not called
 */
NODISCARD struct status *thread_call(const char *name, void (*run)(void *arg), void *arg);

/*
 * thread_waited_ns - how long the calling thread has been ready to run, yet without a CPU, since it
 * began; 0 where the system does not say.
 */
uint64_t thread_waited_ns(void);

/* thread_preemptions - how often the calling thread has lost its CPU without wanting to. */
long thread_preemptions(void);

#endif
