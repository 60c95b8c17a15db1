/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request - the type InferenceRequest: a request of the server to the model, or one that the model
 * makes for another model.
 */
#ifndef BACKENDS_PYTHON_CHILD_REQUEST_H
#define BACKENDS_PYTHON_CHILD_REQUEST_H

#include "python/child/child.h"
#include "python/child/parcel.h"

struct request {
    PyObject_HEAD uint64_t key; /* the server's; 0: made by the model */
    PyObject *id;               /* str */
    PyObject *correlation;      /* int or str */
    PyObject *parameters;       /* str: JSON, or "" */
    PyObject *context;          /* str: of the trace; NULL: made by the model */
    PyObject *trace;            /* InferenceTrace; of the server's: NULL until it is asked for */
    PyObject *outputs;          /* tuple of str */
    PyObject *inputs;           /* tuple of Tensors */
    PyObject *sender;           /* InferenceResponseSender; NULL: made by the model */
    PyObject *model_name;       /* str; NULL: made by the server */
    int64_t model_version;
    uint32_t flags, release_flags;
    uint64_t timeout_us, priority;
    uint32_t memory_type; /* TRITONSERVER_MemoryType that the model prefers for outputs */
    int64_t memory_id;
};

int request_init(PyObject *module);
bool request_is_exact(PyObject *object); /* of no type that is derived from ours */
/* request_find_input - the Tensor of this name, or None. */
PyObject *request_find_input(PyObject *request, PyObject *name);
/* request_unpack - of a batch, whose message lies in this block. */
PyObject *request_unpack(struct unpacker *u, PyObject *block, bool decoupled);
/* request_pack - behind the fields of NOTE_CALL. */
int request_pack(struct parcel *p, const struct request *r);

#endif
