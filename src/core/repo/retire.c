/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of versions that serve no more: unloaded, dropped by the policy, or replaced.
 *
 *     retire_take_locked  moves the version to the catalog's list of retiring ones
 *     retire_start        no request finds it; those that found it before are served
 *       on_alone          … the last of them has dropped its reference (model_retire())
 *         retire_version  on a control thread: unloads the version, and removes its files
 *
 * So no request is refused because its model was replaced meanwhile. An embedder's request object
 * keeps its model as long as the object exists; only a server that stops does not wait for those.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/agents/agent_chain.h"
#include "core/load/model_load.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/repo/repository_priv.h"
#include "core/storage/source.h"

static void note_end_locked(const struct retiring_model *retiring, int64_t version)
{
    struct repository *repo = retiring->repo;
    for (size_t i = 0; i < retiring->rm->n_versions; i++) {
        struct repo_version *rv = &retiring->rm->versions[i];
        if (rv->version != version)
            continue;
        rv->n_retiring--;
        if (rv->n_retiring == 0 && rv->state == VERSION_UNLOADING)
            repository_set_state_locked(repo, rv, VERSION_UNLOADED);
    }
}

/* Only the catalog has a reference to the model, which is not in its list any more. */
static void retire_version(struct retiring_model *retiring)
{
    struct repository *repo = retiring->repo;
    int64_t version = retiring->model->version;
    model_stop(retiring->model);
    model_unload(retiring->model, repo->backends);
    model_unref(retiring->model);
    source_unref(retiring->source);
    repository_log_unloaded(retiring->rm, version);
    mutex_lock(&repo->mu);
    note_end_locked(retiring, version);
    repository_drop_user_and_unlock(repo, retiring->rm);
    mem_free(retiring);
    mutex_lock(&repo->mu);
    repo->n_ending--;
    cond_broadcast(&repo->changed);
    mutex_unlock(&repo->mu);
}

static void unlist_retiring_locked(struct retiring_model *retiring)
{
    list_remove(&retiring->link);
    retiring->repo->n_ending++;
}

static void run_retirement(struct control_job *job)
{
    struct retiring_model *retiring = CONTAINER_OF(job, struct retiring_model, job);
    mutex_lock(&retiring->repo->mu);
    unlist_retiring_locked(retiring);
    mutex_unlock(&retiring->repo->mu);
    retire_version(retiring);
}

static void on_alone(struct model *m)
{
    struct retiring_model *retiring = m->on_alone_arg;
    control_post(retiring->repo->control, &retiring->job);
}

void retire_take_locked(struct repository *repo, struct repo_model *rm, struct repo_version *rv,
                        struct list *taken)
{
    mutex_assert_held(&repo->mu);
    struct retiring_model *retiring = mem_zalloc(sizeof(*retiring));
    retiring->repo = repo;
    retiring->rm = rm;
    retiring->model = TAKE(rv->model);
    retiring->source = TAKE(rv->source);
    retiring->job.run = run_retirement;
    retiring->model->on_alone = on_alone;
    retiring->model->on_alone_arg = retiring;
    rm->n_users++;
    rv->n_retiring++;
    list_push(taken, &retiring->link);
}

void retire_start(struct list *taken)
{
    struct list *link;
    while ((link = list_pop(taken))) {
        struct retiring_model *retiring = LIST_ENTRY(link, struct retiring_model, link);
        mutex_lock(&retiring->repo->mu);
        list_push(&retiring->repo->retiring, &retiring->link);
        mutex_unlock(&retiring->repo->mu);
        agent_chain_unloading(source_agents(retiring->source));
        model_flush(retiring->model); /* no more requests can arrive to fill its batches */
        if (model_retire(retiring->model))
            on_alone(retiring->model);
    }
}

void retire_end_all(struct repository *repo)
{
    mutex_lock(&repo->mu);
    while (!list_empty(&repo->retiring) || repo->n_ending > 0) {
        struct retiring_model *mine = NULL;
        LIST_FOR_EACH (link, &repo->retiring) {
            struct retiring_model *retiring = LIST_ENTRY(link, struct retiring_model, link);
            if (model_cancel_retirement(retiring->model)) {
                mine = retiring;
                break;
            }
        }
        if (!mine) { /* a control thread has them, or is about to */
            cond_wait(&repo->changed, &repo->mu);
            continue;
        }
        unlist_retiring_locked(mine);
        mutex_unlock(&repo->mu);
        retire_version(mine);
        mutex_lock(&repo->mu);
    }
    mutex_unlock(&repo->mu);
}

static bool is_retiring_locked(const struct repository *repo, const char *name)
{
    size_t n;
    struct repo_model **named = repository_named_locked(repo, name, &n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < named[i]->n_versions; j++) {
            if (named[i]->versions[j].n_retiring > 0)
                return true;
        }
    }
    return false;
}

bool repository_await_unloaded(struct repository *repo, const char *name, uint64_t deadline_ns)
{
    bool in_time = true;
    mutex_lock(&repo->mu);
    while (is_retiring_locked(repo, name) && in_time)
        in_time = cond_wait_by_clock(&repo->changed, &repo->mu, repo->services->clock, deadline_ns);
    mutex_unlock(&repo->mu);
    return in_time;
}
