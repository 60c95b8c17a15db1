/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's struct: made, counted, described, freed. model_load.c loads and unloads the model.
 *
 * References (`refs`) and requests in flight (`inflight`) are counted by any thread, in stripes
 * while the model serves and in one word once that count is closed; the comments at RETIRING and
 * STOPPING say why. Tensor descriptions and names are made by the thread that loads the model and
 * are constant afterwards, so the look-ups at the end of the file need no lock.
 */
#include "core/model/model.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/stripe.h"
#include "core/model/labels.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/model/statistics.h"

/* Few tensors: comparing is faster than hashing, and there is no map. */
enum { COMPARE_UP_TO = 4, CONFIG_LEVEL = 560 };

/*
 * Requests begin and end on all loops at once. So while a model serves, references and requests in
 * flight are counted in stripes (base/stripe.h), where their end cannot be seen; the words here
 * then have STRIPE_BIAS beyond their other counts. When the end matters, the count is closed:
 * model_retire() and model_unload() close that of references, model_note_stopping() that of
 * requests.
 *
 * RETIRING is in `refs` with the count. So the thread that drops the last reference but one learns
 * by the same operation whether another thread waits for that: at the next moment the model may be
 * freed.
 */
#define RETIRING (1L << 60)

/*
 * In `inflight`, for the same reason: the thread that ends the last request of a stopping model
 * learns that by the operation that ends it. A moment later the model, and the server, may be
 * freed.
 */
#define STOPPING (1L << 60)

#define FLAGS (1L << 60)

struct model *model_new(const struct model_services *services, const char *name, int64_t version,
                        const char *directory, struct model_config *config)
{
    char *whole_name = mem_printf("model '%s' version %lld", name, (long long)version);
    struct mem_owner *owner = mem_owner_new(whole_name);
    mem_free(whole_name);

    MEM_CHARGE(owner, MEM_CONFIG);
    model_config_give(config, owner);
    struct model *m = mem_zalloc(sizeof(*m));
    m->owner = owner;
    m->stripes = mem_owner_stripes(owner);
    m->services = services;
    m->clock = services->clock;
    m->name = mem_strdup(name);
    m->folder = m->name;
    m->version = version;
    m->version_text = mem_printf("%lld", (long long)version);
    m->directory = mem_strdup(directory);
    m->config = config;
    list_init(&m->spare_instances);
    mutex_init(&m->config_mu, CONFIG_LEVEL, "model.config_mu");
    map_init(&m->input_by_name);
    map_init(&m->output_by_name);
    atomic_init(&m->refs, 1);
    return m;
}

void model_open(struct model *m)
{
    atomic_fetch_add(&m->refs, STRIPE_BIAS);
    stripes_open(m->stripes, STRIPE_REFS);
    atomic_fetch_add(&m->inflight, STRIPE_BIAS);
    stripes_open(m->stripes, STRIPE_INFLIGHT);
}

static bool is_count_open(long word)
{
    return (word & ~FLAGS) > STRIPE_BIAS / 2;
}

static long sum_count(const struct model *m, long word, enum stripe_count count)
{
    word &= ~FLAGS;
    return is_count_open(word) ? word - STRIPE_BIAS + stripes_sum(m->stripes, count) : word;
}

long model_refs(const struct model *m)
{
    return sum_count(m, atomic_load(&m->refs), STRIPE_REFS);
}

size_t model_inflight(const struct model *m)
{
    long n = sum_count(m, atomic_load(&m->inflight), STRIPE_INFLIGHT);
    return n > 0 ? (size_t)n : 0;
}

/* Moves the count into one word, plus `more`; returns that word. */
static long close_count(struct model *m, atomic_long *word, enum stripe_count count, long more)
{
    if (is_count_open(atomic_load(word)))
        more += stripes_close(m->stripes, count) - STRIPE_BIAS;
    /* Until this addition the word has its bias, so that no thread sees its count as the last. */
    return atomic_fetch_add(word, more) + more;
}

void model_ref(struct model *m)
{
    if (LIKELY(m->stripes) && stripe_add(m->stripes, STRIPE_REFS, 1))
        return;
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
}

bool model_ref_unless_alone(struct model *m)
{
    if (LIKELY(m->stripes) && stripe_add(m->stripes, STRIPE_REFS, 1))
        return true;
    long refs = atomic_load(&m->refs);
    while (refs != (RETIRING | 1)) {
        if (atomic_compare_exchange_weak(&m->refs, &refs, refs + 1))
            return true;
    }
    return false;
}

bool model_retire(struct model *m)
{
    BUG_ON(atomic_load(&m->refs) & RETIRING);
    return close_count(m, &m->refs, STRIPE_REFS, RETIRING) == (RETIRING | 1);
}

void model_close_refs(struct model *m)
{
    close_count(m, &m->refs, STRIPE_REFS, 0);
}

void model_request_begun(struct model *m)
{
    if (LIKELY(m->stripes) && stripe_add(m->stripes, STRIPE_INFLIGHT, 1))
        return;
    atomic_fetch_add(&m->inflight, 1);
}

void model_request_ended(struct model *m)
{
    if (LIKELY(m->stripes) && stripe_add(m->stripes, STRIPE_INFLIGHT, -1))
        return;
    long before = atomic_load_explicit(&m->inflight, memory_order_relaxed);
    while (before != (STOPPING | 1)) {
        if (LIKELY(atomic_compare_exchange_weak(&m->inflight, &before, before - 1)))
            return;
    }
    /* The last request: the stop learns of it when this thread is done with the server. */
    m->services->on_drained(m->services, m);
}

void model_count_last_end(struct model *m)
{
    atomic_fetch_sub(&m->inflight, 1);
}

void model_note_stopping(struct model *m)
{
    /*
     * A thread that counts itself finds the count open, and is waited for; or closed, and then sees
     * `stopping`, which was set before.
     */
    if (!atomic_exchange(&m->stopping, true))
        close_count(m, &m->inflight, STRIPE_INFLIGHT, STOPPING);
}

bool model_cancel_retirement(struct model *m)
{
    long refs = atomic_load(&m->refs);
    while (refs != (RETIRING | 1)) {
        if (atomic_compare_exchange_weak(&m->refs, &refs, refs & ~RETIRING))
            return true;
    }
    return false;
}

void model_memory(const struct model *m, struct model_memory *ret_memory)
{
    for (enum mem_kind kind = 0; kind < MEM_KINDS; kind++) {
        ret_memory->kinds[kind].now_bytes = mem_owner_bytes(m->owner, kind);
        ret_memory->kinds[kind].peak_bytes = mem_owner_peak(m->owner, kind);
    }
    for (enum memory_place at = 0; at < N_MEMORY_PLACES; at++)
        ret_memory->reported_bytes[at] =
            atomic_load_explicit(&m->reported_bytes[at], memory_order_relaxed) +
            atomic_load_explicit(&m->instances_reported_bytes[at], memory_order_relaxed);
}

void model_expect_returned(const struct mem_owner *owner, enum mem_kind kind)
{
    size_t bytes = mem_owner_bytes(owner, kind);
    if (LIKELY(bytes == 0))
        return;
    bool ours = kind != MEM_BACKEND;
    LOG_AT(ours ? LOG_ERROR : LOG_WARN, 0, "%s has ended, and %zu bytes of its %s are not back",
           mem_owner_name(owner), bytes, mem_kind_name(kind));
    DEBUG_BUG_ON(ours);
}

/* Frees names and specs; the backend was released before (model_unload()). */
void model_unref(struct model *m)
{
    if (!m || (LIKELY(m->stripes) && stripe_add(m->stripes, STRIPE_REFS, -1)))
        return;
    long before = atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel);
    if (UNLIKELY(before == (RETIRING | 2)))
        m->on_alone(m); /* the function's caller keeps the model until then */
    if ((before & ~RETIRING) != 1)
        return;
    map_done(&m->input_by_name);
    map_done(&m->output_by_name);
    for (uint32_t i = 0; i < m->n_outputs; i++)
        labels_free(m->outputs[i].labels);
    instance_stats_free_all(atomic_load_explicit(&m->statistics, memory_order_relaxed));
    mem_free(atomic_load_explicit(&m->thread_stats, memory_order_relaxed));
    model_metrics_done(&m->metrics);
    mem_free(m->cached);
    mem_free(m->inputs);
    mem_free(m->outputs);
    model_config_free(m->config);
    model_config_free(m->changed_config);
    mutex_done(&m->config_mu);
    mem_free(m->directory);
    mem_free(m->version_text);
    mem_free(m->name);
    struct mem_owner *owner = m->owner;
    mem_free(m);
    model_expect_returned(owner, MEM_CONFIG);
    mem_owner_free(owner); /* tensors may still be sent: the last one frees it */
}

/* Returns the data type of the control tensor that has the correlation id; DTYPE_INVALID: there
 * is none. */
static enum dtype corrid_dtype(const Inference__ModelSequenceBatching *config)
{
    for (size_t i = 0; i < config->n_control_input; i++) {
        const Inference__ModelSequenceBatching__ControlInput *in = config->control_input[i];
        for (size_t k = 0; k < in->n_control; k++) {
            if (in->control[k]->kind ==
                INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID)
                return (enum dtype)in->control[k]->data_type;
        }
    }
    return DTYPE_INVALID;
}

/* Returns the labels of the tensor that the step writes, if it writes that tensor of the ensemble
 * and the tensor has labels. */
static const struct labels *find_labels_of_step(const Inference__ModelEnsembling__Step *step,
                                                const struct model *member, const char *tensor)
{
    for (size_t i = 0; i < step->n_output_map; i++) {
        if (strcmp(step->output_map[i]->value, tensor) != 0)
            continue;
        const struct tensor_spec *spec = model_find_output(member, step->output_map[i]->key);
        return spec ? spec->labels : NULL;
    }
    return NULL;
}

/* An ensemble's output without a file of its own has the labels of the step that writes it. */
NODISCARD static struct status *copy_labels_of_member(const struct model *m,
                                                      struct tensor_spec *spec)
{
    const struct labels *found = NULL;
    for (size_t i = 0; i < m->n_members && !found; i++)
        found = find_labels_of_step(m->config->pb->ensemble_scheduling->step[i], m->members[i],
                                    spec->name);
    return found ? labels_copy(found, &spec->labels) : NULL;
}

NODISCARD static struct status *
make_labels(const struct model *m, const Inference__ModelOutput *out, struct tensor_spec *spec)
{
    return out->label_filename[0] ? labels_read(m->name, spec->name, m->storage, m->folder,
                                                out->label_filename, &spec->labels)
                                  : copy_labels_of_member(m, spec);
}

struct status *model_make_specs(struct model *m)
{
    const Inference__ModelConfig *pb = m->config->pb;
    MEM_CHARGE(m->owner, MEM_CONFIG);

    m->max_batch_size = (uint32_t)pb->max_batch_size;
    m->batching = pb->max_batch_size > 0;
    m->decoupled = model_config_decoupled(m->config);
    if (model_config_sequences(m->config))
        m->corrid = corrid_dtype(model_config_sequences(m->config));

    m->n_inputs = (uint32_t)pb->n_input;
    m->inputs = mem_zalloc(pb->n_input * sizeof(*m->inputs));
    for (size_t i = 0; i < pb->n_input; i++) {
        const Inference__ModelInput *in = pb->input[i];
        struct tensor_spec *spec = &m->inputs[i];
        *spec = (struct tensor_spec){
            .name = in->name,
            .name_length = strlen(in->name),
            .dtype = (enum dtype)in->data_type,
            .optional = in->optional,
            .n_dims = (uint32_t)in->n_dims,
            .dims = in->dims,
        };
        if (in->reshape) {
            spec->has_reshape = true;
            spec->n_reshape_dims = (uint32_t)in->reshape->n_shape;
            spec->reshape_dims = in->reshape->shape;
        }
        for (size_t j = 0; j < in->n_dims && !in->allow_ragged_batch; j++)
            spec->same_in_batch |= in->dims[j] == -1;
        m->compares_inputs |= spec->same_in_batch || in->optional;
        m->n_required_inputs += !in->optional;
        if (pb->n_input > COMPARE_UP_TO)
            map_puts(&m->input_by_name, spec->name, spec);
    }

    m->n_outputs = (uint32_t)pb->n_output;
    m->outputs = mem_zalloc(pb->n_output * sizeof(*m->outputs));
    for (size_t i = 0; i < pb->n_output; i++) {
        const Inference__ModelOutput *out = pb->output[i];
        struct tensor_spec *spec = &m->outputs[i];
        *spec = (struct tensor_spec){
            .name = out->name,
            .name_length = strlen(out->name),
            .dtype = (enum dtype)out->data_type,
            .n_dims = (uint32_t)out->n_dims,
            .dims = out->dims,
        };
        if (out->reshape) {
            spec->has_reshape = true;
            spec->n_reshape_dims = (uint32_t)out->reshape->n_shape;
            spec->reshape_dims = out->reshape->shape;
        }
        if (pb->n_output > COMPARE_UP_TO)
            map_puts(&m->output_by_name, spec->name, spec);
        struct status *st = make_labels(m, out, spec);
        if (st)
            return st;
    }
    return NULL;
}

struct status *model_declare_bounded(struct model *m)
{
    int before = MODEL_BOUNDS_UNKNOWN;
    if (atomic_compare_exchange_strong(&m->bounds, &before, MODEL_BOUNDED) ||
        before == MODEL_BOUNDED)
        return NULL;
    return status_new(STATUS_UNSUPPORTED,
                      "model '%s' cannot be declared to be bounded any more: it has been loaded",
                      m->name);
}

bool model_settle_bounds(struct model *m)
{
    int before = MODEL_BOUNDS_UNKNOWN;
    return !atomic_compare_exchange_strong(&m->bounds, &before, MODEL_UNBOUNDED) &&
           before == MODEL_BOUNDED;
}

void model_print_config(struct model *m, struct buf *out)
{
    mutex_lock(&m->config_mu);
    model_config_print_json(m->config, out);
    mutex_unlock(&m->config_mu);
}

void model_print_config_text(struct model *m, struct buf *out)
{
    mutex_lock(&m->config_mu);
    model_config_print_text(m->config, out);
    mutex_unlock(&m->config_mu);
}

ProtobufCMessage *model_copy_config(struct model *m, struct arena *arena)
{
    mutex_lock(&m->config_mu);
    ProtobufCMessage *copy = pb_copy(arena, &m->config->pb->base);
    mutex_unlock(&m->config_mu);
    return copy;
}

const char *model_platform(const struct model *m)
{
    const Inference__ModelConfig *pb = m->config->pb;
    return pb->platform[0] ? pb->platform : pb->backend;
}

/* Returns `own` if it has those characters. */
static const char *match_own_name(const struct tensor_spec *own, const char *name, size_t length)
{
    return own->name_length == length && memcmp(own->name, name, length) == 0 ? own->name : NULL;
}

static const struct tensor_spec *find_spec(const struct tensor_spec *specs, uint32_t n,
                                           const struct map *by_name, const char *name)
{
    if (n > COMPARE_UP_TO)
        return map_gets(by_name, name);
    for (uint32_t i = 0; i < n; i++) {
        if (specs[i].name == name || strcmp(specs[i].name, name) == 0)
            return &specs[i];
    }
    return NULL;
}

const char *model_input_name(const struct model *m, uint32_t index, const char *name, size_t length)
{
    return index < m->n_inputs ? match_own_name(&m->inputs[index], name, length) : NULL;
}

const char *model_output_name(const struct model *m, uint32_t index, const char *name,
                              size_t length)
{
    return index < m->n_outputs ? match_own_name(&m->outputs[index], name, length) : NULL;
}

const struct tensor_spec *model_find_input(const struct model *m, const char *name)
{
    return find_spec(m->inputs, m->n_inputs, &m->input_by_name, name);
}

const struct tensor_spec *model_find_output(const struct model *m, const char *name)
{
    return find_spec(m->outputs, m->n_outputs, &m->output_by_name, name);
}
