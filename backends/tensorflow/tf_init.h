/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf_init - runs the init ops that the parameter TF_INIT_OPS_FILE names: operators of the graph
 * that give variables their first values.
 *
 * Threads: as tf_session_load().
 */
#ifndef BACKENDS_TENSORFLOW_TF_INIT_H
#define BACKENDS_TENSORFLOW_TF_INIT_H

#include "tensorflow/tf_session.h"

/*
 * tf_run_init_ops - run them in a new session.
 * @status  scratch
 * Errors: NOT_FOUND    there is no such file, in the version's folder or in the model's
 *         INVALID_ARG  its name leads out of the folder; it is no JSON of that kind, or too large;
 *                      the graph has no operator of a name
 *         those of TensorFlow
 */
TRITONSERVER_Error *tf_run_init_ops(const struct tf_loaded *l, const struct tf_session *s,
                                    struct tf_status *status);

#endif
