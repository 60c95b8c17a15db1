/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - one loaded version of a model: its file, its signature, its configuration compared with
 * both, and the engine that executes it.
 *
 * The descriptions of tensors are those of the backend openvino, which is compiled into this one.
 *
 * Threads: constant once loaded.
 */
#ifndef BACKENDS_TENSORFLOW_MODEL_H
#define BACKENDS_TENSORFLOW_MODEL_H

#include "common/frame.h"
#include "common/ragged.h"
#include "openvino/model.h"
#include "tensorflow/saved_model.h"

/* What the parameters of a configuration ask for. */
struct tf_asked {
    const char *tag, *signature;          /* borrowed; NULL: the default */
    const char *init_ops_file;            /* borrowed; NULL: none */
    int64_t intra_threads;                /* 0: TensorFlow's choice */
    int64_t inter_threads;                /* 0: TensorFlow's choice; -1: the caller's thread */
    bool own_threads;                     /* the model has threads that no other model uses */
    int64_t sharers;                      /* instances that share a session; 0: all of them */
    int64_t graph_level;                  /* of `optimization`; 0: none is set */
    bool soft_placement, allow_operators; /* the server's settings say so, not parameters */
};

struct engine;

struct tf_model {
    struct frame_model *frame;
    const char *name;
    char *path;    /* of the file */
    bool is_graph; /* a GraphDef, which has no signature */
    struct tf_asked asked;
    struct ragged ragged;

    struct saved_signature signature; /* of a GraphDef: made of the configuration and the graph */
    struct side inputs, outputs;      /* tensor i is that of the signature */

    const struct engine *engine;
    void *loaded; /* the engine's own */
};

/* What executes models. An engine is found when the first model needs it. */
struct engine {
    const char *name;
    TRITONSERVER_Error *(*open)(struct tf_model *m, void **ret_loaded);
    void (*close)(void *loaded);
    TRITONSERVER_Error *(*open_instance)(void *loaded, void **ret_instance);
    void (*close_instance)(void *instance);
    TRITONSERVER_Error *(*execute)(void *instance, struct batch *b); /* as frame.execute */
};

/*
 * tf_read_parameters - what a configuration asks for.
 * Errors: INVALID_ARG  a value that is none of its kind, or an accelerator for CPUs
 */
TRITONSERVER_Error *tf_read_parameters(const struct doc *config, const char *model,
                                       struct tf_asked *ret_asked);

/* tf_warn_of_accelerators - warn of those for GPUs, which have no effect on CPUs. */
void tf_warn_of_accelerators(const struct doc *config, const char *model);

/* tf_take_signature - describe the tensors of the signature in m->inputs, m->outputs.
 * Errors: UNSUPPORTED  a tensor that no configuration can have */
TRITONSERVER_Error *tf_take_signature(struct tf_model *m);

/* tf_complete_config - add what the configuration leaves out, and pass it to the server. */
TRITONSERVER_Error *tf_complete_config(struct tf_model *m, int64_t default_max_batch_size);

/* tf_check_config - does the configuration have the signature's tensors? Sets what it says of
 * each. */
TRITONSERVER_Error *tf_check_config(struct tf_model *m);

/* tf_element_type - NULL: no configuration has this type. @type  TensorFlow's number */
const struct element_type *tf_element_type(int type);

#endif
