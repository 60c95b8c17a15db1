/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading and unloading models, for the repository. The life of a model:
 *
 *     model_load:   config → backend → model → batching library → instances → scheduler   READY
 *     model_retire: no request can find the model any more; wait until no request has it
 *     model_stop:   no new requests; wait until those inside have ended
 *     model_unload: ends scheduler, batching library, instances, model in its backend, backend; the
 *                   last reference ends the rest
 */
#ifndef CONCH_CORE_MODEL_PRIV_H
#define CONCH_CORE_MODEL_PRIV_H

#include "core/model.h"

struct backend_registry;
struct source;

/* model_new - a model that has only its configuration, which is taken. The caller has the first
 * reference. */
struct model *model_new(const struct model_services *services, const char *name, int64_t version,
                        const char *directory, struct model_config *config);

/*
 * model_open - prepares the model for requests: from now on each thread counts references and
 * requests in a counter of its own, until model_retire(), model_note_stopping(), model_unload().
 */
void model_open(struct model *m);

/*
 * model_code_stays - keeps the model's backend and batching library in memory for good. To be
 * called before a thread runs their code that is not joined before the model is gone. Thread: any.
 */
void model_code_stays(struct model *m);

/* model_refs - how many references there are; approximate while the model is open. For tests. */
long model_refs(const struct model *m);

/*
 * model_make_specs - makes m->inputs and m->outputs from the finished configuration; reads labels.
 *
 * Errors: a label file that cannot be read
 */
NODISCARD struct status *model_make_specs(struct model *m);

/*
 * model_load - loads a model up to READY. Thread: control.
 *
 * @source     where its files are; the caller keeps it until the model is unloaded
 * @facts      for completing the configuration; `preferred_groups` is filled in here
 * @config     taken in every case
 * @ret_model  a reference, the caller's; model_unload() comes before its end
 * Errors:     those of configuration, library and backend; nothing is left behind then
 */
NODISCARD struct status *model_load(const struct model_services *services,
                                    struct backend_registry *reg, const char *name, int64_t version,
                                    const struct source *source, struct model_config *config,
                                    struct config_facts *facts, struct model **ret_model);

/*
 * model_retire - begins to wait for the model's last user. The model is not in the table any more;
 * requests that found it before are served. When the caller's reference is the only one left, the
 * thread that ended the last other one calls m->on_alone, once.
 *
 * Thread: control. Once, unless model_cancel_retirement() has returned true.
 * Returns whether the caller's reference is the only one already; m->on_alone is not called then.
 */
bool model_retire(struct model *m);

/* model_close_refs - from now on the end of the last reference frees the model. Thread: control. */
void model_close_refs(struct model *m);

/* model_cancel_retirement - undoes model_retire(). False: it is too late, m->on_alone has been
 * called or is being called. */
bool model_cancel_retirement(struct model *m);

/* model_note_stopping - new requests are refused from now on. Takes no lock. Thread: control. */
void model_note_stopping(struct model *m);

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

/*
 * model_expect_returned - all memory of that kind must have been freed by now. If not, the function
 * logs an error that names the model, and a debug build aborts. For a backend's objects it only
 * logs a warning.
 */
void model_expect_returned(const struct mem_owner *owner, enum mem_kind kind);

struct watch_use;

/* model_executing - what the model's backend executes now; zeros for a model that is being stopped.
 * Thread: any, without locks. */
void model_executing(struct model *m, uint64_t now_ns, struct watch_use *ret);

/*
 * model_stuck_instance - the name of an instance with requests beyond the execution limit, which
 * the caller frees; NULL: there is none. Thread: any, without locks.
 */
char *model_stuck_instance(struct model *m);

/*
 * model_wants_homes - has each instance a thread for life? If the model's parameter CONCH_EXECUTION
 * is `thread`, or its backend asks for that.
 */
bool model_wants_homes(const struct model *m);

#endif
