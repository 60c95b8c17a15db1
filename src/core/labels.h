/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The label file of an output: one line per class.
 */
#ifndef CONCH_CORE_LABELS_H
#define CONCH_CORE_LABELS_H

#include <stddef.h>

#include "base/compiler.h"

struct labels {
    size_t count;
    char **lines;
    char *text; /* what the lines point into */
};

struct storage;

/*
 * labels_read - reads a file of the model's folder: up to 64 MB of text, up to 4 Mi lines.
 *
 * @folder     the model's, in the storage
 * @file_name  relative to the folder
 * Errors: STATUS_INVALID_ARG  it lies outside the folder, is too large, no text, a folder …
 *         STATUS_INTERNAL     there is none
 */
NODISCARD struct status *labels_read(const char *model, const char *output, const struct storage *s,
                                     const char *folder, const char *file_name,
                                     struct labels **ret_labels);
void labels_free(struct labels *l);

#endif
