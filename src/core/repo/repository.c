/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/repository.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/table.h"
#include "base/thread.h"
#include "core/backend/backend.h"
#include "core/model_priv.h"
#include "core/repo/scan.h"
#include "core/repo/storage.h"
#include "core/server_options.h"

enum { REPOSITORY_LEVEL = 100, MAX_LOAD_THREADS = 64 };

/* What requests see: immutable, made anew for each change, freed when nobody reads it any longer.
 */
struct table_model {
    const char *name;
    size_t n_same; /* models of that name that have versions; the first one counts them */
    size_t n_versions;
    struct table_version {
        int64_t version;
        struct model *model; /* a reference, or NULL unless READY */
    } * versions;            /* ascending */
};

struct table {
    struct map by_name; /* of table_model */
    size_t n_models;
    struct table_model models[];
};

const char *version_state_name(enum version_state state)
{
    static const char *const names[] = {"UNKNOWN", "LOADING", "READY", "UNLOADING", "UNAVAILABLE"};
    return names[state];
}

void repository_init(struct repository *repo, struct server *server,
                     struct backend_registry *backends, const struct server_options *options)
{
    memset(repo, 0, sizeof(*repo));
    repo->server = server;
    repo->backends = backends;
    repo->options = options;
    mutex_init(&repo->mu, REPOSITORY_LEVEL, "repository.mu");
}

/* ------------------------------------------------------------------------------- the table */

static void table_free(struct table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_models; i++) {
        for (size_t j = 0; j < t->models[i].n_versions; j++)
            model_unref(t->models[i].versions[j].model);
        mem_free(t->models[i].versions);
    }
    map_done(&t->by_name);
    mem_free(t);
}

/* Makes the table of what the books say now, and waits until nobody reads the one before. */
static void publish(struct repository *repo)
{
    mutex_lock(&repo->mu);
    struct table *t = mem_zalloc(sizeof(*t) + repo->n_models * sizeof(t->models[0]));
    map_init(&t->by_name);
    t->n_models = repo->n_models;
    bool all_loaded = true, must_ask = false;
    struct table_model *first = NULL; /* of those with the same name */
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = &repo->models[i];
        struct table_model *tm = &t->models[i];
        tm->name = rm->name;
        tm->n_versions = rm->n_versions;
        tm->versions = mem_zalloc(rm->n_versions * sizeof(*tm->versions));
        all_loaded &= rm->n_versions > 0;
        for (size_t j = 0; j < rm->n_versions; j++) {
            const struct repo_version *rv = &rm->versions[j];
            tm->versions[j].version = rv->version;
            if (rv->state != VERSION_READY) {
                all_loaded = false;
                continue;
            }
            model_ref(rv->model);
            tm->versions[j].model = rv->model;
            must_ask |= rv->model->backend->fns.instance_ready != NULL;
        }
        if (!first || strcmp(first->name, tm->name) != 0 || !first->n_versions) {
            map_puts(&t->by_name, tm->name, tm);
            first = tm;
        }
        first->n_same += tm->n_versions > 0;
    }
    atomic_store_explicit(&repo->all_loaded, all_loaded, memory_order_relaxed);
    atomic_store_explicit(&repo->must_ask, must_ask, memory_order_relaxed);
    mutex_unlock(&repo->mu);

    table_free(snapshot_replace(&repo->table, t));
}

#define UNKNOWN "Request for unknown model: "

/* Between snapshot_enter() and snapshot_leave(). */
static struct status *look_up(const struct table *t, const char *name, size_t name_length,
                              const struct table_model **ret_model)
{
    *ret_model = t ? map_get(&t->by_name, name, name_length) : NULL;
    if (*ret_model && (*ret_model)->n_same > 1)
        return status_new(
            STATUS_INVALID_ARG,
            "There are %zu identifiers of model '%.*s' in global map, model namespace "
            "must be provided to resolve ambiguity.",
            (*ret_model)->n_same, (int)name_length, name);
    if (*ret_model && (*ret_model)->n_versions)
        return NULL;
    return status_new(STATUS_NOT_FOUND, UNKNOWN "'%.*s' is not found", (int)name_length, name);
}

static struct status *pick_version(const struct table_model *tm, int64_t version,
                                   struct model **ret_model)
{
    if (version == CONCH_VERSION_LATEST) {
        for (size_t i = tm->n_versions; i-- > 0;) {
            if (tm->versions[i].model) {
                *ret_model = tm->versions[i].model;
                return NULL;
            }
        }
        return status_new(STATUS_NOT_FOUND, UNKNOWN "'%s' has no available versions", tm->name);
    }
    for (size_t i = 0; i < tm->n_versions; i++) {
        if (tm->versions[i].version != version)
            continue;
        *ret_model = tm->versions[i].model;
        if (*ret_model)
            return NULL;
        return status_new(STATUS_UNAVAILABLE, UNKNOWN "'%s' version %lld is not at ready state",
                          tm->name, (long long)version);
    }
    return status_new(STATUS_NOT_FOUND, UNKNOWN "'%s' version %lld is not found", tm->name,
                      (long long)version);
}

struct status *repository_find(struct repository *repo, const char *name, size_t name_length,
                               int64_t version, struct model **ret_model)
{
    const struct table_model *tm;
    struct model *m = NULL;

    struct table *t = snapshot_enter(&repo->table);
    struct status *st = look_up(t, name, name_length, &tm);
    if (!st)
        st = pick_version(tm, version, &m);
    if (!st)
        model_ref(m);
    snapshot_leave();
    if (st)
        return st;
    *ret_model = m;
    return NULL;
}

struct status *repository_versions(struct repository *repo, const char *name, size_t name_length,
                                   int64_t **ret_versions, size_t *ret_n)
{
    const struct table_model *tm;
    size_t n = 0;
    int64_t *versions = NULL;

    struct table *t = snapshot_enter(&repo->table);
    struct status *st = look_up(t, name, name_length, &tm);
    if (!st) {
        versions = mem_alloc(tm->n_versions * sizeof(*versions));
        for (size_t i = 0; i < tm->n_versions; i++) {
            if (tm->versions[i].model)
                versions[n++] = tm->versions[i].version;
        }
        if (n == 0)
            st = status_new(STATUS_NOT_FOUND, UNKNOWN "'%s' has no available versions", tm->name);
    }
    snapshot_leave();
    if (st) {
        mem_free(versions);
        return st;
    }
    *ret_versions = versions;
    *ret_n = n;
    return NULL;
}

/* ------------------------------------------------------------------------------- the books */

static void forget(struct repo_model *rm)
{
    for (size_t i = 0; i < rm->n_versions; i++)
        mem_free(rm->versions[i].reason);
    mem_free(rm->versions);
    mem_free(rm->failure);
    storage_release(rm->storage, rm->directory);
    if (rm->title != rm->name)
        mem_free(rm->title);
    mem_free(rm->name);
}

struct status *repository_open(struct repository *repo)
{
    return roots_open(repo->options, &repo->roots);
}

/* Fills the books with what the repositories hold. False: something of that cannot be loaded. */
static bool list_models(struct repository *repo)
{
    struct poll poll;
    poll_roots(&repo->roots, repo->options, &poll);
    repo->n_models = poll.n_models;
    repo->models = mem_zalloc(poll.n_models * sizeof(*repo->models));
    for (size_t i = 0; i < poll.n_models; i++) {
        struct polled_model *pm = &poll.models[i];
        char *name = TAKE(pm->name);
        bool namespacing = repo->options->model_namespacing;
        repo->models[i] = (struct repo_model){
            .name = name,
            .title = namespacing ? mem_printf("%s::%s", pm->storage->root, name) : name,
            .duplicate = pm->duplicate,
            .storage = pm->storage,
            .failure = TAKE(pm->failure),
        };
    }
    bool complete = poll.complete;
    poll_done(&poll);
    return complete;
}

static void set_state(struct repository *repo, struct repo_version *rv, enum version_state state,
                      struct model *m, const char *reason)
{
    mutex_lock(&repo->mu);
    rv->state = state;
    rv->model = m;
    mem_free(rv->reason);
    rv->reason = mem_strdup(reason);
    mutex_unlock(&repo->mu);
}

/* Reads the model's folder; a model without a version to serve is an error. */
static struct status *poll(struct repository *repo, const struct repo_model *rm, bool quiet,
                           struct scanned_model *ret_scanned)
{
    struct status *st =
        scan_model(rm->name, rm->storage, rm->name, repo->options, quiet, ret_scanned);
    if (st || ret_scanned->n_versions)
        return st;
    scanned_model_done(ret_scanned);
    return status_new(STATUS_INVALID_ARG,
                      "at least one version must be available under the version policy of model "
                      "'%s'",
                      rm->name);
}

/* Loads a version, as often as the options allow; scanned is used up. */
static struct status *try_to_load(struct repository *repo, const struct repo_model *rm,
                                  int64_t version, struct scanned_model *scanned,
                                  struct model **ret_model)
{
    for (unsigned int retries_left = repo->options->load_retries;; retries_left--) {
        struct config_facts facts = scan_facts(rm->name, scanned, repo->options);
        struct status *st =
            model_load(repo->server, repo->backends, rm->name, version, rm->directory, rm->storage,
                       TAKE(scanned->config), &facts, ret_model);
        scanned_model_done(scanned);
        if (!st || retries_left == 0)
            return st;
        log_warn("failed to load '%s' version %lld, %u retries left: %s", rm->title,
                 (long long)version, retries_left, status_message(st));
        status_free(st);
        st = poll(repo, rm, true, scanned);
        if (st)
            return st;
    }
}

/* Loads one version of a model whose folder has been read; scanned is used up. */
static bool load_version(struct repository *repo, const struct repo_model *rm,
                         struct repo_version *rv, struct scanned_model *scanned)
{
    struct model *m = NULL;
    log_info("loading: %s:%lld", rm->title, (long long)rv->version);
    struct status *st = try_to_load(repo, rm, rv->version, scanned, &m);
    if (st) {
        char *reason = status_reason(st);
        log_error("failed to load '%s' version %lld: %s", rm->title, (long long)rv->version,
                  reason);
        set_state(repo, rv, VERSION_UNAVAILABLE, NULL, reason);
        mem_free(reason);
        status_free(st);
        return false;
    }
    set_state(repo, rv, VERSION_READY, m, "");
    return true;
}

/* Nothing of the model can be served: its folder or its configuration is wrong. */
static void note_poll_failure(struct repository *repo, struct repo_model *rm, struct status *st)
{
    log_error("Poll failed for model directory '%s': %s", rm->title, status_message(st));
    mutex_lock(&repo->mu);
    mem_free(rm->failure);
    rm->failure = status_reason(st);
    mutex_unlock(&repo->mu);
    status_free(st);
}

/* Reads and loads one model; only this thread touches rm's versions until it is done. */
static bool load_one(struct repository *repo, struct repo_model *rm)
{
    struct scanned_model scanned;
    if (rm->failure)
        return false;
    struct status *st = poll(repo, rm, false, &scanned);
    if (st) {
        note_poll_failure(repo, rm, st);
        return false;
    }

    st = storage_fetch(rm->storage, rm->name, &rm->directory);
    if (st) {
        scanned_model_done(&scanned);
        note_poll_failure(repo, rm, st);
        return false;
    }

    size_t n = scanned.n_versions;
    struct repo_version *versions = mem_zalloc(n * sizeof(*versions));
    for (size_t i = 0; i < n; i++)
        versions[i] = (struct repo_version){
            .version = scanned.versions[i], .state = VERSION_LOADING, .reason = mem_strdup("")};
    mutex_lock(&repo->mu);
    rm->versions = versions;
    rm->n_versions = n;
    mutex_unlock(&repo->mu);

    bool all = true;
    for (size_t i = 0; i < n; i++) {
        /* Each version completes a configuration of its own. */
        st = i == 0 ? NULL : poll(repo, rm, true, &scanned);
        if (st) {
            note_poll_failure(repo, rm, st);
            set_state(repo, &versions[i], VERSION_UNAVAILABLE, NULL, rm->failure);
            all = false;
        } else {
            all &= load_version(repo, rm, &versions[i], &scanned);
        }
    }
    if (all)
        log_info("successfully loaded '%s'", rm->title);
    return all;
}

struct loader {
    struct repository *repo;
    atomic_size_t next;
    atomic_size_t n_failed;
};

static void load_some(void *arg)
{
    struct loader *l = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->repo->n_models)
            return;
        if (!load_one(l->repo, &l->repo->models[i]))
            atomic_fetch_add(&l->n_failed, 1);
    }
}

struct status *repository_load_all(struct repository *repo)
{
    bool complete = list_models(repo);

    struct loader loader = {.repo = repo};
    struct thread threads[MAX_LOAD_THREADS];
    size_t wanted = MIN((size_t)repo->options->load_threads, (size_t)MAX_LOAD_THREADS);
    wanted = MIN(wanted, repo->n_models);
    size_t n_threads = 0;
    while (n_threads + 1 < wanted) { /* this thread loads, too */
        struct status *st = thread_start(&threads[n_threads], "model-load", load_some, &loader);
        if (st) {
            log_status(LOG_WARN, "fewer threads load models", st);
            break;
        }
        n_threads++;
    }
    load_some(&loader);
    for (size_t i = 0; i < n_threads; i++)
        thread_join(&threads[i]);

    publish(repo);
    if (!complete || atomic_load(&loader.n_failed))
        return status_new(STATUS_INTERNAL, "failed to load all models");
    return NULL;
}

/* ----------------------------------------------------------------------------- asking, ending */

/* Copies a text behind the rows. */
static const char *index_text(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

struct model_index_row *repository_index(struct repository *repo, bool ready_only, size_t *ret_n)
{
    mutex_lock(&repo->mu);
    size_t n = 0, capacity = 0, text_bytes = 0;
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = &repo->models[i];
        capacity += MAX(rm->n_versions, (size_t)1);
        text_bytes += strlen(rm->name) + 1;
        if (rm->duplicate)
            text_bytes += strlen(rm->failure) + 1;
        for (size_t j = 0; j < rm->n_versions; j++)
            text_bytes += strlen(rm->versions[j].reason) + 1;
    }
    /* One block: what the rows say stays true of the moment, whatever changes meanwhile. */
    struct model_index_row *rows = mem_zalloc(capacity * sizeof(*rows) + text_bytes);
    char *texts = (char *)(rows + capacity);
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = &repo->models[i];
        const char *name = index_text(&texts, rm->name);
        if (rm->duplicate)
            rows[n++] = (struct model_index_row){
                .name = name,
                .version = -1,
                .state = version_state_name(VERSION_UNAVAILABLE),
                .reason = index_text(&texts, rm->failure),
            };
        else if (rm->n_versions == 0 && !ready_only)
            rows[n++] =
                (struct model_index_row){.name = name, .version = -1, .state = "", .reason = ""};
        for (size_t j = 0; j < rm->n_versions; j++) {
            const struct repo_version *rv = &rm->versions[j];
            if (ready_only && rv->state != VERSION_READY)
                continue;
            rows[n++] = (struct model_index_row){
                .name = name,
                .version = rv->version,
                .state = version_state_name(rv->state),
                .reason = index_text(&texts, rv->reason),
            };
        }
    }
    mutex_unlock(&repo->mu);
    *ret_n = n;
    return rows;
}

/*
 * Each READY model version, with a reference, so that whoever asks backends need not hold the
 * lock. Ends with NULL; the caller frees.
 */
static struct model **ready_models(struct repository *repo)
{
    mutex_lock(&repo->mu);
    size_t n = 0, capacity = 1;
    for (size_t i = 0; i < repo->n_models; i++)
        capacity += repo->models[i].n_versions;
    struct model **models = mem_zalloc(capacity * sizeof(struct model *));
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = &repo->models[i];
        for (size_t j = 0; j < rm->n_versions; j++) {
            if (rm->versions[j].state != VERSION_READY)
                continue;
            model_ref(rm->versions[j].model);
            models[n++] = rm->versions[j].model;
        }
    }
    mutex_unlock(&repo->mu);
    return models;
}

static void unref_all(struct model **models)
{
    for (size_t i = 0; models[i]; i++)
        model_unref(models[i]);
    mem_free(models);
}

bool repository_all_ready(struct repository *repo)
{
    bool all_ready = atomic_load_explicit(&repo->all_loaded, memory_order_relaxed);
    if (!all_ready || !atomic_load_explicit(&repo->must_ask, memory_order_relaxed))
        return all_ready;

    struct model **models = ready_models(repo);
    for (size_t i = 0; all_ready && models[i]; i++)
        all_ready = model_is_ready_to_run(models[i]);
    unref_all(models);
    return all_ready;
}

void repository_stop(struct repository *repo)
{
    struct model **models = ready_models(repo);
    for (size_t i = 0; models[i]; i++)
        model_stop(models[i]);
    unref_all(models);
}

size_t repository_inflight(struct repository *repo, bool log_them)
{
    size_t n = 0;
    struct model **models = ready_models(repo);
    for (size_t i = 0; models[i]; i++) {
        unsigned int inflight = atomic_load(&models[i]->inflight);
        n += inflight > 0;
        if (inflight && log_them)
            log_info("Model '%s' (version %s) has %u in-flight inferences", models[i]->name,
                     models[i]->version_text, inflight);
    }
    unref_all(models);
    return n;
}

void repository_unload_all(struct repository *repo)
{
    table_free(snapshot_replace(&repo->table, NULL));
    for (size_t i = 0; i < repo->n_models; i++) {
        struct repo_model *rm = &repo->models[i];
        for (size_t j = 0; j < rm->n_versions; j++) {
            struct repo_version *rv = &rm->versions[j];
            struct model *m = rv->model;
            if (!m)
                continue;
            set_state(repo, rv, VERSION_UNLOADING, m, "");
            model_unload(m, repo->backends);
            set_state(repo, rv, VERSION_UNAVAILABLE, NULL, "unloaded");
            log_info("successfully unloaded '%s' version %lld", rm->title, (long long)rv->version);
            model_unref(m);
        }
    }
}

void repository_done(struct repository *repo)
{
    table_free(snapshot_replace(&repo->table, NULL));
    for (size_t i = 0; i < repo->n_models; i++)
        forget(&repo->models[i]);
    mem_free(repo->models);
    roots_close(&repo->roots);
    mutex_done(&repo->mu);
}

void repository_table(struct repository *repo, struct buf *out)
{
    struct table_text *t = table_text_new(3, (const char *const[]){"Model", "Version", "Status"});
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = &repo->models[i];
        if (rm->failure)
            table_text_row(t, (const char *const[]){rm->title, "-", rm->failure});
        for (size_t j = 0; j < rm->n_versions; j++) {
            const struct repo_version *rv = &rm->versions[j];
            char *version = mem_printf("%lld", (long long)rv->version);
            char *status = mem_printf("%s%s%s", version_state_name(rv->state),
                                      rv->reason[0] ? ": " : "", rv->reason);
            table_text_row(t, (const char *const[]){rm->title, version, status});
            mem_free(status);
            mem_free(version);
        }
    }
    mutex_unlock(&repo->mu);
    table_text_print(t, out);
    table_text_free(t);
}
