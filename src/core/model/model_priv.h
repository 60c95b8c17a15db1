/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a model's struct, and counting its references and its requests: for the repository, which
 * loads and retires models, and for whoever has a request. load.h has the loads.
 */
#ifndef CONCH_CORE_MODEL_MODEL_PRIV_H
#define CONCH_CORE_MODEL_MODEL_PRIV_H

#include "core/model/model.h"

struct model_services;

/* model_new - a model that has only its configuration, which is taken. The caller has the first
 * reference. */
struct model *model_new(const struct model_services *services, const char *name, int64_t version,
                        const char *directory, struct model_config *config);

/*
 * model_open - prepares the model for requests: from now on each thread counts references and
 * requests in a counter of its own, until model_retire(), model_note_stopping(), model_unload().
 */
void model_open(struct model *m);

/* model_refs - how many references there are; approximate while the model is open. For tests. */
long model_refs(const struct model *m);

/*
 * model_make_specs - makes m->inputs and m->outputs from the finished configuration; reads labels.
 *
 * Errors: a label file that cannot be read
 */
NODISCARD struct status *model_make_specs(struct model *m);

/*
 * model_retire - begins to wait for the model's last user. The model is not in the table any more;
 * requests that found it before are served. When the caller's reference is the only one left, the
 * thread that ended the last other one calls m->on_alone, once.
 *
 * Thread: control. Once, unless model_cancel_retirement() has returned true.
 * Returns whether the caller's reference is the only one already; m->on_alone is not called then.
 */
bool model_retire(struct model *m);

/*
 * model_ref_unless_alone - takes a reference, unless the model is retired and the catalog's own
 * reference is the only one: then it is about to be taken down. For threads without a reference
 * that know that the model has not been taken down. Thread: any.
 */
NODISCARD bool model_ref_unless_alone(struct model *m);

/* model_close_refs - from now on the end of the last reference frees the model. Thread: control. */
void model_close_refs(struct model *m);

/* model_cancel_retirement - undoes model_retire(). False: it is too late, m->on_alone has been
 * called or is being called. */
bool model_cancel_retirement(struct model *m);

/* model_note_stopping - new requests are refused from now on. Takes no lock. Thread: control. */
void model_note_stopping(struct model *m);

/*
 * model_expect_returned - all memory of that kind must have been freed by now. If not, the function
 * logs an error that names the model, and a debug build aborts. For a backend's objects it only
 * logs a warning.
 */
void model_expect_returned(const struct mem_owner *owner, enum mem_kind kind);

/* model_request_begun - counts one more request of the model in flight, or work that keeps the
 * model like a request. The caller reads m->stopping afterwards. */
void model_request_begun(struct model *m);

/*
 * model_request_ended - counts one request less. Model and server may be freed when this returns,
 * unless the caller has another reference. Thread: any; calls services->on_drained()
 * for the last request of a model that stops.
 */
void model_request_ended(struct model *m);

/* model_count_last_end - counts one request less; called by services->on_drained() alone. */
void model_count_last_end(struct model *m);

#endif
