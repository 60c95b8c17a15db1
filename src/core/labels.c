/* SPDX-License-Identifier: Apache-2.0 */
#include "core/labels.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"

enum { MAX_LABEL_BYTES = 64 << 20 };

/* Splits the text into lines, in place; a last line without an end counts, an empty one does not.
 */
static void split(struct labels *l)
{
    size_t capacity = 0;
    char *rest = l->text;
    while (*rest) {
        char *line = rest;
        rest = strchrnul(rest, '\n');
        size_t length = (size_t)(rest - line);
        if (*rest)
            *rest++ = '\0';
        if (length && line[length - 1] == '\r')
            line[length - 1] = '\0';
        if (l->count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            l->lines = mem_realloc(l->lines, capacity * sizeof(char *));
        }
        l->lines[l->count++] = line;
    }
}

/* The text of the reference for a file that is not there, and the reason for all others. */
static struct status *say_whose(struct status *st, const char *model, const char *output,
                                const char *directory, const char *file_name)
{
    if (status_code(st) != STATUS_NOT_FOUND)
        return status_prefix(st, "labels of output '%s' of model '%s': ", output, model);
    status_free(st);
    return status_new(STATUS_INTERNAL,
                      "failed to open text file for read %s/%s: No such file or directory (the "
                      "labels of output '%s' of model '%s')",
                      directory, file_name, output, model);
}

struct status *labels_read(const char *model, const char *output, const char *directory,
                           const char *file_name, struct labels **ret_labels)
{
    if (str_escapes_folder(file_name))
        return status_new(STATUS_INVALID_ARG,
                          "label file path '%s' for output '%s' in model '%s' is outside model "
                          "directory",
                          file_name, output, model);

    struct buf text = BUF_INIT(MAX_LABEL_BYTES);
    char *path = mem_printf("%s/%s", directory, file_name);
    struct status *st = file_read(path, &text);
    mem_free(path);
    if (st) {
        buf_done(&text);
        return say_whose(st, model, output, directory, file_name);
    }
    struct labels *l = mem_zalloc(sizeof(*l));
    l->text = buf_take(&text);
    split(l);
    *ret_labels = l;
    return NULL;
}

void labels_free(struct labels *l)
{
    if (!l)
        return;
    mem_free(l->lines);
    mem_free(l->text);
    mem_free(l);
}
