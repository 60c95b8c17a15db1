/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file has the shapes of all tensors, so each layer is judged by itself, from the shapes of its
 * ports. An open dimension is -1 in the file. The batch is the only one that may be open, and only
 * as the first: the inputs have it there, and each rule sees to it that an open first dimension of
 * a layer's output is the batch again.
 *
 * What an operator costs is in ops[]; each layer adds the overhead of a framework.
 */
#include "openvino/ir_cost.h"

#include <stdlib.h>
#include <string.h>

#include "openvino/ir.h"

enum {
    MAX_DIMS = 8,
    MAX_PORTS = 16,
};

#define MOST_ELEMENTS ((uint64_t)16 * COST_SMALL)

struct port {
    size_t rank;
    int64_t dims[MAX_DIMS];
    bool open;      /* the first dimension is the batch; dims[0] is that number then */
    bool other;     /* its type is a number or a boolean, but not FP32 */
    uint64_t n;     /* elements */
    uint64_t n_row; /* without the first dimension, if that is open; else as n */
};

struct ports {
    struct port all[MAX_PORTS];
    size_t n;
};

struct layer {
    struct span type, version;
    const char *data; /* the tag with its attributes; NULL: none */
    struct ports in, out;
    struct ports *reading; /* of these two; NULL: neither */
    struct port *port;     /* whose dimensions are read; NULL: none */
};

struct run {
    int64_t batch;
    uint64_t cost;
};

/* ---- Ports ----------------------------------------------------------------------------------- */

static bool read_whole_number(const char *at, int64_t *ret_number)
{
    char *end;
    long long number = strtoll(at, &end, 10);

    if (end == at || number < -1 || number == 0 || number > (long long)MOST_ELEMENTS)
        return false;
    *ret_number = number;
    return true;
}

static bool begin_port(struct layer *l, const char *tag)
{
    static const char *const others[] = {"FP16", "BF16", "I8",  "I16", "I32",  "I64",
                                         "U8",   "U16",  "U32", "U64", "BOOL", NULL};
    struct span type = ir_attribute(tag, "precision");
    const char *const *other = others;

    while (*other && !ir_is(type, *other))
        other++;
    if (l->reading->n == MAX_PORTS || (!*other && !ir_is(type, "FP32")))
        return false;
    l->port = &l->reading->all[l->reading->n++];
    *l->port = (struct port){.other = *other != NULL, .n = 1, .n_row = 1};
    return true;
}

static bool add_dim(const struct run *r, struct port *p, const char *tag)
{
    bool open;
    int64_t dim;

    if (p->rank == MAX_DIMS || !read_whole_number(tag + strlen("<dim>"), &dim))
        return false;
    open = dim < 0;
    if (open && (p->rank > 0 || r->batch <= 0))
        return false;
    if (open)
        dim = r->batch;
    p->open |= open;
    p->dims[p->rank++] = dim;
    /* The product has room: a number of elements is at most MOST_ELEMENTS, a batch below 2^32. */
    p->n *= (uint64_t)dim;
    if (!open)
        p->n_row *= (uint64_t)dim;
    return p->n <= MOST_ELEMENTS && p->n_row <= MOST_ELEMENTS;
}

static bool has_open(const struct ports *all)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->all[i].open)
            return true;
    return false;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* Adds what a layer costs; false: that is not known, or too much. An output that is open is the
 * batch if this is so for the inputs. */
typedef bool (*rule_fn)(struct run *r, const struct layer *l, uint64_t weight);

/* An open dimension that no input has would have another reason. */
static bool follows_inputs(const struct layer *l)
{
    return l->in.n > 0 && l->out.n > 0 && (!has_open(&l->out) || has_open(&l->in));
}

static uint64_t most_elements(const struct layer *l)
{
    uint64_t most = 0;

    for (size_t i = 0; i < l->in.n; i++)
        most = l->in.all[i].n > most ? l->in.all[i].n : most;
    for (size_t i = 0; i < l->out.n; i++)
        most = l->out.all[i].n > most ? l->out.all[i].n : most;
    return most;
}

/* Elements alone, sums over dimensions, or a function of rows: an output's first dimension is that
 * of an input. */
static bool add_elements(struct run *r, const struct layer *l, uint64_t weight)
{
    return follows_inputs(l) && cost_add(&r->cost, weight, most_elements(l));
}

static bool add_nothing(struct run *r, const struct layer *l, uint64_t weight)
{
    (void)r;
    (void)weight;
    return !has_open(&l->out);
}

static bool add_end(struct run *r, const struct layer *l, uint64_t weight)
{
    (void)r;
    (void)l;
    (void)weight;
    return true;
}

static bool add_given(struct run *r, const struct layer *l, uint64_t weight)
{
    return l->out.n == 1 && cost_add(&r->cost, weight, l->out.all[0].n);
}

/* The same elements in another shape: the batch stays the batch if a row has as many as before. */
static bool add_shape(struct run *r, const struct layer *l, uint64_t weight)
{
    if (!follows_inputs(l) || l->out.n != 1)
        return false;
    if (l->out.all[0].open && (!l->in.all[0].open || l->in.all[0].n_row != l->out.all[0].n_row))
        return false;
    return cost_add(&r->cost, weight, most_elements(l));
}

/* Parts of a tensor, at places that values decide: of a known size. */
static bool add_known(struct run *r, const struct layer *l, uint64_t weight)
{
    return !has_open(&l->out) && add_elements(r, l, weight);
}

static bool is_true(const struct layer *l, const char *attribute)
{
    return l->data && ir_is(ir_attribute(l->data, attribute), "true");
}

static bool add_product(struct run *r, const struct layer *l, uint64_t each)
{
    const struct port *out = &l->out.all[0];

    if (l->in.all[0].other || l->in.all[1].other || out->other)
        each = each <= COST_SMALL ? each * COST_OTHER_TYPES : each;
    return cost_add(&r->cost, each, out->n);
}

static bool add_matmul(struct run *r, const struct layer *l, uint64_t weight)
{
    const struct port *a = &l->in.all[0], *b = &l->in.all[1];
    bool turned = is_true(l, "transpose_a");

    (void)weight;
    if (!follows_inputs(l) || l->in.n != 2 || l->out.n != 1 || a->rank < 2 || b->rank < 2 ||
        (a->open && a->rank == 2 && turned) || (b->open && b->rank == 2))
        return false;
    return add_product(r, l, (uint64_t)a->dims[a->rank - (turned ? 2 : 1)]);
}

/* @weight  dimensions of the weights that the output's elements differ in */
static bool add_convolution(struct run *r, const struct layer *l, uint64_t weight)
{
    const struct port *weights = &l->in.all[1];
    uint64_t each = 1;

    if (!follows_inputs(l) || l->in.n != 2 || l->out.n != 1 || weights->open ||
        weights->rank <= weight)
        return false;
    for (size_t i = weight; i < weights->rank; i++)
        each *= (uint64_t)weights->dims[i]; /* at most weights->n */
    return add_product(r, l, each);
}

static bool add_pool(struct run *r, const struct layer *l, uint64_t weight)
{
    struct span kernel = l->data ? ir_attribute(l->data, "kernel") : (struct span){0};
    uint64_t each = weight;

    if (!follows_inputs(l) || kernel.at == kernel.end)
        return false;
    for (const char *at = kernel.at; at < kernel.end;) {
        int64_t size;

        if (!read_whole_number(at, &size) || size < 1 ||
            __builtin_mul_overflow(each, (uint64_t)size, &each))
            return false;
        at = memchr(at, ',', (size_t)(kernel.end - at));
        at = at ? at + 1 : kernel.end;
    }
    return cost_add(&r->cost, each, l->out.all[0].n);
}

/* Batches one behind the other are another batch. */
static bool add_joined(struct run *r, const struct layer *l, uint64_t weight)
{
    struct span axis = l->data ? ir_attribute(l->data, "axis") : (struct span){0};

    if (has_open(&l->out) && (axis.at == axis.end || *axis.at < '1' || *axis.at > '9'))
        return false;
    return add_elements(r, l, weight);
}

static const struct {
    const char *name;
    rule_fn rule;
    uint64_t weight;
} ops[] = {
    {"Parameter", add_given, COST_PLAIN},
    {"Const", add_nothing, COST_PLAIN},
    {"Result", add_end, COST_PLAIN},
    {"Add", add_elements, COST_PLAIN},
    {"Subtract", add_elements, COST_PLAIN},
    {"Multiply", add_elements, COST_PLAIN},
    {"Divide", add_elements, COST_DIVISION},
    {"Power", add_elements, COST_POWER},
    {"Minimum", add_elements, COST_PLAIN},
    {"Maximum", add_elements, COST_PLAIN},
    {"SquaredDifference", add_elements, COST_PLAIN},
    {"LogicalAnd", add_elements, COST_PLAIN},
    {"LogicalOr", add_elements, COST_PLAIN},
    {"LogicalXor", add_elements, COST_PLAIN},
    {"LogicalNot", add_elements, COST_PLAIN},
    {"Equal", add_elements, COST_PLAIN},
    {"NotEqual", add_elements, COST_PLAIN},
    {"Less", add_elements, COST_PLAIN},
    {"LessEqual", add_elements, COST_PLAIN},
    {"Greater", add_elements, COST_PLAIN},
    {"GreaterEqual", add_elements, COST_PLAIN},
    {"Select", add_elements, COST_PLAIN},
    {"PReLU", add_elements, COST_PLAIN},
    {"ReLU", add_elements, COST_PLAIN},
    {"Clamp", add_elements, COST_PLAIN},
    {"Abs", add_elements, COST_PLAIN},
    {"Negative", add_elements, COST_PLAIN},
    {"Sign", add_elements, COST_PLAIN},
    {"Floor", add_elements, COST_PLAIN},
    {"Ceiling", add_elements, COST_PLAIN},
    {"Round", add_elements, COST_DIVISION},
    {"HardSigmoid", add_elements, COST_PLAIN},
    {"HSigmoid", add_elements, COST_DIVISION},
    {"HSwish", add_elements, COST_DIVISION},
    {"Sqrt", add_elements, COST_DIVISION},
    {"FakeQuantize", add_elements, COST_FUNCTION},
    {"BatchNormInference", add_elements, COST_DIVISION},
    {"MVN", add_elements, COST_FUNCTION},
    {"Exp", add_elements, COST_FUNCTION},
    {"Log", add_elements, COST_FUNCTION},
    {"Sin", add_elements, COST_FUNCTION},
    {"Cos", add_elements, COST_FUNCTION},
    {"Tanh", add_elements, COST_FUNCTION},
    {"Sigmoid", add_elements, COST_FUNCTION},
    {"Swish", add_elements, COST_FUNCTION},
    {"Mish", add_elements, COST_POWER},
    {"Erf", add_elements, COST_FUNCTION},
    {"Gelu", add_elements, COST_FUNCTION},
    {"Elu", add_elements, COST_FUNCTION},
    {"Selu", add_elements, COST_FUNCTION},
    {"SoftPlus", add_elements, COST_FUNCTION},
    {"SoftMax", add_elements, COST_FUNCTION},
    {"Softmax", add_elements, COST_FUNCTION},
    {"LogSoftmax", add_elements, COST_FUNCTION},
    {"TopK", add_elements, COST_POWER},
    {"ReduceMean", add_elements, COST_DIVISION},
    {"ReduceSum", add_elements, COST_PLAIN},
    {"ReduceMax", add_elements, COST_PLAIN},
    {"ReduceMin", add_elements, COST_PLAIN},
    {"ReduceProd", add_elements, COST_PLAIN},
    {"Convert", add_elements, COST_PLAIN},
    {"Reshape", add_shape, COST_PLAIN},
    {"Squeeze", add_shape, COST_PLAIN},
    {"Unsqueeze", add_shape, COST_PLAIN},
    {"Transpose", add_shape, COST_DIVISION},
    {"ShapeOf", add_known, COST_PLAIN},
    {"Gather", add_known, COST_DIVISION},
    {"Slice", add_known, COST_DIVISION},
    {"StridedSlice", add_known, COST_DIVISION},
    {"Split", add_known, COST_PLAIN},
    {"VariadicSplit", add_known, COST_PLAIN},
    {"Concat", add_joined, COST_PLAIN},
    {"MatMul", add_matmul, COST_PLAIN},
    {"Convolution", add_convolution, 1},
    {"GroupConvolution", add_convolution, 2},
    {"MaxPool", add_pool, COST_PLAIN},
    {"AvgPool", add_pool, COST_PLAIN},
};

/* Operators of OpenVINO are of a set "opset1" or a later one. */
static bool add_layer(struct run *r, const struct layer *l)
{
    size_t len = (size_t)(l->version.end - l->version.at);

    if (len <= strlen("opset") || strncmp(l->version.at, "opset", strlen("opset")) != 0)
        return false;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (ir_is(l->type, ops[i].name))
            return (ops[i].rule == add_nothing || cost_add(&r->cost, COST_OPERATOR, 1)) &&
                   ops[i].rule(r, l, ops[i].weight);
    return false;
}

/* ---- The graph ------------------------------------------------------------------------------- */

static bool judge_layer(struct run *r, struct layer *l)
{
    bool small = !l->type.at || add_layer(r, l);

    memset(l, 0, sizeof(*l));
    return small;
}

static bool judge_tag(struct run *r, struct layer *l, const char *at)
{
    if (ir_is_tag(at, "<layer ")) {
        if (!judge_layer(r, l)) /* one that is a single tag has no end of its own */
            return false;
        l->type = ir_attribute(at, "type");
        l->version = ir_attribute(at, "version");
    } else if (ir_is_tag(at, "</layer>")) {
        return judge_layer(r, l);
    } else if (ir_is_tag(at, "<body") || ir_is_tag(at, "<!")) {
        return false; /* a loop's body, a comment */
    } else if (ir_is_tag(at, "<data ")) {
        l->data = at;
    } else if (ir_is_tag(at, "<input>") || ir_is_tag(at, "<output>")) {
        l->reading = at[1] == 'i' ? &l->in : &l->out;
    } else if (ir_is_tag(at, "<port ")) {
        return l->reading && begin_port(l, at);
    } else if (ir_is_tag(at, "<dim>")) {
        return l->port && add_dim(r, l->port, at);
    }
    return true;
}

bool ir_cost_is_small(const char *text, int64_t batch, uint64_t *ret_cost)
{
    struct layer *l = calloc(1, sizeof(*l));
    struct run r = {.batch = batch};
    bool small = l != NULL;

    for (const char *at = ir_find_char(text, '<'); small && *at; at = ir_find_char(at + 1, '<'))
        small = judge_tag(&r, l, at);
    small = small && judge_layer(&r, l) && r.cost > 0;
    free(l);
    if (small)
        *ret_cost = r.cost;
    return small;
}
