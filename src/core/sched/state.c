/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the inside out: one value and its buffer, the states in the model's configuration, the
 * states of one sequence, the functions for the backend.
 *
 * Initial values are read once, while the model loads, and are constant then. The thread that
 * executes copies them into a sequence's buffers (states_fill()), not under the scheduler's lock.
 */
#include "core/sched/state.h"

#include <endian.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/storage/storage.h"

enum { STRING_LENGTH_BYTES = 4, MAX_SHAPE_TEXT = 1024 };

#define MAX_INITIAL_BYTES ((size_t)4 << 30)

typedef Inference__ModelSequenceBatching__State state_config;
typedef Inference__ModelSequenceBatching__InitialState initial_config;

/* ---- Values ---------------------------------------------------------------------------------- */

static void value_done(struct state_value *v)
{
    mem_free(v->block);
    v->block = v->base = NULL;
    v->size_bytes = 0;
}

/* Allocates this many bytes, unless there is a buffer of that size already.
 * @zeros  if it is new */
static struct status *value_reserve_with(struct state_value *v, size_t size_bytes, bool zeros)
{
    if (v->block && v->size_bytes == size_bytes)
        return NULL;
    char *block = NULL;
    if (size_bytes < SIZE_MAX - MEM_ALIGNMENT)
        block = zeros ? mem_try_zalloc(1, size_bytes + MEM_ALIGNMENT)
                      : mem_try_alloc(size_bytes + MEM_ALIGNMENT);
    if (!block)
        return status_new(STATUS_UNAVAILABLE,
                          "out of memory: %zu bytes for the state of a sequence", size_bytes);
    mem_free(v->block);
    v->block = block;
    v->base = block + MEM_ALIGNMENT - (uintptr_t)block % MEM_ALIGNMENT;
    v->size_bytes = size_bytes;
    return NULL;
}

static struct status *value_reserve(struct state_value *v, size_t size_bytes)
{
    return value_reserve_with(v, size_bytes, true);
}

static void value_set_shape(struct state_value *v, enum dtype dtype, const int64_t *shape,
                            uint32_t n_dims)
{
    v->dtype = dtype;
    v->n_dims = n_dims;
    if (n_dims)
        memcpy(v->shape, shape, n_dims * sizeof(*shape));
}

/* Computes the bytes of a tensor of that type and shape; for strings, of empty ones. */
static bool compute_state_bytes(enum dtype dtype, const int64_t *shape, uint32_t n_dims,
                                size_t *ret_bytes)
{
    int64_t elements;
    size_t element_bytes = dtype == DTYPE_BYTES ? STRING_LENGTH_BYTES : dtype_size(dtype);
    return shape_elements(shape, n_dims, &elements) == SHAPE_FINE &&
           !__builtin_mul_overflow((size_t)elements, element_bytes, ret_bytes);
}

/* ---- Of the model ---------------------------------------------------------------------------- */

/* Does the file have this many strings, each after its length, and nothing else? */
static bool holds_strings(const struct buf *file, int64_t n)
{
    size_t at = 0;
    uint32_t length;
    for (; n > 0; n--) {
        if (file->size - at < sizeof(length))
            return false;
        memcpy(&length, file->data + at, sizeof(length));
        at += sizeof(length);
        length = le32toh(length);
        if (file->size - at < length)
            return false;
        at += length;
    }
    return at == file->size;
}

static struct status *read_initial(const struct model *m, const char *name, const char *file,
                                   struct state_value *v, size_t size_bytes)
{
    char *folder = mem_printf("%s/initial_state", m->folder);
    AUTO(buf) content = BUF_INIT(MAX_INITIAL_BYTES);
    struct status *st = storage_read_named(m->storage, folder, file, &content);
    mem_free(folder);
    if (st)
        return status_prefix(st, "initial_state of state input '%s': ", name);
    int64_t elements = (int64_t)(size_bytes / STRING_LENGTH_BYTES);
    if (v->dtype == DTYPE_BYTES && !holds_strings(&content, elements))
        return status_new(STATUS_INVALID_ARG,
                          "initial_state of state input '%s': %s does not hold %lld strings, each "
                          "behind its length of 4 bytes",
                          name, file, (long long)elements);
    if (v->dtype == DTYPE_BYTES)
        size_bytes = content.size;
    if (content.size < size_bytes)
        return status_new(STATUS_INVALID_ARG,
                          "initial_state setting expects %zu bytes, but the data provided from %s "
                          "only has %zu bytes.",
                          size_bytes, file, content.size);
    st = value_reserve(v, size_bytes);
    if (!st)
        memcpy(v->base, content.data, size_bytes);
    return st;
}

/* Variable dimensions are 1 at the beginning, unless an initial value says otherwise. */
static struct status *make_initial(const struct model *m, const state_config *config,
                                   struct state_value *v)
{
    const initial_config *initial = config->n_initial_state ? config->initial_state[0] : NULL;
    const int64_t *dims = initial ? initial->dims : config->dims;
    const char *name = config->input_name;
    size_t size_bytes;

    if (config->n_dims + 1 > MAX_STATE_DIMS)
        return status_new(STATUS_INVALID_ARG, "state input '%s' has %zu dimensions, more than %d",
                          name, config->n_dims, MAX_STATE_DIMS - 1);
    v->dtype = (enum dtype)config->data_type; /* the same numbers */
    if (m->batching)
        v->shape[v->n_dims++] = 1;
    for (size_t i = 0; i < config->n_dims; i++)
        v->shape[v->n_dims++] = dims[i] == -1 ? 1 : dims[i];
    if (!compute_state_bytes(v->dtype, v->shape, v->n_dims, &size_bytes) ||
        size_bytes > MAX_INITIAL_BYTES) {
        AUTO(buf) shape = BUF_INIT(MAX_SHAPE_TEXT);
        shape_print(&shape, v->shape, v->n_dims);
        return status_new(STATUS_INVALID_ARG,
                          "state input '%s': %s of %s is no shape of at most %zu bytes", name,
                          buf_text(&shape), dtype_name(v->dtype), MAX_INITIAL_BYTES);
    }
    if (initial && initial->state_data_case ==
                       INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE)
        return read_initial(m, name, initial->data_file, v, size_bytes);
    return value_reserve(v, size_bytes);
}

/* As in the reference, the first state of a name counts. */
static bool is_duplicate_state(const struct state_specs *specs, const state_config *config)
{
    for (uint32_t i = 0; i < specs->n; i++) {
        if (strcmp(specs->items[i].input_name, config->input_name) == 0 ||
            strcmp(specs->items[i].output_name, config->output_name) == 0)
            return true;
    }
    return false;
}

struct status *state_specs_init(struct state_specs *specs, const struct model *m)
{
    const Inference__ModelSequenceBatching *config = model_config_sequences(m->config);
    struct status *st = NULL;
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    *specs = (struct state_specs){.items = mem_zalloc(config->n_state * sizeof(struct state_spec)),
                                  .owner = m->owner};
    for (size_t i = 0; i < config->n_state && !st; i++) {
        const state_config *c = config->state[i];
        if (is_duplicate_state(specs, c)) {
            log_warn("model '%s': the state of input '%s' and output '%s' is ignored, since one of "
                     "these names is another state's",
                     m->name, c->input_name, c->output_name);
            continue;
        }
        struct state_spec *spec = &specs->items[specs->n++];
        spec->input_name = c->input_name;
        spec->output_name = c->output_name;
        spec->same_buffer = c->use_same_buffer_for_input_output;
        st = make_initial(m, c, &spec->initial);
    }
    if (st)
        state_specs_done(specs);
    return st;
}

void state_specs_done(struct state_specs *specs)
{
    for (uint32_t i = 0; i < specs->n; i++)
        value_done(&specs->items[i].initial);
    mem_free(specs->items);
    *specs = (struct state_specs){0};
}

/* ---- Of a sequence --------------------------------------------------------------------------- */

struct status *states_new(const struct state_specs *specs, struct states **ret_states)
{
    MEM_CHARGE(specs->owner, MEM_INSTANCES);
    struct states *s = mem_try_zalloc(1, sizeof(*s) + specs->n * sizeof(s->items[0]));
    if (!s)
        return status_no_memory();
    s->specs = specs;
    for (uint32_t i = 0; i < specs->n; i++) {
        s->items[i].spec = &specs->items[i];
        s->items[i].states = s;
    }
    *ret_states = s;
    return NULL;
}

void states_free(struct states *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->specs->n; i++) {
        value_done(&s->items[i].shown);
        value_done(&s->items[i].next);
        value_done(&s->items[i].out);
    }
    mem_free(s);
}

/* Its bytes are written later, outside the lock: only the memory may be missing here. */
static struct status *begin_state(struct state *state, const struct state_value *like,
                                  size_t size_bytes, enum state_fill fill)
{
    value_done(&state->next);
    state->has_next = false;
    struct status *st = value_reserve_with(&state->shown, size_bytes, false);
    if (st)
        return st;
    value_set_shape(&state->shown, like->dtype, like->shape, like->n_dims);
    state->fill = fill;
    return NULL;
}

struct status *states_begin(struct states *s)
{
    struct status *st = NULL;
    MEM_CHARGE(s->specs->owner, MEM_INSTANCES);
    for (uint32_t i = 0; i < s->specs->n && !st; i++) {
        const struct state_value *initial = &s->items[i].spec->initial;
        st = begin_state(&s->items[i], initial, initial->size_bytes, STATE_INITIAL);
    }
    return st;
}

/*
 * Returns the bytes of zeros that are a tensor of the same type and shape. Strings of any length
 * become as many empty ones, each a length of 0. If a backend has published fewer bytes than its
 * shape has strings, the result is what it has published.
 */
static size_t zeros_like(const struct state_value *like)
{
    size_t empty_bytes;
    if (like->dtype != DTYPE_BYTES ||
        !compute_state_bytes(like->dtype, like->shape, like->n_dims, &empty_bytes))
        return like->size_bytes;
    return MIN(empty_bytes, like->size_bytes);
}

struct status *states_begin_like(struct states *s, const struct states *other)
{
    struct status *st = NULL;
    MEM_CHARGE(s->specs->owner, MEM_INSTANCES);
    for (uint32_t i = 0; i < s->specs->n && !st; i++) {
        const struct state_value *like = &other->items[i].shown;
        st = begin_state(&s->items[i], like, zeros_like(like), STATE_ZEROS);
    }
    return st;
}

void states_fill(struct states *s)
{
    for (uint32_t i = 0; i < s->specs->n; i++) {
        struct state *state = &s->items[i];
        const struct state_value *v = &state->shown;
        if (state->fill == STATE_INITIAL)
            memcpy(v->base, state->spec->initial.base, v->size_bytes);
        else if (state->fill == STATE_ZEROS)
            memset(v->base, 0, v->size_bytes);
        state->fill = STATE_FILLED;
    }
}

/* The value that was shown may be overwritten, unless an older one is the better choice. */
static void advance_state(struct state *state)
{
    if (!state->has_next)
        return;
    if (!state->out.block && !state->spec->same_buffer) {
        state->out = state->shown;
        state->shown.block = NULL;
    }
    value_done(&state->shown);
    state->shown = state->next;
    state->next.block = NULL;
    state->has_next = false;
}

void states_show(struct states *s, struct request *r)
{
    for (uint32_t i = 0; i < s->specs->n; i++) {
        struct state *state = &s->items[i];
        struct input *in = &state->input;
        advance_state(state);
        *in = (struct input){
            .name = state->spec->input_name,
            .dtype = state->shown.dtype,
            .request = r,
            .n_buffers = 1,
            .buffer_capacity = 1,
            .buffers = &in->first,
            .first = {.base = state->shown.base, .size_bytes = state->shown.size_bytes},
            .size_bytes = state->shown.size_bytes,
            .n_backend_dims = state->shown.n_dims,
            .backend_shape = state->shown.shape,
        };
    }
}

/* ---- For the backend ------------------------------------------------------------------------- */

static struct status *check_state_shape(const char *name, const int64_t *shape, uint32_t n_dims)
{
    int64_t elements;
    if (n_dims > MAX_STATE_DIMS)
        return status_new(STATUS_INVALID_ARG, "state '%s' has %u dimensions, more than %d", name,
                          n_dims, MAX_STATE_DIMS);
    if (shape_elements(shape, n_dims, &elements) == SHAPE_FINE)
        return NULL;
    AUTO(buf) text = BUF_INIT(MAX_SHAPE_TEXT);
    shape_print(&text, shape, n_dims);
    return status_new(STATUS_INVALID_ARG, "state '%s': %s is no shape of a tensor", name,
                      buf_text(&text));
}

struct status *states_output(const struct request *r, const char *name, enum dtype dtype,
                             const int64_t *shape, uint32_t n_dims, struct state **ret_state)
{
    struct states *s = r->seq.states;
    if (!s)
        return status_new(
            STATUS_INVALID_ARG,
            "unable to add state '%s'. State configuration is missing for model '%s'.", name,
            r->model->name);
    for (uint32_t i = 0; i < s->specs->n; i++) {
        struct state *state = &s->items[i];
        if (strcmp(state->spec->output_name, name) != 0)
            continue;
        struct status *st = check_state_shape(name, shape, n_dims);
        if (st)
            return st;
        value_set_shape(&state->out, dtype, shape, n_dims);
        *ret_state = state;
        return NULL;
    }
    return status_new(STATUS_INVALID_ARG, "state '%s' is not a valid state name.", name);
}

/* One buffer for both: the one that is shown, or a buffer of another size from the next request
 * on. */
static struct status *shared_buffer(struct state *state, size_t size_bytes, void **ret_base)
{
    struct state_value *v = state->has_next ? &state->next : &state->shown;
    if (v->size_bytes != size_bytes) {
        struct status *st = value_reserve(&state->next, size_bytes);
        if (st)
            return st;
        state->has_next = true;
        v = &state->next;
    }
    if (state->has_next)
        value_set_shape(v, state->out.dtype, state->out.shape, state->out.n_dims);
    *ret_base = v->base;
    return NULL;
}

struct status *state_buffer(struct state *state, size_t size_bytes, void **ret_base)
{
    MEM_CHARGE(state->states->specs->owner, MEM_INSTANCES);
    if (state->spec->same_buffer)
        return shared_buffer(state, size_bytes, ret_base);
    struct status *st = value_reserve(&state->out, size_bytes);
    if (!st)
        *ret_base = state->out.base;
    return st;
}

struct status *state_buffer_bytes(const struct state *state, size_t *ret_bytes)
{
    bool shared = state->spec->same_buffer;
    const struct state_value *v =
        shared ? (state->has_next ? &state->next : &state->shown) : &state->out;
    if (!v->block)
        return status_new(STATUS_INVALID_ARG,
                          "state '%s' has no buffer yet, so it has no attributes",
                          state->spec->output_name);
    *ret_bytes = v->size_bytes;
    return NULL;
}

struct status *state_update(struct state *state)
{
    const char *name = state->spec->output_name;
    struct state_value *out = &state->out;
    size_t size_bytes;
    if (state->spec->same_buffer)
        return NULL;
    if (!out->block)
        return status_new(STATUS_INVALID_ARG, "state '%s' has no buffer that could be its update",
                          name);
    if (out->dtype != DTYPE_BYTES &&
        (!compute_state_bytes(out->dtype, out->shape, out->n_dims, &size_bytes) ||
         out->size_bytes != size_bytes)) {
        AUTO(buf) text = BUF_INIT(MAX_SHAPE_TEXT);
        shape_print(&text, out->shape, out->n_dims);
        return status_new(STATUS_INVALID_ARG,
                          "state '%s': its buffer has %zu bytes, which is not the size of %s %s",
                          name, out->size_bytes, dtype_name(out->dtype), buf_text(&text));
    }
    /* The next value is written over one that was published and never shown. */
    struct state_value before = state->next;
    state->next = *out;
    state->has_next = true;
    out->block = before.block;
    out->base = before.base;
    out->size_bytes = before.block ? before.size_bytes : 0;
    return NULL;
}
