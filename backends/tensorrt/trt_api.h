/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trt_api - the part of TensorRT's interface that we call: virtual functions of C++, by their
 * position in the tables of their classes.
 *
 * What TensorRT hands out is an object of a wrapper class, which has a destructor alone, and a
 * pointer to the object with the functions. Within a major release tables only grow at their ends,
 * so a function is one number for release 10 and one for 11. No header of TensorRT is needed to
 * build this backend; tests/tensorrt/slots.cc compares the numbers with such headers where they
 * are. The calling convention is that of C: `this` is the first argument, and a struct that is
 * returned in memory has its address before that.
 */
#ifndef BACKENDS_TENSORRT_TRT_API_H
#define BACKENDS_TENSORRT_TRT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRT_MAX_RANK 8

struct trt_dims {
    int32_t rank; /* -1: unknown */
    int64_t d[TRT_MAX_RANK];
};

typedef void trt_function(void);

/* An object with functions. */
struct trt_inner {
    trt_function *const *table;
};

/* What TensorRT hands out. */
struct trt_object {
    trt_function *const *table; /* destructors only; TRT_DELETE frees */
    struct trt_inner *inner;
};
#define TRT_DELETE 1

enum trt_type {
    TRT_FLOAT,
    TRT_HALF,
    TRT_INT8,
    TRT_INT32,
    TRT_BOOL,
    TRT_UINT8,
    TRT_BF16 = 7,
    TRT_INT64
};
enum trt_mode { TRT_NONE, TRT_INPUT, TRT_OUTPUT };
enum trt_place { TRT_ON_DEVICE, TRT_ON_HOST };
enum trt_format { TRT_LINEAR };
enum trt_select { TRT_MIN, TRT_OPT, TRT_MAX };
enum trt_strategy { TRT_STATIC, TRT_ON_PROFILE_CHANGE };
enum trt_severity { TRT_INTERNAL_ERROR, TRT_ERROR, TRT_WARNING, TRT_INFO, TRT_VERBOSE };

/*
 * X(name, position in release 10, in release 11, result, parameters behind the object)
 */
#define TRT_SLOTS(X)                                                                               \
    X(runtime_deserialize, 3, 3, struct trt_object *, (struct trt_inner *, const void *, size_t))  \
    X(runtime_set_dla_core, 5, 4, void, (struct trt_inner *, int32_t))                             \
    X(runtime_n_dla_cores, 7, 6, int32_t, (struct trt_inner *))                                    \
    X(runtime_allow_host_code, 21, 20, void, (struct trt_inner *, bool))                           \
    X(engine_new_context, 5, 5, struct trt_object *, (struct trt_inner *, int32_t strategy))       \
    X(engine_n_profiles, 10, 8, int32_t, (struct trt_inner *))                                     \
    X(engine_shape, 19, 15, struct trt_dims, (struct trt_inner *, const char *))                   \
    X(engine_type, 20, 16, int32_t, (struct trt_inner *, const char *))                            \
    X(engine_place, 21, 17, int32_t, (struct trt_inner *, const char *))                           \
    X(engine_is_shape, 22, 18, bool, (struct trt_inner *, const char *))                           \
    X(engine_mode, 23, 19, int32_t, (struct trt_inner *, const char *))                            \
    X(engine_format, 26, 22, int32_t, (struct trt_inner *, const char *))                          \
    X(engine_profile_shape, 29, 25, struct trt_dims,                                               \
      (struct trt_inner *, const char *, int32_t profile, int32_t select))                         \
    X(engine_n_tensors, 30, 26, int32_t, (struct trt_inner *))                                     \
    X(engine_tensor_name, 31, 27, const char *, (struct trt_inner *, int32_t))                     \
    X(engine_device_memory, 52, 44, int64_t, (struct trt_inner *))                                 \
    X(context_all_specified, 12, 12, bool, (struct trt_inner *))                                   \
    X(context_set_profile, 17, 16, bool, (struct trt_inner *, int32_t, void *stream))              \
    X(context_set_shape, 21, 20, bool,                                                             \
      (struct trt_inner *, const char *, const struct trt_dims *))                                 \
    X(context_shape, 22, 21, struct trt_dims, (struct trt_inner *, const char *))                  \
    X(context_set_address, 24, 23, bool, (struct trt_inner *, const char *, void *))               \
    X(context_set_allocator, 32, 31, bool, (struct trt_inner *, const char *, struct trt_inner *)) \
    X(context_enqueue, 37, 36, bool, (struct trt_inner *, void *stream))

enum trt_slot {
#define TRT_NUMBER(name, in10, in11, result, parameters) TRT_SLOT_##name,
    TRT_SLOTS(TRT_NUMBER)
#undef TRT_NUMBER
        TRT_N_SLOTS
};

#define TRT_TYPE(name, in10, in11, result, parameters) typedef result trt_##name##_fn parameters;
TRT_SLOTS(TRT_TYPE)
#undef TRT_TYPE

/* Objects of ours that TensorRT calls have such tables, too. Those of a logger differ: in release
 * 11 it has the functions of IVersionedInterface in front. */
enum { TRT_LOGGER_SLOTS_10 = 3, TRT_LOGGER_SLOTS_11 = 5, TRT_ALLOCATOR_SLOTS = 7 };

/* What IVersionedInterface tells of an object. */
struct trt_interface {
    const char *kind;
    int32_t major, minor;
};

/* Functions that libnvinfer exports. */
typedef struct trt_object *trt_create_runtime_fn(struct trt_inner *logger, int32_t version);
typedef int32_t trt_version_fn(void);
/* And libnvinfer_plugin. */
typedef bool trt_init_plugins_fn(struct trt_inner *logger, const char *name_space);

#endif
