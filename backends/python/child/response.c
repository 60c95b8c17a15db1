/* SPDX-License-Identifier: Apache-2.0 */
/*
 * response - see response.h.
 */
#include "python/child/response.h"

#include "python/child/block.h"
#include "python/child/error.h"
#include "python/child/link.h"
#include "python/child/tensor.h"
#include "python/protocol.h"
#include "triton/core/tritonserver.h"

struct response {
    PyObject_HEAD PyObject *tensors; /* tuple */
    PyObject *error;                 /* None: none */
    PyObject *parameters;            /* str: JSON, or "" */
};

static PyTypeObject *response_type;

static struct response *as_response(PyObject *object)
{
    return (struct response *)(void *)object;
}

bool response_check(PyObject *object)
{
    return PyObject_TypeCheck(object, response_type);
}

/* build_response - takes the references, some of which may be NULL after an exception. */
static PyObject *build_response(PyTypeObject *type, PyObject *tensors, PyObject *error,
                                PyObject *parameters)
{
    struct response *r = tensors && error && parameters ? child_new(type) : NULL;

    if (!r) {
        Py_XDECREF(tensors);
        Py_XDECREF(error);
        Py_XDECREF(parameters);
        return NULL;
    }
    r->tensors = tensors;
    r->error = error;
    r->parameters = parameters;
    return (PyObject *)r;
}

/* check_tensors - a tuple of Tensors, made of any sequence; NULL: an empty one. */
static PyObject *check_tensors(PyObject *given)
{
    PyObject *tensors = given ? PySequence_Tuple(given) : PyTuple_New(0);
    const Py_ssize_t n = tensors ? PyTuple_Size(tensors) : 0;

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *t = PyTuple_GetItem(tensors, i);

        if (tensor_check(t))
            continue;
        if (t == Py_None)
            raise_model("Output tensor for inference response should not be empty.");
        else
            PyErr_Format(PyExc_TypeError, "an output is a Tensor, not %R", (PyObject *)Py_TYPE(t));
        Py_DECREF(tensors);
        return NULL;
    }
    return tensors;
}

static PyObject *response_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"output_tensors", "error", "parameters", NULL};
    PyObject *tensors = NULL, *error = Py_None, *parameters = NULL;

    if (!keywords && PyTuple_Size(args) == 1) /* as most models do; it saves the parsing */
        tensors = PyTuple_GetItem(args, 0);
    else if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OOO:InferenceResponse",
                                          child_keywords(names), &tensors, &error, &parameters))
        return NULL;
    if (error != Py_None && !error_check(error)) {
        PyErr_Format(PyExc_TypeError, "a response's error is a TritonError, not %R",
                     (PyObject *)Py_TYPE(error));
        return NULL;
    }
    Py_INCREF(error);
    tensors = check_tensors(tensors);
    return build_response(type, tensors, error, tensors ? child_parameters(parameters) : NULL);
}

PyObject *response_error_make(PyObject *text)
{
    PyObject *error = error_make(text, TRITONSERVER_ERROR_INTERNAL);

    return build_response(response_type, PyTuple_New(0), error, PyUnicode_FromString(""));
}

static void response_dealloc(PyObject *self)
{
    Py_XDECREF(as_response(self)->tensors);
    Py_XDECREF(as_response(self)->error);
    Py_XDECREF(as_response(self)->parameters);
    child_free(self);
}

/* is_wanted - is the tensor at this place of its response among the outputs? They are in the same
 * order most of the time. */
static bool is_wanted(PyObject *tensor, PyObject *outputs, Py_ssize_t place)
{
    const Py_ssize_t n = outputs ? PyTuple_Size(outputs) : 0;
    PyObject *name = tensor_name(tensor);

    PyObject *wanted = place < n ? PyTuple_GetItem(outputs, place) : NULL;

    if (n == 0 || wanted == name || (wanted && PyUnicode_Compare(wanted, name) == 0))
        return true;
    return PySequence_Contains(outputs, name) == 1;
}

int response_pack(struct parcel *p, PyObject *response, PyObject *outputs)
{
    const struct response *r = as_response(response);
    const Py_ssize_t n = PyTuple_Size(r->tensors);
    uint32_t n_wanted = 0;

    if (r->error != Py_None) {
        pack_u8(&p->fields, RESPONSE_ERROR);
        pack_u32(&p->fields, error_code(r->error));
        return parcel_str(p, error_message(r->error));
    }
    pack_u8(&p->fields, RESPONSE_TENSORS);
    if (parcel_str(p, r->parameters))
        return -1;
    for (Py_ssize_t i = 0; i < n; i++)
        n_wanted += is_wanted(PyTuple_GetItem(r->tensors, i), outputs, i);
    pack_u32(&p->fields, n_wanted);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *tensor = PyTuple_GetItem(r->tensors, i);

        if (is_wanted(tensor, outputs, i) && tensor_pack(p, tensor))
            return -1;
    }
    return 0;
}

void response_pack_none(struct parcel *p, uint32_t release_flags)
{
    pack_u8(&p->fields, RESPONSE_NONE);
    pack_u32(&p->fields, release_flags);
}

static PyObject *decode_str(struct unpacker *u)
{
    size_t len;
    const char *text = unpack_str(u, &len);

    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
}

static PyObject *unpack_tensors(struct unpacker *u, PyObject *block)
{
    const uint32_t n = unpack_count(u, PROTOCOL_MAX_TENSORS, 1);
    PyObject *tensors = PyTuple_New(n);

    for (uint32_t i = 0; tensors && i < n; i++) {
        PyObject *t = tensor_unpack(u, block);

        if (!t || PyTuple_SetItem(tensors, i, t))
            Py_CLEAR(tensors);
    }
    return tensors;
}

PyObject *response_unpack(uint64_t at, uint64_t size_bytes, bool *ret_last)
{
    const char *data = link_find(at, size_bytes);
    struct unpacker u = {.at = data, .left = data ? size_bytes : 0};
    PyObject *block = block_down(at), *tensors, *error = Py_None, *parameters;

    *ret_last = true;
    if (!block)
        return NULL;
    *ret_last = unpack_u32(&u) & CALL_LAST;
    const uint8_t kind = unpack_u8(&u);

    if (kind == RESPONSE_ERROR) {
        const uint32_t code = unpack_u32(&u);
        PyObject *message = decode_str(&u);

        error = message ? error_make(message, code) : NULL;
        Py_XDECREF(message);
    } else {
        Py_INCREF(error);
    }
    parameters = kind == RESPONSE_TENSORS ? decode_str(&u) : PyUnicode_FromString("");
    tensors = kind == RESPONSE_TENSORS ? unpack_tensors(&u, block) : PyTuple_New(0);
    Py_DECREF(block);
    return build_response(response_type, tensors, error, parameters);
}

static PyObject *response_output_tensors(PyObject *self, PyObject *unused)
{
    return PySequence_List(as_response(self)->tensors);
}

bool response_is_exact(PyObject *object)
{
    return Py_TYPE(object) == response_type;
}

PyObject *response_find_output(PyObject *response, PyObject *name)
{
    return tensor_find(as_response(response)->tensors, name);
}

static PyObject *response_has_error(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(as_response(self)->error != Py_None);
}

static PyObject *response_error(PyObject *self, PyObject *unused)
{
    Py_INCREF(as_response(self)->error);
    return as_response(self)->error;
}

static PyObject *response_parameters(PyObject *self, PyObject *unused)
{
    PyObject *parameters = as_response(self)->parameters;

    if (PyUnicode_GetLength(parameters) == 0)
        return PyUnicode_FromString("{}");
    Py_INCREF(parameters);
    return parameters;
}

int response_init(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"output_tensors", response_output_tensors, METH_NOARGS, "The outputs, a list of Tensors."},
        {"has_error", response_has_error, METH_NOARGS, "Is there an error in place of outputs?"},
        {"error", response_error, METH_NOARGS, "The TritonError, or None."},
        {"parameters", response_parameters, METH_NOARGS, "The parameters, as JSON."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {{Py_tp_new, response_new},
                                  {Py_tp_dealloc, response_dealloc},
                                  {Py_tp_methods, methods},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.InferenceResponse",
                               .basicsize = sizeof(struct response),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               .slots = slots};

    response_type = child_type(module, &spec);
    return response_type ? 0 : -1;
}
