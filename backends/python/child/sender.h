/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sender - the type InferenceResponseSender: how a model answers a request by itself.
 *
 * Each request of the server has one, whether or not the model asks for it. The sender knows how
 * the request ends, and tells the server when nothing more will come: when it is garbage, and with
 * it the request, before a final response.
 */
#ifndef BACKENDS_PYTHON_CHILD_SENDER_H
#define BACKENDS_PYTHON_CHILD_SENDER_H

#include "python/child/child.h"

int sender_init(PyObject *module);
/* sender_make - of the request with this key; outputs: the tuple of the requested ones. */
PyObject *sender_make(uint64_t key, bool decoupled, PyObject *outputs);
/* sender_answer - execute() returns a response for the request. */
int sender_answer(PyObject *sender);
/* sender_end - the request has its answer; nothing can be sent any more. */
void sender_end(PyObject *sender);
/* sender_fail - sends an error (takes no reference of the text, a str) as the final response,
 * unless there was one. */
int sender_fail(PyObject *sender, PyObject *text);
/* sender_is_cancelled - asks the server. */
PyObject *sender_is_cancelled(PyObject *sender, PyObject *unused);

#endif
