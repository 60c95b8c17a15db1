/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_torch - the functions of fake_torch.c. They have PyTorch's names and meaning; 0 is success.
 */
#ifndef TESTS_TORCH_FAKE_TORCH_H
#define TESTS_TORCH_FAKE_TORCH_H

#include <stdint.h>

enum { FAKE_INT64 = 4, FAKE_FLOAT = 6, FAKE_THREADS = 77 };

struct tensor;

int64_t fake_live_tensors(void);
int64_t fake_threads(void); /* that an operator would have on this thread */
int32_t aoti_torch_device_type_cpu(void);
int32_t aoti_torch_create_tensor_from_blob(void *data, int64_t rank, const int64_t *sizes,
                                           const int64_t *strides, int64_t offset, int32_t type,
                                           int32_t device, int32_t index, struct tensor **ret);
int32_t aoti_torch_empty_strided(int64_t rank, const int64_t *sizes, const int64_t *strides,
                                 int32_t type, int32_t device, int32_t index, struct tensor **ret);
int32_t aoti_torch_delete_tensor_object(struct tensor *t);
int32_t aoti_torch_get_data_ptr(struct tensor *t, void **ret);
int32_t aoti_torch_get_dim(struct tensor *t, int64_t *ret);
int32_t aoti_torch_get_dtype(struct tensor *t, int32_t *ret);
int32_t aoti_torch_get_device_type(struct tensor *t, int32_t *ret);
int32_t aoti_torch_get_sizes(struct tensor *t, int64_t **ret);
int32_t aoti_torch_get_strides(struct tensor *t, int64_t **ret);

#endif
