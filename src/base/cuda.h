/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's driver: whether there is one, and the few functions of it that the server calls. The
 * driver is found at run time, under the name libcuda.so.1, and looked for once. Nothing of it is
 * linked, and no other library of CUDA is used. It stays in the process: it has threads of its own.
 *
 * Thread: any that may block: the first call starts the driver, which takes long.
 */
#ifndef CONCH_BASE_CUDA_H
#define CONCH_BASE_CUDA_H

#include <stddef.h>

typedef int cuda_result; /* 0: it is done */
typedef int cuda_device;
typedef void *cuda_context;
typedef unsigned long long cuda_address;

enum { CUDA_HANDLE_BYTES = 64 }; /* of a cudaIpcMemHandle_t */

struct cuda_handle {
    char bytes[CUDA_HANDLE_BYTES]; /* passed by value */
};

/* Functions of the driver, with the types of its ABI. */
struct cuda_driver {
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
};

/* cuda_count_devices - the GPUs of this machine; 0: none, or no driver. */
int cuda_count_devices(void);

/* cuda_driver - its functions; only where cuda_count_devices() is not 0. */
const struct cuda_driver *cuda_driver(void);

/* cuda_result_text - the driver's words for a result; a constant. Only where there is a driver. */
const char *cuda_result_text(cuda_result result);

#endif
