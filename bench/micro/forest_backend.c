/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forest_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend fil adds to
 * treelite, in one process, with our core library and no network. The repository has one model,
 * `forest`, from a file xgboost.ubj, which answers a row with one value.
 *
 * A request of one row, and one of 64, are measured in turn, round after round, in CPU time of the
 * process:
 *
 *     backend   the request made, executed (ModelInstanceExecute, response, release)
 *     made      the request made and released, nothing else
 *     bare      treelite's prediction of the same rows into memory of the caller
 *
 * The cost of the backend is backend - made - bare, taken within each round; the median counts.
 * Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model/model_priv.h"
#include "core/request/admit.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "core/server/server_priv.h"
#include "fil/treelite.h"
#include "micro/one_model.h"

enum { MAX_ROWS = 64, MAX_ROUNDS = 64, N_FEATURES = 8, RUNS = 20000 };

static struct treelite lib;
static treelite_model forest;
static treelite_config one_thread;
static struct pool *pool;
static float rows[MAX_ROWS * N_FEATURES], scores[MAX_ROWS];

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

static void run_bare(uint64_t n_rows)
{
    if (lib.GTILPredict(forest, rows, "float32", n_rows, scores, one_thread) != 0)
        fail("prediction");
}

/* ---- Requests ------------------------------------------------------------------------------- */

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    (void)r, (void)flags;
    if (resp && resp->error)
        must(status_ref(resp->error), "infer");
    response_free(resp);
}

static void destroy(struct request *r)
{
    (void)r;
}

static const struct request_ops ops = {.alloc_output = response_alloc_pooled,
                                       .free_output = response_free_pooled,
                                       .respond = respond,
                                       .destroy = destroy};

static void run_request(struct model *m, int64_t n_rows, bool executes)
{
    static struct request r;
    static char memory[4096];
    struct request *batch[2] = {&r}; /* with the room that instance_execute() wants */
    struct tensor_buffer buffer = {.base = rows,
                                   .size_bytes = (size_t)n_rows * N_FEATURES * sizeof(*rows)};
    int64_t shape[] = {n_rows, N_FEATURES};
    uint64_t now_ns = monotonic_ns(), bytes;
    struct input *in;

    model_ref(m);
    request_init(&r, &ops, m, memory, sizeof(memory), pool);
    must(request_add_input(&r, "input__0", 8, DTYPE_FP32, shape, 2, &in), "input");
    must(request_add_data(&r, in, &buffer), "data");
    must(request_admit(&r), "check");
    r.admitted.start_ns = r.admitted.queue_ns = now_ns;
    if (executes) {
        request_begin(&r);
        instance_execute(m->instances[0], batch, 1, now_ns, &bytes);
    }
    request_unref(&r);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

enum way { BACKEND, MADE, BARE, N_WAYS };

static double measure(struct model *m, int64_t n_rows, enum way way)
{
    double from = cpu_us();

    for (int i = 0; i < RUNS; i++) {
        if (way == BARE)
            run_bare((uint64_t)n_rows);
        else
            run_request(m, n_rows, way == BACKEND);
    }
    return (cpu_us() - from) / RUNS;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), by_value);
    return values[n / 2];
}

static void measure_rows(struct model *m, int64_t n_rows, int rounds)
{
    double times[N_WAYS][MAX_ROUNDS], added[MAX_ROUNDS];

    for (enum way way = 0; way < N_WAYS; way++)
        measure(m, n_rows, way);
    for (int i = 0; i < rounds; i++) {
        for (enum way way = 0; way < N_WAYS; way++)
            times[way][i] = measure(m, n_rows, way);
        added[i] = times[BACKEND][i] - times[MADE][i] - times[BARE][i];
    }
    printf("\"rows_%d\": {\"backend_us\": %.3f, \"made_us\": %.3f, \"bare_us\": %.3f, "
           "\"added_us\": %.3f}",
           (int)n_rows, median(times[BACKEND], rounds), median(times[MADE], rounds),
           median(times[BARE], rounds), median(added, rounds));
}

int main(int argc, char **argv)
{
    int rounds = argc > 4 ? atoi(argv[4]) : 5;

    if (argc < 4 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: forest_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        rows[i] = (float)(i * 7 % 41) / 10 - 2;
    setenv("CONCH_TREELITE", argv[3], 1);
    struct server *s = quiet_server_new(argv[1], argv[2]);
    struct model *m = one_model_load(s, argv[1], "forest");
    pool = pool_new("forest", 1 << 20, 0);
    open_bare(argv[1], argv[2], argv[3]);
    printf("{");
    measure_rows(m, 1, rounds);
    printf(",\n ");
    measure_rows(m, MAX_ROWS, rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
