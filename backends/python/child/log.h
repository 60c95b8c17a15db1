/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log - the type Logger: lines of the server's log.
 */
#ifndef BACKENDS_PYTHON_CHILD_LOG_H
#define BACKENDS_PYTHON_CHILD_LOG_H

#include "python/child/child.h"

int log_init(PyObject *module);
/* log_error - of the extension's own; takes no reference of the text, a str. */
void log_error(PyObject *text);

#endif
