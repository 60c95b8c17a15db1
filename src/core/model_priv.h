/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The making and ending of models, for the repository. The life of a model:
 *
 *     model_load:   config → backend → model → batching library → instances → scheduler   READY
 *     model_retire:  nobody can find it any more; wait until nobody has it
 *     model_stop:   no new requests; wait until those inside have ended
 *     model_unload: scheduler, batching library, instances, model in its backend, backend; the rest
 *                   with the last reference
 */
#ifndef CONCH_CORE_MODEL_PRIV_H
#define CONCH_CORE_MODEL_PRIV_H

#include "core/model.h"

struct backend_registry;
struct source;

/* model_new - a model that is nothing but its configuration, which is taken. */
struct model *model_new(struct server *server, const char *name, int64_t version,
                        const char *directory, struct model_config *config);

/*
 * model_open - the model is about to be found by requests: from now on those who come and go are
 * counted by each thread for itself, until model_retire(), model_note_stopping(), model_unload().
 */
void model_open(struct model *m);

/*
 * model_code_stays - a thread that will not be joined before the model is gone is about to run all
 * that belongs to it: its backend and its batching library stay in memory. Thread: any.
 */
void model_code_stays(struct model *m);

/* model_refs - how many references there are: nearly, while the model is open. For tests. */
long model_refs(const struct model *m);

/*
 * model_make_specs - what requests must look like, from the finished configuration; reads labels.
 *
 * Errors: a label file that cannot be read
 */
NODISCARD struct status *model_make_specs(struct model *m);

/*
 * model_load - everything up to READY. Thread: control.
 *
 * @source     where its files are; the caller keeps it until the model is unloaded
 * @facts      what completion may know; `preferred_groups` is filled in here
 * @config     taken in every case
 * Errors:     whatever configuration, library or backend say; nothing is left behind then
 */
NODISCARD struct status *model_load(struct server *server, struct backend_registry *reg,
                                    const char *name, int64_t version, const struct source *source,
                                    struct model_config *config, struct config_facts *facts,
                                    struct model **ret_model);

/*
 * model_retire - the model is not in the table any more, so that only those have it who found it
 * before; they are served. When the caller's reference is the only one left, m->on_alone is called,
 * once, by whoever gave back the last other one.
 *
 * Thread: control. Once, unless model_cancel_retirement() has returned true.
 * Returns whether the caller is alone already; m->on_alone is not called then.
 */
bool model_retire(struct model *m);

/* model_close_refs - the last reference that goes ends the model from now on. Thread: control. */
void model_close_refs(struct model *m);

/* model_cancel_retirement - false: it is too late, m->on_alone has been called or is being called.
 */
bool model_cancel_retirement(struct model *m);

/* model_note_stopping - new requests are refused from now on. Takes no lock. Thread: control. */
void model_note_stopping(struct model *m);

/* model_stop - … and what is inside is executed at once. Thread: control. */
void model_stop(struct model *m);

/*
 * model_close - the server stops: no sequence begins any more, and those that have begun go on.
 * Once there are none, this is model_stop(). Thread: control, without locks.
 *
 * Returns how many sequences have not ended.
 */
size_t model_close(struct model *m);

/* model_n_open - how many sequences have begun and not ended. Thread: control, without locks. */
size_t model_n_open(struct model *m);

/*
 * model_flush - the model is about to stop: what waits for others to come is executed now, and what
 * comes waits no more. Thread: control, without locks.
 */
void model_flush(struct model *m);

/* model_unload - the model is stopped and has no request inside. Thread: control. */
void model_unload(struct model *m, struct backend_registry *reg);

/*
 * model_expect_returned - whoever had memory of that kind has given it back by now. If not, that is
 * an error in the log which names the model, and the end of a debug build; but of a backend's
 * objects it is a warning only.
 */
void model_expect_returned(const struct mem_owner *owner, enum mem_kind kind);

struct watch_use;

/* model_executing - what its backend has now; nothing, of one that is being stopped. Thread: any,
 * without locks. */
void model_executing(struct model *m, uint64_t now_ns, struct watch_use *ret);

/*
 * model_stuck_instance - the name of an instance with requests beyond the execution limit, which
 * the caller frees; NULL: there is none. Thread: any, without locks.
 */
char *model_stuck_instance(struct model *m);

/*
 * model_wants_homes - each instance has a thread for life: its parameter CONCH_EXECUTION is
 * `thread`, or its backend asks for that.
 */
bool model_wants_homes(const struct model *m);

#endif
