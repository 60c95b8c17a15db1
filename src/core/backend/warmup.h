/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm-up: each instance that is not passive executes the samples of `model_warmup` before the
 * model version is READY, so that what a backend does only the first time (allocating, compiling,
 * tuning) is not paid by a client. Samples run in the configuration's order, each `count` times,
 * `batch_size` requests in one execution. They pass by scheduler and cache, and count in the
 * model's statistics. An answer that is an error fails the load (reference/behaviours §18.5); all
 * others are thrown away.
 */
#ifndef CONCH_CORE_BACKEND_WARMUP_H
#define CONCH_CORE_BACKEND_WARMUP_H

#include "base/compiler.h"

struct instance;
struct model;
struct status;
struct warmup;

/*
 * warmup_new - the samples of a model with their data; NULL when it has none.
 *
 * Thread: control. The caller ends it with warmup_free().
 * Errors: those of warmup_sample_make()
 */
NODISCARD struct status *warmup_new(struct model *m, struct warmup **ret_warmup);

/*
 * warmup_run - runs the samples on an instance that nobody else uses yet, with the instance's CPU
 * binding.
 *
 * Thread: control; several may run at a time, each for another instance. Waits for the backend, and
 * says in the log for what, ever more rarely; after a second the load's slot is lent to another
 * (load_slot.h). When the server is told to stop, or when the time that options give is over,
 * requests under way are cancelled and no others begin; a backend that does not answer even then
 * holds this thread, which server_stop() does not wait for longer than its timeout.
 * @w      NULL is fine
 * Errors: STATUS_INVALID_ARG  failed to run warmup sample 'S': <what the backend says>; …
 *                             or the sample does not fit the model
 *         STATUS_UNAVAILABLE  the server stops; the time is over; no memory
 */
NODISCARD struct status *warmup_run(struct warmup *w, struct instance *in);

/* warmup_free - says how long it took, and ends the samples. NULL is fine. */
void warmup_free(struct warmup *w);

#endif
