/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphs - CUDA graphs: what TensorRT launches for some shapes is recorded once, and later launched
 * by one call of the driver (`optimization.cuda.graphs` of a configuration).
 *
 * Thread: the one that opens, executes or closes the instance.
 */
#ifndef BACKENDS_TENSORRT_GRAPHS_H
#define BACKENDS_TENSORRT_GRAPHS_H

#include "tensorrt/execute_priv.h"

/* For one profile and one set of shapes. */
struct graph {
    struct graph *next;
    void *exec;          /* the driver's */
    int64_t rows, least; /* smaller batches, down to that, may use it; 0: only the same shapes */
    struct trt_dims shapes[]; /* of all tensors */
};

/*
 * graphs_read - which graphs the configuration wants, once it is complete.
 * Errors: INVALID_ARG  shapes or sizes that do not fit together, or not with the model
 */
TRITONSERVER_Error *graphs_read(struct model *m);

/*
 * graphs_capture - capture all of them, for each profile of the instance. What cannot be captured
 * is executed without a graph; one warning tells why.
 * @name  of the instance
 */
void graphs_capture(struct executor *x, const char *name);

/* graph_find - the smallest one that the shapes of the gathered inputs may use; NULL: none. */
const struct graph *graph_find(const struct executor *x, const struct lane *lane);

/* graph_outputs - sets shapes and sizes of the outputs that it will compute. */
TRITONSERVER_Error *graph_outputs(struct executor *x, const struct graph *g);

/* graphs_drop - frees those of all profiles. */
void graphs_drop(struct executor *x);

#endif
