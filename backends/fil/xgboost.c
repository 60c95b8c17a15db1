/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree is an object in an array of the name `trees`; treelite's loader looks nowhere else. Its
 * arrays are collected while it is read and checked when it ends (check_xgboost_tree()).
 */
#include "fil/xgboost.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[XGB_N_KEYS] = {
    [XGB_TREES] = "trees",
    [XGB_TREE_INFO] = "tree_info",
    [XGB_LEARNER_PARAM] = "learner_model_param",
    [XGB_NUM_CLASS] = "num_class",
    [XGB_NUM_TARGET] = "num_target",
    [XGB_TREE_PARAM] = "tree_param",
    [XGB_NUM_NODES] = "num_nodes",
    [XGB_LEAF_VECTOR] = "size_leaf_vector",
    [XGB_LEFT] = "left_children",
    [XGB_RIGHT] = "right_children",
    [XGB_LOSSES] = "loss_changes",
    [XGB_HESSIANS] = "sum_hessian",
    [XGB_LEAF_WEIGHTS] = "leaf_weights",
    [XGB_SEGMENTS] = "categories_segments",
    [XGB_SIZES] = "categories_sizes",
    [XGB_NODES] = "categories_nodes",
    [XGB_CATEGORIES] = "categories",
};

void xgboost_init(struct xgboost_scan *s, struct treefile_why *why)
{
    memset(s, 0, sizeof(*s));
    s->why = why;
}

void xgboost_done(struct xgboost_scan *s)
{
    for (size_t i = 0; i < XGB_N_KEYS; i++)
        free(s->arrays[i].values);
}

/* ---- One tree -------------------------------------------------------------------------------- */

static bool check_leaf_vectors(struct xgboost_scan *s)
{
    const struct xgboost_array *left = &s->arrays[XGB_LEFT], *right = &s->arrays[XGB_RIGHT];
    size_t n_weights = s->arrays[XGB_LEAF_WEIGHTS].n, length = (size_t)s->leaf_vector;

    if (length <= 1)
        return true;
    for (size_t i = 0; i < left->n; i++)
        if (left->values[i] == -1 &&
            (right->values[i] < 0 || (size_t)right->values[i] >= n_weights / length))
            return treefile_refuse(s->why, "tree %zu: node %zu has leaf %d of %zu", s->n_trees, i,
                                   (int)right->values[i], n_weights / length);
    return true;
}

static bool check_categories(struct xgboost_scan *s)
{
    const struct xgboost_array *begins = &s->arrays[XGB_SEGMENTS], *sizes = &s->arrays[XGB_SIZES];
    size_t n = s->arrays[XGB_CATEGORIES].n, n_used = 0;

    if (begins->n != sizes->n || begins->n != s->arrays[XGB_NODES].n)
        return treefile_refuse(
            s->why, "tree %zu: %zu categories_nodes, %zu categories_segments, %zu categories_sizes",
            s->n_trees, s->arrays[XGB_NODES].n, begins->n, sizes->n);
    for (size_t i = 0; i < begins->n; i++) {
        if (begins->values[i] < 0 || sizes->values[i] < 0 ||
            (uint64_t)begins->values[i] + (uint64_t)sizes->values[i] > n)
            return treefile_refuse(s->why, "tree %zu: %d categories from %d on, of %zu", s->n_trees,
                                   (int)sizes->values[i], (int)begins->values[i], n);
        n_used += (size_t)sizes->values[i];
    }
    /* Nodes that share categories would multiply them in memory; XGBoost writes them apart. */
    return n_used <= n || treefile_refuse(s->why, "tree %zu: nodes have %zu categories of %zu",
                                          s->n_trees, n_used, n);
}

static bool check_xgboost_tree(struct xgboost_scan *s)
{
    size_t n = s->arrays[XGB_LEFT].n;
    static const enum xgboost_key optional[] = {XGB_LOSSES, XGB_HESSIANS};

    if (s->num_nodes < 1 || (uint64_t)s->num_nodes != n || s->arrays[XGB_RIGHT].n != n)
        return treefile_refuse(s->why,
                               "tree %zu: num_nodes is %lld for %zu left and %zu right children",
                               s->n_trees, (long long)s->num_nodes, n, s->arrays[XGB_RIGHT].n);
    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++) {
        size_t have = s->arrays[optional[i]].n;

        if (have > 0 && have < n)
            return treefile_refuse(s->why, "tree %zu: %s has %zu values for %zu nodes", s->n_trees,
                                   names[optional[i]], have, n);
    }
    if (s->leaf_vector < 0 || s->leaf_vector > TREE_MAX_OUTPUTS)
        return treefile_refuse(s->why, "tree %zu: size_leaf_vector is %lld", s->n_trees,
                               (long long)s->leaf_vector);
    return check_leaf_vectors(s) && check_categories(s);
}

static void begin_xgboost_tree(struct xgboost_scan *s)
{
    for (size_t i = 0; i < XGB_N_KEYS; i++)
        s->arrays[i].n = 0;
    s->num_nodes = -1;
    s->leaf_vector = 0;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static struct xgboost_level *innermost(struct xgboost_scan *s)
{
    return s->depth > 0 ? &s->levels[s->depth - 1] : NULL;
}

/* The key under which the next value stands. */
static enum xgboost_key next_key(const struct xgboost_level *l)
{
    if (!l)
        return XGB_OTHER;
    return l->is_object ? l->at : l->key;
}

/* Is this level an object in the array `trees`? */
static bool is_tree(const struct xgboost_scan *s, size_t depth)
{
    return depth > 0 && s->levels[depth - 1].is_object && s->levels[depth - 1].in_trees;
}

bool xgboost_begin(struct xgboost_scan *s, bool is_object)
{
    const struct xgboost_level *outer = innermost(s);
    struct xgboost_level level = {.key = next_key(outer), .is_object = is_object};

    if (s->depth == TREE_MAX_DEPTH)
        return treefile_refuse(s->why, "more than %d objects and arrays in each other",
                               TREE_MAX_DEPTH);
    if (outer && !outer->is_object && outer->key != XGB_OTHER) {
        /* `trees` has objects; every other array that the check is about has numbers. */
        if (outer->key != XGB_TREES || !is_object)
            return treefile_refuse(s->why, "%s has an element that is an object or an array",
                                   names[outer->key]);
        level.in_trees = true;
        begin_xgboost_tree(s);
    }
    s->levels[s->depth++] = level;
    return true;
}

bool xgboost_end(struct xgboost_scan *s)
{
    if (is_tree(s, s->depth)) {
        if (!check_xgboost_tree(s))
            return false;
        s->n_trees++;
    }
    s->depth--;
    return true;
}

bool xgboost_name(struct xgboost_scan *s, const char *text, size_t len)
{
    struct xgboost_level *l = innermost(s);

    l->at = XGB_OTHER;
    for (enum xgboost_key k = XGB_OTHER + 1; k < XGB_N_KEYS; k++)
        if (strlen(names[k]) == len && memcmp(names[k], text, len) == 0)
            l->at = k;
    if (l->at == XGB_OTHER)
        return true;
    if (l->seen & 1u << l->at)
        return treefile_refuse(s->why, "an object has %s twice", names[l->at]);
    l->seen |= 1u << l->at;
    return true;
}

static bool read_xgboost_int(const char *text, size_t len, int64_t *ret_number)
{
    char copy[24];
    char *end;

    if (len == 0 || len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    *ret_number = strtoll(copy, &end, 10);
    return *end == '\0';
}

bool xgboost_text(struct xgboost_scan *s, const char *text, size_t len)
{
    struct xgboost_level *l = innermost(s);
    int64_t *to = NULL;

    if (!l || !l->is_object)
        return xgboost_other(s);
    if (l->key == XGB_TREE_PARAM && is_tree(s, s->depth - 1))
        to = l->at == XGB_NUM_NODES     ? &s->num_nodes
             : l->at == XGB_LEAF_VECTOR ? &s->leaf_vector
                                        : NULL;
    if (l->key == XGB_LEARNER_PARAM)
        to = l->at == XGB_NUM_CLASS    ? &s->num_class
             : l->at == XGB_NUM_TARGET ? &s->num_target
                                       : NULL;
    if (to && !read_xgboost_int(text, len, to))
        return treefile_refuse(s->why, "%s is no whole number", names[l->at]);
    return true;
}

/* Keeps an element of one of the tree's arrays; or only counts it. */
static bool keep_element(struct xgboost_scan *s, enum xgboost_key key, int64_t number)
{
    struct xgboost_array *a = &s->arrays[key];

    if (key == XGB_LEFT || key == XGB_RIGHT || key == XGB_SEGMENTS || key == XGB_SIZES) {
        if (number < INT32_MIN || number > INT32_MAX)
            return treefile_refuse(s->why, "%s has the number %lld", names[key], (long long)number);
        if (a->n == a->room) {
            size_t room = a->room ? 2 * a->room : 64;
            int32_t *values = reallocarray(a->values, room, sizeof(*values));

            if (!values)
                return treefile_refuse(s->why, "no memory to check it");
            a->values = values;
            a->room = room;
        }
        a->values[a->n] = (int32_t)number;
    }
    a->n++;
    return true;
}

bool xgboost_number(struct xgboost_scan *s, bool is_whole, int64_t number)
{
    const struct xgboost_level *l = innermost(s);

    if (!l || l->is_object)
        return true;
    if (l->key == XGB_TREE_INFO)
        s->n_infos++;
    if (l->key < XGB_LEFT || !is_tree(s, s->depth - 1))
        return true;
    return keep_element(s, l->key, is_whole ? number : INT64_MAX);
}

bool xgboost_other(struct xgboost_scan *s)
{
    const struct xgboost_level *l = innermost(s);

    if (l && !l->is_object && l->key >= XGB_LEFT && is_tree(s, s->depth - 1))
        return treefile_refuse(s->why, "%s has an element that is no number", names[l->key]);
    return true;
}

bool xgboost_finish(struct xgboost_scan *s)
{
    int64_t classes = s->num_class > 1 ? s->num_class : 1;
    int64_t targets = s->num_target > 1 ? s->num_target : 1;

    if (s->n_infos < s->n_trees)
        return treefile_refuse(s->why, "tree_info has %zu values for %zu trees", s->n_infos,
                               s->n_trees);
    if (classes > TREE_MAX_OUTPUTS || targets > TREE_MAX_OUTPUTS ||
        classes * targets > TREE_MAX_OUTPUTS)
        return treefile_refuse(s->why, "num_class is %lld, num_target %lld: more than %d outputs",
                               (long long)s->num_class, (long long)s->num_target, TREE_MAX_OUTPUTS);
    return true;
}
