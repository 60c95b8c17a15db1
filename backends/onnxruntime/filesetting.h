/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filesetting - settings by which a model has ONNX Runtime or a provider of it read or write files
 * that are not the model's: configurations may come from people who may load models but are not to
 * write on the server's disk.
 */
#ifndef BACKENDS_ONNXRUNTIME_FILESETTING_H
#define BACKENDS_ONNXRUNTIME_FILESETTING_H

#include "common/backend.h"

/*
 * filesetting_check - may a model have this setting? Not if it names a file, a folder or a library,
 * or makes the library write a file at a place of its own choice.
 * @what     how the error calls it: "parameter"
 * @allowed  --backend-config=onnxruntime,allow-file-settings=1: all may
 * Errors: INVALID_ARG  it may not
 */
TRITONSERVER_Error *filesetting_check(const char *what, const char *name, const char *value,
                                      bool allowed);

#endif
