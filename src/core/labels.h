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

/*
 * labels_read - reads a file of the model's folder.
 *
 * @file_name  relative to the folder
 * Errors: STATUS_INVALID_ARG  it lies outside the folder; STATUS_NOT_FOUND, … it cannot be read
 */
NODISCARD struct status *labels_read(const char *model, const char *output, const char *directory,
                                     const char *file_name, struct labels **ret_labels);
void labels_free(struct labels *l);

#endif
