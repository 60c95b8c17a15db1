/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack - see dlpack.h. The structs have the layout that the protocol fixes (without a version).
 */
#include "python/child/dlpack.h"

#include <stdlib.h>

#include "python/child/tensor.h"
#include "triton/core/tritonserver.h"

#define CAPSULE_FRESH "dltensor"
#define CAPSULE_USED  "used_dltensor"

enum { DL_CPU = 1, DL_CPU_PINNED = 3 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements; NULL: C order */
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

/* Of an exported tensor: the strides in elements lie behind it. */
static void free_exported(struct dl_managed *managed)
{
    PyGILState_STATE gil = PyGILState_Ensure(); /* other libraries end tensors without it */

    Py_DECREF((PyObject *)managed->context);
    free(managed);
    PyGILState_Release(gil);
}

static void free_capsule(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, CAPSULE_FRESH))
        return; /* someone has taken what it held */
    struct dl_managed *managed = PyCapsule_GetPointer(capsule, CAPSULE_FRESH);

    managed->deleter(managed);
}

static uint8_t export_code(uint32_t type)
{
    switch (type_kind(type)) {
    case 'b':
        return DL_BOOL;
    case 'u':
        return DL_UINT;
    case 'i':
        return DL_INT;
    case 'f':
        return DL_FLOAT;
    default:
        return DL_BFLOAT;
    }
}

PyObject *dlpack_export(PyObject *tensor)
{
    struct tensor *t = (struct tensor *)(void *)tensor;

    if (t->type == TRITONSERVER_TYPE_BYTES) {
        raise_model("DLPack does not have support for string tensors.");
        return NULL;
    }
    struct dl_managed *managed = malloc(sizeof *managed + t->rank * sizeof(int64_t));
    if (!managed)
        return PyErr_NoMemory();
    int64_t *strides = (int64_t *)(void *)(managed + 1);

    for (uint32_t i = 0; i < t->rank; i++)
        strides[i] = t->dims[t->rank + i] / (int64_t)type_bytes(t->type);
    *managed = (struct dl_managed){
        .tensor = {.data = t->data,
                   .device_type = DL_CPU,
                   .ndim = (int32_t)t->rank,
                   .code = export_code(t->type),
                   .bits = (uint8_t)(8 * type_bytes(t->type)),
                   .lanes = 1,
                   .shape = t->dims,
                   .strides = strides},
        .context = t,
        .deleter = free_exported,
    };
    PyObject *capsule = PyCapsule_New(managed, CAPSULE_FRESH, free_capsule);
    if (!capsule) {
        free(managed);
        return NULL;
    }
    Py_INCREF(tensor);
    return capsule;
}

/* import_type - TRITONSERVER_TYPE_INVALID with an exception. */
static uint32_t import_type(const struct dl_tensor *from)
{
    static const char KINDS[] = {
        [DL_INT] = 'i', [DL_UINT] = 'u', [DL_FLOAT] = 'f', [DL_BOOL] = 'b'};
    uint32_t type = TRITONSERVER_TYPE_INVALID;

    if (from->code == DL_BFLOAT) {
        if (from->bits == 16)
            type = TRITONSERVER_TYPE_BF16;
        else
            raise_model("Expected BF16 tensor to have 16 bits, but had: %d", (int)from->bits);
        return type;
    }
    if (from->code < sizeof KINDS && KINDS[from->code] && from->bits % 8 == 0 && from->lanes == 1)
        type = numpy_kind(KINDS[from->code], from->bits / 8);
    if (type == TRITONSERVER_TYPE_INVALID)
        raise_model("DType code \"%d\" is not supported.", (int)from->code);
    return type;
}

static bool is_contiguous(const struct dl_tensor *from)
{
    int64_t stride = 1;

    for (int32_t i = from->ndim; from->strides && i-- > 0;) {
        if (from->shape[i] == 0)
            return true;
        if (from->shape[i] != 1 && from->strides[i] != stride)
            return false;
        stride *= from->shape[i];
    }
    return true;
}

static PyObject *import_capsule(PyObject *name, PyObject *capsule)
{
    struct dl_managed *managed = PyCapsule_GetPointer(capsule, CAPSULE_FRESH);

    if (!managed)
        return NULL;
    const struct dl_tensor *from = &managed->tensor;
    if (from->device_type != DL_CPU && from->device_type != DL_CPU_PINNED) {
        raise_model("DLDevice type %d is not support by Python backend.", (int)from->device_type);
        return NULL;
    }
    if (!is_contiguous(from)) {
        raise_model("DLPack tensor is not contiguous. Only contiguous DLPack tensors that are "
                    "stored in C-Order are supported.");
        return NULL;
    }
    const uint32_t type = import_type(from);
    if (type == TRITONSERVER_TYPE_INVALID || from->ndim < 0)
        return NULL;
    struct tensor *t = tensor_make(name, type, from->shape, (uint32_t)from->ndim);
    if (!t || PyCapsule_SetName(capsule, CAPSULE_USED)) {
        Py_XDECREF((PyObject *)t);
        return NULL;
    }
    t->managed = managed;
    t->data = (char *)from->data + from->byte_offset;
    t->size_bytes = tensor_count(t) * type_bytes(type);
    return (PyObject *)t;
}

static PyObject *device_name, *export_name;

/* call_plain - a method without arguments; *kept keeps its name. */
static PyObject *call_plain(PyObject *object, PyObject **kept, const char *name)
{
    if (!*kept && !(*kept = PyUnicode_InternFromString(name)))
        return NULL;
    return PyObject_CallMethodObjArgs(object, *kept, NULL);
}

/* check_device - is the object's memory the CPU's? Asked before it makes a capsule. */
static int check_device(PyObject *source)
{
    PyObject *device = call_plain(source, &device_name, "__dlpack_device__");
    PyObject *first = device ? PySequence_GetItem(device, 0) : NULL;
    PyObject *number = first ? PyNumber_Long(first) : NULL;
    const long type = number ? PyLong_AsLong(number) : -1;

    Py_XDECREF(number);
    Py_XDECREF(first);
    Py_XDECREF(device);
    if (PyErr_Occurred())
        return -1;
    if (type == DL_CPU || type == DL_CPU_PINNED)
        return 0;
    raise_model("DLDevice type %ld is not support by Python backend.", type);
    return -1;
}

PyObject *dlpack_import(PyObject *name, PyObject *source)
{
    PyObject *capsule;

    if (PyCapsule_CheckExact(source))
        return import_capsule(name, source);
    /* An array has both methods, and lies in the CPU's memory. */
    const bool is_array = numpy_is_array(source);
    PyErr_Clear();
    if (!is_array && (!PyObject_HasAttrString(source, "__dlpack__") ||
                      !PyObject_HasAttrString(source, "__dlpack_device__"))) {
        raise_model("Provided tensor is not supported. Tensor must be a DLPack capsule         or "
                    "have `__dlpack__` and `__dlpack_device__` attributes");
        return NULL;
    }
    if (!is_array && check_device(source))
        return NULL;
    capsule = call_plain(source, &export_name, "__dlpack__");
    PyObject *t = capsule ? import_capsule(name, capsule) : NULL;

    Py_XDECREF(capsule);
    return t;
}

void dlpack_end(struct dl_managed *managed)
{
    if (managed && managed->deleter)
        managed->deleter(managed);
}
