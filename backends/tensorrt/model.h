/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - one loaded version of a model: its plan file on the GPUs of its instances, and its
 * tensors in the configuration.
 *
 * Threads: constant once loaded, but for the engines, which instances share as they come.
 */
#ifndef BACKENDS_TENSORRT_MODEL_H
#define BACKENDS_TENSORRT_MODEL_H

#include <pthread.h>

#include "common/frame.h"
#include "common/ragged.h"
#include "tensorrt/engine.h"

/* Set when the server initialises the backend, constant until it finalises it. */
struct runtime {
    struct library lib;
    bool version_compatible;
    bool one_at_a_time; /* execution-policy=DEVICE_BLOCKING */
};

/* Shapes for which a CUDA graph is captured (graphs.h). */
struct graph_spec {
    int64_t rows, least_rows;       /* of the batch; 0 in a model that does not batch */
    const struct doc_value *shapes; /* of inputs, in the configuration; NULL: the profile's best */
};

struct model {
    const struct runtime *rt;
    const struct cuda *cuda;
    const char *name;
    struct frame_model *frame;
    enum trt_strategy strategy; /* of the contexts' memory */
    bool pins_inputs, pins_outputs;
    int priority; /* of streams: -1 lowest, 0, 1 highest */
    struct ragged ragged;
    struct tensors tensors; /* the same on each GPU */
    struct graph_spec *graph_specs;
    size_t n_graph_specs;

    pthread_mutex_t mu;
    struct engine *engines; /* under mu */
};

/* model_open - read the file, complete the configuration if that is allowed, check it. */
TRITONSERVER_Error *model_open(struct frame_model *frame);
void model_close(struct frame_model *frame);

/* model_engine - the engine on a GPU, which is made if it is the first use. Borrowed. Errors: those
 * of engine_new() */
TRITONSERVER_Error *model_engine(struct model *m, int gpu, int64_t dla_core,
                                 const struct engine **ret_engine);

/* model_profile - reads the number of an optimization profile. Errors: INVALID_ARG  the engine does
 * not have it */
TRITONSERVER_Error *model_profile(const struct model *m, const char *text, int32_t *ret_profile);

/* complete_config - add what the configuration leaves out, and pass it to the server. */
TRITONSERVER_Error *complete_config(struct model *m);

/* check_config - does the configuration have the model's tensors? Sets what it says of each. */
TRITONSERVER_Error *check_config(struct model *m);

#endif
