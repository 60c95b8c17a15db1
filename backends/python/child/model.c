/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - see model.h.
 */
#include "python/child/model.h"

#include <unistd.h>

#include "python/child/traceback.h"
#include "python/protocol.h"

static struct {
    PyObject *folder;    /* of the version: a str */
    PyObject *arguments; /* dict: those of initialize() */
    PyObject *module;    /* model.py */
    PyObject *object;    /* TritonPythonModel() */
    PyObject *finish;
    PyObject *execute_name;
} model;

static PyObject *unpack_text(struct unpacker *u)
{
    size_t len;
    const char *text = unpack_str(u, &len);

    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "surrogateescape");
}

static int unpack_arguments(struct unpacker *u)
{
    const uint32_t n = unpack_count(u, PROTOCOL_MAX_TENSORS, 2 * sizeof(uint32_t));

    Py_XDECREF(model.arguments);
    model.arguments = PyDict_New();
    for (uint32_t i = 0; model.arguments && i < n; i++) {
        PyObject *key = unpack_text(u), *value = unpack_text(u);

        if (!key || !value || PyDict_SetItem(model.arguments, key, value))
            Py_CLEAR(model.arguments);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return model.arguments ? 0 : -1;
}

/* find_last - the part of a path behind its last slash, and what is in front; "" if there is none.
 */
static PyObject *find_last(PyObject *path, PyObject **ret_front)
{
    const Py_ssize_t len = PyUnicode_GetLength(path);
    const Py_ssize_t slash = PyUnicode_FindChar(path, '/', 0, len, -1);

    *ret_front = slash > 0 ? PyUnicode_Substring(path, 0, slash) : PyUnicode_FromString("");
    return PyUnicode_Substring(path, slash + 1, len);
}

static int append_search(PyObject *folder)
{
    PyObject *path = PySys_GetObject("path"); /* borrowed */

    return path && folder ? PyList_Append(path, folder) : -1;
}

/* make_name - the file's name without ".py": what import takes. */
static PyObject *make_name(PyObject *file)
{
    PyObject *suffix = PyUnicode_FromString(".py");
    const Py_ssize_t len = PyUnicode_GetLength(file);

    if (suffix && PyUnicode_Tailmatch(file, suffix, 0, len, 1) != 1)
        raise_model("Model name must end with '.py'. Model name is \"%U\".", file);
    Py_XDECREF(suffix);
    return PyErr_Occurred() ? NULL : PyUnicode_Substring(file, 0, len - 3);
}

/* append_own - the folder of triton_python_backend_utils, behind those of the model. */
static int append_own(void)
{
    PyObject *own = PyImport_ImportModule("conch_python");
    PyObject *path = own ? PyObject_GetAttrString(own, "__file__") : NULL;
    PyObject *folder = NULL, *name = path ? find_last(path, &folder) : NULL;
    const int failed = name ? append_search(folder) : -1;

    Py_XDECREF(name);
    Py_XDECREF(folder);
    Py_XDECREF(path);
    Py_XDECREF(own);
    return failed;
}

/* import_version - model.py in the version's folder: <version>.model, so that the model may import
 * what lies beside it by a relative name, too. */
static PyObject *import_version(PyObject *file)
{
    PyObject *parent = NULL, *version = find_last(model.folder, &parent);
    PyObject *name = version ? make_name(file) : NULL;
    PyObject *path = name ? PyUnicode_FromFormat("%U/%U", model.folder, file) : NULL;
    PyObject *bytes = path ? PyUnicode_EncodeFSDefault(path) : NULL;
    PyObject *module = NULL;

    if (bytes && access(PyBytes_AsString(bytes), F_OK)) {
        raise_model("Python model file not found in '%U'", path);
    } else if (bytes && !append_search(model.folder) && !append_search(parent) && !append_own()) {
        PyObject *whole = PyUnicode_FromFormat("%U.%U", version, name);

        module = whole ? PyImport_Import(whole) : NULL;
        Py_XDECREF(whole);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(path);
    Py_XDECREF(name);
    Py_XDECREF(version);
    Py_XDECREF(parent);
    return module;
}

/* import_backend - the model.py of a backend that is written in Python. */
static PyObject *import_backend(PyObject *path)
{
    PyObject *folder = NULL, *file = find_last(path, &folder);
    PyObject *name = file ? make_name(file) : NULL;
    PyObject *module =
        name && !append_search(folder) && !append_own() ? PyImport_Import(name) : NULL;

    Py_XDECREF(name);
    Py_XDECREF(file);
    Py_XDECREF(folder);
    return module;
}

PyObject *model_load(struct unpacker *u, PyObject *finish)
{
    PyObject *file;

    model.finish = finish;
    if (!model.execute_name)
        model.execute_name = PyUnicode_InternFromString("execute");
    Py_XDECREF(model.folder);
    model.folder = unpack_text(u);
    file = model.folder ? unpack_text(u) : NULL;
    if (!file || unpack_arguments(u) || u->failed)
        return traceback_take(true);
    const bool backend = PyUnicode_FindChar(file, '/', 0, PyUnicode_GetLength(file), 1) >= 0;

    if (!model.module)
        model.module = backend ? import_backend(file) : import_version(file);
    Py_DECREF(file);
    if (model.module)
        return NULL;
    return traceback_take(!raised_model());
}

/* count_threads - of Python; -1: an exception, which is forgotten. */
static long count_threads(void)
{
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *count = threading ? PyObject_CallMethod(threading, "active_count", NULL) : NULL;
    const long n = count ? PyLong_AsLong(count) : -1;

    Py_XDECREF(count);
    Py_XDECREF(threading);
    PyErr_Clear();
    return n;
}

PyObject *model_complete(PyObject **ret_config, bool *ret_goes_on)
{
    const long n_threads = count_threads();
    PyObject *utils = PyImport_ImportModule("triton_python_backend_utils");
    PyObject *type = utils ? PyObject_GetAttrString(utils, "ModelConfig") : NULL;
    PyObject *class = type ? PyObject_GetAttrString(model.module, "TritonPythonModel") : NULL;
    PyObject *given = PyDict_GetItemString(model.arguments, "model_config");
    PyObject *config = NULL, *dict = NULL;

    *ret_config = NULL;
    if (class && !PyObject_HasAttrString(class, "auto_complete_config")) {
        *ret_config = PyUnicode_FromString("");
    } else if (class && given) {
        PyObject *before = PyObject_CallFunctionObjArgs(type, given, NULL);

        config = before ? PyObject_CallMethod(class, "auto_complete_config", "(O)", before) : NULL;
        Py_XDECREF(before);
    }
    if (config && PyObject_IsInstance(config, type) == 1)
        dict = PyObject_GetAttrString(config, "_model_config");
    else if (config && !PyErr_Occurred())
        raise_model("auto_complete_config function in model '%S' must return a valid "
                    "pb.ModelConfig object.",
                    PyDict_GetItemString(model.arguments, "model_name"));
    if (dict)
        *ret_config = child_json(dict);
    *ret_goes_on = *ret_config && n_threads > 0 && count_threads() == n_threads;
    Py_XDECREF(dict);
    Py_XDECREF(config);
    Py_XDECREF(class);
    Py_XDECREF(type);
    Py_XDECREF(utils);
    return *ret_config ? NULL : traceback_take(!raised_model());
}

PyObject *model_initialize(bool *ret_has_is_ready)
{
    PyObject *class = PyObject_GetAttrString(model.module, "TritonPythonModel");
    PyObject *result;

    model.object = class ? PyObject_CallFunctionObjArgs(class, NULL) : NULL;
    Py_XDECREF(class);
    if (!model.object)
        return traceback_take(true);
    *ret_has_is_ready = PyObject_HasAttrString(model.object, "is_ready");
    if (!PyObject_HasAttrString(model.object, "initialize"))
        return NULL;
    result = PyObject_CallMethod(model.object, "initialize", "(O)", model.arguments);
    if (!result)
        return traceback_take(true);
    Py_DECREF(result);
    return NULL;
}

/* finish_result - awaits it if it is a coroutine, or leaves it to the background with the requests
 * that it is to answer (else NULL). Takes the reference of the result. */
static PyObject *finish_result(PyObject *result, PyObject *requests)
{
    PyObject *finished;

    if (!result || result == Py_None || result == Py_True || PyList_Check(result))
        return result;
    finished =
        PyObject_CallFunctionObjArgs(model.finish, result, requests ? requests : Py_None, NULL);
    Py_DECREF(result);
    return finished;
}

static PyObject *find_model_file(void)
{
    PyObject *file = PyObject_GetAttrString(model.module, "__file__");

    if (!file) {
        PyErr_Clear();
        file = PyUnicode_FromString("model.py");
    }
    return file;
}

/* lacks_execute - is that why there is an AttributeError? Then it is forgotten. */
static bool lacks_execute(void)
{
    PyObject *type, *value, *traceback;

    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
        return false;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyObject_HasAttr(model.object, model.execute_name)) {
        PyErr_Restore(type, value, traceback);
        return false;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return true;
}

PyObject *model_execute(PyObject *requests, bool decoupled, PyObject **ret_answer)
{
    PyObject *list = PySequence_List(requests), *result = NULL;

    *ret_answer = NULL;
    if (list)
        result = PyObject_CallMethodObjArgs(model.object, model.execute_name, list, NULL);
    Py_XDECREF(list);
    if (!result && lacks_execute()) {
        PyObject *file = find_model_file();

        raise_model("Python model %S does not implement `execute` method.", file);
        Py_XDECREF(file);
        return traceback_take(false);
    }
    *ret_answer = finish_result(result, decoupled ? requests : NULL);
    return *ret_answer ? NULL : traceback_take(true);
}

PyObject *model_is_ready(bool *ret_ready)
{
    PyObject *result;

    *ret_ready = true;
    if (!model.object || !PyObject_HasAttrString(model.object, "is_ready"))
        return NULL;
    result = finish_result(PyObject_CallMethod(model.object, "is_ready", NULL), NULL);
    const int ready = result ? PyObject_IsTrue(result) : -1;

    Py_XDECREF(result);
    if (ready < 0)
        return traceback_take(true);
    *ret_ready = ready;
    return NULL;
}

PyObject *model_finalize(void)
{
    PyObject *result = NULL;
    const bool has = model.object && PyObject_HasAttrString(model.object, "finalize");

    if (has)
        result = PyObject_CallMethod(model.object, "finalize", NULL);
    PyObject *text = has && !result ? traceback_take(true) : NULL;

    Py_XDECREF(result);
    Py_CLEAR(model.object);
    return text;
}

PyObject *model_failed(PyObject *text)
{
    PyObject *name = model_instance_name();
    PyObject *whole =
        name ? PyUnicode_FromFormat("Failed to process the request(s) for model '%U', message: %U",
                                    name, text)
             : NULL;

    Py_XDECREF(name);
    if (!whole) {
        PyErr_Clear();
        return text;
    }
    Py_DECREF(text);
    return whole;
}

PyObject *model_instance_name(void)
{
    PyObject *name = PyDict_GetItemString(model.arguments, "model_instance_name"); /* borrowed */

    Py_XINCREF(name);
    return name ? name : PyUnicode_FromString("");
}

PyObject *model_dir(PyObject *module, PyObject *unused)
{
    PyObject *folder = model.folder ? model.folder : Py_None;

    Py_INCREF(folder);
    return folder;
}
