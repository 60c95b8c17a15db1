/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the waiting requests make the next batch, and when: the rule of the dynamic batcher as
 * arithmetic, without requests, queues or clocks.
 *
 * Requests are offered in order. Each joins the batch, or closes it: what comes after the first
 * that does not fit waits for a later batch, so that none is overtaken. Then
 *
 *   - while the delay is not over, the largest preferred size that was reached is sent at once, and
 *     as much as all that fits when nothing more can join or no preferred size is larger;
 *   - when it is over, or there is none, all that fits is sent;
 *   - otherwise the batch waits for more, until its oldest request has waited for the delay.
 *
 * Source: reference/behaviours §10.3 to §10.5
 */
#ifndef CONCH_CORE_SCHED_BATCH_H
#define CONCH_CORE_SCHED_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Constant for a model. Sizes count inferences: a request of batch size 3 counts 3. */
struct batch_rule {
    uint32_t max_size;
    uint32_t max_requests;
    uint64_t delay_ns; /* how long the oldest request may wait for others; 0 = not at all */
    size_t n_preferred;
    const int32_t *preferred; /* sizes, in any order */
    uint32_t max_preferred;   /* the largest of them */
};

/*
 * batch_rule_init - as a configuration has it.
 *
 * @max_batch_size  0 and 1 are the same
 * @preferred       borrowed
 */
void batch_rule_init(struct batch_rule *rule, uint32_t max_batch_size, uint32_t max_requests,
                     size_t n_preferred, const int32_t *preferred, uint64_t delay_us);

/* The next batch, as far as it has come. */
struct batch {
    uint32_t n, size;     /* requests that fit, and what they count */
    uint32_t n_preferred; /* so many of them make a preferred size; 0: none of them do */
    uint64_t oldest_ns;   /* when the oldest of them came */
    bool closed;          /* nothing more can join */
};

/*
 * batch_has_room - may a request of that size join? When not, the batch is closed.
 *
 * A batch without requests has room for any.
 */
bool batch_has_room(struct batch *b, const struct batch_rule *rule, uint32_t size);

/* batch_close - the next request cannot join for another reason. */
static inline void batch_close(struct batch *b)
{
    b->closed = true;
}

/* batch_add - the request joins. @since_ns when it came */
void batch_add(struct batch *b, const struct batch_rule *rule, uint32_t size, uint64_t since_ns);

/*
 * batch_due - how many requests are to be sent now; 0: none.
 *
 * @now_ns        is looked at when the rule has a delay
 * @flushing      the delay counts as over
 * @ret_until_ns  when none: the time by which to ask again; UINT64_MAX: when there is a request
 */
uint32_t batch_due(const struct batch *b, const struct batch_rule *rule, uint64_t now_ns,
                   bool flushing, uint64_t *ret_until_ns);

#endif
