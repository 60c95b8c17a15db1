/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child - see child.h.
 */
#include "python/child/child.h"

#include <string.h>

static PyObject *model_exception; /* TritonModelException */

void *child_new(PyTypeObject *type)
{
    return PyType_GenericAlloc(type, 0);
}

void child_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);

    release(self);
    Py_DECREF(type);
}

PyTypeObject *child_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    const char *dot = strrchr(spec->name, '.');

    if (!type)
        return NULL;
    Py_INCREF(type);
    if (PyModule_AddObject(module, dot ? dot + 1 : spec->name, type)) {
        Py_DECREF(type);
        Py_DECREF(type);
        return NULL;
    }
    return (PyTypeObject *)(void *)type;
}

const char *child_text(PyObject *str, size_t *ret_len)
{
    Py_ssize_t len;
    const char *text = NULL;

    if (PyUnicode_Check(str))
        text = PyUnicode_AsUTF8AndSize(str, &len);
    else
        PyErr_Format(PyExc_TypeError, "expected a str, not %R", (PyObject *)Py_TYPE(str));
    if (text)
        *ret_len = (size_t)len;
    return text;
}

int child_constant(PyObject *owner, const char *name, long value)
{
    PyObject *number = PyLong_FromLong(value);
    const int failed = number ? PyObject_SetAttrString(owner, name, number) : -1;

    Py_XDECREF(number);
    return failed;
}

PyObject *child_name(const char *text, size_t len)
{
    enum { N_KEPT = 512, LONGEST = 64 };
    static PyObject *kept[N_KEPT];
    uint32_t hash = (uint32_t)len;
    size_t len_before;

    for (size_t i = 0; i < len && len <= LONGEST; i++)
        hash = hash * 31 + (unsigned char)text[i];
    PyObject **place = &kept[hash % N_KEPT];
    const char *before = len <= LONGEST && *place ? child_text(*place, &len_before) : NULL;

    if (!before || len_before != len || memcmp(before, text, len) != 0) {
        PyObject *name = PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, NULL);

        if (!name || len > LONGEST)
            return name;
        PyUnicode_InternInPlace(&name);
        Py_XDECREF(*place);
        *place = name;
    }
    Py_INCREF(*place);
    return *place;
}

PyObject *child_json(PyObject *object)
{
    static PyObject *dumps;

    if (!dumps) {
        PyObject *json = PyImport_ImportModule("json");

        dumps = json ? PyObject_GetAttrString(json, "dumps") : NULL;
        Py_XDECREF(json);
    }
    return dumps ? PyObject_CallFunctionObjArgs(dumps, object, NULL) : NULL;
}

PyObject *child_parameters(PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (!dict || dict == Py_None || (PyDict_Check(dict) && PyDict_Size(dict) == 0))
        return PyUnicode_FromString("");
    if (!PyDict_Check(dict)) {
        PyErr_Format(PyExc_TypeError, "parameters are a dict, not %R", (PyObject *)Py_TYPE(dict));
        return NULL;
    }
    while (PyDict_Next(dict, &at, &key, &value)) {
        if (!PyUnicode_Check(key)) {
            raise_model("Expect parameters keys to have type str, found type %S",
                        (PyObject *)Py_TYPE(key));
            return NULL;
        }
        if (!PyLong_Check(value) && !PyUnicode_Check(value) && !PyFloat_Check(value)) {
            raise_model("Expect parameters values to have type bool/int/str, found type %S",
                        (PyObject *)Py_TYPE(value));
            return NULL;
        }
    }
    return child_json(dict);
}

int raise_model_init(PyObject *module)
{
    model_exception =
        PyErr_NewException("c_python_backend_utils.TritonModelException", PyExc_Exception, NULL);
    if (!model_exception)
        return -1;
    Py_INCREF(model_exception);
    return PyModule_AddObject(module, "TritonModelException", model_exception);
}

void raise_model(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    PyErr_FormatV(model_exception, format, args);
    va_end(args);
}

bool raised_model(void)
{
    return PyErr_ExceptionMatches(model_exception);
}
