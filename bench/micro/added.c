/* SPDX-License-Identifier: Apache-2.0 */
#include "micro/added.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model/model_priv.h"
#include "core/request/admit.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "micro/one_model.h"

enum { MAX_ROUNDS = 64, DEFAULT_ROUNDS = 5, RUNS = 20000 };
enum way { BACKEND, MADE, BARE, N_WAYS };

int added_read_rounds(const char *text)
{
    int n = text ? atoi(text) : DEFAULT_ROUNDS;
    return n < 1 || n > MAX_ROUNDS ? 0 : n;
}

/* ---- Requests -------------------------------------------------------------------------------- */

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

void added_add_floats(struct request *r, const char *name, const float *values, int64_t n_rows,
                      int64_t n_columns)
{
    struct tensor_buffer buffer = {.base = values,
                                   .size_bytes = (size_t)(n_rows * n_columns) * sizeof(*values)};
    int64_t shape[] = {n_rows, n_columns};
    struct input *in;

    must(request_add_input(r, name, strlen(name), DTYPE_FP32, shape, 2, &in), "input");
    must(request_add_data(r, in, &buffer), "data");
}

static void run_request(const struct added *a, struct pool *pool, int64_t n_rows, bool executes)
{
    static struct request r;
    static char memory[4096];
    struct request *batch[2] = {&r}; /* with the room that instance_execute() wants */
    uint64_t now_ns = monotonic_ns(), bytes;

    model_ref(a->model);
    request_init(&r, &ops, a->model, memory, sizeof(memory), pool);
    a->add_inputs(&r, n_rows);
    must(request_admit(&r), "check");
    r.admitted.start_ns = r.admitted.queue_ns = now_ns;
    if (executes) {
        request_begin(&r);
        instance_execute(a->model->instances[0], batch, 1, now_ns, &bytes);
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

static double measure_way(const struct added *a, struct pool *pool, int64_t n_rows, enum way way)
{
    double from = cpu_us();

    for (int i = 0; i < RUNS; i++) {
        if (way == BARE)
            a->run_bare(n_rows);
        else
            run_request(a, pool, n_rows, way == BACKEND);
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

void added_measure(const struct added *a, int64_t n_rows, int n_rounds)
{
    double times[N_WAYS][MAX_ROUNDS], added[MAX_ROUNDS];
    struct pool *pool = pool_new("added", 1 << 20, 0);

    for (enum way way = 0; way < N_WAYS; way++)
        measure_way(a, pool, n_rows, way);
    for (int i = 0; i < n_rounds; i++) {
        for (enum way way = 0; way < N_WAYS; way++)
            times[way][i] = measure_way(a, pool, n_rows, way);
        added[i] = times[BACKEND][i] - times[MADE][i] - times[BARE][i];
    }
    printf("{\"backend_us\": %.3f, \"made_us\": %.3f, \"bare_us\": %.3f, \"added_us\": %.3f}",
           median(times[BACKEND], n_rounds), median(times[MADE], n_rounds),
           median(times[BARE], n_rounds), median(added, n_rounds));
    pool_free(pool);
}
