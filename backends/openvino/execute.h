/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute - runs batches of requests on a model.
 *
 * Threads: an executor belongs to one instance, and one thread at a time uses it.
 */
#ifndef BACKENDS_OPENVINO_EXECUTE_H
#define BACKENDS_OPENVINO_EXECUTE_H

#include "openvino/model.h"

/* executor_open - an executor of the instance's model: in->state. */
TRITONSERVER_Error *executor_open(struct frame_instance *in);
void executor_close(struct frame_instance *in);

/* executor_run - fill the responses of a batch, as frame.execute has to. */
TRITONSERVER_Error *executor_run(struct frame_instance *in, struct batch *b);

#endif
