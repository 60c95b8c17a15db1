/* SPDX-License-Identifier: Apache-2.0 */
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
#include "micro/one_model.h"
#include "torch/torch_bare.h"

enum { MAX_ROWS = 64, MAX_ROUNDS = 64, COLUMNS = 16, RUNS = 20000 };

static struct pool *pool;
static float first[MAX_ROWS * COLUMNS], second[MAX_ROWS * COLUMNS];

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

static void add_input(struct request *r, const char *name, float *data, int64_t n_rows)
{
    struct tensor_buffer buffer = {.base = data,
                                   .size_bytes = (size_t)n_rows * COLUMNS * sizeof(*data)};
    int64_t shape[] = {n_rows, COLUMNS};
    struct input *in;

    must(request_add_input(r, name, 6, DTYPE_FP32, shape, 2, &in), "input");
    must(request_add_data(r, in, &buffer), "data");
}

static void run_request(struct model *m, int64_t n_rows, bool executes)
{
    static struct request r;
    static char memory[4096];
    struct request *batch[2] = {&r}; /* with the room that instance_execute() wants */
    uint64_t now_ns = monotonic_ns(), bytes;

    model_ref(m);
    request_init(&r, &ops, m, memory, sizeof(memory), pool);
    add_input(&r, "INPUT0", first, n_rows);
    add_input(&r, "INPUT1", second, n_rows);
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
            torch_bare_run(n_rows);
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
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    char path[4096];
    const char *error;

    if (argc < 3 || rounds < 1 || rounds > MAX_ROUNDS) {
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
    struct model *m = one_model_load(s, argv[1], "add_sub");
    pool = pool_new("add_sub", 1 << 20, 0);
    printf("{");
    measure_rows(m, 1, rounds);
    printf(",\n ");
    measure_rows(m, MAX_ROWS, rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
