/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model comes up step by step and goes down in the opposite order; model_unload() takes a model
 * that stopped half-way up as well.
 */
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/backend/warmup.h"
#include "core/model_priv.h"
#include "core/sched/scheduler.h"

enum { MAX_INSTANCES = 4096 };

static enum instance_kind kind_of(Inference__ModelInstanceGroup__Kind kind)
{
    switch (kind) {
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU:
        return INSTANCE_GPU;
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL:
        return INSTANCE_MODEL;
    default:
        return INSTANCE_CPU;
    }
}

static struct status *make_instances(struct model *m)
{
    const Inference__ModelConfig *pb = m->config->pb;
    int64_t total = 0;
    for (size_t g = 0; g < pb->n_instance_group; g++)
        total += pb->instance_group[g]->count;
    if (total > MAX_INSTANCES)
        return status_new(STATUS_INVALID_ARG, "model '%s' asks for %lld instances, at most %d",
                          m->name, (long long)total, MAX_INSTANCES);

    MEM_CHARGE(m->owner, MEM_INSTANCES);
    m->instances = mem_zalloc((size_t)total * sizeof(struct instance *));
    for (size_t g = 0; g < pb->n_instance_group; g++) {
        const Inference__ModelInstanceGroup *group = pb->instance_group[g];
        for (int32_t c = 0; c < group->count; c++) {
            char *name = mem_printf("%s_%d", group->name, c);
            struct instance *in;
            struct status *st = instance_new(m, name, kind_of(group->kind), 0, &in);
            mem_free(name);
            if (st)
                return st;
            m->instances[m->n_instances++] = in;
        }
    }
    return NULL;
}

static struct status *initialize_in_backend(struct model *m)
{
    MEM_CHARGE(m->owner, MEM_BACKEND);
    struct status *st =
        m->backend->fns.model_initialize ? m->backend->fns.model_initialize(m) : NULL;
    m->initialized_in_backend = !st;
    return st;
}

struct status *model_load(struct server *server, struct backend_registry *reg, const char *name,
                          int64_t version, const char *directory, const struct storage *storage,
                          struct model_config *config, struct config_facts *facts,
                          struct model **ret_model)
{
    struct model *m = model_new(server, name, version, directory, config);
    char *version_directory = mem_printf("%s/%lld", directory, (long long)version);
    char *library = NULL;
    m->storage = storage;

    struct status *st = backend_find_library(reg, config, directory, version_directory, &library);
    if (st)
        goto out;
    st = backend_get(reg, config->pb->backend, library, &m->backend);
    if (st)
        goto out;

    m->auto_complete = facts->auto_complete;
    facts->preferred_groups = m->backend->attribute.groups;
    facts->n_preferred_groups = m->backend->attribute.n_groups;
    st = model_config_place(config, facts);
    if (st)
        goto out;

    st = initialize_in_backend(m);
    if (st)
        goto out;
    st = model_config_finish(config, facts);
    if (st)
        goto out;
    st = model_make_specs(m);
    if (st)
        goto out;

    st = make_instances(m);
    if (st)
        goto out;
    st = model_warm_up(m);
    if (st)
        goto out;
    st = default_scheduler_new(m, &m->scheduler);
    if (st)
        goto out;
    for (uint32_t i = m->n_instances; i-- > 0;) /* the first one is used first */
        scheduler_add_instance(m->scheduler, m->instances[i]);
    *ret_model = TAKE(m);
out:
    if (m) {
        model_unload(m, reg);
        model_unref(m);
    }
    mem_free(library);
    mem_free(version_directory);
    return st;
}

void model_unload(struct model *m, struct backend_registry *reg)
{
    scheduler_free(m->scheduler); /* a worker that has only just started still reads the pointer */
    m->scheduler = NULL;
    for (uint32_t i = 0; i < m->n_instances; i++)
        instance_free(m->instances[i]);
    m->n_instances = 0;
    mem_free(TAKE(m->instances));
    model_expect_returned(m->owner, MEM_INSTANCES);
    if (m->initialized_in_backend && m->backend->fns.model_finalize)
        log_status(LOG_ERROR, "failed to finalize model", m->backend->fns.model_finalize(m));
    m->initialized_in_backend = false;
    model_expect_returned(m->owner, MEM_BACKEND);
    atomic_store_explicit(&m->reported_bytes, 0, memory_order_relaxed);
    backend_put(reg, TAKE(m->backend));
}

void model_stop(struct model *m)
{
    /* seq_cst: pairs with request_begin(), which counts itself in before it looks at `stopping`. */
    atomic_store(&m->stopping, true);
    if (m->scheduler)
        scheduler_stop(m->scheduler);
}

bool model_is_ready_to_run(struct model *m)
{
    for (uint32_t i = 0; i < m->n_instances; i++) {
        if (!m->backend->fns.instance_ready)
            break;
        struct status *st = m->backend->fns.instance_ready(m->instances[i]);
        if (st) {
            log_warn("Model '%s' version %s is not ready: %s", m->name, m->version_text,
                     status_message(st));
            status_free(st);
            return false;
        }
    }
    return true;
}
