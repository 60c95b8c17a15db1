/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engines - what executes models: OpenVINO, which reads SavedModels, and TensorFlow itself.
 *
 * Threads: configured and finalised by one thread; then as struct engine.
 */
#ifndef BACKENDS_TENSORFLOW_ENGINES_H
#define BACKENDS_TENSORFLOW_ENGINES_H

#include "tensorflow/model.h"

extern const struct engine openvino_engine, tensorflow_engine;

/*
 * openvino_engine_configure, tensorflow_engine_configure - read the settings; the library is found
 * when the first model needs it.
 * @folder  of the backend; copied
 */
TRITONSERVER_Error *openvino_engine_configure(const struct doc *settings, const char *folder);
void openvino_engine_finalize(void);
TRITONSERVER_Error *tensorflow_engine_configure(const struct doc *settings, const char *folder);
void tensorflow_engine_finalize(void);

/* openvino_engine_version, tensorflow_engine_version - what `conch --version` prints; the caller
 * frees it. */
char *openvino_engine_version(const char *folder);
char *tensorflow_engine_version(const char *folder, const char *file);

#endif
