/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reflection (grpc.reflection.v1 and v1alpha, whose messages are the same): the descriptors of our
 * .proto files, for tools that know none of them. Bytes of a request in, bytes of the response out.
 */
#ifndef CONCH_FRONTENDS_GRPC_REFLECTION_H
#define CONCH_FRONTENDS_GRPC_REFLECTION_H

#include <stddef.h>

#include "base/compiler.h"

struct buf;
struct status;

/*
 * reflection_answer - appends the ServerReflectionResponse to a ServerReflectionRequest. A file, a
 * symbol or a type that does not exist is an error_response, not an error.
 *
 * Thread: any.
 * Errors: STATUS_INTERNAL     Unable to parse request
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *reflection_answer(const char *bytes, size_t n_bytes, struct buf *out);

#endif
