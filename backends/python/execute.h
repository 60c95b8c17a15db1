/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute - one batch: its requests become one message in one block of the down memory, and the
 * child's answer becomes their responses.
 *
 * Threads: one at a time for each instance.
 */
#ifndef BACKENDS_PYTHON_EXECUTE_H
#define BACKENDS_PYTHON_EXECUTE_H

#include "conch/backend.h"
#include "python/text.h"

struct instance;
struct execute_part;
struct execute_input;
struct run;

/* What an instance keeps from batch to batch, as large as the largest so far. Zeroes at first. */
struct execution {
    struct execute_part *parts;
    uint32_t n_parts, parts_room;
    struct execute_input *inputs;
    uint32_t n_inputs, inputs_room;
    const char **outputs;
    uint32_t n_outputs, outputs_room;
    struct text text; /* parameters of all requests */
    TRITONBACKEND_Request **sent;
    uint64_t *keys;
    struct run *run; /* the batch that is executed now */
};

void execution_done(struct execution *e);

/*
 * execute_batch - executes, answers and releases these requests; or sends them to the child and
 * leaves the rest to execute_finish() (conch/backend.h).
 * Errors: UNAVAILABLE  no memory; the server still has the requests
 */
TRITONSERVER_Error *execute_batch(struct instance *in, TRITONBACKEND_Request **requests,
                                  uint32_t n);

/* execute_finish - the rest of an execution that has left. Parameters and result are those of
 * conch_finish_fn_t. */
enum conch_finish execute_finish(struct instance *in, bool may_wait);

#endif
