/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An execution in two parts: the backend's Execute sends the batch away, to another process for
 * example, and leaves; when the answer has come, its finish function answers the requests. In
 * between no thread waits, and the instance is busy: it gets no other batch.
 * (conch_model_instance_leave(), include/conch/backend.h.)
 *
 * Only a loop lets an execution leave. It watches the descriptor by which the backend says that the
 * answer is there, and finishes the execution. So a request to another process costs two switches
 * of threads, to that process and back to the loop. An instance has one such loop, the first that
 * executes on it; another loop that sends a batch away leaves the rest to this one.
 *
 *                        leave_publish()
 *          HERE ─────────────────────────────────► AWAY
 *          │  ▲ ▲                                   │
 *          │  │ └───── the descriptor is ready ─────┘   the loop finishes the execution
 *          │  │
 *          │  └── leave_publish(): this thread finishes the execution
 *          ▼  │
 *          RANG     the descriptor has become ready before leave_publish()
 *
 * The thread that is told to finish is the instance's runner from then on. If the answer was not
 * there, it publishes the execution again.
 */
#ifndef CONCH_CORE_BACKEND_LEAVE_H
#define CONCH_CORE_BACKEND_LEAVE_H

#include <stdbool.h>

struct inline_budget;
struct instance;

/* Who finishes executions: the scheduler of the instance. */
struct leave_ops {
    /* The answer may be there: the caller's thread, a loop, is the instance's runner from now on.
     */
    void (*finish)(struct instance *in, struct inline_budget *budget);
    /* The same, but a thread has to wait for the answer. */
    void (*finish_on_worker)(struct instance *in);
};

/* Where an execution may leave: on the stack of the thread that executes. */
struct leave_scope {
    struct instance *instance;
    struct inline_budget *budget;
    struct leave_scope *outer;
};

/* leave_begin, leave_end - around an execution on the thread of a loop. leave_end() returns whether
 * it has left: then leave_publish() must follow. */
void leave_begin(struct leave_scope *scope, struct instance *in, struct inline_budget *budget);
bool leave_end(struct leave_scope *scope);

/*
 * leave_now - the execution leaves if it may, which it returns. Thread: the instance's runner, in
 * its Execute.
 */
bool leave_now(struct instance *in);

enum leave {
    LEAVE_AWAY,   /* the instance is no more this thread's, and may be gone */
    LEAVE_RANG,   /* its answer may be there: this thread finishes it */
    LEAVE_NO_LOOP /* no loop watches the descriptor: a thread has to wait for the answer */
};

/* leave_publish - whoever sees the descriptor ready finishes the execution from now on. */
enum leave leave_publish(struct instance *in);

/*
 * leave_set_descriptor - the descriptor that is ready when an answer is there. Only a change
 * counts: it is watched edge-triggered, and never read. It may be closed from when another one
 * replaces it. Thread: the one that initialises the instance, or its runner in Execute.
 */
void leave_set_descriptor(struct instance *in, int descriptor);

/* leave_forget - the instance is about to end. No execution is under way. */
void leave_forget(struct instance *in);

/* leave_loop_ends - the loop does not run any more: threads finish what it watches. Thread: the one
 * that ends the loop; no lock is held. */
void leave_loop_ends(struct inline_budget *budget);

#endif
