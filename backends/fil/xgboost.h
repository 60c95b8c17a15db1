/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xgboost - the check of a model of XGBoost as a stream of events, which a reader of JSON (json.c)
 * or of UBJSON (ubjson.c) makes. Nothing but the arrays of one tree is kept in memory.
 *
 * What is checked is what treelite's loader uses without a test: the lengths of a tree's arrays,
 * the numbers of its categories and leaf vectors, the numbers of classes and targets.
 *
 * Every function returns false after the first refusal; the reader then stops.
 */
#ifndef BACKENDS_FIL_XGBOOST_H
#define BACKENDS_FIL_XGBOOST_H

#include "fil/treefile.h"

/* The names that treelite's loader knows and the check is about. */
enum xgboost_key {
    XGB_OTHER,
    XGB_TREES,
    XGB_TREE_INFO,
    XGB_LEARNER_PARAM,
    XGB_NUM_CLASS,
    XGB_NUM_TARGET,
    XGB_TREE_PARAM,
    XGB_NUM_NODES,
    XGB_LEAF_VECTOR,
    /* From here on: the arrays of a tree. */
    XGB_LEFT,
    XGB_RIGHT,
    XGB_LOSSES,
    XGB_HESSIANS,
    XGB_LEAF_WEIGHTS,
    XGB_SEGMENTS,
    XGB_SIZES,
    XGB_NODES,
    XGB_CATEGORIES,
    XGB_N_KEYS
};

struct xgboost_array {
    int32_t *values; /* of those whose values matter */
    size_t n, room;
};

struct xgboost_level {
    enum xgboost_key
        key; /* under which this container stands; of an array's element: the array's */
    bool is_object, in_trees;
    enum xgboost_key at; /* objects: the last key */
    uint32_t seen;       /* objects: a bit for each key that was there */
};

struct xgboost_scan {
    struct treefile_why *why;
    struct xgboost_level levels[TREE_MAX_DEPTH];
    size_t depth;

    /* Of the tree that is being read. */
    struct xgboost_array arrays[XGB_N_KEYS];
    int64_t num_nodes, leaf_vector;

    /* Of the whole model. */
    size_t n_trees, n_infos;
    int64_t num_class, num_target;
};

void xgboost_init(struct xgboost_scan *s, struct treefile_why *why);
void xgboost_done(struct xgboost_scan *s);

/* The events. */
bool xgboost_begin(struct xgboost_scan *s, bool is_object);
bool xgboost_end(struct xgboost_scan *s);
bool xgboost_name(struct xgboost_scan *s, const char *text, size_t len);
bool xgboost_text(struct xgboost_scan *s, const char *text, size_t len);
bool xgboost_number(struct xgboost_scan *s, bool is_whole, int64_t number);
/* xgboost_other - true, false or null. */
bool xgboost_other(struct xgboost_scan *s);

/* xgboost_finish - the whole text has been read. */
bool xgboost_finish(struct xgboost_scan *s);

#endif
