/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack - tensors that are shared with other libraries by the DLPack protocol, in the CPU's
 * memory. Nothing is copied.
 */
#ifndef BACKENDS_PYTHON_CHILD_DLPACK_H
#define BACKENDS_PYTHON_CHILD_DLPACK_H

#include "python/child/child.h"

struct dl_managed;

/* dlpack_export - a capsule over the elements of a Tensor, which it keeps. */
PyObject *dlpack_export(PyObject *tensor);
/* dlpack_import - a Tensor over the elements of a capsule, or of an object with __dlpack__(). */
PyObject *dlpack_import(PyObject *name, PyObject *source);
/* dlpack_end - the Tensor that was made of it has ended. */
void dlpack_end(struct dl_managed *managed);

#endif
