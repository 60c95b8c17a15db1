/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim - what the backend needs of PyTorch, which speaks only C++, as a table of C functions.
 *
 * The shim is a library of its own, libconch_torch.so, compiled against the headers of one release
 * of PyTorch. Only it is C++; the backend loads it when the server runs, and gets the table from
 * its one function conch_torch(). Users compile it for a PyTorch of their own with the script
 * `build`, which is installed with these sources.
 *
 * A function that can fail returns NULL, or a text of one line that the caller frees. Without
 * memory for the text it returns NULL, too, and what it was to make stays NULL: that is a failure.
 * No exception leaves the shim. Tensors are on the CPU, contiguous, of TRITONSERVER_DataType; BYTES
 * are a list of strings, each a length of 4 bytes, the lowest first, and so many bytes.
 *
 * Threads: any number may run a model. One thread loads it and one frees it, while none runs it.
 */
#ifndef BACKENDS_PYTORCH_SHIM_SHIM_H
#define BACKENDS_PYTORCH_SHIM_SHIM_H

#include <stdbool.h>
#include <stddef.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with this header: a shim of another build is refused. */
#define SHIM_VERSION 5

enum shim_kind { SHIM_TENSOR, SHIM_STRINGS, SHIM_DICT, SHIM_OTHER };

/* An argument of forward(). */
struct shim_argument {
    const char *name, *type; /* as TorchScript writes them; the model's */
    enum shim_kind kind;
    bool may_lack; /* it has a default, or may be None */
};

/* A tensor for a run; borrowed. */
struct shim_tensor {
    const char *name; /* the key, where a dictionary is made or was returned; else NULL */
    TRITONSERVER_DataType type;
    uint32_t rank;
    const int64_t *shape;
    const void *data; /* NULL and a type of INVALID: the argument is left out */
    uint64_t size;    /* bytes */
    const char *kind; /* of an output that is no tensor and no list of strings: what it is */
};

struct shim_model {
    const struct shim_argument *arguments;
    size_t n_arguments;
    bool writes_itself;   /* forward() changes an attribute, or that is not known */
    bool writes_argument; /* the same of the data of an argument; then a run gets copies */
    uint64_t size;        /* bytes of all parameters and buffers */
};

/* How to run; PyTorch has these for each thread. */
struct shim_options {
    bool optimizes;  /* the graph is optimised */
    bool inference;  /* under InferenceMode, else only without gradients */
    int32_t threads; /* that one operator uses; 0: as many as PyTorch would, but no more than: */
    int32_t most_threads; /* 0: no limit */
};

/* What a run has returned. */
struct shim_result {
    const struct shim_tensor *outputs;
    size_t n_outputs;
    bool named; /* a dictionary: each output has a name */
};

struct shim {
    const char *version; /* of the PyTorch that it was compiled for */
    const char *running; /* of the library that is loaded; NULL: it does not tell */
    void *inside;        /* a function of that library */

    /* Load a file, for so many instances that run it at once, and copy a model with all its tensors
     * for one. */
    char *(*load)(const char *path, size_t n_instances, struct shim_model **ret_model);
    char *(*copy)(const struct shim_model *model, struct shim_model **ret_model);
    void (*free)(struct shim_model *model);

    /*
     * Call forward().
     * @inputs  one for each argument, in their order; of a model with one dictionary its members.
     *          Their memory is used in place, until clear()
     * @result  NULL, or that of an earlier run of this model which is cleared: its memory is used
     *          again. After an error it is released, and NULL
     */
    char *(*run)(struct shim_model *model, const struct shim_options *options,
                 const struct shim_tensor *inputs, size_t n, struct shim_result **result);
    void (*clear)(struct shim_result *result); /* lets go of what a run has returned */
    void (*release)(struct shim_result *result);

    /* Settings of the whole process. */
    char *(*set_inter_op_threads)(int32_t n);
    void (*set_profiling)(bool on);
    void (*set_executor)(bool profiles);
    void (*set_fuser)(bool on);
};

/* The function of the library; NULL: this is another version of the shim. */
#define SHIM_FUNCTION "conch_torch"
typedef const struct shim *shim_fn(int version);

#ifdef __cplusplus
}
#endif
#endif
