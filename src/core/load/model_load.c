/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model is loaded step by step, and unloaded in the opposite order; model_unload() also takes a
 * model whose load has stopped half-way.
 */
#include "core/load/model_load.h"

#include <string.h>

#include "base/clock.h"
#include "base/cpu_binding.h"
#include "base/cuda.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/backend/backend.h"
#include "core/backend/host_policy.h"
#include "core/backend/instance.h"
#include "core/backend/instance_group.h"
#include "core/backend/readiness.h"
#include "core/cache/attach.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/options/server_options.h"
#include "core/sched/batch_strategy.h"
#include "core/sched/scheduler.h"
#include "core/sched/watch.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"
#include "core/threads/load_slot.h"

/* A backend whose initialisation failed is finalised all the same: its state may be half made. */
NODISCARD static struct status *initialize_backend_model(struct model *m)
{
    const struct backend_functions *fns = &m->backend->fns;
    MEM_CHARGE(m->owner, MEM_BACKEND);
    m->known_to_backend = true;
    struct status *st = fns->model_initialize ? fns->model_initialize(m) : NULL;
    m->initialized_in_backend = !st;
    return st;
}

/* Returns the host policy of all instances, or NULL if they have several. */
static const char *common_policy(const Inference__ModelConfig *pb)
{
    const char *policy = NULL;
    for (size_t i = 0; i < pb->n_instance_group; i++) {
        const char *this_policy = host_policy_of(pb->instance_group[i]);
        if (!this_policy || (policy && strcmp(this_policy, policy) != 0))
            return NULL;
        policy = this_policy;
    }
    return policy;
}

/*
 * Here a backend makes what all instances share, such as weights and threads that compute; that
 * belongs on the instances' CPUs and nodes.
 */
NODISCARD static struct status *initialize_under_policy(struct model *m)
{
    const struct server_options *o = m->services->options;
    const char *policy = common_policy(m->config->pb);
    struct cpu_binding *p = NULL, before;
    struct status *st =
        policy ? host_policy_cpu_binding(o->host_policies, o->n_host_policies, policy, &p) : NULL;
    if (st)
        return st;
    st = host_policy_enter(p, policy, &before);
    if (!st)
        st = initialize_backend_model(m);
    cpu_binding_restore(&before);
    mem_free(p);
    return st;
}

/* A backend in Python is noted in the configuration. */
static struct status *find_backend(const struct model *m, const struct backend_registry *reg,
                                   struct backend_files *ret_files)
{
    char *version_directory = mem_printf("%s/%s", m->directory, m->version_text);
    struct status *st = backend_find(reg, m->config, m->directory, version_directory, ret_files);
    mem_free(version_directory);
    if (st && str_escapes_folder(m->config->pb->runtime))
        st = model_config_add_position(m->config, m->config->pb, "runtime", st);
    if (!st)
        st = storage_check_fetched(m->storage, m->folder, m->directory, ret_files->library);
    if (!st && ret_files->is_python)
        st = model_config_set_python(m->config, BACKEND_PYTHON_FILE, ret_files->environment);
    return st;
}

/* A model that is being loaded. */
struct ascent {
    struct model *m;
    struct backend_registry *reg;
    struct config_facts *facts;
    struct status *result;
};

NODISCARD static struct status *init_metrics(struct model *m)
{
    const struct server_options *o = m->services->options;
    const struct model_metrics_facts facts = {
        .name = m->name,
        .version_text = m->version_text,
        .repository = o->model_namespacing ? m->repository : NULL,
        .config = m->config->pb,
        .histogram = o->histogram_latencies,
        .times = o->metrics && o->metrics_histograms,
    };
    MEM_CHARGE(m->owner, MEM_CONFIG);
    return model_metrics_init(&m->metrics, &facts);
}

/* A backend that does not find a file says no more than that. */
static struct status *advise_missing(struct status *st, const struct config_facts *facts)
{
    if (!st || status_code(st) != STATUS_NOT_FOUND)
        return st;
    char *advice = model_config_advise_files(facts, true);
    if (!advice)
        return st;
    struct status *whole = status_new(STATUS_NOT_FOUND, "%s: %s", status_message(st), advice);
    mem_free(advice);
    status_free(st);
    return whole;
}

/* The model as its backend sees it; the backend may complete the configuration. */
NODISCARD static struct status *bring_up_in_backend(struct model *m, struct backend_registry *reg,
                                                    struct config_facts *facts)
{
    struct model_config *config = m->config;
    struct backend_files files = {0};
    struct status *st = find_backend(m, reg, &files);
    if (!st)
        st = backend_get(reg, config->pb->backend, &files, &m->backend);
    backend_files_done(&files);
    if (st)
        return st;

    m->auto_complete = facts->auto_complete && reg->auto_complete;
    facts->preferred_groups = m->backend->attribute.groups;
    facts->n_preferred_groups = m->backend->attribute.n_groups;
    facts->count_gpus = cuda_count_devices;
    st = model_config_complete_groups(config, facts);
    if (st)
        return st;

    return advise_missing(initialize_under_policy(m), facts);
}

NODISCARD static struct status *bring_up(struct model *m, struct backend_registry *reg,
                                         struct config_facts *facts)
{
    bool has_backend = !model_config_is_ensemble(m->config);
    struct status *st = has_backend ? bring_up_in_backend(m, reg, facts) : NULL;
    if (st)
        return st;
    st = model_config_finish(m->config, facts);
    if (st)
        return st;
    st = model_config_core(m->config, &m->finished_core);
    if (st)
        return st;
    st = model_make_specs(m);
    if (st)
        return st;
    st = init_metrics(m);
    if (st)
        return st;

    cache_attach(m, m->services->cache);

    if (has_backend)
        st = batch_strategy_open(m, reg);
    if (st)
        return st;
    if (has_backend)
        st = advise_missing(instances_make(m, reg), facts);
    if (st)
        return st;
    st = scheduler_new(m, &m->scheduler);
    if (st)
        return st;
    scheduler_use_instances(m->scheduler);
    return NULL;
}

static void run_ascent(void *arg)
{
    struct ascent *a = arg;
    a->result = bring_up(a->m, a->reg, a->facts);
}

static void take_members(struct model *m, struct model *const *members)
{
    MEM_CHARGE(m->owner, MEM_CONFIG);
    m->n_members = m->config->pb->ensemble_scheduling->n_step;
    m->members = mem_zalloc((m->n_members + 1) * sizeof(struct model *));
    for (size_t i = 0; i < m->n_members; i++) {
        model_ref(members[i]);
        m->members[i] = members[i];
    }
}

static void drop_members(struct model *m)
{
    for (size_t i = 0; i < m->n_members; i++)
        model_unref(m->members[i]);
    m->n_members = 0;
    mem_free(TAKE(m->members));
}

struct status *model_load(const struct model_services *services, struct backend_registry *reg,
                          const char *name, int64_t version, const struct source *source,
                          struct model_config *config, struct config_facts *facts,
                          struct model *const *members, struct model **ret_model)
{
    uint64_t from_ns = clock_now_ns(services->clock);
    struct model *m = model_new(services, name, version, source->directory, config);
    m->storage = source->storage;
    m->repository = source->origin ? source->origin->storage->root : source->storage->root;
    m->folder = source->folder;
    m->load_slot = load_slot_mine();
    if (members)
        take_members(m, members);

    struct ascent a = {.m = m, .reg = reg, .facts = facts};
    a.result = model_config_core(config, &m->prepared_core);
    if (!a.result && !backend_call("model-load", run_ascent, &a) && m->backend)
        model_code_stays(m);
    if (a.result) {
        model_unload(m, reg);
        model_unref(m);
        return a.result;
    }
    m->load_slot = NULL;
    m->metrics.load_ns = clock_now_ns(m->clock) - from_ns;
    model_open(m);
    readiness_begin(m);
    *ret_model = m;
    return NULL;
}

static void take_model_down(void *arg)
{
    struct model *m = arg;
    model_close_refs(m);
    scheduler_free(m->scheduler); /* a worker that has just started still reads the pointer */
    m->scheduler = NULL;
    batch_strategy_end(m);
    for (uint32_t i = 0; i < m->n_instances; i++)
        instance_free(m->instances[i]);
    m->n_instances = 0;
    mem_free(TAKE(m->instances));
    instances_free_spare(m);
    model_expect_returned(m->owner, MEM_INSTANCES);
    if (m->known_to_backend && m->backend->fns.model_finalize)
        log_status(LOG_ERROR, "failed to finalize model", m->backend->fns.model_finalize(m));
    m->known_to_backend = m->initialized_in_backend = false;
    model_expect_returned(m->owner, MEM_BACKEND);
    for (enum memory_place at = 0; at < N_MEMORY_PLACES; at++)
        atomic_store_explicit(&m->reported_bytes[at], 0, memory_order_relaxed);
}

void model_unload(struct model *m, struct backend_registry *reg)
{
    readiness_end(m);
    if (!m->backend)
        take_model_down(m); /* no other code is called */
    else if (!backend_call("model-unload", take_model_down, m))
        model_code_stays(m);
    batch_strategy_close(m); /* not by the thread that has just run it */
    drop_members(m);
    backend_put(reg, TAKE(m->backend));
}

void model_stop(struct model *m)
{
    model_note_stopping(m);
    if (m->scheduler)
        scheduler_stop(m->scheduler);
}

void model_flush(struct model *m)
{
    /* Counted as a request, so that the scheduler is not freed meanwhile. */
    model_request_begun(m);
    if (!atomic_load(&m->stopping))
        scheduler_flush(m->scheduler);
    model_request_ended(m);
}

/* Returns how many sequences the models of its steps have, of any client. */
static size_t count_members_open(const struct model *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_members; i++)
        n += model_n_open(m->members[i]);
    return n;
}

/* A request that is still inside may begin a sequence yet. */
static size_t close_ensemble(struct model *m)
{
    atomic_store(&m->is_closing, true);
    size_t n_open = count_members_open(m);
    if (n_open == 0)
        model_stop(m);
    return n_open;
}

size_t model_close(struct model *m)
{
    size_t n_open = 0;
    if (m->n_members > 0)
        return close_ensemble(m);
    model_request_begun(m);
    if (!atomic_load(&m->stopping))
        n_open = scheduler_close(m->scheduler);
    model_request_ended(m);
    if (n_open == 0)
        model_stop(m);
    return n_open;
}

size_t model_n_open(struct model *m)
{
    if (m->n_members > 0)
        return atomic_load(&m->stopping) ? 0 : count_members_open(m);
    model_request_begun(m);
    size_t n = atomic_load(&m->stopping) ? 0 : scheduler_n_open(m->scheduler);
    model_request_ended(m);
    return n;
}

void model_executing(struct model *m, uint64_t now_ns, struct watch_use *ret)
{
    *ret = (struct watch_use){0};
    model_request_begun(m); /* so that the instances are not finalised meanwhile */
    if (!atomic_load(&m->stopping))
        scheduler_read_use(m->scheduler, now_ns, ret);
    model_request_ended(m);
}

char *model_stuck_instance(struct model *m)
{
    char *name = NULL;
    model_request_begun(m); /* as above */
    if (!atomic_load(&m->stopping))
        name = scheduler_stuck_instance(m->scheduler);
    model_request_ended(m);
    return name;
}
