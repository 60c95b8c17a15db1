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
#include "micro/large.h"
#include "micro/one_model.h"
#include "torch/torch_bare.h"

enum { MAX_ROWS = 64, N = 16 };

static float first[MAX_ROWS * N], second[MAX_ROWS * N];

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

static void *make_bare(const char *repository, const char *model, float *values, int64_t n_rows,
                       int64_t n_columns)
{
    return open_bare(repository, model, (float *[]){values}, 1, n_rows, n_columns);
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
    large_measure(&(struct large){s, argv[1], "x", 128, make_bare, torch_bare_run}, n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
