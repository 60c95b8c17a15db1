/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numpy - what we use of NumPy, by its Python API. It is imported when it is first needed, so a
 * model that never touches an array does not pay for it.
 *
 * Arrays are read and made by the array interface: an object with an attribute __array_struct__,
 * a capsule with a struct array_interface (its layout is a part of the protocol). NumPy makes an
 * array over the memory of such an object, and the array keeps the object.
 */
#ifndef BACKENDS_PYTHON_CHILD_NUMPY_H
#define BACKENDS_PYTHON_CHILD_NUMPY_H

#include "python/child/child.h"

struct array_interface {
    int two; /* is 2 */
    int nd;
    char typekind; /* b i u f O S … */
    int itemsize;
    int flags; /* enum array_flags */
    Py_intptr_t *shape, *strides;
    void *data;
    PyObject *descr;
};

enum array_flags {
    ARRAY_C_CONTIGUOUS = 0x1,
    ARRAY_ALIGNED = 0x100,
    ARRAY_NOT_SWAPPED = 0x200,
    ARRAY_WRITEABLE = 0x400,
    ARRAY_HAS_DESCR = 0x800,
};

/* numpy_attribute - of the module numpy, as "float32". Borrowed; kept for ever. */
PyObject *numpy_attribute(const char *name);
bool numpy_is_array(PyObject *object); /* false with an exception, too: ask PyErr_Occurred() */
/* numpy_interface - the capsule of an array, whose interface lives as long; *ret_array may be a
 * contiguous copy of the array. Both are new references. */
PyObject *numpy_interface(PyObject *array, PyObject **ret_array);
struct array_interface *numpy_of_capsule(PyObject *capsule);
/* numpy_dtype - of one of our types that NumPy has. Borrowed; kept for ever. */
PyObject *numpy_dtype(uint32_t type);
/* numpy_view - an array over the memory of an object with __array_struct__. */
PyObject *numpy_view(PyObject *object);
/* numpy_objects - an array of this shape for objects. *ret_items: its elements, owned by it. */
PyObject *numpy_objects(const int64_t *dims, uint32_t rank, PyObject ***ret_items);
/* numpy_kind - by typekind and itemsize; TRITONSERVER_TYPE_INVALID: no type of ours. */
uint32_t numpy_kind(char typekind, int itemsize);
/* type_bytes - of an element; 0: BYTES, or no type. type_kind - its typekind. */
uint32_t type_bytes(uint32_t type);
char type_kind(uint32_t type);

#endif
