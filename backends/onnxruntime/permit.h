/* SPDX-License-Identifier: Apache-2.0 */
/*
 * permit - which of ONNX Runtime's settings a model may have: configurations may come from people
 * who may load models, but are not to write on the server's disk, nor into its memory.
 */
#ifndef BACKENDS_ONNXRUNTIME_PERMIT_H
#define BACKENDS_ONNXRUNTIME_PERMIT_H

#include "common/backend.h"

/*
 * permit_check - may a model have this setting of ONNX Runtime or of a provider? Never if it names
 * an address in this process; and not if it names a file, a folder or a library, or makes the
 * library write a file at a place of its own choice. Any may be empty, 0 or false.
 * @what          how the error calls it: "parameter"
 * @allows_files  --backend-config=onnxruntime,allow-file-settings=1
 * Errors: INVALID_ARG  it may not
 */
TRITONSERVER_Error *permit_check(const char *what, const char *name, const char *value,
                                 bool allows_files);

#endif
