/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute_priv - what execute.c and graphs.c share: an instance, and its tensors in the current
 * run.
 */
#ifndef BACKENDS_TENSORRT_EXECUTE_PRIV_H
#define BACKENDS_TENSORRT_EXECUTE_PRIV_H

#include "common/gather.h"
#include "common/scatter.h"
#include "tensorrt/model.h"

#define MAX_VALUES 64 /* of a shape tensor, which is no longer than a few dimensions */

/* An optimization profile, and the context that uses it. */
struct lane {
    int32_t profile;
    struct trt_object *context;
    struct graph *graphs; /* graphs.c */
};

/* What TensorRT asks for the memory of an output whose size it finds while it computes. */
struct output_allocator {
    struct trt_inner theirs; /* first: they call it by this address */
    const struct cuda *cuda;
    struct cuda_buffer *buffer;
    struct trt_dims dims; /* rank -1: not told yet */
};

/* A tensor of the engine in the current run. */
struct slot {
    struct tensor *t;
    struct cuda_buffer buffer;
    struct cuda_pinned pinned; /* what `host` is lent */
    struct gathered host;      /* inputs; outputs that are not computed into an answer */
    struct scattered out;      /* other outputs */
    union {
        int32_t i32[MAX_VALUES];
        int64_t i64[MAX_VALUES];
    } values; /* inputs: of a shape */
    struct output_allocator allocator;
    bool found_late; /* outputs: the shape depends on the values of inputs */
    struct trt_dims shape;
    uint64_t size; /* bytes */
};

struct executor {
    struct model *model;
    const struct engine *engine;
    void *stream;
    struct lane *lanes;
    size_t n_lanes;
    struct slot *slots; /* one for each tensor of the model */
    bool pending;       /* the stream may have work */
};

#define CALL(x, name, object, ...)                                                                 \
    TRT(&(x)->model->rt->lib, name, object __VA_OPT__(, ) __VA_ARGS__)

/* set_tensor_address - where a context finds a tensor. Errors: INTERNAL  TensorRT's */
TRITONSERVER_Error *set_tensor_address(const struct executor *x, const struct lane *lane,
                                       const struct slot *s, const void *at);

/* reserve_slot - memory on the GPU for a slot's bytes. Errors: those of cuda_reserve() */
TRITONSERVER_Error *reserve_slot(struct executor *x, struct slot *s);

/* measure_slot - sets a slot's shape, and its bytes. Errors: INVALID_ARG  too many */
TRITONSERVER_Error *measure_slot(struct slot *s, const struct trt_dims *dims);

#endif
