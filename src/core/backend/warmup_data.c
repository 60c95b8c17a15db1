/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From small to large: random numbers, one input, one sample. The thread that loads the model
 * makes them; afterwards they are constant, and the warm-ups of all instances read them.
 */
#include "core/backend/warmup_data.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/storage/storage.h"

typedef Inference__ModelWarmup__Input input_config;

enum { STRING_LENGTH_BYTES = 4, MAX_SHAPE_TEXT = 1024 };

/* ---- Random numbers -------------------------------------------------------------------------- */

/* The splitmix64 sequence, always from the same seed: each load warms up with the same numbers. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Which bits of a word of random bits stay, and which ones are set. */
struct bit_rule {
    uint64_t keep, set;
};

/*
 * Integers are any bits. A bool is 0 or 1. Floating point numbers are from [1, 2): random bits
 * would give NaNs and infinities, and denormal numbers, which are slow on processors.
 */
static struct bit_rule rule_of(enum dtype t)
{
    switch (t) {
    case DTYPE_BOOL:
        return (struct bit_rule){UINT64_C(0x0101010101010101), 0};
    case DTYPE_FP16:
        return (struct bit_rule){UINT64_C(0x03ff03ff03ff03ff), UINT64_C(0x3c003c003c003c00)};
    case DTYPE_BF16:
        return (struct bit_rule){UINT64_C(0x007f007f007f007f), UINT64_C(0x3f803f803f803f80)};
    case DTYPE_FP32:
        return (struct bit_rule){UINT64_C(0x007fffff007fffff), UINT64_C(0x3f8000003f800000)};
    case DTYPE_FP64:
        return (struct bit_rule){UINT64_C(0x000fffffffffffff), UINT64_C(0x3ff0000000000000)};
    default:
        return (struct bit_rule){UINT64_MAX, 0};
    }
}

static void fill_random(void *to, size_t size_bytes, enum dtype t)
{
    struct bit_rule rule = rule_of(t);
    uint64_t state = 0;
    for (size_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
        uint64_t word = (next_random(&state) & rule.keep) | rule.set;
        memcpy((char *)to + at, &word, MIN(sizeof(word), size_bytes - at));
    }
}

/* ---- One input ------------------------------------------------------------------------------- */

/* Computes the bytes of the tensor; for strings, of empty ones. */
static struct status *tensor_bytes(const struct warmup_input *in, size_t *ret_bytes)
{
    size_t element_bytes = in->dtype == DTYPE_BYTES ? STRING_LENGTH_BYTES : dtype_size(in->dtype);
    int64_t elements = 0;
    size_t bytes = 0;
    enum shape_fault fault = shape_elements(in->dims, in->n_dims, &elements);
    BUG_ON(fault == SHAPE_BAD_DIM); /* config_validate_data() has refused it */
    if (fault == SHAPE_TOO_LARGE || __builtin_mul_overflow(elements, element_bytes, &bytes) ||
        bytes > WARMUP_MAX_INPUT_BYTES) {
        AUTO(buf) shape = BUF_INIT(MAX_SHAPE_TEXT);
        shape_print(&shape, in->dims, in->n_dims);
        return status_new(
            STATUS_INVALID_ARG, "warmup setting of input '%s': %s of %s take more than %zu bytes",
            in->name, buf_text(&shape), dtype_name(in->dtype), WARMUP_MAX_INPUT_BYTES);
    }
    *ret_bytes = bytes;
    return NULL;
}

/* A tensor may have no data: one of its dimensions is 0. */
static struct status *make_numbers(const struct model *m, struct pool *pool,
                                   struct warmup_input *in, size_t size_bytes, bool random)
{
    in->made = pool_alloc(pool, size_bytes, m->owner);
    if (!in->made)
        return status_prefix(status_no_memory(),
                             "warmup setting of input '%s', %zu bytes: ", in->name, size_bytes);
    /* A string of random bytes would have to begin with its length. Like the reference's, random
     * strings are empty. */
    if (random && in->dtype != DTYPE_BYTES)
        fill_random(in->made, size_bytes, in->dtype);
    else
        memset(in->made, 0, size_bytes);
    in->data = in->made;
    in->size_bytes = size_bytes;
    return NULL;
}

static struct status *read_sample_file(const struct model *m, struct warmup_input *in,
                                       size_t size_bytes, const char *file)
{
    char *folder = mem_printf("%s/warmup", m->folder);
    buf_init(&in->file, WARMUP_MAX_INPUT_BYTES);
    struct status *st = storage_read_named(m->storage, folder, file, &in->file);
    if (st && status_code(st) == STATUS_NOT_FOUND) {
        status_free(st);
        st = status_new(STATUS_INTERNAL,
                        "failed to open text file for read %s/%s/%s: No such file or directory",
                        m->storage->root, folder, file);
    }
    mem_free(folder);
    if (st)
        return st;

    in->data = in->file.data;
    in->size_bytes = in->file.size;
    if (in->dtype == DTYPE_BYTES)
        return NULL; /* any length; its elements are counted as in a request */
    if (in->file.size < size_bytes)
        return status_new(
            STATUS_INVALID_ARG,
            "warmup setting expects %zu bytes, but the data provided from %s only has %zu bytes",
            size_bytes, file, in->file.size);
    if (in->file.size > size_bytes)
        log_warn("model '%s': of the %zu bytes of warmup/%s input '%s' takes the first %zu",
                 m->name, in->file.size, file, in->name, size_bytes);
    in->size_bytes = size_bytes;
    return NULL;
}

static struct status *make_input(const struct model *m, struct pool *pool,
                                 const Inference__ModelWarmup__InputsEntry *entry,
                                 struct warmup_input *in)
{
    const input_config *config = entry->value;
    *in = (struct warmup_input){
        .name = entry->key,
        .dtype = (enum dtype)config->data_type, /* the same numbers */
        .spec = model_find_input(m, entry->key),
        .n_dims = config->n_dims,
        .dims = config->dims,
    };
    if (!in->spec && in->dtype != DTYPE_BYTES && dtype_size(in->dtype) == 0)
        return status_new(STATUS_INVALID_ARG, "warmup setting expects input '%s' to have data_type",
                          in->name);
    size_t size_bytes = 0;
    struct status *st = tensor_bytes(in, &size_bytes);
    if (st)
        return st;
    if (config->input_data_type_case ==
        INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_INPUT_DATA_FILE)
        return read_sample_file(m, in, size_bytes, config->input_data_file);
    return make_numbers(m, pool, in, size_bytes,
                        config->input_data_type_case ==
                            INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_RANDOM_DATA);
}

/* ---- The sample ------------------------------------------------------------------------------ */

/* Control tensors and states, which a sequence batcher would inject into a client's request. */
static bool is_sequence_input(const struct model *m, const char *name)
{
    const Inference__ModelSequenceBatching *c = model_config_sequences(m->config);
    for (size_t i = 0; c && i < c->n_control_input; i++) {
        if (strcmp(c->control_input[i]->name, name) == 0)
            return true;
    }
    for (size_t i = 0; c && i < c->n_state; i++) {
        if (strcmp(c->state[i]->input_name, name) == 0)
            return true;
    }
    return false;
}

struct status *warmup_sample_make(const struct model *m, const Inference__ModelWarmup *config,
                                  struct pool *pool, struct warmup_sample *ret_sample)
{
    MEM_CHARGE(m->owner, MEM_TENSORS);
    *ret_sample = (struct warmup_sample){
        .name = config->name,
        .batch_size = config->batch_size,
        .count = MAX(config->count, 1u),
        .inputs = mem_try_zalloc(config->n_inputs, sizeof(struct warmup_input)),
    };
    struct status *st = ret_sample->inputs ? NULL : status_no_memory();
    for (size_t i = 0; i < config->n_inputs && !st; i++) {
        struct warmup_input *in = &ret_sample->inputs[ret_sample->n_inputs++];
        st = make_input(m, pool, config->inputs[i], in);
        if (!st && !in->spec && !is_sequence_input(m, in->name))
            log_warn("model '%s': warmup sample '%s' has an input '%s' that the model does not "
                     "declare; its backend gets it all the same",
                     m->name, ret_sample->name, in->name);
    }
    return st;
}

void warmup_sample_done(struct warmup_sample *s)
{
    for (size_t i = 0; i < s->n_inputs; i++) {
        pool_release(s->inputs[i].made);
        buf_done(&s->inputs[i].file);
    }
    mem_free(s->inputs);
    *s = (struct warmup_sample){0};
}
