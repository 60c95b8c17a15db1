/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ort_backend REPOSITORY BACKENDS LIBRARY [ROUNDS [NAME=VALUE]]: what the onnxruntime backend adds
 * to ONNX Runtime, in one process, with our core library and no network.
 *
 * Each kind of request is measured in turn, round after round, in CPU time of the process:
 *
 *     backend   a batch of requests made, executed (ModelInstanceExecute, responses, release)
 *     made      the requests made and released, nothing else
 *     owned     a bare Run into buffers of the caller, wrapped for each call
 *     theirs    a bare Run that lets ONNX Runtime allocate, and a copy out of it
 *
 * so backend - made - owned is what the backend costs. Copies of 64 kB and more that the backend's
 * library makes are counted, because memcpy() is defined here. At the end ten models are loaded
 * with requests from the library's threads, and from two bare threads. Prints one JSON object.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/backend/instance.h"
#include "core/model.h"
#include "core/request.h"
#include "core/request_priv.h"
#include "core/response.h"
#include "core/server.h"
#include "core/server_options.h"
#include "onnxruntime/library.h"

enum { MAX_BATCH = 8, MAX_ROUNDS = 32, N_MODELS = 10, N_BARE = 2, LARGE = 64 << 10 };
enum { APART = 4096 }; /* requests of a batch do not lie together, as if each came by itself */

/* ---- Copies --------------------------------------------------------------------------------- */

static atomic_size_t copied_bytes; /* by the backend's library, of those that are large */
static atomic_bool counts;

static bool is_backend(const void *caller)
{
    Dl_info where;
    return dladdr(caller, &where) && strstr(where.dli_fname, "libtriton_onnxruntime.so");
}

/* Through a pointer, or the compiler sees that it can be memcpy() again. */
static void *(*volatile const move)(void *, const void *, size_t) = memmove;

/* For all libraries of the process. */
__attribute__((visibility("default"))) void *memcpy(void *to, const void *from, size_t n)
{
    if (n >= LARGE && atomic_load(&counts) && is_backend(__builtin_return_address(0)))
        atomic_fetch_add(&copied_bytes, n);
    return move(to, from, n);
}

/* ---- Bare runs ------------------------------------------------------------------------------ */

struct kind {
    const char *name, *model;
    const char *in[2], *out[2];
    size_t n_in, n_out;
    enum ort_element element;
    enum dtype dtype;
    int64_t shape[4];
    size_t n_dims, size_bytes;
    uint32_t batch; /* requests in one */
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

static void must(struct status *st, const char *what)
{
    if (!st)
        return;
    fprintf(stderr, "ort_backend: %s: %s\n", what, status_message(st));
    exit(1);
}

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

static void backend_run(struct model *m, const struct bare *b, bool executes)
{
    static struct asked all[MAX_BATCH];
    struct request *batch[MAX_BATCH];
    const struct kind *k = b->kind;
    uint64_t now_ns = monotonic_ns(), bytes;

    for (uint32_t i = 0; i < k->batch; i++) {
        void *data[2];
        for (size_t j = 0; j < k->n_in; j++)
            data[j] = (char *)b->in[j] + i * (k->size_bytes + APART);
        make(&all[i], &ops, m, k, data);
        batch[i] = &all[i].request;
        must(request_check(batch[i]), "check");
        batch[i]->start_ns = batch[i]->queue_ns = now_ns;
        if (executes)
            request_begin(batch[i]);
    }
    if (executes)
        instance_execute(m->instances[0], batch, k->batch, now_ns, &bytes);
    for (uint32_t i = 0; i < k->batch; i++)
        request_unref(batch[i]);
}

/* ---- One kind of request -------------------------------------------------------------------- */

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

enum { BACKEND, MADE, OWNED, THEIRS, N_WAYS };
static const char *const ways[N_WAYS] = {"backend_us", "made_us", "owned_us", "theirs_us"};

static double measure(struct model *m, const struct bare *b, int way)
{
    double from = cpu_us();
    for (int i = 0; i < b->kind->runs; i++) {
        if (way == BACKEND || way == MADE)
            backend_run(m, b, way == BACKEND);
        else
            bare_run(b, way == OWNED);
    }
    return (cpu_us() - from) / b->kind->runs;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_kind(const char *repository, const struct kind *k, int rounds)
{
    struct bare b = {.kind = k, .session = bare_open(repository, k->model)};
    double times[N_WAYS][MAX_ROUNDS];
    struct model *m;

    for (size_t i = 0; i < 2; i++) {
        b.in[i] = mem_zalloc((k->size_bytes + APART) * k->batch);
        b.out[i] = mem_zalloc(k->size_bytes * k->batch);
    }
    must(server_find_model(server, k->model, strlen(k->model), 1, &m), "model");
    for (int way = 0; way < N_WAYS; way++)
        measure(m, &b, way);
    atomic_store(&copied_bytes, 0);
    atomic_store(&counts, true);
    backend_run(m, &b, true);
    atomic_store(&counts, false);
    for (int round = 0; round < rounds; round++)
        for (int way = 0; way < N_WAYS; way++)
            times[way][round] = measure(m, &b, way);
    printf("\"%s\": {\"input_bytes\": %zu, \"copied_bytes\": %zu", k->name,
           k->size_bytes * k->batch * k->n_in, atomic_load(&copied_bytes));
    for (int way = 0; way < N_WAYS; way++) {
        qsort(times[way], (size_t)rounds, sizeof(double), by_value);
        printf(", \"%s\": %.3f", ways[way], times[way][rounds / 2]);
    }
    printf("},\n ");
    fflush(stdout);
    model_unref(m);
    lib.api.ReleaseSession(b.session);
}

/* ---- Ten models ----------------------------------------------------------------------------- */

static const struct kind load_kind = {"load",     "",        {"IN"}, {"OUT"},      1, 1, ORT_FLOAT,
                                      DTYPE_FP32, {32, 512}, 2,      32 * 512 * 4, 1, 0};

/* A request that asks again as soon as it is answered, until `until_ns`. */
struct stream {
    struct asked asked;
    struct model *model;
    void *in[2];
};

static uint64_t until_ns;
static atomic_size_t n_answers, n_streams;
static struct mutex mu;
static struct cond ended;

static void stream_ask(struct stream *s);

static void stream_destroy(struct request *r)
{
    struct stream *s = CONTAINER_OF(CONTAINER_OF(r, struct asked, request), struct stream, asked);

    atomic_fetch_add(&n_answers, 1);
    if (monotonic_ns() < until_ns) {
        stream_ask(s);
        return;
    }
    mutex_lock(&mu);
    atomic_fetch_sub(&n_streams, 1);
    cond_broadcast(&ended);
    mutex_unlock(&mu);
}

static const struct request_ops stream_ops = {.alloc_output = response_alloc_pooled,
                                              .free_output = response_free_pooled,
                                              .respond = respond,
                                              .destroy = stream_destroy};

static void stream_ask(struct stream *s)
{
    make(&s->asked, &stream_ops, s->model, &load_kind, s->in);
    must(server_infer(server, &s->asked.request), "infer");
    request_unref(&s->asked.request);
}

static double served_per_second(uint64_t for_ns)
{
    static struct stream streams[N_MODELS];
    uint64_t from_ns = monotonic_ns();

    until_ns = from_ns + for_ns;
    atomic_store(&n_answers, 0);
    atomic_store(&n_streams, N_MODELS);
    for (int i = 0; i < N_MODELS; i++) {
        struct stream *s = &streams[i];
        char name[32];
        snprintf(name, sizeof(name), "load%d", i);
        if (!s->model)
            must(server_find_model(server, name, strlen(name), 1, &s->model), name);
        if (!s->in[0])
            s->in[0] = mem_zalloc(load_kind.size_bytes);
        stream_ask(s);
    }
    mutex_lock(&mu);
    while (atomic_load(&n_streams))
        cond_wait(&ended, &mu);
    mutex_unlock(&mu);
    return (double)atomic_load(&n_answers) * 1e9 / (double)(monotonic_ns() - from_ns);
}

static struct ort_session *bare_sessions[N_MODELS];

static void bare_thread(void *arg)
{
    struct bare b = {.kind = &load_kind};

    b.in[0] = mem_zalloc(load_kind.size_bytes);
    b.out[0] = mem_zalloc(load_kind.size_bytes);
    for (size_t i = (size_t)arg; monotonic_ns() < until_ns; i = (i + 1) % N_MODELS) {
        b.session = bare_sessions[i];
        bare_run(&b, true);
        atomic_fetch_add(&n_answers, 1);
    }
    mem_free(b.in[0]);
    mem_free(b.out[0]);
}

static double bare_per_second(uint64_t for_ns)
{
    struct thread threads[N_BARE];
    uint64_t from_ns = monotonic_ns();

    until_ns = from_ns + for_ns;
    atomic_store(&n_answers, 0);
    for (size_t i = 0; i < N_BARE; i++)
        must(thread_start(&threads[i], "bare", bare_thread, (void *)(i * N_MODELS / N_BARE)),
             "thread");
    for (size_t i = 0; i < N_BARE; i++)
        thread_join(&threads[i]);
    return (double)atomic_load(&n_answers) * 1e9 / (double)(monotonic_ns() - from_ns);
}

static void measure_load(const char *repository, int rounds)
{
    double served[MAX_ROUNDS], bare[MAX_ROUNDS], served_us[MAX_ROUNDS], bare_us[MAX_ROUNDS];
    double ratio[MAX_ROUNDS];
    char name[32];

    for (int i = 0; i < N_MODELS; i++) {
        snprintf(name, sizeof(name), "load%d", i);
        bare_sessions[i] = bare_open(repository, name);
    }
    served_per_second(200000000);
    bare_per_second(200000000);
    for (int i = 0; i < rounds; i++) {
        double from = cpu_us();

        served[i] = served_per_second(1000000000);
        served_us[i] = (cpu_us() - from) / (double)atomic_load(&n_answers);
        from = cpu_us();
        bare[i] = bare_per_second(1000000000);
        bare_us[i] = (cpu_us() - from) / (double)atomic_load(&n_answers);
        ratio[i] = served[i] / bare[i]; /* neighbours in time */
    }
    qsort(served, (size_t)rounds, sizeof(double), by_value);
    qsort(bare, (size_t)rounds, sizeof(double), by_value);
    qsort(served_us, (size_t)rounds, sizeof(double), by_value);
    qsort(ratio, (size_t)rounds, sizeof(double), by_value);
    qsort(bare_us, (size_t)rounds, sizeof(double), by_value);
    printf("\"ten_models\": {\"served_per_s\": %.1f, \"bare_per_s\": %.1f, \"served_us\": %.2f, "
           "\"bare_us\": %.2f, \"ratio\": %.3f}}\n",
           served[rounds / 2], bare[rounds / 2], served_us[rounds / 2], bare_us[rounds / 2],
           ratio[rounds / 2]);
}

/* ---- The whole ------------------------------------------------------------------------------ */

int main(int argc, char **argv)
{
    int rounds = argc > 4 ? atoi(argv[4]) : 5;
    struct server_options *options = server_options_new();
    struct log_settings settings;

    if (argc < 4 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: ort_backend REPOSITORY BACKENDS LIBRARY [ROUNDS [NAME=VALUE]]\n");
        return 2;
    }
    log_get_settings(&settings);
    settings.info = settings.warning = false;
    log_set_settings(&settings);
    mutex_init(&mu, 100, "bench.mu");
    cond_init(&ended);
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

    printf("{");
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        measure_kind(argv[1], &kinds[i], rounds);
    measure_load(argv[1], rounds);
    fflush(stdout);
    _exit(0); /* what a server does at its end is measured elsewhere */
}
