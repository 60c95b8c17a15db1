/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named threads. All our threads block every signal; the main thread waits for them.
 */
#ifndef CONCH_BASE_THREAD_H
#define CONCH_BASE_THREAD_H

#include <pthread.h>

#include "base/compiler.h"

struct thread {
    pthread_t id;
    void (*run)(void *arg);
    void *arg;
    char name[16]; /* what top -H and gdb show; longer ones are cut */
};

/*
 * thread_start - runs run(arg) on a new thread.
 *
 * @t     stays where it is until thread_join()
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *thread_start(struct thread *t, const char *name, void (*run)(void *),
                                      void *arg);
void thread_join(struct thread *t);

/* thread_cpu_count - CPUs that this process may run on (affinity, cgroup quota); at least 1. */
int thread_cpu_count(void);

#endif
