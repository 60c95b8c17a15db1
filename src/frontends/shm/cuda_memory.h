/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU that a client shares: it is opened by the handle that the client has made for
 * other processes, and copied to and from memory of the host, by CUDA's driver (base/cuda.h).
 *
 *     if (cuda_is_there())
 *         st = cuda_memory_open(handle, device_id, size_bytes, &m);
 *     …
 *     st = cuda_memory_read(m, offset, to, n_bytes);
 *     cuda_memory_close(m);
 *
 * Thread: any that may block: the driver may wait for the GPU, and its start takes long.
 */
#ifndef CONCH_FRONTENDS_SHM_CUDA_MEMORY_H
#define CONCH_FRONTENDS_SHM_CUDA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/cuda.h"

struct cuda_memory;
struct status;

/* cuda_is_there - whether there are a driver and a GPU. The first call starts the driver. */
bool cuda_is_there(void);

/*
 * cuda_memory_open - opens a client's memory. Only where cuda_is_there(). The caller ends it with
 * cuda_memory_close().
 *
 * @handle  CUDA_HANDLE_BYTES
 * Errors: STATUS_INVALID_ARG  there is no such device; the memory is smaller than size_bytes
 *         STATUS_INTERNAL     the driver does not open the handle
 */
NODISCARD struct status *cuda_memory_open(const void *handle, int64_t device_id,
                                          uint64_t size_bytes, struct cuda_memory **ret_memory);
/* cuda_memory_close - NULL is fine. Nobody copies any more. */
void cuda_memory_close(struct cuda_memory *m);

/*
 * cuda_memory_read, cuda_memory_write - copy a part of the memory. The caller has checked that the
 * part lies in it.
 *
 * Errors: STATUS_INTERNAL  the driver's
 */
NODISCARD struct status *cuda_memory_read(const struct cuda_memory *m, uint64_t offset, void *to,
                                          size_t n_bytes);
NODISCARD struct status *cuda_memory_write(const struct cuda_memory *m, uint64_t offset,
                                           const void *from, size_t n_bytes);

#endif
