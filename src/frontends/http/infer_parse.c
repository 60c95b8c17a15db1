/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the body of an inference, JSON with binary tensors behind it, into a request of the core.
 *
 * The text is walked once. If name, datatype and shape of a tensor precede its values, as clients
 * write them, the values are written directly into its buffer. Otherwise the values' position is
 * remembered until the tensor is known.
 *
 * The order of errors is the reference's: it parses all of the text before it reads any field, then
 * reads id, parameters, inputs, outputs in this order, whatever their order in the text. So an
 * error in one of them is kept while the walk goes on, and after an error json_check() looks for a
 * syntax error first.
 */
#include "frontends/http/dialect.h"
#include "frontends/http/infer_priv.h"
#include "frontends/http/reply.h"

#include <string.h>

#include "base/status.h"
#include "core/model/model.h"

/* ---- Shared by the parts --------------------------------------------------------------------- */

struct status *json_status(enum json_failure failure, const char *what)
{
    if (failure == JSON_OUT_OF_MEMORY)
        return status_no_memory();
    if (failure == JSON_TOO_DEEP)
        return status_new(STATUS_INVALID_ARG, "%s", json_failure_text(failure));
    /* A syntax error is only noted here: infer_parse() makes its text. */
    return status_new(STATUS_INTERNAL, "%s: %s", what,
                      failure == JSON_OK ? "no value" : json_failure_text(failure));
}

struct status *field_status(enum json_failure failure, const char *field)
{
    char what[64];
    snprintf(what, sizeof(what), "Unable to parse '%s'", field);
    return json_status(failure, what);
}

struct status *missing_status(const char *field)
{
    return status_new(STATUS_INTERNAL,
                      "Unable to parse '%s': attempt to access non-existing object member '%s'",
                      field, field);
}

struct status *too_large_status(struct parse *p, const char *what, size_t n_bytes)
{
    return status_new(STATUS_INVALID_ARG,
                      "%s has a byte_size (%zu bytes) that exceeds the maximum allowed value of "
                      "%zu bytes. Use --http-max-input-size to increase the limit.",
                      what, n_bytes, p->max_bytes);
}

enum json_failure pass_over(struct json *j, struct json value)
{
    enum json_failure failure = j->failure;
    *j = value;
    json_skip_value(j);
    return failure;
}

struct status *add_data(struct parse *p, struct input *in, const void *base, size_t n_bytes)
{
    return request_add_data(p->r, in, &(struct tensor_buffer){.base = base, .size_bytes = n_bytes});
}

/* ---- Shared memory --------------------------------------------------------------------------- */

static void read_region_number(struct json *j, uint64_t *ret, bool *has, enum json_failure *failure)
{
    struct json value = *j;
    *has = true;
    if (!json_read_uint64(j, ret))
        *failure = pass_over(j, value);
}

bool read_region_parameter(struct region_text *t, struct json *j, struct json_str key)
{
    struct json value = *j;
    struct json_str name;
    if (json_str_is(key, "shared_memory_region") && !t->has_name) {
        t->has_name = true;
        if (!json_read_string(j, &name))
            t->name_failure = pass_over(j, value);
        else /* ends at its first zero byte, as in the reference */
            t->part.name = name.at, t->part.name_length = strnlen(name.at, name.length);
    } else if (json_str_is(key, "shared_memory_offset") && !t->has_offset) {
        read_region_number(j, &t->part.offset, &t->has_offset, &t->offset_failure);
    } else if (json_str_is(key, "shared_memory_byte_size") && !t->has_size) {
        read_region_number(j, &t->part.size_bytes, &t->has_size, &t->size_failure);
    } else {
        return false;
    }
    t->has_any = true;
    return true;
}

struct status *check_region_text(const struct region_text *t)
{
    if (t->name_failure)
        return field_status(t->name_failure, "shared_memory_region");
    if (t->offset_failure)
        return field_status(t->offset_failure, "shared_memory_offset");
    if (t->size_failure)
        return field_status(t->size_failure, "shared_memory_byte_size");
    return NULL;
}

/* ---- Id and parameters ---------------------------------------------------------------------- */

static struct status *parse_id(struct parse *p, struct json *j)
{
    struct json_str id;
    p->plain = false; /* each request usually has another id */
    if (!json_read_string(j, &id))
        return field_status(j->failure, "id");
    return request_set_id(p->r, id.at, id.length);
}

static struct status *parse_sequence_id(struct parse *p, struct json *j)
{
    struct json number = *j;
    struct json_str text;
    uint64_t id;
    if (json_read_uint64(&number, &id)) {
        *j = number;
        p->r->maker.correlation_id = (struct correlation_id){.number = id};
        return NULL;
    }
    if (!json_read_string(j, &text))
        return field_status(j->failure, "sequence_id");
    return request_set_correlation_string(p->r, text.at, text.length);
}

static struct status *parse_sequence_flag(struct parse *p, struct json *j, const char *name,
                                          uint32_t flag)
{
    bool set;
    if (!json_read_bool(j, &set))
        return field_status(j->failure, name);
    if (set)
        p->r->maker.flags |= flag;
    return NULL;
}

struct status *add_custom_parameter(struct parse *p, struct json *j, struct json_str key)
{
    struct parameter parameter = {.name = arena_strndup(&p->x->arena, key.at, key.length)};
    struct json_number number;
    struct json_str text;
    bool fine = true;

    if (!parameter.name)
        return status_no_memory();
    switch (json_peek(j)) {
    case JSON_STRING:
        fine = json_read_string(j, &text);
        parameter.type = PARAMETER_STRING;
        parameter.string = fine ? arena_strndup(&p->x->arena, text.at, text.length) : NULL;
        if (fine && !parameter.string)
            return status_no_memory();
        break;
    case JSON_BOOL:
        fine = json_read_bool(j, &parameter.boolean);
        parameter.type = PARAMETER_BOOL;
        break;
    case JSON_NUMBER:
        fine = json_read_number(j, &number);
        if (fine && number.kind == JSON_INT64) {
            parameter.type = PARAMETER_INT;
            parameter.int64 = number.i64;
        } else if (fine) { /* others become doubles (reference/behaviours §27.6) */
            parameter.type = PARAMETER_DOUBLE;
            parameter.float64 = number.kind == JSON_UINT64 ? (double)number.u64 : number.d;
        }
        break;
    default:
        return status_new(STATUS_INVALID_ARG,
                          "parameter '%s' has invalid type. It should be either 'int', 'bool', or "
                          "'string'.",
                          parameter.name);
    }
    return fine ? request_add_parameter(p->r, &parameter) : field_status(j->failure, "parameters");
}

static struct status *parse_uint(struct json *j, const char *name, uint64_t *ret)
{
    return json_read_uint64(j, ret) ? NULL : field_status(j->failure, name);
}

static struct status *parse_parameter(struct parse *p, struct json *j, struct json_str key)
{
    p->plain &= json_str_is(key, "binary_data_output");
    if (json_str_is(key, "sequence_id"))
        return parse_sequence_id(p, j);
    if (json_str_is(key, "sequence_start"))
        return parse_sequence_flag(p, j, "sequence_start", REQUEST_SEQUENCE_START);
    if (json_str_is(key, "sequence_end"))
        return parse_sequence_flag(p, j, "sequence_end", REQUEST_SEQUENCE_END);
    if (json_str_is(key, "priority"))
        return parse_uint(j, "priority", &p->r->maker.priority);
    if (json_str_is(key, "timeout"))
        return parse_uint(j, "timeout", &p->r->maker.timeout_us);
    if (json_str_is(key, "binary_data_output"))
        return json_read_bool(j, &p->call->binary_default)
                   ? NULL
                   : field_status(j->failure, "binary_data_output");
    if (json_str_is(key, "headers")) { /* reserved for forwarded headers, which are not supported */
        json_skip_value(j);
        return NULL;
    }
    if (key.length >= 7 && memcmp(key.at, "triton_", 7) == 0)
        return status_new(STATUS_INVALID_ARG,
                          "parameter keys starting with 'triton_' are reserved for Triton usage "
                          "and should not be specified.");
    return add_custom_parameter(p, j, key);
}

static struct status *parse_parameters(struct parse *p, struct json *j)
{
    struct json_str key;
    if (json_peek(j) != JSON_OBJECT)
        return status_new(STATUS_INTERNAL,
                          "failed to get request params.: attempt to get members for non-object");
    json_enter_object(j);
    while (json_next_member(j, &key)) {
        struct status *st = parse_parameter(p, j, key);
        if (st)
            return st;
    }
    return j->failure ? field_status(j->failure, "parameters") : NULL;
}

/* ---- The whole body -------------------------------------------------------------------------- */

enum section { SECTION_ID, SECTION_PARAMETERS, SECTION_INPUTS, SECTION_OUTPUTS, N_SECTIONS };

static const struct {
    const char *name;
    struct status *(*parse)(struct parse *p, struct json *j);
} sections[N_SECTIONS] = {
    [SECTION_ID] = {"id", parse_id},
    [SECTION_PARAMETERS] = {"parameters", parse_parameters},
    [SECTION_INPUTS] = {"inputs", parse_inputs},
    [SECTION_OUTPUTS] = {"outputs", parse_outputs},
};

/* Returns the first error in the reference's order, and frees the others. */
static struct status *first_error(struct status *errors[N_SECTIONS], const char *text,
                                  size_t length)
{
    struct json_error error;
    struct status *first = NULL;
    if (!json_check(text, length, &error))
        first = request_json_fault(&error, text, length);
    for (int i = 0; i < N_SECTIONS; i++) {
        if (first)
            status_free(errors[i]);
        else
            first = errors[i];
    }
    return first;
}

static struct status *parse_document(struct parse *p, const char *text, size_t length)
{
    struct status *errors[N_SECTIONS] = {NULL};
    bool seen[N_SECTIONS] = {false}, failed = false;
    struct json_str key;
    struct json j;

    json_init(&j, text, length, &p->x->arena);
    bool is_object = json_enter_object(&j);
    while (is_object && json_next_member(&j, &key)) {
        int section = 0;
        while (section < N_SECTIONS && !json_str_equals(key, sections[section].name))
            section++;
        if (section == N_SECTIONS || seen[section]) {
            json_skip_value(&j);
            continue;
        }
        seen[section] = true;
        struct json at = j;
        errors[section] = sections[section].parse(p, &j);
        if (errors[section]) {
            failed = true;
            j = at;
            json_skip_value(&j);
        }
    }
    if (!seen[SECTION_INPUTS]) {
        errors[SECTION_INPUTS] = infer_advise_inputs(missing_status("inputs"), p->r->model);
        failed = true;
    }
    if (LIKELY(json_end(&j) && !failed))
        return NULL;
    struct status *st = first_error(errors, text, length);
    return st ? st : status_no_memory(); /* of a name with escapes */
}

/* ---- Remembered headers (memo.h) ------------------------------------------------------------- */

/* Is the name a view of the text (it had no escapes)? Then returns its position. */
static bool find_name_in(const char *text, size_t length, struct json_str name,
                         uint16_t *ret_offset, uint16_t *ret_length)
{
    if (name.at < text || name.at + name.length > text + length)
        return false;
    *ret_offset = (uint16_t)(name.at - text);
    *ret_length = (uint16_t)name.length;
    return true;
}

static bool keep_region(struct memo_region *kept, const char *text, size_t length,
                        const struct seen_tensor *seen)
{
    struct json_str name = {seen->part.name, seen->part.name_length};
    kept->is_set = seen->is_in_region;
    kept->offset = seen->part.offset;
    kept->size_bytes = seen->part.size_bytes;
    return !kept->is_set || find_name_in(text, length, name, &kept->name, &kept->name_length);
}

static bool keep_input(struct memo_slot *slot, const char *text, size_t length,
                       const struct input *in, const struct seen_tensor *seen)
{
    struct memo_input *kept = &slot->inputs[slot->n_inputs++];
    if (in->n_dims > MEMO_DIMS ||
        !find_name_in(text, length, seen->name, &kept->name, &kept->name_length))
        return false;
    kept->n_dims = (uint16_t)in->n_dims;
    kept->dtype = in->dtype;
    kept->binary_bytes = seen->is_in_region ? 0 : in->size_bytes;
    memcpy(kept->dims, in->shape, in->n_dims * sizeof(*kept->dims));
    slot->tail_bytes += kept->binary_bytes;
    return keep_region(&kept->region, text, length, seen);
}

static bool keep_output(struct memo_slot *slot, const char *text, size_t length,
                        struct output_form form, const struct seen_tensor *seen)
{
    struct memo_output *kept = &slot->outputs[slot->n_outputs++];
    kept->form = form;
    return find_name_in(text, length, seen->name, &kept->name, &kept->name_length) &&
           keep_region(&kept->region, text, length, seen);
}

static void remember_text(struct parse *p, const char *text, size_t length)
{
    const struct request *r = p->r;
    if (!p->plain || p->n_seen_inputs != r->maker.n_inputs ||
        p->n_seen_outputs != r->maker.n_outputs)
        return;
    struct memo_slot *slot = memo_begin(&call_ctx(p->x)->memo, length);
    if (!slot)
        return;
    slot->n_inputs = slot->n_outputs = 0;
    slot->binary_default = p->call->binary_default;
    slot->tail_bytes = 0;
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        if (!keep_input(slot, text, length, r->maker.inputs[i], &p->seen_inputs[i]))
            return;
    }
    for (uint32_t i = 0; i < r->maker.n_outputs; i++) {
        struct output_form form = p->call->requested_outputs[i].form;
        if (!keep_output(slot, text, length, form, &p->seen_outputs[i]))
            return;
    }
    memo_keep(slot, text, length);
}

static struct region_part part_of(const struct memo_slot *slot, const struct memo_region *kept)
{
    return (struct region_part){.name = slot->text + kept->name,
                                .name_length = kept->name_length,
                                .offset = kept->offset,
                                .size_bytes = kept->size_bytes};
}

static struct status *replay_input(struct parse *p, const struct memo_slot *slot,
                                   const struct memo_input *kept)
{
    struct input *in;
    struct status *st = request_add_input(p->r, slot->text + kept->name, kept->name_length,
                                          kept->dtype, kept->dims, kept->n_dims, &in);
    if (st)
        return st;
    if (UNLIKELY(kept->region.is_set)) {
        struct region_part part = part_of(slot, &kept->region);
        return tensor_regions_add_input(&p->call->regions, p->r, in, &part, &p->call->blocks);
    }
    st = add_data(p, in, p->tail, kept->binary_bytes);
    p->tail += kept->binary_bytes;
    return st;
}

static struct status *replay_output(struct parse *p, const struct memo_slot *slot,
                                    const struct memo_output *kept)
{
    struct region_part part = part_of(slot, &kept->region);
    struct status *st = request_add_output(p->r, slot->text + kept->name, kept->name_length);
    return st ? st : add_requested_output(p, kept->form, kept->region.is_set ? &part : NULL);
}

/* Makes the request that the text gave before, with this body's data. */
static struct status *replay_memo(struct parse *p, const struct memo_slot *slot)
{
    struct status *st = NULL;
    p->call->binary_default = slot->binary_default;
    for (uint32_t i = 0; !st && i < slot->n_inputs; i++)
        st = replay_input(p, slot, &slot->inputs[i]);
    for (uint32_t i = 0; !st && i < slot->n_outputs; i++)
        st = replay_output(p, slot, &slot->outputs[i]);
    return st;
}

static struct status *parse_json(struct parse *p, const char *text, size_t length)
{
    const struct memo_slot *slot = memo_find(&call_ctx(p->x)->memo, text, length);
    /* With other data behind it the same text may be wrong: then the parser makes the error. */
    if (slot && slot->tail_bytes == p->tail_bytes)
        return replay_memo(p, slot);
    p->plain = true;
    struct status *st = parse_document(p, text, length);
    if (!st && !slot)
        remember_text(p, text, length);
    return st;
}

static struct status *parse_raw(struct parse *p, const char *body, size_t n_bytes)
{
    struct input *in;
    if (n_bytes > p->max_bytes)
        return too_large_status(p, "Raw input", n_bytes);
    struct status *st = request_add_raw_input(p->r, "raw_input", 9, &in);
    if (st)
        return st;
    p->call->binary_default = true;
    return add_data(p, in, body, n_bytes);
}

/* The errors of a MIME type: reference/behaviours §24.2. */
static struct status *binary_type_fault(const struct http_call *call, const char *binary_type)
{
    const char *text = call->header_length_text;
    if (call->facts.header_length_kind == HEADER_LENGTH_MISPLACED)
        return status_new(STATUS_INVALID_ARG,
                          "expect MIME type for binary data starts with '%s', got: %s", binary_type,
                          text);
    return status_new(
        STATUS_INVALID_ARG, "Unable to parse inference header size%s, got: %s",
        call->facts.header_length_kind == HEADER_LENGTH_RANGE ? ", value is out of range" : "",
        text);
}

/* Reads Inference-Header-Content-Length, or the MIME type (reference/behaviours §3.3); without it,
 * all of the body is JSON. */
static struct status *header_length(const struct http_call *call, const char *binary_type,
                                    size_t body_bytes, size_t *ret_length)
{
    if (UNLIKELY(binary_type && call->facts.header_length_kind > HEADER_LENGTH_FINE))
        return binary_type_fault(call, binary_type);
    switch (call->facts.header_length_kind) {
    case HEADER_LENGTH_NONE:
        *ret_length = body_bytes;
        return NULL;
    case HEADER_LENGTH_BAD:
        return status_new(STATUS_INVALID_ARG,
                          "Unable to parse Inference-Header-Content-Length, got: %s",
                          call->header_length_text);
    case HEADER_LENGTH_RANGE:
        return status_new(STATUS_INVALID_ARG,
                          "Unable to parse Inference-Header-Content-Length, value is out of range "
                          "[ -2147483648, 2147483647 ], got: %s",
                          call->header_length_text);
    case HEADER_LENGTH_FINE:
    case HEADER_LENGTH_MISPLACED: /* of a MIME type only */
        break;
    }
    if (call->facts.header_length < 0 || (uint64_t)call->facts.header_length > body_bytes)
        return status_new(STATUS_INVALID_ARG,
                          "inference header size should be in range (0, %zu), got: %lld",
                          body_bytes, (long long)call->facts.header_length);
    *ret_length = (size_t)call->facts.header_length;
    return NULL;
}

struct status *infer_parse(struct exchange *x, const char **ret_type)
{
    struct http_call *call = exchange_part(x);
    struct parse p; /* an initialiser would clear what has been seen of tensors: 448 bytes */
    size_t json_bytes = 0;
    p.x = x;
    p.call = call;
    p.r = &call->request;
    p.max_bytes = call_ctx(x)->settings->max_input_bytes;
    p.n_seen_inputs = p.n_seen_outputs = 0;

    struct status *st =
        header_length(call, call_ctx(x)->settings->dialect->binary_type, x->body_size, &json_bytes);
    if (st) {
        *ret_type = content_text;
        return st;
    }
    if (json_bytes == 0)
        return parse_raw(&p, x->body, x->body_size);
    if (json_bytes > p.max_bytes)
        return request_json_too_large(json_bytes, p.max_bytes);
    p.tail = x->body + json_bytes;
    p.tail_bytes = x->body_size - json_bytes;
    return parse_json(&p, x->body, json_bytes);
}
