/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is read into one block, and each line becomes a string in it. The thread that loads the
 * model does so; afterwards the labels are constant, and any thread reads them.
 */
#include "core/model/labels.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/storage/storage.h"

enum { MAX_LABEL_BYTES = 64 << 20, MAX_LABELS = 4 << 20 };

/* Splits the text into lines, in place. A last line without an end counts, an empty one does
 * not. */
static struct status *split_lines(struct labels *l, size_t size, const char *name)
{
    size_t capacity = 0;
    char *rest = l->text;
    const char *end = l->text + size;
    while (rest < end) {
        char *line = rest;
        char *stop = memchr(rest, '\n', (size_t)(end - rest));
        rest = stop ? stop + 1 : l->text + size;
        if (!stop)
            stop = rest;
        *stop = '\0'; /* the text has a byte more than its size */
        if (stop > line && stop[-1] == '\r')
            stop[-1] = '\0';
        if (l->count == MAX_LABELS)
            return status_new(STATUS_INVALID_ARG, "'%s' has more than %d lines", name, MAX_LABELS);
        if (l->count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            char **grown = mem_try_realloc(l->lines, capacity * sizeof(char *));
            if (!grown)
                return status_no_memory();
            l->lines = grown;
        }
        l->lines[l->count++] = line;
    }
    return NULL;
}

static struct status *read_lines(const struct storage *s, const char *folder, const char *file_name,
                                 struct labels *l)
{
    struct buf text = BUF_INIT(MAX_LABEL_BYTES);
    char *name = mem_printf("%s/%s/%s", s->root, folder, file_name);
    struct status *st = storage_read_named(s, folder, file_name, &text);
    if (st && status_code(st) == STATUS_NOT_FOUND) {
        status_free(st);
        st = status_new(STATUS_INTERNAL,
                        "failed to open text file for read %s: No such file or directory", name);
    }
    if (!st && text.size && memchr(text.data, '\0', text.size))
        st = status_new(STATUS_INVALID_ARG, "'%s' has a NUL byte, so it is no text", name);
    if (!st) {
        size_t size = text.size;
        l->text = buf_take(&text);
        l->text_bytes = size;
        st = split_lines(l, size, name);
    }
    buf_done(&text);
    mem_free(name);
    return st;
}

struct status *labels_read(const char *model, const char *output, const struct storage *s,
                           const char *folder, const char *file_name, struct labels **ret_labels)
{
    if (str_escapes_folder(file_name))
        return status_new(STATUS_INVALID_ARG,
                          "label file path '%s' for output '%s' in model '%s' is outside model "
                          "directory",
                          file_name, output, model);

    struct labels *l = mem_zalloc(sizeof(*l));
    struct status *st = read_lines(s, folder, file_name, l);
    if (!st) {
        *ret_labels = l;
        return NULL;
    }
    labels_free(l);
    struct status *whole = status_new(status_code(st), "%s (labels of output '%s' of model '%s')",
                                      status_message(st), output, model);
    status_free(st);
    return whole;
}

struct status *labels_copy(const struct labels *l, struct labels **ret_labels)
{
    struct labels *copy = mem_zalloc(sizeof(*copy));
    copy->text = mem_try_alloc(l->text_bytes + 1);
    copy->lines = mem_try_zalloc(l->count, sizeof(*copy->lines));
    if (!copy->text || !copy->lines) {
        labels_free(copy);
        return status_no_memory();
    }
    copy->text_bytes = l->text_bytes;
    memcpy(copy->text, l->text, l->text_bytes + 1);
    copy->count = l->count;
    for (size_t i = 0; i < l->count; i++)
        copy->lines[i] = copy->text + (l->lines[i] - l->text);
    *ret_labels = copy;
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

const char *labels_find(const struct labels *l, size_t class_index)
{
    return l && class_index < l->count && l->lines[class_index][0] ? l->lines[class_index] : NULL;
}
