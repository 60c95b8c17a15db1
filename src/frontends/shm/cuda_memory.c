/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call makes the device's primary context current and takes it off again: threads of ours
 * have none otherwise.
 */
#include "frontends/shm/cuda_memory.h"

#include <limits.h>

#include "base/cuda.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

enum { OPEN_LAZILY = 1 }; /* other devices get access to the memory when they need it */

bool cuda_is_there(void)
{
    return cuda_count_devices() > 0;
}

struct cuda_memory {
    cuda_device device;
    cuda_context context; /* one reference to the device's primary context */
    cuda_address base;
};

static struct status *status_of_result(const char *what, cuda_result result)
{
    return status_new(STATUS_INTERNAL, "%s: %s", what, cuda_result_text(result));
}

static void leave_context(void)
{
    cuda_context ours;
    cuda_driver()->pop_context(&ours);
}

static cuda_result enter_device(int number, struct cuda_memory *m)
{
    cuda_result result = cuda_driver()->get_device(&m->device, number);
    if (result == 0)
        result = cuda_driver()->retain_context(&m->context, m->device);
    if (result != 0)
        return result;
    result = cuda_driver()->push_context(m->context);
    if (result != 0)
        cuda_driver()->release_context(m->device);
    return result;
}

static struct status *open_in_context(const void *handle, uint64_t size_bytes,
                                      struct cuda_memory *m)
{
    const struct cuda_handle *given = handle;
    cuda_address base;
    size_t n_bytes;
    cuda_result result = cuda_driver()->open_handle(&m->base, *given, OPEN_LAZILY);
    if (result != 0)
        return status_of_result("failed to open CUDA IPC handle", result);
    struct status *st = NULL;
    result = cuda_driver()->get_range(&base, &n_bytes, m->base);
    if (result != 0)
        st = status_of_result("failed to get the size of the memory", result);
    else if (size_bytes > n_bytes - (m->base - base))
        st = status_new(STATUS_INVALID_ARG, "the memory has %zu bytes",
                        (size_t)(n_bytes - (m->base - base)));
    if (st)
        cuda_driver()->close_handle(m->base);
    return st;
}

struct status *cuda_memory_open(const void *handle, int64_t device_id, uint64_t size_bytes,
                                struct cuda_memory **ret_memory)
{
    struct cuda_memory m;
    if (device_id < 0 || device_id > INT_MAX)
        return status_new(STATUS_INVALID_ARG, "there is no device %lld", (long long)device_id);
    cuda_result result = enter_device((int)device_id, &m);
    if (result != 0)
        return status_new(STATUS_INVALID_ARG, "unable to use device %lld: %s", (long long)device_id,
                          cuda_result_text(result));
    struct status *st = open_in_context(handle, size_bytes, &m);
    leave_context();
    if (st) {
        cuda_driver()->release_context(m.device);
        return st;
    }
    *ret_memory = mem_alloc(sizeof(m));
    **ret_memory = m;
    return NULL;
}

void cuda_memory_close(struct cuda_memory *m)
{
    if (!m)
        return;
    cuda_result result = cuda_driver()->push_context(m->context);
    if (result == 0) {
        result = cuda_driver()->close_handle(m->base);
        leave_context();
    }
    if (result != 0)
        log_warn("shared memory of a GPU was not closed: %s", cuda_result_text(result));
    cuda_driver()->release_context(m->device);
    mem_free(m);
}

struct status *cuda_memory_read(const struct cuda_memory *m, uint64_t offset, void *to,
                                size_t n_bytes)
{
    cuda_result result = cuda_driver()->push_context(m->context);
    if (result == 0) {
        result = cuda_driver()->copy_to_host(to, m->base + offset, n_bytes);
        leave_context();
    }
    return result == 0 ? NULL : status_of_result("failed to copy from the GPU", result);
}

struct status *cuda_memory_write(const struct cuda_memory *m, uint64_t offset, const void *from,
                                 size_t n_bytes)
{
    cuda_result result = cuda_driver()->push_context(m->context);
    if (result == 0) {
        result = cuda_driver()->copy_to_device(m->base + offset, from, n_bytes);
        leave_context();
    }
    return result == 0 ? NULL : status_of_result("failed to copy to the GPU", result);
}
