/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control threads do what takes long: loading a model, taking one down, reading the
 * repositories' folders. Threads that must not block, such as event loops, post jobs to them.
 *
 *     job->key = "digits", job->is_load = true, job->run = run;
 *     control_post(c, job);        a control thread calls run(job), which owns the job again
 *
 * Jobs are embedded in the objects that they are about, as messages are: posting allocates nothing
 * and cannot fail. One thread always exists; others are started when there are more jobs, and end
 * when there are none, but for those that control_keep() keeps.
 */
#ifndef CONCH_CORE_THREADS_CONTROL_H
#define CONCH_CORE_THREADS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "core/threads/load_slot.h"

/* The jobs of one key: the one that runs or is ready, and those that wait behind it. */
struct control_line {
    struct list link; /* in the bucket of its key */
    const char *key;
    uint64_t hash;
    struct list behind; /* jobs, as they came */
};

struct control_job {
    struct list link;
    const char *key; /* jobs of the same key run one after another, as posted; NULL: no key */
    bool is_load;    /* at most max_loads such jobs run at a time */
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

    struct mutex mu;     /* level 870 in core/README.md; a leaf */
    struct cond work;    /* threads wait for a job, of which each wakes one of them */
    struct cond changed; /* control_stop() waits for the ends of threads */
    /* Under mu. */
    struct list ready[2];                 /* jobs that wait for nothing but a thread; [1]: loads */
    struct list buckets[CONTROL_BUCKETS]; /* lines, by the hash of their key */
    size_t n_waiting;                     /* jobs that are ready or behind another */
    size_t n_ready[2];                    /* of them, those in `ready` */
    size_t n_compared;                    /* keys, for all jobs together: for tests */
    size_t n_woken;                       /* how often a thread woke to look for a job: for tests */
    unsigned int n_busy[2];               /* threads with a job; [1]: with one that loads */
    unsigned int n_lent;                  /* loads at work that only wait for a warm-up */
    unsigned int n_long;                  /* threads whose jobs are CONTROL_LONG */
    unsigned int n_starting;              /* threads that have not looked for a job yet */
    unsigned int n_kept;                  /* threads that stay once they have started */
    unsigned int n_idle;                  /* … of which so many wait for a job */
    bool stopping;
    struct list threads;    /* of struct control_thread, by number */
    unsigned int n_threads; /* in that list */
};

/* A thread, or the place of one that has ended. */
struct control_thread {
    struct list link;
    struct control *control;
    unsigned int number; /* from 0 */
    struct thread thread;
    enum { CONTROL_NO_THREAD, CONTROL_THREAD, CONTROL_THREAD_ENDED } stage;
    bool is_starting;         /* a poster is about to start it, without the lock */
    struct control_line line; /* of the job that it runs; the key is its own copy */
    struct load_slot slot;    /* … if that loads */
    /* A job that does not load: control_look() has not seen it, has seen it, has seen it for long.
     */
    enum { CONTROL_NO_JOB, CONTROL_NEW, CONTROL_SEEN, CONTROL_LONG } job;
    uint64_t seen_ns; /* when it was seen first */
};

/*
 * control_start - starts the first thread.
 *
 * @max_loads   how many jobs that load may run at the same time; other jobs do not wait for them
 * @max_others  how many other jobs may run at the same time
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *control_start(struct control *c, unsigned int max_loads,
                                       unsigned int max_others);

/*
 * control_keep - has the first n_threads threads stay once they have started, instead of one: for
 * short jobs, of which several come at a time again and again. A new thread costs system calls and
 * allocations. With fewer than before, threads that are idle end. Thread: any.
 */
void control_keep(struct control *c, unsigned int n_threads);

/*
 * control_look - sees which jobs run that do not load. One that has run for patience_ns since it
 * was seen first counts no more among max_others, so that another one may run: it may go on for
 * ever. Thread: any that posts.
 */
void control_look(struct control *c, uint64_t now_ns, uint64_t patience_ns);

/* control_stop - waits until all jobs are done, and joins the threads. No thread may post jobs any
 * more. Only after control_start(). */
void control_stop(struct control *c);

/*
 * control_post - queues the job; a control thread runs it when its turn comes. While the system
 * has no room for another thread, that is after the jobs of those that exist.
 *
 * Thread: any. Takes c->mu, for a time that does not depend on how many jobs wait; may start a
 * thread.
 * @job  borrowed until its run() is called
 */
void control_post(struct control *c, struct control_job *job);

/*
 * control_post_or_run - the same, for jobs that must not wait for those of others, which may go on
 * for ever. When the system has no room for another thread and none is idle, the caller runs the
 * job before this function returns. While max_others jobs run, the job waits for one of them.
 *
 * Thread: any; without locks under which the job may not run
 * @job  has no key, and does not load
 */
void control_post_or_run(struct control *c, struct control_job *job);

#endif
