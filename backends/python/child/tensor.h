/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor - the type Tensor: a name, a data type, a shape, and elements in C order.
 *
 * The elements lie in one of four places: in the server's memory (an input, or an output of a
 * called model), in memory of ours that the server reads (empty()), in a NumPy array, or in a
 * DLPack tensor of another library. Elements of BYTES lie as packed strings in the first place, as
 * Python objects or strings of a fixed length in an array.
 */
#ifndef BACKENDS_PYTHON_CHILD_TENSOR_H
#define BACKENDS_PYTHON_CHILD_TENSOR_H

#include "python/child/child.h"
#include "python/child/numpy.h"
#include "python/child/parcel.h"

struct dl_managed;

struct tensor {
    PyObject_HEAD PyObject *name; /* str */
    uint32_t type;                /* TRITONSERVER_DataType */
    uint32_t rank;
    int64_t *dims; /* rank of them, and behind them as many strides in bytes */
    int64_t few_dims[8];
    char *data; /* elements; NULL: none was made */
    uint64_t size_bytes;
    char array_kind; /* of BYTES in an array: 'O' or 'S'; else 0 */
    int array_item;  /* itemsize of 'S' */
    PyObject *block; /* that has the data; NULL: the array or managed has */
    bool up;         /* the block is of our memory */
    PyObject *array; /* given, or made of packed strings; NULL: none */
    struct dl_managed *managed;
    struct array_interface interface; /* for numpy_view() */
};

int tensor_init(PyObject *module);
bool tensor_check(PyObject *object);
/* tensor_make - with name and shape; the caller sets the elements. Takes no reference. */
struct tensor *tensor_make(PyObject *name, uint32_t type, const int64_t *dims, uint32_t rank);
/* tensor_of_array - for any array that NumPy has; elements of other types than ours are refused. */
PyObject *tensor_of_array(PyObject *name, PyObject *array);
/* tensor_unpack - from a message that lies in this block. */
PyObject *tensor_unpack(struct unpacker *u, PyObject *block);
/* tensor_pack - its fields, and its elements behind them. */
int tensor_pack(struct parcel *p, PyObject *tensor);
PyObject *tensor_name(PyObject *tensor); /* borrowed */
/* tensor_find - of a tuple of Tensors the first of this name, or None. */
PyObject *tensor_find(PyObject *tensors, PyObject *name);
/* tensor_array - as_numpy(). */
PyObject *tensor_array(struct tensor *t);
/* tensor_count - the number of elements. */
uint64_t tensor_count(const struct tensor *t);
/* tensor_serialize - serialize_byte_tensor(array) of triton_python_backend_utils: bytes; () of no
 * elements; None unless they are strings. */
PyObject *tensor_serialize(PyObject *module, PyObject *array);
/* tensor_empty - pb_utils.empty(name, dtype, shape). */
PyObject *tensor_empty(PyObject *module, PyObject *args, PyObject *keywords);

#endif
