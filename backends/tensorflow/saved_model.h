/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saved_model - the signatures of a SavedModel: which inputs and outputs its functions have, and
 * which tensors of the graph those are.
 *
 * The file saved_model.pb is a protobuf message with one or more graphs ("meta graphs"), each with
 * tags and signatures.
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_TENSORFLOW_SAVED_MODEL_H
#define BACKENDS_TENSORFLOW_SAVED_MODEL_H

#include "tensorflow/graph.h"

/* No operator makes tensors of so many dimensions. */
#define SAVED_MAX_RANK 32

/* An input or output. */
struct saved_tensor {
    char *name;  /* in the signature, and in configurations */
    char *place; /* in the graph: "add:0"; NULL: it is no plain tensor */
    int type;    /* TensorFlow's number of the element type */
    bool any_rank;
    size_t rank;
    int64_t dims[SAVED_MAX_RANK]; /* -1: any size */
};

struct saved_side {
    struct saved_tensor *tensors; /* in the order of their names */
    size_t n;
};

struct saved_signature {
    char *name;
    bool is_default; /* it is named "serving_default", and its graph is tagged "serve" */
    char *tags[8];   /* of its graph */
    size_t n_tags;
    struct saved_side inputs, outputs;
    struct graph_facts facts; /* of an execution of all outputs */
};

/*
 * saved_model_read - find a signature.
 * @model      the model's name, for errors
 * @path       of the file saved_model.pb
 * @tag        of the graph; NULL: "serve"
 * @signature  NULL: "serving_default", or else the only one
 * @ret        to be ended by saved_signature_done()
 * Errors: INVALID_ARG  the file is damaged, is none, or has no such tag or signature; the text
 *                      lists those that it has
 *         NOT_FOUND    it cannot be read
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *saved_model_read(const char *model, const char *path, const char *tag,
                                     const char *signature, struct saved_signature *ret);
void saved_signature_done(struct saved_signature *s);

/* saved_tensor_named - NULL: there is none of that name. */
const struct saved_tensor *saved_tensor_named(const struct saved_side *side, const char *name);

/*
 * saved_model_folder - the folder of a SavedModel, which frameworks take; the caller frees it.
 * @path  of its file, with a folder in it
 * Errors: UNAVAILABLE  no memory
 */
TRITONSERVER_Error *saved_model_folder(const char *path, char **ret_folder);

#endif
