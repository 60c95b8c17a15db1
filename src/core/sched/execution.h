/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file decides where a model executes: inline on the thread that has the request, or on the
 * instance's worker thread. A hand-off between cores costs about 40 µs of wall time and 10 µs of
 * CPU, so a model that takes less is better executed inline. A model that takes longer must not
 * hold up an event loop with all its connections.
 *
 * Short executions so far promise nothing about the next one. A loop in the model, another shape,
 * or a page fault that reads from a disk would block the event loop, and no other thread can end
 * that. So a model may run inline only if its backend has declared that the size of the inputs
 * bounds each execution (conch_model_declare_bounded(), include/conch/backend.h).
 *
 * The model parameter CONCH_EXECUTION is `inline` (at the operator's own risk), `thread` (each
 * instance has a thread for life, on which it is initialised, too; core/backend/home.h) or `auto`
 * (the default). With `auto` a bounded model first proves itself on its worker. It then runs inline
 * while nearly all of its executions are shorter than a hand-off, and the loop's iteration has time
 * left. After a single long execution it must prove itself again; the longer the execution was, the
 * longer that takes. A watchdog (threads/watchdog.h) ends inline execution while a long one still
 * lasts.
 *
 * The time that moving the request's bytes takes is not counted: the loop has just read them from a
 * socket, which took as long, so that a copy of a tensor is not worth a hand-off. An execution on a
 * worker wakes the loop for its answer, an inline one does not: so an execution on a worker may
 * take that much longer.
 *
 * Large requests are never executed inline on a loop or an embedder's thread, so that a client
 * cannot gain time by a long input; their executions do not count as a proof. A worker, which goes
 * on with the next step of an ensemble, holds up no connection. It executes a large request when
 * the model has proven to be short with requests of that size, in the same way, but for a time that
 * is counted whole: of a model that reads a large input the next thread may as well read it.
 */
#ifndef CONCH_CORE_SCHED_EXECUTION_H
#define CONCH_CORE_SCHED_EXECUTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/loop.h"
#include "core/backend/instance.h"
#include "core/request/request.h"

struct clock;
struct status;

enum execution_mode { EXECUTION_AUTO, EXECUTION_INLINE, EXECUTION_THREAD };

/* What is known of a model's executions. Any thread, relaxed: estimates; a stale value costs one
 * worse decision. */
struct execution_proof {
    atomic_uint_least64_t high_ns; /* nearly all (16 of 17) of the recent ones are shorter */
    atomic_uint to_prove;          /* short ones still wanted before the model may run inline */
};

struct execution {
    /* Constant. */
    enum execution_mode mode;
    bool bounded; /* its backend has declared so */
    struct clock *clock;
    atomic_bool is_bound;                /* set and cleared under scheduler.mu: execution_bind() */
    struct execution_proof usual, large; /* of requests that are not large, and that are */
    /* Any thread, relaxed, as above. */
    atomic_uint_least64_t large_bytes; /* the largest request that has been short */
    atomic_uint lapses;                /* how often it was sent back to the worker recently */
    atomic_uint_least64_t lapse_ns;    /* when it was sent back last */
};

/*
 * The time that a loop may spend inline in one iteration, about that of a hundred small requests;
 * which executions are short and long; from how many bytes of inputs on a request is large.
 */
#define EXECUTION_BUDGET_NS   500000ULL
#define EXECUTION_SHORT_NS    SHORT_CALL_NS
#define EXECUTION_LONG_NS     1000000ULL
#define EXECUTION_LARGE_BYTES (1ULL << 20)

/* inline_budget_fill - sets left_ns anew if the loop has begun another iteration. */
static inline void inline_budget_fill(struct inline_budget *budget)
{
    if (budget->iteration == budget->loop->iteration)
        return;
    budget->iteration = budget->loop->iteration;
    budget->left_ns = EXECUTION_BUDGET_NS;
}

/*
 * execution_init - sets the mode from the model's parameter; NULL means auto.
 *
 * @clock    which lapses are forgotten by; borrowed for the life of e
 * @bounded  the backend's declaration
 * Errors: STATUS_INVALID_ARG  the parameter has another value
 */
NODISCARD struct status *execution_init(struct execution *e, struct clock *clock,
                                        const char *parameter, bool bounded);

/*
 * execution_never_inline - executions need a thread of their own; `auto` means `thread` then.
 *
 * @why, @name  for the error: "a host policy binds instance", "m_0"
 * Errors: STATUS_INVALID_ARG  the parameter says `inline`
 */
NODISCARD struct status *execution_never_inline(struct execution *e, const char *why,
                                                const char *name);

/*
 * execution_bind - a host policy binds one of the instances, or none does any more. While one does,
 * all execute on threads of their own, but those that a thread runs inline at this moment.
 *
 * Thread: one that holds scheduler.mu, or makes the scheduler. The mode is not `inline`.
 */
void execution_bind(struct execution *e, bool is_bound);

/* execution_is_ever_inline - may the model ever run inline, bound or not, so that a watchdog is
 * needed? */
bool execution_is_ever_inline(const struct execution *e);

/* execution_may_inline - may this thread run the model now? @budget NULL: never. */
bool execution_may_inline(const struct execution *e, const struct inline_budget *budget);

/* execution_may_inline_large - may this thread, a worker, run the model now with a request that is
 * large, of that many bytes of inputs? @budget  its own */
bool execution_may_inline_large(const struct execution *e, const struct inline_budget *budget,
                                uint64_t bytes);

/* execution_is_short - has the model proven to be short, or does its operator say so? @bytes  of
 * the inputs of the largest request */
bool execution_is_short(const struct execution *e, uint64_t bytes);

/* execution_is_in_doubt - does the model have to prove itself with requests of that size, so that
 * its executions on workers must be measured? */
bool execution_is_in_doubt(const struct execution *e, uint64_t bytes);

/*
 * execution_measured - counts an execution that took took_ns, of requests with that many bytes of
 * inputs.
 * @inlined  it was inline, not on a worker
 */
void execution_measured(struct execution *e, uint64_t took_ns, uint64_t bytes, bool inlined);

/* execution_measured_large - counts an execution of a large request by a worker that has gone on to
 * this model (execution_may_inline_large()). */
void execution_measured_large(struct execution *e, uint64_t took_ns, uint64_t bytes);

/*
 * execution_overdue - an inline execution has taken took_ns and still lasts: from now on the model
 * does not execute inline.
 *
 * Returns false when the operator said `inline`, which the function does not change.
 */
bool execution_overdue(struct execution *e, uint64_t took_ns);

#endif
