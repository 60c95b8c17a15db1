/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openvino_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend openvino adds to
 * OpenVINO, in one process, with our core library and no network. The repository has one model,
 * `add_sub`: A and B of [1,16] FP32 make SUM and DIFF, on one thread.
 *
 * Three ways are measured in turn, round after round, in CPU time of the process:
 *
 *     backend   the request made, executed (ModelInstanceExecute, response, release)
 *     made      the request made and released, nothing else
 *     bare      an inference of the same model, compiled in the same way, with tensors of the
 *               caller's memory that were bound before
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
#include "openvino/library.h"
#include "openvino/types.h"

enum { MAX_ROUNDS = 64, N = 16, RUNS = 20000 };

static struct library lib;
static struct ov_request *bare;
static struct pool *pool;
static float inputs[2][N], outputs[2][N];

static void check_call(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "openvino_backend: %s: %s\n", what, lib.api.get_last_err_msg());
    exit(1);
}

static void bind(struct ov_compiled *compiled, const char *name, bool is_input, float *memory)
{
    int64_t dims[] = {1, N};
    struct ov_tensor *tensor;
    struct ov_port *port;

    check_call((is_input ? lib.api.compiled_model_input_by_name
                         : lib.api.compiled_model_output_by_name)(compiled, name, &port),
               name);
    check_call(lib.api.tensor_create_from_host_ptr(element_type_named("TYPE_FP32")->ov,
                                                   (struct ov_shape){2, dims}, memory, &tensor),
               name);
    check_call(lib.api.infer_request_set_tensor_by_const_port(bare, port, tensor), name);
}

static void open_bare(const char *repository, const char *backends, const char *library)
{
    struct ov_compiled *compiled;
    struct ov_model *model;
    struct ov_core *core;
    char path[4096];

    if (library_open(backends, library, &lib)) {
        fprintf(stderr, "openvino_backend: no OpenVINO in %s\n", library);
        exit(1);
    }
    snprintf(path, sizeof(path), "%s/add_sub/1/model.xml", repository);
    check_call(lib.api.core_create(&core), "core");
    check_call(lib.api.core_set_property(core, "CPU", "INFERENCE_NUM_THREADS", "1"), "threads");
    check_call(lib.api.core_read_model(core, path, NULL, &model), path);
    check_call(lib.api.core_compile_model(core, model, "CPU", 0, &compiled), path);
    check_call(lib.api.compiled_model_create_infer_request(compiled, &bare), "request");
    bind(compiled, "A", true, inputs[0]);
    bind(compiled, "B", true, inputs[1]);
    bind(compiled, "SUM", false, outputs[0]);
    bind(compiled, "DIFF", false, outputs[1]);
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

static void run_request(struct model *m, bool executes)
{
    static struct request r;
    static char memory[4096];
    struct request *batch[2] = {&r}; /* with the room that instance_execute() wants */
    int64_t shape[] = {1, N};
    uint64_t now_ns = monotonic_ns(), bytes;

    model_ref(m);
    request_init(&r, &ops, m, memory, sizeof(memory), pool);
    for (int i = 0; i < 2; i++) {
        struct tensor_buffer buffer = {.base = inputs[i], .size_bytes = sizeof(inputs[i])};
        struct input *in;

        must(request_add_input(&r, i ? "B" : "A", 1, DTYPE_FP32, shape, 2, &in), "input");
        must(request_add_data(&r, in, &buffer), "data");
    }
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

static double measure(struct model *m, enum way way)
{
    double from = cpu_us();

    for (int i = 0; i < RUNS; i++) {
        if (way == BARE)
            check_call(lib.api.infer_request_infer(bare), "infer");
        else
            run_request(m, way == BACKEND);
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

int main(int argc, char **argv)
{
    double times[N_WAYS][MAX_ROUNDS], added[MAX_ROUNDS];
    int rounds = argc > 4 ? atoi(argv[4]) : 5;

    if (argc < 4 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: openvino_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    for (int i = 0; i < N; i++)
        inputs[0][i] = (float)i, inputs[1][i] = 2;
    setenv("CONCH_OPENVINO", argv[3], 1);
    /* The model first: the backend starts the library as jemalloc needs it. */
    struct server *s = quiet_server_new(argv[1], argv[2]);
    struct model *m = one_model_load(s, argv[1], "add_sub");
    pool = pool_new("openvino", 1 << 20, 0);
    open_bare(argv[1], argv[2], argv[3]);
    for (enum way way = 0; way < N_WAYS; way++)
        measure(m, way);
    for (int i = 0; i < rounds; i++) {
        for (enum way way = 0; way < N_WAYS; way++)
            times[way][i] = measure(m, way);
        added[i] = times[BACKEND][i] - times[MADE][i] - times[BARE][i];
    }
    printf("{\"backend_us\": %.3f, \"made_us\": %.3f, \"bare_us\": %.3f, \"added_us\": %.3f}\n",
           median(times[BACKEND], rounds), median(times[MADE], rounds), median(times[BARE], rounds),
           median(added, rounds));
    fflush(stdout);
    _exit(outputs[0][1] == 3 ? 0 : 1); /* the end of a server is measured elsewhere */
}
