/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ragged - batches of requests whose shapes differ: the inputs that a configuration makes of other
 * inputs' shapes (batch_input), and outputs that follow them (batch_output).
 *
 * An input with allow_ragged_batch is gathered as one list of all elements (GATHER_RAGGED). Batch
 * inputs tell the model where one request ends and the next begins. For a source input with the
 * shapes s1, s2, … of its requests (batch dimension included) and e1, e2, … elements they have:
 *
 *     BATCH_ELEMENT_COUNT                        [requests]         e1, e2, …
 *     BATCH_ACCUMULATED_ELEMENT_COUNT            [requests]         e1, e1+e2, …
 *     BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO  [requests + 1]     0, e1, e1+e2, …
 *     BATCH_MAX_ELEMENT_COUNT_AS_SHAPE           [the largest e]    zeroes; the shape says it
 *     BATCH_ITEM_SHAPE                           [rows, rank - 1]   each row's shape
 *     BATCH_ITEM_SHAPE_FLATTEN                   [rows*(rank - 1)]  the same as a list
 */
#ifndef BACKENDS_COMMON_RAGGED_H
#define BACKENDS_COMMON_RAGGED_H

#include "common/gather.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ragged_kind {
    RAGGED_ELEMENT_COUNT,
    RAGGED_ACCUMULATED,
    RAGGED_ACCUMULATED_WITH_ZERO,
    RAGGED_MAX_AS_SHAPE,
    RAGGED_ITEM_SHAPE,
    RAGGED_ITEM_SHAPE_FLATTEN,
};

/* One tensor that is made of another's shapes. A batch_input with several targets has one of these
 * for each. */
struct ragged_input {
    const char *name; /* all names are borrowed from the configuration */
    const char *source;
    enum ragged_kind kind;
    TRITONSERVER_DataType type; /* INT32 or FP32 */
};

/* One output that goes to each request in the shape of its input: see scatter_like_input(). */
struct ragged_output {
    const char *name, *source;
};

struct ragged {
    struct ragged_input *inputs;
    size_t n_inputs;
    struct ragged_output *outputs;
    size_t n_outputs;
};

/*
 * ragged_read - what a model's configuration says of batch inputs and outputs.
 * @config  must outlive the result
 * @ret     the caller ends it with ragged_done()
 * Errors: INVALID_ARG  an unknown kind or data type, or not exactly one source
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *ragged_read(const struct doc *config, struct ragged *ret);
void ragged_done(struct ragged *r);

/* ragged_source - the input whose shapes this output follows; NULL: it is cut by rows. */
const char *ragged_source(const struct ragged *r, const char *output);

/* ragged_allowed - has this input allow_ragged_batch? */
bool ragged_allowed(const struct doc *config, const char *input);

/*
 * ragged_gather - make a batch input.
 * @g  as gather() leaves it, in our memory
 * Errors: INVALID_ARG  shapes that do not fit together; a count that INT32 does not hold
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *ragged_gather(struct gathered *g, const struct batch *b,
                                  const struct ragged_input *input);

#ifdef __cplusplus
}
#endif
#endif
