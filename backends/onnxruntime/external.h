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

/* One of those files. */
struct external_file {
    char *location; /* as the ONNX file names it */
    char *path;     /* as realpath() gives it */
};

/* What an ONNX file says of tensors in other files. All zero: there are none. */
struct external {
    uint64_t bytes;              /* of all these tensors */
    struct external_file *files; /* each location once; those of one path follow each other */
    size_t n_files;
};

/*
 * external_check - are all these files in the folder of the ONNX file, with links followed? A file
 * that is no ONNX file passes; ONNX Runtime reports its faults.
 * @ret_external  the caller ends it with external_done(); all zero after an error
 * Errors: NOT_FOUND    one does not exist
 *         INVALID_ARG  one is somewhere else
 *         INTERNAL     no memory
 */
TRITONSERVER_Error *external_check(const char *file, struct external *ret_external);
void external_done(struct external *external);

/*
 * external_has_shape - does the file say which shape that input or output of the model has? ONNX
 * Runtime does not tell a tensor without dimensions from one of any number of dimensions.
 */
bool external_has_shape(const char *file, const char *name);

/* external_is_below - is a path inside a folder? Both as realpath() gives them. */
bool external_is_below(const char *path, const char *folder);

#endif
