/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch - the requests of one execution, from their arrival to their answers.
 *
 *     batch_begin    makes a response for each request, and reads how many rows it has
 *     …              the backend fills the responses: with gather.h, scatter.h, or by itself
 *     batch_fail     sets an error of one request as its answer
 *     batch_finish   reports statistics, sends the responses, releases the requests
 *
 * frame.h does the first and the last step. Gathering and scattering skip parts that have failed.
 *
 * Threads: one batch is used by one thread at a time.
 */
#ifndef BACKENDS_COMMON_BATCH_H
#define BACKENDS_COMMON_BATCH_H

#include "common/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* No tensor that a server passes on has more dimensions. */
#define BATCH_MAX_RANK 64

/* One request. */
struct batch_part {
    TRITONBACKEND_Request *request;
    TRITONBACKEND_Response *response; /* to be filled */
    TRITONSERVER_Error *err;          /* its answer instead; owned */
    uint64_t rows;                    /* its share of the batch dimension; 1 without one */
};

struct batch {
    TRITONBACKEND_ModelInstance *instance;
    struct batch_part *parts;
    uint32_t n_parts;
    bool has_rows; /* the first dimension of every shape is the batch: max_batch_size > 0 */
    uint64_t rows; /* of the parts that have not failed */

    /* For the statistics; see batch_computes(), batch_computed(). */
    uint64_t exec_start_ns, compute_start_ns, compute_end_ns;

    /* Private. */
    uint64_t size; /* rows of all parts */
    uint32_t max_parts;
};

/*
 * batch_begin - take the requests of an execution.
 * @b         zeroes before its first use; keeps its memory until batch_done()
 * @instance  the one that executes; statistics are reported for it
 * @has_rows  does the model batch?
 * Errors: UNAVAILABLE  no memory; the requests are still the server's: Execute returns the error
 */
TRITONSERVER_Error *batch_begin(struct batch *b, TRITONBACKEND_ModelInstance *instance,
                                TRITONBACKEND_Request **requests, uint32_t n, bool has_rows);
void batch_done(struct batch *b);

/* batch_fail - makes an error this part's answer. Only the first error of a part is kept.
 * @err  taken; NULL: no effect */
void batch_fail(struct batch *b, struct batch_part *part, TRITONSERVER_Error *err);

/* batch_empty - have all parts failed? */
bool batch_empty(const struct batch *b);

/* batch_drop_cancelled - fails the parts whose requests are cancelled; to be called after a wait.
 */
void batch_drop_cancelled(struct batch *b);

/* batch_computes, batch_computed - note the time when the inputs are gathered, and when the outputs
 * are made. In the statistics the time before is compute_input, the time after compute_output. */
void batch_computes(struct batch *b);
void batch_computed(struct batch *b);

/*
 * batch_wants - does the request ask for this output?
 * @hint  its index in the configuration, where it likely is among the requested outputs, too.
 *        BATCH_WANTED: the caller knows that every request of the batch asks for it
 */
#define BATCH_WANTED UINT32_MAX
TRITONSERVER_Error *batch_wants(const struct batch_part *part, const char *output, uint32_t hint,
                                bool *ret_wanted);

/*
 * batch_finish - report statistics of all parts, send their responses, release their requests.
 * @err  taken; an error of the whole batch: the answer of every part without an error of its own
 */
void batch_finish(struct batch *b, TRITONSERVER_Error *err);

/* batch_single - makes a batch of the i-th part alone, with an empty response: to repeat alone an
 * execution that has failed for the whole batch.
 * @ret_single  to be finished with batch_finish(); that part of b must not be finished then */
void batch_single(struct batch *b, uint32_t i, struct batch *ret_single);

#ifdef __cplusplus
}
#endif
#endif
