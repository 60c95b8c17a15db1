/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes a ModelInferRequest into a request of the core. The order is the reference's, and decides
 * which of several errors the client gets: id and parameters, names and shapes of inputs, names of
 * outputs, data of inputs, parameters of outputs. Threads: no state.
 */
#include "frontends/grpc/infer_decode.h"

#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "frontends/grpc/infer_message.h"
#include "frontends/ops/tensor_blocks.h"
#include "frontends/ops/tensor_regions.h"

enum { MAX_EXTRA_INPUTS = 64 };

struct decode {
    const struct infer_message *message;
    struct request *request;
    struct tensor_blocks *blocks;
    struct tensor_regions *regions;
    struct infer_asks *asks;
    uint32_t n_raw_used;
};

/* For %.*s. A text ends at its first zero byte, as in the reference. */
#define TEXT(bytes) (int)strnlen((bytes).at, (bytes).length), (bytes).at

static size_t text_length(struct pbwire_bytes text)
{
    return strnlen(text.at, text.length);
}

static bool text_is(struct pbwire_bytes text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.at, word, text.length) == 0;
}

/* ---- Parameters ----------------------------------------------------------------------------- */

static struct status *wrong_choice(const struct infer_parameter *p, const char *expected)
{
    return status_new(STATUS_INVALID_ARG, "invalid value type for '%.*s' parameter, expected %s.",
                      TEXT(p->key), expected);
}

static struct status *set_sequence_id(struct decode *d, const struct infer_parameter *p)
{
    if (p->choice == INFER_STRING)
        return request_set_correlation_string(d->request, p->string.at, text_length(p->string));
    if (p->choice != INFER_INT64)
        return wrong_choice(p, "int64_param or string_param");
    d->request->maker.correlation_id = (struct correlation_id){.number = (uint64_t)p->int64};
    return NULL;
}

static struct status *set_flag(struct decode *d, const struct infer_parameter *p, uint32_t flag)
{
    if (p->choice != INFER_BOOL)
        return wrong_choice(p, "bool_param");
    if (p->boolean)
        d->request->maker.flags |= flag;
    return NULL;
}

static struct status *set_sequence_start(struct decode *d, const struct infer_parameter *p)
{
    return set_flag(d, p, REQUEST_SEQUENCE_START);
}

static struct status *set_sequence_end(struct decode *d, const struct infer_parameter *p)
{
    return set_flag(d, p, REQUEST_SEQUENCE_END);
}

static struct status *set_priority(struct decode *d, const struct infer_parameter *p)
{
    if (p->choice == INFER_INT64 && p->int64 < 0)
        return status_new(STATUS_INVALID_ARG, "invalid value for 'priority', expected value >= 0.");
    if (p->choice != INFER_INT64 && p->choice != INFER_UINT64)
        return wrong_choice(p, "int64_param or uint64_param");
    d->request->maker.priority = p->choice == INFER_INT64 ? (uint64_t)p->int64 : p->uint64;
    return NULL;
}

static struct status *set_timeout(struct decode *d, const struct infer_parameter *p)
{
    if (p->choice != INFER_INT64)
        return wrong_choice(p, "int64_param");
    d->request->maker.timeout_us = (uint64_t)p->int64;
    return NULL;
}

static struct status *set_empty_final(struct decode *d, const struct infer_parameter *p)
{
    if (p->choice != INFER_BOOL)
        return wrong_choice(p, "bool_param");
    d->asks->empty_final = p->boolean;
    return NULL;
}

static const struct {
    const char *name;
    struct status *(*set)(struct decode *d, const struct infer_parameter *p);
} known_parameters[] = {
    {"sequence_id", set_sequence_id},   {"sequence_start", set_sequence_start},
    {"sequence_end", set_sequence_end}, {"priority", set_priority},
    {"timeout", set_timeout},           {"triton_enable_empty_final_response", set_empty_final},
};

/* Adds a parameter for the model's backend. */
static struct status *add_custom(struct decode *d, const struct infer_parameter *p)
{
    struct arena *a = &d->request->arena;
    struct parameter parameter = {.name = arena_strndup(a, p->key.at, text_length(p->key))};

    if (!parameter.name)
        return status_no_memory();
    switch (p->choice) {
    case INFER_BOOL:
        parameter.type = PARAMETER_BOOL;
        parameter.boolean = p->boolean;
        break;
    case INFER_INT64:
        parameter.type = PARAMETER_INT;
        parameter.int64 = p->int64;
        break;
    case INFER_DOUBLE:
        parameter.type = PARAMETER_DOUBLE;
        parameter.float64 = p->float64;
        break;
    case INFER_STRING:
        parameter.type = PARAMETER_STRING;
        parameter.string = arena_strndup(a, p->string.at, text_length(p->string));
        if (!parameter.string)
            return status_no_memory();
        break;
    default:
        return wrong_choice(p, "int64_param, bool_param, or string_param");
    }
    return request_add_parameter(d->request, &parameter);
}

static struct status *set_parameter(struct decode *d, const struct infer_parameter *p)
{
    static const char reserved[] = "triton_";
    for (size_t i = 0; i < ARRAY_SIZE(known_parameters); i++) {
        if (text_is(p->key, known_parameters[i].name))
            return known_parameters[i].set(d, p);
    }
    if (p->key.length >= sizeof(reserved) - 1 &&
        memcmp(p->key.at, reserved, sizeof(reserved) - 1) == 0)
        return status_new(STATUS_INVALID_ARG,
                          "parameter keys starting with 'triton_' are reserved for Triton usage. "
                          "Only the following keys starting with 'triton_' are allowed: "
                          "triton_enable_empty_final_response");
    return add_custom(d, p);
}

/* ---- Names and shapes ----------------------------------------------------------------------- */

static struct status *add_input(struct decode *d, const struct infer_tensor *t)
{
    struct request *r = d->request;
    struct input *in;
    /* Each input is compared with the earlier ones, so a client must not choose their number. */
    if (r->maker.n_inputs >= r->model->n_inputs + MAX_EXTRA_INPUTS)
        return status_new(STATUS_INVALID_ARG,
                          "expected %u inputs but got more than %u inputs for model '%s'",
                          r->model->n_inputs, r->maker.n_inputs, r->model->name);
    return request_add_input(r, t->name.at, text_length(t->name),
                             dtype_from_name(t->datatype.at, text_length(t->datatype)), t->shape,
                             t->n_dims, &in);
}

static struct status *add_output(struct decode *d, const struct infer_tensor *t)
{
    struct request *r = d->request;
    /* One more than the model has: the core reports the unknown one. */
    if (r->maker.n_outputs > r->model->n_outputs)
        return NULL;
    return request_add_output(r, t->name.at, text_length(t->name));
}

/* ---- Data of inputs ------------------------------------------------------------------------- */

static struct status *add_bytes(struct decode *d, struct input *in, const void *base,
                                size_t n_bytes)
{
    return request_add_data(d->request, in,
                            &(struct tensor_buffer){.base = base, .size_bytes = n_bytes});
}

/* The datatype that each kind of contents holds. INT and UINT also hold the narrower ones. */
static const enum dtype kind_dtypes[N_CONTENTS] = {
    [CONTENTS_BOOL] = DTYPE_BOOL,     [CONTENTS_INT] = DTYPE_INT32,
    [CONTENTS_INT64] = DTYPE_INT64,   [CONTENTS_UINT] = DTYPE_UINT32,
    [CONTENTS_UINT64] = DTYPE_UINT64, [CONTENTS_FP32] = DTYPE_FP32,
    [CONTENTS_FP64] = DTYPE_FP64,     [CONTENTS_BYTES] = DTYPE_BYTES,
};

static bool is_narrower(enum infer_contents kind, enum dtype dtype)
{
    return (kind == CONTENTS_INT && (dtype == DTYPE_INT8 || dtype == DTYPE_INT16)) ||
           (kind == CONTENTS_UINT && (dtype == DTYPE_UINT8 || dtype == DTYPE_UINT16));
}

/* Finds the kind of the tensor's typed values; *ret_kind 0: the tensor has none. */
static struct status *find_kind(const struct decode *d, const struct infer_tensor *t,
                                enum dtype dtype, int *ret_kind)
{
    int found = 0;
    for (int kind = CONTENTS_BOOL; kind < N_CONTENTS; kind++) {
        if (t->n_elements[kind] == 0)
            continue;
        if (found)
            return status_new(STATUS_INVALID_ARG,
                              "unexpected explicit tensor data for input tensor '%.*s' for model "
                              "'%.*s', binary data was already supplied.",
                              TEXT(t->name), TEXT(d->message->model_name));
        if (dtype != kind_dtypes[kind] && !is_narrower(kind, dtype))
            return status_new(STATUS_INVALID_ARG,
                              "unexpected explicit tensor data for input tensor '%.*s' for model "
                              "'%.*s' of type '%s', expected datatype '%s'",
                              TEXT(t->name), TEXT(d->message->model_name),
                              dtype_name(kind_dtypes[kind]), dtype_name(dtype));
        found = kind;
    }
    *ret_kind = found;
    return NULL;
}

/* The place where the next converted value is written. */
struct values {
    char *at;
    size_t element_bytes;
    bool is_bool;
};

static void put_value(struct values *v, uint64_t value)
{
    if (v->is_bool)
        value = value != 0;
    /* The low bytes come first on every machine that this server supports. */
    memcpy(v->at, &value, v->element_bytes);
    v->at += v->element_bytes;
}

static bool put_varints(struct values *v, struct pbwire_bytes packed)
{
    struct pbwire in = pbwire_of(packed.at, packed.length);
    uint64_t value;
    while (in.at < in.end) {
        if (!pbwire_varint(&in, &value))
            return false;
        put_value(v, value);
    }
    return true;
}

static void put_string(struct values *v, struct pbwire_bytes string)
{
    uint32_t length = (uint32_t)string.length; /* a message is smaller than 2 GiB */
    memcpy(v->at, &length, sizeof(length));
    memcpy(v->at + sizeof(length), string.at, string.length);
    v->at += sizeof(length) + string.length;
}

/* Converts the values of that kind in one part of the contents. False: a varint has more than
 * ten bytes. */
static bool convert_part(struct values *v, struct pbwire_bytes part, int kind)
{
    struct pbwire in = pbwire_of(part.at, part.length);
    struct pbwire_field f;
    bool fine = true;
    while (fine && pbwire_next(&in, &f)) {
        if (f.number != (uint32_t)kind)
            continue;
        if (kind == CONTENTS_BYTES) {
            if (f.type == PBWIRE_BYTES)
                put_string(v, f.bytes);
        } else if (kind == CONTENTS_FP32 || kind == CONTENTS_FP64) {
            enum pbwire_type single = kind == CONTENTS_FP32 ? PBWIRE_FIXED32 : PBWIRE_FIXED64;
            if (f.type == PBWIRE_BYTES) {
                memcpy(v->at, f.bytes.at, f.bytes.length);
                v->at += f.bytes.length;
            } else if (f.type == single) {
                put_value(v, f.value);
            }
        } else if (f.type == PBWIRE_BYTES) {
            fine = put_varints(v, f.bytes);
        } else if (f.type == PBWIRE_VARINT) {
            put_value(v, f.value);
        }
    }
    return fine;
}

/* Floating point numbers in one piece are used in place. */
static bool find_floats(const struct infer_tensor *t, int kind, size_t n_bytes,
                        struct pbwire_bytes *ret)
{
    struct pbwire_field f;
    if ((kind != CONTENTS_FP32 && kind != CONTENTS_FP64) || t->n_parts != 1)
        return false;
    struct pbwire in = pbwire_of(t->parts[0].at, t->parts[0].length);
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, (uint32_t)kind, PBWIRE_BYTES) && f.bytes.length == n_bytes) {
            *ret = f.bytes;
            return true;
        }
    }
    return false;
}

static struct status *add_typed(struct decode *d, const struct infer_tensor *t, struct input *in)
{
    struct pbwire_bytes floats;
    size_t n_bytes;
    int kind = 0;
    struct status *st = find_kind(d, t, in->dtype, &kind);
    if (st)
        return st;
    if (kind == 0)
        return add_bytes(d, in, NULL, 0);

    struct values v = {.element_bytes = dtype_size(in->dtype), .is_bool = kind == CONTENTS_BOOL};
    /* Below 2^31 elements, of at most 8 bytes: no overflow. */
    n_bytes = kind == CONTENTS_BYTES ? t->n_elements[kind] * sizeof(uint32_t) + t->string_bytes
                                     : t->n_elements[kind] * v.element_bytes;
    if (find_floats(t, kind, n_bytes, &floats))
        return add_bytes(d, in, floats.at, floats.length);
    char *base = v.at =
        tensor_blocks_add(d->blocks, d->request->pool, n_bytes, d->request->model->owner);
    if (!base)
        return status_no_memory();
    for (uint32_t i = 0; i < t->n_parts; i++) {
        if (!convert_part(&v, t->parts[i], kind))
            return status_new(STATUS_INTERNAL, "Unable to parse request");
    }
    return add_bytes(d, in, base, n_bytes);
}

static uint64_t find_number(const struct infer_tensor *t, const char *name)
{
    const struct infer_parameter *p = infer_find_parameter(&t->parameters, name);
    return p ? (uint64_t)p->int64 : 0;
}

/* Reads a tensor's parameters about shared memory. */
static struct status *read_region(const struct infer_tensor *t, bool *ret_has,
                                  struct region_part *ret_part)
{
    const struct infer_parameter *region =
        infer_find_parameter(&t->parameters, "shared_memory_region");
    static const char *const numbers[] = {"shared_memory_offset", "shared_memory_byte_size"};

    *ret_has = region != NULL;
    if (region && region->choice != INFER_STRING)
        return status_new(STATUS_INVALID_ARG,
                          "invalid value type for 'shared_memory_region' parameter for tensor "
                          "'%.*s', expected string_param.",
                          TEXT(t->name));
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        const struct infer_parameter *p = infer_find_parameter(&t->parameters, numbers[i]);
        if (!p)
            continue;
        if (!region)
            return status_new(STATUS_INVALID_ARG,
                              "'%s' can not be specified without 'shared_memory_region' parameter "
                              "for tensor '%.*s'",
                              numbers[i], TEXT(t->name));
        if (p->choice != INFER_INT64)
            return status_new(STATUS_INVALID_ARG,
                              "invalid value type for '%s' parameter for tensor '%.*s', expected "
                              "int64_param.",
                              numbers[i], TEXT(t->name));
    }
    if (region && !infer_find_parameter(&t->parameters, "shared_memory_byte_size"))
        return status_new(STATUS_INVALID_ARG,
                          "'shared_memory_byte_size' must be specified along with "
                          "'shared_memory_region' parameter for tensor '%.*s'",
                          TEXT(t->name));
    if (region) /* a number below 0 is one beyond every region, as in the reference */
        *ret_part = (struct region_part){.name = region->string.at,
                                         .name_length = text_length(region->string),
                                         .offset = find_number(t, numbers[0]),
                                         .size_bytes = find_number(t, numbers[1])};
    return NULL;
}

static struct status *add_input_data(struct decode *d, const struct infer_tensor *t,
                                     struct input *in)
{
    const struct infer_message *m = d->message;
    struct region_part part;
    bool has_region;
    struct status *st = read_region(t, &has_region, &part);
    if (st)
        return st;
    if (has_region && t->n_parts > 0)
        return status_new(STATUS_INVALID_ARG,
                          "unexpected 'content' provided when using shared memory for input tensor "
                          "'%.*s' for model '%.*s'",
                          TEXT(t->name), TEXT(m->model_name));
    if (has_region)
        return tensor_regions_add_input(d->regions, d->request, in, &part, d->blocks);
    if (t->n_parts > 0 && m->n_raw > 0)
        return status_new(STATUS_INVALID_ARG,
                          "contents field must not be specified when using raw_input_contents for "
                          "'%.*s' for model '%.*s'",
                          TEXT(t->name), TEXT(m->model_name));
    if (t->n_parts > 0)
        return add_typed(d, t, in);
    if (d->n_raw_used == m->n_raw)
        return status_new(STATUS_INVALID_ARG,
                          "unable to find data for input tensor '%.*s' for model '%.*s' in "
                          "request.",
                          TEXT(t->name), TEXT(m->model_name));
    const struct pbwire_bytes *raw = &m->raw[d->n_raw_used++];
    return add_bytes(d, in, raw->at, raw->length);
}

/* ---- Parameters of outputs ------------------------------------------------------------------ */

/* Applies the parameters of the n-th output. */
static struct status *apply_output(struct decode *d, const struct infer_tensor *t, uint32_t n)
{
    struct region_part part;
    bool has_region;
    struct status *st = read_region(t, &has_region, &part);
    if (st)
        return st;
    const struct infer_parameter *classes = infer_find_parameter(&t->parameters, "classification");
    if (classes && classes->choice != INFER_INT64)
        return status_new(STATUS_INVALID_ARG, "invalid value type for 'classification' parameter, "
                                              "expected int64_param");
    if (classes && classes->int64 <= 0)
        return status_new(STATUS_INVALID_ARG,
                          "invalid value for 'classification' parameter, expected >= 0");
    if (has_region && classes)
        return status_new(STATUS_INVALID_ARG,
                          "output can't set both 'shared_memory_region' and 'classification'");
    if (n >= d->request->maker.n_outputs) /* the core refuses the number of outputs */
        return NULL;
    if (classes)
        return classification_add(&d->asks->classes, d->request, n, (uint64_t)classes->int64);
    return has_region ? tensor_regions_add_output(d->regions, d->request,
                                                  d->request->maker.outputs[n], &part)
                      : NULL;
}

/* ---- The whole message ----------------------------------------------------------------------- */

struct status *infer_decode(const struct infer_message *m, struct request *r,
                            struct tensor_blocks *blocks, struct tensor_regions *regions,
                            struct infer_asks *ret_asks)
{
    struct decode d = {
        .message = m, .request = r, .blocks = blocks, .regions = regions, .asks = ret_asks};
    struct status *st = NULL;

    *ret_asks = (struct infer_asks){.empty_final = false};
    if (m->id.length > 0)
        st = request_set_id(r, m->id.at, text_length(m->id));
    for (uint32_t i = 0; !st && i < m->parameters.count; i++) {
        if (!m->parameters.items[i].replaced)
            st = set_parameter(&d, &m->parameters.items[i]);
    }
    for (uint32_t i = 0; !st && i < m->inputs.count; i++)
        st = add_input(&d, &m->inputs.items[i]);
    for (uint32_t i = 0; !st && i < m->outputs.count; i++)
        st = add_output(&d, &m->outputs.items[i]);
    for (uint32_t i = 0; !st && i < m->inputs.count; i++)
        st = add_input_data(&d, &m->inputs.items[i], r->maker.inputs[i]);
    for (uint32_t i = 0; !st && i < m->outputs.count; i++)
        st = apply_output(&d, &m->outputs.items[i], i);
    return st;
}
