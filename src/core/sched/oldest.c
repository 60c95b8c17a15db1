/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oldest strategy: the sequences of an instance feed a dynamic batcher (batch.h), each with one
 * request at a time, in the order in which they become ready. Positions in the batch mean nothing.
 *
 * The batch is made of the first ones of `ready`, up to `last`; a sequence that leaves it earlier
 * makes it void.
 *
 * Source: reference/behaviours §11.10
 */
#include "base/clock.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "core/sched/sequence.h"
#include "core/sched/can_batch.h"

enum { MAX_CANDIDATES = 65536 };

/* A configuration may allow billions; beyond this number, idle clients would use memory. */
static uint32_t count_candidate_slots(const struct model *m)
{
    int64_t n = model_config_sequences(m->config)->oldest->max_candidate_sequences;
    return (uint32_t)MIN(MAX(n, (int64_t)1), (int64_t)MAX_CANDIDATES);
}

static void init_candidates(struct instance_slots *slots)
{
    const struct model *m = slots->scheduler->scheduler.model;
    const Inference__ModelSequenceBatching__StrategyOldest *c =
        model_config_sequences(m->config)->oldest;
    batch_rule_init(&slots->rule, m->max_batch_size, INSTANCE_MAX_REQUESTS,
                    c->n_preferred_batch_size, c->preferred_batch_size,
                    c->max_queue_delay_microseconds);
    slots->preserves_order = c->preserve_ordering;
    slots->hold_below = scheduler_hook("TRITONSERVER_DELAY_SCHEDULER");
}

static void discard_batch(struct instance_slots *slots)
{
    struct list *link = slots->ready.next;
    for (uint32_t i = 0; i < slots->batch.n; i++, link = link->next)
        LIST_ENTRY(link, struct sequence, link)->in_batch = false;
    slots->batch = (struct batch){0};
    slots->last = NULL;
}

static void discard_batch_with(struct instance_slots *slots, struct sequence *seq)
{
    if (seq->in_batch)
        discard_batch(slots);
}

/* Returns the next one to be examined; those that are given up end. */
static struct sequence *next_candidate(struct instance_slots *slots)
{
    for (;;) {
        struct list *link = slots->last ? slots->last->link.next : slots->ready.next;
        if (link == &slots->ready)
            return NULL;
        struct sequence *seq = LIST_ENTRY(link, struct sequence, link);
        if (LIKELY(!request_is_given_up(sequence_front(seq))))
            return seq;
        sequence_drop_given_up(seq);
    }
}

static void add_candidates(struct instance_slots *slots)
{
    struct sequence *seq;
    while (!slots->batch.closed && (seq = next_candidate(slots)) &&
           batch_has_room(&slots->batch, &slots->rule, 1)) {
        struct sequence *first = LIST_ENTRY(slots->ready.next, struct sequence, link);
        if (!requests_can_batch(sequence_front(first), sequence_front(seq))) {
            batch_close(&slots->batch);
            return;
        }
        batch_add(&slots->batch, &slots->rule, 1, seq->ready_ns);
        seq->in_batch = true;
        slots->last = seq;
    }
}

static uint32_t count_due_candidates(struct instance_slots *slots, uint64_t now_ns,
                                     uint64_t *ret_until_ns)
{
    add_candidates(slots);
    bool flushing = slots->scheduler->scheduler.flushing;
    return batch_due(&slots->batch, &slots->rule, now_ns, flushing, ret_until_ns);
}

static bool is_candidate_batch_due(struct instance_slots *slots, uint64_t now_ns,
                                   uint64_t *ret_until_ns)
{
    return count_due_candidates(slots, now_ns, ret_until_ns) > 0;
}

static uint32_t take_ready_requests(struct instance_slots *slots, struct request **batch,
                                    uint32_t max)
{
    uint64_t now_ns = slots->rule.delay_ns ? clock_now_ns(slots->scheduler->scheduler.clock) : 0,
             until_ns;
    uint32_t n = MIN(count_due_candidates(slots, now_ns, &until_ns), max), taken = 0;
    discard_batch(slots); /* as a whole: the rest of it is offered again */
    for (; n > 0; n--) {
        struct sequence *seq = LIST_ENTRY(slots->ready.next, struct sequence, link);
        if (UNLIKELY(request_is_given_up(sequence_front(seq)))) {
            sequence_drop_given_up(seq);
            continue;
        }
        struct request *r = sequence_take(seq);
        if (!r)
            continue;
        if (slots->preserves_order && !r->order.in) /* a rescheduled one has its position */
            response_order_add(&slots->order, r);
        batch[taken++] = r;
    }
    return taken;
}

const struct sequence_strategy sequence_oldest = {
    .n_slots = count_candidate_slots,
    .init = init_candidates,
    .due = is_candidate_batch_due,
    .take = take_ready_requests,
    .unready = discard_batch_with,
};
