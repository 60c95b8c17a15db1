/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The label file of an output: one line per class.
 */
#ifndef CONCH_CORE_MODEL_LABELS_H
#define CONCH_CORE_MODEL_LABELS_H

#include <stddef.h>

#include "base/compiler.h"

struct labels {
    size_t count;
    char **lines;
    char *text; /* what the lines point into */
    size_t text_bytes;
};

struct storage;

/*
 * labels_read - reads a label file in the model's folder: up to 64 MB of text, up to 4 Mi lines.
 * The caller ends *ret_labels with labels_free().
 *
 * @model, @output  names, for the errors
 * @folder     the model's, in the storage
 * @file_name  relative to the folder
 * Errors: STATUS_INVALID_ARG  the file lies outside the folder, is too large, is no text, …
 *         STATUS_INTERNAL     there is no such file
 */
NODISCARD struct status *labels_read(const char *model, const char *output, const struct storage *s,
                                     const char *folder, const char *file_name,
                                     struct labels **ret_labels);

/* labels_copy - the caller ends *ret_labels with labels_free(). Errors: STATUS_UNAVAILABLE  no
 * memory */
NODISCARD struct status *labels_copy(const struct labels *l, struct labels **ret_labels);

void labels_free(struct labels *l);

/* labels_find - the label of a class; NULL: it has none, its line is empty, or l is NULL. */
const char *labels_find(const struct labels *l, size_t class_index);

#endif
