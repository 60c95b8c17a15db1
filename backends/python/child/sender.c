/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sender - see sender.h.
 */
#include "python/child/sender.h"

#include "python/child/link.h"
#include "python/child/reader.h"
#include "python/child/response.h"
#include "python/protocol.h"
#include "triton/core/tritonserver.h"

struct sender {
    PyObject_HEAD uint64_t key;
    PyObject *outputs;
    uint32_t n_sent;
    bool decoupled;
    bool closed; /* the final response was sent, or execute() has answered */
};

static PyTypeObject *sender_type;

static struct sender *as_sender(PyObject *object)
{
    return (struct sender *)(void *)object;
}

PyObject *sender_make(uint64_t key, bool decoupled, PyObject *outputs)
{
    struct sender *s = child_new(sender_type);

    if (!s)
        return NULL;
    s->key = key;
    s->decoupled = decoupled;
    Py_INCREF(outputs);
    s->outputs = outputs;
    return (PyObject *)s;
}

static void sender_dealloc(PyObject *self)
{
    const struct sender *s = as_sender(self);

    if (!s->closed)
        link_note(NOTE_DROP_REQUEST, s->key, 0, 0);
    Py_XDECREF(s->outputs);
    child_free(self);
}

void sender_end(PyObject *sender)
{
    as_sender(sender)->closed = true;
}

/* count_response - refuses what the state does not allow, else enters it. */
static int count_response(struct sender *s, bool response, bool final)
{
    const char *why = NULL;

    if (!s->decoupled && response && s->n_sent > 0)
        why = "Unable to send response. Non-decoupled model cannot send more than one response.";
    else if (!s->decoupled && !response && final && s->n_sent == 0)
        why = "Unable to send response. Non-decoupled model cannot send complete final before "
              "sending a response.";
    else if (s->closed)
        why = "Unable to send response. Response sender has been closed.";
    if (why) {
        raise_model("%s", why);
        return -1;
    }
    s->n_sent += response;
    s->closed |= final;
    return 0;
}

int sender_answer(PyObject *sender)
{
    return count_response(as_sender(sender), true, true);
}

struct sending {
    const struct sender *sender;
    PyObject *response; /* None: flags alone */
    uint32_t flags;
};

static int fill_sending(struct parcel *p, void *what)
{
    const struct sending *s = what;

    pack_u32(&p->fields, s->flags);
    if (s->response != Py_None)
        return response_pack(p, s->response, s->sender->outputs);
    response_pack_none(p, 0);
    return 0;
}

int sender_fail(PyObject *sender, PyObject *text)
{
    struct sender *s = as_sender(sender);
    struct sending what = {.sender = s, .flags = TRITONSERVER_RESPONSE_COMPLETE_FINAL};
    struct parcel p;

    if (s->closed)
        return 0;
    what.response = response_error_make(text);
    if (!what.response)
        return -1;
    const int failed = parcel_make(&p, fill_sending, &what);

    if (!failed) {
        s->closed = true;
        parcel_note(&p, NOTE_RESPONSE, s->key);
    }
    Py_DECREF(what.response);
    return failed;
}

static PyObject *sender_send(PyObject *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"response", "flags", NULL};
    struct sender *s = as_sender(self);
    struct sending what = {.sender = s, .response = Py_None};
    struct parcel p;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OI:send", child_keywords(names),
                                     &what.response, &what.flags))
        return NULL;
    if (what.response != Py_None && !response_check(what.response)) {
        PyErr_Format(PyExc_TypeError, "a sender sends an InferenceResponse, not %R",
                     (PyObject *)Py_TYPE(what.response));
        return NULL;
    }
    if (what.flags != TRITONSERVER_RESPONSE_COMPLETE_FINAL && what.flags != 0) {
        raise_model("Unable to send response. Unsupported flag provided.");
        return NULL;
    }
    if (what.response == Py_None && what.flags == 0) {
        raise_model("Inference Response object must be provided when the response flags is set to "
                    "zero.");
        return NULL;
    }
    const struct sender before = *s;
    if (count_response(s, what.response != Py_None, what.flags != 0))
        return NULL;
    /* Another thread may send while large tensors are copied, so the state was entered before. */
    if (parcel_make(&p, fill_sending, &what)) {
        s->n_sent = before.n_sent;
        s->closed = before.closed;
        return NULL;
    }
    parcel_note(&p, NOTE_RESPONSE, s->key);
    Py_INCREF(Py_None);
    return Py_None;
}

static int fill_key(struct parcel *p, void *what)
{
    pack_u64(&p->fields, *(const uint64_t *)what);
    return 0;
}

PyObject *sender_is_cancelled(PyObject *sender, PyObject *unused)
{
    struct sender *s = as_sender(sender);
    uint64_t cancelled = 0;

    if (!s->closed && reader_ask(NOTE_IS_CANCELLED, fill_key, &s->key, "", REPLY_U8, &cancelled))
        return NULL;
    return PyBool_FromLong(cancelled != 0);
}

int sender_init(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"send", WITH_KEYWORDS(sender_send), METH_VARARGS | METH_KEYWORDS,
         "Sends a response, the final flag, or both."},
        {"is_cancelled", sender_is_cancelled, METH_NOARGS, "Has the request been cancelled?"},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, sender_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.InferenceResponseSender",
                               .basicsize = sizeof(struct sender),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};

    sender_type = child_type(module, &spec);
    return sender_type ? 0 : -1;
}
