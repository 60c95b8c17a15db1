/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call - see call.h.
 */
#include "python/child/call.h"

#include "python/child/reader.h"
#include "python/child/request.h"
#include "python/child/response.h"
#include "python/child/trace.h"
#include "python/protocol.h"

/* The responses of one call, those that have come and those that will. */
struct iterator {
    PyObject_HEAD struct call *call; /* NULL: the last response has come */
    PyObject *responses;             /* list of all that have come: a model may iterate again */
    Py_ssize_t place;                /* of the next one */
    bool waits;                      /* a thread waits for the next one */
};

static PyTypeObject *iterator_type;
static bool allowed;
static uint64_t batch_key; /* of the only request that is being executed; 0: none, or several */

void call_allow(bool allow)
{
    allowed = allow;
}

void call_batch(uint64_t only_key)
{
    batch_key = only_key;
}

static struct iterator *as_iterator(PyObject *object)
{
    return (struct iterator *)(void *)object;
}

static void close_iterator(struct iterator *it)
{
    struct call *c = it->call;

    it->call = NULL;
    if (c)
        call_close(c);
}

static void iterator_dealloc(PyObject *self)
{
    close_iterator(as_iterator(self));
    Py_XDECREF(as_iterator(self)->responses);
    child_free(self);
}

static PyObject *iterator_iter(PyObject *self)
{
    struct iterator *it = as_iterator(self);

    if (!it->call && it->place == PyList_Size(it->responses))
        it->place = 0;
    Py_INCREF(self);
    return self;
}

/* await_response - the next one that comes; NULL without an exception: none any more. */
static PyObject *await_response(struct iterator *it)
{
    uint64_t at, size_bytes;
    bool last;

    if (!it->call)
        return NULL;
    if (it->waits) {
        PyErr_SetString(PyExc_ValueError, "another thread waits for the next response");
        return NULL;
    }
    it->waits = true;
    const bool came = call_next(it->call, &at, &size_bytes);
    it->waits = false;
    if (!came) {
        close_iterator(it);
        return NULL;
    }
    PyObject *response = response_unpack(at, size_bytes, &last);

    if (last)
        close_iterator(it);
    return response;
}

static PyObject *iterator_next(PyObject *self)
{
    struct iterator *it = as_iterator(self);
    PyObject *response;

    if (it->place < PyList_Size(it->responses)) {
        response = PyList_GetItem(it->responses, it->place++);
        Py_XINCREF(response);
        return response;
    }
    response = await_response(it);
    if (!response) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_StopIteration, "Iteration is done for the responses.");
        return NULL;
    }
    if (PyList_Append(it->responses, response)) {
        Py_DECREF(response);
        return NULL;
    }
    it->place++;
    return response;
}

static PyObject *iterator_cancel(PyObject *self, PyObject *unused)
{
    if (as_iterator(self)->call)
        call_cancel(as_iterator(self)->call);
    Py_INCREF(Py_None);
    return Py_None;
}

/* Sending. */

struct calling {
    const struct request *request;
    bool decoupled;
    uint32_t slot;
};

static int fill_call(struct parcel *p, void *what)
{
    const struct calling *c = what;
    const uint64_t key = trace_key(c->request->trace);

    if (parcel_str(p, c->request->model_name))
        return -1;
    pack_i64(&p->fields, c->request->model_version);
    pack_u64(&p->fields, key ? key : batch_key);
    pack_u8(&p->fields, c->decoupled);
    pack_u32(&p->fields, c->slot);
    return request_pack(p, c->request);
}

/* send_call - an iterator over the responses. waits, arrived, owner: see call_open(); takes no
 * reference of it. */
static PyObject *send_call(const struct request *r, bool decoupled, struct iterator *it, bool waits,
                           void (*arrived)(PyObject *owner), PyObject *owner)
{
    struct calling what = {.request = r, .decoupled = decoupled};
    struct parcel p;

    it->call = call_open(waits, arrived, owner);
    if (!it->call)
        return NULL;
    what.slot = call_slot(it->call);
    if (parcel_make(&p, fill_call, &what)) {
        call_forget(it->call);
        it->call = NULL;
        return NULL;
    }
    Py_XINCREF(owner);
    parcel_note(&p, NOTE_CALL, call_id(it->call));
    return (PyObject *)it;
}

static struct iterator *prepare_call(PyObject *request, PyObject *args, PyObject *keywords,
                                     int *ret_decoupled)
{
    static const char *const names[] = {"decoupled", NULL};

    *ret_decoupled = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|p:exec", child_keywords(names),
                                     ret_decoupled))
        return NULL;
    if (!allowed) {
        raise_model("BLS is only supported during the 'execute' function.");
        return NULL;
    }
    if (!((struct request *)(void *)request)->model_name) {
        raise_model("a request of the server cannot be sent to another model; make a new one");
        return NULL;
    }
    struct iterator *it = child_new(iterator_type);
    if (it && !(it->responses = PyList_New(0))) {
        Py_DECREF((PyObject *)it);
        return NULL;
    }
    return it;
}

/* only_response - of a model that is not decoupled. Takes the iterator. */
static PyObject *only_response(PyObject *iterator)
{
    PyObject *response = iterator_next(iterator);

    if (!response && PyErr_ExceptionMatches(PyExc_StopIteration)) {
        PyErr_Clear();
        raise_model("An error occurred while performing BLS request.");
    }
    Py_DECREF(iterator);
    return response;
}

PyObject *call_exec(PyObject *request, PyObject *args, PyObject *keywords)
{
    int decoupled;
    struct iterator *it = prepare_call(request, args, keywords, &decoupled);

    if (!it)
        return NULL;
    if (!send_call((struct request *)(void *)request, decoupled, it, !decoupled, NULL, NULL)) {
        Py_DECREF((PyObject *)it);
        return NULL;
    }
    return decoupled ? (PyObject *)it : only_response((PyObject *)it);
}

/* Futures. */

/* settle_future - on the event loop: (future, value, is it an exception?). */
static PyObject *settle_future(PyObject *unused, PyObject *args)
{
    PyObject *future, *value;
    int failed;

    if (!PyArg_ParseTuple(args, "OOp", &future, &value, &failed))
        return NULL;
    PyObject *done = PyObject_CallMethod(future, "done", NULL);
    const int is_done = done ? PyObject_IsTrue(done) : -1;

    Py_XDECREF(done);
    if (is_done < 0)
        return NULL;
    if (is_done) { /* cancelled */
        Py_INCREF(Py_None);
        return Py_None;
    }
    return PyObject_CallMethod(future, failed ? "set_exception" : "set_result", "(O)", value);
}

/* take_exception - what has been raised, as an object. */
static PyObject *take_exception(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

/* tell_loop - a response is there: (loop, future, settle, iterator, decoupled). On the reader's
 * helper. */
static void tell_loop(PyObject *owner)
{
    PyObject *loop = PyTuple_GetItem(owner, 0), *future = PyTuple_GetItem(owner, 1);
    PyObject *settle = PyTuple_GetItem(owner, 2), *iterator = PyTuple_GetItem(owner, 3);
    const bool decoupled = PyTuple_GetItem(owner, 4) == Py_True;
    PyObject *value;

    Py_INCREF(iterator);
    value = decoupled ? iterator : only_response(iterator);
    const bool failed = !value;
    if (failed)
        value = take_exception();
    PyObject *handle = PyObject_CallMethod(loop, "call_soon_threadsafe", "OOOO", settle, future,
                                           value, failed ? Py_True : Py_False);
    if (!handle)
        PyErr_Clear(); /* the loop has been closed: nobody waits */
    Py_XDECREF(handle);
    Py_XDECREF(value);
    Py_DECREF(owner);
}

static PyObject *make_settle(void)
{
    static PyMethodDef method = {"settle_future", settle_future, METH_VARARGS, NULL};
    static PyObject *settle;

    if (!settle)
        settle = PyCFunction_NewEx(&method, NULL, NULL);
    return settle;
}

static PyObject *find_loop(void)
{
    static PyObject *get_running_loop;

    if (!get_running_loop) {
        PyObject *asyncio = PyImport_ImportModule("asyncio");

        get_running_loop = asyncio ? PyObject_GetAttrString(asyncio, "get_running_loop") : NULL;
        Py_XDECREF(asyncio);
    }
    return get_running_loop ? PyObject_CallFunctionObjArgs(get_running_loop, NULL) : NULL;
}

PyObject *call_async_exec(PyObject *request, PyObject *args, PyObject *keywords)
{
    int decoupled;
    struct iterator *it = prepare_call(request, args, keywords, &decoupled);
    PyObject *loop = it ? find_loop() : NULL;
    PyObject *future = loop ? PyObject_CallMethod(loop, "create_future", NULL) : NULL;
    PyObject *settle = future ? make_settle() : NULL;
    PyObject *owner = settle ? Py_BuildValue("(OOOOO)", loop, future, settle, (PyObject *)it,
                                             decoupled ? Py_True : Py_False)
                             : NULL;

    if (!owner ||
        !send_call((struct request *)(void *)request, decoupled, it, false, tell_loop, owner))
        Py_CLEAR(future);
    Py_XDECREF(owner);
    Py_XDECREF(loop);
    Py_XDECREF((PyObject *)it);
    return future;
}

int call_init(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"cancel", iterator_cancel, METH_NOARGS,
         "Cancels the request; no more responses are made."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {{Py_tp_dealloc, iterator_dealloc},
                                  {Py_tp_iter, iterator_iter},
                                  {Py_tp_iternext, iterator_next},
                                  {Py_tp_methods, methods},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.ResponseIterator",
                               .basicsize = sizeof(struct iterator),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};

    iterator_type = child_type(module, &spec);
    return iterator_type ? 0 : -1;
}
