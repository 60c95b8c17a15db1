/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost - the most work that a run of an ONNX model can take, for any inputs.
 */
#ifndef BACKENDS_ONNXRUNTIME_COST_H
#define BACKENDS_ONNXRUNTIME_COST_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The limit of a small run: a million multiplications. A core makes several in a nanosecond, so
 * this takes well below a millisecond.
 */
#define COST_SMALL 1000000

/*
 * cost_is_small - is the work of a run, counted from the shapes in the file, at most COST_SMALL?
 *
 * It can be if the file gives all shapes, except for a batch dimension, and if the work of all
 * operators follows from shapes alone: no loops, no branches, no operators of other domains, no
 * strings. The answer is no for anything else, and for a file that is no ONNX file.
 *
 * @batch     size of the inputs' first dimension where the file does not give it; 0: not used
 * @ret_cost  on success
 */
bool cost_is_small(const char *file, int64_t batch, uint64_t *ret_cost);

#endif
