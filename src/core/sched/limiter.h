/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate limiter of a server (--rate-limit=execution_count): instances share resources, such as a
 * GPU's memory for scratch, that are only numbers with names. An instance has all that its group
 * asks for before it takes a batch, and gives it back after the execution. Without the option there
 * is no limiter, and no instance has a limit.
 *
 * Instances that wait for their resources get them in the order of their turns: a turn counts as
 * many points as the priority of the group (1 is the highest), and the one with the fewest points
 * is next. So with priorities 1 and 2 the first executes twice as often (reference/behaviours
 * §18.2). An instance that has not waited for a while does not make up for it.
 *
 * One that fits may pass one that does not fit yet, LIMITER_MAX_PASSED times. Then nobody is
 * granted a resource that the passed one needs, until it has its turn.
 *
 * Thread: any. limiter.mu is a leaf; it may be taken under scheduler.mu.
 */
#ifndef CONCH_CORE_SCHED_LIMITER_H
#define CONCH_CORE_SCHED_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

struct instance;
struct limiter;
struct resource;
struct server_options;
struct status;

enum { LIMITER_MAX_PASSED = 8 };

/* What one instance needs, and whether it has it. */
struct limit {
    struct limiter *limiter;
    struct instance *instance;
    struct list everyone; /* in limiter.limits */
    struct list link;     /* in limiter.waiting, or in a list of granted ones */
    enum limit_state {
        LIMIT_FREE,
        LIMIT_WAITING,
        LIMIT_HELD
    } state;                          /* under limiter.mu; its runner reads it without */
    bool was_used;                    /* its runner's: it has taken a batch since the turn began */
    unsigned int n_passed;            /* while it waits: by others that fitted */
    uint64_t points, points_per_turn; /* under limiter.mu */
    size_t n_needs;
    struct need {
        struct resource *resource;
        uint64_t count;
    } * needs;
};

/*
 * limiter_new - makes the book of a server, with the resources of its options. NULL when the
 * options want none. The caller ends it with limiter_free(), without limits in it.
 */
struct limiter *limiter_new(const struct server_options *o);
void limiter_free(struct limiter *l);

/*
 * limiter_add_instances - gives each instance that executes, is not passive, its limit. The caller
 * ends them with limiter_remove_instances(), after an error, too. NULL is no limiter.
 *
 * A resource that the options do not have is there as often as the instance asks that asks for
 * most.
 *
 * Thread: control.
 * Errors: STATUS_INVALID_ARG  a resource is global for one instance, and a device's for another;
 *                             the options have less of a resource than an instance needs
 */
NODISCARD struct status *limiter_add_instances(struct limiter *l, struct instance **instances,
                                               uint32_t n);
void limiter_remove_instances(struct limiter *l, struct instance **instances, uint32_t n);

enum turn {
    TURN_NONE, /* it has no resources, and does not wait */
    TURN_WAITS,
    TURN_BEGUN, /* it has its resources */
};

/*
 * limit_begin_turn - begins a turn of an instance that is idle and has work, or has it wait.
 */
enum turn limit_begin_turn(struct limit *l);

/*
 * limit_next_turn - ends the turn of an instance, if it has one, and begins its next one if it
 * wants that. Others that wait get what is free, in their order: they are appended to `granted`,
 * each with a reference to its model that counts as a request in flight. The instance itself waits,
 * if it wants and may, only when it has granted nobody else a turn: otherwise its runner has to
 * come back.
 */
enum turn limit_next_turn(struct limit *l, bool wants, bool may_wait, struct list *granted);

/* limit_withdraw - the instance waits no longer. Returns whether it has waited. */
bool limit_withdraw(struct limit *l);

#endif
