/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading one model: its folder is read, then its versions are loaded one after the other.
 *
 *     look      determines the wanted versions, and which of them serve with unchanged files
 *     load      loads the others, each beside the version that serves
 *     settle    if all were loaded, the new versions replace the old ones at once, and the old
 *               ones are retired; if one has failed, the new ones are dropped, and the old ones
 *               serve on
 *
 * At the start of a server there is nothing to be kept, and a version that fails does not affect
 * others: each serves as soon as it is READY (LOAD_AT_START).
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/readiness.h"
#include "core/load/model_load.h"
#include "core/model/model_priv.h"
#include "core/options/server_options.h"
#include "core/repo/repository_priv.h"
#include "core/repo/scan.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"

enum { MAX_ERROR_BYTES = 1 << 20 };

/* One version that the model is to have. */
struct wanted_version {
    int64_t version;
    bool stays;          /* it serves with unchanged files */
    struct model *fresh; /* loaded, and not in the catalog yet */
    char *failure;
};

struct load {
    struct repository *repo;
    struct repo_model *rm;
    struct source *source;
    const char *config;
    enum load_reason reason;

    struct fingerprint seen;
    size_t n;
    struct wanted_version *wanted; /* ascending */
    bool failed;                   /* one of the loads has failed */
};

static bool is_stopping(const struct repository *repo)
{
    return atomic_load_explicit(&repo->stopping, memory_order_relaxed);
}

static struct status *scan_source(const struct load *l, bool quiet,
                                  struct scanned_model *ret_scanned)
{
    return scan_model(l->rm->name, l->source->storage, l->source->folder, l->config,
                      l->repo->options, quiet, ret_scanned);
}

static struct repo_version *find_version_row(const struct repo_model *rm, int64_t version)
{
    for (size_t i = 0; i < rm->n_versions; i++) {
        if (rm->versions[i].version == version)
            return &rm->versions[i];
    }
    return NULL;
}

/* ---- Look ------------------------------------------------------------------------------------ */

/* Does it serve from the folder that is to be loaded? Another folder may look the same. */
static bool is_served_from_source(const struct load *l, const struct repo_version *rv)
{
    return rv && rv->model && source_is_same_folder(rv->source, l->source);
}

/* Does it serve all versions of its unchanged folder? Then there is nothing to do. */
static bool is_up_to_date(const struct load *l)
{
    const struct repo_model *rm = l->rm;
    bool serves = false, same = true;
    for (size_t i = 0; i < rm->n_versions; i++) {
        serves |= rm->versions[i].model != NULL;
        same &= !rm->versions[i].model || is_served_from_source(l, &rm->versions[i]);
    }
    return serves && same && !rm->lacks_versions && !l->config &&
           fingerprint_same(&rm->seen, &l->seen);
}

static void note_wanted(struct load *l, const struct scanned_model *scanned)
{
    l->n = scanned->n_versions;
    l->wanted = mem_zalloc((l->n + 1) * sizeof(*l->wanted));
    for (size_t i = 0; i < l->n; i++) {
        int64_t version = scanned->versions[i];
        const struct repo_version *rv = find_version_row(l->rm, version);
        l->wanted[i].version = version;
        l->wanted[i].stays = is_served_from_source(l, rv) && !l->config && !l->rm->overridden &&
                             fingerprint_same_version(&l->rm->seen, &l->seen, version);
    }
}

static int compare_by_version(const void *a, const void *b)
{
    const struct repo_version *x = a, *y = b;
    return (x->version > y->version) - (x->version < y->version);
}

/* From now on the index has the versions; a version that serves goes on to do so. */
static void note_loading(struct load *l)
{
    struct repo_model *rm = l->rm;
    repository_add_to_table(l->repo, rm);
    mutex_lock(&l->repo->mu);
    size_t n_before = rm->n_versions;
    rm->versions = mem_realloc(rm->versions, (n_before + l->n + 1) * sizeof(*rm->versions));
    for (size_t i = 0; i < l->n; i++) {
        struct repo_version *rv = find_version_row(rm, l->wanted[i].version);
        if (!rv) {
            rv = &rm->versions[rm->n_versions++];
            *rv = (struct repo_version){.version = l->wanted[i].version};
        }
        if (!rv->model)
            repository_set_state_locked(l->repo, rv, VERSION_LOADING);
    }
    if (rm->n_versions > n_before)
        qsort(rm->versions, rm->n_versions, sizeof(*rm->versions), compare_by_version);
    struct table_view *before = repository_publish_locked(l->repo, rm);
    mutex_unlock(&l->repo->mu);
    table_view_end(&l->repo->table, before);
}

/* ---- Load ------------------------------------------------------------------------------------ */

/* Tries the load as often as the options allow; takes the contents of scanned. */
static struct status *try_to_load(const struct load *l, int64_t version,
                                  struct scanned_model *scanned, struct model **ret_model)
{
    struct repository *repo = l->repo;
    for (unsigned int retries_left = repo->options->load_retries;; retries_left--) {
        struct config_facts facts = scan_facts(l->rm->name, scanned, repo->options);
        struct status *st = model_load(repo->services, repo->backends, l->rm->name, version,
                                       l->source, TAKE(scanned->config), &facts, NULL, ret_model);
        scanned_model_done(scanned);
        if (!st || retries_left == 0 || is_stopping(repo))
            return st;
        log_warn("failed to load '%s' version %lld, %u retries left: %s", l->rm->title,
                 (long long)version, retries_left, status_message(st));
        status_free(st);
        st = scan_source(l, true, scanned);
        if (st)
            return st;
    }
}

/* Retires the version that serves now, and puts the fresh one in its place. */
static void replace_locked(struct load *l, struct wanted_version *w, struct list *retiring)
{
    struct repo_version *rv = find_version_row(l->rm, w->version);
    if (rv->model)
        retire_take_locked(l->repo, l->rm, rv, retiring);
    rv->model = TAKE(w->fresh);
    rv->source = l->source;
    source_ref(l->source);
    repository_set_state_locked(l->repo, rv, VERSION_READY);
}

static void load_version(struct load *l, struct wanted_version *w, struct scanned_model *scanned)
{
    struct repository *repo = l->repo;
    struct status *st = NULL;
    if (is_stopping(repo))
        st = status_new(STATUS_UNAVAILABLE, "Server exiting");
    else if (!scanned->config) /* each version completes a configuration of its own */
        st = scan_source(l, true, scanned);
    if (!st)
        st = source_fetch(l->source); /* only now: an unchanged model is not fetched */
    if (!st) {
        log_info("loading: %s:%lld", l->rm->title, (long long)w->version);
        st = try_to_load(l, w->version, scanned, &w->fresh);
    }
    if (st) {
        w->failure = status_reason(st);
        l->failed = true;
        log_error("failed to load '%s' version %lld: %s", l->rm->title, (long long)w->version,
                  w->failure);
        status_free(st);
        return;
    }
    if (readiness_is_asked(w->fresh))
        atomic_store_explicit(&repo->must_ask, true, memory_order_relaxed);
}

static void note_failure_locked(struct load *l, struct wanted_version *w)
{
    struct repo_version *rv = find_version_row(l->rm, w->version);
    if (!rv->model)
        repository_set_failed_locked(l->repo, rv, w->failure);
}

/* At the start the result of each version is published at once. */
static void publish_one(struct load *l, struct wanted_version *w)
{
    struct list retiring = LIST_INIT(retiring); /* stays empty: no version has served yet */
    mutex_lock(&l->repo->mu);
    if (w->failure)
        note_failure_locked(l, w);
    else
        replace_locked(l, w, &retiring);
    struct table_view *before = repository_publish_locked(l->repo, l->rm);
    mutex_unlock(&l->repo->mu);
    table_view_end(&l->repo->table, before);
}

static void load_versions(struct load *l, struct scanned_model *scanned)
{
    for (size_t i = 0; i < l->n; i++) {
        struct wanted_version *w = &l->wanted[i];
        if (w->stays)
            continue;
        load_version(l, w, scanned);
        if (l->reason == LOAD_AT_START)
            publish_one(l, w);
    }
}

/* ---- Settle ---------------------------------------------------------------------------------- */

static bool is_version_wanted(const struct load *l, int64_t version)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->wanted[i].version == version)
            return true;
    }
    return false;
}

/* Drops the versions that the model must not have any more. A version that never served leaves
 * no trace. */
static void drop_others_locked(struct load *l, struct list *retiring)
{
    struct repo_model *rm = l->rm;
    size_t kept = 0;
    for (size_t i = 0; i < rm->n_versions; i++) {
        struct repo_version *rv = &rm->versions[i];
        if (!is_version_wanted(l, rv->version)) {
            if (rv->model) {
                retire_take_locked(l->repo, rm, rv, retiring);
                repository_set_state_locked(l->repo, rv, VERSION_UNLOADING);
            } else if (rv->state == VERSION_FAILED && rv->n_retiring == 0) {
                mem_free(rv->failure);
                continue;
            }
        }
        rm->versions[kept++] = *rv;
    }
    rm->n_versions = kept;
}

/* Keeps the fingerprint from which the serving versions were loaded. */
static void keep_fingerprint(struct load *l)
{
    fingerprint_done(&l->rm->seen);
    l->rm->seen = l->seen;
    l->seen = (struct fingerprint){0};
}

static void commit_load(struct load *l)
{
    struct repo_model *rm = l->rm;
    struct list retiring = LIST_INIT(retiring);
    mutex_lock(&l->repo->mu);
    for (size_t i = 0; i < l->n; i++) {
        if (l->wanted[i].fresh)
            replace_locked(l, &l->wanted[i], &retiring);
    }
    drop_others_locked(l, &retiring);
    rm->stage = REPO_SETTLED;
    mem_free(TAKE(rm->failure));
    struct table_view *before = repository_publish_locked(l->repo, rm); /* the swap … */
    repository_count_locked(l->repo, rm, false); /* … without which the server is not ready */
    mutex_unlock(&l->repo->mu);
    table_view_end(&l->repo->table, before);
    keep_fingerprint(l);
    rm->lacks_versions = false;
    rm->overridden = l->config != NULL;
    log_info("successfully loaded '%s'", rm->title);
    retire_start(&retiring);
}

static void roll_back_load(struct load *l)
{
    struct repo_model *rm = l->rm;
    bool keeps_from_ready = false;
    for (size_t i = 0; i < l->n; i++) {
        struct wanted_version *w = &l->wanted[i];
        if (!w->fresh)
            continue;
        model_stop(w->fresh);
        model_unload(w->fresh, l->repo->backends);
        model_unref(TAKE(w->fresh));
        repository_log_unloaded(rm, w->version);
    }
    mutex_lock(&l->repo->mu);
    for (size_t i = 0; i < l->n; i++) {
        struct repo_version *rv = find_version_row(rm, l->wanted[i].version);
        if (l->wanted[i].failure)
            note_failure_locked(l, &l->wanted[i]);
        else if (!rv->model)
            repository_set_state_locked(l->repo, rv, VERSION_UNLOADED);
        keeps_from_ready |= !rv->model;
    }
    rm->stage = REPO_SETTLED;
    struct table_view *before = repository_publish_locked(l->repo, rm);
    repository_count_locked(l->repo, rm, keeps_from_ready);
    mutex_unlock(&l->repo->mu);
    table_view_end(&l->repo->table, before);
    rm->lacks_versions = true;
    if (l->reason == LOAD_AT_START) /* the versions that could be loaded serve */
        keep_fingerprint(l);
}

/* reference/behaviours §13.4: a line for each version that failed. */
static struct status *describe_failed_versions(const struct load *l)
{
    AUTO(buf) text = BUF_INIT(MAX_ERROR_BYTES);
    for (size_t i = 0; i < l->n; i++) {
        if (l->wanted[i].failure)
            buf_addf(&text, "version %lld is at %s state: %s;", (long long)l->wanted[i].version,
                     version_state_name(VERSION_FAILED), l->wanted[i].failure);
    }
    return status_new(STATUS_INVALID_ARG, "load failed for model '%s': %s\n", l->rm->name,
                      buf_text(&text));
}

/* ---- All steps ------------------------------------------------------------------------------- */

struct status *repository_poll_failure(const char *name)
{
    return status_new(STATUS_INTERNAL, "failed to load '%s', failed to poll from model repository",
                      name);
}

void repository_is_unfit_locked(struct repository *repo, struct repo_model *rm, const char *failure)
{
    bool serves = false;
    mutex_assert_held(&repo->mu);
    for (size_t i = 0; i < rm->n_versions; i++)
        serves |= rm->versions[i].model != NULL;
    rm->wanted = true;
    rm->stage = REPO_SETTLED;
    mem_free(rm->failure);
    rm->failure = serves ? NULL : mem_strdup(failure);
    /* A model that cannot be read does not count for readiness (reference/behaviours §2.8). A
     * version of it that failed before still does. */
    if (rm->empty || rm->n_versions == 0)
        repository_count_locked(repo, rm, rm->empty && !serves);
    if (serves)
        log_error("modification of model '%s' to be ignored due to polling failure", rm->title);
}

/*
 * The model could not be read. That becomes its state, unless a request has asked for it: then the
 * request fails, and the state stays as it was.
 */
static void note_unreadable(struct load *l, struct status *st, bool is_empty)
{
    struct repo_model *rm = l->rm;
    char *failure = status_reason(st);
    if (is_empty)
        repository_add_to_table(l->repo, rm);
    mutex_lock(&l->repo->mu);
    rm->stage = REPO_SETTLED;
    rm->empty = is_empty;
    if (l->reason != LOAD_ON_REQUEST)
        repository_is_unfit_locked(l->repo, rm, failure);
    struct table_view *before = repository_publish_locked(l->repo, rm);
    mutex_unlock(&l->repo->mu);
    table_view_end(&l->repo->table, before);
    mem_free(failure);
    status_free(st);
}

static struct status *scan_and_load(struct load *l, struct scanned_model *scanned)
{
    struct repo_model *rm = l->rm;
    struct status *st = scan_source(l, false, scanned);
    if (st) {
        listing_log_failure(rm->title, st);
        note_unreadable(l, st, false);
        return repository_poll_failure(rm->name);
    }
    if (scanned->n_versions == 0) {
        st = status_new(STATUS_INVALID_ARG,
                        "at least one version must be available under the version policy of "
                        "model '%s'",
                        rm->name);
        log_error("failed to load model '%s': %s", rm->title, status_message(st));
        struct status *named = status_new(STATUS_INVALID_ARG, "load failed for model '%s': %s\n",
                                          rm->name, status_message(st));
        note_unreadable(l, st, true);
        return named;
    }
    mutex_lock(&l->repo->mu);
    rm->stage = REPO_LOADING;
    rm->wanted = true;
    rm->empty = rm->duplicate = rm->missing = false;
    mutex_unlock(&l->repo->mu);
    note_wanted(l, scanned);
    note_loading(l);
    load_versions(l, scanned);
    if (!l->failed) {
        commit_load(l);
        return NULL;
    }
    roll_back_load(l);
    return describe_failed_versions(l);
}

struct status *repository_load_model(struct repository *repo, struct repo_model *rm,
                                     struct source *source, const char *config,
                                     enum load_reason reason)
{
    struct load l = {.repo = repo, .rm = rm, .source = source, .config = config, .reason = reason};
    struct scanned_model scanned = {0};
    struct status *st = NULL;
    /* A configuration of a request holds until the folder changes (reference/behaviours §13.6);
     * files of a request lie elsewhere. */
    if (!source->temporary_root && repo->options->control_mode != CONTROL_NONE)
        l.seen = fingerprint_take(source->storage, source->folder);
    if (!is_up_to_date(&l))
        st = scan_and_load(&l, &scanned);
    scanned_model_done(&scanned);
    fingerprint_done(&l.seen);
    for (size_t i = 0; i < l.n; i++)
        mem_free(l.wanted[i].failure);
    mem_free(l.wanted);
    return st;
}
