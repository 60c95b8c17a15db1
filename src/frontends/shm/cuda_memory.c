/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few functions of CUDA's driver API that shared memory needs, under the names that the driver
 * exports. Their types are declared here, as the driver's ABI has them, so that no header of CUDA
 * is needed. Each call makes the device's primary context current and takes it off again: threads
 * of ours have none otherwise. The driver stays in the process: it has threads of its own.
 */
#include "frontends/shm/cuda_memory.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

/* ---- The driver ------------------------------------------------------------------------------ */

typedef int cuda_result; /* 0: it is done */
typedef int cuda_device;
typedef void *cuda_context;
typedef unsigned long long cuda_address;

struct cuda_handle {
    char bytes[CUDA_HANDLE_BYTES]; /* passed by value */
};

enum { OPEN_LAZILY = 1 }; /* other devices get access to the memory when they need it */

static struct {
    cuda_result (*init)(unsigned int flags);
    cuda_result (*count_devices)(int *n);
    cuda_result (*get_device)(cuda_device *device, int number);
    cuda_result (*retain_context)(cuda_context *context, cuda_device device);
    cuda_result (*release_context)(cuda_device device);
    cuda_result (*push_context)(cuda_context context);
    cuda_result (*pop_context)(cuda_context *context);
    cuda_result (*open_handle)(cuda_address *base, struct cuda_handle handle, unsigned int flags);
    cuda_result (*close_handle)(cuda_address base);
    cuda_result (*get_range)(cuda_address *base, size_t *n_bytes, cuda_address within);
    cuda_result (*copy_to_host)(void *to, cuda_address from, size_t n_bytes);
    cuda_result (*copy_to_device)(cuda_address to, const void *from, size_t n_bytes);
    cuda_result (*describe)(cuda_result result, const char **text);
    bool is_there;
} driver;

static bool find_functions(void *library)
{
    const struct {
        const char *name;
        void *slot; /* a pointer to a function */
    } wanted[] = {
        {"cuInit", &driver.init},
        {"cuDeviceGetCount", &driver.count_devices},
        {"cuDeviceGet", &driver.get_device},
        {"cuDevicePrimaryCtxRetain", &driver.retain_context},
        {"cuDevicePrimaryCtxRelease_v2", &driver.release_context},
        {"cuCtxPushCurrent_v2", &driver.push_context},
        {"cuCtxPopCurrent_v2", &driver.pop_context},
        {"cuIpcOpenMemHandle_v2", &driver.open_handle},
        {"cuIpcCloseMemHandle", &driver.close_handle},
        {"cuMemGetAddressRange_v2", &driver.get_range},
        {"cuMemcpyDtoH_v2", &driver.copy_to_host},
        {"cuMemcpyHtoD_v2", &driver.copy_to_device},
        {"cuGetErrorString", &driver.describe},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        void *address = dlsym(library, wanted[i].name);
        if (!address) {
            log_verbose(1, "no memory of GPUs is shared: the driver has no function %s",
                        wanted[i].name);
            return false;
        }
        *(void **)wanted[i].slot = address;
    }
    return true;
}

static const char *result_text(cuda_result result)
{
    const char *text = NULL;
    if (driver.describe(result, &text) != 0 || !text)
        return "unknown error";
    return text;
}

static void start_driver(void)
{
    int n_devices = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        log_verbose(1, "no memory of GPUs is shared: %s", dlerror());
        return;
    }
    if (!find_functions(library))
        return;
    cuda_result result = driver.init(0);
    if (result == 0)
        result = driver.count_devices(&n_devices);
    driver.is_there = result == 0 && n_devices > 0;
    if (result != 0)
        log_verbose(1, "no memory of GPUs is shared: the driver does not start: %s",
                    result_text(result));
}

bool cuda_is_there(void)
{
    static pthread_once_t started = PTHREAD_ONCE_INIT;
    pthread_once(&started, start_driver);
    return driver.is_there;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

struct cuda_memory {
    cuda_device device;
    cuda_context context; /* one reference to the device's primary context */
    cuda_address base;
};

static struct status *status_of_result(const char *what, cuda_result result)
{
    return status_new(STATUS_INTERNAL, "%s: %s", what, result_text(result));
}

static void leave_context(void)
{
    cuda_context ours;
    driver.pop_context(&ours);
}

static cuda_result enter_device(int number, struct cuda_memory *m)
{
    cuda_result result = driver.get_device(&m->device, number);
    if (result == 0)
        result = driver.retain_context(&m->context, m->device);
    if (result != 0)
        return result;
    result = driver.push_context(m->context);
    if (result != 0)
        driver.release_context(m->device);
    return result;
}

static struct status *open_in_context(const void *handle, uint64_t size_bytes,
                                      struct cuda_memory *m)
{
    const struct cuda_handle *given = handle;
    cuda_address base;
    size_t n_bytes;
    cuda_result result = driver.open_handle(&m->base, *given, OPEN_LAZILY);
    if (result != 0)
        return status_of_result("failed to open CUDA IPC handle", result);
    struct status *st = NULL;
    result = driver.get_range(&base, &n_bytes, m->base);
    if (result != 0)
        st = status_of_result("failed to get the size of the memory", result);
    else if (size_bytes > n_bytes - (m->base - base))
        st = status_new(STATUS_INVALID_ARG, "the memory has %zu bytes",
                        (size_t)(n_bytes - (m->base - base)));
    if (st)
        driver.close_handle(m->base);
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
                          result_text(result));
    struct status *st = open_in_context(handle, size_bytes, &m);
    leave_context();
    if (st) {
        driver.release_context(m.device);
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
    cuda_result result = driver.push_context(m->context);
    if (result == 0) {
        result = driver.close_handle(m->base);
        leave_context();
    }
    if (result != 0)
        log_warn("shared memory of a GPU was not closed: %s", result_text(result));
    driver.release_context(m->device);
    mem_free(m);
}

struct status *cuda_memory_read(const struct cuda_memory *m, uint64_t offset, void *to,
                                size_t n_bytes)
{
    cuda_result result = driver.push_context(m->context);
    if (result == 0) {
        result = driver.copy_to_host(to, m->base + offset, n_bytes);
        leave_context();
    }
    return result == 0 ? NULL : status_of_result("failed to copy from the GPU", result);
}

struct status *cuda_memory_write(const struct cuda_memory *m, uint64_t offset, const void *from,
                                 size_t n_bytes)
{
    cuda_result result = driver.push_context(m->context);
    if (result == 0) {
        result = driver.copy_to_device(m->base + offset, from, n_bytes);
        leave_context();
    }
    return result == 0 ? NULL : status_of_result("failed to copy to the GPU", result);
}
