/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread waits on `ended`, for a second at a time.
 */
#include "local/gauges.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "local/store.h"
#include "triton/core/tritonserver.h"

enum {
    GAUGE_UTILIZATION,
    GAUGE_ENTRIES,
    GAUGE_HITS,
    GAUGE_MISSES,
    GAUGE_LOOK_UPS,
    GAUGE_EVICTIONS,
    GAUGE_LOOK_UP_US,
    GAUGE_INSERT_US,
    N_GAUGES,
};

static const struct {
    const char *name, *help;
} texts[N_GAUGES] = {
    [GAUGE_UTILIZATION] = {"nv_cache_util", "Cache utilization [0.0 - 1.0]"},
    [GAUGE_ENTRIES] = {"nv_cache_num_entries", "Number of responses stored in response cache"},
    [GAUGE_HITS] = {"nv_cache_num_hits", "Number of cache hits in response cache"},
    [GAUGE_MISSES] = {"nv_cache_num_misses", "Number of cache misses in response cache"},
    [GAUGE_LOOK_UPS] = {"nv_cache_num_lookups", "Number of cache lookups in response cache"},
    [GAUGE_EVICTIONS] = {"nv_cache_num_evictions", "Number of cache evictions in response cache"},
    [GAUGE_LOOK_UP_US] = {"nv_cache_lookup_duration",
                          "Total cache lookup duration (hit and miss), in microseconds"},
    [GAUGE_INSERT_US] = {"nv_cache_insertion_duration",
                         "Total cache insertion duration, in microseconds"},
};

struct gauges {
    /* Constant once the thread runs, which alone uses the metrics. */
    struct store *store;
    TRITONSERVER_MetricFamily *families[N_GAUGES];
    TRITONSERVER_Metric *metrics[N_GAUGES];
    pthread_t thread;

    pthread_mutex_t mu;
    pthread_cond_t ended;
    bool must_end; /* under mu */
};

static void drop_error(TRITONSERVER_Error *err)
{
    if (err)
        TRITONSERVER_ErrorDelete(err);
}

static void show_counts(struct gauges *g)
{
    struct store_counts c;
    store_counts(g->store, &c);
    const double values[N_GAUGES] = {
        [GAUGE_UTILIZATION] = (double)c.used_bytes / (double)store_limit_bytes(g->store),
        [GAUGE_ENTRIES] = (double)c.n_entries,
        [GAUGE_HITS] = (double)c.n_hits,
        [GAUGE_MISSES] = (double)(c.n_look_ups - c.n_hits),
        [GAUGE_LOOK_UPS] = (double)c.n_look_ups,
        [GAUGE_EVICTIONS] = (double)c.n_evictions,
        [GAUGE_LOOK_UP_US] = (double)c.look_up_ns / 1000,
        [GAUGE_INSERT_US] = (double)c.insert_ns / 1000,
    };
    for (size_t i = 0; i < N_GAUGES; i++)
        drop_error(TRITONSERVER_MetricSet(g->metrics[i], values[i]));
}

static void *run_gauges(void *arg)
{
    struct gauges *g = arg;
    pthread_mutex_lock(&g->mu);
    while (!g->must_end) {
        struct timespec until;
        pthread_mutex_unlock(&g->mu);
        show_counts(g);
        pthread_mutex_lock(&g->mu);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        while (!g->must_end && pthread_cond_timedwait(&g->ended, &g->mu, &until) == 0) {
        }
    }
    pthread_mutex_unlock(&g->mu);
    return NULL;
}

static bool make_gauge_metrics(struct gauges *g)
{
    for (size_t i = 0; i < N_GAUGES; i++) {
        TRITONSERVER_Error *err = TRITONSERVER_MetricFamilyNew(
            &g->families[i], TRITONSERVER_METRIC_KIND_GAUGE, texts[i].name, texts[i].help);
        if (!err)
            err = TRITONSERVER_MetricNew(&g->metrics[i], g->families[i], NULL, 0);
        if (err) {
            drop_error(err);
            return false;
        }
    }
    return true;
}

static void free_gauges(struct gauges *g)
{
    for (size_t i = 0; i < N_GAUGES; i++) {
        if (g->metrics[i])
            drop_error(TRITONSERVER_MetricDelete(g->metrics[i]));
        if (g->families[i])
            drop_error(TRITONSERVER_MetricFamilyDelete(g->families[i]));
    }
    pthread_cond_destroy(&g->ended);
    pthread_mutex_destroy(&g->mu);
    free(g);
}

struct gauges *gauges_new(struct store *s)
{
    pthread_condattr_t attr;
    struct gauges *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->store = s;
    pthread_mutex_init(&g->mu, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->ended, &attr);
    pthread_condattr_destroy(&attr);
    if (!make_gauge_metrics(g) || pthread_create(&g->thread, NULL, run_gauges, g) != 0) {
        free_gauges(g);
        return NULL;
    }
    return g;
}

void gauges_free(struct gauges *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->mu);
    g->must_end = true;
    pthread_cond_signal(&g->ended);
    pthread_mutex_unlock(&g->mu);
    pthread_join(g->thread, NULL);
    free_gauges(g);
}
