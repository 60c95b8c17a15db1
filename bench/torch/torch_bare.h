/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_bare - PyTorch's bare call of a model with two inputs: tensors that are there already, in
 * inference mode, on the calling thread.
 */
#ifndef BENCH_TORCH_TORCH_BARE_H
#define BENCH_TORCH_TORCH_BARE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* torch_bare_open - load the file, for inputs of FP32 [rows, columns], which stay where they are.
 * Returns an error's text, or NULL. */
const char *torch_bare_open(const char *path, float *first, float *second, int64_t rows,
                            int64_t columns);

/* torch_bare_run - call forward() with the first n rows, and drop what it returns. */
void torch_bare_run(int64_t n);

#ifdef __cplusplus
}
#endif
#endif
