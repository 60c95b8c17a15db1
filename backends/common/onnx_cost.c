/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is read whole, since a small model has a small file, and walked in the order of its
 * nodes, which ONNX demands to be sorted. The shape of each tensor is computed, beginning with the
 * inputs. Each operator gives the shape of its first output, and adds its cost. An unknown shape,
 * such as that of an operator's second output, makes the model one that is not small as soon as an
 * operator needs it.
 *
 * What an operator costs is in ops[]; each node adds the overhead of a framework.
 */
#include "common/onnx_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/message.h"

enum {
    MAX_FILE_BYTES = 4 * COST_SMALL + (1 << 20), /* a weight that is used once, and the rest */
    MAX_TENSORS = 1024,
    MAX_DIMS = 8,
    MAX_INPUTS = 16,
};

/* ---- Numbers -------------------------------------------------------------------------------- */

/* A list of numbers is one field for each number, or one field with all. */
struct numbers {
    size_t n;
    int64_t list[MAX_DIMS];
};

static bool add_number(struct numbers *to, uint64_t value)
{
    if (to->n == MAX_DIMS)
        return false;
    to->list[to->n++] = (int64_t)value;
    return true;
}

static bool add_numbers(struct numbers *to, const struct message_field *f)
{
    struct message_bytes b = f->bytes;
    uint64_t value;

    if (!f->is_bytes)
        return add_number(to, f->value);
    while (b.at < b.end)
        if (!message_number(&b, &value) || !add_number(to, value))
            return false;
    return true;
}

/* ---- Tensors -------------------------------------------------------------------------------- */

struct shape {
    size_t rank;
    int64_t dims[MAX_DIMS];
};

struct tensor {
    struct message_bytes name;
    struct shape shape;
    bool has_values;       /* an initializer whose elements are few and INT64, such as a shape */
    struct numbers values; /* if has_values */
};

struct graph {
    int64_t batch;
    uint64_t cost;
    bool other_types; /* its inputs or outputs have types other than FP32 */
    size_t n_tensors;
    struct tensor tensors[MAX_TENSORS];
};

/* Counts the elements of a tensor; false: too many for a small model. */
static bool count_shape_elements(const struct shape *s, uint64_t *ret_n)
{
    uint64_t n = 1;

    for (size_t i = 0; i < s->rank; i++) {
        if (s->dims[i] < 0 || s->dims[i] > 16 * COST_SMALL)
            return false;
        n *= (uint64_t)s->dims[i];
        if (n > 16 * COST_SMALL)
            return false;
    }
    *ret_n = n;
    return true;
}

static const struct tensor *find_tensor(const struct graph *g, const struct message_bytes *name)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (message_is_same(&g->tensors[i].name, name))
            return &g->tensors[i];
    return NULL;
}

/* Adds a tensor. The first one of a name counts: an input before its default value, which has
 * the same shape. */
static bool add_tensor(struct graph *g, const struct tensor *t)
{
    uint64_t n;

    if (find_tensor(g, &t->name))
        return true;
    if (g->n_tensors == MAX_TENSORS || !count_shape_elements(&t->shape, &n))
        return false;
    g->tensors[g->n_tensors++] = *t;
    return true;
}

enum { TYPE_FLOAT = 1, TYPE_INT64 = 7 };

/* Is it a type of onnx.TensorProto.DataType that CPUs compute with: a number or a boolean? */
static bool is_fine_type(uint64_t type)
{
    static const bool fine[] = {
        [1] = true, [2] = true, [3] = true,  [4] = true,  [5] = true, [6] = true,
        [7] = true, [9] = true, [11] = true, [12] = true, [13] = true};

    return type < sizeof(fine) && fine[type];
}

/* Reads int64_data as it is, raw_data by eight bytes each. */
static bool read_tensor_values(struct numbers *to, const struct message_field *f)
{
    struct message_bytes b = f->bytes;

    if (f->number == 7)
        return add_numbers(to, f);
    for (; b.end - b.at >= 8; b.at += 8) {
        int64_t value;

        memcpy(&value, b.at, sizeof(value)); /* little-endian, as are the machines we run on */
        if (!add_number(to, (uint64_t)value))
            return false;
    }
    return true;
}

static bool read_constant_tensor(struct message_bytes b, struct tensor *ret_tensor)
{
    struct tensor t = {0};
    struct numbers dims = {0};
    bool few = true;
    uint64_t type = 0;
    struct message_field f;

    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return false;
        if (f.number == 1 && !add_numbers(&dims, &f))
            return false;
        if (f.number == 2)
            type = f.value;
        if (f.number == 8)
            t.name = f.bytes;
        if ((f.number == 7 || f.number == 9) && f.is_bytes)
            few = few && f.bytes.end - f.bytes.at <= 8 * MAX_DIMS &&
                  read_tensor_values(&t.values, &f);
    }
    t.shape.rank = dims.n;
    memcpy(t.shape.dims, dims.list, sizeof(t.shape.dims));
    t.has_values = few && type == TYPE_INT64 && dims.n == 1 && t.values.n == (size_t)dims.list[0];
    *ret_tensor = t;
    return is_fine_type(type);
}

/* Reads a dimension: dim_value, or one that has only a name, or nothing. */
static bool read_dim(const struct graph *g, struct message_bytes b, struct shape *s)
{
    int64_t dim = -1;
    struct message_field f;

    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return false;
        if (f.number == 1)
            dim = (int64_t)f.value;
    }
    if (dim < 0 && s->rank == 0 && g->batch > 0)
        dim = g->batch;
    if (dim < 0 || s->rank == MAX_DIMS)
        return false;
    s->dims[s->rank++] = dim;
    return true;
}

/* Walks one field of a message: value_info.type.tensor_type.shape.dim. */
static bool read_declared_shape(const struct graph *g, struct message_bytes b, struct shape *s)
{
    struct message_field f;

    while (b.at < b.end)
        if (!message_next(&b, &f) || (f.number == 1 && !read_dim(g, f.bytes, s)))
            return false;
    return true;
}

static bool read_tensor_type(struct graph *g, struct message_bytes b, struct shape *s)
{
    bool has_shape = false;
    uint64_t type = 0;
    struct message_field f;

    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return false;
        if (f.number == 1)
            type = f.value;
        if (f.number == 2) {
            has_shape = true;
            if (!read_declared_shape(g, f.bytes, s))
                return false;
        }
    }
    g->other_types |= type != TYPE_FLOAT;
    return has_shape && is_fine_type(type);
}

static bool read_graph_input(struct graph *g, struct message_bytes b)
{
    struct tensor t = {0};
    bool has_type = false;
    struct message_field f, in;

    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return false;
        if (f.number == 1)
            t.name = f.bytes;
        for (struct message_bytes type = f.bytes; f.number == 2 && type.at < type.end;) {
            if (!message_next(&type, &in) || in.number != 1) /* a sequence, a map, … */
                return false;
            has_type = true;
            if (!read_tensor_type(g, in.bytes, &t.shape))
                return false;
        }
    }
    return has_type && add_tensor(g, &t);
}

/* ---- Operators ------------------------------------------------------------------------------ */

struct node {
    struct message_bytes op, domain;
    size_t n_inputs;
    struct message_bytes inputs[MAX_INPUTS];
    struct message_bytes output; /* the first */
    bool has_output;
    struct message_bytes attributes[MAX_INPUTS];
    size_t n_attributes;
};

static bool has_graph(struct message_bytes attribute)
{
    struct message_field f;

    while (attribute.at < attribute.end)
        if (!message_next(&attribute, &f) || f.number == 6 || f.number == 11)
            return true;
    return false;
}

static bool read_node(struct message_bytes b, struct node *ret_node)
{
    struct node n = {0};
    struct message_field f;

    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return false;
        if (f.number == 1 && n.n_inputs == MAX_INPUTS)
            return false;
        if (f.number == 5 && (n.n_attributes == MAX_INPUTS || has_graph(f.bytes)))
            return false;
        if (f.number == 1)
            n.inputs[n.n_inputs++] = f.bytes;
        if (f.number == 2 && !n.has_output) {
            n.has_output = true;
            n.output = f.bytes;
        }
        if (f.number == 4)
            n.op = f.bytes;
        if (f.number == 5)
            n.attributes[n.n_attributes++] = f.bytes;
        if (f.number == 7)
            n.domain = f.bytes;
    }
    *ret_node = n;
    return n.has_output && (n.domain.at == n.domain.end || message_is_text(&n.domain, "ai.onnx"));
}

/* Reads the whole numbers of an attribute; a single one is a list of one. False: it is
 * malformed. */
static bool read_attribute(const struct node *n, const char *name, struct numbers *ret)
{
    *ret = (struct numbers){0};
    for (size_t i = 0; i < n->n_attributes; i++) {
        struct message_bytes b = n->attributes[i], key = {0};
        struct numbers found = {0};
        struct message_field f;

        while (b.at < b.end) {
            if (!message_next(&b, &f))
                return false;
            if (f.number == 1)
                key = f.bytes;
            if ((f.number == 3 || f.number == 8) && !add_numbers(&found, &f))
                return false;
        }
        if (key.at && message_is_text(&key, name))
            *ret = found;
    }
    return true;
}

static bool number_of(const struct node *n, const char *name, int64_t otherwise, int64_t *ret)
{
    struct numbers found;

    if (!read_attribute(n, name, &found) || found.n > 1)
        return false;
    *ret = found.n ? found.list[0] : otherwise;
    return true;
}

static bool has_attribute(const struct node *n, const char *name)
{
    for (size_t i = 0; i < n->n_attributes; i++) {
        struct message_bytes b = n->attributes[i];
        struct message_field f;

        while (b.at < b.end && message_next(&b, &f))
            if (f.number == 1 && message_is_text(&f.bytes, name))
                return true;
    }
    return false;
}

static const struct tensor *find_node_input(const struct graph *g, const struct node *n, size_t i)
{
    return i < n->n_inputs ? find_tensor(g, &n->inputs[i]) : NULL;
}

/* Computes the shape of the first output and adds the operator's cost. False: not small. */
typedef bool (*rule_fn)(struct graph *g, const struct node *n, uint64_t weight, struct shape *out);

static bool cost_same(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    const struct tensor *in = find_node_input(g, n, 0);
    uint64_t elements;

    if (!in || !count_shape_elements(&in->shape, &elements))
        return false;
    *out = in->shape;
    return cost_add(&g->cost, weight, elements);
}

/* Shapes must agree from the right; 1 agrees with every size. */
static bool broadcast_shape(const struct shape *in, struct shape *out)
{
    struct shape a = *in, all = {0};

    all.rank = a.rank > out->rank ? a.rank : out->rank;
    for (size_t i = 0; i < all.rank; i++) {
        size_t from_a = i + a.rank - all.rank, from_b = i + out->rank - all.rank;
        int64_t x = i + a.rank < all.rank ? 1 : a.dims[from_a];
        int64_t y = i + out->rank < all.rank ? 1 : out->dims[from_b];

        if (x != y && x != 1 && y != 1)
            return false;
        all.dims[i] = x == 1 ? y : x;
    }
    *out = all;
    return true;
}

static bool cost_elementwise(struct graph *g, const struct node *n, uint64_t weight,
                             struct shape *out)
{
    uint64_t elements;

    for (size_t i = 0; i < n->n_inputs; i++) {
        const struct tensor *in = find_node_input(g, n, i);

        if (!in || !broadcast_shape(&in->shape, out))
            return false;
    }
    return n->n_inputs > 0 && count_shape_elements(out, &elements) &&
           cost_add(&g->cost, weight * n->n_inputs, elements);
}

static bool spend_products(struct graph *g, uint64_t weight, const struct shape *out, int64_t each)
{
    uint64_t elements;

    if (each < 0 || !count_shape_elements(out, &elements))
        return false;
    return cost_add(&g->cost, weight * (g->other_types ? COST_OTHER_TYPES : 1), elements) &&
           cost_add(&g->cost, weight * (g->other_types ? COST_OTHER_TYPES : 1) * elements,
                    (uint64_t)each);
}

static bool cost_gemm(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    const struct tensor *a = find_node_input(g, n, 0), *b = find_node_input(g, n, 1);
    int64_t transpose_a, transpose_b;

    if (!a || !b || a->shape.rank != 2 || b->shape.rank != 2 ||
        !number_of(n, "transA", 0, &transpose_a) || !number_of(n, "transB", 0, &transpose_b))
        return false;
    out->rank = 2;
    out->dims[0] = a->shape.dims[transpose_a ? 1 : 0];
    out->dims[1] = b->shape.dims[transpose_b ? 0 : 1];
    return spend_products(g, weight, out, a->shape.dims[transpose_a ? 0 : 1]);
}

/* Products of matrices in the last two dimensions; the earlier dimensions are broadcast. */
static bool cost_matmul(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    const struct tensor *a = find_node_input(g, n, 0), *b = find_node_input(g, n, 1);
    struct shape before;

    if (!a || !b || a->shape.rank < 2 || b->shape.rank < 2)
        return false;
    *out = b->shape;
    out->rank -= 2;
    before = a->shape;
    before.rank -= 2;
    if (!broadcast_shape(&before, out) || out->rank + 2 > MAX_DIMS)
        return false;
    out->dims[out->rank++] = a->shape.dims[a->shape.rank - 2];
    out->dims[out->rank++] = b->shape.dims[b->shape.rank - 1];
    return spend_products(g, weight, out, a->shape.dims[a->shape.rank - 1]);
}

static bool cost_flatten(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    const struct tensor *in = find_node_input(g, n, 0);
    struct shape front, back = {0};
    uint64_t before, behind;
    int64_t axis;

    if (!in || !number_of(n, "axis", 1, &axis))
        return false;
    axis += axis < 0 ? (int64_t)in->shape.rank : 0;
    if (axis < 0 || (size_t)axis > in->shape.rank)
        return false;
    front = in->shape;
    front.rank = (size_t)axis;
    back.rank = in->shape.rank - front.rank;
    memcpy(back.dims, in->shape.dims + axis, back.rank * sizeof(*back.dims));
    if (!count_shape_elements(&front, &before) || !count_shape_elements(&back, &behind))
        return false;
    *out = (struct shape){.rank = 2, .dims = {(int64_t)before, (int64_t)behind}};
    return cost_add(&g->cost, weight, before * behind);
}

/* Reshapes to a shape in the file: 0 keeps the size, -1 is the rest. */
static bool cost_reshape(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    const struct tensor *in = find_node_input(g, n, 0), *to = find_node_input(g, n, 1);
    uint64_t elements, given = 1;
    int64_t keeps_zero;
    int left = -1;

    if (!in || !to || !to->has_values || !count_shape_elements(&in->shape, &elements) ||
        !number_of(n, "allowzero", 0, &keeps_zero) || keeps_zero)
        return false;
    out->rank = to->values.n;
    for (size_t i = 0; i < out->rank; i++) {
        int64_t dim = to->values.list[i];

        if (dim == 0 && i < in->shape.rank)
            dim = in->shape.dims[i];
        if (dim < 0 && left < 0)
            left = (int)i;
        else if (dim <= 0 || dim > 16 * COST_SMALL || (given *= (uint64_t)dim) > 16 * COST_SMALL)
            return false;
        out->dims[i] = dim;
    }
    if (left >= 0)
        out->dims[left] = (int64_t)(elements / given);
    return cost_add(&g->cost, weight, elements);
}

static bool cost_transpose(struct graph *g, const struct node *n, uint64_t weight,
                           struct shape *out)
{
    const struct tensor *in = find_node_input(g, n, 0);
    struct numbers order;

    if (!cost_same(g, n, weight, out) || !read_attribute(n, "perm", &order))
        return false;
    for (size_t i = 0; i < out->rank; i++) {
        int64_t from = order.n ? order.list[i] : (int64_t)(out->rank - 1 - i);

        if ((order.n && order.n != out->rank) || from < 0 || (size_t)from >= out->rank)
            return false;
        out->dims[i] = in->shape.dims[from];
    }
    return true;
}

static bool cost_concat(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    uint64_t elements;
    int64_t axis, sum = 0;

    if (!number_of(n, "axis", 0, &axis))
        return false;
    for (size_t i = 0; i < n->n_inputs; i++) {
        const struct tensor *in = find_node_input(g, n, i);

        if (!in || (i > 0 && in->shape.rank != out->rank))
            return false;
        *out = in->shape;
        axis += axis < 0 ? (int64_t)out->rank : 0;
        if (axis < 0 || (size_t)axis >= out->rank)
            return false;
        sum += in->shape.dims[axis];
    }
    if (n->n_inputs == 0)
        return false;
    out->dims[axis] = sum;
    return count_shape_elements(out, &elements) && cost_add(&g->cost, weight, elements);
}

/* Computes the sizes behind the first two dimensions, for a window of that size. */
static bool slide_window(const struct node *n, const struct shape *in, const int64_t *window,
                         struct shape *out)
{
    struct numbers pads, strides, dilations;

    if (!read_attribute(n, "pads", &pads) || !read_attribute(n, "strides", &strides) ||
        !read_attribute(n, "dilations", &dilations) || has_attribute(n, "auto_pad"))
        return false;
    for (size_t i = 2; i < in->rank; i++) {
        size_t k = i - 2, n_spatial = in->rank - 2;
        int64_t pad = pads.n == 2 * n_spatial ? pads.list[k] + pads.list[k + n_spatial] : 0;
        int64_t stride = strides.n == n_spatial ? strides.list[k] : 1;
        int64_t dilation = dilations.n == n_spatial ? dilations.list[k] : 1;

        if (pad < 0 || pad > COST_SMALL || stride < 1 || dilation < 1 || dilation > COST_SMALL ||
            window[k] < 1 || window[k] > COST_SMALL)
            return false;
        /* Rounded up, whatever the operator does. */
        int64_t reach = dilation * (window[k] - 1) + 1;
        int64_t room = in->dims[i] + pad - reach;
        out->dims[i] = room < 0 ? 0 : room / stride + 1 + (room % stride != 0);
    }
    return true;
}

static bool cost_conv(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    const struct tensor *in = find_node_input(g, n, 0), *kernel = find_node_input(g, n, 1);
    uint64_t all;

    if (!in || !kernel || in->shape.rank < 3 || kernel->shape.rank != in->shape.rank ||
        kernel->shape.dims[0] < 1 || !count_shape_elements(&kernel->shape, &all))
        return false;
    *out = in->shape;
    out->dims[1] = kernel->shape.dims[0];
    if (!slide_window(n, &in->shape, kernel->shape.dims + 2, out))
        return false;
    return spend_products(g, weight, out, (int64_t)(all / (uint64_t)kernel->shape.dims[0]));
}

static bool cost_pool(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    const struct tensor *in = find_node_input(g, n, 0);
    struct numbers window;
    int64_t each = 1;

    if (!in || in->shape.rank < 3 || !read_attribute(n, "kernel_shape", &window) ||
        window.n != in->shape.rank - 2)
        return false;
    *out = in->shape;
    if (!slide_window(n, &in->shape, window.list, out))
        return false;
    for (size_t i = 0; i < window.n; i++)
        if (__builtin_mul_overflow(each, window.list[i], &each))
            return false;
    return spend_products(g, weight, out, each);
}

static bool cost_global_pool(struct graph *g, const struct node *n, uint64_t weight,
                             struct shape *out)
{
    if (!cost_same(g, n, weight, out))
        return false;
    for (size_t i = 2; i < out->rank; i++)
        out->dims[i] = 1;
    return true;
}

static bool cost_cast(struct graph *g, const struct node *n, uint64_t weight, struct shape *out)
{
    int64_t to;

    g->other_types = true;
    return number_of(n, "to", 0, &to) && to > 0 && is_fine_type((uint64_t)to) &&
           cost_same(g, n, weight, out);
}

static const struct {
    const char *name;
    rule_fn rule;
    uint64_t weight;
} ops[] = {
    {"Add", cost_elementwise, COST_PLAIN},
    {"Sub", cost_elementwise, COST_PLAIN},
    {"Mul", cost_elementwise, COST_PLAIN},
    {"Div", cost_elementwise, COST_DIVISION},
    {"Pow", cost_elementwise, COST_POWER},
    {"Min", cost_elementwise, COST_PLAIN},
    {"Max", cost_elementwise, COST_PLAIN},
    {"Sum", cost_elementwise, COST_PLAIN},
    {"Mean", cost_elementwise, COST_DIVISION},
    {"And", cost_elementwise, COST_PLAIN},
    {"Or", cost_elementwise, COST_PLAIN},
    {"Xor", cost_elementwise, COST_PLAIN},
    {"Equal", cost_elementwise, COST_PLAIN},
    {"Less", cost_elementwise, COST_PLAIN},
    {"LessOrEqual", cost_elementwise, COST_PLAIN},
    {"Greater", cost_elementwise, COST_PLAIN},
    {"GreaterOrEqual", cost_elementwise, COST_PLAIN},
    {"Where", cost_elementwise, COST_PLAIN},
    {"PRelu", cost_elementwise, COST_PLAIN},
    {"Identity", cost_same, COST_PLAIN},
    {"Abs", cost_same, COST_PLAIN},
    {"Neg", cost_same, COST_PLAIN},
    {"Not", cost_same, COST_PLAIN},
    {"Relu", cost_same, COST_PLAIN},
    {"LeakyRelu", cost_same, COST_PLAIN},
    {"Clip", cost_same, COST_PLAIN},
    {"Floor", cost_same, COST_PLAIN},
    {"Ceil", cost_same, COST_PLAIN},
    {"Round", cost_same, COST_DIVISION},
    {"Sign", cost_same, COST_PLAIN},
    {"Dropout", cost_same, COST_PLAIN},
    {"HardSigmoid", cost_same, COST_PLAIN},
    {"HardSwish", cost_same, COST_PLAIN},
    {"Sqrt", cost_same, COST_DIVISION},
    {"Reciprocal", cost_same, COST_DIVISION},
    {"BatchNormalization", cost_same, COST_DIVISION},
    {"LayerNormalization", cost_same, COST_DIVISION},
    {"InstanceNormalization", cost_same, COST_DIVISION},
    {"Exp", cost_same, COST_FUNCTION},
    {"Log", cost_same, COST_FUNCTION},
    {"Sin", cost_same, COST_FUNCTION},
    {"Cos", cost_same, COST_FUNCTION},
    {"Tanh", cost_same, COST_FUNCTION},
    {"Sigmoid", cost_same, COST_FUNCTION},
    {"Erf", cost_same, COST_FUNCTION},
    {"Gelu", cost_same, COST_FUNCTION},
    {"Elu", cost_same, COST_FUNCTION},
    {"Selu", cost_same, COST_FUNCTION},
    {"Softplus", cost_same, COST_FUNCTION},
    {"Softmax", cost_same, COST_FUNCTION},
    {"LogSoftmax", cost_same, COST_FUNCTION},
    {"Cast", cost_cast, COST_PLAIN},
    {"Flatten", cost_flatten, COST_PLAIN},
    {"Reshape", cost_reshape, COST_PLAIN},
    {"Transpose", cost_transpose, COST_DIVISION},
    {"Concat", cost_concat, COST_PLAIN},
    {"Gemm", cost_gemm, COST_PLAIN},
    {"MatMul", cost_matmul, COST_PLAIN},
    {"Conv", cost_conv, COST_PLAIN},
    {"MaxPool", cost_pool, COST_PLAIN},
    {"AveragePool", cost_pool, COST_PLAIN},
    {"GlobalAveragePool", cost_global_pool, COST_PLAIN},
    {"GlobalMaxPool", cost_global_pool, COST_PLAIN},
};

static bool add_node(struct graph *g, struct message_bytes b)
{
    struct node n;

    if (!read_node(b, &n) || !cost_add(&g->cost, COST_OPERATOR, 1))
        return false;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        struct tensor out = {.name = n.output};

        if (message_is_text(&n.op, ops[i].name))
            return ops[i].rule(g, &n, ops[i].weight, &out.shape) && add_tensor(g, &out);
    }
    return false;
}

/* ---- Graph ---------------------------------------------------------------------------------- */

enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_SPARSE = 15 };
enum { MODEL_GRAPH = 7, MODEL_FUNCTION = 25 };

/* The fields of a graph come in any order, so three walks read the inputs, the values, and the
 * nodes. */
static bool walk_graph(struct graph *g, struct message_bytes b, uint32_t which)
{
    struct tensor t;
    struct message_field f;

    while (b.at < b.end) {
        if (!message_next(&b, &f) || f.number == GRAPH_SPARSE)
            return false;
        if (f.number != which)
            continue;
        if (which == GRAPH_INPUT && !read_graph_input(g, f.bytes))
            return false;
        if (which == GRAPH_INITIALIZER && !(read_constant_tensor(f.bytes, &t) && add_tensor(g, &t)))
            return false;
        if (which == GRAPH_NODE && !add_node(g, f.bytes))
            return false;
    }
    return true;
}

static bool walk_model(struct graph *g, struct message_bytes b)
{
    struct message_bytes graph = {0};
    struct message_field f;

    while (b.at < b.end) {
        if (!message_next(&b, &f) || f.number == MODEL_FUNCTION ||
            (f.number == MODEL_GRAPH && graph.at))
            return false;
        if (f.number == MODEL_GRAPH)
            graph = f.bytes;
    }
    return graph.at && walk_graph(g, graph, GRAPH_INPUT) &&
           walk_graph(g, graph, GRAPH_INITIALIZER) && walk_graph(g, graph, GRAPH_NODE);
}

static unsigned char *read_model_file(const char *path, size_t *ret_size)
{
    unsigned char *bytes = malloc(MAX_FILE_BYTES);
    FILE *f = bytes ? fopen(path, "re") : NULL;
    size_t n = f ? fread(bytes, 1, MAX_FILE_BYTES, f) : 0;

    if (f)
        fclose(f);
    if (n == 0 || n == MAX_FILE_BYTES) {
        free(bytes);
        return NULL;
    }
    *ret_size = n;
    return bytes;
}

bool onnx_cost_is_small(const char *file, int64_t batch, uint64_t *ret_cost)
{
    size_t size;
    unsigned char *bytes = read_model_file(file, &size);
    struct graph *g = bytes ? calloc(1, sizeof(*g)) : NULL;
    bool small = false;

    if (g) {
        g->batch = batch;
        small = walk_model(g, (struct message_bytes){bytes, bytes + size});
        *ret_cost = g->cost;
    }
    free(g);
    free(bytes);
    return small;
}
