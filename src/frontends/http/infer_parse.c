/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of an inference, JSON with binary tensors behind it, into a request of the core.
 *
 * The text is walked once. The values of a tensor go straight into its buffer when its name,
 * datatype and shape stand before them, as clients write them; otherwise their place is remembered
 * until the tensor is known.
 *
 * Which of several errors is told: the reference parses all of the text before it looks at any
 * field, then looks at id, parameters, inputs, outputs in this order, whatever their order in the
 * text. So an error in one of them is put aside while the walk goes on, and when anything is wrong
 * json_check() looks for a syntax error first.
 */
#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "core/model.h"
#include "frontends/http/infer.h"

enum { MAX_EXTRA_INPUTS = 64, USUAL_DIMS = 16 };

struct parse {
    struct exchange *x;
    struct http_call *call;
    struct request *r;
    size_t max_bytes;
    const char *tail; /* binary data not taken yet */
    size_t tail_bytes;

    /* For memo.h: nothing but binary tensors was met, and how the text names them. */
    bool plain;
    uint32_t n_seen_inputs, n_seen_outputs;
    struct json_str seen_inputs[MEMO_TENSORS], seen_outputs[MEMO_TENSORS];
};

/* ---- Errors of the JSON library: internal errors, as the reference has them (§3.5) -------------
 */

static struct status *json_status(enum json_failure failure, const char *what)
{
    if (failure == JSON_OUT_OF_MEMORY)
        return status_no_memory();
    if (failure == JSON_TOO_DEEP)
        return status_new(STATUS_INVALID_ARG, "%s", json_failure_text(failure));
    /* A syntax error is only noted here: infer_parse() finds its words. */
    return status_new(STATUS_INTERNAL, "%s: %s", what,
                      failure == JSON_OK ? "no value" : json_failure_text(failure));
}

static struct status *field_status(enum json_failure failure, const char *field)
{
    char what[64];
    snprintf(what, sizeof(what), "Unable to parse '%s'", field);
    return json_status(failure, what);
}

static struct status *missing(const char *field)
{
    return status_new(STATUS_INTERNAL,
                      "Unable to parse '%s': attempt to access non-existing object member '%s'",
                      field, field);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* What the members of an input say, as far as they could be read. */
struct input_text {
    bool has_name, has_datatype, has_shape, has_parameters, has_data, has_size, has_region;
    enum json_failure name_failure, datatype_failure, size_failure;
    struct json_str name, datatype;
    struct status *shape_error; /* freed by parse_input() */
    int64_t *dims;
    size_t n_dims;
    uint64_t binary_bytes; /* parameters: binary_data_size */
    struct json data;      /* where it stands */
};

struct input_made {
    struct input *in;
    enum dtype dtype;
    int64_t n_elements;
};

static struct status *read_shape(struct parse *p, struct json *j, int64_t **ret_dims, size_t *ret_n)
{
    size_t n = 0, capacity = USUAL_DIMS;
    int64_t *dims = arena_alloc(&p->x->arena, capacity * sizeof(*dims));
    if (!dims)
        return status_no_memory();
    if (!json_enter_array(j))
        return field_status(j->failure, "shape");
    while (json_next_element(j)) {
        uint64_t dim;
        if (!json_read_uint64(j, &dim))
            return field_status(j->failure, "shape");
        if (n == capacity) {
            int64_t *grown = arena_alloc(&p->x->arena, 2 * capacity * sizeof(*dims));
            if (!grown)
                return status_no_memory();
            memcpy(grown, dims, n * sizeof(*dims));
            dims = grown;
            capacity *= 2;
        }
        dims[n++] = dim > INT64_MAX ? -1 : (int64_t)dim;
    }
    if (j->failure)
        return field_status(j->failure, "shape");
    *ret_dims = dims;
    *ret_n = n;
    return NULL;
}

static struct status *shape_status(enum shape_fault fault, const struct input_text *text)
{
    AUTO(buf) shape = BUF_INIT(4096);
    shape_print(&shape, text->dims, text->n_dims);
    return status_new(STATUS_INVALID_ARG, "invalid shape for input '%.*s': shape %s %s",
                      (int)text->name.length, text->name.at, buf_text(&shape),
                      fault == SHAPE_BAD_DIM
                          ? "contains one or more invalid dimensions"
                          : "causes total element count to exceed maximum size of "
                            "9223372036854775807");
}

/* The input from its name, datatype and shape, in this order. */
static struct status *open_input(struct parse *p, struct input_text *text, struct input_made *ret)
{
    if (!text->has_name)
        return missing("name");
    if (text->name_failure)
        return field_status(text->name_failure, "name");
    if (!text->has_datatype)
        return missing("datatype");
    if (text->datatype_failure)
        return field_status(text->datatype_failure, "datatype");
    if (!text->has_shape)
        return missing("shape");
    if (text->shape_error)
        return TAKE(text->shape_error);

    ret->dtype = dtype_from_name(text->datatype.at, text->datatype.length);
    enum shape_fault fault = shape_elements(text->dims, text->n_dims, &ret->n_elements);
    if (fault)
        return shape_status(fault, text);
    if (text->n_dims == 0) /* no shape has no elements, as in the reference: the core refuses it */
        ret->n_elements = 0;
    /* Each input is compared with those before it: their number must not be the client's choice. */
    if (p->r->n_inputs >= p->r->model->n_inputs + MAX_EXTRA_INPUTS)
        return status_new(STATUS_INVALID_ARG,
                          "expected %u inputs but got more than %u inputs for model '%s'",
                          p->r->model->n_inputs, p->r->n_inputs, p->r->model->name);
    return request_add_input(p->r, text->name.at, text->name.length, ret->dtype, text->dims,
                             text->n_dims, &ret->in);
}

static struct status *add_data(struct parse *p, struct input *in, const void *base, size_t n_bytes)
{
    return request_add_data(p->r, in, &(struct tensor_buffer){.base = base, .size_bytes = n_bytes});
}

static struct status *too_large(struct parse *p, const char *what, size_t n_bytes)
{
    return status_new(STATUS_INVALID_ARG,
                      "%s has a byte_size (%zu bytes) that exceeds the maximum allowed value of "
                      "%zu bytes. Use --http-max-input-size to increase the limit.",
                      what, n_bytes, p->max_bytes);
}

static struct status *input_too_large(struct parse *p, const struct input *in, size_t n_bytes)
{
    char what[512];
    snprintf(what, sizeof(what), "JSON input '%s'", in->name);
    return too_large(p, what, n_bytes);
}

static struct status *read_strings(struct parse *p, struct input *in, struct json *j)
{
    size_t n, n_bytes, n_again;
    struct json count = *j;
    if (!json_read_strings(&count, NULL, 0, SIZE_MAX, &n, &n_bytes)) {
        if (count.failure == JSON_NOT_ARRAY)
            return field_status(count.failure, "data");
        return json_status(count.failure, "Unable to parse JSON bytes array");
    }
    if (n_bytes > p->max_bytes)
        return input_too_large(p, in, n_bytes);
    char *bytes = infer_block(p->x, n_bytes);
    if (!bytes)
        return status_no_memory();
    if (!json_read_strings(j, bytes, n_bytes, n, &n, &n_again))
        return json_status(j->failure, "Unable to parse JSON bytes array");
    return add_data(p, in, bytes, n_bytes);
}

static bool read_values(struct json *j, enum dtype dtype, void *out, size_t max, size_t *ret_n)
{
    switch (dtype) {
    case DTYPE_BOOL:
        return json_read_bools(j, out, max, ret_n);
    case DTYPE_UINT8:
        return json_read_u8s(j, out, max, ret_n);
    case DTYPE_UINT16:
        return json_read_u16s(j, out, max, ret_n);
    case DTYPE_UINT32:
        return json_read_u32s(j, out, max, ret_n);
    case DTYPE_UINT64:
        return json_read_u64s(j, out, max, ret_n);
    case DTYPE_INT8:
        return json_read_i8s(j, out, max, ret_n);
    case DTYPE_INT16:
        return json_read_i16s(j, out, max, ret_n);
    case DTYPE_INT32:
        return json_read_i32s(j, out, max, ret_n);
    case DTYPE_INT64:
        return json_read_i64s(j, out, max, ret_n);
    case DTYPE_FP32:
        return json_read_f32s(j, out, max, ret_n);
    default:
        return json_read_f64s(j, out, max, ret_n);
    }
}

/* The member "data" at j into the input; j is behind it then. */
static struct status *read_data(struct parse *p, const struct input_made *made, struct json *j)
{
    struct input *in = made->in;

    if (made->dtype == DTYPE_FP16 || made->dtype == DTYPE_BF16)
        return status_new(STATUS_INVALID_ARG,
                          "receiving %s data via JSON is not supported. Please use the binary data "
                          "format for input %s",
                          dtype_name(made->dtype), in->name);
    if (made->n_elements == 0) { /* not looked at, as the reference does */
        if (!json_skip_value(j))
            return field_status(j->failure, "data");
        return add_data(p, in, NULL, 0);
    }
    /* Of an input whose bytes come in binary, the core says it. */
    if (made->dtype == DTYPE_INVALID) {
        if (!json_enter_array(j))
            return field_status(j->failure, "data");
        return status_new(STATUS_INVALID_ARG, "invalid datatype for input %s", in->name);
    }
    if (made->dtype == DTYPE_BYTES)
        return read_strings(p, in, j);

    size_t element_bytes = dtype_size(made->dtype), n_bytes;
    if (__builtin_mul_overflow((size_t)made->n_elements, element_bytes, &n_bytes))
        return status_new(STATUS_INVALID_ARG, "byte size overflow for input '%s'", in->name);
    if (n_bytes > p->max_bytes)
        return input_too_large(p, in, n_bytes);

    /* What the text cannot hold is not allocated: a value and its comma are two bytes at least. */
    size_t n_possible = (size_t)(j->end - j->p) / 2 + 1, n;
    size_t n_room = MIN((size_t)made->n_elements, n_possible);
    void *out = infer_block(p->x, n_room * element_bytes);
    if (!out)
        return status_no_memory();
    if (!read_values(j, made->dtype, out, n_room, &n))
        return field_status(j->failure, "data");
    if (n < (size_t)made->n_elements)
        return status_new(STATUS_INTERNAL,
                          "Failed to parse 'data' field: shape does not match true shape");
    return add_data(p, in, out, n_bytes);
}

static struct status *take_binary(struct parse *p, struct input *in, const struct input_text *text)
{
    if (text->size_failure)
        return field_status(text->size_failure, "binary_data_size");
    if (text->binary_bytes > p->tail_bytes)
        return status_new(
            STATUS_INVALID_ARG,
            "unexpected size for input '%s', expecting %llu additional bytes for model '%s'",
            in->name, (unsigned long long)(text->binary_bytes - p->tail_bytes), p->r->model->name);
    size_t n_bytes = (size_t)text->binary_bytes;
    const char *base = p->tail;
    p->tail += n_bytes;
    p->tail_bytes -= n_bytes;
    return add_data(p, in, base, n_bytes);
}

/* Exactly one place says where the data is (§3.9). */
static struct status *check_sources(const struct input_text *text)
{
    bool data = text->has_data, binary = text->has_size, region = text->has_region;
    if (LIKELY((int)data + binary + region == 1))
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "Input must set only one of the following fields: 'data', "
                      "'binary_data_size' in 'parameters', 'shared_memory_region' in "
                      "'parameters'. But %s%s%s%s",
                      data || binary || region ? "set" : "no field is set", data ? " 'data'" : "",
                      binary ? " 'binary_data_size'" : "", region ? " 'shared_memory_region'" : "");
}

/* A failure of a type is for later: the walk goes on behind the value. */
static enum json_failure pass_over(struct json *j, struct json value)
{
    enum json_failure failure = j->failure;
    *j = value;
    json_skip_value(j);
    return failure;
}

/* The two members of an input's parameters that say where its data is. */
static void read_sources(struct input_text *text, struct json *j)
{
    struct json_str key;
    if (json_peek(j) != JSON_OBJECT) {
        json_skip_value(j);
        return;
    }
    json_enter_object(j);
    while (json_next_member(j, &key)) {
        if (json_str_is(key, "binary_data_size") && !text->has_size) {
            struct json value = *j;
            text->has_size = true;
            if (!json_read_uint64(j, &text->binary_bytes))
                text->size_failure = pass_over(j, value);
            continue;
        }
        text->has_region |= json_str_is(key, "shared_memory_region");
        json_skip_value(j);
    }
}

/* The members of an input. Its data goes to its place at once when the input is known by then. */
static void read_input(struct parse *p, struct json *j, struct input_text *text,
                       struct input_made *made, struct status **opened, struct status **data)
{
    struct json_str key;
    json_enter_object(j);
    while (json_next_member(j, &key)) {
        struct json value = *j;
        if (json_str_is(key, "name") && !text->has_name) {
            text->has_name = true;
            if (!json_read_string(j, &text->name))
                text->name_failure = pass_over(j, value);
        } else if (json_str_is(key, "datatype") && !text->has_datatype) {
            text->has_datatype = true;
            if (!json_read_string(j, &text->datatype))
                text->datatype_failure = pass_over(j, value);
        } else if (json_str_is(key, "shape") && !text->has_shape) {
            text->has_shape = true;
            text->shape_error = read_shape(p, j, &text->dims, &text->n_dims);
            if (text->shape_error)
                pass_over(j, value);
        } else if (json_str_is(key, "parameters") && !text->has_parameters) {
            text->has_parameters = true;
            read_sources(text, j);
        } else if (json_str_is(key, "data") && !text->has_data) {
            text->has_data = true;
            text->data = value;
            if (!text->has_name || !text->has_datatype || !text->has_shape) {
                json_skip_value(j);
                continue;
            }
            *opened = open_input(p, text, made);
            if (!*opened)
                *data = read_data(p, made, j);
            if (*opened || *data)
                pass_over(j, value);
        } else {
            json_skip_value(j);
        }
    }
}

static struct status *parse_input(struct parse *p, struct json *j)
{
    struct input_text text = {0};
    struct input_made made = {0};
    struct status *opened = NULL, *data = NULL;

    if (json_peek(j) == JSON_OBJECT)
        read_input(p, j, &text, &made, &opened, &data);
    struct status *st = j->failure ? field_status(j->failure, "inputs") : check_sources(&text);
    if (!st && !opened && !made.in)
        opened = open_input(p, &text, &made);
    if (!st)
        st = TAKE(opened);
    if (!st && text.has_size) {
        if (p->n_seen_inputs < MEMO_TENSORS)
            p->seen_inputs[p->n_seen_inputs++] = text.name;
        st = take_binary(p, made.in, &text);
    } else if (!st && text.has_region) {
        st = status_new(STATUS_UNSUPPORTED,
                        "input '%s': parameter 'shared_memory_region' is not supported by this "
                        "server",
                        made.in->name);
    } else if (!st && data) {
        st = TAKE(data);
    } else if (!st && made.in->n_buffers == 0) {
        st = read_data(p, &made, &text.data);
    }
    status_free(opened);
    status_free(data);
    status_free(text.shape_error);
    return st;
}

static struct status *parse_inputs(struct parse *p, struct json *j)
{
    if (!json_enter_array(j))
        return field_status(j->failure, "inputs");
    while (json_next_element(j)) {
        struct status *st = parse_input(p, j);
        if (st)
            return st;
    }
    if (j->failure)
        return field_status(j->failure, "inputs");
    if (p->tail_bytes > 0)
        return status_new(STATUS_INVALID_ARG, "unexpected additional input data for model '%s'",
                          p->r->model->name);
    return NULL;
}

/* ---- Outputs --------------------------------------------------------------------------------- */

static struct status *add_wish(struct parse *p, bool binary)
{
    struct http_call *call = p->call;
    if (call->n_wishes == call->wish_capacity) {
        uint32_t capacity = call->wish_capacity ? 2 * call->wish_capacity : 4;
        struct output_wish *grown = arena_alloc(&p->x->arena, capacity * sizeof(*grown));
        if (!grown)
            return status_no_memory();
        if (call->n_wishes)
            memcpy(grown, call->wishes, call->n_wishes * sizeof(*grown));
        call->wishes = grown;
        call->wish_capacity = capacity;
    }
    call->wishes[call->n_wishes++] =
        (struct output_wish){p->r->outputs[p->r->n_outputs - 1], binary};
    return NULL;
}

/* What an output's parameters ask for. */
static struct status *parse_output_parameters(struct json *j, struct json_str output,
                                              bool *ret_binary)
{
    struct json_str key;
    bool binary_seen = false, binary = false, classes_seen = false, region = false;
    uint64_t classes = 0;

    if (json_peek(j) != JSON_OBJECT) {
        json_skip_value(j);
        return NULL;
    }
    json_enter_object(j);
    while (json_next_member(j, &key)) {
        if (json_str_is(key, "binary_data") && !binary_seen) {
            binary_seen = true;
            if (!json_read_bool(j, &binary))
                return field_status(j->failure, "binary_data");
        } else if (json_str_is(key, "classification") && !classes_seen) {
            classes_seen = true;
            if (!json_read_uint64(j, &classes))
                return json_status(j->failure, "Unable to set 'classification'");
        } else {
            region |= json_str_is(key, "shared_memory_region");
            json_skip_value(j);
        }
    }
    if (j->failure)
        return field_status(j->failure, "outputs");
    if (region && classes > 0)
        return status_new(STATUS_INVALID_ARG,
                          "Output can't set both 'shared_memory_region' and 'classification'");
    if (region && binary)
        return status_new(STATUS_INVALID_ARG,
                          "Output can't set both 'shared_memory_region' and 'binary_data'");
    if (region || classes > 0)
        return status_new(
            STATUS_UNSUPPORTED, "output '%.*s': parameter '%s' is not supported by this server",
            (int)output.length, output.at, region ? "shared_memory_region" : "classification");
    *ret_binary = binary;
    return NULL;
}

static struct status *parse_output(struct parse *p, struct json *j)
{
    bool has_name = false, has_parameters = false, parsed = false;
    enum json_failure name_failure = JSON_OK;
    bool binary = false;
    struct json_str key, name = {"", 0};
    struct json parameters = *j;
    struct status *st = NULL;

    if (json_peek(j) != JSON_OBJECT)
        return missing("name");
    json_enter_object(j);
    while (json_next_member(j, &key)) {
        struct json value = *j;
        if (json_str_is(key, "name") && !has_name) {
            has_name = true;
            if (!json_read_string(j, &name))
                name_failure = pass_over(j, value);
        } else if (json_str_is(key, "parameters") && !has_parameters) {
            has_parameters = true;
            parameters = value;
            /* An error in them counts only after one in the name, which may still follow. */
            parsed = has_name && !name_failure;
            if (parsed)
                st = parse_output_parameters(j, name, &binary);
            if (st)
                return st;
            if (!parsed)
                json_skip_value(j);
        } else {
            json_skip_value(j);
        }
    }
    if (j->failure)
        return field_status(j->failure, "outputs");
    if (!has_name)
        return missing("name");
    if (name_failure)
        return field_status(name_failure, "name");
    if (has_parameters && !parsed)
        st = parse_output_parameters(&parameters, name, &binary);
    if (st)
        return st;
    /* One more than the model has: the core will find the one that is unknown. */
    if (p->r->n_outputs > p->r->model->n_outputs) {
        p->plain = false; /* another model may have more */
        return NULL;
    }
    st = request_add_output(p->r, name.at, name.length);
    if (!st && p->n_seen_outputs < MEMO_TENSORS)
        p->seen_outputs[p->n_seen_outputs++] = name;
    return st ? st : add_wish(p, binary);
}

static struct status *parse_outputs(struct parse *p, struct json *j)
{
    if (!json_enter_array(j))
        return field_status(j->failure, "outputs");
    while (json_next_element(j)) {
        struct status *st = parse_output(p, j);
        if (st)
            return st;
    }
    return j->failure ? field_status(j->failure, "outputs") : NULL;
}

/* ---- The rest -------------------------------------------------------------------------------- */

static struct status *parse_id(struct parse *p, struct json *j)
{
    struct json_str id;
    p->plain = false; /* usually another one each time */
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
        p->r->correlation_id = (struct correlation_id){.number = id};
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
        p->r->flags |= flag;
    return NULL;
}

static struct status *add_custom(struct parse *p, struct json *j, struct json_str key)
{
    struct parameter parameter = {.name = arena_strndup(&p->x->arena, key.at, key.length)};
    struct json_number number;
    struct json_str text;
    bool fine = true;

    if (!parameter.name)
        return status_no_memory();
    if (strncmp(parameter.name, "triton_", 7) == 0)
        return status_new(STATUS_INVALID_ARG,
                          "parameter keys starting with 'triton_' are reserved for Triton usage "
                          "and should not be specified.");
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
        } else if (fine) { /* what is no int64 becomes a double (§27.6) */
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
        return parse_uint(j, "priority", &p->r->priority);
    if (json_str_is(key, "timeout"))
        return parse_uint(j, "timeout", &p->r->timeout_us);
    if (json_str_is(key, "binary_data_output"))
        return json_read_bool(j, &p->call->binary_default)
                   ? NULL
                   : field_status(j->failure, "binary_data_output");
    if (json_str_is(key, "headers")) { /* reserved for forwarded headers, which are not offered */
        json_skip_value(j);
        return NULL;
    }
    return add_custom(p, j, key);
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

/* ---- The whole ------------------------------------------------------------------------------- */

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

/* The first error by the reference's order, and all others freed. */
static struct status *first_error(struct status *errors[N_SECTIONS], const char *text,
                                  size_t length)
{
    struct json_error error;
    struct status *first = NULL;
    if (!json_check(text, length, &error))
        first = status_new(STATUS_INTERNAL, "failed to parse the request JSON buffer: %s at %zu",
                           error.text, error.offset);
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
        errors[SECTION_INPUTS] = missing("inputs");
        failed = true;
    }
    if (LIKELY(json_end(&j) && !failed))
        return NULL;
    struct status *st = first_error(errors, text, length);
    return st ? st : status_no_memory(); /* of a name with escapes */
}

/* ---- Headers that were seen before (memo.h) ----------------------------------------------------
 */

/* Whether the name is a view on the text (it had no escapes), and where. */
static bool place_in(const char *text, size_t length, struct json_str name, uint16_t *ret_place,
                     uint16_t *ret_length)
{
    if (name.at < text || name.at + name.length > text + length)
        return false;
    *ret_place = (uint16_t)(name.at - text);
    *ret_length = (uint16_t)name.length;
    return true;
}

static void remember(struct parse *p, const char *text, size_t length)
{
    const struct request *r = p->r;
    if (!p->plain || p->n_seen_inputs != r->n_inputs || p->n_seen_outputs != r->n_outputs)
        return;
    struct memo_slot *slot = memo_begin(&call_ctx(p->x)->memo, length);
    if (!slot)
        return;
    slot->n_inputs = r->n_inputs;
    slot->n_outputs = r->n_outputs;
    slot->binary_default = p->call->binary_default;
    slot->tail_bytes = 0;
    for (uint32_t i = 0; i < r->n_inputs; i++) {
        const struct input *in = r->inputs[i];
        struct memo_input *kept = &slot->inputs[i];
        if (in->n_dims > MEMO_DIMS ||
            !place_in(text, length, p->seen_inputs[i], &kept->name, &kept->name_length))
            return;
        kept->n_dims = (uint16_t)in->n_dims;
        kept->dtype = in->dtype;
        kept->binary_bytes = in->size_bytes;
        memcpy(kept->dims, in->shape, in->n_dims * sizeof(*kept->dims));
        slot->tail_bytes += in->size_bytes;
    }
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        struct memo_output *kept = &slot->outputs[i];
        if (!place_in(text, length, p->seen_outputs[i], &kept->name, &kept->name_length))
            return;
        kept->binary = p->call->wishes[i].binary;
    }
    memo_keep(slot, text, length);
}

/* The request that the text came to before, with this body's data. */
static struct status *replay(struct parse *p, const struct memo_slot *slot)
{
    struct status *st = NULL;
    p->call->binary_default = slot->binary_default;
    for (uint32_t i = 0; !st && i < slot->n_inputs; i++) {
        const struct memo_input *kept = &slot->inputs[i];
        struct input *in;
        st = request_add_input(p->r, slot->text + kept->name, kept->name_length, kept->dtype,
                               kept->dims, kept->n_dims, &in);
        if (st)
            break;
        st = add_data(p, in, p->tail, kept->binary_bytes);
        p->tail += kept->binary_bytes;
    }
    for (uint32_t i = 0; !st && i < slot->n_outputs; i++) {
        const struct memo_output *kept = &slot->outputs[i];
        st = request_add_output(p->r, slot->text + kept->name, kept->name_length);
        if (!st)
            st = add_wish(p, kept->binary);
    }
    return st;
}

static struct status *parse_json(struct parse *p, const char *text, size_t length)
{
    const struct memo_slot *slot = memo_find(&call_ctx(p->x)->memo, text, length);
    /* With other data behind it the same text may be wrong: the parser knows the words. */
    if (slot && slot->tail_bytes == p->tail_bytes)
        return replay(p, slot);
    p->plain = true;
    struct status *st = parse_document(p, text, length);
    if (!st && !slot)
        remember(p, text, length);
    return st;
}

static struct status *parse_raw(struct parse *p, const char *body, size_t n_bytes)
{
    struct input *in;
    if (n_bytes > p->max_bytes)
        return too_large(p, "Raw input", n_bytes);
    struct status *st = request_add_raw_input(p->r, "raw_input", 9, &in);
    if (st)
        return st;
    p->call->binary_default = true;
    return add_data(p, in, body, n_bytes);
}

/* Inference-Header-Content-Length (§3.3): without it, all of the body is JSON. */
static struct status *header_length(const struct http_call *call, size_t body_bytes,
                                    size_t *ret_length)
{
    switch (call->header_length_kind) {
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
        break;
    }
    if (call->header_length < 0 || (uint64_t)call->header_length > body_bytes)
        return status_new(STATUS_INVALID_ARG,
                          "inference header size should be in range (0, %zu), got: %lld",
                          body_bytes, (long long)call->header_length);
    *ret_length = (size_t)call->header_length;
    return NULL;
}

struct status *infer_parse(struct exchange *x, const char **ret_type)
{
    struct http_call *call = exchange_part(x);
    struct parse p = {
        .x = x,
        .call = call,
        .r = &call->request,
        .max_bytes = call_ctx(x)->settings->max_input_bytes,
    };
    size_t json_bytes = 0;

    struct status *st = header_length(call, x->body_size, &json_bytes);
    if (st) {
        *ret_type = content_text;
        return st;
    }
    if (json_bytes == 0)
        return parse_raw(&p, x->body, x->body_size);
    if (json_bytes > p.max_bytes)
        return status_new(STATUS_INVALID_ARG,
                          "request JSON size of %zu bytes exceeds the maximum allowed input size "
                          "of %zu bytes. Use --http-max-input-size to increase the limit.",
                          json_bytes, p.max_bytes);
    p.tail = x->body + json_bytes;
    p.tail_bytes = x->body_size - json_bytes;
    return parse_json(&p, x->body, json_bytes);
}
