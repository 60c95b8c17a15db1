/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A binary min-heap whose links live in the objects: no memory of its own, so that adding cannot
 * fail. Objects that compare equal leave in no particular order.
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

/* heap_push - adds a node that is in no heap. What `before` looks at stays constant meanwhile. */
void heap_push(struct heap *h, struct heap_node *node);

/* heap_remove - takes out a node that is in h, wherever it stands. */
void heap_remove(struct heap *h, struct heap_node *node);

/* heap_top - the node that comes first, or NULL; it stays in. */
static inline struct heap_node *heap_top(const struct heap *h)
{
    return h->top;
}

/* heap_pop - takes out the node that comes first; NULL when empty. */
static inline struct heap_node *heap_pop(struct heap *h)
{
    struct heap_node *top = h->top;
    if (top)
        heap_remove(h, top);
    return top;
}

#endif
