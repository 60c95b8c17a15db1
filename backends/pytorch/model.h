/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - one loaded version of a TorchScript model or of a package, and how the tensors of its
 * configuration belong to the arguments of its function forward() and to what that returns.
 *
 * Threads: constant once loaded, but for `taken`. All instances run at the same time.
 */
#ifndef BACKENDS_PYTORCH_MODEL_H
#define BACKENDS_PYTORCH_MODEL_H

#include <stdatomic.h>

#include "common/frame.h"
#include "common/ragged.h"
#include "pytorch/library.h"

/* A tensor of the configuration. */
struct port {
    const char *name;              /* borrowed from the configuration */
    TRITONSERVER_DataType type;    /* INVALID: any, of a control of sequences */
    TRITONSERVER_DataType control; /* of such a control: the type that the scheduler gives it */
    size_t index;                  /* of the argument; of the output */
    bool optional, ragged;
    const struct ragged_input *made; /* a batch_input, which is made of shapes */
    const char *source;              /* the output is cut as this input is (batch_output) */
    uint32_t hint;                   /* where an output is in the configuration */
    bool is_output, is_state;        /* an output that clients get; that the server keeps */
    const struct doc_value *shape;   /* without the batch; NULL: of a control, or unknown */
};

struct ports {
    struct port *list;
    size_t n;
    size_t n_plain; /* inputs: those before the controls and states of sequences */
};

struct torch_model {
    const struct library *lib;
    const struct shim *shim; /* the library's, of the kind of the file */
    bool is_package;         /* model.pt2 */
    const char *name;
    int64_t max_batch_size;
    struct shim_model *module;
    struct shim_options options;
    bool shares; /* all instances run `module` */
    bool takes_dict;
    atomic_bool taken; /* an instance runs `module`, which is not shared */
    struct ragged ragged;
    struct ports inputs, outputs;
};

/* torch_model_open - read the file, and check the configuration: the m->state of a backend whose
 * m->backend is a struct library. */
TRITONSERVER_Error *torch_model_open(struct frame_model *m);
void torch_model_close(struct frame_model *m);

/*
 * ports_read - find the tensors of the configuration, and what they belong to.
 * Errors: INVALID_ARG  the configuration does not fit the model
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *ports_read(struct torch_model *t, const struct doc *config);
void ports_done(struct torch_model *t);

#endif
