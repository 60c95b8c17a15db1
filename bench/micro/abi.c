/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_abi REPOSITORY MODEL BACKENDS ROUNDS: the cost of a request through the plugin ABI, without
 * any network. The model is one of the backend identity, with one input, and executes inline
 * (CONCH_EXECUTION): everything happens on this thread. Prints one JSON object, each time the best
 * of the rounds:
 *
 *     execute_ns       from the call of ModelInstanceExecute to its response, both clocks included
 *     infer_ns         all of it: admission, queue, execution, response, release, all memory freed
 *     allocated_bytes  what the allocator gave out in all rounds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/model/model_priv.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "core/server/server_priv.h"
#include "micro/one_model.h"

enum { PER_ROUND = 20000, TENSOR_BYTES = 64, MAX_DIMS = 4 };

int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size);

/* jemalloc's own count for this thread. */
static uint64_t allocated(void)
{
    uint64_t bytes = 0;
    size_t size = sizeof(bytes);
    if (mallctl("thread.allocated", &bytes, &size, NULL, 0) != 0) {
        fprintf(stderr, "bench_abi: the allocator does not count\n");
        exit(1);
    }
    return bytes;
}

/* ---- Between call and answer ----------------------------------------------------------------- */

static struct status *(*execute)(struct instance *, struct request **, uint32_t);
static uint64_t called_ns, execute_ns, n_responses, n_released;

static struct status *timed_execute(struct instance *in, struct request **requests, uint32_t n)
{
    called_ns = monotonic_ns();
    return execute(in, requests, n);
}

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    (void)r;
    (void)flags;
    if (called_ns)
        execute_ns += monotonic_ns() - called_ns;
    if (resp && resp->error)
        must(status_ref(resp->error), "infer");
    n_responses += resp != NULL;
    response_free(resp);
}

static void release(struct request *r, uint32_t flags)
{
    (void)r;
    (void)flags;
    n_released++;
}

static void destroy(struct request *r)
{
    (void)r;
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = respond,
    .release = release,
    .destroy = destroy,
};

/* ---- The rounds ------------------------------------------------------------------------------ */

/* Returns the time of one request. */
static double run_round(struct server *s, struct request *r)
{
    uint64_t start_ns = monotonic_ns(), n = n_responses;
    for (int i = 0; i < PER_ROUND; i++) {
        struct inline_budget budget = {.left_ns = NS_PER_S};
        r->maker.inline_budget = &budget;
        must(server_infer(s, r), "infer");
    }
    if (n_responses - n != PER_ROUND || n_released != n_responses) {
        fprintf(stderr, "bench_abi: requests were not executed by this thread\n");
        exit(1);
    }
    return (double)(monotonic_ns() - start_ns) / PER_ROUND;
}

static void measure(struct server *s, struct model *m, struct request *r, long rounds)
{
    double best_infer = 1e9, best_execute = 1e9;

    execute = m->backend->fns.instance_execute;
    run_round(s, r); /* pools grow, once */
    uint64_t before = allocated();
    for (long i = 0; i < rounds; i++) {
        /* Alternating, because only one of the two figures includes the clocks. */
        best_infer = MIN(best_infer, run_round(s, r));
        m->backend->fns.instance_execute = timed_execute;
        execute_ns = 0;
        run_round(s, r);
        best_execute = MIN(best_execute, (double)execute_ns / PER_ROUND);
        m->backend->fns.instance_execute = execute;
        called_ns = 0;
    }
    printf("{\"execute_ns\": %.0f, \"infer_ns\": %.0f, \"allocated_bytes\": %llu, \"requests\": "
           "%ld}\n",
           best_execute, best_infer, (unsigned long long)(allocated() - before),
           2 * rounds * PER_ROUND);
}

int main(int argc, char **argv)
{
    long rounds = argc == 5 ? strtol(argv[4], NULL, 10) : 0;
    if (rounds <= 0) {
        fprintf(stderr, "usage: %s REPOSITORY MODEL BACKENDS ROUNDS\n", argv[0]);
        return 2;
    }
    struct server *s = quiet_server_new(argv[1], argv[3]);
    static char memory[4096], bytes[TENSOR_BYTES];
    struct model *m = one_model_load(s, argv[1], argv[2]);
    struct pool *pool = pool_new("abi", 1 << 20, 0);
    const struct tensor_spec *spec = &m->inputs[0];
    int64_t shape[MAX_DIMS] = {1, 1, 1, 1};
    uint32_t n_dims = spec->n_dims + m->batching;
    struct tensor_buffer data = {.base = bytes, .size_bytes = sizeof(bytes)};
    struct request r;
    struct input *in;

    if (n_dims == 0 || n_dims > MAX_DIMS || dtype_size(spec->dtype) == 0) {
        fprintf(stderr, "bench_abi: an input of 1 to %d dimensions is needed\n", MAX_DIMS);
        return 2;
    }
    shape[n_dims - 1] = (int64_t)(sizeof(bytes) / dtype_size(spec->dtype));
    model_ref(m);
    request_init(&r, &ops, m, memory, sizeof(memory), pool);
    must(request_add_input(&r, spec->name, strlen(spec->name), spec->dtype, shape, n_dims, &in),
         "input");
    must(request_add_data(&r, in, &data), "data");
    measure(s, m, &r, rounds);

    request_unref(&r);
    one_model_unload(s, m);
    pool_free(pool);
    quiet_server_end(s);
    return 0;
}
