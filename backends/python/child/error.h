/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error - the type TritonError: a message and a code (TRITONSERVER_Error_Code).
 */
#ifndef BACKENDS_PYTHON_CHILD_ERROR_H
#define BACKENDS_PYTHON_CHILD_ERROR_H

#include "python/child/child.h"

int error_init(PyObject *module);
bool error_check(PyObject *object);
/* error_make - takes no reference of the message, a str. */
PyObject *error_make(PyObject *message, uint32_t code);
PyObject *error_message(PyObject *error); /* borrowed */
uint32_t error_code(PyObject *error);

#endif
