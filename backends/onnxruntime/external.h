/* SPDX-License-Identifier: Apache-2.0 */
/*
 * external - tensors of an ONNX file whose data lies in other files.
 *
 * The names of those files come with the model, so they are checked before ONNX Runtime opens them:
 * some of its releases let a model read any file of the machine.
 */
#ifndef BACKENDS_ONNXRUNTIME_EXTERNAL_H
#define BACKENDS_ONNXRUNTIME_EXTERNAL_H

#include "common/backend.h"

/*
 * external_check - are all these files in the folder of the ONNX file, with links followed? A file
 * that is no ONNX file passes; ONNX Runtime reports its faults.
 * @ret_bytes  what the file says that the tensors in other files have
 * Errors: NOT_FOUND    one does not exist
 *         INVALID_ARG  one is somewhere else
 */
TRITONSERVER_Error *external_check(const char *file, uint64_t *ret_bytes);

/*
 * external_has_shape - does the file say which shape that input or output of the model has? ONNX
 * Runtime does not tell a tensor without dimensions from one of any number of dimensions.
 */
bool external_has_shape(const char *file, const char *name);

/* external_is_below - is a path inside a folder? Both as realpath() gives them. */
bool external_is_below(const char *path, const char *folder);

#endif
