/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONCH_CORE_SCHED_CAN_BATCH_H
#define CONCH_CORE_SCHED_CAN_BATCH_H

#include <stdbool.h>

struct request;

/*
 * requests_can_batch - may two admitted requests of a model be in one batch? They must have the
 * same inputs, and inputs of variable size must have the same shape, unless they may be ragged.
 *
 * Source: reference/behaviours §10.3, §10.12
 */
bool requests_can_batch(const struct request *a, const struct request *b);

#endif
