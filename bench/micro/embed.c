/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_embed [OPTION…] LIBRARY REPOSITORY BACKENDS MODEL…: the cost of a request for a program
 * that embeds the server by Triton's C API. The library is opened at run time, ours or the genuine
 * one.
 *
 *     --in-flight N    requests of each thread in flight at a time (1)
 *     --threads N      driving threads (1); thread i asks the MODEL i modulo their number
 *     --seconds S      how long requests flow (1); a quarter of it before, uncounted
 *     --sequences      each request in flight belongs to a sequence of its own, of 100 requests
 *     --responses N    models are decoupled and of the backend torrent or square: each request has
 * N responses, which count instead of the requests
 *     --bytes N        of the tensor (64); of larger ones only the first 64 are looked at
 *     --inline         models may execute on the driving threads (an option of Conch alone)
 *     --cache FOLDER   of caches: models that enable it have the cache `local`, of 64 MiB
 *     --new            each request has other values than those before
 *     --before N       requests of each thread, at least, that flow uncounted before (0)
 *     --pin            thread i runs on CPU i, and so does the worker that its requests wake first
 *     --limited        the rate limiter is on
 *     --statistics     prints each model's, too, from before and after
 *
 * Closed loop: a slot makes a request object with one input and sends it. When the
 * request is answered and released, the slot deletes it and begins again. Callbacks give their slot
 * to its thread through a mutex and a condition, as an embedder's would. Prints one JSON object:
 *
 *     requests, wall_us and cpu_us (of the whole process) per request, p50_us and p99_us from the
 *     making of a request to its final response, kernel_us (of cpu_us), switches (context switches
 *     per request), fresh_us (of large tensors: CPU to take such a block from the C library, to
 *     write its first 64 bytes, and to give it back), mallocs
 *     (calls of the allocator per request, if malloc_count.c is preloaded; else 0), copied (bytes
 * per request that copy_count.c has seen, if that is preloaded; else 0), kept_us (with --new and
 * --cache: the least that a cache costs such a request), all_us (from one reading of the statistics
 * to the other), before and after (the statistics as the server has them)
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "triton/core/tritonserver.h"

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(ErrorMessage) X(ErrorDelete) X(ServerOptionsNew) X(ServerOptionsDelete)                      \
    X(ServerOptionsSetModelRepositoryPath) X(ServerOptionsSetBackendDirectory)                     \
    X(ServerOptionsSetLogInfo) X(ServerOptionsSetLogWarn) X(ServerOptionsSetMetrics)               \
    X(ServerOptionsSetRateLimiterMode) X(ServerOptionsSetCacheDirectory)                           \
    X(ServerOptionsSetCacheConfig)                                                                 \
    X(ServerNew) X(ServerStop) X(ServerDelete) X(ServerModelIsReady) X(ServerInferAsync)           \
    X(ResponseAllocatorNew) X(ResponseAllocatorDelete) X(InferenceRequestNew)                      \
    X(InferenceRequestDelete) X(InferenceRequestAddInput) X(InferenceRequestAppendInputData)       \
    X(InferenceRequestAddRequestedOutput) X(InferenceRequestSetReleaseCallback)                    \
    X(InferenceRequestSetResponseCallback) X(InferenceRequestSetCorrelationId)                     \
    X(InferenceRequestSetFlags) X(InferenceResponseError) X(InferenceResponseDelete)               \
    X(InferenceResponseOutput) X(ServerModelStatistics) X(MessageSerializeToJson) X(MessageDelete)
/* clang-format on */

#define DECLARE(name) static __typeof__(TRITONSERVER_##name) *name;
FUNCTIONS(DECLARE)

enum {
    TENSOR_BYTES = 64,
    SEQUENCE_LENGTH = 100,
    CACHE_BYTES = 64 << 20,
    MAX_THREADS = 64,
    MAX_SAMPLES = 1 << 20
};

struct driver;

/* One request after another. */
struct slot {
    _Alignas(64) struct driver *driver;
    struct slot *next; /* of the driver's finished slots */
    TRITONSERVER_InferenceRequest *request;
    uint64_t started_ns, answered_ns;
    uint64_t correlation_id;
    uint32_t n_sent;
    int n_ends; /* response and release; under driver.mu */
    int n_responses;
    int32_t asks[2]; /* of a decoupled model: how many responses, and bytes of each */
    float *in, *out; /* these two, unless they are larger */
    float small_in[TENSOR_BYTES / 4], small_out[TENSOR_BYTES / 4];
};

/* On cache lines of its own, so that only the server's sharing grows with the cores. */
struct driver {
    _Alignas(64) pthread_t thread;
    int index;
    const char *model;
    struct slot *slots;
    uint64_t n_requests;
    uint32_t *samples_ns; /* a ring of the latest */
    uint64_t n_samples;

    pthread_mutex_t mu;
    /* Under mu. */
    pthread_cond_t any;
    struct slot *finished;
};

static int in_flight = 1, n_threads = 1, responses, n_models;
static size_t tensor_bytes = TENSOR_BYTES;
static uint64_t n_before;
static double seconds = 1;
static bool sequences, pinned, is_new, has_statistics;
static const char *caches; /* NULL: no cache */
static char **models;
static TRITONSERVER_Server *server;
static TRITONSERVER_ResponseAllocator *allocator;
static pthread_barrier_t barrier;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_embed: %s: %s\n", what, why);
    exit(1);
}

static void must(TRITONSERVER_Error *error, const char *what)
{
    if (error)
        fail(what, ErrorMessage(error));
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* ---- Callbacks ------------------------------------------------------------------------------ */

static TRITONSERVER_Error *allocate(TRITONSERVER_ResponseAllocator *a, const char *name,
                                    size_t size, TRITONSERVER_MemoryType type, int64_t type_id,
                                    void *userp, void **buffer, void **buffer_userp,
                                    TRITONSERVER_MemoryType *actual_type, int64_t *actual_id)
{
    struct slot *s = userp;
    (void)a;
    (void)name;
    (void)type;
    (void)type_id;
    if (size > tensor_bytes || (size != tensor_bytes && !responses))
        fail("output", "it has another size than the input");
    *buffer = s->out;
    *buffer_userp = NULL;
    *actual_type = TRITONSERVER_MEMORY_CPU;
    *actual_id = 0;
    return NULL;
}

static TRITONSERVER_Error *give_back(TRITONSERVER_ResponseAllocator *a, void *buffer,
                                     void *buffer_userp, size_t size, TRITONSERVER_MemoryType type,
                                     int64_t type_id)
{
    (void)a;
    (void)buffer;
    (void)buffer_userp;
    (void)size;
    (void)type;
    (void)type_id;
    return NULL;
}

/* Of the response and the release, the second one gives the slot back to its thread. */
static void end(struct slot *s)
{
    struct driver *d = s->driver;
    pthread_mutex_lock(&d->mu);
    if (++s->n_ends == 2) {
        s->next = d->finished;
        d->finished = s;
        pthread_cond_signal(&d->any);
    }
    pthread_mutex_unlock(&d->mu);
}

/* … of a decoupled model: the final flag comes alone. */
static void on_one_of_many(TRITONSERVER_InferenceResponse *response, const uint32_t flags,
                           void *userp)
{
    struct slot *s = userp;
    if (response) {
        must(InferenceResponseError(response), "response");
        must(InferenceResponseDelete(response), "response");
        s->n_responses++;
    }
    if (!(flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL))
        return;
    if (s->n_responses != responses)
        fail("responses", "they are too few or too many");
    s->answered_ns = now_ns();
    end(s);
}

static void on_response(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp)
{
    struct slot *s = userp;
    if (!response || !(flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL))
        fail("response", "it is not the only one");
    must(InferenceResponseError(response), "response");
    if (memcmp(s->in, s->out, TENSOR_BYTES) != 0)
        fail("response", "the output is not what was sent");
    memset(s->out, 0, sizeof(s->out[0]));
    s->answered_ns = now_ns();
    must(InferenceResponseDelete(response), "response");
    end(s);
}

static void on_release(TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp)
{
    (void)request;
    (void)flags;
    end(userp);
}

/* ---- The loop ------------------------------------------------------------------------------- */

static uint32_t sequence_flags(struct slot *s)
{
    uint32_t at = s->n_sent++ % SEQUENCE_LENGTH;
    return (at == 0 ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_START : 0) |
           (at == SEQUENCE_LENGTH - 1 ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_END : 0);
}

/* Asks for responses of 64 bytes (torrent), or of what a model of one element has (square). */
static void fill_decoupled(struct slot *s, TRITONSERVER_InferenceRequest *r)
{
    bool has_bytes = strcmp(s->driver->model, "torrent") == 0;
    int64_t shape[] = {has_bytes ? 2 : 1};
    s->asks[0] = responses;
    s->asks[1] = TENSOR_BYTES;
    s->n_responses = 0;
    must(InferenceRequestAddInput(r, "IN", TRITONSERVER_TYPE_INT32, shape, 1), "input");
    must(InferenceRequestAppendInputData(r, "IN", s->asks, (size_t)shape[0] * sizeof(s->asks[0]),
                                         TRITONSERVER_MEMORY_CPU, 0),
         "input");
}

static void fill_request(struct slot *s, TRITONSERVER_InferenceRequest *r)
{
    const int64_t shape[] = {1, (int64_t)tensor_bytes / 4};
    must(InferenceRequestAddInput(r, "INPUT0", TRITONSERVER_TYPE_FP32, shape, 2), "input");
    must(InferenceRequestAppendInputData(r, "INPUT0", s->in, tensor_bytes, TRITONSERVER_MEMORY_CPU,
                                         0),
         "input");
    must(InferenceRequestAddRequestedOutput(r, "OUTPUT0"), "output");
    if (sequences) {
        must(InferenceRequestSetCorrelationId(r, s->correlation_id), "correlation ID");
        must(InferenceRequestSetFlags(r, sequence_flags(s)), "flags");
    }
}

static void send_request(struct slot *s)
{
    TRITONSERVER_InferenceRequest *r;
    s->n_ends = 0;
    if (is_new) { /* whole numbers that a float has */
        s->in[14] = (float)(s->n_sent >> 20);
        s->in[15] = (float)(s->n_sent++ & 0xfffff);
    }
    s->started_ns = now_ns();
    must(InferenceRequestNew(&r, server, s->driver->model, -1), "request");
    s->request = r;
    if (responses)
        fill_decoupled(s, r);
    else
        fill_request(s, r);
    must(InferenceRequestSetReleaseCallback(r, on_release, s), "release callback");
    must(InferenceRequestSetResponseCallback(r, allocator, s,
                                             responses ? on_one_of_many : on_response, s),
         "response callback");
    must(ServerInferAsync(server, r, NULL), "infer");
}

/* Returns all slots that have ended meanwhile; waits for the first. */
static struct slot *take_finished(struct driver *d)
{
    pthread_mutex_lock(&d->mu);
    while (!d->finished)
        pthread_cond_wait(&d->any, &d->mu);
    struct slot *s = d->finished;
    d->finished = NULL;
    pthread_mutex_unlock(&d->mu);
    return s;
}

static void note(struct driver *d, const struct slot *s)
{
    d->samples_ns[d->n_samples++ % MAX_SAMPLES] = (uint32_t)(s->answered_ns - s->started_ns);
    d->n_requests += responses ? (uint64_t)responses : 1;
}

/* Keeps the slots busy for for_s seconds and n requests, then lets them end. */
static void flow(struct driver *d, double for_s, uint64_t n)
{
    uint64_t until_ns = now_ns() + (uint64_t)(for_s * 1e9);
    int n_busy = in_flight;
    for (int i = 0; i < in_flight; i++)
        send_request(&d->slots[i]);
    while (n_busy > 0) {
        struct slot *next, *s = take_finished(d);
        for (; s; s = next) {
            next = s->next;
            note(d, s);
            must(InferenceRequestDelete(s->request), "request");
            /* A sequence is sent to its end, so that its slot is free for the next. */
            bool must_end = sequences && s->n_sent % SEQUENCE_LENGTH != 0;
            if (s->answered_ns < until_ns || d->n_requests < n || must_end)
                send_request(s);
            else
                n_busy--;
        }
    }
}

static void *drive(void *arg)
{
    struct driver *d = arg;
    if (pinned) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t)d->index, &cpus);
        sched_setaffinity(0, sizeof(cpus), &cpus);
    }
    flow(d, seconds / 4, n_before);
    d->n_requests = d->n_samples = 0;
    pthread_barrier_wait(&barrier); /* main reads the clocks */
    pthread_barrier_wait(&barrier);
    flow(d, seconds, 0);
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* ---- The whole run --------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* What the process has used, or the difference of two such. */
struct usage {
    double cpu_us, kernel_us;
    long switches;
};

static struct usage usage_now(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double kernel_us = (double)u.ru_stime.tv_sec * 1e6 + (double)u.ru_stime.tv_usec;
    return (struct usage){.cpu_us = (double)u.ru_utime.tv_sec * 1e6 + (double)u.ru_utime.tv_usec +
                                    kernel_us,
                          .kernel_us = kernel_us,
                          .switches = u.ru_nvcsw + u.ru_nivcsw};
}

static struct usage usage_since(const struct usage *before)
{
    struct usage now = usage_now();
    return (struct usage){now.cpu_us - before->cpu_us, now.kernel_us - before->kernel_us,
                          now.switches - before->switches};
}

/* The least that a large output in fresh memory costs. */
static double measure_fresh_us(void)
{
    enum { N = 2000 };
    if (tensor_bytes < (1 << 20))
        return 0;
    struct usage before = usage_now();
    for (int i = 0; i < N; i++) {
        char *block = aligned_alloc(64, tensor_bytes / 64 * 64);
        if (!block)
            fail("memory", "there is none left");
        memset(block, i, TENSOR_BYTES);
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
    }
    return usage_since(&before).cpu_us / N;
}

/* Returns the allocating calls that malloc_count.c has counted by now. */
static uint64_t count_mallocs(void)
{
    enum { ALLOCATING = 4 }; /* malloc, calloc, realloc, aligned */
    static const uint64_t *counts;
    const char *path = getenv("MALLOC_COUNT_FILE");
    int fd = path && !counts ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *at = mmap(NULL, ALLOCATING * sizeof(*counts), PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (at == MAP_FAILED)
            fail(path, "it cannot be mapped");
        counts = at;
    }
    uint64_t n = 0;
    for (int i = 0; counts && i < ALLOCATING; i++)
        n += counts[i];
    return n;
}

/* Returns the bytes that copy_count.c has counted by now, which begins with the first call. */
static uint64_t count_copies(void)
{
    atomic_bool *on = dlsym(RTLD_DEFAULT, "copy_count_on");
    atomic_size_t *bytes = dlsym(RTLD_DEFAULT, "copy_count_bytes");
    if (on && bytes)
        atomic_store(on, true);
    return bytes ? atomic_load(bytes) : 0;
}

/* Returns the statistics of all models as JSON, which the caller frees; NULL: nobody wants them. */
static char *read_statistics(void)
{
    TRITONSERVER_Message *message;
    const char *json;
    size_t n;
    if (!has_statistics)
        return NULL;
    must(ServerModelStatistics(server, "", -1, &message), "statistics");
    must(MessageSerializeToJson(message, &json, &n), "statistics");
    char *text = strndup(json, n);
    must(MessageDelete(message), "statistics");
    if (!text)
        fail("memory", "there is none left");
    return text;
}

static void print_statistics(const char *before, const char *after, double wall_us)
{
    if (before && after)
        printf(", \"all_us\": %.1f, \"before\": %s, \"after\": %s", wall_us, before, after);
}

/*
 * The least that a cache costs a request of 64 bytes that is new: the hash of its key (127 bytes),
 * the copy of its entry (384 bytes) over the oldest one of 64 MiB, which becomes the newest of a
 * list. No table, lock or clock; the entries lie one after the other.
 */
static double measure_kept_us(void)
{
    enum { KEY_BYTES = 127, ENTRY_BYTES = 384, N_ENTRIES = CACHE_BYTES / ENTRY_BYTES, N = 2000000 };
    struct kept {
        struct kept *newer, *older;
        XXH128_hash_t hash;
        char bytes[ENTRY_BYTES - 32];
    } *entries = is_new && caches ? aligned_alloc(64, sizeof(*entries) * N_ENTRIES) : NULL;
    struct kept *newest = entries, *oldest = entries;
    char key[KEY_BYTES] = {0}, bytes[sizeof(entries->bytes)] = {1};
    if (!entries)
        return 0;
    memset(entries, 0, sizeof(*entries) * N_ENTRIES);
    for (struct kept *e = entries + 1; e < entries + N_ENTRIES; newest = e++) {
        e->older = newest;
        newest->newer = e;
    }
    struct usage before = usage_now();
    for (int i = 0; i < N; i++) {
        struct kept *e = oldest;
        memcpy(key, &i, sizeof(i));
        oldest = e->newer;
        oldest->older = NULL;
        e->hash = XXH3_128bits(key, sizeof(key));
        memcpy(e->bytes, bytes, sizeof(bytes));
        e->newer = NULL;
        e->older = newest;
        newest->newer = e;
        newest = e;
        __asm__ volatile("" : : "r"(e) : "memory");
    }
    double kept_us = usage_since(&before).cpu_us / N;
    free(entries);
    return kept_us;
}

static void print(struct driver *drivers, const struct usage *used, double wall_us,
                  uint64_t mallocs, uint64_t copied)
{
    uint64_t n = 0, n_samples = 0;
    uint32_t *all = calloc((size_t)n_threads * MAX_SAMPLES, sizeof(*all));
    if (!all)
        fail("memory", "there is none left");
    for (int i = 0; i < n_threads; i++) {
        uint64_t kept = drivers[i].n_samples < MAX_SAMPLES ? drivers[i].n_samples : MAX_SAMPLES;
        memcpy(all + n_samples, drivers[i].samples_ns, kept * sizeof(*all));
        n_samples += kept;
        n += drivers[i].n_requests;
    }
    qsort(all, n_samples, sizeof(*all), by_size);
    printf(
        "{\"requests\": %llu, \"wall_us\": %.4f, \"cpu_us\": %.4f, \"kernel_us\": %.4f, \"p50_us\": "
        "%.3f, \"p99_us\": %.3f, \"switches\": %.3f, \"fresh_us\": %.3f, \"mallocs\": %.4f, "
        "\"copied\": %.0f, \"kept_us\": %.4f",
        (unsigned long long)n, wall_us / (double)n, used->cpu_us / (double)n,
        used->kernel_us / (double)n, all[n_samples / 2] / 1e3, all[n_samples * 99 / 100] / 1e3,
        (double)used->switches / (double)n, measure_fresh_us(), (double)mallocs / (double)n,
        (double)copied / (double)n, measure_kept_us());
    free(all);
}

static void open_library(const char *path)
{
    /* Backends then find the interface in it, however they search. */
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fail(path, dlerror());
#define FIND(name)                                                                                 \
    name = (__typeof__(name))(uintptr_t)dlsym(library, "TRITONSERVER_" #name);                     \
    if (!name)                                                                                     \
        fail(path, "it has no TRITONSERVER_" #name);
    FUNCTIONS(FIND)
}

static void start_server(const char *repository, const char *backends, bool inlined, bool limited)
{
    TRITONSERVER_ServerOptions *o;
    must(ServerOptionsNew(&o), "options");
    must(ServerOptionsSetModelRepositoryPath(o, repository), "repository");
    must(ServerOptionsSetBackendDirectory(o, backends), "backends");
    must(ServerOptionsSetLogInfo(o, false), "log");
    must(ServerOptionsSetLogWarn(o, false), "log");
    must(ServerOptionsSetMetrics(o, false), "metrics");
    if (limited)
        must(ServerOptionsSetRateLimiterMode(o, TRITONSERVER_RATE_LIMIT_EXEC_COUNT), "limiter");
    if (caches) {
        must(ServerOptionsSetCacheDirectory(o, caches), "cache directory");
        must(ServerOptionsSetCacheConfig(o, "local", "{\"size\":\"67108864\"}"), "cache");
    }
    if (inlined) {
        TRITONSERVER_Error *(*set)(TRITONSERVER_ServerOptions *, bool) =
            (__typeof__(set))(uintptr_t)dlsym(RTLD_DEFAULT,
                                              "conch_server_options_set_inline_execution");
        if (!set)
            fail("--inline", "the library has no such option");
        must(set(o, true), "inline execution");
    }
    must(ServerNew(&server, o), "server");
    must(ServerOptionsDelete(o), "options");
    must(ResponseAllocatorNew(&allocator, allocate, give_back, NULL), "allocator");
    for (int i = 0; i < n_models; i++) {
        bool ready = false;
        must(ServerModelIsReady(server, models[i], -1, &ready), models[i]);
        if (!ready)
            fail(models[i], "it is not ready");
    }
}

static void slot_init_tensors(struct slot *s)
{
    bool is_small = tensor_bytes == TENSOR_BYTES;
    s->in = is_small ? s->small_in : calloc(1, tensor_bytes);
    s->out = is_small ? s->small_out : calloc(1, tensor_bytes);
    if (!s->in || !s->out)
        fail("memory", "there is none left");
}

static void driver_init(struct driver *d, int index)
{
    d->index = index;
    d->model = models[index % n_models];
    d->slots = aligned_alloc(64, (size_t)in_flight * sizeof(*d->slots));
    d->samples_ns = calloc(MAX_SAMPLES, sizeof(*d->samples_ns));
    if (!d->slots || !d->samples_ns)
        fail("memory", "there is none left");
    memset(d->slots, 0, (size_t)in_flight * sizeof(*d->slots));
    pthread_mutex_init(&d->mu, NULL);
    pthread_cond_init(&d->any, NULL);
    for (int i = 0; i < in_flight; i++) {
        d->slots[i].driver = d;
        d->slots[i].correlation_id = (uint64_t)(index * in_flight + i + 1);
        slot_init_tensors(&d->slots[i]);
        for (int j = 0; j < TENSOR_BYTES / 4; j++)
            d->slots[i].in[j] = (float)(i + j + 1);
    }
}

static void driver_done(struct driver *d)
{
    for (int i = 0; i < in_flight && tensor_bytes != TENSOR_BYTES; i++) {
        free(d->slots[i].in);
        free(d->slots[i].out);
    }
    free(d->slots);
    free(d->samples_ns);
    pthread_cond_destroy(&d->any);
    pthread_mutex_destroy(&d->mu);
}

static void measure(void)
{
    static struct driver drivers[MAX_THREADS];
    pthread_barrier_init(&barrier, NULL, (unsigned int)n_threads + 1);
    for (int i = 0; i < n_threads; i++) {
        driver_init(&drivers[i], i);
        if (pthread_create(&drivers[i].thread, NULL, drive, &drivers[i]) != 0)
            fail("thread", "there is no room for another");
    }
    pthread_barrier_wait(&barrier);
    struct usage used = usage_now();
    uint64_t start_ns = now_ns(), mallocs = count_mallocs(), copied = count_copies();
    pthread_barrier_wait(&barrier);
    char *before = read_statistics();
    uint64_t before_ns = now_ns();
    usleep(has_statistics ? (useconds_t)(seconds * 0.9e6) : 0); /* while all have work */
    char *after = read_statistics();
    double all_us = (double)(now_ns() - before_ns) / 1e3;
    pthread_barrier_wait(&barrier);
    mallocs = count_mallocs() - mallocs;
    copied = count_copies() - copied;
    double wall_us = (double)(now_ns() - start_ns) / 1e3;
    used = usage_since(&used);
    for (int i = 0; i < n_threads; i++)
        pthread_join(drivers[i].thread, NULL);
    print(drivers, &used, wall_us, mallocs, copied);
    print_statistics(before, after, all_us);
    printf("}\n");
    free(before);
    free(after);
    for (int i = 0; i < n_threads; i++)
        driver_done(&drivers[i]);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"in-flight", required_argument, NULL, 'n'}, {"threads", required_argument, NULL, 't'},
        {"seconds", required_argument, NULL, 's'},   {"sequences", no_argument, NULL, 'q'},
        {"responses", required_argument, NULL, 'r'}, {"bytes", required_argument, NULL, 'b'},
        {"inline", no_argument, NULL, 'i'},          {"limited", no_argument, NULL, 'l'},
        {"cache", required_argument, NULL, 'c'},     {"new", no_argument, NULL, 'w'},
        {"before", required_argument, NULL, 'f'},    {"pin", no_argument, NULL, 'p'},
        {"statistics", no_argument, NULL, 'm'},      {NULL, 0, NULL, 0},
    };
    bool inlined = false, limited = false;
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'n':
            in_flight = atoi(optarg);
            break;
        case 't':
            n_threads = atoi(optarg);
            break;
        case 's':
            seconds = atof(optarg);
            break;
        case 'q':
            sequences = true;
            break;
        case 'r':
            responses = atoi(optarg);
            break;
        case 'b':
            tensor_bytes = strtoull(optarg, NULL, 10) / 4 * 4;
            break;
        case 'i':
            inlined = true;
            break;
        case 'l':
            limited = true;
            break;
        case 'c':
            caches = optarg;
            break;
        case 'w':
            is_new = true;
            break;
        case 'f':
            n_before = strtoull(optarg, NULL, 10);
            break;
        case 'p':
            pinned = true;
            break;
        case 'm':
            has_statistics = true;
            break;
        default:
            return 2;
        }
    }
    n_models = argc - optind - 3;
    if (n_models < 1 || in_flight < 1 || responses < 0 || n_threads < 1 ||
        n_threads > MAX_THREADS || seconds <= 0 || tensor_bytes < TENSOR_BYTES) {
        fprintf(stderr, "usage: %s [OPTION…] LIBRARY REPOSITORY BACKENDS MODEL…\n", argv[0]);
        return 2;
    }
    models = argv + optind + 3;
    open_library(argv[optind]);
    start_server(argv[optind + 1], argv[optind + 2], inlined, limited);
    measure();
    must(ResponseAllocatorDelete(allocator), "allocator");
    must(ServerStop(server), "stop");
    must(ServerDelete(server), "delete");
    return 0;
}
