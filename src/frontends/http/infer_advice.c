/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice behind the errors of an inference in JSON. Nothing here runs for a request that is served;
 * what it reads again is bounded.
 */
#include <string.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "frontends/http/infer_priv.h"

enum { MAX_ADVICE_BYTES = 4096, MAX_BEYOND = 65536, MAX_EXAMPLES = 4 };

NODISCARD static struct status *add_advice(struct status *st, const struct buf *advice)
{
    if (advice->size == 0)
        return st;
    struct status *whole =
        status_new(status_code(st), "%s; %s", status_message(st), buf_text(advice));
    status_free(st);
    return whole;
}

/* ---- Datatypes ------------------------------------------------------------------------------- */

/* Names of other libraries and of configurations. */
static const struct {
    const char *name;
    enum dtype dtype;
} aliases[] = {
    {"float", DTYPE_FP32},    {"float32", DTYPE_FP32}, {"single", DTYPE_FP32},
    {"f32", DTYPE_FP32},      {"float64", DTYPE_FP64}, {"double", DTYPE_FP64},
    {"f64", DTYPE_FP64},      {"float16", DTYPE_FP16}, {"half", DTYPE_FP16},
    {"bfloat16", DTYPE_BF16}, {"int", DTYPE_INT32},    {"integer", DTYPE_INT32},
    {"long", DTYPE_INT64},    {"byte", DTYPE_UINT8},   {"boolean", DTYPE_BOOL},
    {"string", DTYPE_BYTES},  {"str", DTYPE_BYTES},    {"text", DTYPE_BYTES},
    {"object", DTYPE_BYTES},
};

static enum dtype find_meant(const char *name, size_t length)
{
    static const char prefix[] = "TYPE_";
    if (length > strlen(prefix) &&
        str_equal_nocase_n(name, strlen(prefix), prefix, strlen(prefix))) {
        name += strlen(prefix);
        length -= strlen(prefix);
    }
    for (int t = DTYPE_INVALID + 1; t < N_DTYPES; t++) {
        if (str_equal_nocase_n(name, length, dtype_name(t), strlen(dtype_name(t))))
            return t;
    }
    for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
        if (str_equal_nocase_n(name, length, aliases[i].name, strlen(aliases[i].name)))
            return aliases[i].dtype;
    }
    enum dtype meant = DTYPE_INVALID;
    size_t least = SIZE_MAX;
    char copy[STR_EDIT_MAX + 1] = "";
    if (length < sizeof(copy))
        memcpy(copy, name, length);
    for (int t = DTYPE_INVALID + 1; t < N_DTYPES && *copy; t++) {
        if (str_nearer(copy, dtype_name(t), &least))
            meant = t;
    }
    return meant;
}

struct status *infer_advise_datatype(struct status *st, struct json_str given)
{
    AUTO(buf) advice = BUF_INIT(MAX_ADVICE_BYTES);
    enum dtype meant = find_meant(given.at, given.length);
    if (meant != DTYPE_INVALID) {
        buf_addf(&advice, "did you mean %s?", dtype_name(meant));
    } else {
        buf_adds(&advice, "there are");
        for (int t = DTYPE_INVALID + 1; t < N_DTYPES; t++)
            buf_addf(&advice, " %s", dtype_name(t));
    }
    return add_advice(st, &advice);
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Counts the values of an array, flat or nested, up to `enough`. */
static void count_json_values(struct json *j, unsigned int depth, size_t enough, size_t *n)
{
    if (json_peek(j) != JSON_ARRAY || depth == JSON_MAX_TENSOR_DEPTH) {
        (*n)++;
        json_skip_value(j);
        return;
    }
    json_enter_array(j);
    while (*n < enough && json_next_element(j))
        count_json_values(j, depth + 1, enough, n);
}

struct status *infer_advise_values(struct status *st, const struct input *in, int64_t n_elements,
                                   struct json data)
{
    AUTO(buf) advice = BUF_INIT(MAX_ADVICE_BYTES);
    size_t n = 0, wanted = (size_t)n_elements;
    size_t enough = wanted > SIZE_MAX - MAX_BEYOND ? SIZE_MAX : wanted + MAX_BEYOND;
    data.failure = JSON_OK;
    count_json_values(&data, 0, enough, &n);
    buf_addf(&advice, "input '%s' has %zu %s value%s: shape ", in->name, wanted,
             dtype_name(in->dtype), wanted == 1 ? "" : "s");
    shape_print(&advice, in->shape, in->n_dims);
    if (n != wanted)
        buf_addf(&advice, ", but 'data' has %s%zu", n == enough ? "more than " : "", n);
    return add_advice(st, &advice);
}

/* ---- The whole request ----------------------------------------------------------------------- */

static void print_example(struct buf *out, const struct model *m, const struct tensor_spec *spec)
{
    buf_addf(out, "{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[%s", spec->name,
             dtype_name(spec->dtype), m->batching ? "1" : "");
    for (uint32_t i = 0; i < spec->n_dims; i++) {
        int64_t dim = spec->dims[i] == -1 ? 1 : spec->dims[i];
        buf_addf(out, "%s%lld", i || m->batching ? "," : "", (long long)dim);
    }
    buf_adds(out, "],\"data\":[...]}");
}

struct status *infer_advise_inputs(struct status *st, const struct model *m)
{
    AUTO(buf) advice = BUF_INIT(MAX_ADVICE_BYTES);
    uint32_t n = MIN(m->n_inputs, (uint32_t)MAX_EXAMPLES);
    buf_adds(&advice, "a request is {\"inputs\":[");
    for (uint32_t i = 0; i < n; i++) {
        buf_adds(&advice, i ? "," : "");
        print_example(&advice, m, &m->inputs[i]);
    }
    buf_adds(&advice, n < m->n_inputs ? ",...]}" : "]}");
    return add_advice(st, &advice);
}
