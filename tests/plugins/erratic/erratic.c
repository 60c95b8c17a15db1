/* SPDX-License-Identifier: Apache-2.0 */
/*
 * erratic - a backend that executes fast, and takes very long now and then; and that takes long to
 * say whether it is ready.
 *
 * Parameters of the model:
 *     every     one execution in this many takes long (0: none does)
 *     long_ms   how long; it computes meanwhile, it does not sleep
 *     ready_ms  how long ModelInstanceReady takes
 *
 * The model has one input IN and one output OUT, INT32 [-1]; OUT is IN.
 */
#include <stdlib.h>
#include <string.h>

#include "common/frame.h"

struct erratic {
    int64_t every, long_ms, ready_ms;
};

static TRITONSERVER_Error *model_open(struct frame_model *m)
{
    struct erratic *e = calloc(1, sizeof(*e));
    m->state = e;
    if (!e)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    TRY(backend_parameter_int(m->config, "every", 0, 1 << 30, 0, &e->every));
    TRY(backend_parameter_int(m->config, "long_ms", 0, 1 << 20, 0, &e->long_ms));
    return backend_parameter_int(m->config, "ready_ms", 0, 1 << 20, 0, &e->ready_ms);
}

static void model_close(struct frame_model *m)
{
    free(m->state);
}

static TRITONSERVER_Error *instance_open(struct frame_instance *in)
{
    in->state = calloc(1, sizeof(int64_t)); /* executions so far */
    return in->state ? NULL : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static void instance_close(struct frame_instance *in)
{
    free(in->state);
}

static TRITONSERVER_Error *ready(struct frame_instance *in)
{
    const struct erratic *e = in->model->state;
    backend_pause_ms(e->ready_ms);
    return NULL;
}

static void compute_ms(int64_t ms)
{
    uint64_t end_ns = backend_now_ns() + (uint64_t)ms * 1000000;
    while (backend_now_ns() < end_ns)
        ;
}

static TRITONSERVER_Error *echo(const struct batch_part *part)
{
    TRITONBACKEND_Input *input;
    TRITONBACKEND_Output *output;
    const int64_t *shape;
    uint32_t n_dims, n_buffers;
    uint64_t size;
    void *to;
    TRY(TRITONBACKEND_RequestInput(part->request, "IN", &input));
    TRY(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &n_dims, &size, &n_buffers));
    TRY(TRITONBACKEND_ResponseOutput(part->response, &output, "OUT", TRITONSERVER_TYPE_INT32, shape,
                                     n_dims));
    TRY(backend_output_alloc(output, size, &to));
    return backend_input_copy(input, n_buffers, to, size);
}

static TRITONSERVER_Error *execute(struct frame_instance *in, struct batch *b)
{
    const struct erratic *e = in->model->state;
    int64_t *n_executions = in->state;
    if (e->every > 0 && ++*n_executions % e->every == 0)
        compute_ms(e->long_ms);
    for (uint32_t i = 0; i < b->n_parts; i++)
        batch_fail(b, &b->parts[i], echo(&b->parts[i]));
    return NULL;
}

static const struct frame frame = {
    .model_open = model_open,
    .model_close = model_close,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .ready = ready,
    .execute = execute,
};
BACKEND_FRAME(frame)
