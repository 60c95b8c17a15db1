/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of a dynamic batcher: its requests in the order in which they are to be executed.
 * Priority level 1 comes first. Within a level unexpired requests come before delayed ones, whose
 * time in the queue is over and whose policy lets them stay (DELAY); within these by arrival.
 *
 * Thread: everything under the scheduler's lock. Requests that are to be answered without being
 * executed (expired, cancelled) go to the scheduler's list of refused requests.
 *
 * Source: reference/behaviours §10.6 to §10.8; reference/features §6.3 (QueuePolicy)
 */
#ifndef CONCH_CORE_SCHED_QUEUE_H
#define CONCH_CORE_SCHED_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/tree.h"
#include "proto/model_config.pb-c.h"

struct model;
struct request;
struct pull_scheduler;
struct status;

/* The requests of one priority. */
struct queue_level {
    struct tree_node node;                     /* its key is the priority */
    const Inference__ModelQueuePolicy *policy; /* in the model's configuration; NULL: no limits */
    struct list unexpired, delayed;            /* requests by arrival */
    size_t n;                                  /* of both */
};

struct queue {
    /* Constant. */
    const struct model *model;
    const Inference__ModelDynamicBatching *config;
    Inference__ModelDynamicBatching__PriorityQueuePolicyEntry **policies; /* by their levels */

    size_t n;           /* waiting requests */
    struct tree levels; /* by priority; those in use, and a few unused ones */
    struct heap limits; /* requests whose time in the queue is limited, the next first */
};

void queue_init(struct queue *q, const struct model *m,
                const Inference__ModelDynamicBatching *config);
/* queue_done - frees the queue, which is empty. */
void queue_done(struct queue *q);

/*
 * queue_push - adds a request, which came at r->admitted.queue_ns.
 *
 * @ret_last  no request of the queue is to be executed after it
 * Errors:    STATUS_UNAVAILABLE  Exceeds maximum queue size
 */
NODISCARD struct status *queue_push(struct queue *q, struct request *r, bool *ret_last);

/* queue_remove - removes a request from its place in the queue. */
void queue_remove(struct queue *q, struct request *r);

/* queue_first, queue_next - in order; NULL after the last. */
struct request *queue_first(const struct queue *q);
struct request *queue_next(const struct queue *q, const struct request *r);

/* queue_oldest_ns - when the request that has waited longest came; UINT64_MAX: the queue is empty.
 */
uint64_t queue_oldest_ns(const struct queue *q);

/*
 * queue_expire - applies the policies to requests whose time in the queue is over: they become
 * delayed, or the scheduler refuses them.
 *
 * Returns whether anything has changed
 */
bool queue_expire(struct queue *q, uint64_t now_ns, struct pull_scheduler *s);

/* queue_next_limit_ns - when the next request expires; UINT64_MAX: never. */
uint64_t queue_next_limit_ns(const struct queue *q);

/* queue_limits_time - may a request's time in the queue be limited at all? */
bool queue_limits_time(const struct queue *q);

#endif
