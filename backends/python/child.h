/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child - one process of an instance, from its start to its end: its process, its channel, and the
 * requests that it has.
 *
 *     starting ── NOTE_HELLO ──► runs ── the process has ended ──► drained ──► ended
 *
 * Its reader reads its notes: the watcher, or (child_read_apart()) a thread of its own, which may
 * wait in a response for a client that reads slowly. When the process has ended, the reader reads
 * what is left, fails the requests that are still with it, and the owner is told.
 *
 * A child lives as long as somebody refers to it: the watcher, an execution, a call of the model.
 *
 * Threads: as each function says.
 */
#ifndef BACKENDS_PYTHON_CHILD_H
#define BACKENDS_PYTHON_CHILD_H

#include "python/channel.h"
#include "python/environment.h"
#include "python/process.h"
#include "python/settings.h"
#include "python/watcher.h"

struct child;
struct calls;
struct families;

/* Who has started or adopted it. Called on the reader's thread. */
struct child_owner {
    /* NOTE_HELLO: the command bell may be rung. */
    void (*greeted)(void *owner, struct child *c);
    /* NOTE_COMPLETED, NOTE_INITIALIZED. False: the message is impossible. */
    bool (*reported)(void *owner, struct child *c, uint32_t kind, struct unpacker *u);
    /* NOTE_READINESS. May be NULL. False as above. */
    bool (*readiness)(void *owner, struct child *c, uint64_t id, struct unpacker *u);
    /* The process has ended, on the watcher's thread. child_cause() says why. */
    void (*ended)(void *owner, struct child *c);
};

/* A request that the child has. */
struct pending {
    uint32_t generation, next_free;
    bool used, executes, is_final, busy, dropped;
    /* executes: the thread that executes it will finish it
     * is_final: the final response has been sent, or somebody is about to send it
     * busy: the reader sends a response of it
     * dropped: the model will never answer it */
    TRITONBACKEND_Request *request;         /* NULL once it is released */
    TRITONBACKEND_ResponseFactory *factory; /* NULL: none is needed yet */
    /* Of the reader alone, for the statistics of responses. */
    TRITONBACKEND_ModelInstanceResponseStatistics *statistics; /* stays; NULL: none yet */
    uint64_t since_ns; /* the begin of the execution, or the end of the last response */
};

struct child {
    _Atomic uint32_t n_refs;
    uint64_t number;    /* of all children: 1, 2, … */
    char *_Atomic name; /* of the instance, or of the model whose configuration it completes */
    char *former_name;  /* before child_adopt(), which other threads may still print; or NULL */
    TRITONBACKEND_ModelInstance *instance; /* NULL: it completes a configuration */
    TRITONSERVER_Server *server;
    const struct child_owner *ops;
    void *owner;
    struct process process;
    struct channel channel;
    struct watch pidfd, socket;
    struct job release;
    struct timer hello;  /* it must have greeted by then */
    struct timer trim;   /* the server's memory for it may be too large by then */
    struct job trim_due; /* sets that timer */
    atomic_bool is_trim_due;
    _Atomic uint64_t large_ns; /* when the last large block was taken */
    bool has_greeted;
    atomic_bool is_apart; /* a thread of its own reads its notes: set by the watcher */
    int kick;             /* an eventfd, of a reader apart; -1 */
    struct calls *calls;
    struct families *families;

    atomic_bool ended;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* Under mu. */
    char *cause; /* why we have killed it; NULL: we have not, or had no memory for it */
    bool is_killed, is_reaped, is_swept;
    struct pending **pendings;
    uint32_t n_pendings, free_pending;
    uint64_t drain_wanted, drained;
    bool made_mu;
};

struct child_start {
    const char *script; /* start.py */
    const char *name;
    TRITONBACKEND_ModelInstance *instance;
    TRITONSERVER_Server *server;
    const struct child_owner *ops;
    void *owner;
    const struct settings *settings;
    const struct environment *environment;
    const char *variable; /* of its environment, "NAME=value"; NULL: none */
    const cpu_set_t *processors;
};

/*
 * child_start - starts a process. Any thread that has a reference of the watcher.
 * @ret_child  one reference
 * Errors: UNAVAILABLE, INTERNAL  it cannot be started
 */
TRITONSERVER_Error *child_start(const struct child_start *start, struct child **ret_child);
struct child *child_ref(struct child *c);
void child_unref(struct child *c);

/*
 * child_adopt - another owner takes a child that has greeted. From the watcher's thread it hears
 * greeted() next, or ended() of one that has ended meanwhile. Any thread; once.
 * @start  its name, instance, ops and owner; the rest is as the child was started
 * Returns false without memory; the owner is the same then.
 */
bool child_adopt(struct child *c, const struct child_start *start);

/* child_read_apart - from now on a thread of its own reads its notes. The reader's thread, which is
 * the watcher's so far. Errors: UNAVAILABLE  no thread; the watcher goes on */
TRITONSERVER_Error *child_read_apart(struct child *c);

/* child_condemn - kills it, since it has done what it must not. Any thread. */
void child_condemn(struct child *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* child_dismiss - kills it, since nothing is left for it to do. Any thread. */
void child_dismiss(struct child *c, const char *cause);

/* child_cause - why it has ended; of a child that has ended. Borrowed. */
const char *child_cause(struct child *c);

/* child_ended_error - "…: its process was killed by signal 9". The code is UNAVAILABLE. */
TRITONSERVER_Error *child_ended_error(struct child *c);

/* child_drain - waits until the reader has read all that the child has sent so far. */
void child_drain(struct child *c);

/*
 * child_register - the child gets requests: fills in the keys by which it names them. Any thread.
 * Returns false without memory, and then none is registered.
 */
bool child_register(struct child *c, TRITONBACKEND_Request **requests, uint32_t n,
                    uint64_t *ret_keys);
/* child_find_locked - a request that the child names; NULL: none. Under mu. */
struct pending *child_find_locked(struct child *c, uint64_t key);
/* child_forget_locked - the request is final and no thread uses it. Under mu. */
void child_forget_locked(struct child *c, struct pending *p);

/* child_fail - the final response of a request by its factory: an error, which is taken. */
void child_fail(struct child *c, TRITONBACKEND_ResponseFactory *factory, TRITONSERVER_Error *err);

#endif
