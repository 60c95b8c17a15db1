/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forest - what treelite has made of a file: its shape, and whether a prediction stays inside its
 * arrays. treelite's prediction follows the numbers of children, features, classes and categories
 * without a test.
 *
 * Threads: one thread loads a model.
 */
#ifndef BACKENDS_FIL_FOREST_H
#define BACKENDS_FIL_FOREST_H

#include "fil/treelite.h"

/* Of treelite's enum TaskType. */
enum forest_task {
    FOREST_BINARY,
    FOREST_REGRESSION,
    FOREST_CLASSES,
    FOREST_RANKING,
    FOREST_ISOLATION
};

struct forest {
    enum forest_task task;
    int32_t n_features, n_targets, n_classes; /* classes: of the target with the most */
    bool has_vectors;                         /* leaves are vectors of one value per class */
    uint64_t n_trees;
    uint32_t depth; /* of the deepest tree: nodes from the root to a leaf */
    uint64_t size;  /* bytes of all arrays of all trees */
    /* NULL, or memory in which treelite reads while the model lives; the caller frees it. */
    double *base_scores;
};

/*
 * forest_read - read the shape, and check all trees. A base score that is one for all classes
 * becomes one for each.
 * @ret_forest  on errors only base_scores is set
 * Errors: INVALID_ARG  a prediction would leave the forest's arrays; the text says where
 *         INTERNAL     treelite shows its fields otherwise than its releases 4 do
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *forest_read(const struct treelite *t, treelite_model model,
                                struct forest *ret_forest);

#endif
