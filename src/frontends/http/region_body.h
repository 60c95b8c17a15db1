/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body that registers a region of system shared memory: {"key": "/name", "offset": 0,
 * "byte_size": 64}. Unknown members are ignored; of members of the same name the first counts.
 *
 * Thread: any.
 */
#ifndef CONCH_FRONTENDS_HTTP_REGION_BODY_H
#define CONCH_FRONTENDS_HTTP_REGION_BODY_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct arena;
struct status;

struct region_body {
    const char *key; /* in the arena */
    uint64_t offset; /* 0 if the body has none */
    uint64_t size_bytes;
};

/*
 * region_body_read - reads a body (reference/behaviours §9).
 *
 * @body   well-formed JSON (json_check()), or empty
 * @arena  holds the key
 * Errors: STATUS_INVALID_ARG  a member is missing
 *         STATUS_INTERNAL     a value of another type (the code of the reference); or no memory
 */
NODISCARD struct status *region_body_read(const char *body, size_t size, struct arena *arena,
                                          struct region_body *ret);

/* The body that registers memory of a GPU: {"raw_handle": {"b64": "…"}, "device_id": 0,
 * "byte_size": 64}. */
struct cuda_region_body {
    const uint8_t *handle; /* CUDA_HANDLE_BYTES, in the arena */
    int64_t device_id;
    uint64_t size_bytes;
};

/*
 * region_body_read_cuda - reads such a body.
 *
 * @body, @arena  as region_body_read()
 * Errors: those of region_body_read()
 *         STATUS_INVALID_ARG  the handle is no base64 of a handle's size
 */
NODISCARD struct status *region_body_read_cuda(const char *body, size_t size, struct arena *arena,
                                               struct cuda_region_body *ret);

#endif
