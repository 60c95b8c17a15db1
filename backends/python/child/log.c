/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log - see log.h.
 */
#include "python/child/log.h"

#include "python/child/parcel.h"
#include "python/protocol.h"
#include "triton/core/tritonserver.h"

struct line {
    PyObject *text, *file;
    uint32_t level, number;
};

static const struct {
    const char *name;
    uint32_t level;
} LEVELS[] = {
    {"INFO", TRITONSERVER_LOG_INFO},
    {"WARNING", TRITONSERVER_LOG_WARN},
    {"ERROR", TRITONSERVER_LOG_ERROR},
    {"VERBOSE", TRITONSERVER_LOG_VERBOSE},
};

static int fill_line(struct parcel *p, void *what)
{
    const struct line *l = what;

    pack_u8(&p->fields, (uint8_t)l->level);
    if (parcel_str(p, l->file))
        return -1;
    pack_u32(&p->fields, l->number);
    return parcel_str(p, l->text);
}

static int send_line(struct line *l)
{
    struct parcel p;

    if (parcel_make(&p, fill_line, l))
        return -1;
    parcel_note(&p, NOTE_LOG, 0);
    return 0;
}

/* find_caller - the line of Python that logs. */
static int find_caller(struct line *l)
{
    PyObject *frame = (PyObject *)(void *)PyEval_GetFrame(); /* borrowed */
    PyObject *code = frame ? PyObject_GetAttrString(frame, "f_code") : NULL;
    PyObject *number = code ? PyObject_GetAttrString(frame, "f_lineno") : NULL;

    l->file = number ? PyObject_GetAttrString(code, "co_filename") : NULL;
    if (!frame)
        l->file = PyUnicode_FromString("model.py");
    l->number = number && PyLong_Check(number) ? (uint32_t)PyLong_AsLong(number) : 0;
    Py_XDECREF(number);
    Py_XDECREF(code);
    return l->file ? 0 : -1;
}

static PyObject *log_text(PyObject *text, uint32_t level)
{
    struct line l = {.text = text, .level = level};

    if (find_caller(&l))
        return NULL;
    const int failed = send_line(&l);

    Py_DECREF(l.file);
    if (failed)
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

void log_error(PyObject *text)
{
    struct line l = {.text = text, .level = TRITONSERVER_LOG_ERROR};

    l.file = PyUnicode_FromString("model.py");
    if (!l.file || send_line(&l))
        PyErr_Print();
    Py_XDECREF(l.file);
}

static PyObject *log_with_level(PyObject *unused, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"message", "level", NULL};
    PyObject *text;
    unsigned int level = TRITONSERVER_LOG_INFO;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|I:log", child_keywords(names), &text,
                                     &level))
        return NULL;
    if (level > TRITONSERVER_LOG_VERBOSE) {
        PyErr_Format(PyExc_ValueError, "%u is not a level of Logger", level);
        return NULL;
    }
    return log_text(text, level);
}

static PyObject *log_at(PyObject *args, PyObject *keywords, uint32_t level)
{
    static const char *const names[] = {"message", NULL};
    PyObject *text;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U:log", child_keywords(names), &text))
        return NULL;
    return log_text(text, level);
}

static PyObject *log_info(PyObject *unused, PyObject *args, PyObject *keywords)
{
    return log_at(args, keywords, TRITONSERVER_LOG_INFO);
}

static PyObject *log_warn(PyObject *unused, PyObject *args, PyObject *keywords)
{
    return log_at(args, keywords, TRITONSERVER_LOG_WARN);
}

static PyObject *log_error_text(PyObject *unused, PyObject *args, PyObject *keywords)
{
    return log_at(args, keywords, TRITONSERVER_LOG_ERROR);
}

static PyObject *log_verbose(PyObject *unused, PyObject *args, PyObject *keywords)
{
    return log_at(args, keywords, TRITONSERVER_LOG_VERBOSE);
}

#define LOG_FLAGS (METH_VARARGS | METH_KEYWORDS | METH_STATIC)

int log_init(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"log", WITH_KEYWORDS(log_with_level), LOG_FLAGS, "Logs a text at a level, INFO if none."},
        {"log_info", WITH_KEYWORDS(log_info), LOG_FLAGS, "Logs what is worth knowing."},
        {"log_warn", WITH_KEYWORDS(log_warn), LOG_FLAGS, "Logs a warning."},
        {"log_error", WITH_KEYWORDS(log_error_text), LOG_FLAGS, "Logs an error."},
        {"log_verbose", WITH_KEYWORDS(log_verbose), LOG_FLAGS, "Logs a detail."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, NULL}};
    static PyType_Slot no_slots[] = {{0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.Logger",
                               .basicsize = sizeof(PyObject),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};
    static PyType_Spec level_spec = {.name = "c_python_backend_utils.LogLevel",
                                     .basicsize = sizeof(PyObject),
                                     .flags = Py_TPFLAGS_DEFAULT,
                                     .slots = no_slots};
    PyObject *logger = (PyObject *)(void *)child_type(module, &spec);
    PyObject *level = logger ? (PyObject *)(void *)child_type(module, &level_spec) : NULL;

    if (!level || PyObject_SetAttrString(logger, "LogLevel", level))
        return -1;
    for (size_t i = 0; i < sizeof LEVELS / sizeof *LEVELS; i++) {
        if (child_constant(logger, LEVELS[i].name, LEVELS[i].level) ||
            child_constant(level, LEVELS[i].name, LEVELS[i].level))
            return -1;
    }
    return 0;
}
