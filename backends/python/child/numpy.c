/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numpy - see numpy.h.
 */
#include "python/child/numpy.h"

#include <string.h>

#include "triton/core/tritonserver.h"

#define MAX_NAMES 8 /* more of them are not kept */

/* By TRITONSERVER_DataType. */
static const struct {
    char kind; /* in NumPy; 0: it has no such type */
    uint8_t bytes;
} TYPES[] = {
    [TRITONSERVER_TYPE_BOOL] = {'b', 1},   [TRITONSERVER_TYPE_UINT8] = {'u', 1},
    [TRITONSERVER_TYPE_UINT16] = {'u', 2}, [TRITONSERVER_TYPE_UINT32] = {'u', 4},
    [TRITONSERVER_TYPE_UINT64] = {'u', 8}, [TRITONSERVER_TYPE_INT8] = {'i', 1},
    [TRITONSERVER_TYPE_INT16] = {'i', 2},  [TRITONSERVER_TYPE_INT32] = {'i', 4},
    [TRITONSERVER_TYPE_INT64] = {'i', 8},  [TRITONSERVER_TYPE_FP16] = {'f', 2},
    [TRITONSERVER_TYPE_FP32] = {'f', 4},   [TRITONSERVER_TYPE_FP64] = {'f', 8},
    [TRITONSERVER_TYPE_BYTES] = {'O', 0},  [TRITONSERVER_TYPE_BF16] = {0, 2},
};
#define N_TYPES (sizeof TYPES / sizeof *TYPES)

static struct {
    PyObject *module, *interface_name;
    const char *names[MAX_NAMES];
    PyObject *values[MAX_NAMES];
    PyObject *dtypes[N_TYPES];
} numpy;

PyObject *numpy_attribute(const char *name)
{
    size_t i;

    for (i = 0; i < MAX_NAMES && numpy.names[i]; i++) {
        if (strcmp(numpy.names[i], name) == 0)
            return numpy.values[i];
    }
    if (!numpy.module && !(numpy.module = PyImport_ImportModule("numpy")))
        return NULL;
    PyObject *value = PyObject_GetAttrString(numpy.module, name);
    if (!value)
        return NULL;
    if (i < MAX_NAMES && !numpy.names[i]) {
        numpy.names[i] = name;
        numpy.values[i] = value;
    }
    return value;
}

bool numpy_is_array(PyObject *object)
{
    PyObject *type = numpy_attribute("ndarray");

    return type && ((PyObject *)Py_TYPE(object) == type || PyObject_IsInstance(object, type) == 1);
}

struct array_interface *numpy_of_capsule(PyObject *capsule)
{
    struct array_interface *a = PyCapsule_GetPointer(capsule, NULL);

    if (a && a->two != 2) {
        PyErr_SetString(PyExc_ValueError, "an array's __array_struct__ is not one");
        return NULL;
    }
    return a;
}

PyObject *numpy_interface(PyObject *array, PyObject **ret_array)
{
    PyObject **name = &numpy.interface_name;

    if (!*name && !(*name = PyUnicode_InternFromString("__array_struct__")))
        return NULL;
    Py_INCREF(array);
    for (;;) {
        PyObject *capsule = PyObject_GetAttr(array, *name);
        const struct array_interface *a = capsule ? numpy_of_capsule(capsule) : NULL;

        if (a && (a->flags & ARRAY_C_CONTIGUOUS)) {
            *ret_array = array;
            return capsule;
        }
        Py_XDECREF(capsule);
        PyObject *copy_of = a ? numpy_attribute("ascontiguousarray") : NULL;
        PyObject *copy = copy_of ? PyObject_CallFunctionObjArgs(copy_of, array, NULL) : NULL;

        Py_DECREF(array);
        if (!copy)
            return NULL;
        array = copy;
    }
}

PyObject *numpy_dtype(uint32_t type)
{
    PyObject **dtype = &numpy.dtypes[type];
    const char name[] = {type_kind(type), (char)('0' + type_bytes(type)), 0};

    if (!*dtype) {
        PyObject *make = numpy_attribute("dtype");

        *dtype = make ? PyObject_CallFunction(make, "s", name) : NULL;
    }
    return *dtype;
}

PyObject *numpy_view(PyObject *object)
{
    PyObject *asarray = numpy_attribute("asarray");

    return asarray ? PyObject_CallFunctionObjArgs(asarray, object, NULL) : NULL;
}

static PyObject *make_shape(const int64_t *dims, uint32_t rank)
{
    PyObject *shape = PyTuple_New(rank);

    for (uint32_t i = 0; shape && i < rank; i++) {
        PyObject *n = PyLong_FromLongLong(dims[i]);

        if (!n || PyTuple_SetItem(shape, i, n))
            Py_CLEAR(shape);
    }
    return shape;
}

PyObject *numpy_objects(const int64_t *dims, uint32_t rank, PyObject ***ret_items)
{
    PyObject *empty = numpy_attribute("empty"), *type = numpy_attribute("object_");
    PyObject *shape = empty && type ? make_shape(dims, rank) : NULL;
    PyObject *array = shape ? PyObject_CallFunctionObjArgs(empty, shape, type, NULL) : NULL;
    PyObject *same = NULL;

    Py_XDECREF(shape);
    if (!array)
        return NULL;
    PyObject *capsule = numpy_interface(array, &same);
    const struct array_interface *a = capsule ? numpy_of_capsule(capsule) : NULL;

    Py_DECREF(array);
    if (a)
        *ret_items = a->data;
    Py_XDECREF(capsule);
    return same;
}

uint32_t numpy_kind(char typekind, int itemsize)
{
    if (typekind == 'O' || typekind == 'S')
        return TRITONSERVER_TYPE_BYTES;
    for (uint32_t type = 1; type < N_TYPES; type++) {
        if (TYPES[type].kind == typekind && TYPES[type].bytes == itemsize)
            return type;
    }
    return TRITONSERVER_TYPE_INVALID;
}

uint32_t type_bytes(uint32_t type)
{
    return type < N_TYPES ? TYPES[type].bytes : 0;
}

char type_kind(uint32_t type)
{
    return type < N_TYPES ? TYPES[type].kind : 0;
}
