/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of an ensemble, which has no backend and no instances. It does not execute steps
 * yet: every request is refused.
 */
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/sched/scheduler.h"

struct ensemble_scheduler {
    struct scheduler base;
    struct model *model; /* constant */
};

static struct ensemble_scheduler *to_ensemble(struct scheduler *s)
{
    return CONTAINER_OF(s, struct ensemble_scheduler, base);
}

static struct status *refuse_request(struct scheduler *s, struct request *r)
{
    return status_new(STATUS_UNSUPPORTED,
                      "[request id: %s] model '%s' is an ensemble, whose steps Conch does not "
                      "execute yet",
                      request_log_name(r), to_ensemble(s)->model->name);
}

static void do_nothing(struct scheduler *s)
{
    (void)s;
}

static size_t count_no_sequences(struct scheduler *s)
{
    (void)s;
    return 0;
}

static void free_ensemble_scheduler(struct scheduler *s)
{
    mem_free(to_ensemble(s));
}

static const struct scheduler_ops ops = {
    .submit = refuse_request,
    .flush = do_nothing,
    .n_open = count_no_sequences,
    .close = count_no_sequences,
    .stop = do_nothing,
    .free = free_ensemble_scheduler,
};

static void ignore_cancel(struct request *r)
{
    (void)r; /* no request waits here */
}

static const struct scheduler_request_ops request_ops = {.on_cancelled = ignore_cancel};

struct status *ensemble_scheduler_new(struct model *m, struct scheduler **ret_scheduler)
{
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    struct ensemble_scheduler *es = mem_zalloc(sizeof(*es));
    es->base.ops = &ops;
    es->model = m;
    m->scheduler_ops = &request_ops;
    *ret_scheduler = &es->base;
    return NULL;
}
