/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: each instance has an index in m->instances and is described by a job. Threads of
 * parallel_for() take jobs and write to elements that are theirs alone. After a failure no thread
 * begins another job. All threads have ended before the results are read, so nothing here needs a
 * lock.
 */
#include "core/backend/instance_group.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/parallel_for.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/backend/warmup.h"
#include "core/model/model.h"

enum {
    MAX_NAMES_BYTES = 16 << 20, /* of all instances together: a group's name can be very long */
    INDEX_BYTES = 12,           /* what an index adds to it, at most */
};

struct instance_job {
    const Inference__ModelInstanceGroup *group;
    int index; /* within the group */
    struct status *outcome;
};

struct making {
    /* Constant. */
    struct model *model;
    struct warmup *warmup;
    uint32_t n;
    struct instance_job *jobs; /* the thread that took a job owns its fields */

    /* Any thread. */
    atomic_bool failed;
};

static void make_instance(void *arg, size_t i)
{
    struct making *making = arg;
    if (atomic_load(&making->failed))
        return;
    struct instance_job *o = &making->jobs[i];
    struct instance **in = &making->model->instances[i];
    o->outcome = instance_new(making->model, o->group, o->index, in);
    if (!o->outcome)
        o->outcome = warmup_run(making->warmup, *in);
    if (o->outcome)
        atomic_store(&making->failed, true);
}

/* Takes as many helpers as are wanted and available; give_helpers_back() returns them. */
static unsigned int take_helpers(struct backend_registry *reg, unsigned int wanted)
{
    unsigned int free = atomic_load(&reg->n_free_helpers), taken;
    do {
        taken = MIN(free, wanted);
    } while (!atomic_compare_exchange_weak(&reg->n_free_helpers, &free, free - taken));
    return taken;
}

static void give_helpers_back(struct backend_registry *reg, unsigned int n)
{
    atomic_fetch_add(&reg->n_free_helpers, n);
}

static void make_in_parallel(struct making *making, struct backend_registry *reg)
{
    unsigned int n = take_helpers(reg, making->n - 1);
    const struct parallel_options options = {"instance-load", n + 1,
                                             "fewer threads make instances"};
    parallel_for(&options, making->n, make_instance, making);
    give_helpers_back(reg, n);
}

/* Returns the first failure; another one at the same time is logged. */
NODISCARD static struct status *collect_outcome(const struct making *making)
{
    struct status *first = NULL;
    for (uint32_t i = 0; i < making->n; i++) {
        struct status *st = making->jobs[i].outcome;
        if (first)
            log_status(LOG_ERROR, "another instance failed", st);
        else
            first = st;
    }
    return first;
}

NODISCARD static struct status *count_instances(const struct model *m, uint32_t *ret_n)
{
    const Inference__ModelConfig *pb = m->config->pb;
    int64_t n = 0, names_bytes = 0;
    for (size_t g = 0; g < pb->n_instance_group; g++) {
        const Inference__ModelInstanceGroup *group = pb->instance_group[g];
        n += group->count;
        names_bytes += (int64_t)(strlen(group->name) + INDEX_BYTES) * group->count;
    }
    if (n > CONFIG_MAX_INSTANCES)
        return status_new(STATUS_INVALID_ARG, "model '%s' asks for %lld instances, at most %d",
                          m->name, (long long)n, CONFIG_MAX_INSTANCES);
    if (names_bytes > MAX_NAMES_BYTES)
        return status_new(STATUS_INVALID_ARG,
                          "model '%s': the names of its instances take %lld bytes, at most %d",
                          m->name, (long long)names_bytes, MAX_NAMES_BYTES);
    *ret_n = (uint32_t)n;
    return NULL;
}

static bool may_be_parallel(const struct model *m, const struct backend_registry *reg)
{
    /* One instance at a time executes, in warm-up as in service (scheduler.exclusive). */
    if (m->backend->policy == EXECUTION_DEVICE_BLOCKING && m->config->pb->n_model_warmup)
        return false;
    switch (reg->parallel_instances) {
    case PARALLEL_ALWAYS:
        return true;
    case PARALLEL_NEVER:
        return false;
    default:
        return m->backend->attribute.parallel_instance_loading;
    }
}

struct status *instances_make(struct model *m, struct backend_registry *reg)
{
    const Inference__ModelConfig *pb = m->config->pb;
    struct making making = {.model = m};
    struct status *st = count_instances(m, &making.n);
    if (st)
        return st;

    MEM_CHARGE(m->owner, MEM_INSTANCES);
    st = warmup_new(m, &making.warmup);
    if (st)
        return st;
    m->instances = mem_zalloc(making.n * sizeof(struct instance *));
    m->n_instances = making.n;
    making.jobs = mem_zalloc(making.n * sizeof(*making.jobs));
    struct instance_job *o = making.jobs;
    for (size_t g = 0; g < pb->n_instance_group; g++) {
        for (int i = 0; i < pb->instance_group[g]->count; i++)
            *o++ = (struct instance_job){.group = pb->instance_group[g], .index = i};
    }
    if (making.n > 1 && may_be_parallel(m, reg))
        make_in_parallel(&making, reg);
    else
        for (uint32_t i = 0; i < making.n; i++)
            make_instance(&making, i);
    st = collect_outcome(&making);
    warmup_free(making.warmup);
    mem_free(making.jobs);
    return st;
}
