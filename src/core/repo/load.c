/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading one model: its folder is read, then its versions are loaded one after the other.
 *
 *     look      determines the wanted versions, and which of them serve with unchanged files
 *     bring up  loads the others, each beside the version that serves; one of which only the
 *               instances differ changes in place (core/load/model_change.c)
 *     settle    if all were loaded, the new versions replace the old ones at once, and the old
 *               ones are retired; if one has failed, the new ones are dropped, and the old ones
 *               serve on
 *
 * At the start of a server there is nothing to be kept, and a version that fails does not affect
 * others: each serves as soon as it is READY (LOAD_AT_START).
 *
 * An ensemble's model has the models of its steps. So an ensemble is brought up anew when one of
 * these changes, and its old versions can serve on only with the members that they have: if a
 * member is about to change and the ensemble does not fit the new one, its versions retire in the
 * hold of the lock in which the member is replaced.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/agents/agent_chain.h"
#include "core/backend/backend.h"
#include "core/backend/readiness.h"
#include "core/load/model_load.h"
#include "core/model/model_priv.h"
#include "core/options/server_options.h"
#include "core/repo/load_steps.h"
#include "core/repo/relations.h"
#include "core/repo/scan.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"

enum { MAX_ERROR_BYTES = 1 << 20 };

/* One version that the model is to have. */
struct wanted_version {
    int64_t version;
    bool stays;                  /* it serves with unchanged files */
    bool may_change;             /* … but for a configuration with other instances */
    struct model *fresh;         /* loaded, and not in the catalog yet */
    struct model_change *change; /* in place of that: of the model that serves */
    char *failure;
};

struct load {
    struct repository *repo;
    struct repo_model *rm;
    struct source *source;
    struct source *place; /* a reference: where repository agents have left the files; or NULL */
    const char *config;
    enum load_reason reason;

    struct fingerprint seen;
    struct scanned_model scanned;
    size_t n;
    struct wanted_version *wanted; /* ascending */
    bool is_due;                   /* there are versions to be brought up */
    bool follows;                  /* with the configuration that the ensemble has already */
    bool failed;                   /* one of the loads has failed */
    bool serves;                   /* a version that was brought up is in the catalog */
    bool keeps_old;                /* … then the versions that serve now may go on */
    char *unfit;                   /* why the ensemble does not fit its members, or NULL */
    struct model *const *members;  /* by step, of an ensemble that fits; borrowed */
    struct status *error;          /* for the client */

    struct list retiring;      /* from load_settle_locked() to load_settled() */
    struct table_view *before; /* likewise: the view that was replaced */
};

static bool is_stopping(const struct repository *repo)
{
    return atomic_load_explicit(&repo->stopping, memory_order_relaxed);
}

/* Reads the configuration that an ensemble has already. */
static struct status *scan_composition(const struct load *l, struct scanned_model *ret_scanned)
{
    const struct composition *c = l->rm->composition;
    struct scanned_model sm = {0};
    struct status *st = model_config_parse_json(c->config, strlen(c->config), &sm.config);
    struct config_facts facts = scan_facts(l->rm->name, &sm, l->repo->options);
    if (!st)
        st = model_config_prepare(sm.config, &facts);
    if (st) {
        scanned_model_done(&sm);
        return st;
    }
    sm.n_versions = c->n_versions;
    sm.versions = mem_alloc((c->n_versions + 1) * sizeof(*sm.versions));
    memcpy(sm.versions, c->versions, c->n_versions * sizeof(*sm.versions));
    *ret_scanned = sm;
    return NULL;
}

/* Where the files are that are loaded. */
static struct source *place_of_files(const struct load *l)
{
    return l->place ? l->place : l->source;
}

/* Where the agents have left the files, which may be where they were. Takes the agents. */
static struct status *find_place(const struct load *l, struct agent_chain *agents,
                                 struct source **ret_place)
{
    const char *location = NULL;
    struct status *st = agent_chain_location(agents, &location);
    if (!st)
        st = agent_chain_blame(
            agents,
            source_of_agents(l->source, location, l->repo->options->follow_symlinks, ret_place));
    if (st)
        agent_chain_free(agents);
    else
        source_keep_agents(*ret_place, agents, agent_chain_free);
    return st;
}

/* Lets the agents of the configuration act, once for a load. */
static struct status *let_agents_act(struct load *l, const struct model_config *config)
{
    struct agent_chain *agents = NULL;
    if (l->place || !agent_chain_is_wanted(config))
        return NULL;
    struct status *st = source_fetch(l->source);
    if (!st)
        st = agent_chain_load(l->repo->agents, config, l->rm->name, l->source->directory, &agents);
    return st ? st : find_place(l, agents, &l->place);
}

static struct status *scan_source(struct load *l, bool quiet, struct scanned_model *ret_scanned)
{
    if (l->follows)
        return scan_composition(l, ret_scanned);
    struct model_config *config = NULL;
    struct status *st =
        scan_config(l->source->storage, l->source->folder, l->config, l->repo->options, &config);
    if (!st)
        st = let_agents_act(l, config);
    if (st) {
        model_config_free(config);
        return st;
    }
    const struct source *at = place_of_files(l);
    const struct scan_place place = {.storage = at->storage,
                                     .folder = at->folder,
                                     .is_renamed = strcmp(l->rm->name, l->source->folder) != 0};
    return scan_model(l->rm->name, &place, config, l->repo->options, quiet, ret_scanned);
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

/* Does it serve with the files that there are, and with a configuration that differs in instance
 * groups and version policy alone? */
static bool may_change(const struct load *l, const struct repo_version *rv,
                       const struct config_core *core)
{
    return core && is_served_from_source(l, rv) &&
           fingerprint_same_files(&l->rm->seen, &l->seen, rv->version) &&
           (config_core_same(*core, rv->model->prepared_core) ||
            config_core_same(*core, rv->model->finished_core));
}

static void note_wanted(struct load *l)
{
    const struct scanned_model *scanned = &l->scanned;
    struct config_core core;
    /* An agent may change the files of any version. */
    bool in_place = !l->follows && !l->place && !model_config_is_ensemble(scanned->config);
    struct status *st = in_place ? model_config_core(scanned->config, &core) : NULL;
    in_place &= !st;
    status_free(st); /* the models are loaded anew */
    l->n = scanned->n_versions;
    l->wanted = mem_zalloc((l->n + 1) * sizeof(*l->wanted));
    for (size_t i = 0; i < l->n; i++) {
        int64_t version = scanned->versions[i];
        const struct repo_version *rv = find_version_row(l->rm, version);
        l->wanted[i].version = version;
        l->wanted[i].stays = !l->follows && !l->place && is_served_from_source(l, rv) &&
                             !l->config && !l->rm->overridden &&
                             fingerprint_same_version(&l->rm->seen, &l->seen, version);
        l->wanted[i].may_change = in_place && may_change(l, rv, &core);
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
static struct status *try_to_load(struct load *l, int64_t version, struct model **ret_model)
{
    struct repository *repo = l->repo;
    struct scanned_model *scanned = &l->scanned;
    for (unsigned int retries_left = repo->options->load_retries;; retries_left--) {
        struct config_facts facts = scan_facts(l->rm->name, scanned, repo->options);
        struct status *st =
            model_load(repo->services, repo->backends, l->rm->name, version, place_of_files(l),
                       TAKE(scanned->config), &facts, l->members, ret_model);
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
    rv->source = place_of_files(l);
    source_ref(rv->source);
    l->serves = true;
    repository_set_state_locked(l->repo, rv, VERSION_READY);
}

/* Each version completes a configuration of its own. */
static struct status *scan_again(struct load *l)
{
    return l->scanned.config ? NULL : scan_source(l, true, &l->scanned);
}

/* Prepares the model that serves for the configuration. If it has to be loaded anew, w->change
 * stays NULL. */
static struct status *try_to_change(struct load *l, struct wanted_version *w)
{
    struct config_facts facts = scan_facts(l->rm->name, &l->scanned, l->repo->options);
    struct model *m = find_version_row(l->rm, w->version)->model;
    struct status *st =
        model_change_begin(m, l->repo->backends, TAKE(l->scanned.config), &facts, &w->change);
    scanned_model_done(&l->scanned);
    w->may_change = st || w->change;
    return !st && !w->change ? scan_again(l) : st;
}

static struct status *fetch_and_load(struct load *l, struct wanted_version *w)
{
    struct status *st = source_fetch(place_of_files(l)); /* an unchanged model is not fetched */
    return st ? st : try_to_load(l, w->version, &w->fresh);
}

static void load_version(struct load *l, struct wanted_version *w)
{
    struct repository *repo = l->repo;
    struct status *st =
        is_stopping(repo) ? status_new(STATUS_UNAVAILABLE, "Server exiting") : scan_again(l);
    if (!st)
        log_info("loading: %s:%lld", l->rm->title, (long long)w->version);
    if (!st && w->may_change)
        st = try_to_change(l, w);
    if (!st && !w->change)
        st = fetch_and_load(l, w);
    if (st) {
        w->failure = status_reason(st);
        l->failed = true;
        log_error("failed to load '%s' version %lld: %s", l->rm->title, (long long)w->version,
                  w->failure);
        status_free(st);
        return;
    }
    if (w->fresh && readiness_is_asked(w->fresh))
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

/* All versions are up: those that serve change before the others are published. */
static void commit_changes(struct load *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->wanted[i].change)
            model_change_commit(TAKE(l->wanted[i].change));
    }
}

/* Ends models that never served, and instances of those that serve. */
static void drop_fresh(struct load *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct wanted_version *w = &l->wanted[i];
        if (w->change)
            model_change_undo(TAKE(w->change));
        if (!w->fresh)
            continue;
        model_stop(w->fresh);
        model_unload(w->fresh, l->repo->backends);
        model_unref(TAKE(w->fresh));
        repository_log_unloaded(l->rm, w->version);
    }
}

static void load_versions(struct load *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct wanted_version *w = &l->wanted[i];
        if (w->stays)
            continue;
        load_version(l, w);
        if (l->reason == LOAD_AT_START)
            publish_one(l, w);
    }
    if (l->failed)
        drop_fresh(l);
    else
        commit_changes(l);
}

/* The versions cannot be brought up with the members that there are. */
static void note_misfit(struct load *l, struct status *unfit)
{
    l->failed = true;
    l->unfit = mem_strdup(status_message(unfit));
    for (size_t i = 0; i < l->n; i++)
        l->wanted[i].failure = status_reason(unfit);
    log_error("failed to load '%s': %s", l->rm->title, l->unfit);
    status_free(unfit);
}

void load_bring_up(struct load *l)
{
    l->keeps_old = true;
    note_loading(l);
    load_versions(l);
}

void load_bring_up_ensemble(struct load *l, struct model *const *members, struct status *unfit,
                            bool keeps_old)
{
    l->keeps_old = keeps_old;
    for (size_t i = 0; i < l->n && !keeps_old; i++)
        l->wanted[i].stays = false;
    note_loading(l);
    if (unfit) {
        note_misfit(l, unfit);
        return;
    }
    l->members = members;
    load_versions(l);
    l->members = NULL;
}

/* The version that serves now, or the highest one. */
static struct model *version_now(const struct repo_model *rm, int64_t version)
{
    struct model *found = NULL;
    for (size_t i = 0; i < rm->n_versions; i++) {
        const struct repo_version *rv = &rm->versions[i];
        if (rv->model && (version == CONCH_VERSION_LATEST || rv->version == version))
            found = rv->model;
    }
    return found;
}

struct model *load_version_after(const struct load *l, int64_t version)
{
    struct model *found = NULL;
    if (!l->is_due || (l->failed && l->keeps_old))
        return version_now(l->rm, version);
    for (size_t i = 0; i < l->n && !l->failed; i++) {
        const struct wanted_version *w = &l->wanted[i];
        if (version == CONCH_VERSION_LATEST || w->version == version)
            found = w->fresh ? w->fresh : version_now(l->rm, w->version);
    }
    return found;
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

static void commit_locked(struct load *l)
{
    struct repo_model *rm = l->rm;
    for (size_t i = 0; i < l->n; i++) {
        if (l->wanted[i].fresh)
            replace_locked(l, &l->wanted[i], &l->retiring);
    }
    drop_others_locked(l, &l->retiring);
    for (size_t i = 0; i < rm->n_versions; i++)
        repo_version_keep_serving(&rm->versions[i], NULL);
    rm->stage = REPO_SETTLED;
    mem_free(TAKE(rm->failure));
    mem_free(TAKE(rm->unfit));
    l->before = repository_publish_locked(l->repo, rm); /* the swap … */
    repository_count_locked(l->repo, rm, false);        /* … else the server is not ready */
}

/* The old version does not fit its members either, as they will be from now on. */
static void retire_unfit_locked(struct load *l, struct repo_version *rv, const char *failure)
{
    retire_take_locked(l->repo, l->rm, rv, &l->retiring);
    repository_set_failed_locked(l->repo, rv, failure);
}

/* Returns why the version does not follow its members. */
static const char *find_failure(const struct load *l, int64_t version)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->wanted[i].failure && l->wanted[i].version == version)
            return l->wanted[i].failure;
    }
    return l->unfit ? l->unfit : "another version of the model could not be loaded";
}

static void roll_back_locked(struct load *l)
{
    struct repo_model *rm = l->rm;
    bool keeps_from_ready = false;
    for (size_t i = 0; i < rm->n_versions && !l->keeps_old; i++) {
        if (rm->versions[i].model)
            retire_unfit_locked(l, &rm->versions[i], find_failure(l, rm->versions[i].version));
    }
    for (size_t i = 0; i < l->n; i++) {
        struct repo_version *rv = find_version_row(rm, l->wanted[i].version);
        if (l->wanted[i].failure)
            note_failure_locked(l, &l->wanted[i]);
        else if (!rv->model && rv->state != VERSION_FAILED)
            repository_set_state_locked(l->repo, rv, VERSION_UNLOADED);
        keeps_from_ready |= !rv->model;
    }
    for (size_t i = 0; i < rm->n_versions && l->reason != LOAD_AT_START; i++)
        repo_version_keep_serving(&rm->versions[i], find_failure(l, rm->versions[i].version));
    rm->stage = REPO_SETTLED;
    mem_free(rm->unfit);
    rm->unfit = l->unfit ? mem_strdup(l->unfit) : NULL;
    l->before = repository_publish_locked(l->repo, rm);
    /* An ensemble that a change of a member has ended is as one that was unloaded, in that. */
    repository_count_locked(l->repo, rm, keeps_from_ready && l->reason != LOAD_FOR_MEMBER);
}

void load_settle_locked(struct load *l)
{
    mutex_assert_held(&l->repo->mu);
    if (!l->is_due)
        return;
    if (l->failed)
        roll_back_locked(l);
    else
        commit_locked(l);
}

/* What a later load, or round of mode poll, need not do again. */
static void note_settled(struct load *l)
{
    struct repo_model *rm = l->rm;
    if (l->follows)
        return;
    rm->lacks_versions = l->failed && !l->unfit;
    if (!l->failed)
        rm->overridden = l->config != NULL;
    /* At the start the versions that could be loaded serve; what does not fit its members is tried
     * again when these change. */
    if (!l->failed || l->unfit || l->reason == LOAD_AT_START)
        keep_fingerprint(l);
}

void load_settled(struct load *l)
{
    if (!l->is_due)
        return;
    table_view_end(&l->repo->table, TAKE(l->before));
    note_settled(l);
    if (!l->failed)
        log_info("successfully loaded '%s'", l->rm->title);
    if (l->serves)
        agent_chain_loaded(source_agents(place_of_files(l)));
    retire_start(&l->retiring);
}

void load_add_failures(const struct load *l, struct buf *out)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct wanted_version *w = &l->wanted[i];
        if (w->failure)
            buf_addf(out, "version %lld is at %s state: %s;", (long long)w->version,
                     version_state_name(w->may_change ? VERSION_READY : VERSION_FAILED),
                     w->failure);
    }
}

/* reference/behaviours §13.4, §27.2 */
static struct status *describe_failure(const struct load *l)
{
    AUTO(buf) text = BUF_INIT(MAX_ERROR_BYTES);
    if (l->unfit)
        buf_adds(&text, l->unfit);
    else
        load_add_failures(l, &text);
    return status_new(STATUS_INVALID_ARG, "load failed for model '%s': %s\n", l->rm->name,
                      buf_text(&text));
}

/* ---- All steps ------------------------------------------------------------------------------- */

struct status *repository_poll_failure(const char *name, const char *why)
{
    return status_new(STATUS_INTERNAL,
                      "failed to load '%s', failed to poll from model repository: %s", name, why);
}

/* Notes the failure of a load with each version that serves on. Returns whether one does. */
static bool keep_serving_locked(struct repository *repo, struct repo_model *rm, const char *failure)
{
    bool serves = false;
    mutex_assert_held(&repo->mu);
    for (size_t i = 0; i < rm->n_versions; i++)
        serves |= repo_version_keep_serving(&rm->versions[i], failure);
    return serves;
}

void repository_is_unfit_locked(struct repository *repo, struct repo_model *rm, const char *failure)
{
    bool serves = keep_serving_locked(repo, rm, failure);
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
    else
        keep_serving_locked(l->repo, rm, failure);
    struct table_view *before = repository_publish_locked(l->repo, rm);
    mutex_unlock(&l->repo->mu);
    table_view_end(&l->repo->table, before);
    mem_free(failure);
    status_free(st);
}

/* Notes what the books have of an ensemble; for other models they have nothing. */
static void note_composition(struct load *l)
{
    struct repo_model *rm = l->rm;
    struct composition *before = rm->composition;
    struct composition *now = composition_new(l->scanned.config, l->scanned.versions,
                                              l->scanned.n_versions, place_of_files(l));
    mutex_lock(&l->repo->mu);
    rm->composition = now;
    relations_set(&l->repo->relations, rm, before, now);
    mutex_unlock(&l->repo->mu);
    composition_free(before);
}

static struct status *refuse_unreadable(struct load *l, struct status *st)
{
    struct status *refused = repository_poll_failure(l->rm->name, status_message(st));
    listing_log_failure(l->rm->title, st);
    note_unreadable(l, st, false);
    return refused;
}

static struct status *refuse_empty(struct load *l)
{
    const char *name = l->rm->name;
    struct config_facts facts = scan_facts(name, &l->scanned, l->repo->options);
    char *advice = model_config_advise_files(&facts, false);
    struct status *st = status_new(STATUS_INVALID_ARG,
                                   "at least one version must be available under the version "
                                   "policy of model '%s'%s%s",
                                   name, advice ? ": " : "", advice ? advice : "");
    mem_free(advice);
    log_error("failed to load model '%s': %s", l->rm->title, status_message(st));
    struct status *named = status_new(STATUS_INVALID_ARG, "load failed for model '%s': %s\n", name,
                                      status_message(st));
    note_unreadable(l, st, true);
    return named;
}

/* Forgets what an earlier look has found. */
static void reset_look(struct load *l)
{
    scanned_model_done(&l->scanned);
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->wanted[i].failure);
    mem_free(TAKE(l->wanted));
    l->n = 0;
    status_free(TAKE(l->error));
}

static bool look(struct load *l, bool quiet)
{
    struct repo_model *rm = l->rm;
    struct status *st = scan_source(l, quiet, &l->scanned);
    if (st)
        l->error = refuse_unreadable(l, st);
    else if (l->scanned.n_versions == 0)
        l->error = refuse_empty(l);
    if (l->error)
        return false;
    mutex_lock(&l->repo->mu);
    repository_begin_loading_locked(l->repo, rm);
    rm->wanted = true;
    rm->empty = rm->duplicate = rm->missing = false;
    mutex_unlock(&l->repo->mu);
    if (!l->follows && (rm->composition || model_config_is_ensemble(l->scanned.config)))
        note_composition(l);
    note_wanted(l);
    l->is_due = true;
    return true;
}

struct load *load_new(struct repository *repo, struct repo_model *rm, struct source *source,
                      const char *config, enum load_reason reason)
{
    struct load *l = mem_zalloc(sizeof(*l));
    l->repo = repo;
    l->rm = rm;
    l->source = source;
    l->config = config;
    l->reason = reason;
    list_init(&l->retiring);
    return l;
}

void load_set_place(struct load *l, struct source *place)
{
    if (place)
        source_ref(place);
    l->place = place;
}

struct source *load_ref_place(const struct load *l)
{
    if (l->place)
        source_ref(l->place);
    return l->place;
}

bool load_look(struct load *l, bool quiet)
{
    reset_look(l);
    fingerprint_done(&l->seen);
    /* A configuration of a request holds until the folder changes (reference/behaviours §13.6);
     * files of a request lie elsewhere. */
    if (!l->source->temporary_root && l->repo->options->control_mode != CONTROL_NONE)
        l->seen = fingerprint_take(l->source->storage, l->source->folder);
    return !is_up_to_date(l) && look(l, quiet);
}

bool load_follow(struct load *l)
{
    struct status *before = TAKE(l->error);
    l->follows = true;
    source_unref(TAKE(l->place)); /* of the folder that could not be loaded */
    l->source = l->rm->composition->source;
    reset_look(l);
    bool is_due = look(l, true);
    if (before) { /* the client asked for a load of the folder */
        status_free(l->error);
        l->error = before;
    }
    return is_due;
}

bool load_is_due(const struct load *l)
{
    return l->is_due;
}

const char *load_unfit(const struct load *l)
{
    return l->unfit;
}

const struct model_config *load_ensemble(const struct load *l)
{
    bool is_one = l->is_due && l->scanned.config && model_config_is_ensemble(l->scanned.config);
    return is_one ? l->scanned.config : NULL;
}

struct status *load_end(struct load *l)
{
    struct status *st = TAKE(l->error);
    if (!st && l->failed)
        st = describe_failure(l);
    reset_look(l);
    fingerprint_done(&l->seen);
    source_unref(l->place); /* agents of a load that has failed hear of that now */
    mem_free(l->unfit);
    mem_free(l);
    return st;
}
