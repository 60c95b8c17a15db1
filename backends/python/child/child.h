/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child - what the files of the extension conch_python share.
 *
 * The extension is built for the limited API of Python 3.8, so one file serves all versions from
 * then on. It never links libpython, and knows NumPy by its Python API and the array interface
 * alone. There is one interpreter and one model in the process, so its state is in static
 * variables; unless a comment says something else, the GIL guards them.
 *
 * Functions that return int return 0, or -1 with a Python exception set; those that return
 * PyObject * return a new reference, or NULL with an exception.
 */
#ifndef BACKENDS_PYTHON_CHILD_CHILD_H
#define BACKENDS_PYTHON_CHILD_CHILD_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* Every CPython since 3.3 exports it. The headers show it from the limited API of 3.10 on. */
#if Py_LIMITED_API + 0 < 0x030a0000
PyAPI_FUNC(const char *) PyUnicode_AsUTF8AndSize(PyObject *unicode, Py_ssize_t *size);
#endif

/* For PyArg_ParseTupleAndKeywords(), which writes none of the names. */
static inline char **child_keywords(const char *const *names)
{
    return (char **)(uintptr_t)names;
}

/* A method with keyword arguments, or of METH_FASTCALL, as a row of PyMethodDef. */
#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

/* The limited API has it from 3.10 on; the convention is the same since 3.7. */
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

/* child_new - an instance of a type of ours, its fields zero. */
void *child_new(PyTypeObject *type);
/* child_free - the last step of tp_dealloc. */
void child_free(PyObject *self);
/* child_type - makes a type and adds it to the module under the last part of its name. */
PyTypeObject *child_type(PyObject *module, PyType_Spec *spec);
/* child_constant - sets an attribute of a module or a type to a number. */
int child_constant(PyObject *owner, const char *name, long value);
/* child_text - the bytes of a str as UTF-8, borrowed from it. NULL with an exception. */
const char *child_text(PyObject *str, size_t *ret_len);
/* child_name - a str of UTF-8, for names of tensors: the same few come with each request, and those
 * that came last are kept. So a name of the model's code is mostly the same object. */
PyObject *child_name(const char *text, size_t len);
/* child_json - json.dumps(object), a str. */
PyObject *child_json(PyObject *object);
/* child_parameters - of a dict of str to bool, int, float or str, or None: JSON, "" of nothing. */
PyObject *child_parameters(PyObject *dict);

/* raise_model - raises TritonModelException, as Triton's own module does for all its errors. */
int raise_model_init(PyObject *module);
void raise_model(const char *format, ...);
/* raised_model - is that what has been raised? Then its text is all that a client is told. */
bool raised_model(void);

#endif
