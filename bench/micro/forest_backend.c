/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forest_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend fil adds to
 * treelite, in one process, with our core library and no network. The repository has the model
 * `forest`, from a file xgboost.ubj, which answers a row with one value, and `pair`, the same with
 * two instances. Requests of one row and of 64 are measured as added.h says, with treelite's
 * prediction into memory of the caller as the bare call, and those of 64 rows as load_rate.h says.
 * Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fil/treelite.h"
#include "micro/added.h"
#include "micro/load_rate.h"
#include "micro/one_model.h"

enum { MAX_ROWS = 64, N_FEATURES = 8 };

static struct treelite lib;
static treelite_model forest;
static treelite_config one_thread;
static float rows[MAX_ROWS * N_FEATURES], scores[LOAD_BARE_THREADS][MAX_ROWS];

static void fail(const char *what)
{
    fprintf(stderr, "forest_backend: %s: %s\n", what, lib.last_error ? lib.last_error() : "?");
    exit(1);
}

static void open_bare(const char *repository, const char *backends, const char *library)
{
    char path[4096];
    static char bytes[1 << 20];
    FILE *from;

    if (treelite_open(backends, library, &lib))
        fail(library);
    snprintf(path, sizeof(path), "%s/forest/1/xgboost.ubj", repository);
    from = fopen(path, "rb");
    if (!from)
        fail(path);
    size_t n = fread(bytes, 1, sizeof(bytes), from);
    fclose(from);
    if (lib.LoadXGBoostModelFromUBJSONString(bytes, n, "{}", &forest) != 0 ||
        lib.GTILParseConfig("{\"predict_type\": \"default\", \"nthread\": 1}", &one_thread) != 0)
        fail(path);
}

static void run_bare(void *bare, int64_t n_rows)
{
    if (lib.GTILPredict(forest, rows, "float32", (uint64_t)n_rows, bare, one_thread) != 0)
        fail("prediction");
}

static void run_bare_thread(size_t thread, size_t n)
{
    (void)n;
    run_bare(scores[thread], MAX_ROWS);
}

static void add_inputs(struct request *r, int i, int64_t n_rows)
{
    (void)i;
    added_add_floats(r, "input__0", rows, n_rows, N_FEATURES);
}

static void add_many_rows(struct request *r)
{
    add_inputs(r, 0, MAX_ROWS);
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 4 ? argv[4] : NULL);

    if (argc < 4 || n_rounds == 0) {
        fprintf(stderr, "usage: forest_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        rows[i] = (float)(i * 7 % 41) / 10 - 2;
    setenv("CONCH_TREELITE", argv[3], 1);
    struct server *s = quiet_server_new(argv[1], argv[2]);
    struct added a = {.model = one_model_load(s, argv[1], "forest"),
                      .add_inputs = add_inputs,
                      .run_bare = run_bare,
                      .bare = scores[0]};
    struct model *pair = one_model_load(s, argv[1], "pair");
    struct model *const streams[] = {pair, pair, pair, pair};
    struct load l = {s, streams, 4, add_many_rows, run_bare_thread};
    open_bare(argv[1], argv[2], argv[3]);
    printf("{\"rows_1\": ");
    added_measure(&a, 1, n_rounds);
    printf(",\n \"rows_%d\": ", MAX_ROWS);
    added_measure(&a, MAX_ROWS, n_rounds);
    printf(",\n \"pair\": ");
    load_measure(&l, 2 * n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
