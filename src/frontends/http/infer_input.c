/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of an inference: name, datatype, shape, and where the data is (reference/behaviours
 * §3.6 to §3.13). */
#include "frontends/http/infer_priv.h"

#include <string.h>

#include "base/status.h"
#include "core/model/model.h"

enum { MAX_EXTRA_INPUTS = 64, USUAL_DIMS = 16 };

/* The members of an input, as far as they could be read. */
struct input_text {
    bool has_name, has_datatype, has_shape, has_parameters, has_data, has_size;
    struct region_text region;
    enum json_failure name_failure, datatype_failure, size_failure;
    struct json_str name, datatype;
    struct status *shape_error; /* freed by parse_input() */
    int64_t *dims;
    size_t n_dims;
    uint64_t binary_bytes; /* parameters: binary_data_size */
    struct json data;      /* the position of the data */
};

struct input_made {
    struct input *in;
    enum dtype dtype;
    int64_t n_elements;
};

static struct status *read_shape(struct parse *p, struct json *j, int64_t **ret_dims, size_t *ret_n)
{
    uint32_t n = 0, capacity = USUAL_DIMS;
    int64_t *dims = arena_alloc(&p->x->arena, capacity * sizeof(*dims));
    if (!dims)
        return status_no_memory();
    if (!json_enter_array(j))
        return field_status(j->failure, "shape");
    while (json_next_element(j)) {
        uint64_t dim;
        if (!json_read_uint64(j, &dim))
            return field_status(j->failure, "shape");
        dims = arena_grow(&p->x->arena, dims, n, &capacity, sizeof(*dims));
        if (!dims)
            return status_no_memory();
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

/* Makes the input from its name, datatype and shape, in this order. */
static struct status *open_input(struct parse *p, struct input_text *text, struct input_made *ret)
{
    if (!text->has_name)
        return missing_status("name");
    if (text->name_failure)
        return field_status(text->name_failure, "name");
    if (!text->has_datatype)
        return missing_status("datatype");
    if (text->datatype_failure)
        return field_status(text->datatype_failure, "datatype");
    if (!text->has_shape)
        return missing_status("shape");
    if (text->shape_error)
        return TAKE(text->shape_error);

    ret->dtype = dtype_from_name(text->datatype.at, text->datatype.length);
    enum shape_fault fault = shape_elements(text->dims, text->n_dims, &ret->n_elements);
    if (fault)
        return shape_status(fault, text);
    if (text->n_dims == 0) /* without elements, as in the reference: the core refuses it */
        ret->n_elements = 0;
    /* Each input is compared with the earlier ones, so a client must not choose their number. */
    if (p->r->maker.n_inputs >= p->r->model->n_inputs + MAX_EXTRA_INPUTS)
        return status_new(STATUS_INVALID_ARG,
                          "expected %u inputs but got more than %u inputs for model '%s'",
                          p->r->model->n_inputs, p->r->maker.n_inputs, p->r->model->name);
    return request_add_input(p->r, text->name.at, text->name.length, ret->dtype, text->dims,
                             text->n_dims, &ret->in);
}

static struct status *input_too_large(struct parse *p, const struct input *in, size_t n_bytes)
{
    char what[512];
    snprintf(what, sizeof(what), "JSON input '%s'", in->name);
    return too_large_status(p, what, n_bytes);
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

bool infer_read_values(struct json *j, enum dtype dtype, void *out, size_t max, size_t *ret_n)
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

/* Reads the member "data" at j into the input; j is behind it then. */
static struct status *read_data(struct parse *p, const struct input_made *made, struct json *j)
{
    struct input *in = made->in;

    if (made->dtype == DTYPE_FP16 || made->dtype == DTYPE_BF16)
        return status_new(STATUS_INVALID_ARG,
                          "receiving %s data via JSON is not supported. Please use the binary data "
                          "format for input %s",
                          dtype_name(made->dtype), in->name);
    if (made->n_elements == 0) { /* not parsed, as in the reference */
        if (!json_skip_value(j))
            return field_status(j->failure, "data");
        return add_data(p, in, NULL, 0);
    }
    /* For an input with binary data the core reports it. */
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

    /* Memory is limited by the text: a value and its comma are two bytes at least. */
    size_t n_possible = (size_t)(j->end - j->p) / 2 + 1, n;
    size_t n_room = MIN((size_t)made->n_elements, n_possible);
    void *out = infer_block(p->x, n_room * element_bytes);
    if (!out)
        return status_no_memory();
    if (!infer_read_values(j, made->dtype, out, n_room, &n))
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

static struct status *take_region(struct parse *p, const struct input_made *made,
                                  const struct region_text *text)
{
    return tensor_regions_add_input(&p->call->regions, p->r, made->in, &text->part,
                                    &p->call->blocks);
}

/* Exactly one member must give the data's source (reference/behaviours §3.9). */
static struct status *check_sources(const struct input_text *text)
{
    bool data = text->has_data, binary = text->has_size, region = text->region.has_name;
    if (LIKELY((int)data + binary + region == 1))
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "Input must set only one of the following fields: 'data', "
                      "'binary_data_size' in 'parameters', 'shared_memory_region' in "
                      "'parameters'. But %s%s%s%s",
                      data || binary || region ? "set" : "no field is set", data ? " 'data'" : "",
                      binary ? " 'binary_data_size'" : "", region ? " 'shared_memory_region'" : "");
}

/* Reads the parameters of an input that give its data's source. */
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
        if (!read_region_parameter(&text->region, j, key))
            json_skip_value(j);
    }
}

/* Reads the members of an input. Its data is written into the input at once if the input is
 * known by then. */
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

/* Adds to the error of an input's data what it was expected to be. */
static struct status *advise_data(const struct input_text *text, const struct input_made *made,
                                  struct status *st)
{
    if (!st)
        return NULL;
    if (made->dtype == DTYPE_INVALID)
        return infer_advise_datatype(st, text->datatype);
    if (status_code(st) != STATUS_INTERNAL) /* no fault of the values */
        return st;
    return infer_advise_values(st, made->in, made->n_elements, text->data);
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
    if (!st && (text.has_size || text.region.has_name) && p->n_seen_inputs < MEMO_TENSORS)
        p->seen_inputs[p->n_seen_inputs++] =
            (struct seen_tensor){text.name, text.region.has_name, text.region.part};
    if (!st && text.has_size) {
        st = take_binary(p, made.in, &text);
    } else if (!st && text.region.has_any && (st = check_region_text(&text.region))) {
        /* An offset or size that cannot be read counts even without a region, as in the reference.
         */
    } else if (!st && text.region.has_name) {
        st = take_region(p, &made, &text.region);
    } else if (!st && data) {
        st = advise_data(&text, &made, TAKE(data));
    } else if (!st && made.in->n_buffers == 0) {
        struct json at = text.data;
        st = advise_data(&text, &made, read_data(p, &made, &at));
    }
    status_free(opened);
    status_free(data);
    status_free(text.shape_error);
    return st;
}

struct status *parse_inputs(struct parse *p, struct json *j)
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
