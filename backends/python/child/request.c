/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request - see request.h.
 */
#include "python/child/request.h"

#include "python/child/call.h"
#include "python/child/sender.h"
#include "python/child/tensor.h"
#include "python/child/trace.h"
#include "python/protocol.h"
#include "triton/core/tritonserver.h"

enum { CORRELATION_NONE, CORRELATION_NUMBER, CORRELATION_TEXT };

static PyTypeObject *request_type;

static struct request *as_request(PyObject *object)
{
    return (struct request *)(void *)object;
}

static void request_dealloc(PyObject *self)
{
    struct request *r = as_request(self);

    Py_XDECREF(r->id);
    Py_XDECREF(r->correlation);
    Py_XDECREF(r->parameters);
    Py_XDECREF(r->context);
    Py_XDECREF(r->trace);
    Py_XDECREF(r->outputs);
    Py_XDECREF(r->inputs);
    Py_XDECREF(r->sender);
    Py_XDECREF(r->model_name);
    child_free(self);
}

/* Of the server. */

static PyObject *decode_text(struct unpacker *u)
{
    static PyObject *empty;
    size_t len;
    const char *text = unpack_str(u, &len);

    if (len)
        return PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
    if (!empty)
        empty = PyUnicode_FromString("");
    Py_XINCREF(empty);
    return empty;
}

static PyObject *decode_correlation(struct unpacker *u)
{
    switch (unpack_u8(u)) {
    case CORRELATION_NUMBER:
        return PyLong_FromUnsignedLongLong(unpack_u64(u));
    case CORRELATION_TEXT:
        return decode_text(u);
    default:
        return PyLong_FromLong(0);
    }
}

/* decode_items - a tuple of n items, each by decode(). */
static PyObject *decode_items(struct unpacker *u, uint32_t most, PyObject *block)
{
    const uint32_t n = unpack_count(u, most, 1);
    PyObject *items = PyTuple_New(n);

    for (uint32_t i = 0; items && i < n; i++) {
        size_t len;
        const char *text = block ? NULL : unpack_str(u, &len);
        PyObject *item = block ? tensor_unpack(u, block) : child_name(text, len);

        if (!item || PyTuple_SetItem(items, i, item))
            Py_CLEAR(items);
    }
    return items;
}

PyObject *request_unpack(struct unpacker *u, PyObject *block, bool decoupled)
{
    struct request *r = child_new(request_type);

    if (!r)
        return NULL;
    r->key = unpack_u64(u);
    r->model_version = -1;
    r->id = decode_text(u);
    r->correlation = r->id ? decode_correlation(u) : NULL;
    r->flags = unpack_u32(u);
    r->timeout_us = unpack_u64(u);
    r->priority = unpack_u64(u);
    r->parameters = r->correlation ? decode_text(u) : NULL;
    r->context = r->parameters ? decode_text(u) : NULL;
    r->outputs = r->context ? decode_items(u, PROTOCOL_MAX_TENSORS, NULL) : NULL;
    r->sender = r->outputs ? sender_make(r->key, decoupled, r->outputs) : NULL;
    r->inputs = r->sender ? decode_items(u, PROTOCOL_MAX_TENSORS, block) : NULL;
    if (r->inputs && !u->failed)
        return (PyObject *)r;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "a request of the server is incomplete");
    Py_DECREF((PyObject *)r);
    return NULL;
}

/* Of the model. */

/* check_items - a tuple of what the request may have, made of any sequence or set. */
static PyObject *check_items(struct request *r, PyObject *given, const char *what, bool tensors)
{
    PyObject *items = PySequence_Tuple(given);
    const Py_ssize_t n = items ? PyTuple_Size(items) : 0;

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(items, i);

        if (tensors ? tensor_check(item) : PyUnicode_Check(item) && PyUnicode_GetLength(item) > 0)
            continue;
        if (item == Py_None || (!tensors && PyUnicode_Check(item)))
            raise_model("%s for request with id '%U' and model name '%U' should not be empty.",
                        what, r->id, r->model_name);
        else
            PyErr_Format(PyExc_TypeError, "%s is a %s, not %R", what, tensors ? "Tensor" : "str",
                         (PyObject *)Py_TYPE(item));
        Py_DECREF(items);
        return NULL;
    }
    return items;
}

static int set_correlation(struct request *r, PyObject *given)
{
    if (given && !PyLong_Check(given) && !PyUnicode_Check(given)) {
        raise_model("Correlation ID must be integer or string");
        return -1;
    }
    if (given && PyLong_Check(given) && PyLong_AsUnsignedLongLong(given) == (uint64_t)-1 &&
        PyErr_Occurred())
        return -1;
    Py_XINCREF(given);
    r->correlation = given ? given : PyLong_FromLong(0);
    return r->correlation ? 0 : -1;
}

static int set_trace(struct request *r, PyObject *given)
{
    if (given && !trace_check(given)) {
        PyErr_Format(PyExc_TypeError, "trace is an InferenceTrace, not %R",
                     (PyObject *)Py_TYPE(given));
        return -1;
    }
    if (given) {
        Py_INCREF(given);
        r->trace = given;
        return 0;
    }
    PyObject *none = PyUnicode_FromString("");
    r->trace = none ? trace_make(0, none) : NULL;
    Py_XDECREF(none);
    return r->trace ? 0 : -1;
}

/* What the constructor is given. */
struct given {
    PyObject *id, *correlation, *inputs, *outputs, *model_name, *memory, *trace, *parameters;
    long long version, timeout;
    unsigned int flags;
};

static int set_request(struct request *r, const struct given *g)
{
    r->id = g->id ? g->id : PyUnicode_FromString("");
    Py_XINCREF(g->id);
    Py_INCREF(g->model_name);
    r->model_name = g->model_name;
    r->model_version = g->version;
    r->flags = g->flags;
    r->timeout_us = g->timeout > 0 ? (uint64_t)g->timeout : 0;
    r->memory_type = TRITONSERVER_MEMORY_CPU;
    if (!r->id || set_correlation(r, g->correlation) || set_trace(r, g->trace))
        return -1;
    if (g->memory && memory_read(g->memory, &r->memory_type, &r->memory_id))
        return -1;
    r->inputs = check_items(r, g->inputs, "Input tensor", true);
    r->outputs = r->inputs ? check_items(r, g->outputs, "Requested output name", false) : NULL;
    r->parameters = r->outputs ? child_parameters(g->parameters) : NULL;
    return r->parameters ? 0 : -1;
}

static PyObject *request_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {
        "request_id",       "correlation_id", "inputs",     "requested_output_names",
        "model_name",       "model_version",  "flags",      "timeout",
        "preferred_memory", "trace",          "parameters", NULL};
    struct given g = {.version = -1};

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|UOOOULILOOO:InferenceRequest",
                                     child_keywords(names), &g.id, &g.correlation, &g.inputs,
                                     &g.outputs, &g.model_name, &g.version, &g.flags, &g.timeout,
                                     &g.memory, &g.trace, &g.parameters))
        return NULL;
    if (!g.inputs || !g.outputs || !g.model_name) {
        PyErr_SetString(PyExc_TypeError,
                        "InferenceRequest() needs inputs, requested_output_names and model_name");
        return NULL;
    }
    struct request *r = child_new(type);
    if (r && set_request(r, &g)) {
        Py_DECREF((PyObject *)r);
        return NULL;
    }
    return (PyObject *)r;
}

int request_pack(struct parcel *p, const struct request *r)
{
    struct packer *f = &p->fields;
    const Py_ssize_t n_outputs = PyTuple_Size(r->outputs), n_inputs = PyTuple_Size(r->inputs);

    if (parcel_str(p, r->id))
        return -1;
    pack_u8(f, PyUnicode_Check(r->correlation) ? CORRELATION_TEXT : CORRELATION_NUMBER);
    if (PyUnicode_Check(r->correlation)) {
        if (parcel_str(p, r->correlation))
            return -1;
    } else {
        pack_u64(f, PyLong_AsUnsignedLongLong(r->correlation));
    }
    pack_u32(f, r->flags);
    pack_u64(f, r->timeout_us);
    pack_u64(f, r->priority);
    if (parcel_str(p, r->parameters) || parcel_str(p, trace_context(r->trace)))
        return -1;
    pack_u8(f, (uint8_t)r->memory_type);
    pack_u64(f, (uint64_t)r->memory_id);
    pack_u32(f, (uint32_t)n_outputs);
    for (Py_ssize_t i = 0; i < n_outputs; i++) {
        if (parcel_str(p, PyTuple_GetItem(r->outputs, i)))
            return -1;
    }
    pack_u32(f, (uint32_t)n_inputs);
    for (Py_ssize_t i = 0; i < n_inputs; i++) {
        if (tensor_pack(p, PyTuple_GetItem(r->inputs, i)))
            return -1;
    }
    return 0;
}

/* What a model asks. */

static PyObject *request_id(PyObject *self, PyObject *unused)
{
    Py_INCREF(as_request(self)->id);
    return as_request(self)->id;
}

static PyObject *request_correlation_id(PyObject *self, PyObject *unused)
{
    Py_INCREF(as_request(self)->correlation);
    return as_request(self)->correlation;
}

static PyObject *request_inputs(PyObject *self, PyObject *unused)
{
    return PySequence_List(as_request(self)->inputs);
}

PyObject *request_find_input(PyObject *request, PyObject *name)
{
    return tensor_find(as_request(request)->inputs, name);
}

bool request_is_exact(PyObject *object)
{
    return Py_TYPE(object) == request_type;
}

static PyObject *request_outputs(PyObject *self, PyObject *unused)
{
    return PySet_New(as_request(self)->outputs);
}

static PyObject *request_flags(PyObject *self, PyObject *unused)
{
    return PyLong_FromUnsignedLong(as_request(self)->flags);
}

static PyObject *request_set_flags(PyObject *self, PyObject *args)
{
    unsigned int flags;

    if (!PyArg_ParseTuple(args, "I:set_flags", &flags))
        return NULL;
    as_request(self)->flags = flags;
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *request_set_release_flags(PyObject *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"flags", NULL};
    unsigned int flags;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "I:set_release_flags", child_keywords(names),
                                     &flags))
        return NULL;
    as_request(self)->release_flags = flags;
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *request_timeout(PyObject *self, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(as_request(self)->timeout_us);
}

static PyObject *request_priority(PyObject *self, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(as_request(self)->priority);
}

static PyObject *request_preferred_memory(PyObject *self, PyObject *unused)
{
    return memory_make(as_request(self)->memory_type, as_request(self)->memory_id);
}

static PyObject *request_parameters(PyObject *self, PyObject *unused)
{
    PyObject *parameters = as_request(self)->parameters;

    if (PyUnicode_GetLength(parameters) == 0)
        return PyUnicode_FromString("{}");
    Py_INCREF(parameters);
    return parameters;
}

static PyObject *request_trace(PyObject *self, PyObject *unused)
{
    struct request *r = as_request(self);

    if (!r->trace)
        r->trace = trace_make(r->key, r->context);
    Py_XINCREF(r->trace);
    return r->trace;
}

static PyObject *request_get_response_sender(PyObject *self, PyObject *unused)
{
    PyObject *sender = as_request(self)->sender;

    if (!sender)
        sender = Py_None;
    Py_INCREF(sender);
    return sender;
}

static PyObject *request_is_cancelled(PyObject *self, PyObject *unused)
{
    PyObject *sender = as_request(self)->sender;

    return sender ? sender_is_cancelled(sender, NULL) : PyBool_FromLong(0);
}

static PyMethodDef request_methods[] = {
    {"request_id", request_id, METH_NOARGS, "The client's name for the request."},
    {"correlation_id", request_correlation_id, METH_NOARGS,
     "Its sequence, an int or a str; 0: none."},
    {"inputs", request_inputs, METH_NOARGS, "The inputs, a list of Tensors."},
    {"requested_output_names", request_outputs, METH_NOARGS, "The outputs that are wanted, a set."},
    {"flags", request_flags, METH_NOARGS, "TRITONSERVER_REQUEST_FLAG_…"},
    {"set_flags", request_set_flags, METH_VARARGS, "Sets TRITONSERVER_REQUEST_FLAG_…"},
    {"set_release_flags", WITH_KEYWORDS(request_set_release_flags), METH_VARARGS | METH_KEYWORDS,
     "Sets TRITONSERVER_REQUEST_RELEASE_…"},
    {"timeout", request_timeout, METH_NOARGS, "In microseconds; 0: none."},
    {"priority", request_priority, METH_NOARGS, "The priority; 0: the model's default."},
    {"preferred_memory", request_preferred_memory, METH_NOARGS,
     "The PreferredMemory for outputs, of a request that the model has made."},
    {"parameters", request_parameters, METH_NOARGS, "The parameters, as JSON."},
    {"trace", request_trace, METH_NOARGS,
     "The InferenceTrace, for requests that belong to this one."},
    {"get_response_sender", request_get_response_sender, METH_NOARGS,
     "The InferenceResponseSender; None of a request that the model has made."},
    {"is_cancelled", request_is_cancelled, METH_NOARGS, "Has the request been cancelled?"},
    {"exec", WITH_KEYWORDS(call_exec), METH_VARARGS | METH_KEYWORDS,
     "Asks the model, and waits for its response, or gives an iterator over its responses."},
    {"async_exec", WITH_KEYWORDS(call_async_exec), METH_VARARGS | METH_KEYWORDS,
     "Asks the model; a future of the running event loop."},
    {NULL, NULL, 0, NULL},
};

int request_init(PyObject *module)
{
    static PyType_Slot slots[] = {{Py_tp_new, request_new},
                                  {Py_tp_dealloc, request_dealloc},
                                  {Py_tp_methods, request_methods},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.InferenceRequest",
                               .basicsize = sizeof(struct request),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               .slots = slots};

    request_type = child_type(module, &spec);
    return request_type ? 0 : -1;
}
