/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - see trace.h.
 */
#include "python/child/trace.h"

#include "triton/core/tritonserver.h"

struct trace {
    PyObject_HEAD uint64_t key;
    PyObject *context;
};

struct memory {
    PyObject_HEAD uint32_t type;
    int64_t id;
};

static PyTypeObject *trace_type, *memory_type;

static struct trace *as_trace(PyObject *object)
{
    return (struct trace *)(void *)object;
}

bool trace_check(PyObject *object)
{
    return PyObject_TypeCheck(object, trace_type);
}

uint64_t trace_key(PyObject *trace)
{
    return as_trace(trace)->key;
}

PyObject *trace_context(PyObject *trace)
{
    return as_trace(trace)->context;
}

PyObject *trace_make(uint64_t key, PyObject *context)
{
    struct trace *t = child_new(trace_type);

    if (!t)
        return NULL;
    t->key = key;
    Py_INCREF(context);
    t->context = context;
    return (PyObject *)t;
}

static void trace_dealloc(PyObject *self)
{
    Py_XDECREF(as_trace(self)->context);
    child_free(self);
}

static PyObject *trace_get_context(PyObject *self, PyObject *unused)
{
    PyObject *context = as_trace(self)->context;

    if (PyUnicode_GetLength(context) == 0)
        context = Py_None;
    Py_INCREF(context);
    return context;
}

static PyObject *make_memory(PyTypeObject *type, uint32_t kind, int64_t id)
{
    struct memory *m = child_new(type);

    if (!m)
        return NULL;
    m->type = kind;
    m->id = id;
    return (PyObject *)m;
}

PyObject *memory_make(uint32_t type, int64_t id)
{
    return make_memory(memory_type, type, id);
}

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"preferred_memory_type", "preferred_device_id", NULL};
    unsigned int kind;
    long long id = 0;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "I|L:PreferredMemory", child_keywords(names),
                                     &kind, &id))
        return NULL;
    if (kind != TRITONSERVER_MEMORY_CPU && kind != TRITONSERVER_MEMORY_GPU) {
        PyErr_Format(PyExc_ValueError, "%u is not a type of memory", kind);
        return NULL;
    }
    return make_memory(type, kind, id);
}

int memory_read(PyObject *memory, uint32_t *ret_type, int64_t *ret_id)
{
    const struct memory *m = (struct memory *)(void *)memory;

    if (!PyObject_TypeCheck(memory, memory_type)) {
        PyErr_Format(PyExc_TypeError, "preferred_memory is a PreferredMemory, not %R",
                     (PyObject *)Py_TYPE(memory));
        return -1;
    }
    *ret_type = m->type;
    *ret_id = m->id;
    return 0;
}

int trace_init(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"get_context", trace_get_context, METH_NOARGS, "The context of the trace, JSON, or None."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot trace_slots[] = {
        {Py_tp_dealloc, trace_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
    static PyType_Spec trace_spec = {.name = "c_python_backend_utils.InferenceTrace",
                                     .basicsize = sizeof(struct trace),
                                     .flags = Py_TPFLAGS_DEFAULT,
                                     .slots = trace_slots};
    static PyType_Slot memory_slots[] = {
        {Py_tp_new, memory_new}, {Py_tp_dealloc, child_free}, {0, NULL}};
    static PyType_Spec memory_spec = {.name = "c_python_backend_utils.PreferredMemory",
                                      .basicsize = sizeof(struct memory),
                                      .flags = Py_TPFLAGS_DEFAULT,
                                      .slots = memory_slots};

    trace_type = child_type(module, &trace_spec);
    memory_type = trace_type ? child_type(module, &memory_spec) : NULL;
    if (!memory_type ||
        child_constant(module, "TRITONSERVER_MEMORY_CPU", TRITONSERVER_MEMORY_CPU) ||
        child_constant(module, "TRITONSERVER_MEMORY_GPU", TRITONSERVER_MEMORY_GPU))
        return -1;
    return 0;
}
