/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing the models up at the start. Several threads share the work: each takes the next model,
 * reads its folder, loads its versions one after the other, and publishes each that is READY, so
 * that it serves while the others are still on their way.
 *
 * Books and table have the same order and are made before the first model is loaded. From then on
 * until the end an entry belongs to the thread that took the model.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/backend/backend.h"
#include "core/model_priv.h"
#include "core/repo/repository.h"
#include "core/repo/scan.h"
#include "core/repo/storage.h"
#include "core/repo/table.h"
#include "core/server_options.h"

enum { MAX_LOAD_THREADS = 64, MAX_ERROR_BYTES = 1 << 20 };

/* What the threads share. */
struct loader {
    struct repository *repo;
    struct table *table; /* the repository's */
    atomic_size_t next;
};

static bool is_stopping(const struct repository *repo)
{
    return atomic_load_explicit(&repo->stopping, memory_order_relaxed);
}

/* ---- One model ------------------------------------------------------------------------------ */

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
        if (!st || retries_left == 0 || is_stopping(repo))
            return st;
        log_warn("failed to load '%s' version %lld, %u retries left: %s", rm->title,
                 (long long)version, retries_left, status_message(st));
        status_free(st);
        st = scan_model(rm->name, rm->storage, rm->name, repo->options, true, scanned);
        if (st)
            return st;
    }
}

static struct status *load_version(struct loader *l, size_t i, size_t j,
                                   struct scanned_model *scanned)
{
    struct repository *repo = l->repo;
    struct repo_model *rm = &repo->models[i];
    struct repo_version *rv = &rm->versions[j];
    struct model *m = NULL;

    log_info("loading: %s:%lld", rm->title, (long long)rv->version);
    struct status *st = try_to_load(repo, rm, rv->version, scanned, &m);
    if (st)
        return st;
    if (m->backend->fns.instance_ready)
        atomic_store_explicit(&repo->must_ask, true, memory_order_relaxed);
    repository_set_state(repo, rv, VERSION_READY, m, "");
    table_set_ready(l->table, i, j, m);
    return NULL;
}

/* What scan_model() found becomes the model's versions, none READY yet. */
static void note_versions(struct loader *l, size_t i, const struct scanned_model *scanned)
{
    struct repo_model *rm = &l->repo->models[i];
    size_t n = scanned->n_versions;
    struct repo_version *versions = mem_zalloc((n + 1) * sizeof(*versions));
    for (size_t j = 0; j < n; j++)
        versions[j] = (struct repo_version){
            .version = scanned->versions[j], .state = VERSION_LOADING, .reason = mem_strdup("")};
    mutex_lock(&l->repo->mu);
    rm->versions = versions;
    rm->n_versions = n;
    mutex_unlock(&l->repo->mu);
    table_set_versions(l->table, i, scanned->versions, n);
}

/* Nothing of the model can be served: its folder or its configuration is wrong. */
static void note_failure(struct repository *repo, struct repo_model *rm, struct status *st)
{
    log_error("Poll failed for model directory '%s': %s", rm->title, status_message(st));
    mutex_lock(&repo->mu);
    mem_free(rm->failure);
    rm->failure = status_reason(st);
    mutex_unlock(&repo->mu);
    status_free(st);
}

/* Each version completes a configuration of its own, so each but the first reads the folder anew.
 */
static bool load_versions(struct loader *l, size_t i, struct scanned_model *scanned)
{
    struct repository *repo = l->repo;
    struct repo_model *rm = &repo->models[i];
    bool all = true;
    for (size_t j = 0; j < rm->n_versions; j++) {
        struct repo_version *rv = &rm->versions[j];
        struct status *st = NULL;
        if (is_stopping(repo))
            st = status_new(STATUS_UNAVAILABLE, "Server exiting");
        else if (j > 0)
            st = scan_model(rm->name, rm->storage, rm->name, repo->options, true, scanned);
        if (!st)
            st = load_version(l, i, j, scanned);
        if (!st)
            continue;
        char *reason = status_reason(st);
        log_error("failed to load '%s' version %lld: %s", rm->title, (long long)rv->version,
                  reason);
        repository_set_state(repo, rv, VERSION_UNAVAILABLE, NULL, reason);
        mem_free(reason);
        status_free(st);
        all = false;
    }
    scanned_model_done(scanned); /* empty, unless the first version was not even tried */
    return all;
}

static bool load_model(struct loader *l, size_t i)
{
    struct repository *repo = l->repo;
    struct repo_model *rm = &repo->models[i];
    struct scanned_model scanned;

    struct status *st = scan_model(rm->name, rm->storage, rm->name, repo->options, false, &scanned);
    if (!st) {
        st = storage_fetch(rm->storage, rm->name, &rm->directory);
        if (st)
            scanned_model_done(&scanned);
    }
    if (st) {
        note_failure(repo, rm, st);
        return false;
    }
    note_versions(l, i, &scanned);
    if (scanned.n_versions == 0) {
        scanned_model_done(&scanned);
        note_failure(repo, rm,
                     status_new(STATUS_INVALID_ARG,
                                "at least one version must be available under the version policy "
                                "of model '%s'",
                                rm->name));
        return false;
    }
    bool all = load_versions(l, i, &scanned);
    if (all)
        log_info("successfully loaded '%s'", rm->title);
    return all;
}

static void set_stage(struct repository *repo, struct repo_model *rm, enum repo_stage stage)
{
    mutex_lock(&repo->mu);
    rm->stage = stage;
    mutex_unlock(&repo->mu);
}

static void load_some(void *arg)
{
    struct loader *l = arg;
    struct repository *repo = l->repo;
    size_t i;
    while ((i = atomic_fetch_add(&l->next, 1)) < repo->n_models) {
        struct repo_model *rm = &repo->models[i];
        if (!rm->wanted || rm->stage == REPO_SETTLED)
            continue;
        if (is_stopping(repo))
            break;
        set_stage(repo, rm, REPO_LOADING);
        bool all = load_model(l, i);
        set_stage(repo, rm, REPO_SETTLED);
        if (all)
            atomic_fetch_sub_explicit(&repo->n_unserved, 1, memory_order_relaxed);
        table_set_settled(l->table, i);
    }
}

/* ---- Which models --------------------------------------------------------------------------- */

static bool wants_all(const struct server_options *o)
{
    return o->control_mode != CONTROL_EXPLICIT ||
           (o->n_startup_models == 1 && strcmp(o->startup_models[0], "*") == 0);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_wanted(const struct server_options *o, const char *name)
{
    return wants_all(o) ||
           (o->n_startup_models > 0 && bsearch(&name, o->startup_models, o->n_startup_models,
                                               sizeof(*o->startup_models), compare_texts) != NULL);
}

static struct repo_model describe(const struct repository *repo, struct polled_model *pm)
{
    char *name = TAKE(pm->name);
    return (struct repo_model){
        .name = name,
        .title =
            repo->options->model_namespacing ? mem_printf("%s::%s", pm->storage->root, name) : name,
        .storage = pm->storage,
        .wanted = is_wanted(repo->options, name),
        .duplicate = pm->duplicate,
        .stage = pm->failure ? REPO_SETTLED : REPO_WAITING,
        .failure = TAKE(pm->failure),
    };
}

static struct repo_model describe_missing(const char *startup_model)
{
    char *name = mem_strdup(startup_model);
    log_error("failed to poll model '%s': model not found in any model repository.", name);
    return (struct repo_model){
        .name = name,
        .title = name,
        .wanted = true,
        .missing = true,
        .stage = REPO_SETTLED,
        .failure = mem_strdup("Not found: model not found in any model repository."),
    };
}

/* Fills the books with what the repositories hold, and with what they should hold by name. */
static void list_models(struct repository *repo)
{
    const struct server_options *o = repo->options;
    struct poll poll;
    poll_roots(&repo->roots, o, &poll);
    size_t n_names = wants_all(o) ? 0 : o->n_startup_models;
    struct repo_model *models = mem_zalloc((poll.n_models + n_names + 1) * sizeof(*models));
    size_t n = 0, name = 0;
    size_t n_unserved = poll.n_unlisted;         /* what is in those is not served */
    for (size_t i = 0; i < poll.n_models; i++) { /* both lists are sorted */
        while (name < n_names && strcmp(o->startup_models[name], poll.models[i].name) < 0)
            models[n++] = describe_missing(o->startup_models[name++]);
        if (name < n_names && strcmp(o->startup_models[name], poll.models[i].name) == 0)
            name++;
        models[n++] = describe(repo, &poll.models[i]);
    }
    while (name < n_names)
        models[n++] = describe_missing(o->startup_models[name++]);
    poll_done(&poll);

    for (size_t i = 0; i < n; i++)
        n_unserved += models[i].wanted;
    atomic_store(&repo->n_unserved, n_unserved);
    mutex_lock(&repo->mu);
    repo->models = models;
    repo->n_models = n;
    repo->listed = true;
    mutex_unlock(&repo->mu);
}

static struct table *make_table(struct repository *repo)
{
    struct table *t = table_new(repo->n_models);
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = &repo->models[i];
        table_set_name(t, i, rm->name, rm->wanted && rm->stage == REPO_WAITING);
    }
    return t;
}

/* ---- All of them ---------------------------------------------------------------------------- */

static void run_threads(struct loader *l)
{
    struct repository *repo = l->repo;
    struct thread threads[MAX_LOAD_THREADS];
    size_t wanted = MIN((size_t)repo->options->load_threads, (size_t)MAX_LOAD_THREADS);
    wanted = MIN(wanted, repo->n_models);
    size_t n_threads = 0;
    while (n_threads + 1 < wanted) { /* this thread loads, too */
        struct status *st = thread_start(&threads[n_threads], "model-load", load_some, l);
        if (st) {
            log_status(LOG_WARN, "fewer threads load models", st);
            break;
        }
        n_threads++;
    }
    load_some(l);
    for (size_t i = 0; i < n_threads; i++)
        thread_join(&threads[i]);
}

/* Whoever names models is told of each that failed; those that were not even tried are not among
 * them (behaviours §13.4). */
static void describe_failures(struct repository *repo, struct buf *out)
{
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = &repo->models[i];
        bool told = false;
        for (size_t j = 0; rm->wanted && j < rm->n_versions; j++) {
            const struct repo_version *rv = &rm->versions[j];
            if (rv->state == VERSION_READY)
                continue;
            if (!told)
                buf_addf(out, "load failed for model '%s': ", rm->name);
            told = true;
            buf_addf(out, "version %lld is at %s state: %s;", (long long)rv->version,
                     version_state_name(rv->state), rv->reason);
        }
        if (told)
            buf_adds(out, "\n");
    }
}

struct status *repository_load_all(struct repository *repo)
{
    list_models(repo);
    struct loader l = {.repo = repo, .table = make_table(repo)};
    table_free(snapshot_replace(&repo->table, l.table));
    run_threads(&l);

    if (atomic_load(&repo->n_unserved) == 0)
        return NULL;
    AUTO(buf) failures = BUF_INIT(MAX_ERROR_BYTES);
    if (!wants_all(repo->options))
        describe_failures(repo, &failures);
    return failures.size ? status_new(STATUS_INVALID_ARG, "%s", buf_text(&failures))
                         : status_new(STATUS_INTERNAL, "failed to load all models");
}
