/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control threads: what takes long and may wait (loading a model, taking one down, reading the
 * repositories' folders) is done here, for those who must not wait, such as event loops.
 *
 *     job->key = "digits", job->is_load = true, job->run = run;
 *     control_post(c, job);        run(job) is called on a control thread; the job is its own again
 *
 * Jobs are embedded in the objects that they are about, as messages are: posting allocates nothing
 * and cannot fail. One thread is always there; others come when there is more to do, and go.
 */
#ifndef CONCH_CORE_CONTROL_H
#define CONCH_CORE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "core/load_slot.h"

/* A job that is at work, or the first one that waits for it, and those of its key behind it. */
struct control_line {
    struct list link; /* in the bucket of its key */
    const char *key;
    uint64_t hash;
    struct list behind; /* jobs, as they came */
};

struct control_job {
    struct list link;
    const char *key; /* jobs of the same key run one after another, as they came; NULL: of none */
    bool is_load;    /* only so many of them run at a time */
    void (*run)(struct control_job *job);
    struct control_line line; /* the control's, while the job waits as the first of its key */
};

enum {
    CONTROL_MAX_LOADS = 64,
    CONTROL_MAX_OTHERS = 64,
    CONTROL_BUCKETS = 1024,
};

struct control {
    /* Set by control_start(), constant afterwards. */
    unsigned int max_loads, max_others;

    struct mutex mu; /* level 870 in core/README.md; a leaf */
    struct cond changed;
    /* Under mu. */
    struct list ready[2];                 /* jobs that wait for nothing but a thread; [1]: loads */
    struct list buckets[CONTROL_BUCKETS]; /* lines, by the hash of their key */
    size_t n_waiting;                     /* jobs that are ready or behind another */
    size_t n_compared;                    /* keys, for all jobs together: for tests */
    unsigned int n_busy[2];               /* threads with a job; [1]: with one that loads */
    unsigned int n_lent;                  /* loads at work that only wait for a warm-up */
    unsigned int n_starting;              /* threads that have not looked for a job yet */
    bool is_idle;                         /* the first thread waits for a job */
    bool stopping;
    struct control_thread {
        struct control *control;
        struct thread thread;
        enum { CONTROL_NO_THREAD, CONTROL_THREAD, CONTROL_THREAD_ENDED } stage;
        bool is_starting;         /* somebody is about to start it, without the lock */
        struct control_line line; /* of the job that it runs; the key is its own copy */
        struct load_slot slot;    /* … if that loads */
    } threads[CONTROL_MAX_LOADS + CONTROL_MAX_OTHERS];
};

/*
 * control_start - the first thread runs.
 *
 * @max_loads   jobs that load, at the same time; others do not wait for them
 * @max_others  jobs that do not, at the same time
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *control_start(struct control *c, unsigned int max_loads,
                                       unsigned int max_others);

/* control_stop - when all jobs are done, nobody posting any more. Only after control_start(). */
void control_stop(struct control *c);

/*
 * control_post - has the job run, by and by.
 *
 * Thread: any. Takes c->mu, for as long whatever waits; may start a thread.
 */
void control_post(struct control *c, struct control_job *job);

#endif
