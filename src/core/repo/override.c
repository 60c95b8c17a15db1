/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters are validated one by one. A file's path is normalised first, and must stay within the
 * model's folder. The result borrows the texts and bytes of the request, except the paths, which it
 * owns.
 */
#include "core/repo/override.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/repo/load_parameter.h"

static const char file_prefix[] = "file:";

/*
 * Normalises the path: without empty parts, "." and "..", except one ".." in front for each folder
 * that it leads up.
 */
static char *normalise_path(const char *path)
{
    char *out = mem_alloc(strlen(path) + 1), *end = out;
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, "/");
        const char *part = at;
        at += n + (at[n] == '/');
        if (n == 0 || (n == 1 && part[0] == '.'))
            continue;
        char *last = end;
        while (last > out && last[-1] != '/')
            last--;
        size_t last_n = (size_t)(end - last);
        bool up = n == 2 && memcmp(part, "..", 2) == 0;
        if (up && last_n > 0 && !(last_n == 2 && memcmp(last, "..", 2) == 0)) {
            end = last > out ? last - 1 : out;
            continue;
        }
        if (end > out)
            *end++ = '/';
        memmove(end, part, n);
        end += n;
    }
    *end = '\0';
    return out;
}

static struct status *add_file(struct override *o, const struct load_parameter *p)
{
    const char *path = p->name + sizeof(file_prefix) - 1;
    size_t length = strlen(path);
    char *normal = normalise_path(path);
    struct status *st = NULL;
    if (strncmp(normal, "..", 2) == 0 && (normal[2] == '/' || !normal[2]))
        st = status_new(STATUS_INVALID_ARG,
                        "Invalid file parameter '%s' with normalized path '%s' must stay within "
                        "model directory.",
                        p->name, normal);
    else if (!normal[0] || path[length - 1] == '/')
        st = status_new(STATUS_INVALID_ARG, "Invalid file parameter '%s' names no file.", p->name);
    if (st) {
        mem_free(normal);
        return st;
    }
    o->files[o->n_files++] =
        (struct source_file){.path = normal, .bytes = p->bytes, .size_bytes = p->size_bytes};
    return NULL;
}

static struct status *add_load_parameter(struct override *o, const struct load_parameter *p)
{
    static const char *const types[] = {[PARAMETER_STRING] = "STRING",
                                        [PARAMETER_INT] = "INT",
                                        [PARAMETER_BOOL] = "BOOL",
                                        [PARAMETER_DOUBLE] = "DOUBLE",
                                        [PARAMETER_BYTES] = "BYTES"};
    if (p->type == PARAMETER_STRING && strcmp(p->name, "config") == 0) {
        if (!o->config) /* of several the first counts, as in JSON */
            o->config = p->bytes;
        return NULL;
    }
    if (p->type == PARAMETER_BYTES && strncmp(p->name, file_prefix, sizeof(file_prefix) - 1) == 0)
        return add_file(o, p);
    return status_new(STATUS_INVALID_ARG, "Unrecognized load parameter '%s' with type '%s'",
                      p->name, types[p->type]);
}

struct status *override_read(const struct load_parameter *parameters, size_t n,
                             struct override *ret)
{
    struct override o = {0};
    struct status *st = NULL;
    o.files = mem_try_zalloc(n + 1, sizeof(*o.files));
    if (!o.files)
        return status_no_memory();
    for (size_t i = 0; i < n && !st; i++)
        st = add_load_parameter(&o, &parameters[i]);
    if (!st && o.n_files > 0 && !o.config)
        st = status_new(STATUS_INVALID_ARG,
                        "Load parameter 'config' must be specified for model file override");
    if (st) {
        override_done(&o);
        return st;
    }
    *ret = o;
    return NULL;
}

void override_done(struct override *o)
{
    for (size_t i = 0; i < o->n_files; i++)
        mem_free((void *)(uintptr_t)o->files[i].path);
    mem_free(o->files);
    *o = (struct override){0};
}
