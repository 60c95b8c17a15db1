/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm-up: each instance that is not passive executes the samples of `model_warmup` before the
 * model version is READY. So no client waits for what a backend does only the first time
 * (allocating, compiling, tuning). Samples run in the configuration's order, each `count` times,
 * with `batch_size` requests in one execution. They bypass scheduler and cache, and count in the
 * model's statistics. An error response fails the load (reference/behaviours §18.5); other
 * responses are thrown away.
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
 * warmup_run - runs the samples on an instance that is not used otherwise yet, with the instance's
 * CPU binding.
 *
 * Thread: control; several may run at a time, each for another instance. Waits for the backend, and
 * logs what it waits for, ever more rarely. After a second it lends the load slot (load_slot.h).
 * When the server stops, or the time that the options give is over, it cancels the requests in
 * flight and begins no others. A backend that does not answer even then blocks this thread;
 * server_stop() waits for it no longer than its timeout.
 * @w      NULL is fine
 * Errors: STATUS_INVALID_ARG  failed to run warmup sample 'S': <what the backend says>; …
 *                             or the sample does not fit the model
 *         STATUS_UNAVAILABLE  the server stops; the time is over; no memory
 */
NODISCARD struct status *warmup_run(struct warmup *w, struct instance *in);

/* warmup_free - logs how long the warm-up took, and frees the samples. NULL is fine. */
void warmup_free(struct warmup *w);

#endif
