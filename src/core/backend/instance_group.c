/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: each instance is described by a job, which has its place in a list. Threads of
 * parallel_for() take jobs and write to elements that are theirs alone. After a failure no thread
 * begins another job. All threads have ended before the results are read, so nothing here needs a
 * lock.
 */
#include "core/backend/instance_group.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/map.h"
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
    int index;  /* the last part of its name */
    int device; /* its GPU; 0: none */
    struct instance **place;
    struct status *outcome;
};

struct making {
    /* Constant. */
    struct model *model;
    struct model_config *config; /* has the groups */
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
    o->outcome =
        instance_new(making->model, making->config, o->group, o->index, o->device, o->place);
    if (!o->outcome)
        o->outcome = warmup_run(making->warmup, *o->place);
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

/* A group of GPUs has `count` instances on each of them. */
static size_t count_places(const Inference__ModelInstanceGroup *group)
{
    return MAX(group->n_gpus, (size_t)1);
}

static int device_of(const Inference__ModelInstanceGroup *group, size_t place)
{
    return place < group->n_gpus ? group->gpus[place] : 0;
}

NODISCARD static struct status *count_instances(const struct model *m,
                                                const Inference__ModelConfig *pb, uint32_t *ret_n)
{
    int64_t n = 0, names_bytes = 0;
    for (size_t g = 0; g < pb->n_instance_group; g++) {
        const Inference__ModelInstanceGroup *group = pb->instance_group[g];
        int64_t of_group = group->count * (int64_t)count_places(group);
        n += of_group;
        names_bytes += (int64_t)(strlen(group->name) + INDEX_BYTES) * of_group;
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

/* Makes one instance for each job. */
NODISCARD static struct status *make_all(struct making *making, struct backend_registry *reg)
{
    struct model *m = making->model;
    if (making->n == 0)
        return NULL;
    struct status *st = warmup_new(m, &making->warmup);
    if (st)
        return st;
    if (making->n > 1 && may_be_parallel(m, reg))
        make_in_parallel(making, reg);
    else
        for (uint32_t i = 0; i < making->n; i++)
            make_instance(making, i);
    st = collect_outcome(making);
    warmup_free(making->warmup);
    return st;
}

struct status *instances_make(struct model *m, struct backend_registry *reg)
{
    const Inference__ModelConfig *pb = m->config->pb;
    struct making making = {.model = m, .config = m->config};
    struct status *st = count_instances(m, pb, &making.n);
    if (st)
        return st;

    MEM_CHARGE(m->owner, MEM_INSTANCES);
    m->instances = mem_zalloc(making.n * sizeof(struct instance *));
    m->n_instances = making.n;
    making.jobs = mem_zalloc(making.n * sizeof(*making.jobs));
    struct instance_job *o = making.jobs;
    struct instance **place = m->instances;
    for (size_t g = 0; g < pb->n_instance_group; g++) {
        const Inference__ModelInstanceGroup *group = pb->instance_group[g];
        for (size_t p = 0; p < group->count * count_places(group); p++)
            *o++ = (struct instance_job){.group = group,
                                         .index = (int)(p / count_places(group)),
                                         .device = device_of(group, p % count_places(group)),
                                         .place = place++};
    }
    st = make_all(&making, reg);
    mem_free(making.jobs);
    return st;
}

/* ---- Other groups ---------------------------------------------------------------------------- */

/* What makes an instance of one group like one of another: all but name and count. */
struct kind {
    size_t size_bytes;
    uint8_t *bytes;
};

static struct kind kind_of(const Inference__ModelInstanceGroup *group)
{
    Inference__ModelInstanceGroup like = *group;
    char no_name[] = "";
    struct kind k;
    like.name = no_name;
    like.count = 1;
    k.size_bytes = protobuf_c_message_get_packed_size(&like.base);
    k.bytes = mem_alloc(k.size_bytes + 1);
    protobuf_c_message_pack(&like.base, k.bytes);
    return k;
}

static bool is_same_kind(const struct kind *a, const struct kind *b)
{
    return a->size_bytes == b->size_bytes && memcmp(a->bytes, b->bytes, a->size_bytes) == 0;
}

/* The model's instances, while it is decided which of them stay. */
struct present {
    uint32_t n, n_draining;
    struct instance **instances; /* those that do not drain: only this thread takes them away */
    struct kind *kinds;          /* by instance */
    bool *stays;
};

static void find_present(struct model *m, struct present *p)
{
    p->n = p->n_draining = 0;
    mutex_lock(&m->config_mu); /* those that drain leave when they please */
    p->instances = mem_alloc((m->n_instances + 1) * sizeof(struct instance *));
    for (uint32_t i = 0; i < m->n_instances; i++) {
        if (m->instances[i]->is_draining)
            p->n_draining++;
        else
            p->instances[p->n++] = m->instances[i];
    }
    mutex_unlock(&m->config_mu);
    p->kinds = mem_alloc((p->n + 1) * sizeof(*p->kinds));
    p->stays = mem_zalloc((p->n + 1) * sizeof(*p->stays));
    for (uint32_t i = 0; i < p->n; i++)
        p->kinds[i] = kind_of(p->instances[i]->group);
}

static void present_done(struct present *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        mem_free(p->kinds[i].bytes);
    mem_free(p->instances);
    mem_free(p->kinds);
    mem_free(p->stays);
}

/* Returns an instance of that kind that has no place yet, the first one; NULL: there is none. */
static struct instance *find_place_for(struct present *p, const struct kind *kind, int device)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->stays[i] || p->instances[i]->device_id != device ||
            !is_same_kind(&p->kinds[i], kind))
            continue;
        p->stays[i] = true;
        return p->instances[i];
    }
    return NULL;
}

/* The places of a group's instances: some stay, and there is a job for each other one. */
static void place_group(struct instance_change *c, struct present *p, struct making *making,
                        const Inference__ModelInstanceGroup *group)
{
    struct kind kind = kind_of(group);
    size_t n_places = count_places(group);
    for (size_t i = 0; i < group->count * n_places; i++) {
        struct instance **place = &c->all[c->n++];
        int device = device_of(group, i % n_places);
        *place = find_place_for(p, &kind, device);
        if (!*place)
            making->jobs[making->n++] = (struct instance_job){
                .group = group, .index = (int)(i / n_places), .device = device, .place = place};
    }
    mem_free(kind.bytes);
}

/* An instance that has stayed may have the name that a new one would get: that one gets the next
 * number that is free on its GPU. */
static void choose_names(const struct instance_change *c, struct making *making)
{
    struct map taken = MAP_INIT;
    char **names = mem_zalloc((making->n + 1) * sizeof(*names));
    char **kept = mem_zalloc((c->n + 1) * sizeof(*kept));
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->all[i]) {
            char *name = mem_printf("%s %d", c->all[i]->name, c->all[i]->device_id);
            map_puts(&taken, name, c->all[i]);
            kept[i] = name;
        }
    }
    for (uint32_t i = 0; i < making->n; i++) {
        struct instance_job *o = &making->jobs[i];
        for (;; o->index++) {
            names[i] = mem_printf("%s_%d %d", o->group->name, o->index, o->device);
            if (!map_gets(&taken, names[i]))
                break;
            mem_free(names[i]);
        }
        map_puts(&taken, names[i], o);
    }
    map_done(&taken);
    for (uint32_t i = 0; i < making->n; i++)
        mem_free(names[i]);
    for (uint32_t i = 0; i < c->n; i++)
        mem_free(kept[i]);
    mem_free(kept);
    mem_free(names);
}

static void note_new(struct instance_change *c, const struct making *making)
{
    for (uint32_t i = 0; i < making->n; i++) {
        if (*making->jobs[i].place)
            c->new[c->n_new++] = *making->jobs[i].place;
    }
}

struct status *instances_change_begin(struct model *m, struct backend_registry *reg,
                                      struct model_config *config, struct instance_change *c)
{
    const Inference__ModelConfig *pb = config->pb;
    struct making making = {.model = m, .config = config};
    struct present present;
    uint32_t n;
    *c = (struct instance_change){.model = m, .config = config};
    struct status *st = count_instances(m, pb, &n);
    if (st)
        return st;

    MEM_CHARGE(m->owner, MEM_INSTANCES);
    find_present(m, &present);
    c->all = mem_zalloc((n + present.n + present.n_draining + 1) * sizeof(struct instance *));
    c->new = mem_zalloc((n + 1) * sizeof(struct instance *));
    c->leaving = mem_zalloc((present.n + 1) * sizeof(struct instance *));
    making.jobs = mem_zalloc((n + 1) * sizeof(*making.jobs));
    for (size_t g = 0; g < pb->n_instance_group; g++)
        place_group(c, &present, &making, pb->instance_group[g]);
    for (uint32_t i = 0; i < present.n; i++) {
        if (!present.stays[i])
            c->leaving[c->n_leaving++] = present.instances[i];
    }
    present_done(&present);
    choose_names(c, &making);
    st = make_all(&making, reg);
    note_new(c, &making);
    mem_free(making.jobs);
    if (st)
        instances_change_undo(c);
    return st;
}

void instances_change_undo(struct instance_change *c)
{
    for (uint32_t i = 0; i < c->n_new; i++)
        instance_free(c->new[i]);
    c->n_new = 0;
}

void instances_change_done(struct instance_change *c)
{
    mem_free(TAKE(c->all));
    mem_free(TAKE(c->new));
    mem_free(TAKE(c->leaving));
}

struct instance **instances_in_service(struct model *m, struct instance **room, uint32_t n_room,
                                       uint32_t *ret_n)
{
    mutex_lock(&m->config_mu);
    uint32_t n = m->n_instances;
    struct instance **list = n <= n_room ? room : mem_alloc(n * sizeof(struct instance *));
    for (uint32_t i = 0; i < n; i++) {
        list[i] = m->instances[i];
        instance_ref(list[i]);
    }
    mutex_unlock(&m->config_mu);
    *ret_n = n;
    return list;
}
