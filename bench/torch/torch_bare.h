/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_bare - PyTorch's bare call of a model: tensors that are there already, in inference mode,
 * on the calling thread alone.
 */
#ifndef BENCH_TORCH_TORCH_BARE_H
#define BENCH_TORCH_TORCH_BARE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct torch_bare;

/* torch_bare_open - loads the file, for inputs of FP32 [rows, columns], which stay where they are.
 * Returns NULL and an error's text if it cannot. It stays until the process ends. */
struct torch_bare *torch_bare_open(const char *path, float *const *inputs, size_t n_inputs,
                                   int64_t rows, int64_t columns, const char **ret_error);

/* torch_bare_run - calls forward() with the first n rows, and drops what it returns. One thread at
 * a time for each struct torch_bare, which is @bare. */
void torch_bare_run(void *bare, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
