/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - one loaded version of an ONNX model: its session and what its tensors look like.
 *
 * One session serves all instances of the model. A session may run on several threads at once, and
 * all instances run on the same CPUs with the same options. A session for each of them would only
 * have a further copy of the weights and another pool of threads.
 *
 * Threads: constant once loaded, except predict.
 */
#ifndef BACKENDS_ONNXRUNTIME_MODEL_H
#define BACKENDS_ONNXRUNTIME_MODEL_H

#include <stdatomic.h>

#include "common/ragged.h"
#include "onnxruntime/external.h"
#include "onnxruntime/runtime.h"
#include "onnxruntime/types.h"
#include "onnxruntime/weights.h"

/* No ONNX operator makes tensors of so many dimensions. */
#define MAX_RANK 32

/* Where the size of an output's dimension can be read before the model runs. */
struct dim_source {
    int input; /* index of an input; -1: fixed or unknown */
    int dim;   /* of that input */
};

struct tensor {
    char *name;
    const struct element_type *type;
    size_t rank;             /* 0: one value, or the model does not say */
    int64_t dims[MAX_RANK];  /* -1: any size */
    char *symbols[MAX_RANK]; /* name of a size: equal names, equal sizes. NULL: none */
    bool scalar;             /* inputs: the model takes rank 0 where requests have shape [1] */
    bool configured;         /* inputs: the configuration has it; others are never given */
    bool optional;           /* inputs: requests may leave it out */
    bool ragged;             /* inputs: the model gets the elements of all requests as one list */
    const struct ragged_input *made; /* inputs: of the shapes of a batch; NULL: requests have it */
    bool is_state;      /* outputs: the server keeps it for the next request of the sequence */
    const char *source; /* outputs: each request gets the shape of this input; NULL: its rows */

    bool predictable; /* outputs: every dimension is fixed or has a source */
    struct dim_source from[MAX_RANK];
};

struct model {
    struct runtime *rt; /* borrowed from the backend */
    char *name;
    char *folder; /* of the model, with its versions in it */
    char *path;   /* of the .onnx file */
    struct external external;
    struct weights *weights; /* NULL: they are none, were copied, or ONNX Runtime reads them */
    struct doc *config;
    struct ragged ragged; /* what config says of batch inputs and outputs */
    int64_t max_batch_size;

    struct ort_session *session;
    struct crew *crew; /* its own threads; NULL: it shares those of all models */
    struct tensor *inputs;
    size_t n_inputs;
    size_t n_required; /* the first inputs; the file has values for the others */
    struct tensor *outputs;
    size_t n_outputs;

    /* Ask for output memory before the model runs? Switched off for good when the model makes other
     * shapes than it declares. Relaxed: a stale value costs one more attempt. */
    atomic_bool predict;
};

/* model_load - open the session, complete the configuration if that is allowed, and check it. */
TRITONSERVER_Error *model_load(struct runtime *rt, TRITONBACKEND_Model *handle,
                               struct model **ret_model);
void model_free(struct model *m);

/* model_complete_config - add what the configuration leaves out, and pass it to the server. */
TRITONSERVER_Error *model_complete_config(struct model *m, TRITONBACKEND_Model *handle);

/* model_check_config - does the configuration fit the model? Sets what it says of
 * each tensor. */
TRITONSERVER_Error *model_check_config(struct model *m);

/* model_tensor - the tensor of a name, or NULL. */
struct tensor *model_tensor(struct tensor *tensors, size_t n, const char *name);

#endif
