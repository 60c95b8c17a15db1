/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strings - elements of BYTES: as objects for the model, and packed as each element's length (u32)
 * in front of its bytes.
 *
 * Of an element of an array, bytes go as they are and a str as UTF-8.
 */
#ifndef BACKENDS_PYTHON_CHILD_STRINGS_H
#define BACKENDS_PYTHON_CHILD_STRINGS_H

#include "python/child/child.h"

/* strings_read - fills `items` (n borrowed slots, each with an object or NULL) with bytes objects.
 * Raises TritonModelException unless the packed bytes are exactly n strings. */
int strings_read(const char *packed, uint64_t size_bytes, PyObject **items, uint64_t n);
/* strings_are_plain - is each of the objects bytes or str? */
bool strings_are_plain(PyObject *const *items, uint64_t n);
/* strings_size - what they are, packed. Raises for an object that is neither. */
int strings_size(PyObject *const *items, uint64_t n, uint64_t *ret_size_bytes);
/* strings_write - into size_bytes bytes that strings_size() has counted since the GIL was taken. */
void strings_write(PyObject *const *items, uint64_t n, char *to, uint64_t size_bytes);
/* strings_size_fixed, strings_write_fixed - of elements of `item` bytes with zeroes at their end.
 */
uint64_t strings_size_fixed(const char *items, int item, uint64_t n);
void strings_write_fixed(const char *items, int item, uint64_t n, char *to);

/* strings_deserialize - deserialize_bytes_tensor(bytes) of triton_python_backend_utils. */
PyObject *strings_deserialize(PyObject *module, PyObject *packed);

#endif
