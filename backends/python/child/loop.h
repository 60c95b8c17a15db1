/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop - the main thread: waits for commands, and calls the model.
 */
#ifndef BACKENDS_PYTHON_CHILD_LOOP_H
#define BACKENDS_PYTHON_CHILD_LOOP_H

#include "python/child/child.h"

/* loop_run - run(finish) of the module: until the server has no more commands. finish(result,
 * requests) awaits a coroutine that the model returns, or, if it gets requests, leaves it to the
 * background; it gives anything else back. */
PyObject *loop_run(PyObject *module, PyObject *finish);
/* loop_fail - fail(requests, exception) of the module: a coroutine in the background has raised it.
 * What it has not answered gets an error, and the log, too. */
PyObject *loop_fail(PyObject *module, PyObject *args);

#endif
