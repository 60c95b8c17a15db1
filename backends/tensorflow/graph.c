/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages and their fields, as far as they are read:
 *
 *     GraphDef            1 node: NodeDef, several; 2 library: FunctionDefLibrary
 *     FunctionDefLibrary  1 function: FunctionDef, several
 *     FunctionDef         1 signature (1 name); 3 node_def: NodeDef, several
 *     NodeDef             1 name, 2 op, 3 input, several, 5 attr: a map to AttrValue
 *     AttrValue           10 func: NameAttrList; 1 list (9 func, several)
 *     NameAttrList        1 name; 2 attr: a map to AttrValue
 *     an entry of a map   1 key, 2 value
 *
 * Nodes of the graph are reached from the outputs, by their inputs. Of a function that a node names
 * all nodes are: other nodes of a function are executed, too, if they have effects.
 */
#include "tensorflow/graph.h"

#include <stdlib.h>
#include <string.h>

/* A node of the graph, or a function. */
struct item {
    struct message_bytes name, body;
    bool reached;
};

/* Items, sorted by name, and those that are reached and still to be looked at. */
struct index {
    struct item *items;
    size_t n;
    struct item **waiting;
    size_t n_waiting;
};

struct look {
    struct index nodes, functions;
    struct graph_facts facts;
};

/* Operators that change a variable; those with "Assign" in their names do, too. */
static bool changes_variable(const struct message_bytes *op)
{
    static const char *const beginnings[] = {
        "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceCountUpTo",
        "CountUpTo",     "RngReadAndSkip",      "RngSkip",         "ScatterUpdate",
        "ScatterAdd",    "ScatterSub",          "ScatterMul",      "ScatterDiv",
        "ScatterMin",    "ScatterMax",          "ScatterNdUpdate", "ScatterNdAdd",
        "ScatterNdSub",
    };
    size_t n = (size_t)(op->end - op->at);

    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        size_t len = strlen(beginnings[i]);

        if (n >= len && memcmp(op->at, beginnings[i], len) == 0)
            return true;
    }
    return memmem(op->at, n, "Assign", strlen("Assign")) != NULL;
}

/* Operators that keep a tensor elsewhere than in a variable: in a queue, a table, a data set. */
static bool keeps_tensor(const struct message_bytes *op)
{
    static const char *const parts[] = {"Enqueue",       "Stage",     "SessionHandle",
                                        "TableInsert",   "StackPush", "Accumulator",
                                        "BarrierInsert", "Dataset",   "Iterator"};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (memmem(op->at, (size_t)(op->end - op->at), parts[i], strlen(parts[i])))
            return true;
    return false;
}

/* ---- Indices --------------------------------------------------------------------------------- */

static int compare_items(const void *a, const void *b)
{
    return message_compare(&((const struct item *)a)->name, &((const struct item *)b)->name);
}

static void reach(struct index *x, struct message_bytes name)
{
    struct item key = {.name = name}, *found;

    found = x->n > 0 ? bsearch(&key, x->items, x->n, sizeof(key), compare_items) : NULL;
    if (!found || found->reached)
        return;
    found->reached = true;
    x->waiting[x->n_waiting++] = found;
}

/* The name of a message: that of a node, or of a function by its signature. */
static bool read_item_name(struct message_bytes body, bool is_function, struct message_bytes *ret)
{
    return message_find(body, 1, ret) && (!is_function || message_find(*ret, 1, ret));
}

/* Makes an index of the messages in field 1. */
static TRITONSERVER_Error *index_items(struct message_bytes from, bool are_functions,
                                       struct index *x, bool *ret_ok)
{
    struct message_bytes b = from;
    struct message_field f;
    size_t n = 0;

    *ret_ok = true;
    while (b.at < b.end && (*ret_ok = message_next(&b, &f)))
        n += f.is_bytes && f.number == 1;
    if (!*ret_ok)
        return NULL;
    x->items = calloc(n + 1, sizeof(*x->items));
    x->waiting = calloc(n + 1, sizeof(struct item *));
    if (!x->items || !x->waiting)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (b = from; *ret_ok && b.at < b.end && message_next(&b, &f);) {
        if (!f.is_bytes || f.number != 1)
            continue;
        x->items[x->n].body = f.bytes;
        *ret_ok = read_item_name(f.bytes, are_functions, &x->items[x->n].name);
        x->n++;
    }
    if (x->n > 0)
        qsort(x->items, x->n, sizeof(*x->items), compare_items);
    return NULL;
}

static void free_index(struct index *x)
{
    free(x->items);
    free(x->waiting);
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* The node of an input: "node", "node:1", or "^node", which must be executed before. */
static struct message_bytes node_of_input(struct message_bytes input)
{
    const unsigned char *colon;

    if (input.at < input.end && *input.at == '^')
        input.at++;
    colon = memchr(input.at, ':', (size_t)(input.end - input.at));
    if (colon)
        input.end = colon;
    return input;
}

static bool look_at_attribute(struct look *l, struct message_bytes entry, int nested);

/* Reaches a function, and those that its attributes name: it may call them.
 * @nested  how many attributes of other functions it stands in */
static bool look_at_called(struct look *l, struct message_bytes function, int nested)
{
    struct message_bytes name;
    struct message_field f;

    if (!message_find(function, 1, &name))
        return false;
    reach(&l->functions, name);
    while (function.at < function.end) {
        if (!message_next(&function, &f))
            return false;
        if (f.is_bytes && f.number == 2 && !look_at_attribute(l, f.bytes, nested + 1))
            return false;
    }
    return true;
}

/* Reaches the functions that an attribute names. @entry  of the map of attributes */
static bool look_at_attribute(struct look *l, struct message_bytes entry, int nested)
{
    struct message_bytes value, function, list;
    struct message_field f;

    if (nested > GRAPH_MAX_NESTED || !message_find(entry, 2, &value) ||
        !message_find(value, 10, &function) || !message_find(value, 1, &list) ||
        !look_at_called(l, function, nested))
        return false;
    while (list.at < list.end) {
        if (!message_next(&list, &f))
            return false;
        if (f.is_bytes && f.number == 9 && !look_at_called(l, f.bytes, nested))
            return false;
    }
    return true;
}

static void note_operator(struct look *l, const struct message_bytes *op)
{
    l->facts.keeps |= keeps_tensor(op);
    l->facts.variables |= message_is_text(op, "VarHandleOp") || message_is_text(op, "VariableV2");
    if (*l->facts.writer || !changes_variable(op))
        return;
    l->facts.keeps = true;
    snprintf(l->facts.writer, sizeof(l->facts.writer), "%.*s",
             (int)(op->end - op->at < 64 ? op->end - op->at : 64), (const char *)op->at);
}

/* @in_graph  not in a function: its inputs are nodes of the graph */
static bool look_at_node(struct look *l, struct message_bytes node, bool in_graph)
{
    struct message_field f;

    l->facts.n_nodes++;
    while (node.at < node.end) {
        if (!message_next(&node, &f))
            return false;
        if (!f.is_bytes)
            continue;
        if (f.number == 2) {
            note_operator(l, &f.bytes);
            reach(&l->functions, f.bytes); /* an operator may be a function */
        } else if (f.number == 3 && in_graph)
            reach(&l->nodes, node_of_input(f.bytes));
        else if (f.number == 5 && !look_at_attribute(l, f.bytes, 0))
            return false;
    }
    return true;
}

static bool look_at_function(struct look *l, struct message_bytes function)
{
    struct message_field f;

    while (function.at < function.end) {
        if (!message_next(&function, &f))
            return false;
        if (f.number == 3 && f.is_bytes && !look_at_node(l, f.bytes, false))
            return false;
    }
    return true;
}

static bool look_at_waiting(struct look *l)
{
    bool ok = true;

    while (ok && l->nodes.n_waiting > 0)
        ok = look_at_node(l, l->nodes.waiting[--l->nodes.n_waiting]->body, true);
    while (ok && l->functions.n_waiting > 0)
        ok = look_at_function(l, l->functions.waiting[--l->functions.n_waiting]->body);
    return ok;
}

TRITONSERVER_Error *graph_look(struct message_bytes graph, const char *const *places, size_t n,
                               struct graph_facts *ret_facts, bool *ret_ok)
{
    struct look l = {0};
    struct message_bytes library;
    TRITONSERVER_Error *err = index_items(graph, false, &l.nodes, ret_ok);

    if (!err && *ret_ok)
        *ret_ok = message_find(graph, 2, &library);
    if (!err && *ret_ok)
        err = index_items(library, true, &l.functions, ret_ok);
    if (!err && *ret_ok) {
        for (size_t i = 0; i < n; i++) {
            const unsigned char *at = (const unsigned char *)places[i];

            reach(&l.nodes, node_of_input((struct message_bytes){at, at + strlen(places[i])}));
        }
        *ret_ok = look_at_waiting(&l);
    }
    free_index(&l.nodes);
    free_index(&l.functions);
    *ret_facts = l.facts;
    return err;
}
