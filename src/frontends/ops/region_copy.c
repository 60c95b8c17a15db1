/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job lies in the request's arena. While a helper works, nobody else touches the job, or the list
 * of tensors. run_copy() alone runs on the helper; the loop's mailbox makes what it has written
 * visible to finish_copy().
 */
#include "frontends/ops/region_copy.h"

#include "base/loop.h"
#include "base/status.h"
#include "core/request/request.h"
#include "core/server/server.h"
#include "frontends/ops/control_call.h"
#include "frontends/ops/tensor_regions.h"

struct region_copy {
    struct control_call call;
    struct tensor_regions *regions;
    region_copied_fn on_copied;
    struct status *error;
};

static void run_copy(struct control_call *call)
{
    struct region_copy *k = CONTAINER_OF(call, struct region_copy, call);
    k->error = tensor_regions_copy(k->regions);
}

static void finish_copy(struct control_call *call)
{
    struct region_copy *k = CONTAINER_OF(call, struct region_copy, call);
    k->on_copied(k->regions, k->error); /* may free k */
}

bool region_copy_begin(struct tensor_regions *t, struct request *r, struct server *server,
                       struct loop *loop, region_copied_fn on_copied, struct status **ret_st)
{
    *ret_st = NULL;
    if (LIKELY(t->copy_bytes == 0))
        return true;
    bool is_short = t->copy_bytes <= REGION_COPY_HERE_BYTES && !t->waits_for_gpu;
    struct control *helpers = is_short ? NULL : server_helpers(server);
    if (!helpers) {
        *ret_st = tensor_regions_copy(t);
        return true;
    }
    struct region_copy *k = arena_alloc(&r->arena, sizeof(*k));
    if (!k) {
        *ret_st = status_no_memory();
        return true;
    }
    *k = (struct region_copy){.regions = t, .on_copied = on_copied};
    k->call.work = run_copy;
    k->call.on_done = finish_copy;
    control_call_begin(&k->call, helpers, loop, NULL, false);
    return false;
}
