/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of inputs, outputs and batch tensors (reference/behaviours §14.12, §14.13).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/status.h"
#include "base/str.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"

/* An input or an output, for their common rules. */
struct tensor {
    const void *message;
    const char *what; /* "model input " */
    const char *name;
    Inference__DataType type;
    size_t n_dims;
    const int64_t *dims;
    const Inference__ModelTensorReshape *reshape;
    bool is_shape_tensor, is_non_linear;
};

static bool is_bad_dim(int64_t dim)
{
    return dim < 1 && dim != -1;
}

/* Counts the elements before the first wildcard; *at moves behind it. Saturates. */
static uint64_t count_chunk_elements(const int64_t *dims, size_t n, size_t *at)
{
    uint64_t elements = 1;
    while (*at < n && dims[*at] != -1) {
        if (__builtin_mul_overflow(elements, (uint64_t)dims[*at], &elements))
            elements = UINT64_MAX;
        ++*at;
    }
    ++*at;
    return elements;
}

static size_t count_wildcards(const int64_t *dims, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += dims[i] == -1;
    return count;
}

/* Returns the fault of the reshape, or NULL. Dimensions between wildcards must agree pair by
 * pair. */
static const char *reshape_fault(const struct tensor *t)
{
    static const char other_size[] = "has different size for dims and reshape";
    const int64_t *shape = t->reshape->shape;
    size_t n_shape = t->reshape->n_shape;
    size_t wild = count_wildcards(t->dims, t->n_dims), wild_shape = count_wildcards(shape, n_shape);

    if (!wild != !wild_shape)
        return other_size;
    if (wild != wild_shape)
        return "has different number of variable-size dimensions for dims and reshape";
    size_t i = 0, k = 0;
    for (size_t pair = 0; pair <= wild; pair++) {
        if (count_chunk_elements(t->dims, t->n_dims, &i) !=
            count_chunk_elements(shape, n_shape, &k))
            return other_size;
    }
    return NULL;
}

/* Prints the dims and the elements of both sides, as far as there is room. */
static struct config_advice advise_reshape(const struct tensor *t)
{
    struct config_advice a;
    AUTO(buf) text = BUF_INIT(sizeof(a.text));
    const struct {
        const char *name;
        const int64_t *dims;
        size_t n;
    } sides[] = {{"dims", t->dims, t->n_dims}, {"reshape", t->reshape->shape, t->reshape->n_shape}};
    for (size_t i = 0; i < ARRAY_SIZE(sides); i++) {
        size_t at = 0;
        buf_addf(&text, "%s%s [", i ? ", " : "", sides[i].name);
        for (size_t k = 0; k < sides[i].n; k++)
            buf_addf(&text, "%s%" PRId64, k ? "," : "", sides[i].dims[k]);
        uint64_t elements = count_chunk_elements(sides[i].dims, sides[i].n, &at);
        if (at > sides[i].n) /* without a wildcard */
            buf_addf(&text, "] with %" PRIu64 " element%s", elements, elements == 1 ? "" : "s");
        else
            buf_addc(&text, ']');
    }
    snprintf(a.text, sizeof(a.text), "%s", text.failed ? "" : buf_text(&text));
    return a;
}

#define FAIL(position, fmt, ...)                                                                   \
    config_fail(c, position, "%s'%s' " fmt " for %s", t->what, t->name __VA_OPT__(, ) __VA_ARGS__, \
                c->pb->name)

NODISCARD static struct status *validate_tensor(const struct model_config *c,
                                                const struct tensor *t)
{
    const char *model = c->pb->name;
    if (!*t->name)
        return config_fail(c, at_message(t->message), "%smust specify 'name' for %s", t->what,
                           model);
    if (t->type == INFERENCE__DATA_TYPE__TYPE_INVALID)
        return FAIL(advised(at_field(t->message, "data_type"), "for example data_type: TYPE_FP32"),
                    "must specify 'data_type'");
    if (t->n_dims == 0)
        return FAIL(advised(at_field(t->message, "dims"),
                            "for example dims: [ -1 ], or dims: [ 1 ] for a single value"),
                    "must specify 'dims'");
    if (t->reshape && t->reshape->n_shape == 0 && c->pb->max_batch_size == 0)
        return FAIL(at_field(t->message, "reshape"),
                    "cannot have empty reshape for non-batching model as scalar tensors are not "
                    "supported");
    for (size_t i = 0; i < t->n_dims; i++) {
        if (is_bad_dim(t->dims[i]))
            return FAIL(at_element(t->message, "dims", i),
                        "dimension must be integer >= 1, or -1 to indicate a variable-size "
                        "dimension");
    }
    if (t->reshape) {
        for (size_t i = 0; i < t->reshape->n_shape; i++) {
            if (is_bad_dim(t->reshape->shape[i]))
                return FAIL(at_element(t->reshape, "shape", i),
                            "reshape dimensions must be integer >= 1, or -1 to indicate a "
                            "variable-size dimension");
        }
        const char *fault = reshape_fault(t);
        if (fault)
            return FAIL(advised(at_field(t->message, "reshape"), advise_reshape(t).text), "%s",
                        fault);
    }
    return NULL;
}

NODISCARD static struct status *validate_tensorrt_only(const struct model_config *c,
                                                       const struct tensor *t, const char *side)
{
    if (strcmp(c->pb->platform, "tensorrt_plan") == 0) {
        if (t->is_non_linear && t->n_dims != 3)
            return config_fail(c, at_field(t->message, "dims"),
                               "Non-linear IO format %s requires 3 dims for %s", side, c->pb->name);
        return NULL;
    }
    if (t->is_shape_tensor)
        return config_fail(c, at_field(t->message, "is_shape_tensor"),
                           "shape tensors are only supported for TensorRT platform for %s",
                           c->pb->name);
    if (t->is_non_linear)
        return config_fail(c, at_field(t->message, "is_non_linear_format_io"),
                           "Non-linear IO format is only supported for the TensorRT platform for "
                           "%s",
                           c->pb->name);
    return NULL;
}

NODISCARD static struct status *validate_input(const struct model_config *c,
                                               const Inference__ModelInput *input)
{
    const struct tensor t = {.message = input,
                             .what = "model input ",
                             .name = input->name,
                             .type = input->data_type,
                             .n_dims = input->n_dims,
                             .dims = input->dims,
                             .reshape = input->reshape,
                             .is_shape_tensor = input->is_shape_tensor,
                             .is_non_linear = input->is_non_linear_format_io};
    struct status *st = validate_tensor(c, &t);
    if (st)
        return st;
    if (input->format != INFERENCE__MODEL_INPUT__FORMAT__FORMAT_NONE && input->n_dims != 3)
        return config_fail(c, at_field(input, "format"),
                           "model input NHWC/NCHW require 3 dims for %s", c->pb->name);
    return validate_tensorrt_only(c, &t, "input");
}

NODISCARD static struct status *validate_output_tensor(const struct model_config *c,
                                                       const Inference__ModelOutput *output)
{
    const struct tensor t = {.message = output,
                             .what = "model output ",
                             .name = output->name,
                             .type = output->data_type,
                             .n_dims = output->n_dims,
                             .dims = output->dims,
                             .reshape = output->reshape,
                             .is_shape_tensor = output->is_shape_tensor,
                             .is_non_linear = output->is_non_linear_format_io};
    struct status *st = validate_tensor(c, &t);
    return st ? st : validate_tensorrt_only(c, &t, "output");
}

/* The names that batch tensors refer to; in maps, since a configuration may have any number of
 * them. */
struct names {
    const struct model_config *config;
    struct map inputs, outputs, targets;
};

static const char *enum_name(const ProtobufCEnumDescriptor *d, int number)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, number);
    return v ? v->name : "";
}

/* Suggests the existing tensor whose name is nearest to an unknown one. */
static struct config_advice advise_name(const char *name, size_t n,
                                        const char *(*name_at)(const Inference__ModelConfig *,
                                                               size_t),
                                        const Inference__ModelConfig *pb)
{
    struct config_advice a = {""};
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (str_nearer(name, name_at(pb, i), &least))
            snprintf(a.text, sizeof(a.text), "did you mean \"%s\"?", name_at(pb, i));
    }
    return a;
}

static const char *get_input_name(const Inference__ModelConfig *pb, size_t i)
{
    return pb->input[i]->name;
}

static const char *get_output_name(const Inference__ModelConfig *pb, size_t i)
{
    return pb->output[i]->name;
}

/* Both kinds of batch tensor have one source, which must be an input. */
NODISCARD static struct status *validate_source(const struct names *names, const void *message,
                                                const char *what, const char *kind, size_t n,
                                                char *const *sources)
{
    const struct model_config *c = names->config;
    if (n != 1)
        return config_fail(c, at_field(message, "source_input"),
                           "batch %s kind '%s' expects 1 source input, got %zu for %s", what, kind,
                           n, c->pb->name);
    if (!map_gets(&names->inputs, sources[0]))
        return config_fail(
            c,
            advised(at_field(message, "source_input"),
                    advise_name(sources[0], c->pb->n_input, get_input_name, c->pb).text),
            "unknown source input name '%s' for %s", sources[0], c->pb->name);
    return NULL;
}

NODISCARD static struct status *validate_batch_input(const struct names *names,
                                                     const Inference__BatchInput *b)
{
    const struct model_config *c = names->config;
    const char *kind = enum_name(&inference__batch_input__kind__descriptor, (int)b->kind);
    if (!*kind)
        return config_fail(c, at_field(b, "kind"), "unknown batch input kind '%d' for %s",
                           (int)b->kind, c->pb->name);
    /* As in the reference, the data type is validated between the source's number and its name. */
    if (b->n_source_input == 1 && b->data_type != INFERENCE__DATA_TYPE__TYPE_INT32 &&
        b->data_type != INFERENCE__DATA_TYPE__TYPE_FP32)
        return config_fail(c, at_field(b, "data_type"),
                           "batch input data type must be TYPE_INT32 or TYPE_FP32 for %s",
                           c->pb->name);
    return validate_source(names, b, "input", kind, b->n_source_input, b->source_input);
}

NODISCARD static struct status *validate_targets(struct names *names,
                                                 const Inference__BatchOutput *b)
{
    const struct model_config *c = names->config;
    struct status *st = NULL;
    for (size_t i = 0; i < b->n_target_name && !st; i++) {
        char *target = b->target_name[i];
        struct config_position position = at_element(b, "target_name", i);
        if (!map_gets(&names->outputs, target))
            st = config_fail(
                c,
                advised(position,
                        advise_name(target, c->pb->n_output, get_output_name, c->pb).text),
                "unknown target output name '%s' for %s", target, c->pb->name);
        else if (map_puts(&names->targets, target, target))
            st = config_fail(c, position,
                             "target output name '%s' can only be specified once for %s", target,
                             c->pb->name);
    }
    map_done(&names->targets); /* once per batch output: others may have the same */
    map_init(&names->targets);
    return st;
}

NODISCARD static struct status *validate_batch_output(struct names *names,
                                                      const Inference__BatchOutput *b)
{
    const struct model_config *c = names->config;
    const char *kind = enum_name(&inference__batch_output__kind__descriptor, (int)b->kind);
    if (!*kind)
        return config_fail(c, at_field(b, "kind"), "unknown batch output kind '%d' for %s",
                           (int)b->kind, c->pb->name);
    struct status *st =
        validate_source(names, b, "output", kind, b->n_source_input, b->source_input);
    return st ? st : validate_targets(names, b);
}

NODISCARD static struct status *validate_batch_io(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    struct names names = {
        .config = c, .inputs = MAP_INIT, .outputs = MAP_INIT, .targets = MAP_INIT};
    struct status *st = NULL;
    if (!pb->n_batch_input && !pb->n_batch_output)
        return NULL;
    for (size_t i = 0; i < pb->n_input; i++)
        map_puts(&names.inputs, pb->input[i]->name, pb->input[i]);
    for (size_t i = 0; i < pb->n_output; i++)
        map_puts(&names.outputs, pb->output[i]->name, pb->output[i]);
    for (size_t i = 0; i < pb->n_batch_input && !st; i++)
        st = validate_batch_input(&names, pb->batch_input[i]);
    for (size_t i = 0; i < pb->n_batch_output && !st; i++)
        st = validate_batch_output(&names, pb->batch_output[i]);
    map_done(&names.inputs);
    map_done(&names.outputs);
    map_done(&names.targets);
    return st;
}

struct status *config_validate_io(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    struct status *st = NULL;
    for (size_t i = 0; i < pb->n_input && !st; i++)
        st = validate_input(c, pb->input[i]);
    for (size_t i = 0; i < pb->n_output && !st; i++)
        st = validate_output_tensor(c, pb->output[i]);
    return st ? st : validate_batch_io(c);
}
