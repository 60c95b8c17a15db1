/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver stays in the process: it has threads of its own. Its functions are constant once
 * found.
 */
#include "tensorrt/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define ATTRIBUTE_MAJOR 75 /* of the compute capability */
#define ATTRIBUTE_MINOR 76

/* Sizes are rounded up, so that batches that grow do not allocate each time. */
#define GRAIN (64 << 10)

static struct cuda driver;
static char driver_fault[256]; /* why there is none */

static const char *cuda_text(const struct cuda *cuda, cuda_result result)
{
    const char *text = NULL;

    return cuda->describe(result, &text) == 0 && text ? text : "unknown error";
}

static bool find_driver_functions(void *library)
{
    const struct {
        const char *name;
        void *slot; /* a pointer to a function */
    } wanted[] = {
        {"cuInit", &driver.init},
        {"cuDeviceGetCount", &driver.count_devices},
        {"cuDeviceGet", &driver.get_device},
        {"cuDeviceGetAttribute", &driver.device_attribute},
        {"cuDevicePrimaryCtxRetain", &driver.retain_context},
        {"cuDevicePrimaryCtxRelease_v2", &driver.release_context},
        {"cuCtxPushCurrent_v2", &driver.push_context},
        {"cuCtxPopCurrent_v2", &driver.pop_context},
        {"cuCtxGetStreamPriorityRange", &driver.priorities},
        {"cuStreamCreateWithPriority", &driver.new_stream},
        {"cuStreamDestroy_v2", &driver.free_stream},
        {"cuStreamSynchronize", &driver.await_stream},
        {"cuMemAlloc_v2", &driver.allocate},
        {"cuMemFree_v2", &driver.release},
        {"cuMemcpyHtoDAsync_v2", &driver.to_device},
        {"cuMemcpyDtoHAsync_v2", &driver.to_host},
        {"cuMemAllocHost_v2", &driver.allocate_pinned},
        {"cuMemFreeHost", &driver.release_pinned},
        {"cuMemsetD8Async", &driver.fill},
        {"cuStreamBeginCapture_v2", &driver.begin_capture},
        {"cuStreamEndCapture", &driver.end_capture},
        {"cuGraphInstantiateWithFlags", &driver.make_executable},
        {"cuGraphLaunch", &driver.launch_graph},
        {"cuGraphExecDestroy", &driver.free_executable},
        {"cuGraphDestroy", &driver.free_graph},
        {"cuGetErrorString", &driver.describe},
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *address = dlsym(library, wanted[i].name);

        if (!address) {
            snprintf(driver_fault, sizeof(driver_fault), "it has no function %s", wanted[i].name);
            return false;
        }
        /* Data and function pointers have one representation on every system that has dlsym. */
        memcpy(wanted[i].slot, &address, sizeof(address));
    }
    return true;
}

static void start_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    cuda_result result;
    int n = 0;

    if (!library) {
        snprintf(driver_fault, sizeof(driver_fault), "%s", dlerror());
        return;
    }
    if (!find_driver_functions(library))
        return;
    result = driver.init(0);
    if (result == 0)
        result = driver.count_devices(&n);
    if (result != 0)
        snprintf(driver_fault, sizeof(driver_fault), "it does not start: %s",
                 cuda_text(&driver, result));
    else if (n == 0)
        snprintf(driver_fault, sizeof(driver_fault), "it has no GPU");
}

TRITONSERVER_Error *cuda_open(const struct cuda **ret_cuda)
{
    static pthread_once_t started = PTHREAD_ONCE_INIT;

    pthread_once(&started, start_cuda);
    *ret_cuda = &driver;
    return driver_fault[0]
               ? backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                               "TensorRT needs a GPU, and CUDA's driver cannot be used: %s",
                               driver_fault)
               : NULL;
}

TRITONSERVER_Error *cuda_error(const struct cuda *cuda, const char *what, cuda_result result)
{
    return backend_error(TRITONSERVER_ERROR_INTERNAL, "%s: %s", what, cuda_text(cuda, result));
}

/* ---- Devices --------------------------------------------------------------------------------- */

TRITONSERVER_Error *cuda_place_open(const struct cuda *cuda, int number, struct cuda_place *ret)
{
    cuda_result result = cuda->get_device(&ret->device, number);

    ret->cuda = cuda;
    ret->number = number;
    if (result != 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "unable to use GPU %d: %s", number,
                             cuda_text(cuda, result));
    TRY_CUDA(cuda, "unable to use the GPU's context", retain_context, &ret->context, ret->device);
    return NULL;
}

void cuda_place_done(struct cuda_place *p)
{
    if (p->context)
        p->cuda->release_context(p->device);
    p->context = NULL;
}

TRITONSERVER_Error *cuda_enter(const struct cuda_place *p)
{
    TRY_CUDA(p->cuda, "unable to enter the GPU's context", push_context, p->context);
    return NULL;
}

void cuda_leave(const struct cuda_place *p)
{
    void *ours;

    p->cuda->pop_context(&ours);
}

TRITONSERVER_Error *cuda_capability(const struct cuda *cuda, int number, char *text, size_t size)
{
    const char *what = "unable to read the GPU's compute capability";
    int device, major = 0, minor = 0;

    TRY_CUDA(cuda, what, get_device, &device, number);
    TRY_CUDA(cuda, what, device_attribute, &major, ATTRIBUTE_MAJOR, device);
    TRY_CUDA(cuda, what, device_attribute, &minor, ATTRIBUTE_MINOR, device);
    snprintf(text, size, "%d.%d", major, minor);
    return NULL;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

TRITONSERVER_Error *cuda_reserve(const struct cuda *cuda, struct cuda_buffer *b, uint64_t size)
{
    uint64_t rounded = (size + GRAIN - 1) / GRAIN * GRAIN;
    cuda_result result;

    if (b->at && b->size >= size)
        return NULL;
    cuda_buffer_done(cuda, b);
    if (rounded < size)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "a tensor of %llu bytes is too large",
                             (unsigned long long)size);
    if (rounded == 0)
        rounded = GRAIN; /* an address is needed for an empty tensor, too */
    result = cuda->allocate(&b->at, rounded);
    if (result != 0) {
        b->at = 0;
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "no memory for %llu bytes on the GPU: %s", (unsigned long long)rounded,
                             cuda_text(cuda, result));
    }
    b->size = rounded;
    return NULL;
}

void cuda_buffer_done(const struct cuda *cuda, struct cuda_buffer *b)
{
    if (b->at)
        cuda->release(b->at);
    *b = (struct cuda_buffer){0};
}

void *cuda_lend(void *pinned, uint64_t size)
{
    struct cuda_pinned *p = pinned;
    uint64_t rounded = (size + GRAIN - 1) / GRAIN * GRAIN;

    if (p->at && p->size >= size)
        return p->at;
    cuda_pinned_done(p);
    if (rounded < size || p->cuda->allocate_pinned(&p->at, rounded > 0 ? rounded : GRAIN) != 0)
        p->at = NULL;
    p->size = p->at ? rounded : 0;
    return p->at;
}

void cuda_pinned_done(struct cuda_pinned *p)
{
    if (p->at)
        p->cuda->release_pinned(p->at);
    p->at = NULL;
    p->size = 0;
}
