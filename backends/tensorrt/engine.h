/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine - a plan file in the memory of a GPU, and what its tensors look like. Instances on a GPU
 * share it; each has an execution context of its own.
 *
 * Threads: constant once made.
 */
#ifndef BACKENDS_TENSORRT_ENGINE_H
#define BACKENDS_TENSORRT_ENGINE_H

#include "tensorrt/cuda.h"
#include "tensorrt/library.h"

struct engine {
    const struct library *lib;
    struct cuda_place place;
    int64_t dla_core; /* -1: none */
    struct trt_object *runtime, *engine;
    uint64_t size; /* bytes of the plan file */
    struct engine *next;
};

/* How a plan file is read. */
struct engine_options {
    const struct library *lib;
    const struct cuda *cuda;
    const char *model;
    const char *path;
    bool version_compatible; /* code that the file has for other versions of TensorRT may run */
};

/*
 * engine_new - read a plan file onto a GPU.
 * @dla_core  -1: none
 * Errors: INTERNAL     the file cannot be read, or TensorRT refuses it
 *         INVALID_ARG  no such GPU or core
 */
TRITONSERVER_Error *engine_new(const struct engine_options *o, int gpu, int64_t dla_core,
                               struct engine **ret_engine);
void engine_free(struct engine *e);

/* The limits of a tensor in one optimization profile. For a tensor with the values of a shape, the
 * limits of the values are TensorRT's own affair. */
struct limits {
    struct trt_dims least, best, most;
};

struct tensor {
    const char *name; /* the engine's */
    TRITONSERVER_DataType type;
    bool is_input;
    bool is_shape;         /* its values, not its bytes, are what the model computes shapes of */
    bool on_host;          /* TensorRT reads or writes it in the host's memory */
    struct trt_dims dims;  /* -1: any size */
    struct limits *limits; /* inputs: by profile */

    /* What the configuration says of it. */
    bool configured, ragged, is_output, is_state;
    bool is_scalar;                  /* it has no dimensions, where requests have one of 1 */
    uint32_t hint;                   /* where an output is in the configuration */
    const struct ragged_input *made; /* of the shapes of a batch; NULL: requests have it */
    const char *source;              /* outputs: each request gets the shape of this input */
};

struct tensors {
    struct tensor *list;
    size_t n;
    int32_t n_profiles;
};

/*
 * engine_tensors - what the engine's tensors look like. The names are borrowed from the engine.
 * Errors: UNSUPPORTED  a type or format that the server does not have
 */
TRITONSERVER_Error *engine_tensors(const struct engine *e, const char *model, struct tensors *ret);
void tensors_done(struct tensors *t);
struct tensor *tensors_find(const struct tensors *t, const char *name);

/* type_name - as configurations write it: TYPE_FP32. */
const char *type_name(TRITONSERVER_DataType type);

#endif
