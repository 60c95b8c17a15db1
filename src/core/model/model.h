/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loaded version of a model: its configuration, what requests must look like, its instances
 * and its scheduler. This is TRITONBACKEND_Model.
 */
#ifndef CONCH_CORE_MODEL_MODEL_H
#define CONCH_CORE_MODEL_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "core/config/config.h"
#include "core/model/model_cache.h"
#include "core/model/model_metrics.h"
#include "core/model/statistics.h"
#include "core/model/tensor.h"
#include "core/threads/control.h"

struct arena;
struct backend;
struct batch_strategy;
struct buf;
struct clock;
struct instance;
struct labels;
struct model_services;
struct scheduler;
struct scheduler_request_ops;
struct status;
struct storage;

/* One declared input or output, ready for the check of a request. */
struct tensor_spec {
    const char *name;
    size_t name_length;
    enum dtype dtype;
    bool optional;
    bool same_in_batch; /* of an input: its size varies, but is the same for a whole batch */
    uint32_t n_dims;
    const int64_t *dims; /* without the batch dimension; -1 = any */
    bool has_reshape;
    uint32_t n_reshape_dims;
    const int64_t *reshape_dims;
    struct labels *labels; /* of an output's classes; NULL without a label file. An ensemble's
                              output without one has those of the step that writes it */
};

/* Does the size of the inputs bound the time of an execution? UNKNOWN until the backend declares
 * it, or until the model is loaded. */
enum model_bounds { MODEL_BOUNDS_UNKNOWN, MODEL_BOUNDED, MODEL_UNBOUNDED };

/* What its backend answered last; core/backend/readiness.h has the functions. */
struct readiness {
    struct control_job job; /* owned by the thread that has begun the question in progress */
    /* Any thread. */
    atomic_bool is_open; /* the model has been loaded: its backend may ask for a question */
    atomic_int asking;   /* enum in readiness.c: is a question in progress, and another one due? */
    atomic_int answer;   /* of the last question */
    atomic_uint n_begun, n_answered; /* questions */
    atomic_uint n_waiting;           /* threads that wait for an answer */
    atomic_uint_least64_t asked_ns, wanted_until_ns;
};

struct model {
    /* Set while loading, constant afterwards. */
    const struct model_services *services;
    struct clock *clock; /* the services' */
    char *name;
    int64_t version;
    char *version_text;
    char *directory; /* of the model; the version's folder is below it */
    /* While the model is being loaded: where the core reads its files, and its folder there. */
    const struct storage *storage;
    const char *repository; /* the root of the repository that the model is of; borrowed */
    const char *folder;
    struct load_slot *load_slot; /* of the loading thread; NULL: none, or the model is loaded */
    /* What of it may change is under config_mu: model_print_config() and those with it read that.
     */
    struct model_config *config;
    struct config_core prepared_core; /* of its configuration before its backend saw it … */
    struct config_core finished_core; /* … and when it was loaded */
    bool batching; /* max_batch_size > 0: the first dimension of every tensor is the batch */
    uint32_t max_batch_size;
    bool decoupled;
    enum dtype corrid;    /* of the control tensor with a sequence's id; DTYPE_INVALID: none */
    bool compares_inputs; /* requests_can_batch() must compare the inputs of two requests */
    uint32_t n_inputs, n_required_inputs, n_outputs;
    struct tensor_spec *inputs, *outputs;     /* in the configuration's order */
    struct map input_by_name, output_by_name; /* used when there are more than a few */
    struct backend *backend;                  /* NULL: an ensemble, which has no instances either */
    void *backend_state;                      /* TRITONBACKEND_ModelSetState */
    bool known_to_backend;                    /* ModelInitialize was called, ModelFinalize is due */
    bool initialized_in_backend;              /* … and succeeded */
    /* Those in service. They change while the model serves, under scheduler.mu, watch.mu and
     * config_mu, by the thread that has locked the model in the repository (core/load). */
    uint32_t n_instances;
    struct instance **instances;
    struct batch_strategy *strategy; /* a batching library's; NULL: none */
    /*
     * Of an ensemble: the models of its steps, in the configuration's order, each with a reference
     * until model_unload(). They never change: when one of them is reloaded, the repository makes
     * another model of the ensemble, too, and publishes both in one hold of its lock. So a request
     * that has found the ensemble has all models that it needs, and they fit together. NULL: the
     * model is no ensemble.
     */
    struct model **members;
    size_t n_members;
    struct scheduler *scheduler;
    const struct scheduler_request_ops *scheduler_ops; /* … for requests; set with it */
    struct model_cache *cached;                        /* NULL: its responses are not kept */
    struct model_metrics metrics;
    bool auto_complete;      /* the backend may complete the configuration */
    struct mem_owner *owner; /* the account of the model's memory */

    struct mutex config_mu; /* level 560 in core/README.md */
    /* Under config_mu: a reference to the configuration that has the present instance groups and
     * the version policy; NULL: that is `config`. */
    struct model_config *changed_config;
    struct list spare_instances; /* likewise: see instance_end() */

    void (*on_alone)(struct model *m); /* set before model_retire(); on any thread, without locks */
    void *on_alone_arg;

    /* Any thread. */
    struct stripe *stripes; /* constant: the owner's; where references and requests are counted */
    atomic_long
        refs; /* the repository's catalog, its table; each request object. See model_retire() */
    _Atomic(struct instance_stats *) statistics;   /* of each instance; see statistics.h */
    _Atomic(struct thread_stats *) thread_stats;   /* … or of threads; NULL: none has counted */
    atomic_size_t reported_bytes[N_MEMORY_PLACES]; /* memory that the backend says it uses */
    atomic_size_t instances_reported_bytes[N_MEMORY_PLACES]; /* … that all its instances use */
    struct readiness readiness;
    struct failures failures; /* failed requests, which no instance counts */
    atomic_uint_fast64_t refusals[N_REFUSAL_REASONS]; /* requests that were not accepted */
    atomic_long inflight;   /* requests accepted and not yet ended; see model_inflight() */
    atomic_uint pending;    /* … in its scheduler; written under that lock */
    atomic_int bounds;      /* enum model_bounds */
    atomic_bool stopping;   /* no new requests; drained when inflight is 0 */
    atomic_bool is_closing; /* of an ensemble: no new requests but those of sequences that have
                               begun in one of its members */
};

void model_ref(struct model *m);
void model_unref(struct model *m);

/*
 * model_inflight - how many requests the model has in flight. The number is exact once the model
 * refuses new ones (model_note_stopping()), and approximate before. Thread: any.
 */
size_t model_inflight(const struct model *m);

/* What a model has in memory. */
struct model_memory {
    struct {
        size_t now_bytes, peak_bytes;
    } kinds[MEM_KINDS]; /* on its account; the peaks may be of different times */
    size_t reported_bytes[N_MEMORY_PLACES]; /* in addition: what its backend reports */
};

/* model_memory - the memory that the model uses now. Thread: any. */
void model_memory(const struct model *m, struct model_memory *ret_memory);

/*
 * model_declare_bounded - the backend declares that the size of the inputs bounds an execution
 * (conch_model_declare_bounded()). Thread: any.
 *
 * Errors: STATUS_UNSUPPORTED  the model has been loaded without the declaration
 */
NODISCARD struct status *model_declare_bounded(struct model *m);
/* model_settle_bounds - the model is loaded: refuses later declarations. Returns whether there has
 * been one. */
bool model_settle_bounds(struct model *m);

/*
 * model_print_config - prints the configuration as model_config_print_json() does.
 * model_print_config_text - … as model_config_print_text() does.
 * model_copy_config - a copy of the message; NULL when the arena is full.
 *
 * Thread: any. These take config_mu: other readers of m->config must not look at its instance
 * groups and its version policy.
 */
void model_print_config(struct model *m, struct buf *out);
void model_print_config_text(struct model *m, struct buf *out);
ProtobufCMessage *model_copy_config(struct model *m, struct arena *arena);

/* model_platform - what metadata shows: the platform, or without one the backend. Borrowed. */
const char *model_platform(const struct model *m);

/*
 * model_input_name, model_output_name - the model's own copy of the name, if the tensor at that
 * index of the configuration has that name; else NULL. It saves the caller a copy: the string lives
 * as long as the model. The two functions below recognise it by its address.
 */
const char *model_input_name(const struct model *m, uint32_t index, const char *name,
                             size_t length);
const char *model_output_name(const struct model *m, uint32_t index, const char *name,
                              size_t length);

/* model_find_input, model_find_output - NULL: the model has none of that name. Borrowed. */
const struct tensor_spec *model_find_input(const struct model *m, const char *name);
const struct tensor_spec *model_find_output(const struct model *m, const char *name);

#endif
