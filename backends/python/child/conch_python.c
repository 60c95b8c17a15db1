/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conch_python - the extension: its types and functions, which triton_python_backend_utils.py gives
 * to models, and the main loop, which start.py runs.
 */
#include "python/child/block.h"
#include "python/child/call.h"
#include "python/child/child.h"
#include "python/child/control.h"
#include "python/child/error.h"
#include "python/child/link.h"
#include "python/child/log.h"
#include "python/child/loop.h"
#include "python/child/metric.h"
#include "python/child/model.h"
#include "python/child/request.h"
#include "python/child/response.h"
#include "python/child/sender.h"
#include "python/child/strings.h"
#include "python/child/tensor.h"
#include "python/child/trace.h"

static PyObject *count_free_bytes(PyObject *self, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(link_free_bytes());
}

/*
 * find_by_name - get_input_tensor_by_name() and get_output_tensor_by_name(), which most models call
 * for each tensor. NotImplemented: a type that the model has derived, or a stand-in in its own
 * test; triton_python_backend_utils.py asks that by its methods.
 */
static PyObject *find_by_name(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    if (n == 2 && request_is_exact(args[0]))
        return request_find_input(args[0], args[1]);
    if (n == 2 && response_is_exact(args[0]))
        return response_find_output(args[0], args[1]);
    Py_INCREF(Py_NotImplemented);
    return Py_NotImplemented;
}

/* init_memory - shared_memory.free_memory(), by which models look for leaks. */
static int init_memory(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"free_memory", count_free_bytes, METH_NOARGS,
         "Bytes of our shared memory that nobody has."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.SharedMemory",
                               .basicsize = sizeof(PyObject),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};
    PyTypeObject *type = child_type(module, &spec);
    PyObject *memory = type ? child_new(type) : NULL;

    return memory ? PyModule_AddObject(module, "shared_memory", memory) : -1;
}

PyMODINIT_FUNC PyInit_conch_python(void);

PyMODINIT_FUNC PyInit_conch_python(void)
{
    static PyMethodDef functions[] = {
        {"run", loop_run, METH_O, NULL},
        {"fail", loop_fail, METH_VARARGS, NULL},
        {"get_model_dir", model_dir, METH_NOARGS, "The folder of the model's version."},
        {"empty", WITH_KEYWORDS(tensor_empty), METH_VARARGS | METH_KEYWORDS,
         "A tensor to be filled by as_numpy(): as an output it is not copied."},
        {"find_by_name", WITH_KEYWORDS(find_by_name), METH_FASTCALL, NULL},
        {"load_model", WITH_KEYWORDS(control_load), METH_VARARGS | METH_KEYWORDS,
         "Loads a model, and waits for it."},
        {"unload_model", WITH_KEYWORDS(control_unload), METH_VARARGS | METH_KEYWORDS,
         "Begins to unload a model."},
        {"is_model_ready", WITH_KEYWORDS(control_is_ready), METH_VARARGS | METH_KEYWORDS,
         "Can a model be asked?"},
        {"deserialize_bytes_tensor", strings_deserialize, METH_O,
         "An array of bytes, of their lengths and contents one behind the other."},
        {"serialize_byte_tensor", tensor_serialize, METH_O,
         "The lengths and contents of an array's strings, one behind the other."},
        {NULL, NULL, 0, NULL},
    };
    static PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                     .m_name = "conch_python",
                                     .m_doc = "What triton_python_backend_utils is made of.",
                                     .m_size = -1,
                                     .m_methods = functions};
    int (*const parts[])(PyObject * module) = {
        raise_model_init, block_init,   tensor_init, error_init, response_init, sender_init,
        trace_init,       request_init, call_init,   log_init,   metric_init,   init_memory,
    };
    PyObject *module = PyModule_Create(&definition);

    for (size_t i = 0; module && i < sizeof parts / sizeof *parts; i++) {
        if (parts[i](module))
            Py_CLEAR(module);
    }
    return module;
}
