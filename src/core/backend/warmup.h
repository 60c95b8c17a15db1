/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm-up: each instance executes the samples of `model_warmup` before the model version is READY,
 * so that what a backend does only the first time (allocating, compiling, tuning) is not paid by a
 * client. Samples run in the configuration's order, each `count` times, `batch_size` requests in
 * one execution. They pass by scheduler and cache, and count in the model's statistics. An answer
 * that is an error fails the load (behaviours §18.5); all others are thrown away.
 */
#ifndef CONCH_CORE_BACKEND_WARMUP_H
#define CONCH_CORE_BACKEND_WARMUP_H

#include "base/compiler.h"

struct model;
struct status;

/*
 * model_warm_up - runs the samples on all instances, one instance after the other; nobody else
 * uses these yet.
 *
 * Thread: control. Waits for the backend as long as it takes, and says in the log every few seconds
 * for what. When the server is told to stop, requests under way are cancelled and no others begin;
 * a backend that does not answer even then holds this thread, which server_stop() does not wait for
 * longer than its timeout.
 * Errors: STATUS_INVALID_ARG  failed to run warmup sample 'S': <what the backend says>; …
 *                             or the sample does not fit the model
 *         STATUS_UNAVAILABLE  the server stops; no memory
 *         and those of warmup_sample_make()
 */
NODISCARD struct status *model_warm_up(struct model *m);

#endif
