/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf_options - the options of TensorFlow's sessions, as the parameters of a model ask for them.
 *
 * Threads: as tf_session_load().
 */
#ifndef BACKENDS_TENSORFLOW_TF_OPTIONS_H
#define BACKENDS_TENSORFLOW_TF_OPTIONS_H

#include "tensorflow/tf_session.h"

/*
 * tf_make_options - the options of a new session; the graph was looked at before.
 * @status       scratch
 * @ret_options  the caller deletes them, after an error, too; NULL: there are none
 * Errors: those of TensorFlow
 */
TRITONSERVER_Error *tf_make_options(const struct tf_loaded *l, struct tf_status *status,
                                    struct tf_session_options **ret_options);

/* tf_warn_of_level - warn if optimization.graph.level has no effect in this process. */
void tf_warn_of_level(const struct tf_model *m);

#endif
