/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traceback - see traceback.h.
 */
#include "python/child/traceback.h"

#define MAX_FRAMES 200

/* format_frame - of an entry of a traceback. */
static PyObject *format_frame(PyObject *entry)
{
    PyObject *frame = PyObject_GetAttrString(entry, "tb_frame");
    PyObject *code = frame ? PyObject_GetAttrString(frame, "f_code") : NULL;
    PyObject *file = code ? PyObject_GetAttrString(code, "co_filename") : NULL;
    PyObject *name = file ? PyObject_GetAttrString(code, "co_name") : NULL;
    PyObject *line = name ? PyObject_GetAttrString(entry, "tb_lineno") : NULL;
    PyObject *text = line ? PyUnicode_FromFormat("  %S(%S): %S\n", file, line, name) : NULL;

    Py_XDECREF(line);
    Py_XDECREF(name);
    Py_XDECREF(file);
    Py_XDECREF(code);
    Py_XDECREF(frame);
    return text;
}

/* add_frames - appends "At:" and a line for each frame, the innermost first. */
static int add_frames(PyObject *parts, PyObject *traceback)
{
    const Py_ssize_t head = PyList_Size(parts);
    int failed = 0;

    Py_INCREF(traceback);
    for (int n = 0; !failed && traceback != Py_None && n < MAX_FRAMES; n++) {
        PyObject *text = format_frame(traceback);
        PyObject *next = text ? PyObject_GetAttrString(traceback, "tb_next") : NULL;

        failed = !next || PyList_Insert(parts, head, text);
        Py_XDECREF(text);
        Py_DECREF(traceback);
        traceback = next;
    }
    Py_XDECREF(traceback);
    PyObject *at = failed ? NULL : PyUnicode_FromString("\n\nAt:\n");
    failed = !at || PyList_Insert(parts, head, at);
    Py_XDECREF(at);
    return failed ? -1 : 0;
}

/* add_summary - "ValueError: all went wrong". */
static int add_summary(PyObject *parts, PyObject *type, PyObject *value, bool whole)
{
    PyObject *name = whole ? PyObject_GetAttrString(type, "__name__") : NULL;
    PyObject *text = PyObject_Str(value);

    if (!text) {
        PyErr_Clear();
        text = PyUnicode_FromString("<MESSAGE UNAVAILABLE>");
    } else if (whole && PyUnicode_GetLength(text) == 0) {
        Py_DECREF(text);
        text = PyUnicode_FromString("<EMPTY MESSAGE>");
    }
    if (whole && name && text) {
        PyObject *both = PyUnicode_FromFormat("%U: %U", name, text);

        Py_DECREF(text);
        text = both;
    }
    const int failed = !text || (whole && !name) || PyList_Append(parts, text);
    Py_XDECREF(text);
    Py_XDECREF(name);
    return failed ? -1 : 0;
}

/* encodable - the text without lone surrogates, which UTF-8 does not have. Takes the reference. */
static PyObject *encodable(PyObject *text)
{
    if (text && !PyUnicode_AsUTF8AndSize(text, NULL)) {
        PyErr_Clear();
        PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
        PyObject *plain = bytes ? PyUnicode_FromEncodedObject(bytes, "utf-8", "replace") : NULL;

        Py_XDECREF(bytes);
        Py_DECREF(text);
        text = plain;
    }
    return text;
}

PyObject *traceback_take(bool whole)
{
    PyObject *type, *value, *traceback, *parts = NULL, *none = NULL, *text = NULL;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    parts = type && value ? PyList_New(0) : NULL;
    none = parts ? PyUnicode_FromString("") : NULL;
    if (none && !add_summary(parts, type, value, whole) &&
        (!whole || !traceback || !add_frames(parts, traceback)))
        text = encodable(PyUnicode_Join(none, parts));
    Py_XDECREF(none);
    Py_XDECREF(parts);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    while (!text) { /* out of memory: what has been freed by now suffices */
        PyErr_Clear();
        text = PyUnicode_FromString("an exception that has no text");
    }
    return text;
}
