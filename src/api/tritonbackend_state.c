/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonbackend.h: implicit state of sequences. No model can be configured for it until sequences
 * are batched; so there is no state to be had, and a backend that asks for one hears so. Backends
 * that could use states load nevertheless.
 */
#include "api/handles.h"
#include "base/status.h"
#include "core/model.h"

static TRITONSERVER_Error *no_states(TRITONBACKEND_State *state)
{
    NEED(state);
    return as_status(status_new(STATUS_INVALID_ARG, "the state is none that StateNew has given"));
}

TRITONSERVER_Error *TRITONBACKEND_StateNew(TRITONBACKEND_State **state,
                                           TRITONBACKEND_Request *request, const char *name,
                                           const TRITONSERVER_DataType datatype,
                                           const int64_t *shape, const uint32_t dims_count)
{
    NEED(state);
    NEED(request);
    NEED(name);
    (void)datatype;
    (void)shape;
    (void)dims_count;
    return as_status(
        status_new(STATUS_INVALID_ARG,
                   "unable to add state '%s'. State configuration is missing for model '%s'.", name,
                   to_request(request)->model->name));
}

TRITONSERVER_Error *TRITONBACKEND_StateUpdate(TRITONBACKEND_State *state)
{
    return no_states(state);
}

TRITONSERVER_Error *TRITONBACKEND_StateBuffer(TRITONBACKEND_State *state, void **buffer,
                                              const uint64_t buffer_byte_size,
                                              TRITONSERVER_MemoryType *memory_type,
                                              int64_t *memory_type_id)
{
    (void)buffer;
    (void)buffer_byte_size;
    (void)memory_type;
    (void)memory_type_id;
    return no_states(state);
}

TRITONSERVER_Error *
TRITONBACKEND_StateBufferAttributes(TRITONBACKEND_State *state,
                                    TRITONSERVER_BufferAttributes **buffer_attributes)
{
    (void)buffer_attributes;
    return no_states(state);
}
