/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute - runs the batches of one instance. Thread: one at a time.
 */
#ifndef BACKENDS_TENSORRT_EXECUTE_H
#define BACKENDS_TENSORRT_EXECUTE_H

#include "tensorrt/model.h"

/*
 * executor_open - an execution context for each optimization profile of the instance, and its
 * stream.
 * Errors: INVALID_ARG  an instance that is not on a GPU, or a profile that the engine lacks
 *         UNAVAILABLE  no memory
 *         INTERNAL     TensorRT's or the driver's
 */
TRITONSERVER_Error *executor_open(struct frame_instance *in);
void executor_close(struct frame_instance *in);

/*
 * executor_run - fill the responses of a batch.
 * Errors: INVALID_ARG  an input or an output that does not fit
 *         UNAVAILABLE  no memory
 *         INTERNAL     TensorRT's or the driver's
 */
TRITONSERVER_Error *executor_run(struct frame_instance *in, struct batch *b);

#endif
