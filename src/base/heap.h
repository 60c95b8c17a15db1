/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A binary min-heap whose links live in the objects. It has no memory of its own, so that adding
 * cannot fail. Objects that compare equal leave in no particular order.
 */
#ifndef CONCH_BASE_HEAP_H
#define CONCH_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct heap_node {
    struct heap_node *parent, *left, *right;
};

/* Whether a must leave the heap before b. */
typedef bool (*heap_before_fn)(const struct heap_node *a, const struct heap_node *b);

struct heap {
    struct heap_node *top; /* NULL when empty */
    size_t count;
    heap_before_fn before;
};

void heap_init(struct heap *h, heap_before_fn before);

/*
 * heap_push - adds a node that is in no heap. The fields that `before` reads must not change while
 * the node is in the heap.
 */
void heap_push(struct heap *h, struct heap_node *node);

/* heap_remove - removes a node that is in h, from any position. */
void heap_remove(struct heap *h, struct heap_node *node);

/* heap_top - the first node, or NULL; it stays in the heap. */
static inline struct heap_node *heap_top(const struct heap *h)
{
    return h->top;
}

/* heap_pop - removes and returns the first node; NULL when the heap is empty. */
static inline struct heap_node *heap_pop(struct heap *h)
{
    struct heap_node *top = h->top;
    if (top)
        heap_remove(h, top);
    return top;
}

#endif
