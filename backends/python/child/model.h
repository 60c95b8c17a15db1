/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - the user's model.py: its import, its object, its methods.
 *
 * Functions that return a str return an error's text, or NULL: all went well.
 */
#ifndef BACKENDS_PYTHON_CHILD_MODEL_H
#define BACKENDS_PYTHON_CHILD_MODEL_H

#include "python/child/child.h"
#include "python/pack.h"

/* model_load - reads the fields of COMMAND_COMPLETE, and imports the model unless it is imported.
 */
PyObject *model_load(struct unpacker *u, PyObject *finish);
/* model_complete - auto_complete_config(); *ret_config is JSON, "" if the model has none.
 * *ret_goes_on: model_initialize() may follow, since no thread of Python has come or gone. */
PyObject *model_complete(PyObject **ret_config, bool *ret_goes_on);
/* model_initialize - makes the object, calls initialize(). */
PyObject *model_initialize(bool *ret_has_is_ready);
/* model_execute - its answer to a tuple of requests, of which the model gets a list: what
 * execute() returns or, of `async def`, what it returns in the end; None if it goes on in the
 * background (of a decoupled model). */
PyObject *model_execute(PyObject *requests, bool decoupled, PyObject **ret_answer);
PyObject *model_is_ready(bool *ret_ready);
PyObject *model_finalize(void);
/* model_failed - of an exception's text, which it takes, that of the requests. Never NULL. */
PyObject *model_failed(PyObject *text);
/* model_instance_name - a str, as "m_0_0". */
PyObject *model_instance_name(void);
/* model_dir - get_model_dir() of triton_python_backend_utils. */
PyObject *model_dir(PyObject *module, PyObject *unused);

#endif
