/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - runs the batches of one instance. Thread: one at a time.
 */
#ifndef BACKENDS_PYTORCH_RUN_H
#define BACKENDS_PYTORCH_RUN_H

#include "pytorch/model.h"

struct runner;

/*
 * runner_new - a runner for a model, which must outlive it, warmed: PyTorch compiles a model while
 * it runs for the first times.
 * Errors: UNAVAILABLE  no memory
 *         INTERNAL     PyTorch cannot copy the model
 */
TRITONSERVER_Error *runner_new(struct torch_model *model, struct runner **ret_runner);
void runner_free(struct runner *r);

/*
 * runner_run - fill the responses of a batch.
 * Errors: INVALID_ARG  an input or an output that does not fit
 *         UNAVAILABLE  no memory
 *         INTERNAL     the model has failed
 */
TRITONSERVER_Error *runner_run(struct runner *r, struct batch *b);

#endif
