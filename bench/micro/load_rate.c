/* SPDX-License-Identifier: Apache-2.0 */
#include "micro/load_rate.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "core/server/server.h"
#include "micro/added.h"
#include "micro/one_model.h"

enum { SAMPLE_NS = 250000000 };

static const struct load *load;
static struct pool *pool;
static uint64_t until_ns;
static atomic_size_t n_answers, n_streams;
static struct mutex mu;
static struct cond ended;

/* A request that is sent again as soon as it is answered, until `until_ns`. */
struct stream {
    struct request request;
    char memory[4096];
    struct model *model;
};

static void ask_stream(struct stream *s);

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    (void)r, (void)flags;
    if (resp && resp->error)
        must(status_ref(resp->error), "infer");
    response_free(resp);
}

static void destroy(struct request *r)
{
    struct stream *s = CONTAINER_OF(r, struct stream, request);

    atomic_fetch_add(&n_answers, 1);
    if (monotonic_ns() < until_ns) {
        ask_stream(s);
        return;
    }
    mutex_lock(&mu);
    atomic_fetch_sub(&n_streams, 1);
    cond_broadcast(&ended);
    mutex_unlock(&mu);
}

static const struct request_ops ops = {.alloc_output = response_alloc_pooled,
                                       .free_output = response_free_pooled,
                                       .respond = respond,
                                       .destroy = destroy};

static void ask_stream(struct stream *s)
{
    model_ref(s->model);
    request_init(&s->request, &ops, s->model, s->memory, sizeof(s->memory), pool);
    load->add_inputs(&s->request);
    must(server_infer(load->server, &s->request), "infer");
    request_unref(&s->request);
}

static void start_sample(void)
{
    until_ns = monotonic_ns() + SAMPLE_NS;
    atomic_store(&n_answers, 0);
}

static void run_served(void)
{
    static struct stream streams[LOAD_MAX_STREAMS];

    start_sample();
    atomic_store(&n_streams, load->n_models);
    for (size_t i = 0; i < load->n_models; i++) {
        streams[i].model = load->models[i];
        ask_stream(&streams[i]);
    }
    mutex_lock(&mu);
    while (atomic_load(&n_streams))
        cond_wait(&ended, &mu);
    mutex_unlock(&mu);
}

static void bare_thread(void *arg)
{
    for (size_t n = 0; monotonic_ns() < until_ns; n++) {
        load->run_bare((size_t)arg, n);
        atomic_fetch_add(&n_answers, 1);
    }
}

static void run_bare(void)
{
    struct thread threads[LOAD_BARE_THREADS];

    start_sample();
    for (size_t i = 0; i < LOAD_BARE_THREADS; i++)
        must(thread_start(&threads[i], "bare", bare_thread, (void *)i), "thread");
    for (size_t i = 0; i < LOAD_BARE_THREADS; i++)
        thread_join(&threads[i]);
}

static double count_switches(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_nvcsw + used.ru_nivcsw);
}

/* One side of the load. */
struct side {
    double per_s[ADDED_MAX_ROUNDS], us[ADDED_MAX_ROUNDS], switches[ADDED_MAX_ROUNDS];
};

static void take_sample(struct side *s, int round, void (*run)(void))
{
    double from_us = cpu_us(), from_switches = count_switches(), n;
    uint64_t from_ns = monotonic_ns();

    run();
    n = (double)atomic_load(&n_answers);
    s->per_s[round] = n * 1e9 / (double)(monotonic_ns() - from_ns);
    s->us[round] = (cpu_us() - from_us) / n;
    s->switches[round] = (count_switches() - from_switches) / n;
}

void load_measure(const struct load *l, int n_rounds)
{
    static struct side served, bare;
    double ratio[ADDED_MAX_ROUNDS], cpu_ratio[ADDED_MAX_ROUNDS];

    load = l;
    pool = pool_new("load", 64 << 20, 0);
    mutex_init(&mu, 100, "load.mu");
    cond_init(&ended);
    run_served();
    run_bare();
    for (int i = 0; i < n_rounds; i++) {
        take_sample(&served, i, run_served);
        take_sample(&bare, i, run_bare);
        ratio[i] = served.per_s[i] / bare.per_s[i];
        cpu_ratio[i] = bare.us[i] / served.us[i];
    }
    printf("{\"served_per_s\": %.1f, \"bare_per_s\": %.1f, \"served_us\": %.2f, "
           "\"bare_us\": %.2f, \"served_switches\": %.2f, \"bare_switches\": %.2f, "
           "\"ratio\": %.3f, \"cpu_ratio\": %.3f}",
           median(served.per_s, n_rounds), median(bare.per_s, n_rounds),
           median(served.us, n_rounds), median(bare.us, n_rounds),
           median(served.switches, n_rounds), median(bare.switches, n_rounds),
           median(ratio, n_rounds), median(cpu_ratio, n_rounds));
}

void load_measure_pair(struct server *server, struct model *model,
                       void (*add_inputs)(struct request *r), void (*bare)(size_t thread, size_t n),
                       int n_rounds)
{
    struct model *const models[] = {model, model, model, model};
    const struct load l = {server, models, sizeof(models) / sizeof(models[0]), add_inputs, bare};

    load_measure(&l, 2 * n_rounds);
}
