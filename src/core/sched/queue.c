/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of levels by priority, each with two lists: unexpired requests, and delayed ones. A
 * request with a time limit is also in one heap for all levels, until the limit is over or the
 * request leaves. `n`, of the queue and of each level, counts both lists.
 */
#include "core/sched/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "core/sched/pull.h"

/*
 * Clients choose the priorities, from as many as the configuration allows. So levels are made when
 * they are needed, and freed when they are empty, except a few, since most models have few.
 */
enum { KEPT_LEVELS = 16 };

typedef Inference__ModelDynamicBatching__PriorityQueuePolicyEntry policy_entry;

static bool limit_before(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF((uintptr_t)a, struct request, queue.limit)->queue.limit_ns <
           CONTAINER_OF((uintptr_t)b, struct request, queue.limit)->queue.limit_ns;
}

static int compare_policies(const void *a, const void *b)
{
    const policy_entry *x = *(policy_entry *const *)a, *y = *(policy_entry *const *)b;
    return (x->key > y->key) - (x->key < y->key);
}

void queue_init(struct queue *q, const struct model *m,
                const Inference__ModelDynamicBatching *config)
{
    size_t n = config->n_priority_queue_policy;
    *q = (struct queue){.model = m, .config = config};
    tree_init(&q->levels);
    heap_init(&q->limits, limit_before);
    if (n == 0)
        return;
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    q->policies = mem_alloc(n * sizeof(policy_entry *));
    memcpy(q->policies, config->priority_queue_policy, n * sizeof(policy_entry *));
    qsort(q->policies, n, sizeof(policy_entry *), compare_policies);
}

void queue_done(struct queue *q)
{
    struct tree_node *node;
    while ((node = tree_first(&q->levels))) {
        tree_remove(&q->levels, node);
        mem_free(CONTAINER_OF(node, struct queue_level, node));
    }
    mem_free(TAKE(q->policies));
}

/* ---- Levels ---------------------------------------------------------------------------------- */

/* Returns the policy of a level: its own, or the default one. */
static const Inference__ModelQueuePolicy *policy_of(const struct queue *q, uint64_t priority)
{
    policy_entry key = {.key = priority}, *wanted = &key, **found = NULL;
    if (q->policies)
        found = bsearch(&wanted, q->policies, q->config->n_priority_queue_policy,
                        sizeof(policy_entry *), compare_policies);
    return found ? (*found)->value : q->config->default_queue_policy;
}

/* Requests without a level, or with a level that does not exist, belong to the default one. */
static uint64_t priority_of(const struct queue *q, const struct request *r)
{
    const Inference__ModelDynamicBatching *c = q->config;
    if (r->maker.priority == 0 || r->maker.priority > c->priority_levels)
        return c->default_priority_level;
    return r->maker.priority;
}

static struct queue_level *level_at(struct tree_node *node)
{
    return node ? CONTAINER_OF(node, struct queue_level, node) : NULL;
}

static struct queue_level *level_of(struct queue *q, uint64_t priority)
{
    struct tree_node *node = tree_find(&q->levels, priority);
    if (LIKELY(node != NULL))
        return level_at(node);
    MEM_CHARGE(q->model->owner, MEM_INSTANCES);
    struct queue_level *l = mem_zalloc(sizeof(*l));
    l->node.key = priority;
    l->policy = policy_of(q, priority);
    list_init(&l->unexpired);
    list_init(&l->delayed);
    tree_add(&q->levels, &l->node);
    return l;
}

/* The level is empty. Few empty levels are kept, so that walks over the levels are short. */
static void free_level_if_many(struct queue *q, struct queue_level *l)
{
    if (LIKELY(q->levels.count <= KEPT_LEVELS))
        return;
    tree_remove(&q->levels, &l->node);
    mem_free(l);
}

static bool level_is_last(const struct queue *q, const struct queue_level *l)
{
    struct tree_node *node = tree_last(&q->levels);
    for (; node != &l->node; node = tree_before(node)) {
        if (level_at(node)->n)
            return false;
    }
    return true;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Returns how long the request may wait, in microseconds; 0: for ever. It can only shorten the
 * default. */
static uint64_t limit_us(const Inference__ModelQueuePolicy *p, const struct request *r)
{
    uint64_t us = p->default_timeout_microseconds;
    if (p->allow_timeout_override && r->maker.timeout_us && r->maker.timeout_us < us)
        us = r->maker.timeout_us;
    return us;
}

static void set_limit(struct queue *q, struct request *r, const Inference__ModelQueuePolicy *p)
{
    uint64_t us = p ? limit_us(p, r) : 0, ns;
    r->queue.limit_ns = UINT64_MAX;
    if (us == 0)
        return;
    if (!__builtin_mul_overflow(us, NS_PER_US, &ns) &&
        !__builtin_add_overflow(r->admitted.queue_ns, ns, &ns) && ns < UINT64_MAX) {
        r->queue.limit_ns = ns;
        heap_push(&q->limits, &r->queue.limit);
    }
}

static void clear_limit(struct queue *q, struct request *r)
{
    if (r->queue.limit_ns == UINT64_MAX)
        return;
    heap_remove(&q->limits, &r->queue.limit);
    r->queue.limit_ns = UINT64_MAX;
}

struct status *queue_push(struct queue *q, struct request *r, bool *ret_last)
{
    struct queue_level *l = level_of(q, priority_of(q, r));
    uint32_t max = l->policy ? l->policy->max_queue_size : 0;
    if (UNLIKELY(max && l->n >= max)) /* then the level is not empty, and stays */
        return status_new(STATUS_UNAVAILABLE, "[request id: %s] Exceeds maximum queue size",
                          request_log_name(r));
    list_push(&l->unexpired, &r->queue.link);
    r->queue.level = l;
    l->n++;
    q->n++;
    set_limit(q, r, l->policy);
    *ret_last = list_empty(&l->delayed) && level_is_last(q, l);
    return NULL;
}

void queue_remove(struct queue *q, struct request *r)
{
    struct queue_level *l = TAKE(r->queue.level);
    DEBUG_BUG_ON(list_empty(&r->queue.link) || l->n == 0);
    clear_limit(q, r);
    list_remove(&r->queue.link);
    q->n--;
    if (--l->n == 0)
        free_level_if_many(q, l);
}

static struct request *first_of_list(const struct list *l)
{
    return list_empty(l) ? NULL : LIST_ENTRY(l->next, struct request, queue.link);
}

static struct request *first_of_levels(const struct tree_node *node)
{
    for (; node; node = tree_next(node)) {
        const struct queue_level *l = CONTAINER_OF((uintptr_t)node, struct queue_level, node);
        if (l->n)
            return list_empty(&l->unexpired) ? first_of_list(&l->delayed)
                                             : first_of_list(&l->unexpired);
    }
    return NULL;
}

struct request *queue_first(const struct queue *q)
{
    return first_of_levels(tree_first(&q->levels));
}

struct request *queue_next(const struct queue *q, const struct request *r)
{
    const struct queue_level *l = r->queue.level;
    const struct list *next = r->queue.link.next;
    if (next == &l->unexpired)
        next = l->delayed.next;
    if (next == &l->delayed)
        return first_of_levels(tree_next(&l->node));
    return LIST_ENTRY((uintptr_t)next, struct request, queue.link);
}

/* Delayed requests stand in the order in which their time was over. */
static uint64_t oldest_of_level_ns(const struct queue_level *l)
{
    const struct request *first = first_of_list(&l->unexpired);
    uint64_t oldest_ns = first ? first->admitted.queue_ns : UINT64_MAX;
    LIST_FOR_EACH (link, &l->delayed) {
        const struct request *r = LIST_ENTRY((uintptr_t)link, struct request, queue.link);
        oldest_ns = MIN(oldest_ns, r->admitted.queue_ns);
    }
    return oldest_ns;
}

uint64_t queue_oldest_ns(const struct queue *q)
{
    uint64_t oldest_ns = UINT64_MAX;
    for (const struct tree_node *n = tree_first(&q->levels); n; n = tree_next(n)) {
        const struct queue_level *l = CONTAINER_OF((uintptr_t)n, struct queue_level, node);
        oldest_ns = MIN(oldest_ns, oldest_of_level_ns(l));
    }
    return oldest_ns;
}

bool queue_expire(struct queue *q, uint64_t now_ns, struct pull_scheduler *s)
{
    bool changed = false;
    struct heap_node *top;
    while ((top = heap_top(&q->limits))) {
        struct request *r = CONTAINER_OF(top, struct request, queue.limit);
        if (r->queue.limit_ns > now_ns)
            break;
        changed = true;
        if (r->queue.level->policy->timeout_action ==
            INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY) {
            clear_limit(q, r);
            list_remove(&r->queue.link);
            list_push(&r->queue.level->delayed, &r->queue.link);
        } else {
            queue_remove(q, r);
            pull_refuse_locked(s, r, FAILURE_REJECTED,
                               status_new(STATUS_UNAVAILABLE, "Request timeout expired"));
        }
    }
    return changed;
}

uint64_t queue_next_limit_ns(const struct queue *q)
{
    const struct heap_node *top = heap_top(&q->limits);
    return top ? CONTAINER_OF((uintptr_t)top, struct request, queue.limit)->queue.limit_ns
               : UINT64_MAX;
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
