/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block - a block of shared memory as an object: it ends with its last reference.
 */
#ifndef BACKENDS_PYTHON_CHILD_BLOCK_H
#define BACKENDS_PYTHON_CHILD_BLOCK_H

#include "python/child/child.h"

int block_init(PyObject *module);
/* block_down - of the server's memory: given back in the end, at once on an error. */
PyObject *block_down(uint64_t at);
/* block_up - of ours, made here; *ret_data are its bytes. */
PyObject *block_up(uint64_t size_bytes, char **ret_data);
/* block_at - its offset in the memory. */
uint64_t block_at(PyObject *block);

#endif
