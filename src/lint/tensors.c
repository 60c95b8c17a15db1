/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and outputs that are valid but seldom intended.
 */
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "core/model/tensor.h"
#include "lint/model_check.h"

enum { MAX_SHAPE_TEXT = 512, IMAGE_DIMS = 4 };

struct tensor {
    const void *message;
    const char *what, *name;
    size_t n_dims;
    const int64_t *dims;
};

static size_t count_tensors(const Inference__ModelConfig *pb)
{
    return pb->n_input + pb->n_output;
}

/* Counts inputs first, then outputs. */
static struct tensor tensor_at(const Inference__ModelConfig *pb, size_t i)
{
    if (i < pb->n_input) {
        const Inference__ModelInput *t = pb->input[i];
        return (struct tensor){t, "input", t->name, t->n_dims, t->dims};
    }
    const Inference__ModelOutput *t = pb->output[i - pb->n_input];
    return (struct tensor){t, "output", t->name, t->n_dims, t->dims};
}

/* ---- the batch dimension --------------------------------------------------------------------- */

/*
 * [1,3,224,224] or [-1,3,224,224]: with four dimensions the first one is hardly part of one item.
 * With fewer dimensions the first one may be a channel or a length.
 */
static bool looks_batched(const struct tensor *t)
{
    return t->n_dims >= IMAGE_DIMS && (t->dims[0] == 1 || t->dims[0] == -1);
}

/* Do all tensors, inputs and outputs, begin with a 1, or all with max_batch_size? */
static bool all_look_batched(const Inference__ModelConfig *pb)
{
    struct tensor first;
    if (!pb->n_input || !pb->n_output)
        return false;
    first = tensor_at(pb, 0);
    for (size_t i = 0; i < count_tensors(pb); i++) {
        struct tensor t = tensor_at(pb, i);
        if (t.n_dims < 2 || t.dims[0] != first.dims[0])
            return false;
    }
    return first.dims[0] == 1 || first.dims[0] == pb->max_batch_size;
}

static void add_batch_dim(struct model_check *l, const struct tensor *t)
{
    AUTO(buf) dims = BUF_INIT(MAX_SHAPE_TEXT);
    AUTO(buf) rest = BUF_INIT(MAX_SHAPE_TEXT);
    AUTO(buf) advice = BUF_INIT(MAX_SHAPE_TEXT * 2);
    if (!lint_wants(l->found, LINT_BATCH_DIM))
        return;
    shape_print(&dims, t->dims, t->n_dims);
    shape_print(&rest, t->dims + 1, t->n_dims - 1);
    buf_addf(&advice, "dims: %s, or max_batch_size: 0", buf_text(&rest));
    lint_add(l->found, LINT_BATCH_DIM, lint_at(l, t->message, "dims", 0), buf_text(&advice),
             "dims %s of %s '%s' seem to include the batch dimension, which max_batch_size %d puts "
             "in front already: requests have the shape [-1,%s",
             buf_text(&dims), t->what, t->name, l->pb->max_batch_size, buf_text(&dims) + 1);
}

static void check_batch_dims(struct model_check *l)
{
    if (l->pb->max_batch_size <= 0)
        return;
    bool all = all_look_batched(l->pb);
    for (size_t i = 0; i < count_tensors(l->pb); i++) {
        struct tensor t = tensor_at(l->pb, i);
        if (looks_batched(&t) || all)
            add_batch_dim(l, &t);
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static void check_tensor_names(struct model_check *l, size_t from, size_t to)
{
    struct map seen = MAP_INIT;
    for (size_t i = from; i < to; i++) {
        struct tensor t = tensor_at(l->pb, i);
        if (*t.name && map_puts(&seen, t.name, (void *)(uintptr_t)t.message))
            lint_add(l->found, LINT_SAME_TENSOR, lint_at(l, t.message, "name", 0), NULL,
                     "there are two %ss '%s'", t.what, t.name);
    }
    map_done(&seen);
}

const char *lint_type_name(Inference__DataType type)
{
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&inference__data_type__descriptor, (int)type);
    return value ? value->name : "an unknown type";
}

/* The backend identity copies each input to the output at its place. */
static void check_identity_pairs(struct model_check *l)
{
    const Inference__ModelConfig *pb = l->pb;
    if (strcmp(pb->backend, "identity") != 0)
        return;
    if (pb->n_input != pb->n_output) {
        lint_add(l->found, LINT_CONFIG, lint_at(l, pb, pb->n_output ? "output" : "input", 0), NULL,
                 "model '%s': identity needs as many outputs as inputs, the configuration has %zu "
                 "inputs and %zu outputs",
                 pb->name, pb->n_input, pb->n_output);
        return;
    }
    for (size_t i = 0; i < pb->n_input; i++) {
        const char *in = lint_type_name(pb->input[i]->data_type);
        const char *out = lint_type_name(pb->output[i]->data_type);
        if (strcmp(in, out) == 0)
            continue;
        char *advice = mem_printf("data_type: %s", in);
        lint_add(
            l->found, LINT_CONFIG, lint_at(l, pb->output[i], "data_type", 0), advice,
            "model '%s': identity copies input '%s' to output '%s', but their types are %s and "
            "%s",
            pb->name, pb->input[i]->name, pb->output[i]->name, in, out);
        mem_free(advice);
    }
}

void lint_check_tensors(struct model_check *l)
{
    check_identity_pairs(l);
    const Inference__ModelConfig *pb = l->pb;
    check_batch_dims(l);
    check_tensor_names(l, 0, pb->n_input);
    check_tensor_names(l, pb->n_input, count_tensors(pb));
    if (l->config->provided && !lint_completes(l) && (!pb->n_input || !pb->n_output))
        lint_add(l->found, LINT_NO_TENSORS, lint_at(l, NULL, NULL, 0), NULL,
                 "the model has no %s, and its backend will not find out about them",
                 pb->n_output  ? "inputs"
                 : pb->n_input ? "outputs"
                               : "inputs and no outputs");
}
