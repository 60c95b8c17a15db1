/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forest_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend fil adds to
 * treelite, in one process, with our core library and no network. The repository has the model
 * `forest`, from a file xgboost.ubj, which answers a row with one value, and `pair`, the same with
 * two instances. Requests of one row and of 64 are measured as added.h says, with treelite's
 * prediction into memory of the caller as the bare call, and those of 64 rows as load_rate.h says.
 * Prints one JSON object.
 *
 * A prediction goes through branches that the rows decide. A processor learns up to four requests
 * of 64 rows by heart, and what runs between two predictions makes it forget some of that, which a
 * real client's rows never let it learn. So the rows are other ones for each of 256 requests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fil/model.h"
#include "micro/added.h"
#include "micro/load_rate.h"
#include "micro/one_model.h"

enum { MAX_ROWS = 64, N_FEATURES = 8, N_TABLES = 256, N_VALUES = MAX_ROWS * N_FEATURES };

static struct treelite lib;
static treelite_model forest;
static treelite_config one_thread;
static float tables[N_TABLES][N_VALUES], scores[LOAD_BARE_THREADS][MAX_ROWS];

static void fail(const char *what)
{
    fprintf(stderr, "forest_backend: %s: %s\n", what, lib.last_error ? lib.last_error() : "?");
    exit(1);
}

static void open_bare(struct model *loaded, const char *backends, const char *library)
{
    struct frame_model *frame;
    struct forest_model *own;
    void *state;

    if (treelite_open(backends, library, &lib))
        fail(library);
    if (TRITONBACKEND_ModelState((TRITONBACKEND_Model *)loaded, &state))
        fail("the backend's model");
    frame = state;
    own = frame->state;
    forest = own->model;
    one_thread = own->on_one;
}

static void fill_tables(void)
{
    unsigned int state = 1;

    for (size_t i = 0; i < N_TABLES; i++)
        for (size_t k = 0; k < N_VALUES; k++) {
            state = state * 1664525 + 1013904223;
            tables[i][k] = (float)(state >> 16) / 16384 - 2;
        }
}

/* The next table of this thread: each way of measuring goes through all of them. */
static const float *next_table(unsigned int *at)
{
    return tables[(*at)++ % N_TABLES];
}

static void predict_bare(const float *rows, int64_t n_rows, float *to)
{
    if (lib.GTILPredict(forest, rows, "float32", (uint64_t)n_rows, to, one_thread) != 0)
        fail("prediction");
}

static void run_bare(void *bare, int64_t n_rows)
{
    static unsigned int at;

    predict_bare(next_table(&at), n_rows, bare);
}

/* treelite allocates 8 bytes for each leaf that it visits, again and again the same block. One that
 * begins a page jemalloc frees by a longer way, for its profiler: 6 µs of a request of 64 rows. So
 * that no thread has that one by chance, each keeps a block. */
static void keep_block(void)
{
    static _Thread_local void *kept;

    if (!kept)
        kept = malloc(8);
}

static void run_bare_thread(size_t thread, size_t n)
{
    keep_block();
    predict_bare(tables[n % N_TABLES], MAX_ROWS, scores[thread]);
}

static void add_inputs(struct request *r, int i, int64_t n_rows)
{
    static _Thread_local unsigned int at;

    (void)i;
    added_add_floats(r, "input__0", next_table(&at), n_rows, N_FEATURES);
}

static void add_many_rows(struct request *r)
{
    keep_block();
    add_inputs(r, 0, MAX_ROWS);
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 4 ? argv[4] : NULL);

    if (argc < 4 || n_rounds == 0) {
        fprintf(stderr, "usage: forest_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    fill_tables();
    setenv("CONCH_TREELITE", argv[3], 1);
    struct server *s = quiet_server_new(argv[1], argv[2]);
    struct added a = {.model = one_model_load(s, argv[1], "forest"),
                      .add_inputs = add_inputs,
                      .run_bare = run_bare,
                      .bare = scores[0],
                      .one_thread = true};
    struct model *pair = one_model_load(s, argv[1], "pair");
    open_bare(a.model, argv[2], argv[3]);
    printf("{\"rows_1\": ");
    added_measure(&a, 1, n_rounds);
    printf(",\n \"rows_%d\": ", MAX_ROWS);
    a.runs = 6000;
    added_measure(&a, MAX_ROWS, n_rounds);
    printf(",\n \"pair\": ");
    open_bare(pair, argv[2], argv[3]); /* where a forest lies decides how long a prediction takes */
    load_measure_pair(s, pair, add_many_rows, run_bare_thread, n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
