/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A complete binary tree by pointers. Number its positions 1, 2, 3 … row by row: the bits of a
 * position's number after the leading one are the way to it from the top, 0 for left and 1 for
 * right. That finds the last position, the only one where the tree may grow or shrink.
 */
#include "base/heap.h"

void heap_init(struct heap *h, heap_before_fn before)
{
    *h = (struct heap){.before = before};
}

/* Returns the pointer to the node at this position, and its parent. */
static struct heap_node **pointer_at(struct heap *h, size_t number, struct heap_node **ret_parent)
{
    struct heap_node **at = &h->top;
    struct heap_node *parent = NULL;
    for (int bit = 62 - __builtin_clzl(number); bit >= 0; bit--) {
        parent = *at;
        at = number >> bit & 1 ? &parent->right : &parent->left;
    }
    *ret_parent = parent;
    return at;
}

static struct heap_node **pointer_to_heap_node(struct heap *h, const struct heap_node *node)
{
    if (!node->parent)
        return &h->top;
    return node->parent->left == node ? &node->parent->left : &node->parent->right;
}

static void adopt_children(struct heap_node *parent)
{
    if (parent->left)
        parent->left->parent = parent;
    if (parent->right)
        parent->right->parent = parent;
}

static void swap_with_parent(struct heap *h, struct heap_node *child)
{
    struct heap_node *parent = child->parent;
    struct heap_node below = *child;

    *pointer_to_heap_node(h, parent) = child;
    child->parent = parent->parent;
    if (parent->left == child) {
        child->left = parent;
        child->right = parent->right;
    } else {
        child->left = parent->left;
        child->right = parent;
    }
    parent->left = below.left;
    parent->right = below.right;
    adopt_children(child);
    adopt_children(parent);
}

static void sift_up(struct heap *h, struct heap_node *node)
{
    while (node->parent && h->before(node, node->parent))
        swap_with_parent(h, node);
}

static void sift_down(struct heap *h, struct heap_node *node)
{
    for (;;) {
        struct heap_node *first = node;
        if (node->left && h->before(node->left, first))
            first = node->left;
        if (node->right && h->before(node->right, first))
            first = node->right;
        if (first == node)
            return;
        swap_with_parent(h, first);
    }
}

void heap_push(struct heap *h, struct heap_node *node)
{
    struct heap_node *parent;
    *pointer_at(h, h->count + 1, &parent) = node;
    *node = (struct heap_node){.parent = parent};
    h->count++;
    sift_up(h, node);
}

void heap_remove(struct heap *h, struct heap_node *node)
{
    struct heap_node *parent;
    struct heap_node **last_position = pointer_at(h, h->count, &parent);
    struct heap_node *last = *last_position;
    *last_position = NULL;
    h->count--;
    if (last == node)
        return;

    /* The last node takes the free position, then moves to where it belongs. */
    *last = *node;
    *pointer_to_heap_node(h, node) = last;
    adopt_children(last);
    sift_up(h, last);
    sift_down(h, last);
}
