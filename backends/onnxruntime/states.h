/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states - implicit states of sequences: outputs that the server keeps, and hands to the model as
 * inputs with the next request of the same sequence.
 */
#ifndef BACKENDS_ONNXRUNTIME_STATES_H
#define BACKENDS_ONNXRUNTIME_STATES_H

#include "onnxruntime/library.h"
#include "onnxruntime/model.h"

/*
 * state_keep - set the state of the request's sequence to elements [first, first + n) of the value
 * that the model has made for output t.
 *
 * @shape  of those elements
 * Errors: UNSUPPORTED  the server keeps states in the memory of a GPU
 *         and those of the server
 */
TRITONSERVER_Error *state_keep(const struct library *lib, TRITONBACKEND_Request *request,
                               const struct tensor *t, const struct ort_value *value, size_t first,
                               size_t n, const int64_t *shape, uint32_t rank);

#endif
