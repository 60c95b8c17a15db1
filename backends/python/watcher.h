/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watcher - the one thread for all instances of all models: it waits for descriptors, jobs and
 * times.
 *
 * It starts with the first user and ends with the last. It also joins the threads that the backend
 * starts for work that may wait (watcher_run()), so that none is left when the library goes.
 *
 * Threads: as each function says.
 */
#ifndef BACKENDS_PYTHON_WATCHER_H
#define BACKENDS_PYTHON_WATCHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "common/backend.h"

/* A descriptor. Embedded in what it belongs to. */
struct watch {
    _Atomic int fd;                                  /* -1: not watched */
    void (*ready)(struct watch *w, uint32_t events); /* on the watcher's thread */
};

/* Something to be done on the watcher's thread. It may be freed when it runs. */
struct job {
    void (*run)(struct job *j);
    struct job *next;
    bool posted;
};

/* A time. */
struct timer {
    void (*due)(struct timer *t); /* on the watcher's thread */
    uint64_t at_ns;
    struct timer *next;
    bool set;
};

/* watcher_ref, watcher_unref - the thread runs between them; the last unref ends it, unless threads
 * of watcher_run() still run: they may wait for the very thread that is here. Any thread but the
 * watcher's. Errors: UNAVAILABLE  no thread, no descriptors */
TRITONSERVER_Error *watcher_ref(void);
void watcher_unref(void);
/* watcher_close - the library may go after it: ends the thread once all others have ended. Those
 * that still wait after some seconds keep the library in memory. */
void watcher_close(void);

/* watcher_add, watcher_change - watches a descriptor for these events of epoll. Any thread. */
bool watcher_add(struct watch *w, int fd, uint32_t events);
void watcher_change(struct watch *w, uint32_t events);
/* watcher_remove - of the watcher's thread. The memory of the watch must stay until a job that is
 * posted afterwards runs. */
void watcher_remove(struct watch *w);

/* watcher_post - any thread. No effect while it is posted already. */
void watcher_post(struct job *j);

/* watcher_set_timer, watcher_clear_timer - of the watcher's thread. */
void watcher_set_timer(struct timer *t, uint64_t at_ns);
void watcher_clear_timer(struct timer *t);

/* watcher_run - runs a function on a thread of its own. Any thread.
 * Errors: UNAVAILABLE  no thread */
TRITONSERVER_Error *watcher_run(void (*run)(void *arg), void *arg);

#endif
