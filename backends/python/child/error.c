/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error - see error.h.
 */
#include "python/child/error.h"

#include "triton/core/tritonserver.h"

struct error {
    PyObject_HEAD PyObject *message;
    uint32_t code;
};

static PyTypeObject *error_type;

static const struct {
    const char *name;
    uint32_t code;
} CODES[] = {
    {"UNKNOWN", TRITONSERVER_ERROR_UNKNOWN},
    {"INTERNAL", TRITONSERVER_ERROR_INTERNAL},
    {"NOT_FOUND", TRITONSERVER_ERROR_NOT_FOUND},
    {"INVALID_ARG", TRITONSERVER_ERROR_INVALID_ARG},
    {"UNAVAILABLE", TRITONSERVER_ERROR_UNAVAILABLE},
    {"UNSUPPORTED", TRITONSERVER_ERROR_UNSUPPORTED},
    {"ALREADY_EXISTS", TRITONSERVER_ERROR_ALREADY_EXISTS},
    {"CANCELLED", TRITONSERVER_ERROR_CANCELLED},
};

bool error_check(PyObject *object)
{
    return PyObject_TypeCheck(object, error_type);
}

PyObject *error_message(PyObject *error)
{
    return ((struct error *)(void *)error)->message;
}

uint32_t error_code(PyObject *error)
{
    return ((struct error *)(void *)error)->code;
}

static PyObject *make_error_of(PyTypeObject *type, PyObject *message, uint32_t code)
{
    struct error *e = child_new(type);

    if (!e)
        return NULL;
    Py_INCREF(message);
    e->message = message;
    e->code = code;
    return (PyObject *)e;
}

PyObject *error_make(PyObject *message, uint32_t code)
{
    return make_error_of(error_type, message, code);
}

static PyObject *error_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"message", "code", NULL};
    PyObject *message;
    unsigned int code = TRITONSERVER_ERROR_INTERNAL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|I:TritonError", child_keywords(names),
                                     &message, &code))
        return NULL;
    if (code > TRITONSERVER_ERROR_CANCELLED) {
        PyErr_Format(PyExc_ValueError, "%u is not a code of TritonError", code);
        return NULL;
    }
    return make_error_of(type, message, code);
}

static void error_dealloc(PyObject *self)
{
    Py_XDECREF(error_message(self));
    child_free(self);
}

static PyObject *error_get_message(PyObject *self, PyObject *unused)
{
    Py_INCREF(error_message(self));
    return error_message(self);
}

static PyObject *error_get_code(PyObject *self, PyObject *unused)
{
    return PyLong_FromUnsignedLong(error_code(self));
}

int error_init(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"message", error_get_message, METH_NOARGS, "The text."},
        {"code", error_get_code, METH_NOARGS, "The code, as TritonError.INTERNAL."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {{Py_tp_new, error_new},
                                  {Py_tp_dealloc, error_dealloc},
                                  {Py_tp_methods, methods},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.TritonError",
                               .basicsize = sizeof(struct error),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               .slots = slots};

    error_type = child_type(module, &spec);
    for (size_t i = 0; error_type && i < sizeof CODES / sizeof *CODES; i++) {
        if (child_constant((PyObject *)(void *)error_type, CODES[i].name, CODES[i].code))
            return -1;
    }
    return error_type ? 0 : -1;
}
