/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hollow - a backend that answers with an output of the input's type and shape, of which it writes
 * the first 64 bytes, those of the input. So large tensors cost what the server makes of them.
 *
 * The model has an input INPUT0 and an output OUTPUT0. Each request is reported, with times of its
 * execution.
 */
#include <stdint.h>
#include <string.h>

#include "common/frame.h"

enum { WRITTEN_BYTES = 64 };

static TRITONSERVER_Error *answer(const struct batch_part *part)
{
    TRITONSERVER_MemoryType memory;
    TRITONSERVER_DataType type;
    TRITONBACKEND_Output *output;
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    const void *from;
    int64_t memory_id;
    uint32_t n_dims;
    uint64_t size, at_once;
    void *to;

    TRY(TRITONBACKEND_RequestInput(part->request, "INPUT0", &input));
    TRY(TRITONBACKEND_InputProperties(input, NULL, &type, &shape, &n_dims, &size, NULL));
    TRY(TRITONBACKEND_InputBuffer(input, 0, &from, &at_once, &memory, &memory_id));
    TRY(TRITONBACKEND_ResponseOutput(part->response, &output, "OUTPUT0", type, shape, n_dims));
    TRY(backend_output_alloc(output, size, &to));
    memcpy(to, from, at_once < WRITTEN_BYTES ? at_once : WRITTEN_BYTES);
    return NULL;
}

static TRITONSERVER_Error *open_model(struct frame_model *m)
{
    return backend_declare_bounded(m->handle);
}

static TRITONSERVER_Error *execute(struct frame_instance *in, struct batch *b)
{
    (void)in;
    for (size_t i = 0; i < b->n_parts; i++)
        TRY(answer(&b->parts[i]));
    return NULL;
}

static const struct frame frame = {.model_open = open_model, .execute = execute};
BACKEND_FRAME(frame)
