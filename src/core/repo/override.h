/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of a load request that replace files of the repository (reference/behaviours
 * §13.5, §13.6):
 *
 *     config        text     the configuration as JSON, instead of config.pbtxt
 *     file:<path>   bytes    a file of the model; only together with config. The model then has
 *                            these files and no others
 */
#ifndef CONCH_CORE_REPO_OVERRIDE_H
#define CONCH_CORE_REPO_OVERRIDE_H

#include <stddef.h>

#include "base/compiler.h"
#include "core/storage/source.h"

struct load_parameter;
struct status;

struct override {
    const char *config; /* NULL: the model's folder has the configuration */
    size_t n_files;     /* 0: the model's folder has the files */
    struct source_file *files;
};

/*
 * override_read - reads the parameters of a load request. *ret borrows from them; the caller ends
 * it with override_done().
 *
 * Errors: STATUS_INVALID_ARG  a parameter has another name; there are files, but no configuration;
 *                             a path leads out of the model's folder
 */
NODISCARD struct status *override_read(const struct load_parameter *parameters, size_t n,
                                       struct override *ret);
void override_done(struct override *o);

#endif
