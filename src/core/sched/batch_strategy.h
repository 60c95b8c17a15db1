/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batching library is the user's: it decides for each request whether it may join the batch that
 * is being made. Its functions are called without our locks, for one scheduler by one thread at a
 * time.
 *
 * A model has one if its configuration's parameter TRITON_BATCH_STRATEGY_PATH names it, or else if
 * there is a file batchstrategy.so in the version's folder, the model's folder or its backend's
 * folder. A model without a dynamic batcher loads the library, too, but never asks it, as in the
 * reference.
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
 * batch_strategy_find - the path of the model's library; the caller frees it. NULL: none. A model
 * with a sequence batcher has none, even if its configuration names one.
 *
 * Errors: STATUS_NOT_FOUND  the configuration names a file that does not exist
 */
NODISCARD struct status *batch_strategy_find(const struct batch_strategy_search *s,
                                             char **ret_path);

/*
 * batch_strategy_check - may the library that was found be loaded?
 *
 * Errors: STATUS_INVALID_ARG  it lies outside of the model repository, or a link leads out of it
 */
NODISCARD struct status *batch_strategy_check(const struct batch_strategy_search *s,
                                              const char *path);

/* Of one loaded model; constant. */
struct batch_strategy {
    void *batcher; /* TRITONBACKEND_Batcher: the library's object for the model */
    struct status *(*begin)(const void *batcher, void **ret_user);
    struct status *(*include)(struct request *r, void *user, bool *ret_include);
    struct status *(*end)(void *user);

    /* Private. */
    struct dl *library;
    struct status *(*batcher_begin)(void **ret_batcher, struct model *m);
    struct status *(*batcher_end)(void *batcher);
    bool entered;      /* batcher_begin() has been called, even in vain: batcher_end() is due */
    atomic_bool stays; /* a thread that is not joined has run its code: it stays in memory */
};

/*
 * batch_strategy_open - sets m->strategy of a model whose configuration is complete. It remains
 * NULL for a model without a library, and for one whose library has none of the functions.
 *
 * Thread: control. The library stays loaded until the last model that uses it is unloaded. The
 * caller calls batch_strategy_end() and batch_strategy_close() after an error, too.
 * Errors: those of batch_strategy_find() and batch_strategy_check()
 *         STATUS_NOT_FOUND    the dynamic linker cannot load the file; its message
 *         STATUS_INVALID_ARG  the library has only some of the functions
 *         and those of TRITONBACKEND_ModelBatcherInitialize
 */
NODISCARD struct status *batch_strategy_open(struct model *m, const struct backend_registry *reg);

/*
 * batch_strategy_end - calls TRITONBACKEND_ModelBatcherFinalize. No scheduler uses the library.
 * batch_strategy_close - then frees m->strategy, and closes the library. The threads that ran its
 * code, those of batch_strategy_open() and batch_strategy_end() included, have been joined, since
 * the library's thread-local objects end with their thread.
 * batch_strategy_stays - keeps the library in memory for good: a thread has run its code, or is
 * about to, that is not joined before the library is closed.
 *
 * All three accept a model without a library. Thread: control; batch_strategy_stays(): any.
 */
void batch_strategy_end(struct model *m);
void batch_strategy_close(struct model *m);
void batch_strategy_stays(struct model *m);

/*
 * model_code_stays - keeps the model's backend and batching library in memory for good. To be
 * called before a thread runs their code that is not joined before the model is gone. Thread: any.
 */
void model_code_stays(struct model *m);

#endif
