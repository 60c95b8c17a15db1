/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the body of …/generate: a member with the name of an input becomes that tensor,
 * "parameters" is expanded by one level, all others become parameters of the request.
 *
 * A tensor says neither its type nor its shape. The type is the model's. The number of values is
 * distributed on the model's dims: the fixed ones must divide it, the innermost -1 gets the
 * quotient and all other -1 get 1. So values are counted before they are read.
 *
 * The order of errors is the reference's: the syntax of the whole text, the id, then the members.
 * Thread: the loop's.
 */
#include "frontends/http/generate.h"

#include <string.h>

#include "base/status.h"
#include "core/model/model.h"
#include "frontends/http/infer_priv.h"
#include "frontends/http/reply.h"

enum { USUAL_NAME_BYTES = 256, USUAL_DIMS = 16 };

struct generate {
    struct parse parse;
    size_t taken_bytes; /* of the tensors so far */
};

/* A tensor whose values are counted. */
struct counted {
    const struct tensor_spec *spec;
    size_t n_elements; /* of the outermost array; 1 for a value without one */
    size_t n_bytes;
    bool is_array;
};

/* ---- Tensors -------------------------------------------------------------------------------- */

static const struct tensor_spec *find_input(struct generate *g, struct json_str key)
{
    char few[USUAL_NAME_BYTES], *name = few;
    if (key.length >= sizeof(few))
        name = arena_strndup(&g->parse.x->arena, key.at, key.length);
    if (!name || memchr(key.at, '\0', key.length))
        return NULL;
    if (name == few) {
        memcpy(few, key.at, key.length);
        few[key.length] = '\0';
    }
    return model_find_input(g->parse.r->model, name);
}

/* Counts the elements of a flat array of numbers by its commas. False: it is not as simple. */
static bool count_commas(const struct json *j, size_t *ret_n)
{
    size_t n = 0;
    const char *p = memchr(j->p, '[', (size_t)(j->end - j->p));
    bool has_value = false;
    for (p = p ? p + 1 : j->end; p < j->end; p++) {
        if (*p == ']') {
            *ret_n = n + has_value;
            return has_value || n == 0;
        }
        if (*p == ',')
            n++;
        else if (*p == '[' || *p == '"' || *p == '{')
            return false;
        else if ((unsigned char)*p > ' ')
            has_value = true;
    }
    return false;
}

/* j is at an array. */
static struct status *count_outer_elements(const struct json *j, size_t *ret_n)
{
    struct json walk = *j;
    if (count_commas(j, ret_n))
        return NULL;
    *ret_n = 0;
    json_enter_array(&walk);
    while (json_next_element(&walk)) {
        json_skip_value(&walk);
        ++*ret_n;
    }
    return walk.failure ? field_status(walk.failure, "data") : NULL;
}

static struct status *count_string_bytes(const struct json *j, struct counted *c)
{
    static const char what[] = "Unable to parse JSON bytes array";
    struct json walk = *j;
    struct json_str text;
    size_t n;
    if (c->is_array)
        return json_read_strings(&walk, NULL, 0, SIZE_MAX, &n, &c->n_bytes)
                   ? NULL
                   : json_status(walk.failure, what);
    if (!json_read_string(&walk, &text))
        return json_status(walk.failure, what);
    c->n_bytes = sizeof(uint32_t) + text.length;
    return NULL;
}

static struct status *count_flat_values(struct json *j, const struct tensor_spec *spec,
                                        struct counted *ret)
{
    struct counted c = {.spec = spec, .n_elements = 1, .is_array = json_peek(j) == JSON_ARRAY};
    struct status *st = c.is_array ? count_outer_elements(j, &c.n_elements) : NULL;
    if (!st && spec->dtype == DTYPE_BYTES)
        st = count_string_bytes(j, &c);
    else if (!st && __builtin_mul_overflow(c.n_elements, dtype_size(spec->dtype), &c.n_bytes))
        st = status_new(STATUS_INVALID_ARG, "input '%s' has too many elements of datatype %s",
                        spec->name, dtype_name(spec->dtype));
    *ret = c;
    return st;
}

/* Fixed dims divide *n. False: it cannot be divided. */
static bool divide(const int64_t *dims, size_t n_dims, size_t *n)
{
    for (size_t i = 0; i < n_dims; i++) {
        if (dims[i] < 0)
            continue;
        if (dims[i] == 0 || *n % (size_t)dims[i] > 0)
            return false;
        *n /= (size_t)dims[i];
    }
    return true;
}

/* Distributes the elements on the dims of the metadata, whose -1 become numbers. */
static struct status *distribute(const struct counted *c, int64_t *dims, size_t n_dims)
{
    size_t left = c->n_elements;
    bool fits = divide(dims, n_dims, &left);
    for (size_t i = n_dims; i-- > 0;) {
        if (dims[i] >= 0)
            continue;
        dims[i] = (int64_t)left;
        left = 1;
    }
    if (fits && left == 1)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "The schema can not convert input '%s' to tensor with proper shape",
                      c->spec->name);
}

static bool read_integer_scalar(struct json *j, enum dtype dtype, void *out)
{
    bool is_signed = dtype >= DTYPE_INT8 && dtype <= DTYPE_INT64;
    int64_t value = 0;
    bool fine = is_signed ? json_read_int64(j, &value) : json_read_uint64(j, (uint64_t *)&value);
    memcpy(out, &value, dtype_size(dtype)); /* the low bytes, as the reference keeps them */
    return fine;
}

/* Reads a value that stands without an array. */
static bool read_scalar(struct json *j, enum dtype dtype, char *out)
{
    double number = 0;
    bool yes = false, fine;
    if (dtype == DTYPE_BOOL) {
        fine = json_read_bool(j, &yes);
        *out = (char)yes;
        return fine;
    }
    if (dtype != DTYPE_FP32 && dtype != DTYPE_FP64)
        return read_integer_scalar(j, dtype, out);
    fine = json_read_double(j, &number);
    float single = (float)number;
    if (dtype == DTYPE_FP32)
        memcpy(out, &single, sizeof(single));
    else
        memcpy(out, &number, sizeof(number));
    return fine;
}

static bool read_string_scalar(struct json *j, char *out)
{
    struct json_str text;
    if (!json_read_string(j, &text))
        return false;
    uint32_t length = (uint32_t)text.length;
    memcpy(out, &length, sizeof(length));
    memcpy(out + sizeof(length), text.at, text.length);
    return true;
}

static struct status *read_flat_data(struct json *j, const struct counted *c, char *out)
{
    enum dtype dtype = c->spec->dtype;
    size_t n = 1, n_bytes;
    bool fine;
    if (dtype == DTYPE_FP16 || dtype == DTYPE_BF16)
        return status_new(STATUS_INVALID_ARG,
                          "receiving %s data via JSON is not supported. Please use the binary data "
                          "format for input %s",
                          dtype_name(dtype), c->spec->name);
    if (dtype == DTYPE_BYTES) {
        fine = c->is_array ? json_read_strings(j, out, c->n_bytes, SIZE_MAX, &n, &n_bytes)
                           : read_string_scalar(j, out);
        return fine ? NULL : json_status(j->failure, "Unable to parse JSON bytes array");
    }
    fine = c->is_array ? infer_read_values(j, dtype, out, c->n_elements, &n)
                       : read_scalar(j, dtype, out);
    if (!fine)
        return field_status(j->failure, "data");
    if (n < c->n_elements)
        return status_new(STATUS_INTERNAL,
                          "Failed to parse 'data' field: shape does not match true shape");
    return NULL;
}

static struct status *check_size(struct generate *g, const struct counted *c)
{
    if (c->n_bytes <= g->parse.max_bytes - g->taken_bytes)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "request size of %zu bytes with input '%s' of size %zu bytes exceeds the "
                      "maximum allowed input size of %zu. Use --http-max-input-size to increase "
                      "the limit.",
                      g->taken_bytes, c->spec->name, c->n_bytes, g->parse.max_bytes);
}

static struct status *add_flat_tensor(struct generate *g, const struct counted *c,
                                      const int64_t *dims, size_t n_dims, const char *bytes)
{
    struct parse *p = &g->parse;
    struct input *in;
    struct status *st = request_add_input(p->r, c->spec->name, strlen(c->spec->name),
                                          c->spec->dtype, dims, n_dims, &in);
    if (st)
        return st;
    return add_data(p, in, bytes, c->n_bytes);
}

static struct status *parse_tensor(struct generate *g, struct json *j,
                                   const struct tensor_spec *spec)
{
    struct parse *p = &g->parse;
    bool has_batch = p->r->model->batching;
    size_t n_dims = spec->n_dims + has_batch;
    int64_t few[USUAL_DIMS], *dims = few;
    struct counted c;
    struct status *st = count_flat_values(j, spec, &c);
    if (st)
        return st;
    st = check_size(g, &c);
    if (st)
        return st;
    if (n_dims > USUAL_DIMS && !(dims = arena_alloc(&p->x->arena, n_dims * sizeof(*dims))))
        return status_no_memory();
    dims[0] = -1; /* the batch */
    memcpy(dims + has_batch, spec->dims, spec->n_dims * sizeof(*dims));
    st = distribute(&c, dims, n_dims);
    char *bytes = st ? NULL : infer_block(p->x, c.n_bytes);
    if (!st && !bytes)
        st = status_no_memory();
    if (!st)
        st = read_flat_data(j, &c, bytes);
    if (st)
        return st;
    g->taken_bytes += c.n_bytes;
    return add_flat_tensor(g, &c, dims, n_dims, bytes);
}

/* ---- Members -------------------------------------------------------------------------------- */

static struct status *parse_member(struct generate *g, struct json *j, struct json_str key)
{
    const struct tensor_spec *spec = find_input(g, key);
    return spec ? parse_tensor(g, j, spec) : add_custom_parameter(&g->parse, j, key);
}

static struct status *parse_nested(struct generate *g, struct json *j)
{
    struct json_str key;
    if (model_find_input(g->parse.r->model, "parameters"))
        return status_new(STATUS_INVALID_ARG, "Keyword 'parameters' for nested schema also given "
                                              "as input tensor name");
    if (!json_enter_object(j))
        return json_status(j->failure, "Expected JSON object for keyword: 'parameters'");
    while (json_next_member(j, &key)) {
        struct status *st = parse_member(g, j, key);
        if (st)
            return status_prefix(st, "Converting keyword: 'parameters': ");
    }
    return j->failure ? field_status(j->failure, "parameters") : NULL;
}

static struct status *parse_flat_id(struct generate *g, const struct json *j)
{
    struct json value = *j;
    struct json_str id;
    if (!json_read_string(&value, &id))
        return field_status(value.failure, "id");
    return request_set_id(g->parse.r, id.at, id.length);
}

/* What is known while the members are read. */
struct progress {
    bool has_id, has_parameters;
    struct status *id_error, *error; /* error: the first one of a member */
};

static void parse_top_member(struct generate *g, struct json *j, struct json_str key,
                             struct progress *is)
{
    struct json value = *j;
    bool nests = json_str_is(key, "parameters");
    if (json_str_is(key, "id") && !is->has_id) {
        is->has_id = true;
        is->id_error = parse_flat_id(g, j);
    }
    if (is->error || is->id_error || (nests && is->has_parameters)) {
        json_skip_value(j);
        return;
    }
    is->has_parameters |= nests;
    is->error = nests ? parse_nested(g, j) : parse_member(g, j, key);
    if (is->error)
        (void)pass_over(j, value);
}

static struct status *choose_error(struct progress *is, const char *text, size_t length)
{
    struct json_error fault;
    struct status *st =
        json_check(text, length, &fault) ? NULL : request_json_fault(&fault, text, length);
    if (!st)
        st = TAKE(is->id_error);
    if (!st)
        st = TAKE(is->error);
    status_free(is->id_error);
    status_free(is->error);
    return st ? st : status_no_memory(); /* of a name with escapes */
}

struct status *generate_parse(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct generate g = {.parse = {.x = x,
                                   .call = call,
                                   .r = &call->request,
                                   .max_bytes = call_ctx(x)->settings->max_input_bytes}};
    struct progress is = {0};
    struct json_str key;
    struct json j;
    const char *text = x->body ? x->body : "";

    if (x->body_size > g.parse.max_bytes)
        return request_json_too_large(x->body_size, g.parse.max_bytes);
    json_init(&j, text, x->body_size, &x->arena);
    if (json_enter_object(&j)) {
        while (json_next_member(&j, &key))
            parse_top_member(&g, &j, key, &is);
    } else if (j.failure == JSON_NOT_OBJECT) {
        is.error = status_new(STATUS_INTERNAL, "attempt to get members for non-object");
    }
    if (LIKELY(json_end(&j) && !is.error && !is.id_error))
        return NULL;
    return choose_error(&is, text, x->body_size);
}
