/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor - a tensor in a message of the child: its fields, checked, and where its bytes lie.
 *
 * Threads: any.
 */
#ifndef BACKENDS_PYTHON_TENSOR_H
#define BACKENDS_PYTHON_TENSOR_H

#include "python/channel.h"

enum { TENSOR_MAX_NAME = 4096 };

struct tensor {
    char name[TENSOR_MAX_NAME]; /* terminated */
    TRITONSERVER_DataType type;
    uint32_t rank;
    int64_t shape[PROTOCOL_MAX_RANK];
    uint64_t size_bytes, n_elements;
    const void *data; /* in the child's memory, which the child may write to; size_bytes bytes */
    uint64_t block;   /* to be given back; 0: none */
};

/* tensor_read - the next fields of a message. False: they are impossible: a type, rank, dimension,
 * size or place that cannot be, or a size other than the type and shape say. */
bool tensor_read(struct tensor *t, struct channel *c, struct unpacker *u);

/* tensor_text - a text of a message, terminated; cut if it does not fit. */
void tensor_text(struct unpacker *u, char *to, size_t room);

/* The least size of a tensor's fields. */
enum { TENSOR_LEAST_BYTES = 4 + 4 + 4 + 8 + 8 + 8 };

#endif
