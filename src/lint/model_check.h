/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the linter: the state of the check of one model. Each file checks one aspect and adds its
 * findings.
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
    struct lint_findings *found; /* &m->found */
    char *config_path;           /* for findings; the path of the folder if there is no file */
    struct scanned_model sm;     /* has the versions that the server would load */
    const struct backend_traits *backend; /* NULL: nothing is known of the backend */

    /* Shorthands. */
    const struct model_config *config;
    const Inference__ModelConfig *pb;
};

/*
 * lint_at - the position of a field of a message of the configuration. If the text does not have
 * the field, it is the position of the message.
 *
 * @message  NULL: the file without line and column
 * @index    of the element, if the field is repeated
 */
struct lint_position lint_at(const struct model_check *l, const void *message, const char *field,
                             size_t index);

/* lint_facts - the facts for completing the configuration; borrows from l. */
struct config_facts lint_facts(const struct model_check *l);

/* lint_completes - whether the backend may still add inputs or outputs, and then a batch size. */
bool lint_completes(const struct model_check *l);

/* lint_batch_size - max_batch_size as the server will set it; -1: the backend may change it. */
int32_t lint_batch_size(const struct model_check *l);

/* lint_type_name - the name of a data type in a configuration: "TYPE_FP32". Static. */
const char *lint_type_name(Inference__DataType type);

/* files.c: checks the version folders, and the files that the configuration names. */
void lint_check_files(struct model_check *l);
/* lint_check_file - checks that a file of the storage can be read and has the expected format. */
void lint_check_file(struct model_check *l, const char *path);
/* lint_add_missing_file - adds that the model file at this path of the storage is not there. */
void lint_add_missing_file(struct model_check *l, const char *path);
/* onnx.c: checks the ONNX files of the backend onnxruntime, and the configuration beside them. */
void lint_check_onnx(struct model_check *l);
/* samples.c, batching.c, tensors.c, parameters.c: check parts of the configuration. */
void lint_check_samples(struct model_check *l);
void lint_check_batching(struct model_check *l);
void lint_check_tensors(struct model_check *l);
void lint_check_parameters(struct model_check *l);

#endif
