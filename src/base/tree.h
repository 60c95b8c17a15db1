/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search tree of objects, ordered by a key that is unique. Objects are found, added and removed
 * in logarithmic time, and visited in order. The links live in the objects: the tree has no memory
 * of its own, so that adding cannot fail.
 */
#ifndef CONCH_BASE_TREE_H
#define CONCH_BASE_TREE_H

#include <stddef.h>
#include <stdint.h>

struct tree_node {
    struct tree_node *parent, *left, *right;
    uint64_t key;
    uint32_t weight; /* set by the tree; no node has a heavier one below it */
};

struct tree {
    struct tree_node *top; /* NULL when empty */
    size_t count;
    uint64_t random;
    uint64_t n_looks; /* nodes compared with a key so far, by all calls; for tests */
};

void tree_init(struct tree *t);

/* tree_find - the node with that key, or NULL. */
struct tree_node *tree_find(struct tree *t, uint64_t key);

/* tree_add - adds a node with node->key set; no other node may have that key. */
void tree_add(struct tree *t, struct tree_node *node);

/* tree_remove - removes a node that is in t. */
void tree_remove(struct tree *t, struct tree_node *node);

/* tree_first, tree_next; tree_last, tree_before - in the order of keys; NULL at the end. */
struct tree_node *tree_first(const struct tree *t);
struct tree_node *tree_next(const struct tree_node *node);
struct tree_node *tree_last(const struct tree *t);
struct tree_node *tree_before(const struct tree_node *node);

#endif
