/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_churn REPOSITORY MODEL BACKENDS CYCLES [HOW…]: loads and unloads a model again and again,
 * as the server does it: folder, configuration, library, model, instances, scheduler. Prints one
 * JSON object: the times of a load and an unload, and what the process holds (memory, threads,
 * descriptors, mapped libraries) at eleven points: after a warm-up of a tenth of the cycles, and
 * after each tenth of them.
 *
 *     hold      a second copy of the model stays loaded, so that the backend's library stays, too
 *     infer     each cycle has one request with zeros, whose execution starts the instance's thread
 *     parallel  four threads share the cycles
 *     named     the model is loaded and unloaded by its name, as by a client; not with hold,
 *               parallel
 *     files     the same with a configuration and a file that come with the request
 *
 * bench/run and tests drive it.
 */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/load/model_load.h"
#include "core/model/model_priv.h"
#include "core/options/server_options.h"
#include "core/repo/load_parameter.h"
#include "core/repo/scan.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "core/server/server_priv.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"

enum { MAX_DIMS = 16, N_POINTS = 10, MAX_THREADS = 4, ROUND_TO = N_POINTS * MAX_THREADS };

static void must(struct status *st, const char *what)
{
    if (!st)
        return;
    fprintf(stderr, "model_churn: %s: %s\n", what, status_message(st));
    exit(1);
}

/* ---- What the process holds ------------------------------------------------------------------ */

/* Weak: the program runs with any allocator. */
__attribute__((weak)) int mallctl(const char *name, void *old, size_t *old_size, void *new,
                                  size_t new_size);
__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes(void);

/* Returns the bytes that are allocated and not freed, without what the allocator keeps. */
static size_t heap_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    if (mallctl) {
        uint64_t epoch = 1;
        size_t bytes = 0, size = sizeof(bytes);
        mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
        mallctl("stats.allocated", &bytes, &size, NULL, 0);
        return bytes;
    }
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static unsigned long field_of_status(const char *name)
{
    AUTO(buf) text = BUF_INIT(1 << 16);
    must(file_read("/proc/self/status", &text), "status");
    const char *at = strstr(buf_text(&text), name);
    return at ? strtoul(at + strlen(name), NULL, 10) : 0;
}

static size_t n_descriptors(void)
{
    struct file_list list;
    must(file_list("/proc/self/fd", &list), "descriptors");
    size_t n = list.count - 1; /* without the descriptor of this listing */
    file_list_done(&list);
    return n;
}

/* Counts the executable mappings of files, which are libraries. */
static size_t n_libraries(void)
{
    AUTO(buf) maps = BUF_INIT(16 << 20);
    size_t n = 0;
    must(file_read("/proc/self/maps", &maps), "maps");
    for (const char *at = buf_text(&maps); (at = strstr(at, " r-xp ")); at++)
        n += strchr(at, '/') && strchr(at, '/') < strchrnul(at, '\n');
    return n;
}

struct point {
    unsigned long rss_kb;
    size_t heap_bytes, threads, descriptors, libraries;
};

/*
 * The kernel counts a joined thread for a moment longer. Waits, for five seconds at most, until
 * there are no more than max_threads.
 */
static struct point measure(size_t max_threads)
{
    uint64_t deadline_ns = monotonic_ns() + 5 * NS_PER_S;
    while (field_of_status("Threads:") > max_threads && monotonic_ns() < deadline_ns)
        usleep(1000);
    if (!mallctl)
        malloc_trim(0); /* freed memory that glibc's arenas keep is no leak */
    return (struct point){
        .rss_kb = field_of_status("VmRSS:"),
        .heap_bytes = heap_bytes(),
        .threads = field_of_status("Threads:"),
        .descriptors = n_descriptors(),
        .libraries = n_libraries(),
    };
}

/* ---- Loads and unloads ----------------------------------------------------------------------- */

struct churn {
    struct server *server;
    struct storage *storage;
    const char *name;
    struct pool *pool;
    bool infers;
    bool by_name;
    const char *config; /* the configuration for a load by name; NULL: the model's own */
    size_t n_threads;
};

static struct model *find_model(const struct churn *c)
{
    struct model *m;
    must(server_find_model(c->server, c->name, strlen(c->name), CONCH_VERSION_LATEST, &m), "find");
    return m;
}

static struct model *load_by_name(const struct churn *c)
{
    const struct load_parameter parameters[] = {
        {.name = "config", .type = PARAMETER_STRING, .bytes = c->config},
        {.name = "file:1/some/file", .type = PARAMETER_BYTES, .bytes = "abc", .size_bytes = 3}};
    must(server_load_model(c->server, c->name, parameters, c->config ? 2 : 0), "load");
    return find_model(c);
}

static bool is_leaving(struct server *s)
{
    struct model_index_row *rows;
    size_t n;
    bool leaving = false;
    must(server_index(s, false, &rows, &n), "index");
    for (size_t i = 0; i < n; i++)
        leaving |= rows[i].state == VERSION_UNLOADING;
    mem_free(rows);
    return leaving;
}

static void unload_by_name(const struct churn *c, struct model *m)
{
    model_unref(m);
    must(server_unload_model(c->server, c->name, false), "unload");
    while (is_leaving(c->server))
        usleep(50);
}

static struct model *load(const struct churn *c)
{
    const struct server_options *options = c->server->options;
    struct scan_place place = {.storage = c->storage, .folder = c->name};
    struct model_config *config;
    struct scanned_model scanned;
    struct model *m;

    if (c->by_name)
        return load_by_name(c);
    must(scan_config(c->storage, c->name, NULL, options, &config), "configuration");
    must(scan_model(c->name, &place, config, options, true, &scanned), "scan");
    struct source *source = source_of_folder(c->storage, c->name);
    must(source_fetch(source), "fetch");
    struct config_facts facts = scan_facts(c->name, &scanned, options);
    must(model_load(&c->server->services, &c->server->backends, c->name, scanned.versions[0],
                    source, TAKE(scanned.config), &facts, NULL, &m),
         "load");
    source_unref(source); /* the folder stays */
    scanned_model_done(&scanned);
    return m;
}

static void unload(const struct churn *c, struct model *m)
{
    struct server *s = c->server;
    if (c->by_name) {
        unload_by_name(c, m);
        return;
    }
    model_stop(m);
    mutex_lock(&s->drain_mu);
    while (model_inflight(m))
        cond_wait(&s->drained, &s->drain_mu);
    mutex_unlock(&s->drain_mu);
    model_unload(m, &s->backends);
    model_unref(m);
}

/* ---- A request ------------------------------------------------------------------------------- */

struct asked {
    struct request request;
    struct mutex mu; /* level 100: no lock of ours is held in a callback */
    struct cond changed;
    bool destroyed;
    char memory[4096];
};

static struct asked *of(struct request *r)
{
    return CONTAINER_OF(r, struct asked, request);
}

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    (void)r;
    (void)flags;
    if (resp && resp->error)
        must(status_ref(resp->error), "infer");
    response_free(resp);
}

static void destroy(struct request *r)
{
    struct asked *a = of(r);
    mutex_lock(&a->mu);
    a->destroyed = true;
    cond_broadcast(&a->changed);
    mutex_unlock(&a->mu);
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = respond,
    .destroy = destroy,
};

/*
 * Adds zeros for one input; the caller frees them after the request. Where the model leaves the
 * size open, there are so many that the outputs are blocks of their own, too: small outputs lie in
 * the response.
 */
static void *add_zeros(struct request *r, const struct model *m, const struct tensor_spec *spec)
{
    enum { ROWS = 16, ELEMENTS = 256 };
    int64_t rows = m->batching ? MIN(m->max_batch_size, (uint32_t)ROWS) : 1;
    int64_t shape[MAX_DIMS] = {rows}, elements = rows;
    uint32_t n = m->batching;
    struct input *in;

    for (uint32_t i = 0; i < spec->n_dims && n < MAX_DIMS; i++, n++) {
        shape[n] = spec->dims[i] < 0 ? ELEMENTS : spec->dims[i];
        elements *= shape[n];
    }
    size_t bytes = (size_t)elements * dtype_size(spec->dtype);
    void *zeros = mem_zalloc(bytes);
    struct tensor_buffer data = {.base = zeros, .size_bytes = bytes};
    must(request_add_input(r, spec->name, strlen(spec->name), spec->dtype, shape, n, &in), "input");
    must(request_add_data(r, in, &data), "data");
    return zeros;
}

static void infer(const struct churn *c, struct model *m)
{
    struct asked a = {.destroyed = false};
    void *zeros[MAX_DIMS] = {NULL};

    mutex_init(&a.mu, 100, "asked.mu");
    cond_init(&a.changed);
    model_ref(m);
    request_init(&a.request, &ops, m, a.memory, sizeof(a.memory), c->pool);
    for (uint32_t i = 0; i < m->n_inputs && i < MAX_DIMS; i++)
        zeros[i] = add_zeros(&a.request, m, &m->inputs[i]);
    must(server_infer(c->server, &a.request), "infer");
    request_unref(&a.request);
    mutex_lock(&a.mu);
    while (!a.destroyed)
        cond_wait(&a.changed, &a.mu);
    mutex_unlock(&a.mu);
    for (uint32_t i = 0; i < MAX_DIMS; i++)
        mem_free(zeros[i]);
    cond_done(&a.changed);
    mutex_done(&a.mu);
}

/* ---- The whole run --------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, uint64_t *ns, size_t n)
{
    qsort(ns, n, sizeof(*ns), by_value);
    printf("\"%s\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}, ", name, (double)ns[n / 2] / 1e3,
           (double)ns[n * 99 / 100] / 1e3, (double)ns[n - 1] / 1e3);
}

#define PRINT_POINTS(name, format, field, last)                                                    \
    do {                                                                                           \
        printf("\"%s\": [", name);                                                                 \
        for (int i = 0; i <= N_POINTS; i++)                                                        \
            printf("%s" format, i ? ", " : "", points[i].field);                                   \
        printf("]%s", last);                                                                       \
    } while (0)

/* One thread's share of a round. */
struct work {
    const struct churn *c;
    size_t cycles;
    uint64_t *load_ns, *unload_ns; /* of each cycle */
    struct model_memory memory;    /* of the last model */
};

static void work(void *arg)
{
    struct work *w = arg;
    for (size_t i = 0; i < w->cycles; i++) {
        uint64_t start_ns = monotonic_ns();
        struct model *m = load(w->c);
        w->load_ns[i] = monotonic_ns() - start_ns;
        if (w->c->infers)
            infer(w->c, m);
        model_memory(m, &w->memory);
        start_ns = monotonic_ns();
        unload(w->c, m);
        w->unload_ns[i] = monotonic_ns() - start_ns;
    }
}

/* Runs this many cycles, on this thread or several; returns what a model had in memory. */
static struct model_memory run_round(const struct churn *c, size_t cycles, uint64_t *load_ns,
                                     uint64_t *unload_ns)
{
    struct thread threads[MAX_THREADS];
    struct work shares[MAX_THREADS];
    size_t each = cycles / c->n_threads;
    for (size_t i = 0; i < c->n_threads; i++) {
        shares[i] = (struct work){.c = c,
                                  .cycles = each,
                                  .load_ns = load_ns + i * each,
                                  .unload_ns = unload_ns + i * each};
        if (i > 0)
            must(thread_start(&threads[i], "churn", work, &shares[i]), "thread");
    }
    work(&shares[0]);
    for (size_t i = 1; i < c->n_threads; i++)
        thread_join(&threads[i]);
    pool_trim(c->pool, 0); /* it keeps the blocks of the requests that overlapped */
    return shares[0].memory;
}

static void churn(const struct churn *c, size_t cycles, bool hold)
{
    uint64_t *load_ns = mem_alloc(cycles * sizeof(*load_ns));
    uint64_t *unload_ns = mem_alloc(cycles * sizeof(*unload_ns));
    memset(load_ns, 1, cycles * sizeof(*load_ns)); /* resident now, so no growth */
    memset(unload_ns, 1, cycles * sizeof(*unload_ns));
    struct point points[N_POINTS + 1];
    struct model_memory memory;
    size_t each = cycles / N_POINTS;
    struct model *held = hold ? load(c) : NULL;

    run_round(c, each, load_ns, unload_ns); /* the warm-up, whose times are overwritten */
    points[0] = measure(SIZE_MAX);
    for (size_t i = 0; i < N_POINTS; i++) {
        memory = run_round(c, each, load_ns + i * each, unload_ns + i * each);
        points[i + 1] = measure(points[0].threads);
    }
    if (held)
        unload(c, held);

    printf("{\"cycles\": %zu, ", cycles);
    print_times("load_us", load_ns, cycles);
    print_times("unload_us", unload_ns, cycles);
    printf("\"peak_bytes\": {");
    for (enum mem_kind kind = 0; kind < MEM_KINDS; kind++)
        printf("%s\"%s\": %zu", kind ? ", " : "", mem_kind_name(kind),
               memory.kinds[kind].peak_bytes);
    printf("}, ");
    PRINT_POINTS("rss_kb", "%lu", rss_kb, ", ");
    PRINT_POINTS("heap_bytes", "%zu", heap_bytes, ", ");
    PRINT_POINTS("threads", "%zu", threads, ", ");
    PRINT_POINTS("descriptors", "%zu", descriptors, ", ");
    PRINT_POINTS("libraries", "%zu", libraries, "}\n");
    mem_free(load_ns);
    mem_free(unload_ns);
}

/* Makes a server without models, whose parts the models use. */
static struct server *new_server(const char *repository, const char *backends)
{
    char empty[] = "/tmp/model_churn-XXXXXX";
    struct server_options *options = server_options_new();
    struct server *s;
    if (!mkdtemp(empty)) {
        perror(empty);
        exit(1);
    }
    if (repository)
        options->control_mode = CONTROL_EXPLICIT;
    server_options_add_repository(options, repository ? repository : empty);
    server_options_set_string(&options->backend_directory, backends);
    must(server_new(options, &s), "server");
    server_options_free(options);
    rmdir(empty);
    return s;
}

static bool has_word(char **words, const char *word)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words;
}

int main(int argc, char **argv)
{
    size_t cycles = argc > 4 ? strtoul(argv[4], NULL, 10) / ROUND_TO * ROUND_TO : 0;
    char **how = argv + MIN(argc, 5);
    bool hold = has_word(how, "hold"), infers = has_word(how, "infer");
    bool parallel = has_word(how, "parallel"), files = has_word(how, "files");
    bool named = has_word(how, "named"), by_name = named || files;
    if (!cycles || argc != 5 + hold + infers + parallel + files + named ||
        (by_name && (hold || parallel))) {
        fprintf(stderr,
                "usage: %s REPOSITORY MODEL BACKENDS CYCLES [infer] [[hold] [parallel] | named | "
                "files]; at least %d cycles\n",
                argv[0], ROUND_TO);
        return 2;
    }
    struct log_settings settings;
    log_get_settings(&settings);
    settings.info = false;
    log_set_settings(&settings);

    AUTO(buf) config = BUF_INIT(1 << 20);
    struct churn c = {.server = new_server(by_name ? argv[1] : NULL, argv[3]),
                      .by_name = by_name,
                      .name = argv[2],
                      .pool = pool_new("churn", 1 << 20, 0),
                      .infers = infers,
                      .n_threads = parallel ? MAX_THREADS : 1};
    must(storage_open(argv[1], true, &c.storage), "repository");
    if (files) { /* a copy, as a client sends it */
        struct model *m = load_by_name(&c);
        model_config_print_json(m->config, &config);
        unload_by_name(&c, m);
        c.config = buf_text(&config);
    }
    churn(&c, cycles, hold);
    storage_unref(c.storage);
    pool_free(c.pool);
    must(server_stop(c.server), "stop");
    server_free(c.server);
    return 0;
}
