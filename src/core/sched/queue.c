/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sched/queue.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model.h"
#include "core/request_priv.h"
#include "core/sched/scheduler.h"

/*
 * Clients choose the priorities, out of as many as the configuration allows. So levels are made
 * when they are needed, and those without requests go when there are more than this.
 */
enum { KEPT_LEVELS = 64 };

static bool limit_before(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF((uintptr_t)a, struct request, limit)->limit_ns <
           CONTAINER_OF((uintptr_t)b, struct request, limit)->limit_ns;
}

void queue_init(struct queue *q, const struct model *m,
                const Inference__ModelDynamicBatching *config)
{
    *q = (struct queue){.model = m, .config = config};
    heap_init(&q->limits, limit_before);
}

void queue_done(struct queue *q)
{
    for (size_t i = 0; i < q->n_levels; i++)
        mem_free(q->levels[i]);
    mem_free(q->levels);
}

/* ------------------------------------------------------------------------------------ levels */

/* The policy of a level: its own, or the default one. */
static const Inference__ModelQueuePolicy *policy_of(const struct queue *q, uint64_t priority)
{
    const Inference__ModelDynamicBatching *c = q->config;
    for (size_t i = 0; i < c->n_priority_queue_policy; i++) {
        if (c->priority_queue_policy[i]->key == priority)
            return c->priority_queue_policy[i]->value;
    }
    return c->default_queue_policy;
}

/* Requests that name no level, or one that there is not, are of the default one. */
static uint64_t priority_of(const struct queue *q, const struct request *r)
{
    const Inference__ModelDynamicBatching *c = q->config;
    if (r->priority == 0 || r->priority > c->priority_levels)
        return c->default_priority_level;
    return r->priority;
}

/* Where the level is, or would be inserted. */
static size_t level_index(const struct queue *q, uint64_t priority)
{
    size_t from = 0, to = q->n_levels;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (q->levels[middle]->priority < priority)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static void forget_empty_levels(struct queue *q)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n_levels; i++) {
        if (q->levels[i]->n)
            q->levels[n++] = q->levels[i];
        else
            mem_free(q->levels[i]);
    }
    q->n_levels = n;
}

static struct queue_level *make_level(struct queue *q, uint64_t priority)
{
    MEM_CHARGE(q->model->owner, MEM_INSTANCES);
    if (q->n_levels >= KEPT_LEVELS)
        forget_empty_levels(q);
    if (q->n_levels == q->level_capacity) {
        q->level_capacity = MAX(2 * q->level_capacity, (size_t)1);
        q->levels = mem_realloc(q->levels, q->level_capacity * sizeof(struct queue_level *));
    }
    size_t at = level_index(q, priority);
    memmove(&q->levels[at + 1], &q->levels[at], (q->n_levels++ - at) * sizeof(*q->levels));
    struct queue_level *l = q->levels[at] = mem_zalloc(sizeof(*l));
    l->priority = priority;
    l->policy = policy_of(q, priority);
    list_init(&l->in_time);
    list_init(&l->delayed);
    return l;
}

static struct queue_level *level_of(struct queue *q, uint64_t priority)
{
    size_t i = level_index(q, priority);
    if (LIKELY(i < q->n_levels && q->levels[i]->priority == priority))
        return q->levels[i];
    return make_level(q, priority);
}

static bool level_is_last(const struct queue *q, const struct queue_level *l)
{
    for (size_t i = q->n_levels; i-- > 0 && q->levels[i] != l;) {
        if (q->levels[i]->n)
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------ requests */

/* How long the request may wait, in microseconds; 0 = for ever. It can only shorten the default. */
static uint64_t limit_us(const Inference__ModelQueuePolicy *p, const struct request *r)
{
    uint64_t us = p->default_timeout_microseconds;
    if (p->allow_timeout_override && r->timeout_us && r->timeout_us < us)
        us = r->timeout_us;
    return us;
}

static void set_limit(struct queue *q, struct request *r, const Inference__ModelQueuePolicy *p)
{
    uint64_t us = p ? limit_us(p, r) : 0, ns;
    r->limit_ns = UINT64_MAX;
    if (us == 0)
        return;
    if (!__builtin_mul_overflow(us, NS_PER_US, &ns) &&
        !__builtin_add_overflow(r->queue_ns, ns, &ns) && ns < UINT64_MAX) {
        r->limit_ns = ns;
        heap_push(&q->limits, &r->limit);
    }
}

static void clear_limit(struct queue *q, struct request *r)
{
    if (r->limit_ns == UINT64_MAX)
        return;
    heap_remove(&q->limits, &r->limit);
    r->limit_ns = UINT64_MAX;
}

struct status *queue_push(struct queue *q, struct request *r, bool *ret_last)
{
    struct queue_level *l = level_of(q, priority_of(q, r));
    uint32_t max = l->policy ? l->policy->max_queue_size : 0;
    if (UNLIKELY(max && l->n >= max))
        return status_new(STATUS_UNAVAILABLE, "[request id: %s] Exceeds maximum queue size",
                          request_log_name(r));
    list_push(&l->in_time, &r->link);
    r->level = l;
    l->n++;
    q->n++;
    set_limit(q, r, l->policy);
    *ret_last = list_empty(&l->delayed) && level_is_last(q, l);
    return NULL;
}

void queue_remove(struct queue *q, struct request *r)
{
    DEBUG_BUG_ON(list_empty(&r->link) || r->level->n == 0);
    clear_limit(q, r);
    list_remove(&r->link);
    r->level->n--;
    q->n--;
}

static struct request *first_of(const struct list *l)
{
    return list_empty(l) ? NULL : LIST_ENTRY(l->next, struct request, link);
}

static struct request *first_of_levels(const struct queue *q, size_t from)
{
    for (size_t i = from; i < q->n_levels; i++) {
        const struct queue_level *l = q->levels[i];
        if (l->n)
            return list_empty(&l->in_time) ? first_of(&l->delayed) : first_of(&l->in_time);
    }
    return NULL;
}

struct request *queue_first(const struct queue *q)
{
    return first_of_levels(q, 0);
}

struct request *queue_next(const struct queue *q, const struct request *r)
{
    const struct queue_level *l = r->level;
    const struct list *next = r->link.next;
    if (next == &l->in_time)
        next = l->delayed.next;
    if (next == &l->delayed)
        return first_of_levels(q, level_index(q, l->priority) + 1);
    return LIST_ENTRY((uintptr_t)next, struct request, link);
}

bool queue_expire(struct queue *q, uint64_t now_ns, struct scheduler *s)
{
    bool changed = false;
    struct heap_node *top;
    while ((top = heap_top(&q->limits))) {
        struct request *r = CONTAINER_OF(top, struct request, limit);
        if (r->limit_ns > now_ns)
            break;
        changed = true;
        if (r->level->policy->timeout_action ==
            INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY) {
            clear_limit(q, r);
            list_remove(&r->link);
            list_push(&r->level->delayed, &r->link);
        } else {
            queue_remove(q, r);
            scheduler_refuse_locked(s, r, FAILURE_REJECTED,
                                    status_new(STATUS_UNAVAILABLE, "Request timeout expired"));
        }
    }
    return changed;
}

uint64_t queue_next_limit_ns(const struct queue *q)
{
    const struct heap_node *top = heap_top(&q->limits);
    return top ? CONTAINER_OF((uintptr_t)top, struct request, limit)->limit_ns : UINT64_MAX;
}

static bool limits_time(const Inference__ModelQueuePolicy *p)
{
    return p && p->default_timeout_microseconds;
}

bool queue_limits_time(const struct queue *q)
{
    const Inference__ModelDynamicBatching *c = q->config;
    bool any = limits_time(c->default_queue_policy);
    for (size_t i = 0; i < c->n_priority_queue_policy; i++)
        any |= limits_time(c->priority_queue_policy[i]->value);
    return any;
}
