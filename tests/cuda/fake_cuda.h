/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fake driver offers to fake libraries that compute with its memory (fake_cuda.c). They
 * find it by dlsym().
 */
#ifndef TESTS_CUDA_FAKE_CUDA_H
#define TESTS_CUDA_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* Added to addresses on the heap, so that what uses them as addresses of its own ends. */
#define FAKE_OFFSET 0x0100000000000000ULL

/* fake_cuda_bytes - where those bytes of device memory are; NULL: they are not allocated. */
typedef void *fake_cuda_bytes_fn(unsigned long long at, size_t n_bytes);
fake_cuda_bytes_fn fake_cuda_bytes;

/*
 * fake_cuda_record - if the stream is captured, keeps a call for each launch of the graph.
 * @call  NULL: only tells whether the stream is captured
 * @arg   freed with the graph, if true is returned
 */
typedef void fake_cuda_call(void *arg);
typedef bool fake_cuda_record_fn(void *stream, fake_cuda_call *call, void *arg);
fake_cuda_record_fn fake_cuda_record;

#endif
