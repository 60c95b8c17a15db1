/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batching library of the user's: it says of each request whether it may join the batch that is
 * being made. Its functions are called without our locks, for one scheduler by one thread at a
 * time.
 *
 * Source: TRITONBACKEND_ModelBatcher…, TRITONBACKEND_ModelBatch…; behaviours §10.16
 */
#ifndef CONCH_CORE_SCHED_BATCH_STRATEGY_H
#define CONCH_CORE_SCHED_BATCH_STRATEGY_H

#include <stdbool.h>

struct model;
struct request;
struct status;

/* Of one loaded model; constant. */
struct batch_strategy {
    void *batcher; /* TRITONBACKEND_Batcher: what the library has made for the model */
    struct status *(*begin)(const void *batcher, void **ret_user);
    struct status *(*include)(struct request *r, void *user, bool *ret_include);
    struct status *(*end)(void *user);
};

#endif
