/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a model executes: inline on the thread that has the request, or on the instance's worker
 * thread. A hand-off between cores costs about 40 µs of wall time and 10 of CPU, so a model that
 * takes less is better run where the request is; one that takes longer must not hold up a loop
 * with all its connections.
 *
 * A short past promises nothing about the next request: a loop in the model, another shape, a page
 * that is to be read from a disk, and the loop stands still, and nobody can end that from outside.
 * So a model may run inline only if its backend has declared that the size of the inputs bounds
 * each execution (conch_model_declare_bounded(), include/conch/backend.h).
 *
 * The model parameter CONCH_EXECUTION says `inline`, which is the operator's own risk, `thread`
 * (each instance has one for life, on which it is initialised, too; core/backend/home.h) or `auto`
 * (the default). Auto, of a bounded model: it proves itself on its worker first; it runs inline
 * while nearly all of its executions are shorter than a hand-off and the loop's iteration has time
 * left; and it proves itself anew after a single long one, the longer the longer that was. A
 * watchdog (watchdog.h) takes it off while such an execution still lasts.
 *
 * Time is counted beyond what moving the request's bytes takes anyway: the loop has just read them
 * from a socket, which took as long, so that a copy of a tensor is not worth a hand-off. Large
 * requests are never executed inline, so that who chooses the length of the input cannot earn time
 * by it; and they prove nothing. An execution on a worker wakes the loop for its answer, which one
 * inline does not: it may take so much longer.
 */
#ifndef CONCH_CORE_SCHED_EXECUTION_H
#define CONCH_CORE_SCHED_EXECUTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

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
    atomic_uint lapses;             /* how often it was sent back to the worker of late */
    atomic_uint_least64_t lapse_ns; /* when it was, last */
};

/*
 * What a loop may spend inline in one iteration, about what a hundred small requests take; what
 * counts as short and as long; and how many bytes of inputs are too many.
 */
#define EXECUTION_BUDGET_NS   500000ULL
#define EXECUTION_SHORT_NS    40000ULL
#define EXECUTION_LONG_NS     1000000ULL
#define EXECUTION_LARGE_BYTES (1ULL << 20)

/*
 * execution_init - by the model's parameter; NULL means auto.
 *
 * @bounded  the backend's declaration
 * Errors: STATUS_INVALID_ARG  an unknown word
 */
NODISCARD struct status *execution_init(struct execution *e, const char *parameter, bool bounded);

/*
 * execution_never_inline - executions need a thread of their own; `auto` means `thread` then.
 *
 * @why, @who  for the error: "a host policy binds instance", "m_0"
 * Errors: STATUS_INVALID_ARG  the parameter says `inline`
 */
NODISCARD struct status *execution_never_inline(struct execution *e, const char *why,
                                                const char *who);

/* execution_is_ever_inline - is there anything to watch? */
bool execution_is_ever_inline(const struct execution *e);

/* execution_may_inline - may this thread run the model now? @budget NULL: never. */
bool execution_may_inline(const struct execution *e, const struct inline_budget *budget);

/* execution_is_in_doubt - does it have to prove itself, so that executions on workers matter? */
bool execution_is_in_doubt(const struct execution *e);

/*
 * execution_measured - one execution took took_ns for requests with that many bytes of inputs;
 * `inlined` says where.
 */
void execution_measured(struct execution *e, uint64_t took_ns, uint64_t bytes, bool inlined);

/*
 * execution_overdue - an inline execution has taken took_ns, and goes on: from now on no other one
 * is inline.
 *
 * Returns false when that does not depend on time: the operator said `inline`.
 */
bool execution_overdue(struct execution *e, uint64_t took_ns);

#endif
