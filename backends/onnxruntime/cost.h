/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost - what can a run of an ONNX model take at most, whatever its inputs are?
 */
#ifndef BACKENDS_ONNXRUNTIME_COST_H
#define BACKENDS_ONNXRUNTIME_COST_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What is small: a million multiplications, of which a core makes several in a nanosecond; so well
 * below a millisecond.
 */
#define COST_SMALL 1000000

/*
 * cost_is_small - is the work of a run, counted from the shapes in the file, at most COST_SMALL?
 *
 * It is when all shapes are given but a batch dimension, and all operators are of those whose work
 * follows from shapes alone: no loops, no branches, no operators of other domains, no strings. Of
 * anything that is not understood the answer is no, also of a file that is no ONNX file.
 *
 * @batch     size of the first dimension of inputs where the file does not give it; 0: of none
 * @ret_cost  on success
 */
bool cost_is_small(const char *file, int64_t batch, uint64_t *ret_cost);

#endif
