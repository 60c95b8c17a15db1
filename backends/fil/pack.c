/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arrays are visited twice: to add their sizes, and to move them. treelite does not copy an
 * array that it is given for a field, and frees the one that the field had. A release that copies
 * it would only be slower.
 */
#include "fil/pack.h"

#include <stdlib.h>
#include <string.h>

/* Allocators begin larger blocks at a line of the cache, or share at most one of their lines. */
#define SMALL 256

/* Two lines of the cache, since processors fetch them in pairs. */
#define LINES 128

/* What a prediction reads. */
static const char *const header_arrays[] = {"num_class", "leaf_vector_shape", "target_id",
                                            "class_id", "base_scores"};
static const char *const tree_arrays[] = {"node_type",
                                          "cleft",
                                          "cright",
                                          "split_index",
                                          "default_left",
                                          "leaf_value",
                                          "threshold",
                                          "cmp",
                                          "category_list_right_child",
                                          "leaf_vector",
                                          "leaf_vector_begin",
                                          "leaf_vector_end",
                                          "category_list",
                                          "category_list_begin",
                                          "category_list_end"};

struct packing {
    const struct treelite *t;
    treelite_model model;
    char *memory; /* NULL while sizes are added */
    size_t size;
};

#define HEADER -1

static int get_field(const struct packing *p, int64_t tree, const char *name,
                     struct treelite_field *ret_field)
{
    return tree == HEADER ? p->t->GetHeaderField(p->model, name, ret_field)
                          : p->t->GetTreeField(p->model, (uint64_t)tree, name, ret_field);
}

static int set_field(const struct packing *p, int64_t tree, const char *name,
                     struct treelite_field field)
{
    return tree == HEADER ? p->t->SetHeaderField(p->model, name, field)
                          : p->t->SetTreeField(p->model, (uint64_t)tree, name, field);
}

static TRITONSERVER_Error *pack_array(struct packing *p, int64_t tree, const char *name)
{
    struct treelite_field f = {0};
    size_t size;

    if (get_field(p, tree, name, &f) != 0)
        return treelite_error(p->t, TRITONSERVER_ERROR_INTERNAL, name);
    size = f.n * f.item_size;
    if (size == 0 || size > SMALL)
        return NULL;
    if (p->memory) {
        f.data = memcpy(p->memory + p->size, f.data, size);
        if (set_field(p, tree, name, f) != 0)
            return treelite_error(p->t, TRITONSERVER_ERROR_INTERNAL, name);
    }
    p->size += (size + 7) / 8 * 8; /* the largest elements have 8 bytes */
    return NULL;
}

static TRITONSERVER_Error *pack_arrays(struct packing *p, uint64_t n_trees)
{
    p->size = 0;
    for (size_t i = 0; i < sizeof(header_arrays) / sizeof(*header_arrays); i++)
        TRY(pack_array(p, HEADER, header_arrays[i]));
    for (uint64_t tree = 0; tree < n_trees; tree++)
        for (size_t i = 0; i < sizeof(tree_arrays) / sizeof(*tree_arrays); i++)
            TRY(pack_array(p, (int64_t)tree, tree_arrays[i]));
    return NULL;
}

TRITONSERVER_Error *forest_pack(const struct treelite *t, treelite_model model, uint64_t n_trees,
                                void **ret_memory)
{
    struct packing p = {.t = t, .model = model};
    void *memory;
    size_t size;

    *ret_memory = NULL;
    TRY(pack_arrays(&p, n_trees));
    size = (p.size / LINES + 1) * LINES;
    if (posix_memalign(&memory, LINES, size) != 0)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for %zu bytes of a forest",
                             size);
    *ret_memory = p.memory = memory;
    return pack_arrays(&p, n_trees);
}
