/* SPDX-License-Identifier: Apache-2.0 */
#include "micro/added.h"

#include <dlfcn.h>
#include <stdatomic.h>
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

enum { DEFAULT_ROUNDS = 5, RUNS = 20000, TURNS = 200, PAGE = 4096 };
enum way { BACKEND, MADE, BARE, N_WAYS };

int added_read_rounds(const char *text)
{
    int n = text ? atoi(text) : DEFAULT_ROUNDS;
    return n < 1 || n > ADDED_MAX_ROUNDS ? 0 : n;
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

struct asked {
    struct request request;
    char memory[4096];
};

static int count_requests(const struct added *a)
{
    return a->n_requests ? a->n_requests : 1;
}

static void run_batch(const struct added *a, struct pool *pool, int64_t n_rows, bool executes)
{
    static struct asked all[ADDED_MAX_REQUESTS];
    struct request *batch[2 * ADDED_MAX_REQUESTS]; /* with the room that instance_execute() wants */
    uint64_t now_ns = monotonic_ns(), bytes;
    int n = count_requests(a);

    for (int i = 0; i < n; i++) {
        struct request *r = batch[i] = &all[i].request;

        model_ref(a->model);
        request_init(r, &ops, a->model, all[i].memory, sizeof(all[i].memory), pool);
        a->add_inputs(r, i, n_rows);
        must(request_admit(r), "check");
        r->admitted.start_ns = r->admitted.queue_ns = now_ns;
        if (executes)
            request_begin(r);
    }
    if (executes)
        instance_execute(a->model->instances[0], batch, (uint32_t)n, now_ns, &bytes);
    for (int i = 0; i < n; i++)
        request_unref(&all[i].request);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double wall_us(void)
{
    return (double)monotonic_ns() / 1e3;
}

static void run_way(const struct added *a, struct pool *pool, int64_t n_rows, enum way way, int n)
{
    for (int i = 0; i < n; i++) {
        if (way == BARE)
            a->run_bare(a->bare, n_rows * count_requests(a));
        else
            run_batch(a, pool, n_rows, way == BACKEND);
    }
}

/* One turn of one way: µs of a run. Loads wait for stores at another address that has the same
 * place in its page, so where the stack lies, which each process chooses by chance, makes a
 * framework faster or slower by a hundredth. So each turn has another place. */
static __attribute__((noinline)) double measure_turn(const struct added *a, struct pool *pool,
                                                     int64_t n_rows, enum way way, int n_runs)
{
    static unsigned int state;
    double (*read_us)(void) = a->one_thread ? wall_us : cpu_us;
    double from;
    volatile char *deeper;

    state = state * 1664525 + 1013904223;
    deeper = __builtin_alloca(16 + (state >> 16) % PAGE);
    *deeper = 0;
    from = read_us();
    run_way(a, pool, n_rows, way, n_runs);
    return (read_us() - from) / n_runs;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), by_value);
    return values[n / 2];
}

/* ---- Copies ---------------------------------------------------------------------------------- */

int added_counts_copies(void)
{
    return dlsym(RTLD_DEFAULT, "copy_count_on") != NULL;
}

static void count_copies(const struct added *a, struct pool *pool, int64_t n_rows)
{
    atomic_bool *on = dlsym(RTLD_DEFAULT, "copy_count_on");
    atomic_size_t *bytes = dlsym(RTLD_DEFAULT, "copy_count_bytes");

    run_batch(a, pool, n_rows, true); /* allocates the memory that is kept from then on */
    atomic_store(bytes, 0);
    atomic_store(on, true);
    run_batch(a, pool, n_rows, true);
    atomic_store(on, false);
    printf("{\"input_bytes\": %zu, \"copied_bytes\": %zu}", a->bytes, atomic_load(bytes));
}

/* What one reading of the wall clock takes. */
static double measure_clock(void)
{
    enum { READINGS = 1000 };
    double from = wall_us();

    for (int i = 0; i < READINGS; i++)
        (void)wall_us();
    return (wall_us() - from) / READINGS;
}

/* Times of each way in a round. The ways take turns that are so short that the machine does not
 * change between neighbours, and each way is the first as often as the others. What others do on
 * the machine only adds to a turn, so the one counts that is slower than a tenth of them. */
static void measure_round(const struct added *a, struct pool *pool, int64_t n_rows,
                          double ret_us[N_WAYS])
{
    static double turns[N_WAYS][RUNS];
    int n_runs = a->runs ? a->runs : RUNS;
    int n_turns = a->one_thread || n_runs < TURNS ? n_runs : TURNS;
    double clock_us = a->one_thread ? measure_clock() : 0;

    for (int i = 0; i < n_turns; i++) {
        for (int k = 0; k < N_WAYS; k++) {
            enum way way = (enum way)((i + k) % N_WAYS);

            turns[way][i] = measure_turn(a, pool, n_rows, way, n_runs / n_turns);
        }
    }
    for (enum way way = 0; way < N_WAYS; way++) {
        qsort(turns[way], (size_t)n_turns, sizeof(turns[way][0]), by_value);
        ret_us[way] = turns[way][n_turns / 10] - clock_us;
    }
}

static void measure_rounds(const struct added *a, struct pool *pool, int64_t n_rows, int n_rounds)
{
    double times[N_WAYS][ADDED_MAX_ROUNDS], added[ADDED_MAX_ROUNDS], round[N_WAYS];

    measure_round(a, pool, n_rows, round); /* warms the caches, and a framework that learns */
    for (int i = 0; i < n_rounds; i++) {
        measure_round(a, pool, n_rows, round);
        for (enum way way = 0; way < N_WAYS; way++)
            times[way][i] = round[way];
        added[i] = round[BACKEND] - round[MADE] - round[BARE];
    }
    printf("{\"backend_us\": %.3f, \"made_us\": %.3f, \"bare_us\": %.3f, \"added_us\": %.3f}",
           median(times[BACKEND], n_rounds), median(times[MADE], n_rounds),
           median(times[BARE], n_rounds), median(added, n_rounds));
}

void added_measure(const struct added *a, int64_t n_rows, int n_rounds)
{
    struct pool *pool = pool_new("added", 64 << 20, 0);

    if (added_counts_copies())
        count_copies(a, pool, n_rows);
    else
        measure_rounds(a, pool, n_rows, n_rounds);
    pool_free(pool);
}
