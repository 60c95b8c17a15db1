/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses wait in a list, of which one helper at a time takes care. The final flag comes last, so
 * it needs no place in the list. When the helper has delivered it, the request and the struct may
 * be gone; before that the frontend keeps both.
 */
#include "frontends/ops/region_delivery.h"

#include "base/mutex.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/response.h"
#include "core/threads/control.h"
#include "frontends/shm/region.h"

enum { REGION_DELIVERY_LEVEL = 165 /* in the table of core/README.md */ };

struct region_delivery {
    /* Constant. */
    const struct tensor_regions *regions;
    region_write_fn write;
    struct request *request;
    struct region_limits *limits; /* of a region that the request uses */
    struct control_job job;

    struct mutex mu;
    /* Under mu. */
    region_deliver_fn deliver;
    struct list waiting; /* responses */
    bool is_working;     /* a helper takes care of them */
    bool has_final;      /* the final flag has come … */
    bool final_is_bare;  /* … without a response */
    uint32_t final_flags;
};

/* What a helper delivers next. */
struct delivered {
    region_deliver_fn deliver;
    struct response *resp;
    uint32_t flags;
    bool is_last;
};

/* False: there is nothing, and the helper's work is over. */
static bool next_delivered(struct region_delivery *d, struct delivered *next)
{
    mutex_lock(&d->mu);
    next->deliver = d->deliver;
    struct list *link = list_pop(&d->waiting);
    next->resp = link ? LIST_ENTRY(link, struct response, link) : NULL;
    next->is_last = d->has_final && list_empty(&d->waiting) && (!link || !d->final_is_bare);
    next->flags = next->is_last ? d->final_flags : 0;
    d->is_working = link || next->is_last;
    bool goes_on = d->is_working;
    mutex_unlock(&d->mu);
    return goes_on;
}

static void copy_delivered(struct region_delivery *d, struct response *resp)
{
    if (resp->error)
        return;
    struct status *st = d->write(d->regions, resp);
    if (st)
        resp->error = st;
}

static void run_delivery(struct control_job *job)
{
    struct region_delivery *d = CONTAINER_OF(job, struct region_delivery, job);
    struct request *r = d->request;
    struct delivered next = {.is_last = false};
    while (!next.is_last && next_delivered(d, &next)) {
        if (next.resp)
            copy_delivered(d, next.resp);
        next.deliver(r, next.resp, next.flags); /* of the last one: d may be gone */
    }
}

struct region_delivery *region_delivery_new(struct request *r, const struct tensor_regions *t,
                                            region_write_fn write, const struct region *some)
{
    struct region_delivery *d = pool_alloc(r->pool, sizeof(*d), r->model->owner);
    if (!d)
        return NULL;
    *d = (struct region_delivery){.regions = t,
                                  .write = write,
                                  .request = r,
                                  .limits = some->limits,
                                  .job = {.run = run_delivery}};
    list_init(&d->waiting);
    mutex_init(&d->mu, REGION_DELIVERY_LEVEL, "region_delivery.mu");
    return d;
}

void region_delivery_free(struct region_delivery *d)
{
    if (!d)
        return;
    mutex_done(&d->mu);
    pool_release(d);
}

bool region_delivery_take(struct region_delivery *d, struct response *resp, uint32_t flags,
                          region_deliver_fn deliver)
{
    bool is_final = flags & RESPONSE_FINAL;
    if (!d)
        return true;
    if (!resp && !is_final)
        return false; /* says nothing */
    mutex_lock(&d->mu);
    d->deliver = deliver;
    if (resp)
        list_push(&d->waiting, &resp->link);
    if (is_final) {
        d->has_final = true;
        d->final_is_bare = !resp;
        d->final_flags = flags;
    }
    bool starts = !d->is_working;
    d->is_working = true;
    mutex_unlock(&d->mu);
    if (starts)
        region_limits_run(d->limits, &d->job);
    return false;
}
