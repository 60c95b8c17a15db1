/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_file - where the file of a model is; a configuration that is completed from it, and what is
 * needed to compare the two.
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
 * Errors: INVALID_ARG  the configured name leads out of the folder, it is no regular file, or the
 *                      server may not read it
 *         NOT_FOUND    there is no file
 */
TRITONSERVER_Error *model_file_find(TRITONBACKEND_Model *handle, const struct doc *config,
                                    const char *model, const char *name, const char *inner,
                                    char **ret_path);

/*
 * model_file_bytes - the size of a file, or of all files in a folder and in its folders. What
 * cannot be read counts 0.
 */
uint64_t model_file_bytes(const char *path);

/* model_file_find_named - the same for a file whose name the configuration gives elsewhere. */
TRITONSERVER_Error *model_file_find_named(TRITONBACKEND_Model *handle, const char *model,
                                          const char *file, const char *inner, char **ret_path);

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

/*
 * model_file_write_tensor - write an input or output as the configuration has it.
 * @type     as configurations write it: TYPE_FP32
 * @dims     of the model; -1: any size
 * @batches  the first dimension is the batch, which a configuration leaves out
 */
void model_file_write_tensor(FILE *to, const char *name, const char *type, const int64_t *dims,
                             size_t rank, bool batches);

/*
 * model_file_config_shape - the shape that the backend gets for an input or output: its dims, or
 * what they are reshaped to, with -1 for the batch in front.
 * @tensor  of the configuration
 * @dims    room for max_rank
 * Errors: INVALID_ARG  more than max_rank dimensions
 */
TRITONSERVER_Error *model_file_config_shape(const char *model, const struct doc_value *tensor,
                                            bool batches, size_t max_rank, int64_t *dims,
                                            size_t *ret_rank);

/* model_file_count_inputs - how many inputs the configuration gives a model: those of requests, and
 * those that the scheduler makes, which are controls and states of sequences, and batch inputs. */
size_t model_file_count_inputs(const struct doc *config);

/*
 * model_file_unexpected - the error for an input or output that the model does not have.
 * @what   "input" or "output"
 * @names  of those that the model has; they are sorted in place
 */
TRITONSERVER_Error *model_file_unexpected(const char *what, const char *name, const char **names,
                                          size_t n);

/* model_file_shape_text - a shape for a message: [2,-1]. One that is too long is cut off. */
struct shape_text {
    char text[512];
};
struct shape_text model_file_shape_text(const int64_t *dims, size_t rank);

#ifdef __cplusplus
}
#endif
#endif
