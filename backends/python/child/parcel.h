/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parcel - a message in the making: its fields, and behind them the bytes of its tensors.
 *
 * The fields are packed straight into a block of the size that messages had lately. Only one that
 * does not fit is packed twice by the same function, first for its size, then into a block. Large
 * tensors are copied without the GIL.
 */
#ifndef BACKENDS_PYTHON_CHILD_PARCEL_H
#define BACKENDS_PYTHON_CHILD_PARCEL_H

#include "python/child/child.h"
#include "python/pack.h"

struct parcel {
    struct packer fields; /* fields.to is NULL while sizes are counted */
    uint64_t at, size_bytes;
    char *data;       /* of the block */
    uint64_t payload; /* where the next tensor's bytes go; while counting, how many there are */
    PyObject *kept;   /* list of objects whose memory the message refers to; NULL: none */
    uint64_t kept_bytes;
    bool tries;      /* the sizes are guesses */
    bool overflowed; /* … and too small */
};

/* parcel_make - packs with fill(parcel, what), which raises and returns -1 when it can't. */
int parcel_make(struct parcel *p, int (*fill)(struct parcel *p, void *what), void *what);
/* parcel_hand - the receiver has the message from here; to be called before it is sent. What it
 * refers to is kept until the receiver has given the message back. */
void parcel_hand(struct parcel *p);
/* parcel_note - hands it over and sends it. */
void parcel_note(struct parcel *p, uint32_t kind, uint64_t id);
/* parcel_bytes - for a tensor: reserves and fills its place; returns its offset for the message.
 * bytes NULL: the caller fills *ret_to, which is NULL while sizes are counted, and where a guess
 * was too small. */
int parcel_bytes(struct parcel *p, const char *bytes, uint64_t size_bytes, uint64_t *ret_at,
                 char **ret_to);
/* parcel_keep - the message refers to so much memory of this object. */
int parcel_keep(struct parcel *p, PyObject *object, uint64_t size_bytes);
/* parcel_str - a str; anything else raises TypeError. */
int parcel_str(struct parcel *p, PyObject *str);

#endif
