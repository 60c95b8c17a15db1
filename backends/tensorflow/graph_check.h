/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_check - looks for what ends the process when TensorFlow reads it, without an error:
 *
 *   - a constant of more than 254 dimensions, or of more elements than 63 bits count;
 *   - functions that call themselves or each other, or that call so deep that a stack ends;
 *     gradients of functions, too.
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_TENSORFLOW_GRAPH_CHECK_H
#define BACKENDS_TENSORFLOW_GRAPH_CHECK_H

#include "common/backend.h"
#include "common/message.h"

/*
 * graph_check - check a GraphDef, its functions included.
 * @model, @path  of the model and of its file, for errors
 * Errors: INVALID_ARG  it is malformed, or has one of the above
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *graph_check(struct message_bytes graph, const char *model, const char *path);

#endif
