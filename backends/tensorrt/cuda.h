/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda - CUDA's driver, found at run time, and memory of its devices.
 *
 * Each call of the driver needs a current context: that of the device, between cuda_enter() and
 * cuda_leave() on the same thread. TensorRT uses it, too.
 */
#ifndef BACKENDS_TENSORRT_CUDA_H
#define BACKENDS_TENSORRT_CUDA_H

#include "common/backend.h"

typedef int cuda_result; /* 0: it is done */

/* Functions of the driver, with the types of its ABI. */
struct cuda {
    cuda_result (*init)(unsigned int flags);
    cuda_result (*count_devices)(int *n);
    cuda_result (*get_device)(int *device, int number);
    cuda_result (*device_attribute)(int *value, int attribute, int device);
    cuda_result (*retain_context)(void **context, int device);
    cuda_result (*release_context)(int device);
    cuda_result (*push_context)(void *context);
    cuda_result (*pop_context)(void **context);
    cuda_result (*priorities)(int *least, int *greatest);
    cuda_result (*new_stream)(void **stream, unsigned int flags, int priority);
    cuda_result (*free_stream)(void *stream);
    cuda_result (*await_stream)(void *stream);
    cuda_result (*allocate)(unsigned long long *at, size_t size);
    cuda_result (*release)(unsigned long long at);
    cuda_result (*to_device)(unsigned long long to, const void *from, size_t size, void *stream);
    cuda_result (*to_host)(void *to, unsigned long long from, size_t size, void *stream);
    cuda_result (*allocate_pinned)(void **at, size_t size);
    cuda_result (*release_pinned)(void *at);
    cuda_result (*fill)(unsigned long long at, unsigned char value, size_t size, void *stream);
    cuda_result (*begin_capture)(void *stream, int mode);
    cuda_result (*end_capture)(void *stream, void **graph);
    cuda_result (*make_executable)(void **exec, void *graph, unsigned long long flags);
    cuda_result (*launch_graph)(void *exec, void *stream);
    cuda_result (*free_executable)(void *exec);
    cuda_result (*free_graph)(void *graph);
    cuda_result (*describe)(cuda_result result, const char **text);
};

#define CUDA_CAPTURE_THREAD 1 /* begin_capture(): other threads may do what they want meanwhile */

/* A device and a reference to its primary context. */
struct cuda_place {
    const struct cuda *cuda;
    int number, device;
    void *context;
};

/* Memory of a device, as large as the largest use so far. */
struct cuda_buffer {
    unsigned long long at;
    uint64_t size;
};

/* Memory of the host that GPUs read and write by themselves, as large as the largest use so far. */
struct cuda_pinned {
    const struct cuda *cuda;
    void *at;
    uint64_t size;
};

/*
 * cuda_open - the driver; it is looked for once. Thread: any.
 * Errors: UNAVAILABLE  there is no driver, or no GPU; the text says which
 */
TRITONSERVER_Error *cuda_open(const struct cuda **ret_cuda);

/* cuda_error - an error of a step that failed. */
TRITONSERVER_Error *cuda_error(const struct cuda *cuda, const char *what, cuda_result result);

/* TRY_CUDA - leave the function with an error if this call of the driver failed. */
#define TRY_CUDA(cuda, what, name, ...)                                                            \
    do {                                                                                           \
        cuda_result try_result = (cuda)->name(__VA_ARGS__);                                        \
        if (try_result != 0)                                                                       \
            return cuda_error(cuda, what, try_result);                                             \
    } while (0)

/* cuda_place_open - the device of a number. Errors: INVALID_ARG  there is none; INTERNAL  the
 * driver's */
TRITONSERVER_Error *cuda_place_open(const struct cuda *cuda, int number, struct cuda_place *ret);
void cuda_place_done(struct cuda_place *p); /* NULL contexts are fine */

TRITONSERVER_Error *cuda_enter(const struct cuda_place *p);
void cuda_leave(const struct cuda_place *p);

/* cuda_capability - the compute capability of a GPU, as "8.6". */
TRITONSERVER_Error *cuda_capability(const struct cuda *cuda, int number, char *text, size_t size);

/*
 * cuda_reserve - at least so many bytes; what was there is lost. Nothing on the device uses the
 * buffer meanwhile.
 * Errors: UNAVAILABLE  no memory on the device
 */
TRITONSERVER_Error *cuda_reserve(const struct cuda *cuda, struct cuda_buffer *b, uint64_t size);
void cuda_buffer_done(const struct cuda *cuda, struct cuda_buffer *b);

/* cuda_lend - at least so many bytes of pinned memory, aligned to a page; what was there is lost.
 * A gather_lend_fn(). NULL: the driver gives none. */
void *cuda_lend(void *pinned, uint64_t size);
void cuda_pinned_done(struct cuda_pinned *p);

#endif
