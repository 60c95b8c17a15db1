/* SPDX-License-Identifier: Apache-2.0 */
#include "micro/large.h"

#include <stdio.h>

#include "micro/added.h"
#include "micro/one_model.h"

enum { APART = 1024 }; /* floats; requests of a batch lie apart, as requests of clients do */

/* TensorFlow uses memory in place that is aligned so. */
#define ALIGNED __attribute__((aligned(64)))

static float image[LARGE_BATCH * (LARGE_PIXELS + APART)] ALIGNED;
static float matrix[LARGE_PAIR_ROWS * LARGE_MAX_COLUMNS] ALIGNED;
static const struct large *large;
static void *pair_bare[LOAD_BARE_THREADS];

static void add_image(struct request *r, int i, int64_t n_rows)
{
    added_add_floats(r, large->input, image + (size_t)i * (LARGE_PIXELS + APART), n_rows,
                     LARGE_PIXELS);
}

static void measure_images(int n_rounds)
{
    struct added a = {.model = one_model_load(large->server, large->repository, "image"),
                      .add_inputs = add_image,
                      .run_bare = large->run_bare};

    for (int n = 1; n <= LARGE_BATCH; n += LARGE_BATCH - 1) {
        a.bare = large->make_bare(large->repository, "image", image, n, LARGE_PIXELS);
        a.n_requests = n;
        a.runs = 500 / n;
        a.bytes = (size_t)n * LARGE_PIXELS * sizeof(*image);
        printf(",\n \"%s\": ", n == 1 ? "image" : "batch");
        added_measure(&a, 1, n_rounds);
    }
}

static void add_matrix(struct request *r)
{
    added_add_floats(r, large->input, matrix, LARGE_PAIR_ROWS, large->pair_columns);
}

static void run_bare_matrix(size_t thread, size_t n)
{
    (void)n;
    large->run_bare(pair_bare[thread], LARGE_PAIR_ROWS);
}

static void measure_pair(int n_rounds)
{
    struct model *model = one_model_load(large->server, large->repository, "pair");

    for (size_t i = 0; i < LOAD_BARE_THREADS; i++)
        pair_bare[i] = large->make_bare(large->repository, "pair", matrix, LARGE_PAIR_ROWS,
                                        large->pair_columns);
    printf(",\n \"pair\": ");
    load_measure_pair(large->server, model, add_matrix, run_bare_matrix, n_rounds);
}

void large_measure(const struct large *l, int n_rounds)
{
    large = l;
    measure_images(n_rounds);
    if (!added_counts_copies())
        measure_pair(n_rounds);
}
