/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of a load request, up to where its files would be written. Whatever the paths, accepted
 * ones stay below the model's folder and name a file in it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/repo/load_parameter.h"
#include "core/repo/override.h"
#include "frontends/http/load_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *path)
{
    size_t length = strlen(path);
    if (length == 0 || path[0] == '/' || path[length - 1] == '/' || str_escapes_folder(path) ||
        strstr(path, "//") || strstr(path, "/../") || strstr(path, "/./"))
        abort();
}

static void check(const struct load_parameter *list, size_t n)
{
    struct override o;
    size_t bytes = 0;
    struct status *st = override_read(list, n, &o);
    if (st) {
        status_free(st);
        return;
    }
    if (o.n_files > n || (o.n_files > 0 && !o.config) || (o.config && strlen(o.config) == SIZE_MAX))
        abort();
    for (size_t i = 0; i < o.n_files; i++) {
        check_path(o.files[i].path);
        for (size_t k = 0; k < o.files[i].size_bytes; k++) /* all bytes must be readable */
            bytes += ((const uint8_t *)o.files[i].bytes)[k];
    }
    if (bytes == SIZE_MAX)
        abort();
    override_done(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_error error;
    struct load_parameter *list = NULL;
    struct arena arena;
    size_t n = 0;
    const char *body = (const char *)data;
    if (size > 0 && !json_check(body, size, &error))
        return 0;
    arena_init(&arena, NULL, 0, load_body_arena_bytes(size), NULL, NULL);
    struct status *st = load_body_read(body, size, &arena, &list, &n);
    if (st == status_no_memory()) /* the limit has room for any body */
        abort();
    if (!st)
        check(list, n);
    mem_free(list);
    status_free(st);
    bool with_members;
    status_free(load_body_read_unload(body, size, &arena, &with_members));
    arena_reset(&arena);
    return 0;
}
