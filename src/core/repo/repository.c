/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog of models and their states, and operations on all models together. Read in this
 * order: the catalog, the locks by which one thread at a time changes a model, its state, the stop.
 *
 * `models` is sorted by name, then by repository, under repository.mu. A version becomes READY in
 * the same hold of that lock in which its view in the table changes, so a client that sees READY
 * also finds the model. A model stays in the catalog while a thread uses it (`n_users`); the last
 * user removes it, unless the index still needs its state.
 */
#include "core/repo/repository_priv.h"
#include "core/threads/load_slot.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/search.h"
#include "base/status.h"
#include "core/agents/agent_chain.h"
#include "core/backend/readiness.h"
#include "core/load/model_load.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/options/server_options.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"
#include "core/threads/changes.h"

enum { REPOSITORY_LEVEL = 100 };

#define ANSWER_HOLDS_MS 20 /* as long as a backend is not asked again, either */

struct repository *repository_new(const struct model_services *services,
                                  struct backend_registry *backends, struct agent_registry *agents,
                                  const struct server_options *options, struct control *control)
{
    struct repository *repo = mem_zalloc(sizeof(*repo));
    repo->services = services;
    repo->backends = backends;
    repo->agents = agents;
    repo->options = options;
    repo->control = control;
    table_init(&repo->table);
    mutex_init(&repo->mu, REPOSITORY_LEVEL, "repository.mu");
    cond_init(&repo->changed);
    relations_init(&repo->relations);
    list_init(&repo->retiring);
    return repo;
}

struct status *repository_open(struct repository *repo)
{
    struct roots *roots;
    struct status *st = roots_open(repo->options, &roots);
    if (st)
        return st;
    mutex_lock(&repo->mu);
    repo->roots = roots;
    mutex_unlock(&repo->mu);
    return NULL;
}

void repository_free(struct repository *repo)
{
    if (!repo)
        return;
    table_done(&repo->table);
    for (size_t i = 0; i < repo->n_models; i++)
        repository_model_free(repo->models[i]);
    mem_free(repo->models);
    relations_done(&repo->relations);
    roots_unref(repo->roots);
    cond_done(&repo->changed);
    mutex_done(&repo->mu);
    mem_free(repo);
}

struct roots *repository_roots(struct repository *repo)
{
    mutex_lock(&repo->mu);
    struct roots *roots = roots_ref(repo->roots);
    mutex_unlock(&repo->mu);
    return roots;
}

/* ---- The catalog ----------------------------------------------------------------------------- */

struct repo_model *repository_model_new(const struct repository *repo, const char *name,
                                        struct storage *storage)
{
    struct repo_model *rm = mem_zalloc(sizeof(*rm));
    rm->name = mem_strdup(name);
    rm->title = repo->options->model_namespacing && storage
                    ? mem_printf("%s::%s", storage->root, name)
                    : mem_strdup(name);
    rm->storage = storage ? storage_ref(storage) : NULL;
    return rm;
}

void repository_model_free(struct repo_model *rm)
{
    for (size_t i = 0; i < rm->n_versions; i++)
        mem_free(rm->versions[i].failure);
    mem_free(rm->versions);
    mem_free(rm->failure);
    mem_free(rm->unfit);
    composition_free(rm->composition);
    fingerprint_done(&rm->seen);
    storage_unref(rm->storage);
    mem_free(rm->title);
    mem_free(rm->name);
    mem_free(rm);
}

static bool is_model_before(const void *model, const void *name)
{
    return strcmp((*(struct repo_model *const *)model)->name, name) < 0;
}

/* Returns the position of the first model of that name, or where it would be. */
static size_t find_position_locked(const struct repository *repo, const char *name)
{
    return lower_bound(repo->models, repo->n_models, sizeof(struct repo_model *), is_model_before,
                       name);
}

static bool is_model_named(const struct repository *repo, size_t i, const char *name)
{
    return i < repo->n_models && strcmp(repo->models[i]->name, name) == 0;
}

/* Without namespacing the name decides: a folder may move to another repository. */
static struct repo_model *find_model_locked(const struct repository *repo, const char *name,
                                            const struct storage *storage)
{
    for (size_t i = find_position_locked(repo, name); is_model_named(repo, i, name); i++) {
        if (!repo->options->model_namespacing ||
            storage_compare(repo->models[i]->storage, storage) == 0)
            return repo->models[i];
    }
    return NULL;
}

static void insert_model_locked(struct repository *repo, struct repo_model *rm)
{
    size_t at = find_position_locked(repo, rm->name);
    while (is_model_named(repo, at, rm->name) &&
           storage_compare(repo->models[at]->storage, rm->storage) <= 0)
        at++;
    repo->models = mem_realloc(repo->models, (repo->n_models + 1) * sizeof(*repo->models));
    memmove(&repo->models[at + 1], &repo->models[at], (repo->n_models - at) * sizeof(rm));
    repo->models[at] = rm;
    repo->n_models++;
}

static void remove_model_locked(struct repository *repo, const struct repo_model *rm)
{
    size_t at = find_position_locked(repo, rm->name);
    while (repo->models[at] != rm)
        at++;
    repo->n_models--;
    memmove(&repo->models[at], &repo->models[at + 1], (repo->n_models - at) * sizeof(rm));
}

/* ---- Locks of models ------------------------------------------------------------------------- */

static void await_ticket_locked(struct repository *repo, struct repo_model *rm)
{
    uint64_t mine = rm->n_tickets++;
    while (rm->ticket_served != mine)
        cond_wait(&repo->changed, &repo->mu);
}

struct repo_model *repository_find_or_add_locked(struct repository *repo, const char *name,
                                                 struct storage *storage)
{
    struct repo_model *rm = find_model_locked(repo, name, storage);
    mutex_assert_held(&repo->mu);
    if (!rm) {
        rm = repository_model_new(repo, name, storage);
        rm->stage = REPO_SETTLED;
        insert_model_locked(repo, rm);
    }
    return rm;
}

struct repo_model *repository_lock_model(struct repository *repo, const char *name,
                                         struct storage *storage)
{
    mutex_lock(&repo->mu);
    struct repo_model *rm = repository_find_or_add_locked(repo, name, storage);
    rm->n_users++;
    await_ticket_locked(repo, rm);
    mutex_unlock(&repo->mu);
    return rm;
}

struct repo_model **repository_named_locked(const struct repository *repo, const char *name,
                                            size_t *ret_n)
{
    size_t first = find_position_locked(repo, name), n = 0;
    mutex_assert_held(&repo->mu);
    while (is_model_named(repo, first + n, name))
        n++;
    *ret_n = n;
    return &repo->models[first];
}

/* Is it the model that a step means? */
static bool is_of_namespace(const struct repo_model *rm, const struct repo_model *ensemble,
                            const char *namespace)
{
    if (*namespace)
        return rm->storage && strcmp(rm->storage->root, namespace) == 0;
    return storage_compare(rm->storage, ensemble->storage) == 0;
}

struct repo_model *repository_member_locked(const struct repository *repo,
                                            const struct repo_model *ensemble,
                                            const char *namespace, const char *name)
{
    size_t n;
    struct repo_model **named = repository_named_locked(repo, name, &n);
    for (size_t i = 0; i < n; i++) {
        if (is_of_namespace(named[i], ensemble, namespace))
            return named[i];
    }
    return n == 1 && !*namespace ? named[0] : NULL;
}

void repository_lock_named_model(struct repository *repo, struct repo_model *rm)
{
    mutex_lock(&repo->mu);
    await_ticket_locked(repo, rm);
    mutex_unlock(&repo->mu);
}

/*
 * Is there nothing to report about it? It does not serve, and was never loaded or has no
 * repository: it came by request, or its repository was unregistered.
 */
static bool is_forgotten_locked(const struct repository *repo, const struct repo_model *rm)
{
    if (rm->n_users > 0 || rm->wanted)
        return false;
    return (rm->n_versions == 0 && !rm->empty) || !roots_have(repo->roots, rm->storage);
}

void repository_unlock_model(struct repository *repo, struct repo_model *rm)
{
    mutex_lock(&repo->mu);
    rm->ticket_served++;
    repository_drop_user_and_unlock(repo, rm);
}

void repository_drop_user_and_unlock(struct repository *repo, struct repo_model *rm)
{
    struct table_view *before = NULL;
    mutex_assert_held(&repo->mu);
    rm->n_users--;
    bool forgotten = is_forgotten_locked(repo, rm);
    if (forgotten) {
        remove_model_locked(repo, rm);
        relations_set(&repo->relations, rm, rm->composition, NULL);
        if (rm->entry) /* no request finds it any more; meanwhile another model may get its name */
            before = table_set(rm->entry, table_view_new(0));
        changes_announce(repo->services->changes);
    }
    cond_broadcast(&repo->changed);
    mutex_unlock(&repo->mu);
    if (!forgotten)
        return;
    table_view_end(&repo->table, before);
    if (rm->entry)
        table_remove(&repo->table, rm->entry);
    repository_model_free(rm);
}

void repository_move(struct repository *repo, struct repo_model *rm, struct storage *storage)
{
    mutex_lock(&repo->mu);
    struct storage *before = rm->storage;
    rm->storage = storage ? storage_ref(storage) : NULL;
    mutex_unlock(&repo->mu);
    storage_unref(before);
}

/* ---- The state of one model ------------------------------------------------------------------ */

const char *repo_version_reason(const struct repo_version *rv)
{
    return rv->failure ? rv->failure : version_state_reason(rv->state);
}

void repository_set_state_locked(struct repository *repo, struct repo_version *rv,
                                 enum version_state state)
{
    mutex_assert_held(&repo->mu);
    rv->state = state;
    mem_free(TAKE(rv->failure));
}

void repository_begin_loading_locked(struct repository *repo, struct repo_model *rm)
{
    mutex_assert_held(&repo->mu);
    if (rm->stage != REPO_LOADING)
        rm->loading_since_ns = clock_now_ns(repo->services->clock);
    rm->stage = REPO_LOADING;
}

void repository_set_failed_locked(struct repository *repo, struct repo_version *rv,
                                  const char *failure)
{
    repository_set_state_locked(repo, rv, VERSION_FAILED);
    rv->failure = mem_strdup(failure);
}

bool repo_version_keep_serving(struct repo_version *rv, const char *failure)
{
    if (!rv->model)
        return false;
    mem_free(rv->failure);
    rv->failure =
        failure ? mem_printf("serves as before, since its last load failed: %s", failure) : NULL;
    return true;
}

void repository_set_state(struct repository *repo, struct repo_version *rv,
                          enum version_state state)
{
    mutex_lock(&repo->mu);
    repository_set_state_locked(repo, rv, state);
    mutex_unlock(&repo->mu);
}

void repository_count_locked(struct repository *repo, struct repo_model *rm, bool unserved)
{
    mutex_assert_held(&repo->mu);
    if (unserved && !rm->unserved)
        atomic_fetch_add_explicit(&repo->n_unserved, 1, memory_order_relaxed);
    else if (!unserved && rm->unserved)
        atomic_fetch_sub_explicit(&repo->n_unserved, 1, memory_order_relaxed);
    if (unserved != rm->unserved)
        changes_announce(repo->services->changes);
    rm->unserved = unserved;
}

void repository_add_to_table(struct repository *repo, struct repo_model *rm)
{
    if (rm->entry)
        return;
    table_add(&repo->table, 1, (const char *const[]){rm->name}, &rm->entry);
    changes_announce(repo->services->changes);
}

struct table_view *repository_publish_locked(struct repository *repo, struct repo_model *rm)
{
    mutex_assert_held(&repo->mu);
    if (!rm->entry)
        return NULL;
    struct table_view *view = table_view_new(rm->n_versions);
    view->coming = rm->stage == REPO_LOADING;
    view->known = rm->n_versions > 0 || rm->empty;
    for (size_t i = 0; i < rm->n_versions; i++) {
        const struct repo_version *rv = &rm->versions[i];
        view->versions[i].version = rv->version;
        view->versions[i].model = rv->model;
        if (rv->model)
            model_ref(rv->model);
    }
    struct table_view *before = table_set(rm->entry, view);
    changes_announce(repo->services->changes);
    return before;
}

/* ---- Looking models up ---------------------------------------------------------------------- */

char *repository_nearest(struct repository *repo, const char *name, size_t name_length)
{
    return table_nearest(&repo->table, name, name_length);
}

struct status *repository_find(struct repository *repo, const char *name, size_t name_length,
                               int64_t version, struct model **ret_model)
{
    return table_find(&repo->table, name, name_length, version, ret_model);
}

struct status *repository_versions(struct repository *repo, const char *name, size_t name_length,
                                   int64_t **ret_versions, size_t *ret_n)
{
    return table_versions(&repo->table, name, name_length, ret_versions, ret_n);
}

struct status *repository_serving(struct repository *repo, const char *name, size_t name_length,
                                  int64_t version, struct model ***ret_models)
{
    return table_serving(&repo->table, name, name_length, version, ret_models);
}

/* ---- All models ------------------------------------------------------------------------------ */

struct model **repository_ready_models(struct repository *repo)
{
    mutex_lock(&repo->mu);
    size_t n = 0, capacity = 1;
    for (size_t i = 0; i < repo->n_models; i++)
        capacity += repo->models[i]->n_versions;
    struct model **models = mem_zalloc(capacity * sizeof(struct model *));
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = repo->models[i];
        for (size_t j = 0; j < rm->n_versions; j++) {
            if (!rm->versions[j].model)
                continue;
            model_ref(rm->versions[j].model);
            models[n++] = rm->versions[j].model;
        }
    }
    mutex_unlock(&repo->mu);
    return models;
}

void repository_unref_models(struct model **models)
{
    for (size_t i = 0; models[i]; i++)
        model_unref(models[i]);
    mem_free(models);
}

struct model **repository_unable(struct repository *repo, size_t max, bool may_wait)
{
    if (!atomic_load_explicit(&repo->must_ask, memory_order_relaxed))
        return mem_zalloc(sizeof(struct model *));
    struct model **models = repository_ready_models(repo);
    size_t n = 0;
    for (size_t i = 0; models[i]; i++) {
        struct model *m = models[i];
        bool ready = n == max || (may_wait ? readiness_ask(m) : readiness_known(m));
        if (!ready)
            models[n++] = m;
        else
            model_unref(m);
    }
    models[n] = NULL;
    return models;
}

/* Asks each model. */
static bool are_all_able(struct repository *repo, bool may_wait)
{
    struct model **unable = repository_unable(repo, 1, may_wait);
    bool all_ready = !unable[0];
    repository_unref_models(unable);
    return all_ready;
}

/* The answer in the lowest bit, above it the generation of the changes that it knows, then ms. */
enum { GENERATION_BITS = 15 };

static uint64_t tag_answer(uint64_t now_ms, uint32_t generation)
{
    generation &= (1U << GENERATION_BITS) - 1;
    return now_ms << (GENERATION_BITS + 1) | generation << 1;
}

/*
 * Loops probe often, and there may be many models, so an answer holds for a while, unless something
 * changes.
 */
static bool are_all_known_able(struct repository *repo)
{
    uint64_t now_ms = clock_now_ns(repo->services->clock) / NS_PER_MS;
    uint32_t generation = changes_generation(repo->services->changes);
    uint64_t last = atomic_load_explicit(&repo->last_answer, memory_order_relaxed);
    uint64_t last_ms = last >> (GENERATION_BITS + 1);
    if (last && now_ms - last_ms < ANSWER_HOLDS_MS &&
        (last | 1) == (tag_answer(last_ms, generation) | 1))
        return last & 1;
    bool all_ready = are_all_able(repo, false);
    atomic_store_explicit(&repo->last_answer, tag_answer(now_ms, generation) | all_ready,
                          memory_order_relaxed);
    return all_ready;
}

bool repository_all_ready(struct repository *repo, bool may_wait)
{
    if (atomic_load_explicit(&repo->n_unserved, memory_order_relaxed) > 0)
        return false;
    if (!atomic_load_explicit(&repo->must_ask, memory_order_relaxed))
        return true;
    return may_wait ? are_all_able(repo, true) : are_all_known_able(repo);
}

void repository_stop_loading(struct repository *repo)
{
    atomic_store(&repo->stopping, true);
    struct model **models = repository_ready_models(repo);
    for (size_t i = 0; models[i]; i++)
        model_flush(models[i]);
    repository_unref_models(models);
}

bool repository_is_stopping(const struct repository *repo)
{
    return atomic_load(&repo->stopping);
}

/* ---- The stop -------------------------------------------------------------------------------- */

/*
 * Each request of an ensemble goes to its members step by step. So the stop goes from the outside
 * to the inside: a model is closed when no ensemble that has it as a member can send it a request
 * any more. Retired ensembles count: requests that found them go on.
 */

/* Is the ensemble done with its members? */
static bool is_drained(const struct model *m)
{
    return atomic_load(&m->stopping) && model_inflight(m) == 0;
}

/* The members of ensembles that are not drained: addresses, ascending, to be compared only. */
struct held {
    size_t n, capacity;
    const struct model **list;
};

static void hold_members(struct held *h, const struct model *ensemble)
{
    if (ensemble->n_members == 0 || is_drained(ensemble))
        return;
    if (h->n + ensemble->n_members > h->capacity) {
        h->capacity = 2 * h->capacity + ensemble->n_members;
        h->list = mem_realloc(h->list, h->capacity * sizeof(const struct model *));
    }
    for (size_t i = 0; i < ensemble->n_members; i++)
        h->list[h->n++] = ensemble->members[i];
}

static int compare_addresses(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const struct model *const *)a;
    uintptr_t y = (uintptr_t) * (const struct model *const *)b;
    return (x > y) - (x < y);
}

static bool is_held(const struct held *h, const struct model *m)
{
    return h->n > 0 && bsearch(&m, h->list, h->n, sizeof(m), compare_addresses);
}

static struct held hold_all_members(struct repository *repo)
{
    struct held h = {0};
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = repo->models[i];
        for (size_t j = 0; j < rm->n_versions; j++) {
            if (rm->versions[j].model)
                hold_members(&h, rm->versions[j].model);
        }
    }
    LIST_FOR_EACH (link, &repo->retiring)
        hold_members(&h, LIST_ENTRY(link, struct retiring_model, link)->model);
    mutex_unlock(&repo->mu);
    if (h.n > 0)
        qsort(h.list, h.n, sizeof(const struct model *), compare_addresses);
    return h;
}

/* Retiring models refuse new requests; they have no wait left, and their lock must not be taken
 * here. */
static void stop_retiring(struct repository *repo, const struct held *h)
{
    mutex_lock(&repo->mu);
    LIST_FOR_EACH (link, &repo->retiring) {
        struct model *m = LIST_ENTRY(link, struct retiring_model, link)->model;
        if (!is_held(h, m))
            model_note_stopping(m);
    }
    mutex_unlock(&repo->mu);
}

/* Closes the models that no ensemble holds; returns how many of them refuse all requests only now:
 * their members may be next. */
static size_t close_outer(struct repository *repo, struct model *const *models)
{
    struct held h = hold_all_members(repo);
    size_t n = 0;
    for (size_t i = 0; models[i]; i++) {
        if (atomic_load(&models[i]->stopping) || is_held(&h, models[i]))
            continue;
        model_close(models[i]);
        n += atomic_load(&models[i]->stopping);
    }
    stop_retiring(repo, &h);
    mem_free(h.list);
    return n;
}

void repository_stop(struct repository *repo)
{
    repository_stop_loading(repo);
    struct model **models = repository_ready_models(repo);
    while (close_outer(repo, models) > 0)
        ;
    repository_unref_models(models);
}

/* Requests have no time left. */
static void stop_all(struct repository *repo, struct model *const *models)
{
    const struct held none = {0};
    for (size_t i = 0; models[i]; i++)
        model_stop(models[i]);
    stop_retiring(repo, &none);
}

static size_t count_open_model(struct model *m, bool log_it)
{
    size_t n_open = model_n_open(m);
    if (n_open && log_it)
        log_info("Model '%s' (version %s) has %zu sequences that have not ended", m->name,
                 m->version_text, n_open);
    return n_open > 0;
}

static size_t count_inflight_model(const struct model *m, bool log_it)
{
    size_t inflight = model_inflight(m);
    if (inflight && log_it)
        log_info("Model '%s' (version %s) has %zu in-flight inferences", m->name, m->version_text,
                 inflight);
    return inflight > 0;
}

bool repository_has_open_sequences(struct repository *repo)
{
    bool any = false;
    struct model **models = repository_ready_models(repo);
    for (size_t i = 0; models[i] && !any; i++)
        any = model_n_open(models[i]) > 0;
    repository_unref_models(models);
    return any;
}

void repository_log_unended(struct repository *repo)
{
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = repo->models[i];
        for (size_t j = 0; j < rm->n_versions; j++) {
            const struct repo_version *rv = &rm->versions[j];
            if (rv->state == VERSION_LOADING || rv->state == VERSION_UNLOADING)
                log_error("Model '%s' (version %lld) is still being %s", rm->title,
                          (long long)rv->version,
                          rv->state == VERSION_LOADING ? "loaded" : "unloaded");
        }
    }
    mutex_unlock(&repo->mu);
}

size_t repository_inflight(struct repository *repo, bool log_them, bool waits, size_t *ret_open)
{
    size_t n = 0;
    struct model **models = repository_ready_models(repo);
    *ret_open = 0;
    if (!waits)
        stop_all(repo, models);
    while (waits && close_outer(repo, models) > 0)
        ;
    for (size_t i = 0; models[i]; i++) {
        *ret_open += count_open_model(models[i], log_them);
        n += count_inflight_model(models[i], log_them);
    }
    repository_unref_models(models);
    mutex_lock(&repo->mu);
    LIST_FOR_EACH (link, &repo->retiring)
        n += count_inflight_model(LIST_ENTRY(link, struct retiring_model, link)->model, log_them);
    mutex_unlock(&repo->mu);
    return n;
}

void repository_log_unloaded(const struct repo_model *rm, int64_t version)
{
    log_info("successfully unloaded '%s' version %lld", rm->title, (long long)version);
}

void repository_log_missing(const char *name)
{
    log_error("failed to poll model '%s': model not found in any model repository.", name);
}

struct unload_round {
    struct repository *repo;
    bool of_ensembles; /* they keep their members, so they are unloaded first */
};

static void unload_versions(void *arg, size_t i)
{
    const struct unload_round *round = arg;
    struct repository *repo = round->repo;
    struct repo_model *rm = repo->models[i];
    for (size_t j = 0; j < rm->n_versions; j++) {
        struct repo_version *rv = &rm->versions[j];
        struct model *m = rv->model;
        if (!m || (m->n_members > 0) != round->of_ensembles)
            continue;
        repository_set_state(repo, rv, VERSION_UNLOADING);
        agent_chain_unloading(source_agents(rv->source));
        model_unload(m, repo->backends);
        mutex_lock(&repo->mu);
        repository_set_state_locked(repo, rv, VERSION_UNLOADED);
        rv->model = NULL;
        mutex_unlock(&repo->mu);
        repository_log_unloaded(rm, rv->version);
        model_unref(m);
        source_unref(TAKE(rv->source));
    }
}

void repository_unload_all(struct repository *repo)
{
    retire_end_all(repo); /* first: forgotten models leave the table, too */
    table_close(&repo->table);
    changes_announce(repo->services->changes);
    for (size_t i = 0; i < repo->n_models; i++)
        repo->models[i]->entry = NULL; /* freed with the table */
    for (int ensembles = 1; ensembles >= 0; ensembles--) {
        struct unload_round round = {.repo = repo, .of_ensembles = ensembles};
        load_in_parallel("model-unload", repo->options->load_threads, repo->n_models,
                         unload_versions, &round);
    }
}
