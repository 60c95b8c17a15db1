/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image of a response: the bytes that a cache keeps. All numbers are those of this machine.
 *
 *     head        magic, number of outputs, number of parameters, bytes of the whole image
 *     outputs     head, dimensions, name, and the tensor from the next multiple of 64 on
 *     parameters  head, name, and a string's characters
 *
 * Each part begins at a multiple of 8. A name ends with a NUL. Caches may lose, cut and mix up
 * what they keep, and servers of several versions may share one: the reader checks everything.
 */
#ifndef CONCH_CORE_CACHE_RESPONSE_IMAGE_H
#define CONCH_CORE_CACHE_RESPONSE_IMAGE_H

#include <stddef.h>

#include "base/compiler.h"

struct request;
struct response;
struct status;

/*
 * response_image_bytes - the size of the response's image. 0: it has none, since it is an error,
 * an output is not in the CPU's memory or has another size than its shape says, or a parameter is
 * of a type that is not kept.
 */
size_t response_image_bytes(const struct response *resp);

/* response_image_write - writes the image. @size_bytes  what response_image_bytes() has returned */
void response_image_write(const struct response *resp, void *to, size_t size_bytes);

/*
 * response_image_read - makes a response to the request. Its maker allocates the outputs, and the
 * bytes are copied there.
 *
 * Thread: any that holds the request, without locks. The caller ends *ret_response with
 * response_send() or response_free().
 * Errors: STATUS_INVALID_ARG  the bytes are no image of a response of this model
 *         STATUS_UNSUPPORTED  the maker has its output in the memory of a GPU
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *response_image_read(const void *bytes, size_t size_bytes,
                                             struct request *r, struct response **ret_response);

#endif
