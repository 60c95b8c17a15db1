/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages and their fields, besides those in graph.c:
 *
 *     FunctionDefLibrary  2 gradient: GradientDef, several
 *     GradientDef         1 function_name, 2 gradient_func
 *     AttrValue           8 tensor: TensorProto
 *     TensorProto         2 tensor_shape
 *     TensorShapeProto    2 dim (1 size)
 *
 * protobuf joins a message that stands twice where one belongs. No program writes such files, and
 * TensorFlow would read them otherwise than this code, so they are malformed here.
 *
 * Functions are taken from those that no function calls to those that are called: a function that
 * is never taken is in a circle, or is called from one. What a node names counts as a call, whether
 * it is executed or not. A function that a node passes to another function, in an attribute of that
 * one's name, counts as called by the node's own function: the other may call it. A node of
 * SymbolicGradient has TensorFlow call the gradients of functions, of all that its own may reach.
 */
#include "tensorflow/graph_check.h"

#include <stdlib.h>

#include "tensorflow/graph.h"

enum {
    MAX_TENSOR_RANK = 254, /* TensorFlow's own */
    MAX_CALL_DEPTH = 256,  /* 1000 take TensorFlow minutes to load, and with 5000 a stack ends */
    MAX_NODES = 4000000,   /* and functions; an empty one is two bytes of a file, and 72 here */
};

struct function {
    struct message_bytes name, body;
    struct function *gradient; /* NULL: the file names none */
    size_t first_call;         /* its calls end where those of the next function begin */
    size_t n_callers;
    size_t depth; /* calls that lead to it */
};

struct check {
    struct function *functions; /* sorted by name, and one more, which ends the calls */
    size_t n;
    struct function **calls; /* who is called */
    size_t n_calls, room;
    size_t n_nodes; /* of the graph and of functions, and the functions */
    bool in_graph;  /* its calls begin no circle, and are not noted */
    bool has_gradient_node;
    const char *flaw; /* NULL: none is found yet */
    bool no_memory;
};

static bool tell_flaw(struct check *c, const char *flaw)
{
    c->flaw = flaw;
    return false;
}

static bool tell_damage(struct check *c)
{
    return tell_flaw(c, "it is damaged");
}

static bool count_nodes(struct check *c, size_t more)
{
    c->n_nodes += more;
    return c->n_nodes <= MAX_NODES || tell_flaw(c, "it has more than 4000000 nodes and functions");
}

/* ---- Functions ------------------------------------------------------------------------------- */

static int compare_functions(const void *a, const void *b)
{
    return message_compare(&((const struct function *)a)->name,
                           &((const struct function *)b)->name);
}

static bool list_functions(struct check *c, struct message_bytes library)
{
    struct message_bytes b = library, signature;
    struct message_field f;
    size_t n = 0;

    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return tell_damage(c);
        n += f.is_bytes && f.number == 1;
    }
    if (!count_nodes(c, n))
        return false;
    c->functions = calloc(n + 1, sizeof(*c->functions));
    c->no_memory = !c->functions;
    for (b = library; c->functions && b.at < b.end && message_next(&b, &f);) {
        struct function *to = &c->functions[c->n];

        if (!f.is_bytes || f.number != 1)
            continue;
        to->body = f.bytes;
        if (!message_find_single(f.bytes, 1, &signature) ||
            !message_find_single(signature, 1, &to->name))
            return tell_damage(c);
        c->n++;
    }
    if (c->n > 0)
        qsort(c->functions, c->n, sizeof(*c->functions), compare_functions);
    return !c->no_memory;
}

static struct function *find_library_function(const struct check *c, struct message_bytes name)
{
    struct function key = {.name = name};

    return c->n > 0 ? bsearch(&key, c->functions, c->n, sizeof(key), compare_functions) : NULL;
}

static bool find_gradients(struct check *c, struct message_bytes library)
{
    struct message_bytes name, gradient;
    struct message_field f;

    while (library.at < library.end) {
        if (!message_next(&library, &f))
            return tell_damage(c);
        if (!f.is_bytes || f.number != 2)
            continue;
        if (!message_find_single(f.bytes, 1, &name) || !message_find_single(f.bytes, 2, &gradient))
            return tell_damage(c);
        struct function *of = find_library_function(c, name);

        if (of)
            of->gradient = find_library_function(c, gradient);
    }
    return true;
}

/* Notes a call, if there is such a function. */
static bool add_call(struct check *c, struct message_bytes name)
{
    struct function *callee = c->in_graph ? NULL : find_library_function(c, name);

    if (!callee)
        return true;
    if (c->n_calls == c->room) {
        size_t room = c->room * 2 + 64;
        struct function **grown = reallocarray(c->calls, room, sizeof(struct function *));

        c->no_memory = !grown;
        if (!grown)
            return false;
        c->calls = grown;
        c->room = room;
    }
    c->calls[c->n_calls++] = callee;
    callee->n_callers++;
    return true;
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

static bool check_tensor_shape(struct check *c, struct message_bytes shape)
{
    struct message_field f, size;
    int64_t n = 1;
    int rank = 0;

    while (shape.at < shape.end) {
        int64_t dim = 0;

        if (!message_next(&shape, &f))
            return tell_damage(c);
        if (f.number != 2 || !f.is_bytes)
            continue;
        while (f.bytes.at < f.bytes.end) {
            if (!message_next(&f.bytes, &size))
                return tell_damage(c);
            if (size.number == 1 && !size.is_bytes)
                dim = (int64_t)size.value;
        }
        if (++rank > MAX_TENSOR_RANK)
            return tell_flaw(c, "it has a constant of more than 254 dimensions");
        /* TensorFlow tells of dimensions below 0. */
        if (dim >= 0 && __builtin_mul_overflow(n, dim, &n))
            return tell_flaw(c, "it has a constant of more than 2^63 elements");
    }
    return true;
}

static bool check_tensor_proto(struct check *c, struct message_bytes tensor)
{
    struct message_bytes shape;

    return message_find_single(tensor, 2, &shape) ? check_tensor_shape(c, shape) : tell_damage(c);
}

static bool check_attribute(struct check *c, struct message_bytes entry, int nested);

/* @nested  how many attributes of other functions it stands in */
static bool check_called(struct check *c, struct message_bytes function, int nested)
{
    struct message_bytes name;
    struct message_field f;

    if (!message_find_single(function, 1, &name))
        return tell_damage(c);
    if (!add_call(c, name))
        return false;
    while (function.at < function.end) {
        if (!message_next(&function, &f))
            return tell_damage(c);
        if (f.is_bytes && f.number == 2 && !check_attribute(c, f.bytes, nested + 1))
            return false;
    }
    return true;
}

/* @entry  of the map of attributes: a name and its value */
static bool check_attribute(struct check *c, struct message_bytes entry, int nested)
{
    struct message_bytes value, tensor, function, list;
    struct message_field f;

    if (nested > GRAPH_MAX_NESTED || !message_find_single(entry, 2, &value) ||
        !message_find_single(value, 8, &tensor) || !message_find_single(value, 10, &function) ||
        !message_find_single(value, 1, &list))
        return tell_damage(c);
    if (!check_tensor_proto(c, tensor) ||
        (function.at < function.end && !check_called(c, function, nested)))
        return false;
    while (list.at < list.end) {
        if (!message_next(&list, &f))
            return tell_damage(c);
        if (f.is_bytes && f.number == 9 && !check_called(c, f.bytes, nested))
            return false;
    }
    return true;
}

static bool check_node(struct check *c, struct message_bytes node)
{
    struct message_field f;

    while (node.at < node.end) {
        if (!message_next(&node, &f))
            return tell_damage(c);
        if (!f.is_bytes)
            continue;
        if (f.number == 2) {
            c->has_gradient_node |= message_is_text(&f.bytes, "SymbolicGradient");
            if (!add_call(c, f.bytes)) /* an operator may be a function */
                return false;
        }
        if (f.number == 5 && !check_attribute(c, f.bytes, 0))
            return false;
    }
    return true;
}

/* @number  of the field that has nodes */
static bool check_node_list(struct check *c, struct message_bytes b, uint32_t number)
{
    struct message_field f;

    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return tell_damage(c);
        if (f.is_bytes && f.number == number && (!count_nodes(c, 1) || !check_node(c, f.bytes)))
            return false;
    }
    return true;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* @taken  gets the function that is called, if this was its last call */
static void take_call(const struct function *from, struct function *to, struct function **taken,
                      size_t *n)
{
    to->depth = to->depth > from->depth ? to->depth : from->depth + 1;
    if (--to->n_callers == 0)
        taken[(*n)++] = to;
}

static bool check_calls(struct check *c)
{
    struct function **taken = calloc(c->n + 1, sizeof(struct function *));
    bool is_deep = false;
    size_t n = 0;

    c->no_memory = !taken;
    if (!taken)
        return false;
    for (size_t i = 0; i < c->n; i++)
        if (c->has_gradient_node && c->functions[i].gradient)
            c->functions[i].gradient->n_callers++;
    for (size_t i = 0; i < c->n; i++)
        if (c->functions[i].n_callers == 0)
            taken[n++] = &c->functions[i];
    for (size_t i = 0; i < n; i++) {
        const struct function *from = taken[i];

        is_deep |= from->depth > MAX_CALL_DEPTH;
        for (size_t call = from->first_call; call < from[1].first_call; call++)
            take_call(from, c->calls[call], taken, &n);
        if (c->has_gradient_node && from->gradient)
            take_call(from, from->gradient, taken, &n);
    }
    free(taken);
    if (n < c->n)
        return tell_flaw(c, "it has a function that calls itself, by others or at once");
    return !is_deep || tell_flaw(c, "its functions call each other more than 256 deep");
}

static bool check_graph(struct check *c, struct message_bytes graph)
{
    struct message_bytes library;

    if (!message_find_single(graph, 2, &library))
        return tell_damage(c);
    if (!list_functions(c, library) || !find_gradients(c, library))
        return false;
    for (size_t i = 0; i < c->n; i++) {
        c->functions[i].first_call = c->n_calls;
        if (!check_node_list(c, c->functions[i].body, 3))
            return false;
    }
    c->functions[c->n].first_call = c->n_calls;
    c->in_graph = true;
    return check_node_list(c, graph, 1) && check_calls(c);
}

TRITONSERVER_Error *graph_check(struct message_bytes graph, const char *model, const char *path)
{
    struct check c = {0};
    bool ok = check_graph(&c, graph);

    free(c.functions);
    free(c.calls);
    if (ok)
        return NULL;
    return c.no_memory
               ? backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory")
               : backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                               "unable to load model '%s', the graph in '%s' is refused: %s", model,
                               path, c.flaw);
}
