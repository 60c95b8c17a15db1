/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - the types InferenceTrace and PreferredMemory: what a model hands on with a call.
 */
#ifndef BACKENDS_PYTHON_CHILD_TRACE_H
#define BACKENDS_PYTHON_CHILD_TRACE_H

#include "python/child/child.h"

int trace_init(PyObject *module);
/* trace_make - of the request with this key; takes no reference of the context, a str. */
PyObject *trace_make(uint64_t key, PyObject *context);
bool trace_check(PyObject *object);
uint64_t trace_key(PyObject *trace);
PyObject *trace_context(PyObject *trace); /* borrowed str; "": none */
/* memory_make - a PreferredMemory. */
PyObject *memory_make(uint32_t type, int64_t id);
/* memory_read - of a PreferredMemory. Raises TypeError for anything else. */
int memory_read(PyObject *memory, uint32_t *ret_type, int64_t *ret_id);

#endif
