/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONCH_CORE_SCHED_SIMILAR_H
#define CONCH_CORE_SCHED_SIMILAR_H

#include <stdbool.h>

struct request;

/*
 * requests_are_similar - may two checked requests of a model be in one batch? They have the same
 * inputs, and inputs of variable size have the same shape, unless they may be ragged.
 *
 * Source: reference/behaviours §10.3, §10.12
 */
bool requests_are_similar(const struct request *a, const struct request *b);

#endif
