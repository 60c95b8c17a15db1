/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file has the shapes of all tensors, so each layer is judged by itself, from the shapes of its
 * ports. An open dimension is -1 in the file. The batch is the only one that may be open, and only
 * as the first: the inputs have it there, and each rule sees to it that an open first dimension of
 * a layer's output is the batch again.
 *
 * Work is counted as in onnxruntime/cost.c: an element of a sum or a copy is one multiplication,
 * others are more (ops[]); each layer adds the overhead of OpenVINO. It is an upper estimate:
 * fusions only lessen it.
 */
#include "openvino/work.h"

#include <stdlib.h>
#include <string.h>

#include "onnxruntime/cost.h"
#include "openvino/ir.h"

enum {
    MAX_DIMS = 8,
    MAX_PORTS = 16,
    LAYER_WORK = 2000,
    OTHER_TYPES = 8, /* how much longer a product takes with elements other than FP32 */
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

struct work {
    int64_t batch;
    uint64_t spent;
};

static bool spend_some(struct work *w, uint64_t times, uint64_t n)
{
    uint64_t work;

    if (__builtin_mul_overflow(times, n, &work) || work > COST_SMALL ||
        w->spent + work > COST_SMALL)
        return false;
    w->spent += work;
    return true;
}

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

static bool add_dim(const struct work *w, struct port *p, const char *tag)
{
    bool open;
    int64_t dim;

    if (p->rank == MAX_DIMS || !read_whole_number(tag + strlen("<dim>"), &dim))
        return false;
    open = dim < 0;
    if (open && (p->rank > 0 || w->batch <= 0))
        return false;
    if (open)
        dim = w->batch;
    p->open |= open;
    p->dims[p->rank++] = dim;
    /* Both factors are at most MOST_ELEMENTS, far below the square root of the type's largest. */
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

/* Spends what a layer takes; false: it is not known, or too much. An output that is open is the
 * batch if this is so for the inputs. */
typedef bool (*rule_fn)(struct work *w, const struct layer *l, uint64_t weight);

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
static bool spend_elements(struct work *w, const struct layer *l, uint64_t weight)
{
    return follows_inputs(l) && spend_some(w, weight, most_elements(l));
}

static bool spend_nothing(struct work *w, const struct layer *l, uint64_t weight)
{
    (void)w;
    (void)weight;
    return !has_open(&l->out);
}

static bool spend_end(struct work *w, const struct layer *l, uint64_t weight)
{
    (void)w;
    (void)l;
    (void)weight;
    return true;
}

static bool spend_given(struct work *w, const struct layer *l, uint64_t weight)
{
    return l->out.n == 1 && spend_some(w, weight, l->out.all[0].n);
}

/* The same elements in another shape: the batch stays the batch if a row has as many as before. */
static bool spend_shape(struct work *w, const struct layer *l, uint64_t weight)
{
    if (!follows_inputs(l) || l->out.n != 1)
        return false;
    if (l->out.all[0].open && (!l->in.all[0].open || l->in.all[0].n_row != l->out.all[0].n_row))
        return false;
    return spend_some(w, weight, most_elements(l));
}

/* Parts of a tensor, at places that values decide: of a known size. */
static bool spend_known(struct work *w, const struct layer *l, uint64_t weight)
{
    return !has_open(&l->out) && spend_elements(w, l, weight);
}

static bool is_true(const struct layer *l, const char *attribute)
{
    return l->data && ir_is(ir_attribute(l->data, attribute), "true");
}

static bool spend_product(struct work *w, const struct layer *l, uint64_t each)
{
    const struct port *out = &l->out.all[0];
    uint64_t times;

    if (l->in.all[0].other || l->in.all[1].other || out->other)
        each = each <= COST_SMALL ? each * OTHER_TYPES : each;
    return !__builtin_mul_overflow(each, out->n, &times) && spend_some(w, 1, times);
}

static bool spend_matmul(struct work *w, const struct layer *l, uint64_t weight)
{
    const struct port *a = &l->in.all[0], *b = &l->in.all[1];
    bool turned = is_true(l, "transpose_a");

    (void)weight;
    if (!follows_inputs(l) || l->in.n != 2 || l->out.n != 1 || a->rank < 2 || b->rank < 2 ||
        (a->open && a->rank == 2 && turned) || (b->open && b->rank == 2))
        return false;
    return spend_product(w, l, (uint64_t)a->dims[a->rank - (turned ? 2 : 1)]);
}

/* @before  dimensions of the weights that the output's elements differ in */
static bool spend_window(struct work *w, const struct layer *l, size_t before)
{
    const struct port *weights = &l->in.all[1];
    uint64_t each = 1;

    if (!follows_inputs(l) || l->in.n != 2 || l->out.n != 1 || weights->open ||
        weights->rank <= before)
        return false;
    for (size_t i = before; i < weights->rank; i++)
        each *= (uint64_t)weights->dims[i]; /* at most weights->n, or zeroes */
    return spend_product(w, l, each);
}

static bool spend_convolution(struct work *w, const struct layer *l, uint64_t weight)
{
    return spend_window(w, l, weight);
}

static bool spend_pool(struct work *w, const struct layer *l, uint64_t weight)
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
    return spend_some(w, each, l->out.all[0].n);
}

/* Batches one behind the other are another batch. */
static bool spend_joined(struct work *w, const struct layer *l, uint64_t weight)
{
    struct span axis = l->data ? ir_attribute(l->data, "axis") : (struct span){0};

    if (has_open(&l->out) && (axis.at == axis.end || *axis.at < '1' || *axis.at > '9'))
        return false;
    return spend_elements(w, l, weight);
}

/* The cost of an element in multiplications, as in slow libraries. */
enum { PLAIN = 1, DIVISION = 4, FUNCTION = 16, POWER = 32 };

static const struct {
    const char *name;
    rule_fn rule;
    uint64_t weight;
} ops[] = {
    {"Parameter", spend_given, PLAIN},
    {"Const", spend_nothing, PLAIN},
    {"Result", spend_end, PLAIN},
    {"Add", spend_elements, PLAIN},
    {"Subtract", spend_elements, PLAIN},
    {"Multiply", spend_elements, PLAIN},
    {"Divide", spend_elements, DIVISION},
    {"Power", spend_elements, POWER},
    {"Minimum", spend_elements, PLAIN},
    {"Maximum", spend_elements, PLAIN},
    {"SquaredDifference", spend_elements, PLAIN},
    {"LogicalAnd", spend_elements, PLAIN},
    {"LogicalOr", spend_elements, PLAIN},
    {"LogicalXor", spend_elements, PLAIN},
    {"LogicalNot", spend_elements, PLAIN},
    {"Equal", spend_elements, PLAIN},
    {"NotEqual", spend_elements, PLAIN},
    {"Less", spend_elements, PLAIN},
    {"LessEqual", spend_elements, PLAIN},
    {"Greater", spend_elements, PLAIN},
    {"GreaterEqual", spend_elements, PLAIN},
    {"Select", spend_elements, PLAIN},
    {"PReLU", spend_elements, PLAIN},
    {"ReLU", spend_elements, PLAIN},
    {"Clamp", spend_elements, PLAIN},
    {"Abs", spend_elements, PLAIN},
    {"Negative", spend_elements, PLAIN},
    {"Sign", spend_elements, PLAIN},
    {"Floor", spend_elements, PLAIN},
    {"Ceiling", spend_elements, PLAIN},
    {"Round", spend_elements, DIVISION},
    {"HardSigmoid", spend_elements, PLAIN},
    {"HSigmoid", spend_elements, DIVISION},
    {"HSwish", spend_elements, DIVISION},
    {"Sqrt", spend_elements, DIVISION},
    {"FakeQuantize", spend_elements, FUNCTION},
    {"BatchNormInference", spend_elements, DIVISION},
    {"MVN", spend_elements, FUNCTION},
    {"Exp", spend_elements, FUNCTION},
    {"Log", spend_elements, FUNCTION},
    {"Sin", spend_elements, FUNCTION},
    {"Cos", spend_elements, FUNCTION},
    {"Tanh", spend_elements, FUNCTION},
    {"Sigmoid", spend_elements, FUNCTION},
    {"Swish", spend_elements, FUNCTION},
    {"Mish", spend_elements, POWER},
    {"Erf", spend_elements, FUNCTION},
    {"Gelu", spend_elements, FUNCTION},
    {"Elu", spend_elements, FUNCTION},
    {"Selu", spend_elements, FUNCTION},
    {"SoftPlus", spend_elements, FUNCTION},
    {"SoftMax", spend_elements, FUNCTION},
    {"Softmax", spend_elements, FUNCTION},
    {"LogSoftmax", spend_elements, FUNCTION},
    {"TopK", spend_elements, POWER},
    {"ReduceMean", spend_elements, DIVISION},
    {"ReduceSum", spend_elements, PLAIN},
    {"ReduceMax", spend_elements, PLAIN},
    {"ReduceMin", spend_elements, PLAIN},
    {"ReduceProd", spend_elements, PLAIN},
    {"Convert", spend_elements, PLAIN},
    {"Reshape", spend_shape, PLAIN},
    {"Squeeze", spend_shape, PLAIN},
    {"Unsqueeze", spend_shape, PLAIN},
    {"Transpose", spend_shape, DIVISION},
    {"ShapeOf", spend_known, PLAIN},
    {"Gather", spend_known, DIVISION},
    {"Slice", spend_known, DIVISION},
    {"StridedSlice", spend_known, DIVISION},
    {"Split", spend_known, PLAIN},
    {"VariadicSplit", spend_known, PLAIN},
    {"Concat", spend_joined, PLAIN},
    {"MatMul", spend_matmul, PLAIN},
    {"Convolution", spend_convolution, 1},
    {"GroupConvolution", spend_convolution, 2},
    {"MaxPool", spend_pool, PLAIN},
    {"AvgPool", spend_pool, PLAIN},
};

/* Operators of OpenVINO are of a set "opset1" or a later one. */
static bool spend_layer(struct work *w, const struct layer *l)
{
    size_t len = (size_t)(l->version.end - l->version.at);

    if (len <= strlen("opset") || strncmp(l->version.at, "opset", strlen("opset")) != 0)
        return false;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (ir_is(l->type, ops[i].name))
            return (ops[i].rule == spend_nothing || spend_some(w, LAYER_WORK, 1)) &&
                   ops[i].rule(w, l, ops[i].weight);
    return false;
}

/* ---- The graph ------------------------------------------------------------------------------- */

static bool judge_layer(struct work *w, struct layer *l)
{
    bool small = !l->type.at || spend_layer(w, l);

    memset(l, 0, sizeof(*l));
    return small;
}

static bool judge_tag(struct work *w, struct layer *l, const char *at)
{
    if (ir_is_tag(at, "<layer ")) {
        if (!judge_layer(w, l)) /* one that is a single tag has no end of its own */
            return false;
        l->type = ir_attribute(at, "type");
        l->version = ir_attribute(at, "version");
    } else if (ir_is_tag(at, "</layer>")) {
        return judge_layer(w, l);
    } else if (ir_is_tag(at, "<body") || ir_is_tag(at, "<!")) {
        return false; /* a loop's body, a comment */
    } else if (ir_is_tag(at, "<data ")) {
        l->data = at;
    } else if (ir_is_tag(at, "<input>") || ir_is_tag(at, "<output>")) {
        l->reading = at[1] == 'i' ? &l->in : &l->out;
    } else if (ir_is_tag(at, "<port ")) {
        return l->reading && begin_port(l, at);
    } else if (ir_is_tag(at, "<dim>")) {
        return l->port && add_dim(w, l->port, at);
    }
    return true;
}

bool work_is_small(const char *text, int64_t batch, uint64_t *ret_work)
{
    struct layer *l = calloc(1, sizeof(*l));
    struct work w = {.batch = batch};
    bool small = l != NULL;

    for (const char *at = ir_find_char(text, '<'); small && *at; at = ir_find_char(at + 1, '<'))
        small = judge_tag(&w, l, at);
    small = small && judge_layer(&w, l) && w.spent > 0;
    free(l);
    if (small)
        *ret_work = w.spent;
    return small;
}
