/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_lines REPOSITORY MODEL BACKENDS THREADS REQUESTS: how many cache lines that other threads
 * write, too, a request writes. THREADS threads, each as a loop, with a pool and a request of its
 * own, send requests through the plugin ABI to one model that executes inline (CONCH_EXECUTION).
 * Built by the preset `lines`, whose loads and stores are seen (line_count.h); the backend's own
 * are not. Prints one JSON object:
 *
 *     written   lines that more than one thread writes: how many of them a request writes, on
 *               average
 *     read      lines that another thread writes and a request only reads
 *     lines     the most written ones: writes per request, object and offset, the writers
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model/model_priv.h"
#include "core/model/statistics.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "core/sched/pull.h"
#include "core/server/server_priv.h"
#include "micro/line_count.h"
#include "micro/one_model.h"

enum { TENSOR_BYTES = 64, MAX_THREADS = 64, TOLD = 24 };

/* ---- The requests ---------------------------------------------------------------------------- */

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    (void)r;
    (void)flags;
    if (resp && resp->error)
        must(status_ref(resp->error), "infer");
    response_free(resp);
}

/* Another thread may have executed the request, if it had the instance. */
static void destroy(struct request *r)
{
    atomic_store((atomic_bool *)r->maker_data, true);
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = respond,
    .destroy = destroy,
};

struct driver {
    pthread_t thread;
    struct server *server;
    struct model *model;
    long n_requests;
    pthread_barrier_t *begin;
    struct line_table *table;
};

static void prepare(struct request *r, struct model *m, char *memory, size_t memory_bytes,
                    struct pool *pool)
{
    static char bytes[TENSOR_BYTES];
    const struct tensor_spec *spec = &m->inputs[0];
    int64_t shape[] = {(int64_t)(sizeof(bytes) / dtype_size(spec->dtype))};
    struct tensor_buffer data = {.base = bytes, .size_bytes = sizeof(bytes)};
    struct input *in;
    model_ref(m);
    request_init(r, &ops, m, memory, memory_bytes, pool);
    must(request_add_input(r, spec->name, strlen(spec->name), spec->dtype, shape, 1, &in), "input");
    must(request_add_data(r, in, &data), "data");
}

/* Makes a request object for each request, as loops do. */
static void *drive(void *arg)
{
    struct driver *d = arg;
    struct pool *pool = pool_new("lines", 1 << 20, 0);
    _Alignas(64) char memory[4096];
    _Alignas(64) struct request r;
    line_count_here(d->table);
    for (long i = -1000; i < d->n_requests; i++) { /* the first ones are not counted */
        struct inline_budget budget = {.left_ns = NS_PER_S};
        if (i == 0)
            pthread_barrier_wait(d->begin);
        d->table->request = i < 0 ? 0 : (uint64_t)i + 1;
        prepare(&r, d->model, memory, sizeof(memory), pool);
        atomic_bool is_over = false;
        r.maker_data = &is_over;
        r.inline_budget = &budget;
        must(server_infer(d->server, &r), "infer");
        request_unref(&r);
        d->table->request = 0;
        while (!atomic_load(&is_over))
            sched_yield();
        if (i % 16 == 0)
            usleep(1); /* so that threads alternate on few processors, too */
    }
    line_count_here(NULL);
    pthread_barrier_wait(d->begin); /* no memory is reused before all have counted */
    pool_free(pool);
    return NULL;
}

/* ---- The answer ------------------------------------------------------------------------------ */

struct object {
    char name[64];
    const void *at;
    size_t size;
};

static struct object objects[256];
static size_t n_objects;

static void name_object(const void *at, size_t size, const char *name)
{
    struct object *o = &objects[n_objects++ % 256];
    snprintf(o->name, sizeof(o->name), "%s", name);
    o->at = at;
    o->size = size;
}

static void name_objects(struct server *s, struct model *m)
{
    char name[64];
    name_object(s, sizeof(*s), "server");
    name_object(m, sizeof(*m), "model");
    name_object(m->scheduler, sizeof(*pull_scheduler_of(m)) + 64, "scheduler");
    name_object(m->owner, 256, "owner");
    for (uint32_t i = 0; i < m->n_instances && i < 60; i++) {
        snprintf(name, sizeof(name), "instance %u", i);
        name_object(m->instances[i], sizeof(struct instance), name);
        snprintf(name, sizeof(name), "statistics of instance %u", i);
        name_object(m->instances[i]->stats, sizeof(struct instance_stats), name);
        snprintf(name, sizeof(name), "batch sizes of instance %u", i);
        name_object(m->instances[i]->stats->sums.batches, 64, name);
        snprintf(name, sizeof(name), "batch of instance %u", i);
        name_object(m->instances[i]->batch, 64, name);
    }
}

struct shared {
    uintptr_t number;
    unsigned int n_writers;
    uint64_t n_writes, n_reads;
    uintptr_t writer;
    unsigned char first, end;
};

static int compare(const void *a, const void *b)
{
    const struct shared *x = a, *y = b;
    return (x->n_writes < y->n_writes) - (x->n_writes > y->n_writes);
}

static void print_line(const struct shared *l, double n_requests)
{
    uintptr_t from = l->number * 64 + l->first, to = l->number * 64 + l->end;
    char function[256] = "?", command[512];
    printf("%.2f of ", (double)l->n_writes / n_requests);
    bool found = false;
    for (size_t i = 0; i < n_objects && !found; i++) {
        uintptr_t at = (uintptr_t)objects[i].at;
        found = at && from >= at && from < at + objects[i].size;
        if (found)
            printf("%s +%zu..%zu", objects[i].name, (size_t)(from - at), (size_t)(to - at));
    }
    if (!found)
        printf("0x%zx", (size_t)from);
    snprintf(command, sizeof(command), "addr2line -f -s -e /proc/%d/exe 0x%zx", (int)getpid(),
             (size_t)l->writer - 1);
    FILE *f = popen(command, "re"); /* NOLINT: our own text */
    if (f && fgets(function, sizeof(function), f))
        function[strcspn(function, "\n")] = '\0';
    if (f)
        pclose(f);
    printf(", by %s", function);
}

static void add(struct shared *all, size_t *n, const struct line *l)
{
    size_t i = 0;
    while (i < *n && all[i].number != l->number)
        i++;
    if (i == *n)
        all[(*n)++] = (struct shared){.number = l->number, .first = 64};
    struct shared *s = &all[i];
    s->n_reads += l->n_reads > l->n_writes ? l->n_reads - l->n_writes : 0;
    if (l->n_writes == 0)
        return;
    s->n_writers++;
    s->n_writes += l->n_writes;
    s->writer = l->writer;
    s->first = l->first < s->first ? l->first : s->first;
    s->end = l->end > s->end ? l->end : s->end;
}

static void tell(const struct driver *drivers, size_t n_drivers, double n_requests)
{
    struct shared *all = mem_zalloc(n_drivers * LINES * sizeof(*all));
    uint64_t n_writes = 0, n_reads = 0;
    size_t n = 0, n_told = 0;
    for (size_t i = 0; i < n_drivers; i++) {
        for (size_t j = 0; j < LINES; j++) {
            if (drivers[i].table->lines[j].number)
                add(all, &n, &drivers[i].table->lines[j]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        n_writes += all[i].n_writers > 1 ? all[i].n_writes : 0;
        n_reads += all[i].n_writers > 1 ? all[i].n_reads : 0;
    }
    qsort(all, n, sizeof(*all), compare);
    printf("{\"written\": %.2f, \"read\": %.2f, \"lines\": [", (double)n_writes / n_requests,
           (double)n_reads / n_requests);
    for (size_t i = 0; i < n && n_told < TOLD; i++) {
        if (all[i].n_writers < 2 || (double)all[i].n_writes < n_requests / 100)
            continue;
        printf(n_told++ ? ",\n \"" : "\n \"");
        print_line(&all[i], n_requests);
        printf("\"");
    }
    printf("]}\n");
    mem_free(all);
}

int main(int argc, char **argv)
{
    long n_threads = argc == 6 ? strtol(argv[4], NULL, 10) : 0;
    long n_requests = argc == 6 ? strtol(argv[5], NULL, 10) : 0;
    if (n_threads <= 0 || n_threads > MAX_THREADS || n_requests <= 0) {
        fprintf(stderr, "usage: %s REPOSITORY MODEL BACKENDS THREADS REQUESTS\n", argv[0]);
        return 2;
    }
    struct server *s = quiet_server_new(argv[1], argv[3]);
    struct model *m = one_model_load(s, argv[1], argv[2]);

    static struct driver drivers[MAX_THREADS];
    pthread_barrier_t begin;
    pthread_barrier_init(&begin, NULL, (unsigned)n_threads);
    for (long i = 0; i < n_threads; i++) {
        drivers[i] =
            (struct driver){.server = s, .model = m, .n_requests = n_requests, .begin = &begin};
        drivers[i].table = mem_zalloc(sizeof(*drivers[i].table));
        pthread_create(&drivers[i].thread, NULL, drive, &drivers[i]);
    }
    for (long i = 0; i < n_threads; i++)
        pthread_join(drivers[i].thread, NULL);
    name_objects(s, m);
    tell(drivers, (size_t)n_threads, (double)n_threads * (double)n_requests);
    for (long i = 0; i < n_threads; i++)
        mem_free(drivers[i].table);
    pthread_barrier_destroy(&begin);
    one_model_unload(s, m);
    quiet_server_end(s);
    return 0;
}
