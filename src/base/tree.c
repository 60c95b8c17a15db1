/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A treap: a search tree by the keys, and a heap by random weights. Its shape is that of a tree
 * whose keys were added in random order, whatever order a client gives them.
 */
#include "base/tree.h"

#include <stdbool.h>

void tree_init(struct tree *t)
{
    *t = (struct tree){.random = (uintptr_t)t}; /* differs from process to process */
}

static uint32_t draw_random(struct tree *t)
{
    t->random = t->random * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(t->random >> 32);
}

static struct tree_node **pointer_to(struct tree *t, const struct tree_node *node)
{
    if (!node->parent)
        return &t->top;
    return node->parent->left == node ? &node->parent->left : &node->parent->right;
}

/* Moves a child to the position of its parent, which goes below it. */
static void rotate_up(struct tree *t, struct tree_node *node)
{
    struct tree_node *parent = node->parent, *passed;
    *pointer_to(t, parent) = node;
    if (parent->left == node) {
        passed = parent->left = node->right;
        node->right = parent;
    } else {
        passed = parent->right = node->left;
        node->left = parent;
    }
    if (passed)
        passed->parent = parent;
    node->parent = parent->parent;
    parent->parent = node;
}

struct tree_node *tree_find(struct tree *t, uint64_t key)
{
    struct tree_node *node = t->top;
    while (node && node->key != key) {
        t->n_looks++;
        node = key < node->key ? node->left : node->right;
    }
    return node;
}

void tree_add(struct tree *t, struct tree_node *node)
{
    struct tree_node **at = &t->top, *parent = NULL;
    while (*at) {
        t->n_looks++;
        parent = *at;
        at = node->key < parent->key ? &parent->left : &parent->right;
    }
    *at = node;
    node->parent = parent;
    node->left = node->right = NULL;
    node->weight = draw_random(t);
    t->count++;
    while (node->parent && node->parent->weight < node->weight)
        rotate_up(t, node);
}

void tree_remove(struct tree *t, struct tree_node *node)
{
    while (node->left && node->right)
        rotate_up(t, node->left->weight > node->right->weight ? node->left : node->right);
    struct tree_node *child = node->left ? node->left : node->right;
    *pointer_to(t, node) = child;
    if (child)
        child->parent = node->parent;
    t->count--;
}

/* find_leftmost, find_rightmost - return the outermost node of this subtree. */
static struct tree_node *find_leftmost(struct tree_node *node)
{
    while (node && node->left)
        node = node->left;
    return node;
}

static struct tree_node *find_rightmost(struct tree_node *node)
{
    while (node && node->right)
        node = node->right;
    return node;
}

struct tree_node *tree_first(const struct tree *t)
{
    return find_leftmost(t->top);
}

struct tree_node *tree_last(const struct tree *t)
{
    return find_rightmost(t->top);
}

struct tree_node *tree_next(const struct tree_node *node)
{
    if (node->right)
        return find_leftmost(node->right);
    while (node->parent && node->parent->right == node)
        node = node->parent;
    return node->parent;
}

struct tree_node *tree_before(const struct tree_node *node)
{
    if (node->left)
        return find_rightmost(node->left);
    while (node->parent && node->parent->left == node)
        node = node->parent;
    return node->parent;
}
