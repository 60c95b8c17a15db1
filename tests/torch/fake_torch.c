/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_torch - a libtorch_cpu.so that has only what packages of AOTInductor need: tensors, by
 * PyTorch's C functions, and the number of threads that OpenMP has for each thread, which PyTorch
 * sets at the first call on it. It counts the tensors that live. With OLD it lacks functions of
 * newer releases. tests/system/aoti_packages.py compiles it.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fake_torch.h"

struct tensor {
    void *data;
    bool owned;
    int32_t type;
    int64_t rank, sizes[8], strides[8];
};

static atomic_long n_live;

int64_t fake_live_tensors(void)
{
    return n_live;
}

#define TYPE(name, number)                                                                         \
    int32_t aoti_torch_dtype_##name(void);                                                         \
    int32_t aoti_torch_dtype_##name(void)                                                          \
    {                                                                                              \
        return number;                                                                             \
    }
TYPE(uint8, 0)
TYPE(int8, 1)
TYPE(int16, 2)
TYPE(int32, 3)
TYPE(int64, FAKE_INT64)
TYPE(float16, 5)
TYPE(float32, FAKE_FLOAT)
TYPE(float64, 7)
TYPE(bool, 11)
TYPE(bfloat16, 15)

int32_t aoti_torch_device_type_cpu(void)
{
    return 0;
}

int32_t aoti_torch_create_tensor_from_blob(void *data, int64_t rank, const int64_t *sizes,
                                           const int64_t *strides, int64_t offset, int32_t type,
                                           int32_t device, int32_t index, struct tensor **ret)
{
    struct tensor *t;

    (void)device, (void)index;
    if (rank > 8 || offset != 0)
        return 1;
    t = calloc(1, sizeof(*t));
    t->data = data;
    t->type = type;
    t->rank = rank;
    memcpy(t->sizes, sizes, (size_t)rank * sizeof(*sizes));
    memcpy(t->strides, strides, (size_t)rank * sizeof(*strides));
    n_live++;
    *ret = t;
    return 0;
}

int32_t aoti_torch_empty_strided(int64_t rank, const int64_t *sizes, const int64_t *strides,
                                 int32_t type, int32_t device, int32_t index, struct tensor **ret)
{
    size_t n = 8;

    for (int64_t d = 0; d < rank; d++)
        n *= (size_t)sizes[d];
    if (aoti_torch_create_tensor_from_blob(NULL, rank, sizes, strides, 0, type, device, index, ret))
        return 1;
    (*ret)->data = malloc(n > 0 ? n : 1);
    (*ret)->owned = true;
    return 0;
}

static __thread int n_threads;
static __thread bool asked;

/* at::get_num_threads() */
int _ZN2at15get_num_threadsEv(void);
int _ZN2at15get_num_threadsEv(void)
{
    if (!asked)
        n_threads = FAKE_THREADS;
    asked = true;
    return n_threads;
}

#ifndef OLD
void omp_set_num_threads(int n);
void omp_set_num_threads(int n)
{
    n_threads = n;
}
#endif

int64_t fake_threads(void)
{
    return _ZN2at15get_num_threadsEv();
}

#ifndef OLD
int32_t aoti_torch_new_tensor_handle(struct tensor *of, struct tensor **ret)
{
    *ret = malloc(sizeof(**ret));
    **ret = *of;
    (*ret)->owned = false;
    n_live++;
    return 0;
}
#endif

int32_t aoti_torch_delete_tensor_object(struct tensor *t)
{
    if (t->owned)
        free(t->data);
    free(t);
    n_live--;
    return 0;
}

int32_t aoti_torch_get_data_ptr(struct tensor *t, void **ret)
{
    *ret = t->data;
    return 0;
}

int32_t aoti_torch_get_dim(struct tensor *t, int64_t *ret)
{
    *ret = t->rank;
    return 0;
}

int32_t aoti_torch_get_dtype(struct tensor *t, int32_t *ret)
{
    *ret = t->type;
    return 0;
}

int32_t aoti_torch_get_device_type(struct tensor *t, int32_t *ret)
{
    (void)t;
    *ret = 0;
    return 0;
}

int32_t aoti_torch_get_sizes(struct tensor *t, int64_t **ret)
{
    *ret = t->sizes;
    return 0;
}

int32_t aoti_torch_get_strides(struct tensor *t, int64_t **ret)
{
    *ret = t->strides;
    return 0;
}
