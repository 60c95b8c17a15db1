/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - runs the batches of one instance. Thread: one at a time.
 */
#ifndef BACKENDS_PYTORCH_RUN_H
#define BACKENDS_PYTORCH_RUN_H

#include "pytorch/model.h"

/*
 * runner_open - a runner for the instance's model, in->state, warmed: PyTorch compiles a model
 * while it runs for the first times. Errors: UNAVAILABLE  no memory INTERNAL     PyTorch cannot
 * copy the model
 */
TRITONSERVER_Error *runner_open(struct frame_instance *in);
void runner_close(struct frame_instance *in);

/*
 * runner_run - fill the responses of a batch.
 * Errors: INVALID_ARG  an input or an output that does not fit
 *         UNAVAILABLE  no memory
 *         INTERNAL     the model has failed
 */
TRITONSERVER_Error *runner_run(struct frame_instance *in, struct batch *b);

#endif
