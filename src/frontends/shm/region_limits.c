/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counts are raised by one thread at a time, which compares them with the limits first, and
 * lowered by any.
 */
#include "frontends/shm/region_limits.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"

struct region_limits {
    /* Constant. */
    unsigned int max_regions;
    uint64_t max_bytes;

    atomic_uint refs;
    _Atomic(struct server *) server;
    atomic_uint n_regions[REGION_KINDS];
    atomic_uint_least64_t n_bytes[REGION_KINDS];
};

struct region_limits *region_limits_new(unsigned int max_regions, uint64_t max_bytes,
                                        struct server *server)
{
    struct region_limits *l = mem_zalloc(sizeof(*l));
    l->max_regions = max_regions;
    l->max_bytes = max_bytes;
    atomic_init(&l->refs, 1);
    atomic_init(&l->server, server);
    return l;
}

struct region_limits *region_limits_ref(struct region_limits *l)
{
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

void region_limits_unref(struct region_limits *l)
{
    if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1)
        mem_free(l);
}

void region_limits_close(struct region_limits *l)
{
    atomic_store(&l->server, NULL);
}

struct region_total region_limits_count(const struct region_limits *l, enum region_kind kind)
{
    return (struct region_total){atomic_load(&l->n_regions[kind]), atomic_load(&l->n_bytes[kind])};
}

static struct region_total count_all_kinds(const struct region_limits *l)
{
    struct region_total all = {0, 0};
    for (int kind = 0; kind < REGION_KINDS; kind++) {
        struct region_total of = region_limits_count(l, (enum region_kind)kind);
        all.n_regions += of.n_regions;
        all.n_bytes += of.n_bytes;
    }
    return all;
}

struct status *region_limits_take(struct region_limits *l, enum region_kind kind, const char *name,
                                  uint64_t size_bytes)
{
    struct region_total used = count_all_kinds(l);
    if (used.n_regions >= l->max_regions)
        return status_new(STATUS_EXHAUSTED,
                          "failed to register shared memory region '%s': %u regions are the most "
                          "that --client-shm-max-regions allows",
                          name, l->max_regions);
    if (size_bytes > l->max_bytes || used.n_bytes > l->max_bytes - size_bytes)
        return status_new(STATUS_EXHAUSTED,
                          "failed to register shared memory region '%s': with its %llu bytes, all "
                          "regions would have more than the %llu that --client-shm-max-bytes "
                          "allows",
                          name, (unsigned long long)size_bytes, (unsigned long long)l->max_bytes);
    atomic_fetch_add(&l->n_regions[kind], 1);
    atomic_fetch_add(&l->n_bytes[kind], size_bytes);
    return NULL;
}

void region_limits_give(struct region_limits *l, enum region_kind kind, uint64_t size_bytes)
{
    atomic_fetch_sub(&l->n_regions[kind], 1);
    atomic_fetch_sub(&l->n_bytes[kind], size_bytes);
}

void region_limits_run(struct region_limits *l, struct control_job *job)
{
    struct server *server = atomic_load(&l->server);
    struct control *control = server ? server_helpers(server) : NULL;
    if (control)
        control_post_or_run(control, job);
    else
        job->run(job);
}
