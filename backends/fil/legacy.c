/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy - the check of XGBoost's binary format: structs one behind the other, among them numbers
 * that say how many follow. treelite tests the numbers of children itself.
 */
#include "fil/bytes_walk.h"

/* The parts of the structs that the check reads, with all their bytes. */
struct legacy_learner {
    float base_score;
    uint32_t num_feature;
    int32_t num_class;
    int32_t extra[2];
    uint32_t major, minor;
    uint32_t num_target;
    int32_t pad[26];
};
struct legacy_booster {
    int32_t num_trees;
    int32_t rest[39];
};
struct legacy_tree {
    int32_t num_roots, num_nodes, num_deleted, max_depth, num_feature, size_leaf_vector;
    int32_t reserved[31];
};
_Static_assert(sizeof(struct legacy_learner) == 136 && sizeof(struct legacy_booster) == 160 &&
                   sizeof(struct legacy_tree) == 148,
               "as XGBoost writes them");

#define NODE_BYTES 20
#define STAT_BYTES 16

static bool check_legacy_tree(struct bytes_walk *w, const struct legacy_learner *learner, int32_t i)
{
    struct legacy_tree tree;
    uint64_t n;

    if (!walk_read(w, &tree, sizeof(tree)))
        return false;
    if (tree.num_nodes < 1)
        return treefile_refuse(w->why, "tree %d has %d nodes", (int)i, (int)tree.num_nodes);
    if (!walk_skip(w, (uint64_t)tree.num_nodes, NODE_BYTES + STAT_BYTES))
        return false;
    return tree.size_leaf_vector == 0 || learner->major >= 2 || walk_array(w, sizeof(float), &n);
}

static bool check_legacy_outputs(const struct bytes_walk *w, const struct legacy_learner *l)
{
    uint64_t classes = l->num_class > 1 ? (uint64_t)l->num_class : 1;
    uint64_t targets = l->num_target > 1 ? l->num_target : 1;

    return classes * targets <= TREE_MAX_OUTPUTS ||
           treefile_refuse(w->why, "num_class is %d, num_target %u: more than %d outputs",
                           (int)l->num_class, (unsigned int)l->num_target, TREE_MAX_OUTPUTS);
}

static bool check_legacy_file(struct bytes_walk *w)
{
    struct legacy_learner learner;
    struct legacy_booster booster;
    uint64_t n_objective, n_name;

    if (walk_left(w) >= 4 && memcmp(w->at, "binf", 4) == 0)
        w->at += 4;
    if (!walk_read(w, &learner, sizeof(learner)) || !check_legacy_outputs(w, &learner) ||
        !walk_array(w, 1, &n_objective) || !walk_array(w, 1, &n_name) ||
        !walk_read(w, &booster, sizeof(booster)))
        return false;
    if (booster.num_trees < 0)
        return treefile_refuse(w->why, "the file has %d trees", (int)booster.num_trees);
    for (int32_t i = 0; i < booster.num_trees; i++)
        if (!check_legacy_tree(w, &learner, i))
            return false;
    /* tree_info; what follows, treelite reads only as far as it is there. */
    return walk_skip(w, (uint64_t)booster.num_trees, sizeof(int32_t));
}

bool treefile_check_legacy(const char *data, size_t size, struct treefile_why *why)
{
    struct bytes_walk w = {.begin = data, .at = data, .end = data + size, .why = why};

    return check_legacy_file(&w);
}
