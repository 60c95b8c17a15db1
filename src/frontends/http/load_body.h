/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of load and unload requests: {"parameters": {"config": "…", "file:1/model.onnx":
 * "<base64>"}} and {"parameters": {"unload_dependents": true}}. An empty body, and JSON that is not
 * an object, give no parameters.
 */
#ifndef CONCH_FRONTENDS_HTTP_LOAD_BODY_H
#define CONCH_FRONTENDS_HTTP_LOAD_BODY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct arena;
struct load_parameter;
struct status;

/*
 * The size that an arena must allow for a body. The body may be in it three times: with escapes
 * resolved, as texts, and decoded.
 */
static inline size_t load_body_arena_bytes(size_t body_bytes)
{
    return 3 * body_bytes + (1 << 20);
}

/*
 * load_body_read - reads the parameters of a load.
 *
 * @body       well-formed JSON (json_check()), or empty
 * @arena      holds names, texts and bytes
 * @ret_list   the caller frees it with mem_free()
 * Errors: STATUS_INTERNAL     a value of another type; an unknown parameter (the codes of the
 *                             reference)
 *         STATUS_INVALID_ARG  a file that is not base64
 */
NODISCARD struct status *load_body_read(const char *body, size_t size, struct arena *arena,
                                        struct load_parameter **ret_list, size_t *ret_n);

/* load_body_read_unload - reads whether an unload takes the ensemble's members along. Errors: as
 * above. */
NODISCARD struct status *load_body_read_unload(const char *body, size_t size, struct arena *arena,
                                               bool *ret_with_members);

#endif
