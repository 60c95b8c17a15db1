/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_backend REPOSITORY BACKENDS [ROUNDS]: the cost that the backend pytorch adds to PyTorch, in
 * one process, with our core library and no network. The repository has one model, `add_sub`: two
 * inputs of 16 FP32, two outputs. Requests of one row and of 64 are measured as added.h says, with
 * PyTorch's call with tensors that are there already (torch_bare.h) as the bare call. Prints one
 * JSON object.
 */
/*
 * torch_backend REPOSITORY BACKENDS [ROUNDS]: the cost that the backend pytorch adds to PyTorch, in
 * one process, with our core library and no network. The repository has one model, `add_sub`: two
 * inputs of 16 FP32, two outputs.
 *
 * A request of one row, and one of 64, are measured in turn, round after round, in CPU time of the
 * process:
 *
 *     backend   the request made, executed (ModelInstanceExecute, response, release)
 *     made      the request made and released, nothing else
 *     bare      PyTorch's call with tensors that are there already (torch_bare.h)
 *
 * The cost of the backend is backend - made - bare, taken within each round; the median counts.
 * Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "micro/added.h"
#include "micro/one_model.h"
#include "torch/torch_bare.h"

enum { MAX_ROWS = 64, COLUMNS = 16 };

static float first[MAX_ROWS * COLUMNS], second[MAX_ROWS * COLUMNS];

static void add_inputs(struct request *r, int64_t n_rows)
{
    added_add_floats(r, "INPUT0", first, n_rows, COLUMNS);
    added_add_floats(r, "INPUT1", second, n_rows, COLUMNS);
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 3 ? argv[3] : NULL);
    char path[4096];
    const char *error;

    if (argc < 3 || n_rounds == 0) {
        fprintf(stderr, "usage: torch_backend REPOSITORY BACKENDS [ROUNDS]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        first[i] = (float)i, second[i] = (float)(i % 7);
    snprintf(path, sizeof(path), "%s/add_sub/1/model.pt", argv[1]);
    error = torch_bare_open(path, first, second, MAX_ROWS, COLUMNS);
    if (error) {
        fprintf(stderr, "torch_backend: %s: %s\n", path, error);
        return 1;
    }
    struct server *s = quiet_server_new(argv[1], argv[2]);
    struct added a = {.model = one_model_load(s, argv[1], "add_sub"),
                      .add_inputs = add_inputs,
                      .run_bare = torch_bare_run};
    printf("{\"rows_1\": ");
    added_measure(&a, 1, n_rounds);
    printf(",\n \"rows_%d\": ", MAX_ROWS);
    added_measure(&a, MAX_ROWS, n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
