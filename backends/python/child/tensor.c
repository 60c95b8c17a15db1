/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor - see tensor.h.
 */
#include "python/child/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "python/child/block.h"
#include "python/child/dlpack.h"
#include "python/child/link.h"
#include "python/child/strings.h"
#include "python/protocol.h"
#include "triton/core/tritonserver.h"

_Static_assert(sizeof(Py_intptr_t) == sizeof(int64_t), "NumPy's shapes are ours");

static PyTypeObject *tensor_type;
static char no_element[64]; /* where a tensor without elements has its data */

static struct tensor *as_tensor(PyObject *object)
{
    return (struct tensor *)(void *)object;
}

bool tensor_check(PyObject *object)
{
    return PyObject_TypeCheck(object, tensor_type);
}

PyObject *tensor_name(PyObject *tensor)
{
    return as_tensor(tensor)->name;
}

uint64_t tensor_count(const struct tensor *t)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < t->rank; i++)
        n *= (uint64_t)t->dims[i];
    return n;
}

/* set_strides - behind the dims, of C order. Returns -1 if the size does not fit into 63 bits. */
static int set_strides(struct tensor *t, uint32_t item)
{
    uint64_t stride = item;
    bool none = false, fits = true;

    for (uint32_t i = t->rank; i-- > 0;) {
        t->dims[t->rank + i] = (int64_t)stride;
        none |= t->dims[i] == 0;
        fits = fits && t->dims[i] >= 0 &&
               !__builtin_mul_overflow(stride, (uint64_t)t->dims[i] | (t->dims[i] == 0), &stride) &&
               stride <= INT64_MAX;
    }
    if (none || fits)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a tensor's shape has too many elements");
    return -1;
}

static int make_shape_of(struct tensor *t, const int64_t *dims, uint32_t rank)
{
    const uint32_t item = type_bytes(t->type);

    t->dims = rank <= sizeof t->few_dims / sizeof *t->few_dims / 2
                  ? t->few_dims
                  : malloc(rank * 2 * sizeof *t->dims);
    if (!t->dims) {
        PyErr_NoMemory();
        return -1;
    }
    t->rank = rank;
    if (rank)
        memcpy(t->dims, dims, rank * sizeof *dims);
    return set_strides(t, item ? item : sizeof(PyObject *));
}

static int check_tensor_name(PyObject *name)
{
    Py_ssize_t len = PyUnicode_Check(name) ? PyUnicode_GetLength(name) : -1;

    if (len > 0)
        return 0;
    if (len == 0)
        raise_model("Tensor name cannot be an empty string.");
    else if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "a tensor's name is a str, not %R",
                     (PyObject *)Py_TYPE(name));
    return -1;
}

static struct tensor *tensor_make_of(PyTypeObject *type_of, PyObject *name, uint32_t type,
                                     const int64_t *dims, uint32_t rank)
{
    struct tensor *t;

    if (check_tensor_name(name))
        return NULL;
    if (rank > PROTOCOL_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "a tensor has at most %d dimensions",
                     (int)PROTOCOL_MAX_RANK);
        return NULL;
    }
    t = child_new(type_of);
    if (!t)
        return NULL;
    Py_INCREF(name);
    t->name = name;
    t->type = type;
    t->data = no_element;
    if (make_shape_of(t, dims, rank)) {
        Py_DECREF((PyObject *)t);
        return NULL;
    }
    return t;
}

struct tensor *tensor_make(PyObject *name, uint32_t type, const int64_t *dims, uint32_t rank)
{
    return tensor_make_of(tensor_type, name, type, dims, rank);
}

static void tensor_dealloc(PyObject *self)
{
    struct tensor *t = as_tensor(self);

    dlpack_end(t->managed);
    Py_XDECREF(t->array);
    Py_XDECREF(t->block);
    Py_XDECREF(t->name);
    if (t->dims != t->few_dims)
        free(t->dims);
    child_free(self);
}

/* make_plain - of objects, an array of bytes and str: whatever else becomes its str(). */
static PyObject *make_plain(PyObject *const *from, uint64_t n, char **ret_data)
{
    const int64_t dim = (int64_t)n;
    PyObject **items = NULL, *array = numpy_objects(&dim, 1, &items);

    for (uint64_t i = 0; array && i < n; i++) {
        PyObject *item = from[i] ? from[i] : Py_None, *old = items[i];

        Py_INCREF(item);
        if (!PyBytes_Check(item) && !PyUnicode_Check(item)) {
            PyObject *text = PyObject_Str(item);

            Py_DECREF(item);
            item = text;
        }
        if (!item) {
            Py_CLEAR(array);
            break;
        }
        items[i] = item;
        Py_XDECREF(old);
    }
    *ret_data = (char *)items;
    return array;
}

/* set_array - of a new tensor: its elements are those of the array. */
static int set_array(struct tensor *t, PyObject *array, const struct array_interface *a)
{
    const uint64_t n = tensor_count(t);

    Py_INCREF(array);
    t->array = array;
    if (a->data)
        t->data = a->data;
    t->size_bytes = n * (unsigned int)a->itemsize;
    if (t->type != TRITONSERVER_TYPE_BYTES)
        return 0;
    t->array_kind = a->typekind;
    t->array_item = a->itemsize;
    if (a->typekind == 'O' && n && !strings_are_plain(a->data, n)) {
        t->block = make_plain(a->data, n, &t->data);
        return t->block ? 0 : -1;
    }
    return 0;
}

static PyObject *make_of_array(PyTypeObject *type_of, PyObject *name, PyObject *given)
{
    PyObject *array;
    struct tensor *t = NULL;

    if (!numpy_is_array(given)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "a tensor is made of a numpy.ndarray, not of %R",
                         (PyObject *)Py_TYPE(given));
        return NULL;
    }
    PyObject *capsule = numpy_interface(given, &array);
    const struct array_interface *a = capsule ? numpy_of_capsule(capsule) : NULL;
    if (!a)
        return NULL;
    const uint32_t type = a->flags & ARRAY_NOT_SWAPPED ? numpy_kind(a->typekind, a->itemsize)
                                                       : TRITONSERVER_TYPE_INVALID;

    if (type == TRITONSERVER_TYPE_INVALID)
        raise_model("NumPy dtype is not supported.");
    else
        t = tensor_make_of(type_of, name, type, (const int64_t *)a->shape, (uint32_t)a->nd);
    if (t && set_array(t, array, a)) {
        Py_DECREF((PyObject *)t);
        t = NULL;
    }
    Py_DECREF(capsule);
    Py_DECREF(array);
    return (PyObject *)t;
}

PyObject *tensor_of_array(PyObject *name, PyObject *array)
{
    return make_of_array(tensor_type, name, array);
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"name", "numpy_array", NULL};
    PyObject *name, *array;

    if (!keywords && PyTuple_Size(args) == 2) /* as most models do; it saves the parsing */
        return make_of_array(type, PyTuple_GetItem(args, 0), PyTuple_GetItem(args, 1));
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:Tensor", child_keywords(names), &name,
                                     &array))
        return NULL;
    return make_of_array(type, name, array);
}

/* Messages. */

PyObject *tensor_unpack(struct unpacker *u, PyObject *block)
{
    size_t len;
    int64_t dims[PROTOCOL_MAX_RANK];
    const char *text = unpack_str(u, &len);
    const uint32_t type = unpack_u32(u);
    const uint32_t rank = unpack_count(u, PROTOCOL_MAX_RANK, sizeof *dims);

    for (uint32_t i = 0; i < rank; i++)
        dims[i] = unpack_i64(u);
    const uint64_t size = unpack_u64(u), at = unpack_u64(u), own = unpack_u64(u);
    char *data = u->failed || !size ? no_element : link_find(at, size);

    if (own && !u->failed)
        block = block_down(own);
    else
        Py_INCREF(block);
    PyObject *name = child_name(text, len);
    struct tensor *t = block && name && data ? tensor_make(name, type, dims, rank) : NULL;

    Py_XDECREF(name);
    if (!t) {
        Py_XDECREF(block);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_SystemError, "a tensor of the server lies nowhere");
        return NULL;
    }
    t->block = block;
    t->data = data;
    t->size_bytes = size;
    if (type_bytes(type) && size != tensor_count(t) * type_bytes(type)) {
        PyErr_SetString(PyExc_SystemError,
                        "a tensor of the server has another size than its shape");
        Py_DECREF((PyObject *)t);
        return NULL;
    }
    return (PyObject *)t;
}

/* pack_elements - their bytes go into the message. */
static int pack_elements(struct parcel *p, struct tensor *t, uint64_t *ret_size, uint64_t *ret_at)
{
    const uint64_t n = tensor_count(t);
    char *to;

    *ret_size = t->size_bytes;
    if (t->array_kind == 0)
        return parcel_bytes(p, t->data, t->size_bytes, ret_at, &to);
    if (t->array_kind == 'S')
        *ret_size = strings_size_fixed(t->data, t->array_item, n);
    else if (strings_size((PyObject *const *)(void *)t->data, n, ret_size))
        return -1;
    if (parcel_bytes(p, NULL, *ret_size, ret_at, &to))
        return -1;
    if (to && t->array_kind == 'S')
        strings_write_fixed(t->data, t->array_item, n, to);
    else if (to)
        strings_write((PyObject *const *)(void *)t->data, n, to, *ret_size);
    return 0;
}

int tensor_pack(struct parcel *p, PyObject *tensor)
{
    struct tensor *t = as_tensor(tensor);
    struct packer *f = &p->fields;
    uint64_t size = t->size_bytes, at = 0;

    if (parcel_str(p, t->name))
        return -1;
    pack_u32(f, t->type);
    pack_u32(f, t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        pack_i64(f, t->dims[i]);
    if (t->up) {
        at = block_at(t->block);
        if (parcel_keep(p, tensor, t->size_bytes))
            return -1;
    } else if (pack_elements(p, t, &size, &at)) {
        return -1;
    }
    pack_u64(f, size);
    pack_u64(f, at);
    pack_u64(f, 0);
    return 0;
}

PyObject *tensor_serialize(PyObject *module, PyObject *array)
{
    PyObject *name = PyUnicode_FromString("serialized"), *bytes = NULL;
    struct tensor *t = name ? as_tensor(tensor_of_array(name, array)) : NULL;
    const uint64_t n = t ? tensor_count(t) : 0;
    uint64_t size = 0;

    Py_XDECREF(name);
    if (!t)
        return NULL;
    PyObject *const *items = (PyObject *const *)(void *)t->data;
    if (n == 0) {
        bytes = PyTuple_New(0);
    } else if (t->array_kind == 'S') {
        size = strings_size_fixed(t->data, t->array_item, n);
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (bytes)
            strings_write_fixed(t->data, t->array_item, n, PyBytes_AsString(bytes));
    } else if (t->array_kind == 'O' && !strings_size(items, n, &size)) {
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (bytes)
            strings_write(items, n, PyBytes_AsString(bytes), size);
    } else if (t->array_kind == 0) {
        Py_INCREF(Py_None);
        bytes = Py_None;
    }
    Py_DECREF((PyObject *)t);
    return bytes;
}

/* What a model asks. */

static void free_interface(PyObject *capsule)
{
    Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

/* tensor_get_interface - __array_struct__, by which NumPy makes a view. */
static PyObject *tensor_get_interface(PyObject *self, void *unused)
{
    struct tensor *t = as_tensor(self);
    PyObject *same = NULL;

    if (t->array) {
        PyObject *of_array = numpy_interface(t->array, &same);

        Py_XDECREF(same);
        return of_array;
    }
    if (!type_kind(t->type) || t->type == TRITONSERVER_TYPE_BYTES) {
        PyErr_SetString(PyExc_AttributeError, "__array_struct__");
        return NULL;
    }
    PyObject *dtype = numpy_dtype(t->type);
    if (!dtype)
        return NULL;
    t->interface = (struct array_interface){
        .two = 2,
        .nd = (int)t->rank,
        .typekind = type_kind(t->type),
        .itemsize = (int)type_bytes(t->type),
        .flags = ARRAY_C_CONTIGUOUS | ARRAY_ALIGNED | ARRAY_NOT_SWAPPED | ARRAY_WRITEABLE |
                 ARRAY_HAS_DESCR, /* without it NumPy makes the type of a text each time */
        .shape = (Py_intptr_t *)t->dims,
        .strides = (Py_intptr_t *)t->dims + t->rank,
        .data = t->data,
        .descr = dtype,
    };
    PyObject *capsule = PyCapsule_New(&t->interface, NULL, free_interface);
    if (!capsule)
        return NULL;
    Py_INCREF(self);
    if (PyCapsule_SetContext(capsule, self))
        Py_CLEAR(capsule);
    return capsule;
}

PyObject *tensor_array(struct tensor *t)
{
    PyObject **items, *array;

    if (t->type == TRITONSERVER_TYPE_BF16) {
        raise_model("Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and "
                    "from_dlpack() instead.");
        return NULL;
    }
    if (!t->array && t->type != TRITONSERVER_TYPE_BYTES)
        return numpy_view((PyObject *)t); /* not kept: the array keeps the tensor */
    if (!t->array) {
        array = numpy_objects(t->dims, t->rank, &items);
        if (array && strings_read(t->data, t->size_bytes, items, tensor_count(t)))
            Py_CLEAR(array);
        if (!array)
            return NULL;
        t->array = array;
    }
    Py_INCREF(t->array);
    return t->array;
}

static PyObject *tensor_as_numpy(PyObject *self, PyObject *unused)
{
    return tensor_array(as_tensor(self));
}

static PyObject *tensor_get_name(PyObject *self, PyObject *unused)
{
    Py_INCREF(as_tensor(self)->name);
    return as_tensor(self)->name;
}

static PyObject *tensor_triton_dtype(PyObject *self, PyObject *unused)
{
    return PyLong_FromUnsignedLong(as_tensor(self)->type);
}

static PyObject *tensor_shape(PyObject *self, PyObject *unused)
{
    const struct tensor *t = as_tensor(self);
    PyObject *shape = PyList_New(t->rank);

    for (uint32_t i = 0; shape && i < t->rank; i++) {
        PyObject *dim = PyLong_FromLongLong(t->dims[i]);

        if (!dim || PyList_SetItem(shape, i, dim))
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *tensor_is_cpu(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(1);
}

static PyObject *tensor_to_dlpack(PyObject *self, PyObject *unused)
{
    return dlpack_export(self);
}

/* tensor_dlpack - the capsule has no version, whatever max_version the consumer names. */
static PyObject *tensor_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return dlpack_export(self);
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *unused)
{
    static PyObject *cpu;

    if (!cpu)
        cpu = Py_BuildValue("(ii)", 1, 0);
    Py_XINCREF(cpu);
    return cpu;
}

static PyObject *tensor_from_dlpack(PyObject *unused, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"name", "tensor", NULL};
    PyObject *name, *source;

    if (!keywords && PyTuple_Size(args) == 2) { /* as most models do; it saves the parsing */
        name = PyTuple_GetItem(args, 0);
        return check_tensor_name(name) ? NULL : dlpack_import(name, PyTuple_GetItem(args, 1));
    }
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:from_dlpack", child_keywords(names), &name,
                                     &source) ||
        check_tensor_name(name))
        return NULL;
    return dlpack_import(name, source);
}

PyObject *tensor_find(PyObject *tensors, PyObject *name)
{
    const Py_ssize_t n = PyTuple_Size(tensors);

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *tensor = PyTuple_GetItem(tensors, i);
        const int same = tensor_name(tensor) == name
                             ? 1
                             : PyObject_RichCompareBool(tensor_name(tensor), name, Py_EQ);

        if (same < 0)
            return NULL;
        if (same) {
            Py_INCREF(tensor);
            return tensor;
        }
    }
    Py_INCREF(Py_None);
    return Py_None;
}

static PyMethodDef tensor_methods[] = {
    {"name", tensor_get_name, METH_NOARGS, "The name."},
    {"as_numpy", tensor_as_numpy, METH_NOARGS, "An array over the elements, without a copy."},
    {"triton_dtype", tensor_triton_dtype, METH_NOARGS, "The number of the data type in Triton."},
    {"shape", tensor_shape, METH_NOARGS, "The shape, a list."},
    {"is_cpu", tensor_is_cpu, METH_NOARGS, "True: all tensors are in the CPU's memory."},
    {"to_dlpack", tensor_to_dlpack, METH_NOARGS, "A DLPack capsule over the elements."},
    {"from_dlpack", WITH_KEYWORDS(tensor_from_dlpack), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "A tensor over the elements of a DLPack capsule, or of an object that makes one."},
    {"__dlpack__", WITH_KEYWORDS(tensor_dlpack), METH_FASTCALL | METH_KEYWORDS,
     "A DLPack capsule over the elements."},
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "The device of the elements."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef tensor_attributes[] = {
    {"__array_struct__", tensor_get_interface, NULL, "The array interface, for NumPy.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* pb_utils.empty() */

/* read_dtype - TRITONSERVER_TYPE_INVALID with an exception. */
static uint32_t read_dtype(PyObject *given)
{
    PyObject *make = numpy_attribute("dtype");
    PyObject *dtype = make ? PyObject_CallFunctionObjArgs(make, given, NULL) : NULL;
    PyObject *kind = dtype ? PyObject_GetAttrString(dtype, "kind") : NULL;
    PyObject *item = kind ? PyObject_GetAttrString(dtype, "itemsize") : NULL;
    PyObject *native = item ? PyObject_GetAttrString(dtype, "isnative") : NULL;
    uint32_t type = TRITONSERVER_TYPE_INVALID;
    size_t len;
    const char *letter = native ? child_text(kind, &len) : NULL;

    if (letter && native == Py_True)
        type = numpy_kind(*letter, (int)PyLong_AsLong(item));
    if (type == TRITONSERVER_TYPE_BYTES)
        type = TRITONSERVER_TYPE_INVALID; /* has no size before its elements are there */
    if (type == TRITONSERVER_TYPE_INVALID && !PyErr_Occurred())
        raise_model("NumPy dtype is not supported.");
    Py_XDECREF(native);
    Py_XDECREF(item);
    Py_XDECREF(kind);
    Py_XDECREF(dtype);
    return type;
}

/* read_dims - of a number or a sequence of them. */
static int read_dims(PyObject *given, int64_t *dims, uint32_t *ret_rank)
{
    if (PyLong_Check(given)) {
        dims[0] = PyLong_AsLongLong(given);
        *ret_rank = 1;
    } else {
        const Py_ssize_t n = PySequence_Size(given);

        if (n < 0)
            return -1;
        if (n > (Py_ssize_t)PROTOCOL_MAX_RANK) {
            PyErr_SetString(PyExc_ValueError, "a shape has too many dimensions");
            return -1;
        }
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *dim = PySequence_GetItem(given, i);
            PyObject *number = dim ? PyNumber_Index(dim) : NULL;

            dims[i] = number ? PyLong_AsLongLong(number) : -1;
            Py_XDECREF(number);
            Py_XDECREF(dim);
        }
        *ret_rank = (uint32_t)n;
    }
    for (uint32_t i = 0; i < *ret_rank && !PyErr_Occurred(); i++) {
        if (dims[i] < 0)
            PyErr_SetString(PyExc_ValueError, "negative dimensions are not allowed");
    }
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *tensor_empty(PyObject *module, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"name", "dtype", "shape", NULL};
    PyObject *name, *dtype, *shape;
    int64_t dims[PROTOCOL_MAX_RANK];
    uint32_t rank;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO:empty", child_keywords(names), &name,
                                     &dtype, &shape))
        return NULL;
    const uint32_t type = read_dtype(dtype);
    if (type == TRITONSERVER_TYPE_INVALID || read_dims(shape, dims, &rank))
        return NULL;
    struct tensor *t = tensor_make(name, type, dims, rank);
    if (!t)
        return NULL;
    t->size_bytes = tensor_count(t) * type_bytes(type);
    if (t->size_bytes) {
        t->block = block_up(t->size_bytes, &t->data);
        if (!t->block) {
            Py_DECREF((PyObject *)t);
            return NULL;
        }
        t->up = true;
    }
    return (PyObject *)t;
}

int tensor_init(PyObject *module)
{
    static PyType_Slot slots[] = {{Py_tp_new, tensor_new},
                                  {Py_tp_dealloc, tensor_dealloc},
                                  {Py_tp_methods, tensor_methods},
                                  {Py_tp_getset, tensor_attributes},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.Tensor",
                               .basicsize = sizeof(struct tensor),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               .slots = slots};

    tensor_type = child_type(module, &spec);
    return tensor_type ? 0 : -1;
}
