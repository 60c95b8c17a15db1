/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute - run requests on a model.
 *
 * One executor belongs to one instance and is used by one thread at a time. It keeps all memory
 * that a run needs besides the tensors, so that nothing is allocated per request here.
 */
#ifndef BACKENDS_ONNXRUNTIME_EXECUTE_H
#define BACKENDS_ONNXRUNTIME_EXECUTE_H

#include "onnxruntime/model.h"

struct executor;

/* executor_new - an executor for a model, which must outlive it. */
TRITONSERVER_Error *executor_new(struct model *m, TRITONBACKEND_ModelInstance *instance,
                                 struct executor **ret_executor);
void executor_free(struct executor *x);

/*
 * executor_run - execute, answer and release all these requests.
 * A model that batches gets them as one batch. If that fails, each is run alone, so that a request
 * which the model refuses does not make the others fail.
 * Errors: UNAVAILABLE  no memory; the server still has the requests
 */
TRITONSERVER_Error *executor_run(struct executor *x, TRITONBACKEND_Request **requests, uint32_t n);

#endif
