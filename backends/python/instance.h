/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance - an instance of a model and its child, which is started anew when it ends.
 *
 *   STARTING ─► READY ─► WAITING ─► STARTING …   the child has ended: a pause, and another one
 *      │          └─────────┴──► CLOSING           the server finalises the instance
 *      └──► FAILED                                 the first child did not initialise
 *
 * Threads: the server opens, executes and closes; the watcher starts children anew.
 */
#ifndef BACKENDS_PYTHON_INSTANCE_H
#define BACKENDS_PYTHON_INSTANCE_H

#include "python/execute.h"
#include "python/model.h"

enum stage { STARTING, READY, WAITING, FAILED, CLOSING };

struct instance {
    /* Set by instance_open(), constant afterwards. */
    TRITONBACKEND_ModelInstance *handle;
    const struct model *model;
    const char *name;
    struct arguments arguments;
    cpu_set_t processors;
    bool has_processors, has_watcher;

    bool leaves; /* where the server finishes executions (conch/backend.h), they leave */

    struct execution execution; /* of the thread that executes, as the next one */
    uint64_t event_of;          /* the child whose event the server watches; 0: none */

    struct timer restart;       /* of the watcher's thread, as the next two */
    unsigned int n_ended_early; /* children that ended soon, one after the other */
    struct job close;

    pthread_mutex_t mu;
    pthread_cond_t changed;
    bool made_mu;
    /* Under mu. */
    enum stage stage;
    struct child *child; /* NULL: none; a reference */
    char *why;           /* why initialize() failed */
    bool was_ready, has_is_ready, child_lives, may_close;
    uint64_t ready_ns;
    uint64_t question, answered; /* of is_ready() */
    bool is_ready, is_overdue;   /* overdue: an answer has not come within its time */
};

/*
 * instance_open - starts a child and waits until it has initialised the model.
 * Errors: INTERNAL  initialize() failed, or the process has ended; UNAVAILABLE  no memory …
 */
TRITONSERVER_Error *instance_open(TRITONBACKEND_ModelInstance *handle,
                                  struct instance **ret_instance);
void instance_close(struct instance *in);

/* instance_ready - NULL: yes. May wait for the model's is_ready(), 5 s at most; the next calls do
 * not wait, and say no, until that answer comes. */
TRITONSERVER_Error *instance_ready(struct instance *in);

/* instance_child - the child that takes requests, with a reference; NULL: none does. */
struct child *instance_child(struct instance *in);

/* instance_set_event - the server watches the event of this child from now on. Thread: as
 * conch_model_instance_set_finish() says. */
TRITONSERVER_Error *instance_set_event(struct instance *in, const struct child *c);

#endif
