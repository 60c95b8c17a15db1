/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_file - where the file of a model is, and a configuration that is completed from it.
 *
 * Threads: one thread loads a model.
 */
#ifndef BACKENDS_COMMON_MODEL_FILE_H
#define BACKENDS_COMMON_MODEL_FILE_H

#include "common/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * model_file_find - the path of the model's file: default_model_filename of the configuration, or
 * else a name, in the version's folder. If that is a folder, the file `inner` in it.
 * @model     the model's name, for errors
 * @name      borrowed
 * @ret_path  the caller frees it
 * Errors: INVALID_ARG  the configured name leads out of the folder, or there is no regular file
 *         NOT_FOUND    there is no file
 */
TRITONSERVER_Error *model_file_find(TRITONBACKEND_Model *handle, const struct doc *config,
                                    const char *model, const char *name, const char *inner,
                                    char **ret_path);

/* What completes a configuration that has no inputs or no outputs. */
struct model_file_parts {
    int64_t max_batch_size;
    /* Write the JSON arrays `input` and `output`. */
    void (*write_inputs)(FILE *to, const void *arg);
    void (*write_outputs)(FILE *to, const void *arg);
    const void *arg;
};

/*
 * model_file_complete - add inputs and outputs where the configuration has none, max_batch_size,
 * and dynamic batching where batches of more than one are allowed and no scheduler is chosen. The
 * server gets the result, and it replaces *config.
 * Errors: those of the server, which has checks of its own
 */
TRITONSERVER_Error *model_file_complete(TRITONBACKEND_Model *handle, struct doc **config,
                                        const struct model_file_parts *parts);

/* model_file_lacks_tensors - does the configuration leave out inputs or outputs? */
bool model_file_lacks_tensors(const struct doc *config);

#ifdef __cplusplus
}
#endif
#endif
