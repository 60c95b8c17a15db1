/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - one loaded version of a model: what OpenVINO has compiled, and what its tensors look
 * like.
 *
 * Each model has a core of its own, which is OpenVINO's object for settings and extensions: those
 * of one model change no other. All instances share the compiled model, and with it the weights.
 *
 * Threads: constant once loaded, but for `read`, `compiled` and `refused`, which have locks.
 */
#ifndef BACKENDS_OPENVINO_MODEL_H
#define BACKENDS_OPENVINO_MODEL_H

#include "common/frame.h"
#include "common/ragged.h"
#include "openvino/compiled.h"
#include "openvino/refused.h"
#include "openvino/runtime.h"
#include "openvino/types.h"

/* No operator makes tensors of so many dimensions. */
#define MAX_RANK 32

struct tensor {
    char *name;                      /* the configuration's; OpenVINO may know others for it */
    const struct element_type *type; /* the configuration's, too: OpenVINO converts */
    bool any_rank;                   /* the model takes, or makes, any number of dimensions */
    size_t rank;
    int64_t dims[MAX_RANK]; /* -1: any size */
    struct ov_dimension limits[MAX_RANK];

    bool scalar; /* inputs: the model takes rank 0 where requests have shape [1] */
    bool ragged; /* inputs: the model gets the elements of all requests as one list */
    const struct ragged_input *made; /* inputs: of the shapes of a batch; NULL: requests have it */
    bool is_state;      /* outputs: the server keeps it for the next request of the sequence */
    bool is_input;      /* outputs: an input as it is, for which OpenVINO has one tensor */
    const char *source; /* outputs: each request gets the shape of this input; NULL: its rows */

    struct ov_port *port; /* of compiled models */
};

/* One side of a model: its inputs, or its outputs. */
struct side {
    const char *what; /* "input" or "output" */
    struct tensor *tensors;
    size_t n;
};

/* What the parameters of a configuration ask for. */
struct asked {
    const char *extension; /* borrowed from the configuration; NULL: none */
    char device[64];
    bool fixed_batch; /* compile for batches of max_batch_size alone */
    bool pad;         /* with fixed_batch: fill up smaller batches */
    bool reshape;     /* the configuration's dims become the model's */
    struct property {
        const char *key; /* NULL: no further one */
        char value[32];
    } properties[8]; /* of the device */
};

struct model {
    const struct runtime *rt;
    const char *name;
    struct frame_model *frame;
    char *path; /* of the file, or of the folder of a SavedModel */
    struct asked asked;
    struct ragged ragged;
    int64_t fixed_rows; /* it takes batches of so many rows alone; 0: of any number */
    bool reshaped;      /* its shapes are not those of its file */
    bool small;         /* quick.c says so */

    struct ov_core *core;
    struct ov_model
        *read; /* as read and changed, under compiled.mu; compiled models share its weights */
    struct compiled compiled;
    struct refused refused;
    struct side inputs, outputs;
};

/* What another backend knows of a model before OpenVINO reads it. All borrowed for the call. */
struct origin {
    const char *path;
    /* The names that configurations use; OpenVINO may know others for the same tensors. */
    const char *const *inputs, *const *outputs;
    size_t n_inputs, n_outputs;
    /* Unless a parameter sets the same: */
    int64_t threads; /* INFERENCE_NUM_THREADS; 0: any number */
    bool exact;      /* compute in FP32 where OpenVINO would choose BF16 */
};

/*
 * model_open - read the file, complete the configuration if that is allowed, check it, compile: the
 * frame->state of a backend whose frame->backend is a struct runtime.
 */
TRITONSERVER_Error *model_open(struct frame_model *frame);

/* model_open_from - the same for a model of another backend. */
TRITONSERVER_Error *model_open_from(struct frame_model *frame, const struct origin *origin);
void model_close(struct frame_model *frame);

/* model_tensor - the tensor of a name, or NULL. */
struct tensor *model_tensor(const struct side *side, const char *name);

/* model_read_shapes - read again what shapes the tensors have. */
TRITONSERVER_Error *model_read_shapes(struct model *m);

/*
 * read_parameters - what a configuration asks for.
 * @origin  as for model_open()
 * Errors: INVALID_ARG  a value that is none of its kind
 */
TRITONSERVER_Error *read_parameters(const struct doc *config, const struct origin *origin,
                                    struct asked *ret_asked);

/*
 * add_extension - load the operators that CPU_EXTENSION_PATH names into the model's core.
 * Errors: INVALID_ARG  the setting does not allow it; the file is no extension
 *         NOT_FOUND    there is no file
 */
TRITONSERVER_Error *add_extension(const struct model *m);

/*
 * extension_find - the path of a library that a configuration names, after a look at the file.
 * @model     the model's name, for errors
 * @what      what names it, for errors
 * @name      a relative one begins in the model's folder
 * @ret_path  the caller frees it
 * Errors: NOT_FOUND    there is no file
 *         INVALID_ARG  it is no regular file, or cut off
 */
TRITONSERVER_Error *extension_find(TRITONBACKEND_Model *handle, const char *model, const char *what,
                                   const char *name, char **ret_path);

/*
 * find_configured_tensor - the tensor that OpenVINO knows by this name, among others; it has the
 * name from then on.
 * Errors: INVALID_ARG  there is none
 */
TRITONSERVER_Error *find_configured_tensor(const struct model *m, struct side *side,
                                           const char *name, struct tensor **ret_tensor);

/* ask_for_callers_thread - let the thread that calls compute, unless the configuration asks for
 * another number of threads or streams. */
void ask_for_callers_thread(struct asked *a);

/* heed_cpu_quota - compute with no more threads than a quota of CPU time keeps busy, unless the
 * configuration says how many: OpenVINO knows the CPUs, but no quota. */
void heed_cpu_quota(struct asked *a);

/* complete_config - add what the configuration leaves out, and pass it to the server. */
TRITONSERVER_Error *complete_config(struct model *m);

/* check_config - does the configuration have the model's tensors? Sets what it says of each. */
TRITONSERVER_Error *check_config(struct model *m);

/*
 * device_prepare - look whether the device is there, and give it the properties that are asked for.
 * Errors: INVALID_ARG  OpenVINO does not find it
 *         INTERNAL     OpenVINO's, of a property
 */
TRITONSERVER_Error *device_prepare(const struct model *m);

/* fit_model - give the model the configuration's batch, shapes and types, and check its outputs. */
TRITONSERVER_Error *fit_model(struct model *m);

/* quick_prepare - is the model small? Asks for the caller's thread then. Before it is compiled. */
TRITONSERVER_Error *quick_prepare(struct model *m);

/* quick_declare - tell the server if a small model executes on the thread that calls it. */
TRITONSERVER_Error *quick_declare(const struct model *m);

/*
 * layout_has_batch - does a model in OpenVINO's own format say that the first dimension of each of
 * its tensors is the batch? False for all other files, and for one that cannot be read.
 * Errors: UNAVAILABLE  no memory
 */
TRITONSERVER_Error *layout_has_batch(const char *path, bool *ret_has);

#endif
