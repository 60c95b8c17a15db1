/* SPDX-License-Identifier: Apache-2.0 */
/* No state; any thread. */
#include "frontends/ops/forwarding.h"

#include <string.h>

#include "base/arena.h"
#include "base/regex.h"
#include "base/status.h"
#include "core/request/request.h"

struct status *forwarding_add(const struct regex *pattern, const char *name, size_t name_length,
                              const char *value, size_t value_length, struct arena *arena,
                              struct forwarded **list)
{
    if (!regex_matches(pattern, name, name_length))
        return NULL;
    struct forwarded *f = arena_alloc(arena, sizeof(*f));
    if (!f)
        return status_no_memory();
    *f = (struct forwarded){.name = arena_strndup(arena, name, name_length),
                            .value = arena_strndup(arena, value, value_length)};
    if (!f->name || !f->value)
        return status_no_memory();
    while (*list)
        list = &(*list)->next;
    *list = f;
    return NULL;
}

static bool is_reserved_name(const char *name)
{
    static const char *const names[] = {
        "sequence_id", "sequence_start", "sequence_end",       "priority",
        "timeout",     "headers",        "binary_data_output",
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return strncmp(name, "triton_", sizeof("triton_") - 1) == 0;
}

struct status *forwarding_apply(const struct forwarded *list, struct request *r)
{
    for (const struct forwarded *f = list; f; f = f->next) {
        struct parameter p = {.name = f->name, .type = PARAMETER_STRING, .string = f->value};
        if (is_reserved_name(f->name))
            return status_new(STATUS_INVALID_ARG,
                              "Header '%.256s' is reserved for Triton usage and cannot be "
                              "forwarded.",
                              f->name);
        struct status *st = request_add_parameter(r, &p);
        if (st)
            return st;
    }
    return NULL;
}
