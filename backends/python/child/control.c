/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control - see control.h.
 */
#include "python/child/control.h"

#include "python/child/reader.h"
#include "python/protocol.h"

struct loading {
    PyObject *name, *config, *files; /* files: dict of str to bytes, or NULL */
};

static int fill_overlay(struct parcel *p, PyObject *path, PyObject *content)
{
    char *bytes;
    Py_ssize_t n;

    if (parcel_str(p, path) || PyBytes_AsStringAndSize(content, &bytes, &n))
        return -1;
    pack_str(&p->fields, bytes, (size_t)n);
    return 0;
}

static int fill_loading(struct parcel *p, void *what)
{
    const struct loading *l = what;
    PyObject *path, *content;
    Py_ssize_t at = 0;
    const Py_ssize_t n_files = l->files ? PyDict_Size(l->files) : 0;
    const bool config = PyUnicode_GetLength(l->config) > 0;

    if (parcel_str(p, l->name))
        return -1;
    pack_u32(&p->fields, (uint32_t)n_files + config);
    if (config) {
        pack_text(&p->fields, "config");
        if (parcel_str(p, l->config))
            return -1;
    }
    while (l->files && PyDict_Next(l->files, &at, &path, &content)) {
        if (fill_overlay(p, path, content))
            return -1;
    }
    return 0;
}

/* check_overlay - a dict of str to bytes. */
static int check_overlay(const struct loading *l)
{
    PyObject *path, *content;
    Py_ssize_t at = 0;
    bool fits = !l->files || PyDict_Check(l->files);

    while (fits && l->files && PyDict_Next(l->files, &at, &path, &content))
        fits = PyUnicode_Check(path) && PyBytes_Check(content);
    if (!fits)
        raise_model("failed to load model '%U', files should be a dictionary of file paths and "
                    "file contents",
                    l->name);
    return fits ? 0 : -1;
}

static PyObject *return_none(int failed)
{
    if (failed)
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

PyObject *control_load(PyObject *module, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"model_name", "config", "files", NULL};
    struct loading l = {0};

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|UO:load_model", child_keywords(names),
                                     &l.name, &l.config, &l.files))
        return NULL;
    if (l.files == Py_None)
        l.files = NULL;
    if (check_overlay(&l))
        return NULL;
    PyObject *empty = PyUnicode_FromString("");
    if (!empty)
        return NULL;
    if (!l.config)
        l.config = empty;
    const int failed = reader_ask(NOTE_LOAD_MODEL, fill_loading, &l,
                                  "Failed to load model: ", REPLY_NOTHING, NULL);

    Py_DECREF(empty);
    return return_none(failed);
}

struct unloading {
    PyObject *name;
    int dependents;
};

static int fill_unloading(struct parcel *p, void *what)
{
    const struct unloading *u = what;

    if (parcel_str(p, u->name))
        return -1;
    pack_u8(&p->fields, (uint8_t)u->dependents);
    return 0;
}

PyObject *control_unload(PyObject *module, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"model_name", "unload_dependents", NULL};
    struct unloading u = {0};

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|p:unload_model", child_keywords(names),
                                     &u.name, &u.dependents))
        return NULL;
    return return_none(reader_ask(NOTE_UNLOAD_MODEL, fill_unloading, &u,
                                  "Failed to unload model: ", REPLY_NOTHING, NULL));
}

struct readiness {
    PyObject *name, *version; /* version: NULL: any */
};

static int fill_readiness(struct parcel *p, void *what)
{
    const struct readiness *r = what;

    if (parcel_str(p, r->name))
        return -1;
    if (r->version)
        return parcel_str(p, r->version);
    pack_text(&p->fields, "");
    return 0;
}

PyObject *control_is_ready(PyObject *module, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"model_name", "model_version", NULL};
    struct readiness r = {0};
    uint64_t ready = 0;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|U:is_model_ready", child_keywords(names),
                                     &r.name, &r.version) ||
        reader_ask(NOTE_IS_MODEL_READY, fill_readiness, &r,
                   "Failed to check model readiness: ", REPLY_U8, &ready))
        return NULL;
    return PyBool_FromLong(ready != 0);
}
