/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint - the check of treelite's own format, as its releases 3.9 and 4 write it: a header,
 * then the arrays of each tree. An array is a 64-bit number and so many elements. Later releases of
 * 4 may add fields, which have a name and the size of their elements.
 */
#include "fil/bytes_walk.h"

/* Of enum TypeInfo. */
enum { CHECKPOINT_UINT32 = 1, CHECKPOINT_FLOAT32 = 2, CHECKPOINT_FLOAT64 = 3 };

struct checkpoint {
    struct bytes_walk walk;
    int32_t version[3];
    size_t threshold_bytes, leaf_bytes;
    uint64_t n_trees;
};

/* A field of a later release: its name, the size of an element, their number. */
static bool skip_later_field(struct bytes_walk *w)
{
    uint64_t len, size, n, bytes;

    return walk_array(w, 1, &len) && walk_read(w, &size, sizeof(size)) &&
           walk_read(w, &n, sizeof(n)) &&
           (!__builtin_mul_overflow(size, n, &bytes) ||
            treefile_refuse(w->why, "a field of a later release has more than 2^64 bytes")) &&
           walk_skip(w, bytes, 1);
}

static bool skip_later_fields(struct bytes_walk *w)
{
    int32_t n;

    if (!walk_read(w, &n, sizeof(n)))
        return false;
    for (int32_t i = 0; i < n; i++)
        if (!skip_later_field(w))
            return false;
    return true;
}

/* Goes over arrays of these element sizes; 0 ends the list. */
static bool walk_arrays(struct bytes_walk *w, const size_t *sizes)
{
    uint64_t n;

    for (; *sizes > 0; sizes++)
        if (!walk_array(w, *sizes, &n))
            return false;
    return true;
}

static bool read_value_types(struct checkpoint *c)
{
    unsigned char types[2];
    struct bytes_walk *w = &c->walk;

    if (!walk_read(w, types, sizeof(types)))
        return false;
    c->threshold_bytes = types[0] == CHECKPOINT_FLOAT64 ? 8 : 4;
    c->leaf_bytes = types[1] == CHECKPOINT_FLOAT64 ? 8 : 4;
    if ((types[0] != CHECKPOINT_FLOAT32 && types[0] != CHECKPOINT_FLOAT64) ||
        (types[1] != types[0] && types[1] != CHECKPOINT_UINT32))
        return treefile_refuse(w->why, "thresholds of type %d, leaves of type %d", types[0],
                               types[1]);
    return true;
}

/* ---- Release 4 ------------------------------------------------------------------------------- */

static bool check_header_4(struct checkpoint *c)
{
    struct bytes_walk *w = &c->walk;
    int32_t num_feature, num_target;
    unsigned char task, average;
    static const size_t arrays[] = {4, 4, 4, 4,
                                    0}; /* num_class, leaf shape, target and class ids */
    float sigmoid_alpha, ratio_c;
    uint64_t n;

    return walk_read(w, &num_feature, sizeof(num_feature)) && walk_read(w, &task, 1) &&
           walk_read(w, &average, 1) && walk_read(w, &num_target, sizeof(num_target)) &&
           walk_arrays(w, arrays) && walk_array(w, 1, &n) /* postprocessor */ &&
           walk_read(w, &sigmoid_alpha, sizeof(sigmoid_alpha)) &&
           walk_read(w, &ratio_c, sizeof(ratio_c)) &&
           walk_array(w, sizeof(double), &n) /* base scores */ &&
           walk_array(w, 1, &n) /* attributes */ && skip_later_fields(w);
}

static bool check_tree_4(struct checkpoint *c)
{
    struct bytes_walk *w = &c->walk;
    const size_t arrays[] = {
        1,
        4,
        4,
        4,
        1,
        c->leaf_bytes,
        c->threshold_bytes,
        1,
        1, /* what a node is and compares */
        c->leaf_bytes,
        8,
        8,
        4,
        8,
        8, /* leaf vectors, categories */
        8,
        1,
        8,
        1,
        8,
        1,
        0 /* statistics */
    };

    return walk_skip(w, 1, sizeof(int32_t) + 1) /* num_nodes, has categories */ &&
           walk_arrays(w, arrays) && skip_later_fields(w) && skip_later_fields(w);
}

/* ---- Release 3.9 ----------------------------------------------------------------------------- */

/* The struct with which a file of release 3.9 describes its outputs. */
struct task_3 {
    unsigned char output_type, grove_per_class;
    uint32_t num_class, leaf_vector_size;
};

#define MODEL_3_BYTES (256 + 3 * 4) /* name of the transformation, three numbers */

static bool check_header_3(struct checkpoint *c)
{
    struct bytes_walk *w = &c->walk;
    struct task_3 task;
    int32_t num_feature, n_later;
    unsigned char kind, average;
    const char *name;

    if (!walk_read(w, &num_feature, sizeof(num_feature)) || !walk_read(w, &kind, 1) ||
        !walk_read(w, &average, 1) || !walk_read(w, &task, sizeof(task)))
        return false;
    if (task.num_class < 1 || task.num_class > TREE_MAX_OUTPUTS)
        return treefile_refuse(w->why, "the file has %u classes", (unsigned int)task.num_class);
    name = w->at;
    if (!walk_skip(w, 1, MODEL_3_BYTES))
        return false;
    if (!memchr(name, '\0', 256))
        return treefile_refuse(w->why, "the name of the transformation has no end");
    return walk_read(w, &n_later, sizeof(n_later));
}

static size_t node_bytes_3(const struct checkpoint *c)
{
    /* Two children and the feature, a value aligned to its size, three statistics of 8 bytes, eight
     * small fields. */
    return c->threshold_bytes == 8 || c->leaf_bytes == 8 ? 56 : 48;
}

static bool check_tree_3(struct checkpoint *c)
{
    struct bytes_walk *w = &c->walk;
    int32_t num_nodes;
    uint64_t n;
    const size_t arrays[] = {c->leaf_bytes, 8, 8, 4, 0}; /* leaf vectors, categories */

    if (!walk_read(w, &num_nodes, sizeof(num_nodes)) || !walk_skip(w, 1, 1) ||
        !walk_array(w, node_bytes_3(c), &n))
        return false;
    if (num_nodes < 1 || (uint64_t)num_nodes != n)
        return treefile_refuse(w->why, "a tree has %d nodes and %llu entries", (int)num_nodes,
                               (unsigned long long)n);
    return walk_arrays(w, arrays) && walk_array(w, 8, &n) /* where categories begin */ &&
           walk_skip(w, 2, sizeof(int32_t));
}

/* ---- Both ------------------------------------------------------------------------------------ */

static bool check_checkpoint_file(struct checkpoint *c)
{
    struct bytes_walk *w = &c->walk;
    bool is_3;

    if (!walk_read(w, c->version, sizeof(c->version)))
        return false;
    is_3 = c->version[0] == 3 && c->version[1] == 9;
    if (!is_3 && c->version[0] != 4)
        return treefile_refuse(w->why,
                               "it is of release %d.%d.%d of treelite; 3.9 and 4 can be read",
                               (int)c->version[0], (int)c->version[1], (int)c->version[2]);
    if (!read_value_types(c) || !walk_read(w, &c->n_trees, sizeof(c->n_trees)))
        return false;
    if (c->n_trees > walk_left(w))
        return treefile_refuse(w->why, "the file has %llu trees in %zu bytes",
                               (unsigned long long)c->n_trees, walk_left(w));
    if (!(is_3 ? check_header_3(c) : check_header_4(c)))
        return false;
    for (uint64_t i = 0; i < c->n_trees; i++)
        if (!(is_3 ? check_tree_3(c) : check_tree_4(c)))
            return false;
    return true;
}

bool treefile_check_checkpoint(const char *data, size_t size, struct treefile_why *why)
{
    struct checkpoint c = {.walk = {.begin = data, .at = data, .end = data + size, .why = why}};

    return check_checkpoint_file(&c);
}
