/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traceback - an exception as a text for the server, in the form that Triton's clients know:
 *
 *     ValueError: all went wrong
 *
 *     At:
 *       /models/m/1/model.py(12): execute
 */
#ifndef BACKENDS_PYTHON_CHILD_TRACEBACK_H
#define BACKENDS_PYTHON_CHILD_TRACEBACK_H

#include "python/child/child.h"

/* traceback_take - the text of the exception that has been raised, which is cleared. A str; never
 * NULL. whole: with its type and the lines of Python that it came through. */
PyObject *traceback_take(bool whole);

#endif
