/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batching library of the user's: it says of each request whether it may join the batch that is
 * being made. Its functions are called without our locks, for one scheduler by one thread at a
 * time.
 *
 * A model has one if its configuration's parameter TRITON_BATCH_STRATEGY_PATH names it, or else if
 * there is a file batchstrategy.so in the version's folder, the model's folder or its backend's
 * folder. A model without a dynamic batcher has it, too, and never asks it; as in the reference.
 *
 * Source: TRITONBACKEND_ModelBatcher…, TRITONBACKEND_ModelBatch…; reference/behaviours §10.16
 */
#ifndef CONCH_CORE_SCHED_BATCH_STRATEGY_H
#define CONCH_CORE_SCHED_BATCH_STRATEGY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

struct backend_registry;
struct dl;
struct model;
struct model_config;
struct request;
struct status;
struct storage;

/* The parameter that names a library. */
#define BATCH_STRATEGY_PARAMETER "TRITON_BATCH_STRATEGY_PATH"

/* Where a model's library may be. Borrowed. */
struct batch_strategy_search {
    const struct backend_registry *backends;
    const struct model_config *config;
    const struct storage *storage;
    const char *folder;    /* the model's, in the storage … */
    const char *directory; /* … and on this machine */
    const char *version_directory;
};

/*
 * batch_strategy_find - the library that the model would have; NULL: none. One with a sequence
 * batcher has none, whatever its configuration names.
 *
 * Errors: STATUS_NOT_FOUND  the file that is named
 */
NODISCARD struct status *batch_strategy_find(const struct batch_strategy_search *s,
                                             char **ret_path);

/*
 * batch_strategy_check - may what was found be loaded?
 *
 * Errors: STATUS_INVALID_ARG  it lies outside of the model repository, or a link leads out of it
 */
NODISCARD struct status *batch_strategy_check(const struct batch_strategy_search *s,
                                              const char *path);

/* Of one loaded model; constant. */
struct batch_strategy {
    void *batcher; /* TRITONBACKEND_Batcher: what the library has made for the model */
    struct status *(*begin)(const void *batcher, void **ret_user);
    struct status *(*include)(struct request *r, void *user, bool *ret_include);
    struct status *(*end)(void *user);

    /* Private. */
    struct dl *library;
    struct status *(*batcher_begin)(void **ret_batcher, struct model *m);
    struct status *(*batcher_end)(void *batcher);
    bool entered;      /* batcher_begin() has been called, whatever it said: batcher_end() is due */
    atomic_bool stays; /* a thread that goes on has run it */
};

/*
 * batch_strategy_open - m->strategy, of a model whose configuration is complete; it remains NULL
 * for a model without a library, and for one whose library has none of the functions.
 *
 * Thread: control. The library stays loaded until the last model that has it gives it up. After an
 * error, too, batch_strategy_end() and batch_strategy_close() are due.
 * Errors: as batch_strategy_find() and batch_strategy_check() have them
 *         STATUS_NOT_FOUND    what the dynamic linker says of the file
 *         STATUS_INVALID_ARG  it has some of the functions only
 *         and what TRITONBACKEND_ModelBatcherInitialize returns
 */
NODISCARD struct status *batch_strategy_open(struct model *m, const struct backend_registry *reg);

/*
 * batch_strategy_end - no scheduler uses it any longer: TRITONBACKEND_ModelBatcherFinalize.
 * batch_strategy_close - then gives the library up, and m->strategy. The threads that ran it,
 * batch_strategy_open() and batch_strategy_end() among them, have been joined: what the library has
 * in a thread ends with it.
 * batch_strategy_stays - … but one has not, or will not be: the library stays in memory.
 *
 * A model without one is fine for all. Thread: control; batch_strategy_stays(): any.
 */
void batch_strategy_end(struct model *m);
void batch_strategy_close(struct model *m);
void batch_strategy_stays(struct model *m);

#endif
