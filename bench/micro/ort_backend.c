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
 * the end ten models are loaded with requests from the library's threads, and from two bare
 * threads. Prints one JSON object.
 *
 * Under copy_count.so it measures nothing, and prints how many bytes the backend's library copies.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
#include "core/model/model.h"
#include "core/options/server_options.h"
#include "core/request/admit.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "core/server/server.h"
#include "onnxruntime/library.h"

enum { MAX_BATCH = 8, MAX_ROUNDS = 64, N_MODELS = 10, N_BARE = 2, N_PLACES = 2 };
enum { LOAD_NS = 250000000 }; /* of one sample of the ten models */
enum { APART = 4096 };        /* requests of a batch lie apart, as requests of clients do */

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

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

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

static void measure_kind(struct model *m, const struct bare *b, int rounds)
{
    double times[N_WAYS][MAX_ROUNDS], added[MAX_ROUNDS], added_moving[MAX_ROUNDS];

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
        measure_kind(m, &b, is_small(k) ? MIN(4 * rounds, (int)MAX_ROUNDS) : rounds);
    printf("},\n ");
    fflush(stdout);
    model_unref(m);
    lib.api.ReleaseSession(b.session);
}

/* ---- Ten models ----------------------------------------------------------------------------- */

static const struct kind load_kind = {"load",     "",        {"IN"}, {"OUT"},      1, 1, ORT_FLOAT,
                                      DTYPE_FP32, {32, 512}, 2,      32 * 512 * 4, 1, 0};

/* A request that is sent again as soon as it is answered, until `until_ns`. */
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

static double switches(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_nvcsw + used.ru_nivcsw);
}

/* One side of the load, alone for a while. */
struct sample {
    double per_s[MAX_ROUNDS], us[MAX_ROUNDS], switches[MAX_ROUNDS]; /* the last two per Run */
};

static void sample(struct sample *s, int round, double (*load)(uint64_t for_ns))
{
    double from_us = cpu_us(), from_switches = switches();

    s->per_s[round] = load(LOAD_NS);
    s->us[round] = (cpu_us() - from_us) / (double)atomic_load(&n_answers);
    s->switches[round] = (switches() - from_switches) / (double)atomic_load(&n_answers);
}

/* Many short rounds, and the ratio of each two neighbours in time, because others may use the
 * machine, too. */
static void measure_load(const char *repository, int rounds)
{
    static struct sample served, bare;
    double ratio[MAX_ROUNDS], cpu_ratio[MAX_ROUNDS];
    char name[32];

    for (int i = 0; i < N_MODELS; i++) {
        snprintf(name, sizeof(name), "load%d", i);
        bare_sessions[i] = bare_open(repository, name);
    }
    served_per_second(LOAD_NS);
    bare_per_second(LOAD_NS);
    for (int i = 0; i < rounds; i++) {
        sample(&served, i, served_per_second);
        sample(&bare, i, bare_per_second);
        ratio[i] = served.per_s[i] / bare.per_s[i];
        cpu_ratio[i] = bare.us[i] / served.us[i];
    }
    printf("\"ten_models\": {\"served_per_s\": %.1f, \"bare_per_s\": %.1f, \"served_us\": %.2f, "
           "\"bare_us\": %.2f, \"served_switches\": %.2f, \"bare_switches\": %.2f, "
           "\"ratio\": %.3f, \"cpu_ratio\": %.3f}}\n",
           median(served.per_s, rounds), median(bare.per_s, rounds), median(served.us, rounds),
           median(bare.us, rounds), median(served.switches, rounds), median(bare.switches, rounds),
           median(ratio, rounds), median(cpu_ratio, rounds));
}

/* ---- The whole run --------------------------------------------------------------------------- */

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

    copy_count_on = dlsym(RTLD_DEFAULT, "copy_count_on");
    copy_count_bytes = dlsym(RTLD_DEFAULT, "copy_count_bytes");
    printf("{");
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        try_kind(argv[1], &kinds[i], rounds);
    if (copy_count_on)
        printf("\"ten_models\": null}\n");
    else
        measure_load(argv[1], MIN(4 * rounds, (int)MAX_ROUNDS));
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
