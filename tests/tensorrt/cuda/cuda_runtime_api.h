/* SPDX-License-Identifier: Apache-2.0 */
/* What TensorRT's headers need of CUDA's, where those are not (slots.cc). */
#ifndef TESTS_TENSORRT_CUDA_CUDA_RUNTIME_API_H
#define TESTS_TENSORRT_CUDA_CUDA_RUNTIME_API_H

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif
