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
 * socket, which took as long, so that a copy of a tensor is not worth a hand-off. Large requests
 * are never executed inline, so that a client cannot gain time by a long input; their executions do
 * not count as a proof. An execution on a worker wakes the loop for its answer, an inline one does
 * not: so an execution on a worker may take that much longer.
 */
#ifndef CONCH_CORE_SCHED_EXECUTION_H
#define CONCH_CORE_SCHED_EXECUTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/backend/instance.h"

struct clock;
struct inline_budget;
struct status;

enum execution_mode { EXECUTION_AUTO, EXECUTION_INLINE, EXECUTION_THREAD };

struct execution {
    /* Constant. */
    enum execution_mode mode;
    bool bounded; /* its backend has declared so */
    struct clock *clock;
    /* Any thread, relaxed: estimates; a stale value costs one worse decision. */
    atomic_uint_least64_t high_ns;  /* nearly all (16 of 17) of the recent executions are shorter */
    atomic_uint to_prove;           /* short executions still wanted before it may run inline */
    atomic_uint lapses;             /* how often it was sent back to the worker recently */
    atomic_uint_least64_t lapse_ns; /* when it was sent back last */
};

/*
 * The time that a loop may spend inline in one iteration, about that of a hundred small requests;
 * which executions are short and long; from how many bytes of inputs on a request is large.
 */
#define EXECUTION_BUDGET_NS   500000ULL
#define EXECUTION_SHORT_NS    SHORT_CALL_NS
#define EXECUTION_LONG_NS     1000000ULL
#define EXECUTION_LARGE_BYTES (1ULL << 20)

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

/* execution_is_ever_inline - may the model ever run inline, so that a watchdog is needed? */
bool execution_is_ever_inline(const struct execution *e);

/* execution_may_inline - may this thread run the model now? @budget NULL: never. */
bool execution_may_inline(const struct execution *e, const struct inline_budget *budget);

/* execution_is_short - has the model proven to be short, or does its operator say so? */
bool execution_is_short(const struct execution *e);

/* execution_is_in_doubt - does the model have to prove itself, so that its executions on workers
 * must be measured? */
bool execution_is_in_doubt(const struct execution *e);

/*
 * execution_measured - counts an execution that took took_ns, of requests with that many bytes of
 * inputs.
 * @inlined  it was inline, not on a worker
 */
void execution_measured(struct execution *e, uint64_t took_ns, uint64_t bytes, bool inlined);

/*
 * execution_overdue - an inline execution has taken took_ns and still lasts: from now on the model
 * does not execute inline.
 *
 * Returns false when the operator said `inline`, which the function does not change.
 */
bool execution_overdue(struct execution *e, uint64_t took_ns);

#endif
