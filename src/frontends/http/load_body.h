/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of load and unload requests: {"parameters": {"config": "…", "file:1/model.onnx":
 * "<base64>"}} and {"parameters": {"unload_dependents": true}}. Nothing, and JSON that is no
 * object, says nothing.
 */
#ifndef CONCH_FRONTENDS_HTTP_LOAD_BODY_H
#define CONCH_FRONTENDS_HTTP_LOAD_BODY_H

#include <stddef.h>

#include "base/compiler.h"

struct arena;
struct load_parameter;
struct status;

/* What an arena must be able to give for a body: it may be there three times, with escapes
 * resolved, as texts, and decoded. */
static inline size_t load_body_arena_bytes(size_t body_bytes)
{
    return 3 * body_bytes + (1 << 20);
}

/*
 * load_body_read - the parameters of a load.
 *
 * @body       well-formed JSON (json_check()), or empty
 * @arena      where names, texts and bytes are kept
 * @ret_list   the caller frees it with mem_free()
 * Errors: STATUS_INTERNAL     a value of another type; a parameter that is none of these (the codes
 *                             of the reference)
 *         STATUS_INVALID_ARG  a file that is not base64
 */
NODISCARD struct status *load_body_read(const char *body, size_t size, struct arena *arena,
                                        struct load_parameter **ret_list, size_t *ret_n);

/* load_body_check_unload - the same of an unload. Errors: as above */
NODISCARD struct status *load_body_check_unload(const char *body, size_t size, struct arena *arena);

#endif
