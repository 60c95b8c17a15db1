/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost - the measure of the most work that a run of a model can take, for any inputs.
 *
 * It counts multiplications of FP32: an element of a sum or a copy is one, others are more. It is
 * an upper estimate: what a framework fuses only lessens it. onnx_cost.h counts for ONNX files.
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_COMMON_COST_H
#define BACKENDS_COMMON_COST_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The limit of a small run: a million multiplications. A core makes several in a nanosecond, so
 * this takes well below a millisecond.
 */
#define COST_SMALL 1000000

/* What an element costs, as in slow libraries. */
enum { COST_PLAIN = 1, COST_DIVISION = 4, COST_FUNCTION = 16, COST_POWER = 32 };

/* What an operator costs besides, and how much longer a product takes with other types than FP32.
 */
enum { COST_OPERATOR = 2000, COST_OTHER_TYPES = 8 };

/* cost_add - add `n` times `each` to a sum. False: the sum is above COST_SMALL then, and stays as
 * it was. @sum  at most COST_SMALL */
static inline bool cost_add(uint64_t *sum, uint64_t each, uint64_t n)
{
    uint64_t more;

    if (__builtin_mul_overflow(each, n, &more) || more > COST_SMALL || *sum + more > COST_SMALL)
        return false;
    *sum += more;
    return true;
}

#endif
