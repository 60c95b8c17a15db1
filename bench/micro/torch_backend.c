/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_backend REPOSITORY BACKENDS [ROUNDS]: the cost that the backend pytorch adds to PyTorch, in
 * one process, with our core library and no network. bench/harness/torch.py writes the repository:
 *
 *     add_sub   two inputs and two outputs of 16, asked with one row and with 64
 *     image     x of [-1,150528] makes y; a row is 602 kB. Alone, and eight requests as a batch
 *     pair      x of [32,128] makes y, two instances, as load_rate.h says
 *
 * all FP32, on one thread. A request is measured as added.h says, with PyTorch's call with tensors
 * that are there already (torch_bare.h) as the bare call. Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "micro/added.h"
#include "micro/load_rate.h"
#include "micro/one_model.h"
#include "torch/torch_bare.h"

enum { MAX_ROWS = 64, N = 16, PIXELS = 3 * 224 * 224, BATCH = 8, ROWS = 32, COLUMNS = 128 };
enum { APART = 1024 }; /* floats; requests of a batch lie apart, as requests of clients do */

static float first[MAX_ROWS * N], second[MAX_ROWS * N];
static float image[BATCH * (PIXELS + APART)];
static float pair_in[ROWS * COLUMNS];

static void *open_bare(const char *repository, const char *model, float *const *inputs,
                       size_t n_inputs, int64_t rows, int64_t columns)
{
    const char *error;
    char path[4096];
    struct torch_bare *bare;

    snprintf(path, sizeof(path), "%s/%s/1/model.pt", repository, model);
    bare = torch_bare_open(path, inputs, n_inputs, rows, columns, &error);
    if (!bare) {
        fprintf(stderr, "torch_backend: %s: %s\n", path, error);
        exit(1);
    }
    return bare;
}

static void add_inputs(struct request *r, int i, int64_t n_rows)
{
    (void)i;
    added_add_floats(r, "INPUT0", first, n_rows, N);
    added_add_floats(r, "INPUT1", second, n_rows, N);
}

static void measure_add_sub(struct server *s, const char *repository, int n_rounds)
{
    struct added a = {
        .model = one_model_load(s, repository, "add_sub"),
        .add_inputs = add_inputs,
        .run_bare = torch_bare_run,
        .bare = open_bare(repository, "add_sub", (float *[]){first, second}, 2, MAX_ROWS, N)};

    printf("\"rows_1\": ");
    added_measure(&a, 1, n_rounds);
    printf(",\n \"rows_%d\": ", MAX_ROWS);
    added_measure(&a, MAX_ROWS, n_rounds);
}

static void add_image(struct request *r, int i, int64_t n_rows)
{
    added_add_floats(r, "x", image + (size_t)i * (PIXELS + APART), n_rows, PIXELS);
}

static void measure_images(struct server *s, const char *repository, int n_rounds)
{
    struct added a = {.model = one_model_load(s, repository, "image"),
                      .add_inputs = add_image,
                      .run_bare = torch_bare_run,
                      .bare = open_bare(repository, "image", (float *[]){image}, 1, BATCH, PIXELS)};

    for (int n = 1; n <= BATCH; n += BATCH - 1) {
        a.n_requests = n;
        a.runs = 500 / n;
        a.bytes = (size_t)n * PIXELS * sizeof(*image);
        printf(",\n \"%s\": ", n == 1 ? "image" : "batch");
        added_measure(&a, 1, n_rounds);
    }
}

static void *pair_bare[LOAD_BARE_THREADS];

static void add_pair(struct request *r)
{
    added_add_floats(r, "x", pair_in, ROWS, COLUMNS);
}

static void run_pair_thread(size_t thread, size_t n)
{
    (void)n;
    torch_bare_run(pair_bare[thread], ROWS);
}

static void measure_pair(struct server *s, const char *repository, int n_rounds)
{
    struct model *pair = one_model_load(s, repository, "pair");
    struct model *const streams[] = {pair, pair, pair, pair};
    struct load l = {s, streams, 4, add_pair, run_pair_thread};

    for (size_t i = 0; i < LOAD_BARE_THREADS; i++)
        pair_bare[i] = open_bare(repository, "pair", (float *[]){pair_in}, 1, ROWS, COLUMNS);
    printf(",\n \"pair\": ");
    load_measure(&l, 2 * n_rounds);
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 3 ? argv[3] : NULL);

    if (argc < 3 || n_rounds == 0) {
        fprintf(stderr, "usage: torch_backend REPOSITORY BACKENDS [ROUNDS]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        first[i] = (float)i, second[i] = (float)(i % 7);
    struct server *s = quiet_server_new(argv[1], argv[2]);
    printf("{");
    measure_add_sub(s, argv[1], n_rounds);
    measure_images(s, argv[1], n_rounds);
    if (!added_counts_copies())
        measure_pair(s, argv[1], n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
