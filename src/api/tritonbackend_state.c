/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonbackend.h: implicit state of sequences (core/sched/state.h).
 */
#include "api/handles.h"
#include "base/status.h"
#include "core/sched/state.h"

TRITONSERVER_Error *TRITONBACKEND_StateNew(TRITONBACKEND_State **state,
                                           TRITONBACKEND_Request *request, const char *name,
                                           const TRITONSERVER_DataType datatype,
                                           const int64_t *shape, const uint32_t dims_count)
{
    struct state *found;
    NEED(state);
    NEED(request);
    NEED(name);
    if (dims_count)
        NEED(shape);
    struct status *st =
        states_output(to_request(request), name, (enum dtype)datatype, shape, dims_count, &found);
    if (!st)
        *state = as_state(found);
    return as_status(st);
}

TRITONSERVER_Error *TRITONBACKEND_StateUpdate(TRITONBACKEND_State *state)
{
    NEED(state);
    return as_status(state_update(to_state(state)));
}

/* The memory of states is the CPU's, whatever type the backend prefers. */
TRITONSERVER_Error *TRITONBACKEND_StateBuffer(TRITONBACKEND_State *state, void **buffer,
                                              const uint64_t buffer_byte_size,
                                              TRITONSERVER_MemoryType *memory_type,
                                              int64_t *memory_type_id)
{
    NEED(state);
    NEED(buffer);
    NEED(memory_type);
    NEED(memory_type_id);
    struct status *st = state_buffer(to_state(state), buffer_byte_size, buffer);
    if (st)
        return as_status(st);
    *memory_type = TRITONSERVER_MEMORY_CPU;
    *memory_type_id = 0;
    return NULL;
}

TRITONSERVER_Error *
TRITONBACKEND_StateBufferAttributes(TRITONBACKEND_State *state,
                                    TRITONSERVER_BufferAttributes **buffer_attributes)
{
    NEED(state);
    NEED(buffer_attributes);
    struct state *s = to_state(state);
    size_t size_bytes;
    struct status *st = state_buffer_bytes(s, &size_bytes);
    if (st)
        return as_status(st);
    return attributes_in(&s->input.request->arena, MEMORY_CPU, 0, size_bytes, buffer_attributes);
}
