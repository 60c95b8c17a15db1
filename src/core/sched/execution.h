/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a model executes: inline on the thread that has the request, or on the instance's worker
 * thread. A hand-off between cores costs about 40 µs of wall time and 10 of CPU, so a model that
 * takes less is better run where the request is; one that takes longer must not hold up a loop
 * with all its connections.
 *
 * Time is counted beyond what moving the request's bytes takes anyway: the loop has just read them
 * from a socket, which took as long, so that a copy of a large tensor is not worth a hand-off.
 *
 * The model parameter CONCH_EXECUTION says `inline`, `thread` (each instance has one for life, on
 * which it is initialised, too; core/backend/home.h) or `auto` (the default). Auto
 * decides by measured time: a model proves itself on its worker first, runs inline while its
 * average stays below the price of a hand-off and the loop's turn has time left, and goes back to
 * the worker, for longer each time, when several executions take much longer. (One alone is more
 * likely a thread that was preempted than a model that is slow.)
 */
#ifndef CONCH_CORE_SCHED_EXECUTION_H
#define CONCH_CORE_SCHED_EXECUTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct turn;
struct status;

enum execution_mode { EXECUTION_AUTO, EXECUTION_INLINE, EXECUTION_THREAD };

struct execution {
    enum execution_mode mode; /* constant */
    /* Any thread, relaxed: estimates; a stale value costs one worse decision. */
    atomic_uint_least64_t mean_ns; /* of the recent executions */
    atomic_uint to_prove;          /* short executions still wanted before it may run inline */
    atomic_uint strikes;           /* long inline executions of late, times STRIKE */
    atomic_uint lapses;            /* how often it was sent back to the worker */
};

/*
 * What a loop may spend inline in one turn, about what a hundred small requests take; and what
 * counts as short and as long.
 */
#define EXECUTION_BUDGET_NS 500000ULL
#define EXECUTION_SHORT_NS  40000ULL
#define EXECUTION_LONG_NS   1000000ULL

/*
 * execution_init - by the model's parameter; NULL means auto.
 *
 * Errors: STATUS_INVALID_ARG  an unknown word
 */
NODISCARD struct status *execution_init(struct execution *e, const char *parameter);

/*
 * execution_never_inline - executions need a thread of their own; `auto` means `thread` then.
 *
 * @why, @who  for the error: "a host policy binds instance", "m_0"
 * Errors: STATUS_INVALID_ARG  the parameter says `inline`
 */
NODISCARD struct status *execution_never_inline(struct execution *e, const char *why,
                                                const char *who);

/* execution_may_inline - may this thread run the model now? @turn NULL: never. */
bool execution_may_inline(const struct execution *e, const struct turn *turn);

/*
 * execution_measured - one execution took took_ns for requests with that many bytes of inputs;
 * `inlined` says where.
 */
void execution_measured(struct execution *e, uint64_t took_ns, uint64_t bytes, bool inlined);

#endif
