/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a load request may bring instead of the files in the repository (reference/behaviours §13.5,
 * §13.6):
 *
 *     config        text     the configuration as JSON, instead of config.pbtxt
 *     file:<path>   bytes    a file of the model; together with config only. The model then has
 *                            these files and no other
 */
#ifndef CONCH_CORE_REPO_OVERRIDE_H
#define CONCH_CORE_REPO_OVERRIDE_H

#include <stddef.h>

#include "base/compiler.h"
#include "core/repo/source.h"

struct load_parameter;
struct status;

struct override {
    const char *config; /* NULL: as the model's folder has it */
    size_t n_files;     /* 0: the model's folder has them */
    struct source_file *files;
};

/*
 * override_read - what the parameters of a load request ask for; borrows from them, and is ended by
 * override_done().
 *
 * Errors: STATUS_INVALID_ARG  a parameter that is none of these; files without a configuration; a
 *                             path that leads out of the model's folder
 */
NODISCARD struct status *override_read(const struct load_parameter *parameters, size_t n,
                                       struct override *ret);
void override_done(struct override *o);

#endif
