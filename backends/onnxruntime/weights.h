/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights - the files of external data, read into memory for a session.
 */
#ifndef BACKENDS_ONNXRUNTIME_WEIGHTS_H
#define BACKENDS_ONNXRUNTIME_WEIGHTS_H

#include "onnxruntime/external.h"
#include "onnxruntime/library.h"

struct weights;

/* weights_bytes - how much weights_read() would read now. A file that is gone counts as empty. */
uint64_t weights_bytes(const struct external *external);

/*
 * weights_read - read all files, each path once.
 * @external     with at least one file; it outlives the weights
 * @ret_weights  the caller frees them; NULL after an error
 * Errors: INVALID_ARG  a file cannot be read
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *weights_read(const struct external *external, struct weights **ret_weights);
void weights_free(struct weights *weights); /* NULL: nothing happens */

/*
 * weights_give - name them in the options of a session. The library must have
 * AddExternalInitializersFromFilesInMemory, and the weights stay until the session is made.
 */
TRITONSERVER_Error *weights_give(const struct weights *weights, const struct library *library,
                                 struct ort_options *options);

#endif
