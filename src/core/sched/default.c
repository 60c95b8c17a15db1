/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default scheduler: first in, first out, each request executed alone, no delay, no limit.
 */
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "core/sched/pull.h"

static struct status *push_to_waiting(struct pull_scheduler *s, struct request *r)
{
    list_push(&s->waiting, &r->queue.link);
    return NULL;
}

static uint32_t take_first_waiting(struct pull_scheduler *s, struct instance *in,
                                   struct request **batch, uint32_t max)
{
    (void)in;
    (void)max; /* several queued requests are not batched */
    struct list *link = list_pop(&s->waiting);
    if (!link)
        return 0;
    batch[0] = LIST_ENTRY(link, struct request, queue.link);
    return 1;
}

static bool has_waiting(struct pull_scheduler *s, const struct instance *in)
{
    (void)in;
    return !list_empty(&s->waiting);
}

static bool remove_from_waiting(struct pull_scheduler *s, struct request *r)
{
    (void)s;
    list_remove(&r->queue.link);
    return true;
}

static uint64_t find_first_waiting(const struct pull_scheduler *s)
{
    if (list_empty(&s->waiting))
        return UINT64_MAX;
    return LIST_ENTRY(s->waiting.next, struct request, queue.link)->admitted.queue_ns;
}

static void free_default_scheduler(struct pull_scheduler *s)
{
    pull_done(s);
    mem_free(s);
}

static const struct pull_ops ops = {
    .for_requests = &pull_request_ops,
    .lends = true,
    .leaves = true,
    .push_locked = push_to_waiting,
    .take_locked = take_first_waiting,
    .has_work_locked = has_waiting,
    .remove_locked = remove_from_waiting,
    .find_oldest_locked = find_first_waiting,
    .free = free_default_scheduler,
};

struct status *default_scheduler_new(struct model *m, struct scheduler **ret_scheduler)
{
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    struct pull_scheduler *s = mem_zalloc(sizeof(*s));
    struct status *st = pull_init(s, &ops, m);
    if (st) {
        mem_free(s);
        return st;
    }
    *ret_scheduler = &s->base;
    return NULL;
}
