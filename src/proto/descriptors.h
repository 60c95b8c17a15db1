/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors of all our .proto files, which the build takes from protoc
 * (cmake/descriptors.cmake). Constant data.
 */
#ifndef CONCH_PROTO_DESCRIPTORS_H
#define CONCH_PROTO_DESCRIPTORS_H

#include <stddef.h>

/* A serialised google.protobuf.FileDescriptorSet that has one file. */
struct proto_descriptor {
    const unsigned char *set;
    size_t n_bytes;
};

extern const struct proto_descriptor proto_descriptors[];
extern const size_t proto_n_descriptors;

#endif
