/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf_run - runs batches of requests in a session of TensorFlow.
 *
 * Threads: a runner belongs to one instance, and one thread at a time uses it.
 */
#ifndef BACKENDS_TENSORFLOW_TF_RUN_H
#define BACKENDS_TENSORFLOW_TF_RUN_H

#include "tensorflow/tf_session.h"

struct tf_runner;

TRITONSERVER_Error *tf_runner_new(struct tf_loaded *l, struct tf_runner **ret_runner);
void tf_runner_free(struct tf_runner *r);

/* tf_runner_run - fill the responses of a batch, as frame.execute has to. */
TRITONSERVER_Error *tf_runner_run(struct tf_runner *r, struct batch *b);

#endif
