/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every field of a tree is an array with an element for each node, so the check is a loop over
 * nodes. A node has at most one parent and the root has none: then following children ends.
 */
#include "fil/forest.h"

#include <stdlib.h>
#include <string.h>

#include "fil/treefile.h"

/* Of treelite's enums. */
enum { NODE_LEAF, NODE_NUMERICAL, NODE_CATEGORICAL };
enum { OPERATOR_MIN = 1, OPERATOR_MAX = 5 };

static TRITONSERVER_Error *refuse_forest(uint64_t tree, const char *what, int64_t number)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "tree %llu: %s %lld",
                         (unsigned long long)tree, what, (long long)number);
}

static TRITONSERVER_Error *check_forest_field(const char *name, const struct treelite_field *f,
                                              size_t item_size)
{
    if (f->item_size == item_size && (f->data || f->n == 0))
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INTERNAL,
                         "treelite's field %s has elements of %zu bytes, not %zu", name,
                         f->item_size, item_size);
}

/* ---- The header ------------------------------------------------------------------------------ */

static TRITONSERVER_Error *read_header(const struct treelite *t, treelite_model model,
                                       const char *name, size_t item_size,
                                       struct treelite_field *ret_field)
{
    if (t->GetHeaderField(model, name, ret_field) != 0)
        return treelite_error(t, TRITONSERVER_ERROR_INTERNAL, name);
    return check_forest_field(name, ret_field, item_size);
}

static TRITONSERVER_Error *read_header_number(const struct treelite *t, treelite_model model,
                                              const char *name, void *to, size_t size)
{
    struct treelite_field f = {0};

    TRY(read_header(t, model, name, size, &f));
    if (f.n != 1)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "treelite's field %s has %zu elements",
                             name, f.n);
    memcpy(to, f.data, size);
    return NULL;
}

/* What the whole forest says, besides its shape. */
struct forest_header {
    const struct forest *shape;
    const int32_t *target_ids, *class_ids;
    int32_t leaf_shape[2];
    double *base_scores; /* as in struct forest */
};

static TRITONSERVER_Error *read_classes(const struct treelite *t, treelite_model model,
                                        struct forest *f)
{
    struct treelite_field classes = {0};

    TRY(read_header_number(t, model, "num_target", &f->n_targets, sizeof(f->n_targets)));
    TRY(read_header(t, model, "num_class", sizeof(int32_t), &classes));
    if (f->n_targets < 1 || (size_t)f->n_targets != classes.n)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "%d targets, %zu numbers of classes",
                             (int)f->n_targets, classes.n);
    for (size_t i = 0; i < classes.n; i++) {
        int32_t n = ((const int32_t *)classes.data)[i];

        if (n < 1 || n > TREE_MAX_OUTPUTS / f->n_targets)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "target %zu has %d classes", i,
                                 (int)n);
        f->n_classes = n > f->n_classes ? n : f->n_classes;
    }
    return NULL;
}

static TRITONSERVER_Error *read_forest_shape(const struct treelite *t, treelite_model model,
                                             struct forest *f)
{
    uint8_t task;

    TRY(read_header_number(t, model, "num_feature", &f->n_features, sizeof(f->n_features)));
    TRY(read_header_number(t, model, "task_type", &task, sizeof(task)));
    TRY(read_header_number(t, model, "num_tree", &f->n_trees, sizeof(f->n_trees)));
    TRY(read_classes(t, model, f));
    if (f->n_features < 1 || f->n_features > TREE_MAX_FEATURES)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "the forest has %d features",
                             (int)f->n_features);
    if (task > FOREST_ISOLATION)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "the forest has the unknown task %d",
                             (int)task);
    f->task = task;
    return NULL;
}

static TRITONSERVER_Error *read_ids(const struct treelite *t, treelite_model model,
                                    const char *name, uint64_t n_trees, int32_t below,
                                    const int32_t **ret_ids)
{
    struct treelite_field f = {0};

    TRY(read_header(t, model, name, sizeof(int32_t), &f));
    if (f.n != n_trees)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "%s has %zu elements for %llu trees",
                             name, f.n, (unsigned long long)n_trees);
    *ret_ids = f.data;
    for (size_t i = 0; i < f.n; i++)
        if ((*ret_ids)[i] < -1 || (*ret_ids)[i] >= below)
            return refuse_forest(i, name, (*ret_ids)[i]);
    return NULL;
}

/* A checkpoint of release 3.9 has one score for all classes. treelite keeps that one, but predicts
 * with as many as there are classes, and so reads beyond it. It does not copy what SetHeaderField()
 * gets: *ret_all must live longer than the model. */
static TRITONSERVER_Error *spread_base_score(const struct treelite *t, treelite_model model,
                                             size_t n, struct treelite_field *scores,
                                             double **ret_all)
{
    double score, *all;

    if (n < 2)
        return NULL;
    memcpy(&score, scores->data, sizeof(score));
    *ret_all = all = calloc(n, sizeof(*all));
    if (!all)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for %zu base scores", n);
    for (size_t i = 0; i < n; i++)
        all[i] = score;
    scores->data = all;
    scores->n = n;
    if (t->SetHeaderField(model, "base_scores", *scores) != 0)
        return treelite_error(t, TRITONSERVER_ERROR_INVALID_ARG, "base_scores");
    return read_header(t, model, "base_scores", sizeof(double), scores);
}

static TRITONSERVER_Error *read_forest_header(const struct treelite *t, treelite_model model,
                                              struct forest_header *h)
{
    const struct forest *shape = h->shape;
    struct treelite_field scores = {0}, leaf = {0};

    TRY(read_ids(t, model, "target_id", shape->n_trees, shape->n_targets, &h->target_ids));
    TRY(read_ids(t, model, "class_id", shape->n_trees, shape->n_classes, &h->class_ids));
    TRY(read_header(t, model, "base_scores", sizeof(double), &scores));
    if (scores.n == 1)
        TRY(spread_base_score(t, model, (size_t)shape->n_targets * (size_t)shape->n_classes,
                              &scores, &h->base_scores));
    if (scores.n < (size_t)shape->n_targets * (size_t)shape->n_classes)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "%zu base scores for %d targets of %d classes", scores.n,
                             (int)shape->n_targets, (int)shape->n_classes);
    TRY(read_header(t, model, "leaf_vector_shape", sizeof(int32_t), &leaf));
    if (leaf.n != 2)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "a leaf has %zu dimensions", leaf.n);
    memcpy(h->leaf_shape, leaf.data, sizeof(h->leaf_shape));
    for (size_t i = 0; i < 2; i++)
        if (h->leaf_shape[i] < 1 || h->leaf_shape[i] > TREE_MAX_OUTPUTS)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "a leaf has the size %d",
                                 (int)h->leaf_shape[i]);
    return NULL;
}

/* ---- One tree -------------------------------------------------------------------------------- */

/* A tree's fields, and memory for its check. */
struct tree_fields {
    const struct treelite *t;
    const struct forest_header *header;
    uint64_t size; /* bytes of the fields of all trees so far */
    treelite_model model;
    uint64_t tree;
    size_t n_nodes;

    const int8_t *types, *operators;
    const int32_t *left, *right, *features;
    const uint64_t *vector_begins, *vector_ends, *list_begins, *list_ends;
    size_t n_vectors, n_lists; /* elements of all leaf vectors, of all lists of categories */

    uint32_t *depths; /* of each node; 0: no parent has named it yet */
    size_t n_room;
};

static TRITONSERVER_Error *read_tree(struct tree_fields *f, const char *name,
                                     struct treelite_field *ret_field)
{
    if (f->t->GetTreeField(f->model, f->tree, name, ret_field) != 0)
        return treelite_error(f->t, TRITONSERVER_ERROR_INTERNAL, name);
    f->size += ret_field->n * ret_field->item_size;
    return NULL;
}

/* Reads a field with one element for each node. */
static TRITONSERVER_Error *read_of_nodes(struct tree_fields *f, const char *name, size_t item_size,
                                         const void **ret_data)
{
    struct treelite_field field = {0};

    TRY(read_tree(f, name, &field));
    if (item_size > 0)
        TRY(check_forest_field(name, &field, item_size));
    if (field.n != f->n_nodes)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "tree %llu: %s has %zu elements for %zu nodes",
                             (unsigned long long)f->tree, name, field.n, f->n_nodes);
    if (ret_data)
        *ret_data = field.data;
    return NULL;
}

/* Not of the prediction, but in memory: how often each node was visited in training, and so on. */
static TRITONSERVER_Error *count_other_fields(struct tree_fields *f)
{
    static const char *const names[] = {
        "data_count", "data_count_present", "sum_hess", "sum_hess_present", "gain", "gain_present"};
    struct treelite_field field = {0};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        TRY(read_tree(f, names[i], &field));
    return NULL;
}

static TRITONSERVER_Error *read_tree_fields(struct tree_fields *f)
{
    struct treelite_field field = {0};
    int32_t n;

    TRY(read_tree(f, "num_nodes", &field));
    TRY(check_forest_field("num_nodes", &field, sizeof(n)));
    memcpy(&n, field.data, sizeof(n));
    if (n < 1)
        return refuse_forest(f->tree, "num_nodes is", n);
    f->n_nodes = (size_t)n;
    TRY(read_of_nodes(f, "node_type", 1, (const void **)&f->types));
    TRY(read_of_nodes(f, "cmp", 1, (const void **)&f->operators));
    TRY(read_of_nodes(f, "cleft", 4, (const void **)&f->left));
    TRY(read_of_nodes(f, "cright", 4, (const void **)&f->right));
    TRY(read_of_nodes(f, "split_index", 4, (const void **)&f->features));
    TRY(read_of_nodes(f, "leaf_vector_begin", 8, (const void **)&f->vector_begins));
    TRY(read_of_nodes(f, "leaf_vector_end", 8, (const void **)&f->vector_ends));
    TRY(read_of_nodes(f, "category_list_begin", 8, (const void **)&f->list_begins));
    TRY(read_of_nodes(f, "category_list_end", 8, (const void **)&f->list_ends));
    TRY(read_of_nodes(f, "default_left", 1, NULL));
    TRY(read_of_nodes(f, "category_list_right_child", 1, NULL));
    TRY(read_of_nodes(f, "leaf_value", 0, NULL));
    TRY(read_of_nodes(f, "threshold", 0, NULL));
    TRY(read_tree(f, "leaf_vector", &field));
    f->n_vectors = field.n;
    TRY(read_tree(f, "category_list", &field));
    f->n_lists = field.n;
    return count_other_fields(f);
}

/* A leaf's vector has the shape that the header says; a leaf without one has a single value, and
 * its tree is about one target and one class. */
static TRITONSERVER_Error *check_leaf(const struct tree_fields *f, size_t i)
{
    const struct forest_header *h = f->header;
    uint64_t begin = f->vector_begins[i], end = f->vector_ends[i];
    int32_t target = h->target_ids[f->tree], class = h->class_ids[f->tree];
    int32_t rows = target == -1 ? h->shape->n_targets : 1;
    int32_t columns = class == -1 ? h->shape->n_classes : 1;

    if (h->leaf_shape[0] != rows || h->leaf_shape[1] != columns)
        return refuse_forest(f->tree, "leaves of another shape than its outputs, node", (int64_t)i);
    if (begin == end)
        return rows == 1 && columns == 1 && target != -1 && class != -1
                   ? NULL
                   : refuse_forest(f->tree, "a leaf without its vector, node", (int64_t)i);
    if (begin > end || end > f->n_vectors || end - begin != (uint64_t)rows * (uint64_t)columns)
        return refuse_forest(f->tree, "a leaf vector of another length, node", (int64_t)i);
    return NULL;
}

static TRITONSERVER_Error *check_child(struct tree_fields *f, size_t i, int32_t child)
{
    if (child < 1 || (size_t)child >= f->n_nodes)
        return refuse_forest(f->tree, "a child that is no node:", child);
    if (f->depths[child] != 0)
        return refuse_forest(f->tree, "a node with two parents:", child);
    f->depths[child] = f->depths[i] + 1;
    return NULL;
}

static TRITONSERVER_Error *check_inner(struct tree_fields *f, size_t i)
{
    if (f->features[i] < 0 || f->features[i] >= f->header->shape->n_features)
        return refuse_forest(f->tree, "a split by the unknown feature", f->features[i]);
    if (f->types[i] == NODE_NUMERICAL &&
        (f->operators[i] < OPERATOR_MIN || f->operators[i] > OPERATOR_MAX))
        return refuse_forest(f->tree, "a split by the unknown operator", f->operators[i]);
    if (f->types[i] == NODE_CATEGORICAL &&
        (f->list_begins[i] > f->list_ends[i] || f->list_ends[i] > f->n_lists))
        return refuse_forest(f->tree, "categories outside of their list, node", (int64_t)i);
    if (f->types[i] != NODE_NUMERICAL && f->types[i] != NODE_CATEGORICAL)
        return refuse_forest(f->tree, "a node of the unknown kind", f->types[i]);
    TRY(check_child(f, i, f->left[i]));
    return check_child(f, i, f->right[i]);
}

/* Follows the children from the root on, level by level. */
static TRITONSERVER_Error *check_nodes(struct tree_fields *f, uint32_t *queue, uint32_t *deepest)
{
    size_t n_queued = 1;

    memset(f->depths, 0, f->n_nodes * sizeof(*f->depths));
    f->depths[0] = 1;
    queue[0] = 0;
    for (size_t k = 0; k < n_queued; k++) {
        uint32_t i = queue[k];

        *deepest = f->depths[i] > *deepest ? f->depths[i] : *deepest;
        if (f->left[i] == -1) {
            TRY(check_leaf(f, i));
            continue;
        }
        TRY(check_inner(f, i));
        queue[n_queued++] = (uint32_t)f->left[i];
        queue[n_queued++] = (uint32_t)f->right[i];
    }
    return NULL;
}

static TRITONSERVER_Error *check_forest_tree(struct tree_fields *f, uint32_t *deepest)
{
    TRY(read_tree_fields(f));
    if (f->n_nodes > f->n_room) {
        free(f->depths);
        f->n_room = 2 * f->n_nodes;
        f->depths = malloc(2 * f->n_room * sizeof(*f->depths)); /* the second half is the queue */
        if (!f->depths) {
            f->n_room = 0;
            return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no memory to check the forest");
        }
    }
    return check_nodes(f, f->depths + f->n_room, deepest);
}

TRITONSERVER_Error *forest_read(const struct treelite *t, treelite_model model,
                                struct forest *ret_forest)
{
    struct forest shape = {0};
    struct forest_header header = {.shape = &shape};
    struct tree_fields fields = {.t = t, .header = &header, .model = model};
    TRITONSERVER_Error *err;

    TRY(read_forest_shape(t, model, &shape));
    err = read_forest_header(t, model, &header);
    for (; !err && fields.tree < shape.n_trees; fields.tree++)
        err = check_forest_tree(&fields, &shape.depth);
    free(fields.depths);
    shape.base_scores = header.base_scores;
    if (err) {
        ret_forest->base_scores = shape.base_scores;
        return err;
    }
    shape.size = fields.size;
    shape.has_vectors = header.leaf_shape[1] > 1;
    *ret_forest = shape;
    return NULL;
}
