/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call - requests of the model to other models: exec(), async_exec(), and the iterator over the
 * responses of a decoupled model.
 */
#ifndef BACKENDS_PYTHON_CHILD_CALL_H
#define BACKENDS_PYTHON_CHILD_CALL_H

#include "python/child/child.h"

int call_init(PyObject *module);
/* call_allow - calls are refused before initialize() has returned and once finalize() begins. */
void call_allow(bool allowed);
/* call_batch - around execute(): a call belongs to the only request of the batch, if it has one. */
void call_batch(uint64_t only_key);
/* Methods of InferenceRequest. */
PyObject *call_exec(PyObject *request, PyObject *args, PyObject *keywords);
PyObject *call_async_exec(PyObject *request, PyObject *args, PyObject *keywords);

#endif
