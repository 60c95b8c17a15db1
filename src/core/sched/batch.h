/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of the dynamic batcher: which waiting requests make the next batch, and when. It is pure
 * arithmetic, without requests, queues or clocks.
 *
 * Requests are offered in order. Each joins the batch, or closes it: requests after the first that
 * does not fit wait for a later batch, so that none is overtaken. Then
 *
 *   - during the delay, the largest preferred size that was reached is sent at once; all requests
 *     that fit are sent when no more can join, or when no preferred size is larger;
 *   - after the delay, or if there is none, all requests that fit are sent;
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
    uint64_t delay_ns; /* how long the oldest request waits for others; 0 = not at all */
    size_t n_preferred;
    const int32_t *preferred; /* sizes, in any order */
    uint32_t max_preferred;   /* the largest of them */
};

/*
 * batch_rule_init - sets the rule from the values of a configuration.
 *
 * @max_batch_size  0 and 1 are the same
 * @preferred       borrowed
 */
void batch_rule_init(struct batch_rule *rule, uint32_t max_batch_size, uint32_t max_requests,
                     size_t n_preferred, const int32_t *preferred, uint64_t delay_us);

/* The next batch, as far as it has come. */
struct batch {
    uint32_t n, size;     /* requests that fit, and the sum of their sizes */
    uint32_t n_preferred; /* the first n_preferred of them make a preferred size; 0: none do */
    uint64_t oldest_ns;   /* when the oldest of them came */
    bool closed;          /* no further request can join */
};

/*
 * batch_has_room - may a request of that size join? If not, the function closes the batch.
 *
 * An empty batch has room for a request of any size.
 */
bool batch_has_room(struct batch *b, const struct batch_rule *rule, uint32_t size);

/* batch_close - closes the batch: the next request cannot join for another reason than its size. */
static inline void batch_close(struct batch *b)
{
    b->closed = true;
}

/* batch_add - adds a request of that size. @since_ns  when it came */
void batch_add(struct batch *b, const struct batch_rule *rule, uint32_t size, uint64_t since_ns);

/*
 * batch_due - how many requests are to be sent now; 0: none.
 *
 * @now_ns        used only if the rule has a delay
 * @flushing      the delay counts as over
 * @ret_until_ns  if the result is 0: when to ask again; UINT64_MAX: when the next request comes
 */
uint32_t batch_due(const struct batch *b, const struct batch_rule *rule, uint64_t now_ns,
                   bool flushing, uint64_t *ret_until_ns);

#endif
