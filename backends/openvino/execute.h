/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute - runs batches of requests on a model.
 *
 * Threads: an executor belongs to one instance, and one thread at a time uses it.
 */
#ifndef BACKENDS_OPENVINO_EXECUTE_H
#define BACKENDS_OPENVINO_EXECUTE_H

#include "openvino/model.h"

struct executor;

TRITONSERVER_Error *executor_new(const struct model *m, struct executor **ret_executor);
void executor_free(struct executor *x);

/* executor_run - fill the responses of a batch, as frame.execute has to. */
TRITONSERVER_Error *executor_run(struct executor *x, struct batch *b);

#endif
