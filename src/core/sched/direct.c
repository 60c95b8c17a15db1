/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The direct strategy: a sequence has its position in every batch of its instance, the number of
 * its slot, so that a backend may keep state for each position. A batch goes from the first slot to
 * the last one that has a request. Slots in between without a request, or with one that may not
 * join the batch, are filled with paddings.
 *
 * Source: reference/behaviours §11.8, §11.9
 */
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/request/life.h"
#include "core/model/model.h"
#include "core/sched/sequence.h"
#include "core/sched/can_batch.h"

static uint32_t count_batch_slots(const struct model *m)
{
    return m->n_instances ? m->instances[0]->batch_capacity : 1;
}

/* A request that is given up ends its sequence; after that another one may be ready in its slot. */
static struct sequence *find_first_live(struct instance_slots *slots)
{
    while (!list_empty(&slots->ready)) {
        struct sequence *seq = LIST_ENTRY(slots->ready.next, struct sequence, link);
        if (LIKELY(!request_is_given_up(sequence_front(seq))))
            return seq;
        sequence_drop_given_up(seq);
    }
    return NULL;
}

static uint64_t find_oldest_ns(const struct instance_slots *slots)
{
    uint64_t oldest = UINT64_MAX;
    LIST_FOR_EACH (link, &slots->ready) {
        struct request *r = sequence_front(LIST_ENTRY(link, struct sequence, link));
        oldest = MIN(oldest, r->admitted.queue_ns);
    }
    return oldest;
}

static bool is_slot_batch_due(struct instance_slots *slots, uint64_t now_ns, uint64_t *ret_until_ns)
{
    const struct sequence_scheduler *ss = slots->scheduler;
    if (!find_first_live(slots))
        return false;
    if (ss->delay_ns == 0 || ss->scheduler.flushing ||
        (float)slots->n_ready / (float)ss->n_slots >= ss->min_use)
        return true;
    uint64_t since_ns = find_oldest_ns(slots);
    if (now_ns > since_ns && now_ns - since_ns >= ss->delay_ns)
        return true;
    *ret_until_ns = since_ns + MIN(ss->delay_ns, UINT64_MAX - since_ns);
    return false;
}

/* Finds the slots between which the batch lies. */
static void find_batch_ends(struct instance_slots *slots, struct sequence **ret_first,
                            uint32_t *ret_last)
{
    *ret_first = NULL;
    *ret_last = 0;
    LIST_FOR_EACH_SAFE (link, &slots->ready) {
        struct sequence *seq = LIST_ENTRY(link, struct sequence, link);
        if (request_is_given_up(sequence_front(seq))) {
            sequence_drop_given_up(seq);
            continue;
        }
        if (!*ret_first || seq->slot->number < (*ret_first)->slot->number)
            *ret_first = seq;
        *ret_last = MAX(*ret_last, seq->slot->number);
    }
}

/* Returns the request for that position of the batch. The first one has been prepared before:
 * paddings copy its shapes. */
static struct request *take_request_at(struct instance_slots *slots, uint32_t number,
                                       const struct request *first, struct status **ret_error)
{
    struct sequence *seq = slots->by_number[number]->sequence;
    struct request *r = NULL;
    if (seq && seq->ready && requests_can_batch(first, sequence_front(seq)))
        r = sequence_take(seq);
    if (!r)
        *ret_error = padding_new(&slots->scheduler->paddings, first, &r);
    return r;
}

static uint32_t take_slot_batch(struct instance_slots *slots, struct request **batch, uint32_t max)
{
    struct sequence *seq;
    uint32_t last, n = 0;
    find_batch_ends(slots, &seq, &last);
    if (!seq)
        return 0;
    uint32_t first_number = seq->slot->number;
    struct request *first = sequence_take(seq);
    struct status *error = NULL;
    if (!first)
        return 0;
    while (n <= last && n < max && !error) {
        struct request *r = n == first_number ? first : take_request_at(slots, n, first, &error);
        if (r)
            batch[n++] = r;
    }
    if (UNLIKELY(error != NULL) && n <= first_number) {
        /* Without memory even for the paddings in front of it. */
        while (n > 0)
            padding_drop(batch[--n]);
        sequence_give_up(first, TAKE(error));
        return 0;
    }
    status_free(error); /* the others are in the next batch */
    for (uint32_t i = 0; i < n; i++) {
        if (batch[i]->seq.padding)
            request_begin(batch[i]);
    }
    return n;
}

const struct sequence_strategy sequence_direct = {
    .n_slots = count_batch_slots,
    .due = is_slot_batch_due,
    .take = take_slot_batch,
};
