/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parcel - see parcel.h.
 */
#include "python/child/parcel.h"

#include <stdlib.h>
#include <string.h>

#include "python/child/link.h"

/* Copies of more than this are made without the GIL. */
#define LARGE_COPY_BYTES 65536u
#define TENSOR_ALIGN     64u

/* Most messages of a model are as large as the last one, so a guess saves counting them. */
#define FIRST_FIELDS_BYTES  128u
#define LARGEST_GUESS_BYTES 4096u

/* A message that the receiver has, and what it refers to. */
struct kept {
    struct kept *next;
    uint64_t at;
    PyObject *objects;
};

static struct kept *all_kept;
static uint64_t guessed_fields = FIRST_FIELDS_BYTES, guessed_payload;

static uint64_t align_up(uint64_t n)
{
    return (n + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
}

/* release_kept - what messages referred to that are back. Its end may run code of the model. */
static void release_kept(void)
{
    struct kept *back = NULL;

    for (struct kept **at = &all_kept; *at;) {
        struct kept *k = *at;

        if (!link_is_back(k->at)) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        k->next = back;
        back = k;
    }
    while (back) {
        struct kept *k = back;

        back = k->next;
        link_drop(k->at);
        Py_DECREF(k->objects);
        free(k);
    }
}

static void drop_parcel(struct parcel *p)
{
    if (p->data)
        link_drop(p->at);
    Py_CLEAR(p->kept);
    p->data = NULL;
}

/* guess_sizes - the next messages are as large as this one, which did not fit. */
static void guess_sizes(uint64_t fields, uint64_t payload)
{
    fields = align_up(fields);
    if (fields > guessed_fields && fields <= LARGEST_GUESS_BYTES)
        guessed_fields = fields;
    if (payload > guessed_payload && payload <= LARGEST_GUESS_BYTES)
        guessed_payload = payload;
}

/* try_parcel - in one pass. Returns 1: does not fit. */
static int try_parcel(struct parcel *p, int (*fill)(struct parcel *p, void *what), void *what)
{
    const uint64_t room = guessed_fields;

    *p = (struct parcel){.tries = true, .size_bytes = room + guessed_payload, .payload = room};
    p->data = link_take(p->size_bytes, &p->at);
    if (!p->data)
        return -1;
    p->fields = (struct packer){.to = p->data, .room = room};
    if (fill(p, what)) {
        drop_parcel(p);
        return -1;
    }
    if (p->overflowed || p->fields.used > room) {
        drop_parcel(p);
        return 1;
    }
    p->size_bytes = p->payload > room ? p->payload : p->fields.used;
    return 0;
}

int parcel_make(struct parcel *p, int (*fill)(struct parcel *p, void *what), void *what)
{
    if (all_kept)
        release_kept();
    const int tried = try_parcel(p, fill, what);

    if (tried <= 0)
        return tried;
    *p = (struct parcel){0};
    if (fill(p, what))
        return -1;
    const uint64_t fields = p->fields.used, payload = p->payload;

    guess_sizes(fields, payload);
    p->size_bytes = payload ? align_up(fields) + payload : fields;
    p->data = link_take(p->size_bytes, &p->at);
    if (!p->data)
        return -1;
    p->fields = (struct packer){.to = p->data, .room = fields};
    p->payload = align_up(fields);
    if (fill(p, what)) {
        drop_parcel(p);
        return -1;
    }
    if (p->fields.used != fields || p->payload != align_up(fields) + payload) {
        drop_parcel(p);
        PyErr_SetString(PyExc_RuntimeError, "a tensor changed while it was sent");
        return -1;
    }
    return 0;
}

void parcel_hand(struct parcel *p)
{
    struct kept *k = p->kept ? malloc(sizeof *k) : NULL;

    link_hand(p->at, k != NULL);
    if (k) {
        *k = (struct kept){.next = all_kept, .at = p->at, .objects = p->kept};
        all_kept = k;
        p->kept = NULL;
    }
    /* Without memory for the books, the objects live for ever: what the server reads must stay. */
    p->kept = NULL;
}

void parcel_note(struct parcel *p, uint32_t kind, uint64_t id)
{
    parcel_hand(p);
    link_note(kind, id, p->at, p->size_bytes);
}

static void copy_payload(char *to, const char *from, uint64_t n)
{
    if (n > LARGE_COPY_BYTES) {
        Py_BEGIN_ALLOW_THREADS;
        memcpy(to, from, n);
        Py_END_ALLOW_THREADS;
    } else if (n) {
        memcpy(to, from, n);
    }
}

int parcel_bytes(struct parcel *p, const char *bytes, uint64_t size_bytes, uint64_t *ret_at,
                 char **ret_to)
{
    const uint64_t place = p->payload;

    *ret_at = p->at + place;
    *ret_to = NULL;
    if (size_bytes > UINT64_MAX / 4 || place > UINT64_MAX / 4) {
        PyErr_NoMemory();
        return -1;
    }
    p->payload = align_up(place + size_bytes);
    if (!p->fields.to)
        return 0;
    if (p->tries && p->payload > p->size_bytes) {
        p->overflowed = true;
        return 0;
    }
    if (p->payload > align_up(p->size_bytes)) {
        PyErr_SetString(PyExc_RuntimeError, "a tensor changed while it was sent");
        return -1;
    }
    *ret_to = p->data + place;
    if (bytes)
        copy_payload(*ret_to, bytes, size_bytes);
    return 0;
}

int parcel_keep(struct parcel *p, PyObject *object, uint64_t size_bytes)
{
    if (!p->fields.to)
        return 0;
    p->kept_bytes += size_bytes;
    if (!p->kept)
        p->kept = PyList_New(0);
    return p->kept ? PyList_Append(p->kept, object) : -1;
}

int parcel_str(struct parcel *p, PyObject *str)
{
    size_t len;
    const char *text = child_text(str, &len);

    if (!text)
        return -1;
    pack_str(&p->fields, text, len);
    return 0;
}
