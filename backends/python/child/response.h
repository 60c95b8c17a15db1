/* SPDX-License-Identifier: Apache-2.0 */
/*
 * response - the type InferenceResponse: tensors, or an error, and parameters.
 */
#ifndef BACKENDS_PYTHON_CHILD_RESPONSE_H
#define BACKENDS_PYTHON_CHILD_RESPONSE_H

#include "python/child/child.h"
#include "python/child/parcel.h"

int response_init(PyObject *module);
bool response_is_exact(PyObject *object); /* of no type that is derived from ours */
/* response_find_output - the Tensor of this name, or None. */
PyObject *response_find_output(PyObject *response, PyObject *name);
bool response_check(PyObject *object);
/* response_error_make - of an error INTERNAL; takes no reference of the text, a str. */
PyObject *response_error_make(PyObject *text);
/* response_pack - the outputs that are in the tuple of names, all if it is empty. */
int response_pack(struct parcel *p, PyObject *response, PyObject *outputs);
/* response_pack_none - RESPONSE_NONE with these release flags. */
void response_pack_none(struct parcel *p, uint32_t release_flags);
/* response_unpack - of NOTE_CALL_RESPONSE, a message of the server's, which it takes. */
PyObject *response_unpack(uint64_t at, uint64_t size_bytes, bool *ret_last);

#endif
