/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ragged_read() makes the two lists when a model loads; they are constant afterwards, and
 * instances read them at the same time. ragged_gather() makes one batch input: it adds up the
 * shape, allocates the memory, and then writes the values.
 */
#include "common/ragged.h"

#include <stdlib.h>
#include <string.h>

/* ---- From the configuration ----------------------------------------------------------------- */

static const struct {
    const char *name;
    enum ragged_kind kind;
} kinds[] = {
    {"BATCH_ELEMENT_COUNT", RAGGED_ELEMENT_COUNT},
    {"BATCH_ACCUMULATED_ELEMENT_COUNT", RAGGED_ACCUMULATED},
    {"BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", RAGGED_ACCUMULATED_WITH_ZERO},
    {"BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", RAGGED_MAX_AS_SHAPE},
    {"BATCH_ITEM_SHAPE", RAGGED_ITEM_SHAPE},
    {"BATCH_ITEM_SHAPE_FLATTEN", RAGGED_ITEM_SHAPE_FLATTEN},
};

static TRITONSERVER_Error *read_kind(const struct doc_value *v, enum ragged_kind *ret_kind)
{
    const char *name = doc_string(doc_get(v, "kind"), kinds[0].name);

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            *ret_kind = kinds[i].kind;
            return NULL;
        }
    }
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "batch input kind '%s' is unknown", name);
}

static TRITONSERVER_Error *read_source(const struct doc_value *v, const char *what,
                                       const char **ret_source)
{
    const struct doc_value *sources = doc_get(v, "source_input");

    if (doc_count(sources) != 1)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "%s expects 1 source input, got %zu",
                             what, doc_count(sources));
    *ret_source = doc_string(doc_first(sources), "");
    return NULL;
}

static TRITONSERVER_Error *read_batch_input_type(const struct doc_value *v,
                                                 TRITONSERVER_DataType *ret_type)
{
    const char *name = doc_string(doc_get(v, "data_type"), "");

    *ret_type = strcmp(name, "TYPE_INT32") == 0  ? TRITONSERVER_TYPE_INT32
                : strcmp(name, "TYPE_FP32") == 0 ? TRITONSERVER_TYPE_FP32
                                                 : TRITONSERVER_TYPE_INVALID;
    if (*ret_type == TRITONSERVER_TYPE_INVALID)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "batch input data type must be TYPE_INT32 or TYPE_FP32, got '%s'",
                             name);
    return NULL;
}

static size_t count_targets(const struct doc_value *list)
{
    size_t n = 0;

    for (const struct doc_value *v = doc_first(list); v; v = v->next)
        n += doc_count(doc_get(v, "target_name"));
    return n;
}

static TRITONSERVER_Error *read_batch_inputs(const struct doc_value *list, struct ragged *r)
{
    for (const struct doc_value *v = doc_first(list); v; v = v->next) {
        struct ragged_input in;

        TRY(read_kind(v, &in.kind));
        TRY(read_batch_input_type(v, &in.type));
        TRY(read_source(v, "a batch input", &in.source));
        const struct doc_value *target = doc_first(doc_get(v, "target_name"));
        for (; target; target = target->next) {
            in.name = doc_string(target, "");
            r->inputs[r->n_inputs++] = in;
        }
    }
    return NULL;
}

static TRITONSERVER_Error *read_batch_outputs(const struct doc_value *list, struct ragged *r)
{
    static const char only_kind[] = "BATCH_SCATTER_WITH_INPUT_SHAPE";

    for (const struct doc_value *v = doc_first(list); v; v = v->next) {
        const char *kind = doc_string(doc_get(v, "kind"), only_kind), *source;

        if (strcmp(kind, only_kind) != 0)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "batch output kind '%s' is unknown", kind);
        TRY(read_source(v, "a batch output", &source));
        const struct doc_value *target = doc_first(doc_get(v, "target_name"));
        for (; target; target = target->next)
            r->outputs[r->n_outputs++] = (struct ragged_output){doc_string(target, ""), source};
    }
    return NULL;
}

TRITONSERVER_Error *ragged_read(const struct doc *config, struct ragged *ret)
{
    const struct doc_value *inputs = doc_get(doc_root(config), "batch_input");
    const struct doc_value *outputs = doc_get(doc_root(config), "batch_output");
    struct ragged r = {
        .inputs = calloc(count_targets(inputs) + 1, sizeof(struct ragged_input)),
        .outputs = calloc(count_targets(outputs) + 1, sizeof(struct ragged_output)),
    };
    TRITONSERVER_Error *err;

    err = r.inputs && r.outputs ? read_batch_inputs(inputs, &r)
                                : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    if (!err)
        err = read_batch_outputs(outputs, &r);
    if (err)
        ragged_done(&r);
    else
        *ret = r;
    return err;
}

void ragged_done(struct ragged *r)
{
    free(r->inputs);
    free(r->outputs);
    *r = (struct ragged){0};
}

const char *ragged_source(const struct ragged *r, const char *output)
{
    for (size_t i = 0; i < r->n_outputs; i++)
        if (strcmp(r->outputs[i].name, output) == 0)
            return r->outputs[i].source;
    return NULL;
}

bool ragged_allowed(const struct doc *config, const char *input)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(config), "input"));

    for (; v; v = v->next) {
        const struct doc_value *allow = doc_get(v, "allow_ragged_batch");

        if (strcmp(doc_string(doc_get(v, "name"), ""), input) == 0)
            return allow && allow->type == DOC_BOOL && allow->boolean;
    }
    return false;
}

/* ---- For a batch ---------------------------------------------------------------------------- */

/* The source of one request, with its shape. */
struct source {
    const int64_t *shape;
    uint32_t rank;
    int64_t n_elements;
};

static TRITONSERVER_Error *find_source_input(const struct batch_part *part, const char *name,
                                             struct source *ret_source)
{
    TRITONBACKEND_Input *input;
    struct source s;

    TRY(TRITONBACKEND_RequestInput(part->request, name, &input));
    TRY(TRITONBACKEND_InputProperties(input, NULL, NULL, &s.shape, &s.rank, NULL, NULL));
    TRY(gather_elements(s.shape, s.rank, &s.n_elements));
    if (s.rank == 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "source input '%s' has no batch dimension", name);
    *ret_source = s;
    return NULL;
}

/* Adds one request's part to the shape of the batch input. */
static TRITONSERVER_Error *grow_shape(struct gathered *g, enum ragged_kind kind,
                                      const struct source *s, bool first)
{
    int64_t add = 1, rest = (int64_t)s->rank - 1;

    switch (kind) {
    case RAGGED_ACCUMULATED_WITH_ZERO:
        add = first ? 2 : 1;
        break;
    case RAGGED_MAX_AS_SHAPE:
        add = s->n_elements > g->shape[0] ? s->n_elements - g->shape[0] : 0;
        break;
    case RAGGED_ITEM_SHAPE:
        if (!first && g->shape[1] != rest)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "the requests of a batch differ in the number of dimensions");
        g->rank = 2;
        g->shape[1] = rest;
        add = s->shape[0];
        break;
    case RAGGED_ITEM_SHAPE_FLATTEN:
        if (__builtin_mul_overflow(s->shape[0], rest, &add))
            add = INT64_MAX; /* the sum below reports it */
        break;
    case RAGGED_ELEMENT_COUNT:
    case RAGGED_ACCUMULATED:
        break;
    }
    if (__builtin_add_overflow(g->shape[0], add, &g->shape[0]))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "a batch has too many elements");
    return NULL;
}

/* FP32 holds whole numbers exactly up to 2^24; larger ones are rounded to the nearest. */
static TRITONSERVER_Error *write_number(char **at, TRITONSERVER_DataType type, int64_t number)
{
    int32_t whole = (int32_t)number;
    float real = (float)number;

    if (type == TRITONSERVER_TYPE_INT32 && whole != number)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "a batch input counts to %lld, which INT32 does not hold",
                             (long long)number);
    memcpy(*at, type == TRITONSERVER_TYPE_INT32 ? (const void *)&whole : &real, sizeof(whole));
    *at += sizeof(whole);
    return NULL;
}

static TRITONSERVER_Error *write_item_shapes(char **at, TRITONSERVER_DataType type,
                                             const struct source *s)
{
    /* Without further dimensions nothing is written, however many rows there are. */
    for (int64_t row = 0; s->rank > 1 && row < s->shape[0]; row++)
        for (uint32_t d = 1; d < s->rank; d++)
            TRY(write_number(at, type, s->shape[d]));
    return NULL;
}

static TRITONSERVER_Error *write_part(char **at, const struct ragged_input *input,
                                      const struct source *s, int64_t *sum)
{
    switch (input->kind) {
    case RAGGED_ELEMENT_COUNT:
        return write_number(at, input->type, s->n_elements);
    case RAGGED_ACCUMULATED:
    case RAGGED_ACCUMULATED_WITH_ZERO:
        if (__builtin_add_overflow(*sum, s->n_elements, sum))
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "a batch has too many elements");
        return write_number(at, input->type, *sum);
    case RAGGED_ITEM_SHAPE:
    case RAGGED_ITEM_SHAPE_FLATTEN:
        return write_item_shapes(at, input->type, s);
    case RAGGED_MAX_AS_SHAPE:
        break;
    }
    return NULL;
}

static TRITONSERVER_Error *write_values(char *at, const struct batch *b,
                                        const struct ragged_input *input)
{
    int64_t sum = 0;

    if (input->kind == RAGGED_ACCUMULATED_WITH_ZERO && b->n_parts > 0)
        TRY(write_number(&at, input->type, 0));
    for (uint32_t i = 0; i < b->n_parts; i++) {
        struct source s;

        if (b->parts[i].err)
            continue;
        TRY(find_source_input(&b->parts[i], input->source, &s));
        TRY(write_part(&at, input, &s, &sum));
    }
    return NULL;
}

TRITONSERVER_Error *ragged_gather(struct gathered *g, const struct batch *b,
                                  const struct ragged_input *input)
{
    bool first = true;
    int64_t n;
    void *to;

    g->present = g->copied = true;
    g->type = input->type;
    g->rank = 1;
    g->shape[0] = 0;
    for (uint32_t i = 0; i < b->n_parts; i++) {
        struct source s;

        if (b->parts[i].err)
            continue;
        TRY(find_source_input(&b->parts[i], input->source, &s));
        TRY(grow_shape(g, input->kind, &s, first));
        first = false;
    }
    TRY(gather_elements(g->shape, g->rank, &n));
    if (__builtin_mul_overflow((uint64_t)n, sizeof(int32_t), &g->size))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "batch input '%s' is too large",
                             input->name);
    TRY(gather_reserve(g, g->size > 0 ? g->size : 1, &to));
    g->data = to;
    if (input->kind == RAGGED_MAX_AS_SHAPE)
        memset(to, 0, g->size);
    else if (!first)
        TRY(write_values(to, b, input));
    return NULL;
}
