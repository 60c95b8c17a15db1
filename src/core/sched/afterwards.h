/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a response sets going is done after the execution that has sent it, on the same thread.
 *
 * A backend mostly sends a response inside its execution. If the next step of an ensemble began
 * right there, its time would count as that of the model before, an ensemble that names a model
 * twice would find its instance busy, and fifty steps would be fifty frames of the stack. The same
 * holds for the answer to the client, whose callback may take long. So the maker of a step posts
 * what is to be done. The thread does it when it has returned from the
 * execution and, if that was inline, has given the instance back. By then it has an inline budget:
 * that of its loop or its embedder's call, or that of the instance's worker. So the thread that
 * ends a step executes the next short one without a hand-off. A worker with a queue first executes
 * what waits (for 50 µs at most), so that requests which came together also end together.
 *
 * It is done at once, and without a budget,
 * - on a thread that executes nothing, such as a backend's own, or one that answers a request which
 *   was not executed;
 * - inside an execution that may last long: on the worker of a model that has not proven to be
 *   short. Other threads then begin with the next steps of its first response while it goes on.
 *
 * Two things are not posted; their maker submits them at once, without a budget: what responses
 * before the final one set going, since the execution that sends them may wait for it, and the
 * steps of a request of a sequence, since the next request could overtake them as soon as the
 * instance is given back.
 *
 * Nothing is allocated, and no lock is taken: the list belongs to the thread.
 */
#ifndef CONCH_CORE_SCHED_AFTERWARDS_H
#define CONCH_CORE_SCHED_AFTERWARDS_H

#include <stdbool.h>

#include "base/compiler.h"

struct afterwards;
struct inline_budget;

/*
 * Called on the thread that has posted it, without locks. The object may be posted again, or freed.
 * @budget  for the requests that it submits (request.maker.inline_budget), valid during the call;
 *          NULL: none
 */
typedef void afterwards_fn(struct afterwards *a, struct inline_budget *budget);

/* Part of the object that it is about. */
struct afterwards {
    afterwards_fn *run;
    struct afterwards *next; /* while it is posted */
};

/* afterwards_is_soon - does the execution in which this thread is end soon, so that what is posted
 * now waits for that? Thread: any. */
bool afterwards_is_soon(void);

/* afterwards_waits - would what is posted now wait: for that execution, or for what this thread
 * does afterwards already? Thread: any. */
bool afterwards_waits(void);

/* afterwards_post - has a->run() called, once. It is not posted already. Thread: any, without
 * locks. */
void afterwards_post(struct afterwards *a);

/* What this thread has to do: a ring, of which this is the last one. */
extern THREAD_WORD struct afterwards *afterwards_last;

/*
 * afterwards_run - does what is posted, and what is posted meanwhile, in this order. To be called
 * after each execution. A call from inside a run() leaves it to the outer one.
 *
 * Thread: any, without locks. @budget  as above
 */
void afterwards_run_all(struct inline_budget *budget);
static inline void afterwards_run(struct inline_budget *budget)
{
    if (UNLIKELY(afterwards_last != NULL))
        afterwards_run_all(budget);
}

#endif
