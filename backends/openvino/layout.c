/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenVINO's C interface does not tell the layout of a tensor, which says what each dimension is.
 * In its own format the layout is an attribute of the input, or of the port that makes the output:
 *
 *     <layer id="0" name="A" type="Parameter" …> … <attribute name="layout" … layout="[N,C,H,W]" />
 *     … </layer>
 *     …
 *     <edge from-layer="3" from-port="2" to-layer="4" to-port="0" />
 *
 * So the file is read once for these attributes. Bodies of loops, which have inputs and outputs of
 * their own, are skipped. OpenVINO has read the file before; what this finds decides only whether a
 * configuration without max_batch_size gets one.
 */
#include "openvino/ir.h"
#include "openvino/model.h"

#include <stdlib.h>
#include <string.h>

/* Overwrites bodies of loops with blanks. */
static void blank_bodies(char *text)
{
    for (char *body; (body = strstr(text, "<body")) != NULL; text = body) {
        size_t depth = 0;

        do {
            if (strncmp(body, "<body", 5) == 0)
                depth++;
            else if (strncmp(body, "</body", 6) == 0)
                depth--;
            *body++ = ' ';
        } while (*body && depth > 0);
    }
}

static int compare_spans(struct span a, struct span b)
{
    size_t a_len = (size_t)(a.end - a.at), b_len = (size_t)(b.end - b.at);
    size_t len = a_len < b_len ? a_len : b_len;
    int order = len > 0 ? memcmp(a.at, b.at, len) : 0;

    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

/* ---- What the file says ---------------------------------------------------------------------- */

/* An edge; a port that makes an output, which has no `to`; a Result, which has nothing else. */
struct link {
    struct span to, from, port;
};

struct links {
    struct link *items;
    size_t n, room;
};

/* Of one pass over the text, so that the time grows with its length alone. */
struct graph {
    struct links edges, results;
    struct links batches; /* ports whose layout begins with N */
    size_t n_inputs;
    bool lacks_batch; /* an input's layout does not begin with N */
    bool no_memory;
};

/* The layer that is being read. */
struct layer {
    struct span id, port; /* port: the last one among its outputs; empty: none yet */
    bool is_input, is_output, has_batch;
    bool in_outputs;
};

static void keep_link(struct graph *g, struct links *l, struct link link)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct link *items = reallocarray(l->items, room, sizeof(*items));

        if (!items) {
            g->no_memory = true;
            return;
        }
        l->items = items;
        l->room = room;
    }
    l->items[l->n++] = link;
}

static bool is_batch_layout(const char *tag)
{
    struct span layout = ir_attribute(tag, "layout");

    return ir_is(ir_attribute(tag, "name"), "layout") && layout.end - layout.at >= 2 &&
           layout.at[0] == '[' && layout.at[1] == 'N';
}

static void end_layer(struct graph *g, struct layer *l)
{
    if (l->is_input) {
        g->n_inputs++;
        g->lacks_batch |= !l->has_batch;
    } else if (l->is_output) {
        keep_link(g, &g->results, (struct link){.to = l->id});
    }
    *l = (struct layer){0};
}

static void read_tag(struct graph *g, struct layer *l, const char *at)
{
    if (ir_is_tag(at, "<layer ")) {
        struct span type = ir_attribute(at, "type");

        end_layer(g, l); /* one that is a single tag has no end of its own */
        l->id = ir_attribute(at, "id");
        l->is_input = ir_is(type, "Parameter");
        l->is_output = ir_is(type, "Result");
    } else if (ir_is_tag(at, "</layer>")) {
        end_layer(g, l);
    } else if (ir_is_tag(at, "<output>")) {
        l->in_outputs = true;
    } else if (l->in_outputs && ir_is_tag(at, "<port ")) {
        l->port = ir_attribute(at, "id");
    } else if (ir_is_tag(at, "<attribute ") && is_batch_layout(at)) {
        l->has_batch = true;
        if (l->port.at)
            keep_link(g, &g->batches, (struct link){.from = l->id, .port = l->port});
    } else if (ir_is_tag(at, "<edge ")) {
        keep_link(g, &g->edges,
                  (struct link){ir_attribute(at, "to-layer"), ir_attribute(at, "from-layer"),
                                ir_attribute(at, "from-port")});
    }
}

static void read_graph(struct graph *g, const char *text)
{
    struct layer layer = {0};

    for (const char *at = ir_find_char(text, '<'); *at && !g->no_memory;
         at = ir_find_char(at + 1, '<'))
        read_tag(g, &layer, at);
    end_layer(g, &layer);
}

/* ---- What follows from it -------------------------------------------------------------------- */

static int compare_ends(const void *a, const void *b)
{
    const struct link *x = a, *y = b;

    return compare_spans(x->to, y->to);
}

static int compare_starts(const void *a, const void *b)
{
    const struct link *x = a, *y = b;
    int order = compare_spans(x->from, y->from);

    return order != 0 ? order : compare_spans(x->port, y->port);
}

static void sort_links(struct links *l, int (*compare)(const void *, const void *))
{
    if (l->n > 0)
        qsort(l->items, l->n, sizeof(*l->items), compare);
}

static const struct link *find_link(const struct link *like, const struct links *l,
                                    int (*compare)(const void *, const void *))
{
    return l->n > 0 ? bsearch(like, l->items, l->n, sizeof(*like), compare) : NULL;
}

/* The layout of an output is that of the port which it is the result of. */
static bool all_have_batch(struct graph *g)
{
    if (g->lacks_batch)
        return false;
    sort_links(&g->edges, compare_ends);
    sort_links(&g->batches, compare_starts);
    for (size_t i = 0; i < g->results.n; i++) {
        const struct link *edge = find_link(&g->results.items[i], &g->edges, compare_ends);

        if (!edge || !find_link(edge, &g->batches, compare_starts))
            return false;
    }
    return g->n_inputs + g->results.n > 0;
}

TRITONSERVER_Error *layout_has_batch(const char *path, bool *ret_has)
{
    TRITONSERVER_Error *err = NULL;
    struct graph g = {0};
    char *text;

    *ret_has = false;
    if (!ir_is_file(path))
        return NULL;
    text = ir_read(path, IR_MOST_BYTES, &err);
    if (!text)
        return err;
    blank_bodies(text);
    read_graph(&g, text);
    if (g.no_memory)
        err = backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    else
        *ret_has = all_have_batch(&g);
    free(g.edges.items);
    free(g.results.items);
    free(g.batches.items);
    free(text);
    return err;
}
