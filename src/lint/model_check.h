/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the linter: one model while it is checked. Each file takes one aspect and adds what it
 * finds.
 */
#ifndef CONCH_LINT_MODEL_CHECK_H
#define CONCH_LINT_MODEL_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "core/config/config.h"
#include "core/repo/scan.h"
#include "lint/lint.h"

struct backend_traits;

struct model_check {
    const struct lint_run *run;
    struct lint_model *m;
    struct lint_findings *found; /* m's */
    char *config_path;           /* as findings name it; of the folder when there is no file */
    struct scanned_model sm;     /* of the versions those that would be served */
    const struct backend_traits *backend; /* what is known of it; NULL: nothing */

    /* Shorthands. */
    const struct model_config *config;
    const Inference__ModelConfig *pb;
};

/* lint_at - the position of a field (element `index`) of a message of the configuration, or of the
 * message itself. */
struct lint_position lint_at(const struct model_check *l, const void *message, const char *field,
                             size_t index);

/* lint_completes - may the backend still add inputs or outputs, and then a batch size? */
bool lint_completes(const struct model_check *l);

/* lint_batch_size - max_batch_size as the server will have it; -1: the backend has its say. */
int32_t lint_batch_size(const struct model_check *l);

/* files.c: what lies in the version folders, and the files that the configuration names. */
void lint_check_files(struct model_check *l);
/* lint_check_file - can this file of the storage be read, and is it what it seems to be? */
void lint_check_file(struct model_check *l, const char *path);
/* samples.c, batching.c, tensors.c, parameters.c: what the configuration says. */
void lint_check_samples(struct model_check *l);
void lint_check_batching(struct model_check *l);
void lint_check_tensors(struct model_check *l);
void lint_check_parameters(struct model_check *l);

#endif
