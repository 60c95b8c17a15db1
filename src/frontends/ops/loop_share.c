/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model that forms batches defers its execution by inline_budget.on_wait(). The deferred work
 * then executes the model once all requests of the iteration have arrived, and before their replies
 * are written, if possible.
 *
 * Thread: the loop's.
 */
#include "frontends/ops/loop_share.h"

#include "base/mem.h"
#include "core/backend/leave.h"
#include "core/sched/pull.h"
#include "core/server/server.h"
#include "frontends/ops/packing.h"

static void on_wait(struct inline_budget *budget)
{
    struct loop_share *l = CONTAINER_OF(budget, struct loop_share, inline_budget);
    loop_defer(l->loop, &l->iteration_work);
}

static void on_iteration_end(struct loop_work *work)
{
    pull_run_deferred(&CONTAINER_OF(work, struct loop_share, iteration_work)->inline_budget);
}

struct loop_share *loop_share_new(struct server *server, struct loop *loop)
{
    struct loop_share *l = mem_zalloc(sizeof(*l));
    l->loop = loop;
    l->packing = packing_new(server, loop);
    loop_work_init(&l->iteration_work, on_iteration_end);
    l->inline_budget.on_wait = on_wait;
    l->inline_budget.loop = loop;
    list_init(&l->inline_budget.left);
    server_watch(server, &l->inline_budget);
    return l;
}

void loop_share_stop(struct loop_share *l)
{
    leave_loop_ends(&l->inline_budget);
}

void loop_share_free(struct loop_share *l)
{
    if (!l)
        return;
    pull_run_deferred(&l->inline_budget);
    inline_watch_close(&l->inline_budget.watch);
    packing_free(l->packing);
    mem_free(l);
}
