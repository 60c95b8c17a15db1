/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state's bytes are copied into a buffer of the server, and TRITONBACKEND_StateUpdate() makes
 * them the state. Thread: the one that executes the instance.
 */
#include "onnxruntime/states.h"

#include <string.h>

#include "onnxruntime/strings.h"

static TRITONSERVER_Error *buffer_of(TRITONBACKEND_State *state, const char *name, size_t size,
                                     void **ret_buffer)
{
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;

    TRY(TRITONBACKEND_StateBuffer(state, ret_buffer, size, &type, &id));
    if (type == TRITONSERVER_MEMORY_GPU)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "state '%s' is kept in the memory of a GPU, which this backend does "
                             "not write",
                             name);
    return NULL;
}

TRITONSERVER_Error *state_keep(const struct library *lib, TRITONBACKEND_Request *request,
                               const struct tensor *t, const struct ort_value *value, size_t first,
                               size_t n, const int64_t *shape, uint32_t rank)
{
    TRITONBACKEND_State *state;
    size_t size = n * t->type->size;
    void *to = NULL, *data = NULL;

    if (t->type->size == 0)
        TRY(strings_size(lib, value, first, n, &size));
    TRY(TRITONBACKEND_StateNew(&state, request, t->name, t->type->server, shape, rank));
    TRY(buffer_of(state, t->name, size, &to));
    if (t->type->size == 0) {
        TRY(strings_write(lib, value, first, n, to, size));
    } else if (size > 0) {
        TRY_ORT(lib, GetTensorMutableData((struct ort_value *)(uintptr_t)value, &data));
        memcpy(to, (const char *)data + first * t->type->size, size);
    }
    return TRITONBACKEND_StateUpdate(state);
}
