/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classification: an output that a client wants as its best classes instead of its numbers
 * (reference/behaviours §8.4).
 *
 * A codec notes the wishes of a request. When a response comes, its outputs are replaced before
 * they are encoded: each becomes a BYTES tensor, [batch, min(k, n)] or [min(k, n)], of texts
 * "value:index" or "value:index:label", the best first. Codecs then know nothing of it.
 */
#ifndef CONCH_FRONTENDS_OPS_CLASSIFICATION_H
#define CONCH_FRONTENDS_OPS_CLASSIFICATION_H

#include <stdint.h>

#include "base/compiler.h"

struct request;
struct response;
struct status;

/* An output that is wanted as classes. */
struct classified_output {
    const char *name; /* the request's */
    uint32_t n_classes;
};

/* The wishes of a request; all zero: there are none. */
struct classification {
    uint32_t n_outputs, capacity;
    struct classified_output *outputs; /* in the request's arena */
};

/*
 * classification_add - wants the output that the request names at this index as its n_classes best
 * classes, at least 1. More than there are means all.
 *
 * Thread: the request's maker, before it hands the request over. Errors: STATUS_UNAVAILABLE  no
 * memory
 */
NODISCARD struct status *classification_add(struct classification *c, struct request *r,
                                            uint32_t index, uint64_t n_classes);

void classification_replace_outputs(const struct classification *c, struct response *resp);

/*
 * classification_apply - replaces the outputs of a response that the core hands over (NULL is
 * fine). An output that cannot be classified gives the response an error, of the same codes as the
 * reference: STATUS_INVALID_ARG for a datatype without an order, or for more than a million
 * elements in one entry of the batch.
 *
 * Takes time with the elements, and more with the classes that are wanted, so it runs where the
 * response is made. Thread: any, inside request_ops.respond().
 */
static inline void classification_apply(const struct classification *c, struct response *resp)
{
    if (UNLIKELY(c->n_outputs > 0) && resp)
        classification_replace_outputs(c, resp);
}

#endif
