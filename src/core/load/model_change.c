/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model that serves gets other instances, in two steps: a load changes all versions of a model,
 * or none. What can fail is done first, beside the instances in service, on a thread that is
 * joined, since it runs code of the backend.
 */
#include "base/cuda.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance_group.h"
#include "core/backend/readiness.h"
#include "core/load/model_load.h"
#include "core/model/model.h"
#include "core/model/model_services.h"
#include "core/sched/limiter.h"
#include "core/sched/scheduler.h"
#include "core/threads/load_slot.h"

struct model_change {
    struct model *m;
    struct backend_registry *reg;
    struct model_config *config;
    struct config_facts *facts; /* while it is prepared */
    struct instance_change instances;
    struct status *result;
};

static void run_begin(void *arg)
{
    struct model_change *c = arg;
    const struct model *m = c->m;
    c->facts->preferred_groups = m->backend->attribute.groups;
    c->facts->n_preferred_groups = m->backend->attribute.n_groups;
    c->facts->count_gpus = cuda_count_devices;
    c->result = model_config_complete_groups(c->config, c->facts);
    if (!c->result)
        c->result = instances_change_begin(c->m, c->reg, c->config, &c->instances);
    if (!c->result)
        c->result =
            limiter_add_instances(m->services->limiter, c->instances.new, c->instances.n_new);
}

static void run_undo(void *arg)
{
    struct model_change *c = arg;
    limiter_remove_instances(c->m->services->limiter, c->instances.new, c->instances.n_new);
    instances_change_undo(&c->instances);
}

/* Has that done on a thread that ends; it calls the backend. */
static void call_backend(struct model_change *c, void (*run)(void *arg))
{
    if (!backend_call("model-load", run, c))
        backend_stays(c->m->backend);
}

static void free_change(struct model_change *c)
{
    instances_change_done(&c->instances);
    model_config_free(c->config);
    mem_free(c);
}

void model_change_undo(struct model_change *change)
{
    if (change->instances.n_new)
        call_backend(change, run_undo);
    free_change(change);
}

struct status *model_change_begin(struct model *m, struct backend_registry *reg,
                                  struct model_config *config, struct config_facts *facts,
                                  struct model_change **ret_change)
{
    *ret_change = NULL;
    if (!scheduler_can_change(m->scheduler, NULL)) {
        model_config_free(config);
        return NULL;
    }
    model_config_give(config, m->owner);
    struct model_change *c = mem_zalloc(sizeof(*c));
    *c = (struct model_change){.m = m, .reg = reg, .config = config, .facts = facts};
    m->load_slot = load_slot_mine();
    call_backend(c, run_begin);
    m->load_slot = NULL;
    struct status *st = TAKE(c->result);
    pb_positions_done(&config->positions);
    if (st || !scheduler_can_change(m->scheduler, &c->instances))
        model_change_undo(c);
    else
        *ret_change = c;
    return st;
}

static void set_config(struct model *m, struct model_config *config)
{
    mutex_lock(&m->config_mu);
    struct model_config *before = m->changed_config;
    model_config_borrow_groups(m->config, config);
    m->changed_config = model_config_ref(config);
    mutex_unlock(&m->config_mu);
    model_config_free(before);
}

void model_change_commit(struct model_change *change)
{
    struct model *m = change->m;
    const struct instance_change *i = &change->instances;
    if (i->n_new || i->n_leaving)
        log_info("model '%s' version %s goes on with %u instances: %u new, %u fewer", m->name,
                 m->version_text, i->n, i->n_new, i->n_leaving);
    scheduler_change(m->scheduler, &change->instances);
    set_config(m, change->config);
    readiness_changed(m); /* the new ones have not been asked */
    free_change(change);
}
