/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ort_backend REPOSITORY BACKENDS LIBRARY [ROUNDS [NAME=VALUE]]: the cost that the onnxruntime
 * backend adds to ONNX Runtime, in one process, with our core library and no network.
 *
 * Each kind of request is measured in turn, round after round, in CPU time of the process:
 *
 *     backend   a batch of requests made, executed (ModelInstanceExecute, responses, release)
 *     made      the requests made and released, nothing else
 *     moving, made_moving
 *               the same, with inputs and outputs at different addresses each time, as those of
 *               many clients: the backend can reuse nothing that it keeps between runs (only of
 *               small tensors)
 *     owned     a bare Run into buffers of the caller, wrapped for each call
 *     theirs    a bare Run that lets ONNX Runtime allocate, and a copy of its output
 *
 * The cost of the backend is backend - made - owned, taken within each round; the median counts. At
 * the end ten models are measured as load_rate.h says. Prints one JSON object.
 *
 * Under copy_count.so it measures nothing, and prints how many bytes the backend's library copies.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/options/server_options.h"
#include "core/request/admit.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "core/server/server.h"
#include "micro/added.h"
#include "micro/load_rate.h"
#include "micro/one_model.h"
#include "onnxruntime/library.h"

enum { MAX_BATCH = 8, N_MODELS = 10, N_PLACES = 2 };
enum { APART = 4096 }; /* requests of a batch lie apart, as requests of clients do */

/* ---- Bare runs ------------------------------------------------------------------------------ */

struct kind {
    const char *name, *model;
    const char *in[2], *out[2];
    size_t n_in, n_out;
    enum ort_element element;
    enum dtype dtype;
    int64_t shape[4];
    size_t n_dims, size_bytes;
    uint32_t batch; /* requests in one batch */
    int runs;       /* in a round */
};

static const struct kind kinds[] = {
    {"add_sub",
     "add_sub",
     {"INPUT0", "INPUT1"},
     {"OUTPUT0", "OUTPUT1"},
     2,
     2,
     ORT_INT32,
     DTYPE_INT32,
     {1, 16},
     2,
     64,
     1,
     20000},
    {"image",
     "image",
     {"IN"},
     {"OUT0"},
     1,
     1,
     ORT_FLOAT,
     DTYPE_FP32,
     {1, 3, 224, 224},
     4,
     602112,
     1,
     500},
    {"batch",
     "image",
     {"IN"},
     {"OUT0"},
     1,
     1,
     ORT_FLOAT,
     DTYPE_FP32,
     {1, 3, 224, 224},
     4,
     602112,
     8,
     50},
};

static struct library lib;
static struct ort_env *env;
static struct ort_memory *cpu;

static void check(struct ort_status *status)
{
    if (!status)
        return;
    fprintf(stderr, "ort_backend: %s\n", lib.api.GetErrorMessage(status));
    exit(1);
}

static void no_log(void *param, enum ort_severity severity, const char *category, const char *logid,
                   const char *location, const char *message)
{
    (void)param, (void)severity, (void)category, (void)logid, (void)location, (void)message;
}

static struct ort_session *bare_open(const char *repository, const char *model)
{
    struct ort_options *options = NULL;
    struct ort_session *session = NULL;
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s/1/model.onnx", repository, model);
    check(lib.api.CreateSessionOptions(&options));
    check(lib.api.SetIntraOpNumThreads(options, 1));
    check(lib.api.CreateSession(env, path, options, &session));
    lib.api.ReleaseSessionOptions(options);
    return session;
}

static struct ort_value *wrap(const struct kind *k, void *data)
{
    struct ort_value *value = NULL;
    int64_t shape[4];

    memcpy(shape, k->shape, sizeof(shape));
    shape[0] *= k->batch;
    check(lib.api.CreateTensorWithDataAsOrtValue(cpu, data, k->size_bytes * k->batch, shape,
                                                 k->n_dims, k->element, &value));
    return value;
}

struct bare {
    const struct kind *kind;
    struct ort_session *session;
    void *in[2], *out[2];
    void *elsewhere[N_PLACES][2]; /* inputs for `moving` */
};

static void bare_run(const struct bare *b, bool owned)
{
    const struct kind *k = b->kind;
    struct ort_value *in[2] = {NULL}, *out[2] = {NULL};

    for (size_t i = 0; i < k->n_in; i++)
        in[i] = wrap(k, b->in[i]);
    for (size_t i = 0; i < k->n_out && owned; i++)
        out[i] = wrap(k, b->out[i]);
    check(lib.api.Run(b->session, NULL, k->in, (const struct ort_value *const *)in, k->n_in, k->out,
                      k->n_out, out));
    for (size_t i = 0; i < k->n_out && !owned; i++) {
        void *data = NULL;
        check(lib.api.GetTensorMutableData(out[i], &data));
        memmove(b->out[i], data, k->size_bytes * k->batch);
    }
    for (size_t i = 0; i < k->n_in; i++)
        lib.api.ReleaseValue(in[i]);
    for (size_t i = 0; i < k->n_out; i++)
        lib.api.ReleaseValue(out[i]);
}

/* ---- Requests ------------------------------------------------------------------------------- */

static struct server *server;
static struct pool *pool;

struct asked {
    struct request request;
    char memory[4096];
};

/* The last answers of `moving`, kept so that the next ones lie elsewhere. */
static struct response *kept[N_PLACES];
static unsigned int n_kept;
static bool keeps;

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    (void)r, (void)flags;
    if (resp && resp->error)
        must(status_ref(resp->error), "infer");
    if (keeps) {
        struct response **place = &kept[n_kept++ % N_PLACES], *before = *place;
        *place = resp;
        resp = before;
    }
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

static void make(struct asked *a, const struct request_ops *with, struct model *m,
                 const struct kind *k, void *const *data)
{
    struct input *in;

    model_ref(m);
    request_init(&a->request, with, m, a->memory, sizeof(a->memory), pool);
    for (size_t i = 0; i < k->n_in; i++) {
        struct tensor_buffer buffer = {.base = data[i], .size_bytes = k->size_bytes};
        must(request_add_input(&a->request, k->in[i], strlen(k->in[i]), k->dtype, k->shape,
                               (uint32_t)k->n_dims, &in),
             "input");
        must(request_add_data(&a->request, in, &buffer), "data");
    }
}

static void backend_run(struct model *m, const struct bare *b, void *const *inputs, bool executes)
{
    static struct asked places[N_PLACES][MAX_BATCH];
    static unsigned int n_runs;
    struct asked *all = places[keeps ? n_runs++ % N_PLACES : 0];
    struct request *batch[2 * MAX_BATCH]; /* with the room that instance_execute() wants */
    const struct kind *k = b->kind;
    uint64_t now_ns = monotonic_ns(), bytes;

    for (uint32_t i = 0; i < k->batch; i++) {
        void *data[2];
        for (size_t j = 0; j < k->n_in; j++)
            data[j] = (char *)inputs[j] + i * (k->size_bytes + APART);
        make(&all[i], &ops, m, k, data);
        batch[i] = &all[i].request;
        must(request_admit(batch[i]), "check");
        batch[i]->admitted.start_ns = batch[i]->admitted.queue_ns = now_ns;
        if (executes)
            request_begin(batch[i]);
    }
    if (executes)
        instance_execute(m->instances[0], batch, k->batch, now_ns, &bytes);
    for (uint32_t i = 0; i < k->batch; i++)
        request_unref(batch[i]);
}

/* ---- One kind of request -------------------------------------------------------------------- */

enum { BACKEND, MADE, MOVING, MADE_MOVING, OWNED, THEIRS, N_WAYS };
static const char *const ways[N_WAYS] = {"backend_us",     "made_us",  "moving_us",
                                         "made_moving_us", "owned_us", "theirs_us"};

/* Only of small tensors the address matters; large ones leave the cache anyway. */
static bool is_small(const struct kind *k)
{
    return k->size_bytes < 1024;
}

static double measure(struct model *m, const struct bare *b, int way)
{
    bool moves = way == MOVING || way == MADE_MOVING;
    double from = cpu_us();

    if (moves && !is_small(b->kind))
        return 0;
    keeps = moves;
    for (int i = 0; i < b->kind->runs; i++) {
        if (way == OWNED || way == THEIRS)
            bare_run(b, way == OWNED);
        else
            backend_run(m, b, moves ? b->elsewhere[i % N_PLACES] : b->in,
                        way == BACKEND || way == MOVING);
    }
    return (cpu_us() - from) / b->kind->runs;
}

static void measure_kind(struct model *m, const struct bare *b, int rounds)
{
    double times[N_WAYS][ADDED_MAX_ROUNDS], added[ADDED_MAX_ROUNDS], added_moving[ADDED_MAX_ROUNDS];

    for (int way = 0; way < N_WAYS; way++)
        measure(m, b, way);
    for (int round = 0; round < rounds; round++) {
        for (int way = 0; way < N_WAYS; way++)
            times[way][round] = measure(m, b, way);
        added[round] = times[BACKEND][round] - times[MADE][round] - times[OWNED][round];
        added_moving[round] =
            times[MOVING][round] - times[MADE_MOVING][round] - times[OWNED][round];
    }
    for (int way = 0; way < N_WAYS; way++)
        printf("\"%s\": %.3f, ", ways[way], median(times[way], rounds));
    printf("\"added_us\": %.3f, \"added_moving_us\": %.3f", median(added, rounds),
           median(added_moving, rounds));
}

/* The counter of copy_count.so, if that is loaded. */
static atomic_bool *copy_count_on;
static atomic_size_t *copy_count_bytes;

static void count_copies(struct model *m, const struct bare *b)
{
    backend_run(m, b, b->in, true); /* allocates the memory that is kept from then on */
    atomic_store(copy_count_bytes, 0);
    atomic_store(copy_count_on, true);
    backend_run(m, b, b->in, true);
    atomic_store(copy_count_on, false);
    printf("\"input_bytes\": %zu, \"copied_bytes\": %zu",
           b->kind->size_bytes * b->kind->batch * b->kind->n_in, atomic_load(copy_count_bytes));
}

static void try_kind(const char *repository, const struct kind *k, int rounds)
{
    struct bare b = {.kind = k, .session = bare_open(repository, k->model)};
    struct model *m;

    for (size_t i = 0; i < 2; i++) {
        size_t in_bytes = (k->size_bytes + APART) * k->batch;
        b.in[i] = mem_zalloc(in_bytes);
        b.out[i] = mem_zalloc(k->size_bytes * k->batch);
        for (size_t j = 0; j < N_PLACES && is_small(k); j++)
            b.elsewhere[j][i] = mem_zalloc(in_bytes);
    }
    must(server_find_model(server, k->model, strlen(k->model), 1, &m), "model");
    printf("\"%s\": {", k->name);
    if (copy_count_on)
        count_copies(m, &b);
    else
        measure_kind(m, &b, is_small(k) ? MIN(4 * rounds, (int)ADDED_MAX_ROUNDS) : rounds);
    printf("},\n ");
    fflush(stdout);
    model_unref(m);
    lib.api.ReleaseSession(b.session);
}

/* ---- Ten models ----------------------------------------------------------------------------- */

static const struct kind load_kind = {"load",     "",        {"IN"}, {"OUT"},      1, 1, ORT_FLOAT,
                                      DTYPE_FP32, {32, 512}, 2,      32 * 512 * 4, 1, 0};

static float load_input[32 * 512];
static struct ort_session *bare_sessions[N_MODELS];
static struct bare bare_threads[LOAD_BARE_THREADS];

static void add_load_inputs(struct request *r)
{
    added_add_floats(r, "IN", load_input, 32, 512);
}

static void run_bare_thread(size_t thread, size_t n)
{
    struct bare *b = &bare_threads[thread];

    b->session = bare_sessions[(thread * N_MODELS / LOAD_BARE_THREADS + n) % N_MODELS];
    bare_run(b, true);
}

static void measure_load(const char *repository, int rounds)
{
    struct model *models[N_MODELS];
    struct load l = {server, models, N_MODELS, add_load_inputs, run_bare_thread};
    char name[32];

    for (int i = 0; i < N_MODELS; i++) {
        snprintf(name, sizeof(name), "load%d", i);
        bare_sessions[i] = bare_open(repository, name);
        must(server_find_model(server, name, strlen(name), 1, &models[i]), name);
    }
    for (int i = 0; i < LOAD_BARE_THREADS; i++)
        bare_threads[i] = (struct bare){.kind = &load_kind,
                                        .in = {mem_zalloc(load_kind.size_bytes)},
                                        .out = {mem_zalloc(load_kind.size_bytes)}};
    load_measure(&l, rounds);
}

/* ---- The whole run --------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    int rounds = argc > 4 ? atoi(argv[4]) : 5;
    struct server_options *options = server_options_new();
    struct log_settings settings;

    if (argc < 4 || rounds < 1 || rounds > ADDED_MAX_ROUNDS) {
        fprintf(stderr, "usage: ort_backend REPOSITORY BACKENDS LIBRARY [ROUNDS [NAME=VALUE]]\n");
        return 2;
    }
    log_get_settings(&settings);
    settings.info = settings.warning = false;
    log_set_settings(&settings);
    pool = pool_new("bench", 64 << 20, 0);
    server_options_add_repository(options, argv[1]);
    server_options_set_string(&options->backend_directory, argv[2]);
    if (argc > 5 && strchr(argv[5], '=')) { /* a setting of the backend */
        char *value = strchr(argv[5], '=');
        *value = '\0';
        server_options_add_backend_setting(options, "onnxruntime", argv[5], value + 1);
    }
    must(server_new(options, &server), "server");
    server_options_free(options);
    if (library_open(argv[2], argv[3], &lib)) {
        fprintf(stderr, "ort_backend: %s is no ONNX Runtime\n", argv[3]);
        return 1;
    }
    check(lib.api.CreateEnvWithCustomLogger(no_log, NULL, ORT_ERROR, "", &env));
    check(lib.api.CreateCpuMemoryInfo(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &cpu));

    copy_count_on = dlsym(RTLD_DEFAULT, "copy_count_on");
    copy_count_bytes = dlsym(RTLD_DEFAULT, "copy_count_bytes");
    printf("{");
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        try_kind(argv[1], &kinds[i], rounds);
    if (copy_count_on) {
        printf("\"ten_models\": null}\n");
    } else {
        printf("\"ten_models\": ");
        measure_load(argv[1], MIN(4 * rounds, (int)ADDED_MAX_ROUNDS));
        printf("}\n");
    }
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
