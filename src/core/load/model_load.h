/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading and unloading models, for the repository. The life of a model:
 *
 *     model_load:   config → backend → model → batching library → instances → scheduler   READY
 *                   (an ensemble has only configuration and scheduler)
 *     model_retire: no request can find the model any more; wait until no request has it
 *     model_stop:   no new requests; wait until those inside have ended
 *     model_change: other instances, while it serves
 *     model_unload: ends scheduler, batching library, instances, model in its backend, backend; the
 *                   last reference ends the rest
 */
#ifndef CONCH_CORE_LOAD_MODEL_LOAD_H
#define CONCH_CORE_LOAD_MODEL_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct backend_registry;
struct config_facts;
struct model;
struct model_config;
struct model_services;
struct source;
struct status;
struct watch_use;

/*
 * model_load - loads a model up to READY. Thread: control.
 *
 * @source     where its files are; the caller keeps it until the model is unloaded
 * @facts      for completing the configuration; `preferred_groups` and `count_gpus` are filled in
 *             here
 * @config     taken in every case
 * @members    of an ensemble: the models of its steps, in the configuration's order; borrowed, the
 *             new model has references of its own. NULL: it is none
 * @ret_model  a reference, the caller's; model_unload() comes before its end
 * Errors:     those of configuration, library and backend; nothing is left behind then
 */
NODISCARD struct status *model_load(const struct model_services *services,
                                    struct backend_registry *reg, const char *name, int64_t version,
                                    const struct source *source, struct model_config *config,
                                    struct config_facts *facts, struct model *const *members,
                                    struct model **ret_model);

struct model_change;

/*
 * model_change_begin - prepares a model that serves for another configuration, in which only
 * instance groups and the version policy differ (reference/behaviours §13.8): makes the instances
 * that it does not have yet. The model does not change, and is not initialised in its backend
 * again.
 *
 * Thread: control, which alone changes the model.
 * @config      prepared; taken in every case
 * @facts       as of model_load()
 * @ret_change  the caller ends it with model_change_commit() or model_change_undo(). NULL: the
 * model cannot change while it serves, and is to be loaded anew Errors:      of groups, limits and
 * instances; nothing is left behind then
 */
NODISCARD struct status *model_change_begin(struct model *m, struct backend_registry *reg,
                                            struct model_config *config, struct config_facts *facts,
                                            struct model_change **ret_change);

/*
 * model_change_commit - the model has that configuration and those instances from now on; its
 * statistics go on. Those that it has no longer end in the background, when their work is done.
 * model_change_undo - ends the new instances.
 *
 * Thread: control, without locks.
 */
void model_change_commit(struct model_change *change);
void model_change_undo(struct model_change *change);

/* model_stop - refuses new requests, and executes at once those that wait. Thread: control. */
void model_stop(struct model *m);

/*
 * model_close - the server stops: no new sequence begins, and those that have begun go on. When
 * there are none, the function does what model_stop() does. Thread: control, without locks.
 *
 * Returns how many sequences have not ended.
 */
size_t model_close(struct model *m);

/* model_n_open - how many sequences have begun and not ended. Thread: control, without locks. */
size_t model_n_open(struct model *m);

/*
 * model_flush - the model is about to stop: requests that wait for others to make a batch are
 * executed now, and later requests do not wait. Thread: control, without locks.
 */
void model_flush(struct model *m);

/* model_unload - the model is stopped and has no request inside. Thread: control. */
void model_unload(struct model *m, struct backend_registry *reg);

/* model_executing - what the model's backend executes now; zeros for a model that is being stopped.
 * Thread: any, without locks. */
void model_executing(struct model *m, uint64_t now_ns, struct watch_use *ret);

/*
 * model_stuck_instance - the name of an instance with requests beyond the execution limit, which
 * the caller frees; NULL: there is none. Thread: any, without locks.
 */
char *model_stuck_instance(struct model *m);

#endif
