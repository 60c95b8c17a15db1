/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of an event loop for all protocols of its connections. It has one inline budget, the
 * models that wait for the end of the iteration, to execute the requests of all connections as one
 * batch, and what packs messages and bodies.
 *
 * Thread: the loop's; made before the loop runs and freed after it.
 */
#ifndef CONCH_FRONTENDS_OPS_LOOP_SHARE_H
#define CONCH_FRONTENDS_OPS_LOOP_SHARE_H

#include <stdint.h>

#include "base/loop.h"
#include "core/request/request.h"
#include "core/sched/execution.h"

struct packing;
struct server;

struct loop_share {
    struct loop *loop;       /* constant */
    struct packing *packing; /* constant */
    struct inline_budget inline_budget;
    struct loop_work iteration_work; /* pull_run_deferred(); deferred while models need it */
};

/* loop_share_new - the caller ends it with loop_share_free(). */
struct loop_share *loop_share_new(struct server *server, struct loop *loop);
void loop_share_free(struct loop_share *l);
/* loop_share_stop - the loop does not run any more. Before loop_done(), and loop_share_free(). */
void loop_share_stop(struct loop_share *l);

/* loop_share_budget - the inline budget of this iteration, for request.maker.inline_budget. */
static inline struct inline_budget *loop_share_budget(struct loop_share *l)
{
    inline_budget_fill(&l->inline_budget);
    return &l->inline_budget;
}

#endif
