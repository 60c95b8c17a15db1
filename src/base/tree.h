/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in the order of a number, each number once: found, added and taken out in logarithmic
 * time, walked in order. The links live in the objects: no memory of its own, so that adding cannot
 * fail.
 */
#ifndef CONCH_BASE_TREE_H
#define CONCH_BASE_TREE_H

#include <stddef.h>
#include <stdint.h>

struct tree_node {
    struct tree_node *parent, *left, *right;
    uint64_t key;
    uint32_t weight; /* the tree's; no node has a heavier one below it */
};

struct tree {
    struct tree_node *top; /* NULL when empty */
    size_t count;
    uint64_t random;
    uint64_t n_looks; /* nodes that were compared with a key, by all calls: for tests */
};

void tree_init(struct tree *t);

/* tree_find - the node of that key, or NULL. */
struct tree_node *tree_find(struct tree *t, uint64_t key);

/* tree_add - a node with node->key set; no other has that key. */
void tree_add(struct tree *t, struct tree_node *node);

/* tree_remove - takes out a node that is in t. */
void tree_remove(struct tree *t, struct tree_node *node);

/* tree_first, tree_next; tree_last, tree_before - in the order of keys; NULL at the end. */
struct tree_node *tree_first(const struct tree *t);
struct tree_node *tree_next(const struct tree_node *node);
struct tree_node *tree_last(const struct tree *t);
struct tree_node *tree_before(const struct tree_node *node);

#endif
