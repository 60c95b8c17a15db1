/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop - see loop.h.
 */
#include "python/child/loop.h"

#include <signal.h>
#include <stdlib.h>

#include "python/child/block.h"
#include "python/child/call.h"
#include "python/child/link.h"
#include "python/child/log.h"
#include "python/child/model.h"
#include "python/child/reader.h"
#include "python/child/request.h"
#include "python/child/response.h"
#include "python/child/sender.h"
#include "python/child/traceback.h"
#include "python/protocol.h"
#include "triton/core/tritonserver.h"

static bool decoupled; /* the model's transaction policy */

/* What a command is answered with by a note: an error's text, or values. */
struct verdict {
    PyObject *error; /* NULL: none */
    PyObject *text;  /* NULL: number is the only value */
    uint8_t number;
};

static int fill_verdict(struct parcel *p, void *what)
{
    const struct verdict *v = what;

    pack_u8(&p->fields, v->error != NULL);
    if (v->error)
        return parcel_str(p, v->error);
    if (v->text && parcel_str(p, v->text))
        return -1;
    pack_u8(&p->fields, v->number);
    return 0;
}

/* die - a command cannot be answered; the server sees the end of the process. */
static void die(void)
{
    PyErr_Print();
    exit(1);
}

/* send_verdict - takes the references. */
static void send_verdict(struct verdict *v, uint32_t kind, uint64_t id)
{
    struct parcel p;

    if (parcel_make(&p, fill_verdict, v))
        die();
    parcel_note(&p, kind, id);
    Py_CLEAR(v->error);
    Py_CLEAR(v->text);
}

static void complete_by_class(struct unpacker *u, PyObject *finish)
{
    struct verdict v = {.error = model_load(u, finish)};
    bool goes_on = false;

    if (!v.error)
        v.error = model_complete(&v.text, &goes_on);
    v.number = goes_on;
    send_verdict(&v, NOTE_COMPLETED, 0);
}

static void initialize_model(struct unpacker *u, PyObject *finish)
{
    struct verdict v = {.error = model_load(u, finish)};
    bool has_is_ready = false;

    decoupled = unpack_u8(u) != 0;
    (void)unpack_u8(u); /* force_cpu_only_input_tensors: all tensors are the CPU's */
    if (!v.error)
        v.error = model_initialize(&has_is_ready);
    v.number = has_is_ready;
    call_allow(!v.error);
    send_verdict(&v, NOTE_INITIALIZED, 0);
}

/* answer_is_ready - on a thread of its own. */
static void answer_is_ready(uint64_t id)
{
    bool ready;
    struct verdict v = {.error = model_is_ready(&ready)};

    v.number = ready;
    send_verdict(&v, NOTE_READINESS, id);
}

/* A batch. */

struct batch {
    PyObject *requests; /* tuple */
    PyObject *answer;   /* what execute() has returned: a list of responses, or None */
    PyObject *error;    /* text for all requests; NULL: none */
};

static struct request *request_of(const struct batch *b, Py_ssize_t i)
{
    return (struct request *)(void *)PyTuple_GetItem(b->requests, i);
}

static PyObject *response_of(const struct batch *b, Py_ssize_t i)
{
    return b->answer == Py_None ? Py_None : PyTuple_GetItem(b->answer, i);
}

/* unpack_batch - a tuple of requests. */
static PyObject *unpack_batch(struct unpacker *u, PyObject *block)
{
    const uint32_t n = unpack_count(u, PROTOCOL_MAX_REQUESTS, sizeof(uint64_t));
    PyObject *requests = PyTuple_New(n);

    for (uint32_t i = 0; requests && i < n; i++) {
        PyObject *request = request_unpack(u, block, decoupled);

        if (!request || PyTuple_SetItem(requests, i, request))
            Py_CLEAR(requests);
    }
    return requests;
}

/* check_response - of a request, as execute() has returned it. Raises TritonModelException. */
static int check_response(const struct request *r, PyObject *response)
{
    if (response == Py_None)
        return 0;
    if (r->release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) {
        raise_model("Expected a None object in the execute function return list for reschduled "
                    "request, found type '%S'.",
                    (PyObject *)Py_TYPE(response));
        return -1;
    }
    if (!response_check(response)) {
        raise_model("Expected an 'InferenceResponse' object in the execute function return list, "
                    "found type '%S'.",
                    (PyObject *)Py_TYPE(response));
        return -1;
    }
    return sender_answer(r->sender);
}

/* check_answer - makes a tuple of the list that execute() has returned. */
static int check_answer(struct batch *b)
{
    const Py_ssize_t n = PyTuple_Size(b->requests);
    PyObject *list = b->answer;

    if (list == Py_None)
        return 0;
    if (decoupled) {
        PyObject *name = model_instance_name();

        raise_model("Python model '%U' is using the decoupled mode and the execute function must "
                    "return None.",
                    name);
        Py_XDECREF(name);
        return -1;
    }
    if (!PyList_Check(list)) {
        raise_model("Expected a list in the execute return, found type '%S'.",
                    (PyObject *)Py_TYPE(list));
        return -1;
    }
    if (PyList_Size(list) != n) {
        raise_model("Number of InferenceResponse objects do not match the number of "
                    "InferenceRequest objects. InferenceRequest(s) size is:%zd, and "
                    "InferenceResponse(s) size is:%zd\n",
                    n, PyList_Size(list));
        return -1;
    }
    b->answer = PyList_AsTuple(list);
    Py_DECREF(list);
    if (!b->answer)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (check_response(request_of(b, i), response_of(b, i)))
            return -1;
    }
    return 0;
}

/* set_error - for all requests. Takes the reference of an exception's text. */
static void set_error(struct batch *b, PyObject *text)
{
    b->error = model_failed(text);
    for (Py_ssize_t i = 0; i < PyTuple_Size(b->requests); i++)
        sender_end(request_of(b, i)->sender);
}

static int fill_batch_answer(struct parcel *p, void *what)
{
    const struct batch *b = what;
    const Py_ssize_t n = PyTuple_Size(b->requests);

    pack_u8(&p->fields, b->error != NULL);
    if (b->error)
        return parcel_str(p, b->error);
    pack_u32(&p->fields, (uint32_t)n);
    for (Py_ssize_t i = 0; i < n; i++) {
        const struct request *r = request_of(b, i);
        PyObject *response = response_of(b, i);

        if (response == Py_None)
            response_pack_none(p, r->release_flags);
        else if (response_pack(p, response, r->outputs))
            return -1;
    }
    return 0;
}

static void answer_batch(struct batch *b)
{
    struct parcel p;

    if (parcel_make(&p, fill_batch_answer, b)) {
        set_error(b, traceback_take(true));
        if (parcel_make(&p, fill_batch_answer, b))
            die();
    }
    parcel_hand(&p);
    link_answer(p.at, p.size_bytes, p.kept_bytes);
}

/* execute_requests - takes the block. */
static void execute_requests(struct unpacker *u, PyObject *block)
{
    struct batch b = {.requests = unpack_batch(u, block)};

    Py_DECREF(block);
    if (!b.requests)
        die();
    call_batch(PyTuple_Size(b.requests) == 1 ? request_of(&b, 0)->key : 0);
    PyObject *error = model_execute(b.requests, decoupled, &b.answer);

    call_batch(0);
    if (!error && check_answer(&b))
        error = traceback_take(false);
    if (error)
        set_error(&b, error);
    answer_batch(&b);
    /* Behind the answer: this may take its time. */
    Py_XDECREF(b.error);
    Py_XDECREF(b.answer);
    Py_DECREF(b.requests);
}

static void finalize_model(void)
{
    PyObject *error;

    call_allow(false);
    error = model_finalize();
    if (error)
        log_error(error);
    Py_XDECREF(error);
}

/* run_command - returns false after the last one. */
static bool run_command(PyObject *finish)
{
    uint64_t at, size_bytes;

    link_await(&at, &size_bytes);
    const char *data = link_find(at, size_bytes);
    PyObject *block = block_down(at);
    struct unpacker u = {.at = data, .left = data ? size_bytes : 0};
    bool more = true;

    if (!block)
        die();
    switch (unpack_u32(&u)) {
    case COMMAND_EXECUTE:
        execute_requests(&u, block);
        return true;
    case COMMAND_INITIALIZE:
        initialize_model(&u, finish);
        break;
    case COMMAND_COMPLETE:
        complete_by_class(&u, finish);
        break;
    case COMMAND_FINALIZE:
        finalize_model();
        more = false;
        break;
    default:
        PyErr_SetString(PyExc_SystemError, "the server gives a command that there is not");
        die();
    }
    Py_DECREF(block);
    return more;
}

PyObject *loop_fail(PyObject *module, PyObject *args)
{
    PyObject *requests, *exception;
    struct batch b = {0};

    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &requests, &exception))
        return NULL;
    b.requests = requests;
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    PyObject *text = model_failed(traceback_take(true));
    int failed = 0;

    for (Py_ssize_t i = 0; !failed && i < PyTuple_Size(requests); i++)
        failed = sender_fail(request_of(&b, i)->sender, text);
    if (!failed)
        log_error(text);
    Py_DECREF(text);
    if (failed)
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

PyObject *loop_run(PyObject *module, PyObject *finish)
{
    signal(SIGINT, SIG_IGN); /* Ctrl-C is the server's */
    if (link_open() || reader_start(answer_is_ready))
        return NULL;
    link_note(NOTE_HELLO, PROTOCOL_VERSION, 0, 0);
    while (run_command(finish))
        ;
    Py_INCREF(Py_None);
    return Py_None;
}
