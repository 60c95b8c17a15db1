/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control - load_model(), unload_model() and is_model_ready() of other models.
 */
#ifndef BACKENDS_PYTHON_CHILD_CONTROL_H
#define BACKENDS_PYTHON_CHILD_CONTROL_H

#include "python/child/child.h"

/* Functions of the module, with keyword arguments. */
PyObject *control_load(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *control_unload(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *control_is_ready(PyObject *module, PyObject *args, PyObject *keywords);

#endif
