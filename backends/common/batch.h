/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch - the requests of one execution, from their arrival to their answers.
 *
 *     batch_begin    each request gets a response object, and its share of the batch is known
 *     …              the backend fills the responses: gather.h, scatter.h, or by itself
 *     batch_fail     what goes wrong with one request alone becomes its answer
 *     batch_finish   statistics, answers, release
 *
 * frame.h does the first and the last step. A part that has failed takes no part in what follows:
 * gathering and scattering pass it over.
 *
 * Threads: one batch is used by one thread at a time.
 */
#ifndef BACKENDS_COMMON_BATCH_H
#define BACKENDS_COMMON_BATCH_H

#include "common/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* More dimensions than any tensor has that servers pass on. */
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
 * @instance  whom the statistics are about
 * @has_rows  does the model batch?
 * Errors: UNAVAILABLE  no memory; the requests are still the server's: Execute returns the error
 */
TRITONSERVER_Error *batch_begin(struct batch *b, TRITONBACKEND_ModelInstance *instance,
                                TRITONBACKEND_Request **requests, uint32_t n, bool has_rows);
void batch_done(struct batch *b);

/* batch_fail - this part's answer is an error. Of several the first counts.
 * @err  taken; NULL: nothing has happened */
void batch_fail(struct batch *b, struct batch_part *part, TRITONSERVER_Error *err);

/* batch_empty - have all parts failed? */
bool batch_empty(const struct batch *b);

/* batch_drop_cancelled - parts that nobody waits for any longer fail; for after a wait. */
void batch_drop_cancelled(struct batch *b);

/* batch_computes, batch_computed - the inputs are together, the outputs are made. What lies before
 * and behind is the statistics' compute_input and compute_output; without the calls, all is. */
void batch_computes(struct batch *b);
void batch_computed(struct batch *b);

/*
 * batch_wants - does the request ask for this output?
 * @hint  where it may stand among the wanted ones: its place in the configuration. BATCH_WANTED:
 *        the caller knows that it does, of each request of the batch
 */
#define BATCH_WANTED UINT32_MAX
TRITONSERVER_Error *batch_wants(const struct batch_part *part, const char *output, uint32_t hint,
                                bool *ret_wanted);

/*
 * batch_finish - report, answer and release all parts.
 * @err  taken; what is wrong with the batch as a whole: the answer of every part that has none
 */
void batch_finish(struct batch *b, TRITONSERVER_Error *err);

/* batch_single - a batch of the i-th part alone, with an empty response of its own: to repeat what
 * has failed for all together.
 * @b  must not be finished for that part then, *ret_single must */
void batch_single(struct batch *b, uint32_t i, struct batch *ret_single);

#ifdef __cplusplus
}
#endif
#endif
