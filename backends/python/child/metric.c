/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metric - see metric.h. The server has the numbers; each change and each look is a question.
 */
#include "python/child/metric.h"

#include "python/child/reader.h"
#include "python/protocol.h"
#include "triton/core/tritonserver.h"

struct family {
    PyObject_HEAD uint64_t id; /* the server's; 0: it has none */
    uint32_t kind;
};

struct metric {
    PyObject_HEAD uint64_t id;
    PyObject *family;
};

static PyTypeObject *family_type, *metric_type;

static const struct {
    const char *name;
    uint32_t kind;
} KINDS[] = {
    {"COUNTER", TRITONSERVER_METRIC_KIND_COUNTER},
    {"GAUGE", TRITONSERVER_METRIC_KIND_GAUGE},
    {"HISTOGRAM", TRITONSERVER_METRIC_KIND_HISTOGRAM},
};

static struct family *as_family(PyObject *object)
{
    return (struct family *)(void *)object;
}

static struct metric *as_metric(PyObject *object)
{
    return (struct metric *)(void *)object;
}

static int fill_id(struct parcel *p, void *what)
{
    pack_u64(&p->fields, *(const uint64_t *)what);
    return 0;
}

/* delete_metric - at the end of an object. Nobody waits for the reply, which the reader drops. */
static void delete_metric(uint32_t kind, uint64_t id)
{
    PyObject *type, *value, *traceback;
    struct parcel p;

    if (!id)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    if (parcel_make(&p, fill_id, &id))
        PyErr_WriteUnraisable(NULL);
    else
        parcel_note(&p, kind, 0);
    PyErr_Restore(type, value, traceback);
}

/* Families. */

struct new_family {
    PyObject *name, *description;
    uint32_t kind;
};

static int fill_family(struct parcel *p, void *what)
{
    const struct new_family *n = what;

    if (parcel_str(p, n->name) || parcel_str(p, n->description))
        return -1;
    pack_u8(&p->fields, (uint8_t)n->kind);
    return 0;
}

static PyObject *family_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"name", "description", "kind", NULL};
    struct new_family n;
    unsigned int kind;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UUI:MetricFamily", child_keywords(names),
                                     &n.name, &n.description, &kind))
        return NULL;
    if (kind > TRITONSERVER_METRIC_KIND_HISTOGRAM) {
        PyErr_Format(PyExc_ValueError, "%u is not a kind of MetricFamily", kind);
        return NULL;
    }
    n.kind = kind;
    struct family *f = child_new(type);
    if (!f)
        return NULL;
    f->kind = kind;
    if (reader_ask(NOTE_FAMILY_NEW, fill_family, &n,
                   "Error when creating MetricFamily: ", REPLY_U64, &f->id)) {
        Py_DECREF((PyObject *)f);
        return NULL;
    }
    return (PyObject *)f;
}

static void family_dealloc(PyObject *self)
{
    delete_metric(NOTE_FAMILY_DELETE, as_family(self)->id);
    child_free(self);
}

/* Metrics. */

struct new_metric {
    uint64_t family;
    PyObject *labels;  /* dict, or NULL */
    PyObject *buckets; /* list, or NULL */
};

static int fill_labels(struct parcel *p, PyObject *labels)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    pack_u32(&p->fields, labels ? (uint32_t)PyDict_Size(labels) : 0);
    while (labels && PyDict_Next(labels, &at, &key, &value)) {
        PyObject *text = PyObject_Str(value); /* as genuine: 1 is "1" */
        const int failed = text ? parcel_str(p, key) || parcel_str(p, text) : -1;

        Py_XDECREF(text);
        if (failed)
            return -1;
    }
    return 0;
}

static int fill_metric(struct parcel *p, void *what)
{
    const struct new_metric *n = what;
    const Py_ssize_t n_buckets = n->buckets ? PyList_Size(n->buckets) : 0;

    pack_u64(&p->fields, n->family);
    if (fill_labels(p, n->labels))
        return -1;
    pack_u32(&p->fields, (uint32_t)n_buckets);
    for (Py_ssize_t i = 0; i < n_buckets; i++) {
        const double bucket = PyFloat_AsDouble(PyList_GetItem(n->buckets, i));

        if (PyErr_Occurred())
            return -1;
        pack_f64(&p->fields, bucket);
    }
    return 0;
}

static int check_metric(const struct family *f, struct new_metric *n)
{
    const char *why = NULL;
    const bool histogram = f->kind == TRITONSERVER_METRIC_KIND_HISTOGRAM;

    if (n->labels == Py_None)
        n->labels = NULL;
    if (n->buckets == Py_None)
        n->buckets = NULL;
    if (n->labels && !PyDict_Check(n->labels))
        why = "Failed to create metric. Labels must be a dictionary.";
    else if (n->buckets && !PyList_Check(n->buckets))
        why = "Failed to create metric. Buckets must be a list.";
    else if (histogram && !n->buckets)
        why = "Failed to create metric. Missing required buckets.";
    else if (!histogram && n->buckets && PyList_Size(n->buckets) > 0)
        why = "Failed to create metric. Unexpected buckets found.";
    if (why)
        raise_model("%s", why);
    return why ? -1 : 0;
}

static PyObject *family_metric(PyObject *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"labels", "buckets", NULL};
    struct new_metric n = {.family = as_family(self)->id};

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO:Metric", child_keywords(names), &n.labels,
                                     &n.buckets) ||
        check_metric(as_family(self), &n))
        return NULL;
    struct metric *m = child_new(metric_type);
    if (!m)
        return NULL;
    if (reader_ask(NOTE_METRIC_NEW, fill_metric, &n, "Error when creating Metric: ", REPLY_U64,
                   &m->id)) {
        Py_DECREF((PyObject *)m);
        return NULL;
    }
    Py_INCREF(self); /* a family ends behind its metrics */
    m->family = self;
    return (PyObject *)m;
}

static void metric_dealloc(PyObject *self)
{
    delete_metric(NOTE_METRIC_DELETE, as_metric(self)->id);
    Py_XDECREF(as_metric(self)->family);
    child_free(self);
}

struct change {
    uint64_t id;
    double value;
};

static int fill_change(struct parcel *p, void *what)
{
    const struct change *c = what;

    pack_u64(&p->fields, c->id);
    pack_f64(&p->fields, c->value);
    return 0;
}

static PyObject *change_metric(PyObject *self, PyObject *args, uint32_t kind, const char *prefix)
{
    struct change c = {.id = as_metric(self)->id};

    if (!PyArg_ParseTuple(args, "d", &c.value) ||
        reader_ask(kind, fill_change, &c, prefix, REPLY_NOTHING, NULL))
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *metric_increment(PyObject *self, PyObject *args)
{
    return change_metric(self, args, NOTE_METRIC_INCREMENT, "Failed to increment metric value: ");
}

static PyObject *metric_set(PyObject *self, PyObject *args)
{
    return change_metric(self, args, NOTE_METRIC_SET, "Failed to set metric value: ");
}

static PyObject *metric_observe(PyObject *self, PyObject *args)
{
    return change_metric(self, args, NOTE_METRIC_OBSERVE, "Failed to observe metric value: ");
}

static PyObject *metric_value(PyObject *self, PyObject *unused)
{
    union {
        uint64_t bits;
        double value;
    } got;

    if (reader_ask(NOTE_METRIC_VALUE, fill_id, &as_metric(self)->id,
                   "Failed to get metric value: ", REPLY_U64, &got.bits))
        return NULL;
    return PyFloat_FromDouble(got.value);
}

static int init_metric(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"increment", metric_increment, METH_VARARGS, "Adds a number."},
        {"set", metric_set, METH_VARARGS, "Sets the number, of a gauge."},
        {"observe", metric_observe, METH_VARARGS, "Counts a number in its bucket, of a histogram."},
        {"value", metric_value, METH_NOARGS, "The number."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, metric_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.Metric",
                               .basicsize = sizeof(struct metric),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};

    metric_type = child_type(module, &spec);
    return metric_type ? 0 : -1;
}

int metric_init(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"Metric", WITH_KEYWORDS(family_metric), METH_VARARGS | METH_KEYWORDS,
         "A new metric of the family, with labels and, of a histogram, buckets."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {{Py_tp_new, family_new},
                                  {Py_tp_dealloc, family_dealloc},
                                  {Py_tp_methods, methods},
                                  {0, NULL}};
    static PyType_Slot no_slots[] = {{0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.MetricFamily",
                               .basicsize = sizeof(struct family),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};
    static PyType_Spec kind_spec = {.name = "c_python_backend_utils.MetricKind",
                                    .basicsize = sizeof(PyObject),
                                    .flags = Py_TPFLAGS_DEFAULT,
                                    .slots = no_slots};

    if (init_metric(module) || !(family_type = child_type(module, &spec)))
        return -1;
    PyObject *kind = (PyObject *)(void *)child_type(module, &kind_spec);
    PyObject *family = (PyObject *)(void *)family_type;
    if (!kind || PyObject_SetAttrString(family, "MetricKind", kind))
        return -1;
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        if (child_constant(family, KINDS[i].name, KINDS[i].kind) ||
            child_constant(kind, KINDS[i].name, KINDS[i].kind))
            return -1;
    }
    return 0;
}
