/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Look-up and request point at each other. Both pointers are cleared together, under cache.mu, by
 * whoever claims the request: so a canceller finds a look-up that is there, and a look-up finds a
 * request that is.
 */
#include "core/cache/posted_look_up.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/cache/cache.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/request/life.h"

struct posted_look_up {
    struct control_job look_up, answer;
    atomic_uint refs; /* one of each job that has been posted */

    /* Constant. */
    struct cache *cache;
    struct clock *clock;
    struct cache_key key;
    struct scheduler *scheduler;
    looked_up_fn next;

    struct request *request;   /* under cache.mu; NULL: it has been claimed */
    struct request *cancelled; /* constant once `answer` is posted, which answers it */
};

static void unref_look_up(struct posted_look_up *p)
{
    /* acq_rel: the last one sees that the others have finished with it. */
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        mem_free(p);
}

static struct request *claim_request_locked(struct posted_look_up *p)
{
    mutex_assert_held(&p->cache->mu);
    struct request *r = TAKE(p->request);
    if (r)
        atomic_store(&r->cache.posted, NULL);
    return r;
}

/* Returns NULL when a canceller has claimed it. */
static struct request *claim_request(void *posted)
{
    struct posted_look_up *p = posted;
    mutex_lock(&p->cache->mu);
    struct request *r = claim_request_locked(p);
    mutex_unlock(&p->cache->mu);
    return r;
}

/* Under the lock the request is there, if it has not been claimed. */
static bool is_look_up_wanted(struct posted_look_up *p)
{
    mutex_lock(&p->cache->mu);
    bool is = p->request && !request_is_given_up(p->request);
    mutex_unlock(&p->cache->mu);
    return is;
}

/* On a thread of the cache. */
static void run_look_up(struct control_job *job)
{
    struct posted_look_up *p = CONTAINER_OF(job, struct posted_look_up, look_up);
    struct cache *c = p->cache;
    uint64_t from_ns = clock_now_ns(p->clock);
    struct cache_claim claim = {.fn = claim_request, .arg = p};
    struct response *resp = is_look_up_wanted(p) ? cache_look_up_claiming(c, p->key, &claim) : NULL;
    struct request *r = claim.request ? claim.request : claim_request(p);
    atomic_fetch_sub_explicit(&c->n_posted, 1, memory_order_relaxed);
    if (r)
        p->next(p->scheduler, r, resp, from_ns);
    unref_look_up(p);
}

static void answer_cancelled(struct control_job *job)
{
    struct posted_look_up *p = CONTAINER_OF(job, struct posted_look_up, answer);
    request_fail_queued(p->cancelled, FAILURE_CANCELED, status_given_up(p->cancelled));
    unref_look_up(p);
}

static struct posted_look_up *make_look_up(struct scheduler *s, struct request *r,
                                           looked_up_fn next)
{
    MEM_CHARGE(NULL, 0); /* it may outlive the model */
    struct posted_look_up *p = mem_try_alloc(sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct posted_look_up){.look_up = {.run = run_look_up},
                                 .answer = {.run = answer_cancelled},
                                 .cache = r->model->cached->cache,
                                 .clock = r->model->clock,
                                 .key = r->cache.key,
                                 .scheduler = s,
                                 .next = next,
                                 .request = r};
    atomic_init(&p->refs, 1);
    return p;
}

bool cache_post_look_up(struct scheduler *s, struct request *r, looked_up_fn next)
{
    struct cache *c = r->model->cached->cache;
    unsigned int before = atomic_fetch_add_explicit(&c->n_posted, 1, memory_order_relaxed);
    struct posted_look_up *p = before < CACHE_MAX_POSTED ? make_look_up(s, r, next) : NULL;
    if (!p) {
        atomic_fetch_sub_explicit(&c->n_posted, 1, memory_order_relaxed);
        return false;
    }
    request_ref(r); /* it may end from here on */
    /* seq_cst: request_cancel() stores `cancelled`, and then loads this pointer. One of the two
     * threads sees what the other has stored. */
    atomic_store(&r->cache.posted, p);
    if (UNLIKELY(request_is_cancelled(r)))
        posted_look_up_cancel(r);
    helpers_post(&c->threads, &p->look_up);
    request_unref(r);
    return true;
}

static void cancel_in_cache(struct cache *c, struct request *r, struct control *control)
{
    mutex_lock(&c->mu);
    struct posted_look_up *p = atomic_load_explicit(&r->cache.posted, memory_order_relaxed);
    if (p) {
        p->cancelled = claim_request_locked(p);
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    }
    mutex_unlock(&c->mu);
    if (p)
        control_post(control, &p->answer);
}

void posted_look_up_cancel(struct request *r)
{
    struct model *m = r->model;
    /* The request is in flight as long as its look-up is there, and then the model stays. */
    model_request_begun(m);
    if (atomic_load(&r->cache.posted)) {
        struct control *control = helpers_control(m->services->helpers);
        if (control) /* else the end of the look-up answers */
            cancel_in_cache(m->cached->cache, r, control);
    }
    model_request_ended(m);
}
