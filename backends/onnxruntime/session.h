/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session - what the model configuration says about how ONNX Runtime opens and runs a model:
 * threads, graph optimizations, memory, execution providers, libraries of custom operators.
 */
#ifndef BACKENDS_ONNXRUNTIME_SESSION_H
#define BACKENDS_ONNXRUNTIME_SESSION_H

#include "onnxruntime/model.h"

/*
 * session_open - set m->session; name, path, folder and config are known.
 * Errors: INVALID_ARG  a value of the configuration is wrong
 *         UNSUPPORTED  the library cannot do what the configuration asks for
 *         INTERNAL     ONNX Runtime refuses the model
 */
TRITONSERVER_Error *session_open(struct model *m);

/* session_run_options - options for runs; for each executor its own. The caller releases them. */
TRITONSERVER_Error *session_run_options(const struct model *m,
                                        struct ort_run_options **ret_options);

/* session_add_providers - in providers.c: the execution accelerators of the configuration. */
TRITONSERVER_Error *session_add_providers(const struct model *m, struct ort_options *options);

/* session_has_accelerators - in providers.c: does the configuration have any of them? */
bool session_has_accelerators(const struct model *m);

#endif
