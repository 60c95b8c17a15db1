/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader - see reader.h.
 */
#include "python/child/reader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "python/child/link.h"
#include "python/protocol.h"

/* A response that nobody has asked for yet. */
struct arrival {
    struct arrival *next;
    uint64_t at, size_bytes;
};

struct question {
    struct question *next;
    uint64_t id, at, size_bytes;
    bool answered;
    pthread_cond_t changed;
};

struct call {
    struct call *next;
    uint64_t id;
    struct arrival *first, **last;
    uint32_t slot; /* of the first response, from 1; 0: none, or it has been read */
    bool ended;    /* the last response has arrived */
    bool closed;   /* call_close(): the reader frees it with the last response */
    void (*arrived)(PyObject *owner);
    PyObject *owner;
    bool told;
    struct call *next_wake;
    pthread_cond_t changed;
};

/* A thread that runs Python for the reader; it starts with its first work. */
struct helper {
    bool started;
    pthread_cond_t changed;
};

static struct {
    pthread_mutex_t mu; /* never held while the GIL is waited for */
    uint64_t last_id;
    struct question *questions;
    struct call *calls;
    uint32_t slots_taken;                /* a bit each */
    struct call *wakes, **last_wake;     /* calls whose owner is to be told */
    struct arrival *ready, **last_ready; /* questions of the server: `at` is the id */
    struct helper waker, checker;
    void (*is_ready)(uint64_t id);
} reader = {.mu = PTHREAD_MUTEX_INITIALIZER,
            .last_wake = &reader.wakes,
            .last_ready = &reader.ready,
            .waker.changed = PTHREAD_COND_INITIALIZER,
            .checker.changed = PTHREAD_COND_INITIALIZER};

/* spare_memory - for the reader's small records. Without memory the process ends: it could not
 * keep its word to whoever waits. */
static void *spare_memory(size_t n)
{
    void *p = calloc(1, n);

    if (!p)
        abort();
    return p;
}

/* start_thread - without signals, which are the main thread's. */
static int start_thread(void *(*run)(void *arg))
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int why = pthread_create(&thread, &attributes, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return why;
}

static void wake_helper_locked(struct helper *h, void *(*run)(void *arg))
{
    if (!h->started && start_thread(run))
        abort();
    h->started = true;
    pthread_cond_signal(&h->changed);
}

/* What waits for a note. */

static struct question *find_question(uint64_t id)
{
    for (struct question *q = reader.questions; q; q = q->next) {
        if (q->id == id)
            return q;
    }
    return NULL;
}

static struct call *find_call(uint64_t id)
{
    for (struct call *c = reader.calls; c; c = c->next) {
        if (c->id == id)
            return c;
    }
    return NULL;
}

static void unlink_call(struct call *c)
{
    for (struct call **at = &reader.calls; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            return;
        }
    }
}

static void free_call(struct call *c)
{
    pthread_cond_destroy(&c->changed);
    free(c);
}

/* discard_response - gives back a response that nobody reads, and its tensors. */
static void discard_response(uint64_t at, uint64_t size_bytes)
{
    const char *data = link_find(at, size_bytes);
    struct unpacker u = {.at = data, .left = data ? size_bytes : 0};
    size_t len;

    (void)unpack_u32(&u); /* flags */
    if (unpack_u8(&u) == RESPONSE_TENSORS) {
        unpack_str(&u, &len);
        for (uint32_t n = unpack_count(&u, PROTOCOL_MAX_TENSORS, 1); n && !u.failed; n--) {
            unpack_str(&u, &len);
            unpack_u32(&u);
            for (uint32_t rank = unpack_count(&u, PROTOCOL_MAX_RANK, 8); rank; rank--)
                unpack_i64(&u);
            unpack_u64(&u);
            unpack_u64(&u);
            const uint64_t own = unpack_u64(&u);

            if (own && !u.failed)
                link_give_back(own);
        }
    }
    link_give_back(at);
}

static bool is_last_response(uint64_t at, uint64_t size_bytes)
{
    const char *data = link_find(at, size_bytes);
    struct unpacker u = {.at = data, .left = data ? size_bytes : 0};

    return (unpack_u32(&u) & CALL_LAST) || u.failed;
}

static void take_reply(const struct note *note)
{
    pthread_mutex_lock(&reader.mu);
    struct question *q = find_question(note->id);
    if (q) {
        q->at = note->at;
        q->size_bytes = note->size_bytes;
        q->answered = true;
        pthread_cond_signal(&q->changed);
    }
    pthread_mutex_unlock(&reader.mu);
    if (!q && note->n_blocks)
        link_give_back(note->at);
}

static void *run_waker(void *unused);
static void *run_checker(void *unused);

/* take_call_response - of a call. */
static void take_call_response(const struct note *note)
{
    const bool last = is_last_response(note->at, note->size_bytes);
    struct arrival *a = spare_memory(sizeof *a);

    pthread_mutex_lock(&reader.mu);
    struct call *c = find_call(note->id);
    if (c && last) {
        c->ended = true;
        unlink_call(c);
    }
    if (c && !c->closed) {
        *a = (struct arrival){.at = note->at, .size_bytes = note->size_bytes};
        *c->last = a;
        c->last = &a->next;
        pthread_cond_signal(&c->changed);
        if (c->arrived && !c->told) {
            *reader.last_wake = c;
            reader.last_wake = &c->next_wake;
            wake_helper_locked(&reader.waker, run_waker);
        }
        c->told = true;
        a = NULL;
    }
    pthread_mutex_unlock(&reader.mu);
    if (!a)
        return;
    discard_response(note->at, note->size_bytes);
    free(a);
    if (c && last)
        free_call(c);
}

static void take_ready(const struct note *note)
{
    struct arrival *a = spare_memory(sizeof *a);

    a->at = note->id;
    pthread_mutex_lock(&reader.mu);
    *reader.last_ready = a;
    reader.last_ready = &a->next;
    wake_helper_locked(&reader.checker, run_checker);
    pthread_mutex_unlock(&reader.mu);
}

static void *run_reader(void *unused)
{
    for (;;) {
        struct note note;

        link_receive(&note);
        switch (note.kind) {
        case NOTE_REPLY:
            take_reply(&note);
            break;
        case NOTE_CALL_RESPONSE:
            take_call_response(&note);
            break;
        case NOTE_IS_READY:
            take_ready(&note);
            break;
        default:
            if (note.n_blocks)
                link_give_back(note.at);
        }
    }
    return NULL;
}

/* The threads that run Python for the reader. They hold the GIL but while they wait. */

static void *run_waker(void *unused)
{
    PyGILState_STATE gil = PyGILState_Ensure();

    for (;;) {
        struct call *c;

        Py_BEGIN_ALLOW_THREADS;
        pthread_mutex_lock(&reader.mu);
        while (!reader.wakes)
            pthread_cond_wait(&reader.waker.changed, &reader.mu);
        c = reader.wakes;
        reader.wakes = c->next_wake;
        if (!reader.wakes)
            reader.last_wake = &reader.wakes;
        pthread_mutex_unlock(&reader.mu);
        Py_END_ALLOW_THREADS;
        /* Who is told may close the call. */
        c->arrived(c->owner);
    }
    PyGILState_Release(gil);
    return NULL;
}

static void *run_checker(void *unused)
{
    PyGILState_STATE gil = PyGILState_Ensure();

    for (;;) {
        struct arrival *a;

        Py_BEGIN_ALLOW_THREADS;
        pthread_mutex_lock(&reader.mu);
        while (!reader.ready)
            pthread_cond_wait(&reader.checker.changed, &reader.mu);
        a = reader.ready;
        reader.ready = a->next;
        if (!reader.ready)
            reader.last_ready = &reader.ready;
        pthread_mutex_unlock(&reader.mu);
        Py_END_ALLOW_THREADS;
        reader.is_ready(a->at);
        free(a);
    }
    PyGILState_Release(gil);
    return NULL;
}

/* lock_reader, unlock_reader - around a fork of the model: the copy has no reader that could hold
 * the lock, and its objects may end. */
static void lock_reader(void)
{
    pthread_mutex_lock(&reader.mu);
}

static void unlock_reader(void)
{
    pthread_mutex_unlock(&reader.mu);
}

int reader_start(void (*is_ready)(uint64_t id))
{
    reader.is_ready = is_ready;
    errno = pthread_atfork(lock_reader, unlock_reader, unlock_reader);
    if (!errno)
        errno = start_thread(run_reader);
    if (!errno)
        return 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

/* Questions. */

static uint64_t new_id(void)
{
    pthread_mutex_lock(&reader.mu);
    const uint64_t id = ++reader.last_id;
    pthread_mutex_unlock(&reader.mu);
    return id;
}

static void await_reply(struct question *q)
{
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&reader.mu);
    while (!q->answered)
        pthread_cond_wait(&q->changed, &reader.mu);
    for (struct question **at = &reader.questions; *at; at = &(*at)->next) {
        if (*at == q) {
            *at = q->next;
            break;
        }
    }
    pthread_mutex_unlock(&reader.mu);
    Py_END_ALLOW_THREADS;
}

/* read_reply - raises the server's error. */
static int read_reply(const struct question *q, const char *prefix, enum reply reply,
                      uint64_t *ret_value)
{
    const char *data = link_find(q->at, q->size_bytes);
    struct unpacker u = {.at = data, .left = data ? q->size_bytes : 0};
    size_t len;

    if (unpack_u8(&u) == 0) {
        if (reply == REPLY_U8)
            *ret_value = unpack_u8(&u);
        else if (reply == REPLY_U64)
            *ret_value = unpack_u64(&u);
        if (!u.failed)
            return 0;
    }
    unpack_u32(&u); /* its code */
    const char *text = unpack_str(&u, &len);
    PyObject *str = u.failed ? PyUnicode_FromString("the server's reply is incomplete")
                             : PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
    if (str)
        raise_model("%s%U", prefix, str);
    Py_XDECREF(str);
    return -1;
}

int reader_ask(uint32_t kind, int (*fill)(struct parcel *p, void *what), void *what,
               const char *prefix, enum reply reply, uint64_t *ret_value)
{
    struct question q = {.id = new_id(), .changed = PTHREAD_COND_INITIALIZER};
    struct parcel p;
    uint64_t unused;

    if (parcel_make(&p, fill, what))
        return -1;
    pthread_mutex_lock(&reader.mu);
    q.next = reader.questions;
    reader.questions = &q;
    pthread_mutex_unlock(&reader.mu);
    parcel_note(&p, kind, q.id);
    await_reply(&q);
    pthread_cond_destroy(&q.changed);
    const int failed = read_reply(&q, prefix, reply, ret_value ? ret_value : &unused);

    link_give_back(q.at);
    return failed;
}

/* Calls. */

_Static_assert(PROTOCOL_SLOTS == 32, "slots_taken has a bit for each slot");

/* take_slot_locked - 0: all are taken. */
static uint32_t take_slot_locked(void)
{
    const uint32_t slot = (uint32_t)__builtin_ffs((int)~reader.slots_taken);

    if (slot) {
        reader.slots_taken |= 1u << (slot - 1);
        link_open_slot(slot);
    }
    return slot;
}

static void leave_slot_locked(struct call *c)
{
    if (c->slot)
        reader.slots_taken &= ~(1u << (c->slot - 1));
    c->slot = 0;
}

struct call *call_open(bool waits, void (*arrived)(PyObject *owner), PyObject *owner)
{
    struct call *c = calloc(1, sizeof *c);

    if (!c)
        return (struct call *)(void *)PyErr_NoMemory();
    c->last = &c->first;
    c->arrived = arrived;
    c->owner = owner;
    pthread_cond_init(&c->changed, NULL);
    pthread_mutex_lock(&reader.mu);
    c->id = ++reader.last_id;
    c->slot = waits ? take_slot_locked() : 0;
    c->next = reader.calls;
    reader.calls = c;
    pthread_mutex_unlock(&reader.mu);
    return c;
}

uint64_t call_id(const struct call *c)
{
    return c->id;
}

uint32_t call_slot(const struct call *c)
{
    return c->slot;
}

/* await_first - the response that comes into the slot. */
static void await_first(struct call *c, uint64_t *ret_at, uint64_t *ret_size_bytes)
{
    Py_BEGIN_ALLOW_THREADS;
    link_await_slot(c->slot, ret_at, ret_size_bytes);
    const bool last = is_last_response(*ret_at, *ret_size_bytes);

    pthread_mutex_lock(&reader.mu);
    leave_slot_locked(c);
    if (last) {
        c->ended = true;
        unlink_call(c);
    }
    pthread_mutex_unlock(&reader.mu);
    Py_END_ALLOW_THREADS;
}

bool call_next(struct call *c, uint64_t *ret_at, uint64_t *ret_size_bytes)
{
    struct arrival *a;

    if (c->slot) {
        await_first(c, ret_at, ret_size_bytes);
        return true;
    }

    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&reader.mu);
    while (!c->first && !c->ended)
        pthread_cond_wait(&c->changed, &reader.mu);
    a = c->first;
    if (a) {
        c->first = a->next;
        if (!c->first)
            c->last = &c->first;
    }
    pthread_mutex_unlock(&reader.mu);
    Py_END_ALLOW_THREADS;
    if (!a)
        return false;
    *ret_at = a->at;
    *ret_size_bytes = a->size_bytes;
    free(a);
    return true;
}

void call_cancel(const struct call *c)
{
    link_note(NOTE_CALL_CANCEL, c->id, 0, 0);
}

void call_close(struct call *c)
{
    const uint64_t id = c->id;

    pthread_mutex_lock(&reader.mu);
    struct arrival *left = c->first;
    const bool ended = c->ended;
    c->first = NULL;
    c->closed = true;
    pthread_mutex_unlock(&reader.mu);
    while (left) {
        struct arrival *a = left;

        left = a->next;
        discard_response(a->at, a->size_bytes);
        free(a);
    }
    if (ended)
        free_call(c); /* else the reader does so with the last response */
    else
        link_note(NOTE_CALL_CANCEL, id, 0, 0);
}

void call_forget(struct call *c)
{
    pthread_mutex_lock(&reader.mu);
    leave_slot_locked(c);
    unlink_call(c);
    pthread_mutex_unlock(&reader.mu);
    free_call(c);
}
