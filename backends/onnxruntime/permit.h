/* SPDX-License-Identifier: Apache-2.0 */
/*
 * permit - which of ONNX Runtime's settings a model may have. A client that may load models also
 * writes configurations, but must not write to the server's disk or memory with them.
 */
#ifndef BACKENDS_ONNXRUNTIME_PERMIT_H
#define BACKENDS_ONNXRUNTIME_PERMIT_H

#include "common/backend.h"

/*
 * permit_check - may a model have this setting of ONNX Runtime or of a provider? Never if it names
 * an address in this process. Only with allows_files if it names a file, a folder or a library, or
 * makes ONNX Runtime write a file at a path of its choice. Any setting may be empty, 0 or false.
 * @what          the kind of setting, for the error: "parameter"
 * @allows_files  --backend-config=onnxruntime,allow-file-settings=1
 * Errors: INVALID_ARG  it may not
 */
TRITONSERVER_Error *permit_check(const char *what, const char *name, const char *value,
                                 bool allows_files);

#endif
