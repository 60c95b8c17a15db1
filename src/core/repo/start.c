/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading the models at the start. Several threads share the work: each takes the next model, and
 * owns it until it is settled. No other thread changes models meanwhile.
 *
 * An ensemble is parked until all its members have settled: no thread waits for another one. The
 * thread that settles the last of them brings the ensemble up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model_services.h"
#include "core/options/server_options.h"
#include "core/repo/group.h"
#include "core/repo/load_steps.h"
#include "core/repo/repository_priv.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"
#include "core/threads/changes.h"
#include "core/threads/load_slot.h"

enum { MAX_ERROR_BYTES = 1 << 20, MAX_REASONS = 50 };

struct loader {
    struct repository *repo;
    size_t n_models;
    struct repo_model **models;
};

/* ---- Which models ---------------------------------------------------------------------------- */

static bool is_loading_all_models(const struct server_options *o)
{
    return o->control_mode != CONTROL_EXPLICIT ||
           (o->n_startup_models == 1 && strcmp(o->startup_models[0], "*") == 0);
}

static struct repo_model *describe_listed(const struct repository *repo, struct listed_model *pm)
{
    struct repo_model *rm = repository_model_new(repo, pm->name, pm->storage);
    rm->wanted = true;
    rm->duplicate = pm->duplicate;
    rm->failure = TAKE(pm->failure);
    rm->stage = rm->failure ? REPO_SETTLED : REPO_WAITING;
    return rm;
}

static struct repo_model *describe_missing(struct repository *repo, const char *name)
{
    char *advice = listing_advise_name(repository_roots(repo), repo->options, name);
    repository_log_missing(name);
    struct repo_model *rm = repository_model_new(repo, name, NULL);
    rm->wanted = true;
    rm->missing = true;
    rm->stage = REPO_SETTLED;
    rm->failure = mem_printf("Not found: model not found in any model repository.%s%s",
                             advice ? " " : "", advice ? advice : "");
    mem_free(advice);
    return rm;
}

struct startup_list {
    size_t n;
    struct repo_model **models; /* as the catalog will have them */
};

static void add_listed(struct startup_list *list, const struct repository *repo,
                       struct listing *listing)
{
    list->models =
        mem_realloc(list->models, (list->n + listing->n_models + 1) * sizeof(*list->models));
    for (size_t i = 0; i < listing->n_models; i++)
        list->models[list->n++] = describe_listed(repo, &listing->models[i]);
    listing_done(listing);
}

static void add_named(struct startup_list *list, struct repository *repo, const char *name)
{
    struct listing listing = {0};
    struct status *st = repository_check_name(name);
    if (!st)
        listing_of_model(repository_roots(repo), repo->options, name, &listing);
    status_free(st);
    size_t n_before = list->n;
    add_listed(list, repo, &listing);
    if (list->n == n_before)
        list->models[list->n++] = describe_missing(repo, name);
}

/*
 * Fills the catalog with the models in the repositories, or with the named ones. Adds a line to
 * unlisted for each repository that could not be listed.
 */
static void list_startup_models(struct repository *repo, struct buf *unlisted)
{
    const struct server_options *o = repo->options;
    struct startup_list list = {0};
    struct listing listing = {0};
    if (is_loading_all_models(o))
        listing_of_roots(repository_roots(repo), o, false, &listing);
    if (listing.unlisted)
        buf_adds(unlisted, listing.unlisted);
    add_listed(&list, repo, &listing);
    for (size_t i = 0; i < o->n_startup_models && !is_loading_all_models(o);
         i++) /* sorted, as the catalog */
        add_named(&list, repo, o->startup_models[i]);

    mutex_lock(&repo->mu);
    for (size_t i = 0; i < list.n; i++)
        repository_count_locked(repo, list.models[i], !list.models[i]->failure);
    repo->models = list.models;
    repo->n_models = list.n;
    repo->listed = true;
    mutex_unlock(&repo->mu);
}

/* ---- All models ------------------------------------------------------------------------------ */

/* Publishes the result, and ends the load. */
static void end_load(struct repository *repo, struct load *load)
{
    mutex_lock(&repo->mu);
    load_settle_locked(load);
    mutex_unlock(&repo->mu);
    load_settled(load);
    status_free(load_end(load)); /* the log has it */
}

static void bring_up_parked(struct repository *repo, struct repo_model *rm, struct load *load)
{
    group_bring_up_alone(repo, rm, load);
    end_load(repo, load);
}

static bool is_awaited_locked(const struct repository *repo, const struct repo_model *ensemble,
                              const struct composition_member *m)
{
    const struct repo_model *rm = repository_member_locked(repo, ensemble, m->namespace, m->name);
    return rm && rm->stage != REPO_SETTLED;
}

/* Takes the load of an ensemble that waits for no member any more; NULL: it waits, or is taken. */
static struct load *take_parked_locked(const struct repository *repo, struct repo_model *rm)
{
    const struct composition *c = rm->composition;
    for (size_t i = 0; rm->parked && i < c->n_members; i++) {
        if (is_awaited_locked(repo, rm, &c->members[i]))
            return NULL;
    }
    return TAKE(rm->parked);
}

/* Takes one of the ensembles that have waited for the model, which has settled. */
static struct load *take_dependent(struct repository *repo, const struct repo_model *rm,
                                   struct repo_model **ret_ensemble)
{
    struct load *load = NULL;
    size_t n;
    mutex_lock(&repo->mu);
    struct repo_model *const *list = relations_dependents(&repo->relations, rm->name, &n);
    for (size_t i = 0; i < n && !load; i++) {
        load = take_parked_locked(repo, list[i]);
        *ret_ensemble = list[i];
    }
    mutex_unlock(&repo->mu);
    return load;
}

/* Brings up the ensembles of which the model was the last member, and those of which these were. */
static void bring_up_dependents(struct repository *repo, const struct repo_model *rm)
{
    struct repo_model *ensemble;
    struct load *load;
    while ((load = take_dependent(repo, rm, &ensemble))) {
        bring_up_parked(repo, ensemble, load);
        bring_up_dependents(repo, ensemble);
    }
}

static void load_model(struct repository *repo, struct repo_model *rm);

/* Adds the models of that name that the catalog lacks: --load-model names only the ensemble. NULL
 * ends the list. */
static struct repo_model **add_member_models(struct repository *repo, const char *name)
{
    struct listing listing = {0};
    struct status *st = repository_check_name(name);
    if (!st)
        listing_of_model(repository_roots(repo), repo->options, name, &listing);
    status_free(st);
    struct repo_model **added = mem_zalloc((listing.n_models + 1) * sizeof(struct repo_model *));
    size_t n_added = 0;
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < listing.n_models; i++) {
        const struct listed_model *pm = &listing.models[i];
        size_t n_before = repo->n_models;
        if (pm->failure)
            continue;
        struct repo_model *rm = repository_find_or_add_locked(repo, pm->name, pm->storage);
        if (repo->n_models == n_before) /* another thread has it */
            continue;
        rm->wanted = rm->is_for_others = true;
        rm->stage = REPO_WAITING;
        repository_count_locked(repo, rm, true);
        added[n_added++] = rm;
    }
    mutex_unlock(&repo->mu);
    listing_done(&listing);
    return added;
}

/* Loads the members that the options do not name. */
static void load_members(struct repository *repo, const struct repo_model *ensemble)
{
    const struct composition *c = ensemble->composition;
    for (size_t i = 0; i < c->n_members && !is_loading_all_models(repo->options); i++) {
        mutex_lock(&repo->mu);
        const struct composition_member *m = &c->members[i];
        bool known = repository_member_locked(repo, ensemble, m->namespace, m->name);
        mutex_unlock(&repo->mu);
        if (known)
            continue;
        struct repo_model **added = add_member_models(repo, m->name);
        for (size_t k = 0; added[k]; k++)
            load_model(repo, added[k]);
        mem_free(added);
    }
}

/* Lets the ensemble wait for its members; the thread that settles the last one brings it up. */
static void park(struct repository *repo, struct repo_model *rm, struct load *load)
{
    load_members(repo, rm);
    mutex_lock(&repo->mu);
    rm->parked = load;
    load = take_parked_locked(repo, rm);
    mutex_unlock(&repo->mu);
    if (!load)
        return;
    bring_up_parked(repo, rm, load);
    bring_up_dependents(repo, rm);
}

static void load_model(struct repository *repo, struct repo_model *rm)
{
    if (atomic_load_explicit(&repo->stopping, memory_order_relaxed))
        return;
    mutex_lock(&repo->mu);
    repository_begin_loading_locked(repo, rm);
    mutex_unlock(&repo->mu);
    struct source *source = source_of_folder(rm->storage, rm->name);
    struct load *load = load_new(repo, rm, source, NULL, LOAD_AT_START);
    bool is_due = load_look(load, false);
    if (is_due && load_ensemble(load)) {
        park(repo, rm, load);
    } else {
        if (is_due)
            load_bring_up(load);
        end_load(repo, load);
        bring_up_dependents(repo, rm);
    }
    source_unref(source); /* that of an ensemble has another reference in its composition */
}

static void load_one(void *arg, size_t i)
{
    const struct loader *l = arg;
    load_model(l->repo, l->models[i]);
}

/* Takes an ensemble that has waited in vain: one of a circle, as long as there is one. */
static struct load *take_left_over(struct repository *repo, struct repo_model **ret_ensemble)
{
    struct repo_model *found = NULL;
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < repo->n_models; i++) {
        struct repo_model *rm = repo->models[i];
        if (!rm->parked)
            continue;
        found = found ? found : rm;
        if (group_is_circular_locked(repo, rm)) {
            found = rm;
            break;
        }
    }
    struct load *load = found ? TAKE(found->parked) : NULL;
    mutex_unlock(&repo->mu);
    *ret_ensemble = found;
    return load;
}

/* Each of the ensembles that are left waits for itself, at some depth, or for one that does; or the
 * start has been ended. */
static void end_left_over(struct repository *repo)
{
    struct repo_model *rm;
    struct load *load;
    while ((load = take_left_over(repo, &rm))) {
        if (atomic_load(&repo->stopping)) {
            status_free(load_end(load));
            continue;
        }
        bring_up_parked(repo, rm, load);
        bring_up_dependents(repo, rm);
    }
}

/* Prepares the loads of models that can be tried; from now on requests to them get Retry-After. */
static struct loader make_loader(struct repository *repo)
{
    struct loader l = {.repo = repo};
    const char **names = mem_alloc((repo->n_models + 1) * sizeof(*names));
    struct table_entry **entries = mem_alloc((repo->n_models + 1) * sizeof(struct table_entry *));
    l.models = mem_alloc((repo->n_models + 1) * sizeof(struct repo_model *));
    for (size_t i = 0; i < repo->n_models; i++) {
        if (repo->models[i]->stage != REPO_WAITING)
            continue;
        names[l.n_models] = repo->models[i]->name;
        l.models[l.n_models++] = repo->models[i];
    }
    table_add(&repo->table, l.n_models, names, entries);
    changes_announce(repo->services->changes);
    for (size_t i = 0; i < l.n_models; i++)
        l.models[i]->entry = entries[i];
    mem_free(entries);
    mem_free(names);
    return l;
}

/* With named models each failure is reported, except models that were not even tried
 * (reference/behaviours §13.4). */
static void describe_failed_models(struct repository *repo, struct buf *out)
{
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = repo->models[i];
        bool logged = false;
        for (size_t j = 0; j < rm->n_versions; j++) {
            const struct repo_version *rv = &rm->versions[j];
            if (rv->state == VERSION_READY)
                continue;
            if (!logged)
                buf_addf(out, "load failed for model '%s': ", rm->name);
            logged = true;
            buf_addf(out, "version %lld is at %s state: %s;", (long long)rv->version,
                     version_state_name(rv->state), repo_version_reason(rv));
        }
        if (logged)
            buf_adds(out, "\n");
    }
}

/* Is every model as the options want it? That is more than readiness demands. */
static bool all_loaded(struct repository *repo)
{
    bool all = atomic_load(&repo->n_unserved) == 0;
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < repo->n_models; i++)
        all &= !repo->models[i]->failure;
    mutex_unlock(&repo->mu);
    return all;
}

/* Adds a line "  model: reason"; the lines of a reason are indented below it. */
static void add_reason(struct buf *out, const char *title, const char *version, const char *reason)
{
    buf_addf(out, "\n  %s%s%s: ", title, *version ? " version " : "", version);
    for (const char *p = reason; *p; p++) {
        if (*p == '\n' && !p[1])
            break;
        buf_addf(out, *p == '\n' ? "\n    " : "%c", *p);
    }
}

static void add_reasons_of(struct buf *out, const struct repo_model *rm)
{
    if (rm->failure)
        add_reason(out, rm->title, "", rm->failure);
    for (size_t j = 0; j < rm->n_versions; j++) {
        const struct repo_version *rv = &rm->versions[j];
        char version[32];
        snprintf(version, sizeof(version), "%lld", (long long)rv->version);
        if (rv->state != VERSION_READY)
            add_reason(out, rm->title, version, repo_version_reason(rv));
    }
}

static bool has_failed(const struct repo_model *rm)
{
    bool failed = rm->failure != NULL;
    for (size_t j = 0; j < rm->n_versions; j++)
        failed |= rm->versions[j].state != VERSION_READY;
    return failed;
}

/*
 * Why the start has failed, for a reader who sees nothing else. The first line is the reference's
 * when no model serves.
 */
static struct status *describe_start(struct repository *repo, const char *unlisted)
{
    AUTO(buf) text = BUF_INIT(MAX_ERROR_BYTES), reasons = BUF_INIT(MAX_ERROR_BYTES);
    size_t n_failed = 0;
    if (!is_loading_all_models(repo->options))
        describe_failed_models(repo, &text);
    bool has_named = text.size > 0;
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < repo->n_models; i++) {
        if (!has_failed(repo->models[i]))
            continue;
        if (n_failed++ < MAX_REASONS)
            add_reasons_of(&reasons, repo->models[i]);
    }
    size_t n_models = repo->n_models;
    mutex_unlock(&repo->mu);
    if (n_failed > MAX_REASONS)
        buf_addf(&reasons, "\n  … and %zu more models", n_failed - MAX_REASONS);
    if ((n_failed == n_models && !has_named) || (n_failed == 0 && !*unlisted))
        buf_adds(&text, "failed to load all models\n");
    if (*unlisted)
        buf_adds(&text, unlisted);
    if (n_failed)
        buf_addf(&text, "%zu of %zu models failed:%s\n", n_failed, n_models, buf_text(&reasons));
    if (n_failed && n_failed < n_models)
        buf_adds(&text, "With --exit-on-error=false the server starts without them.\n");
    return status_new(has_named ? STATUS_INVALID_ARG : STATUS_INTERNAL, "%.*s", (int)text.size - 1,
                      buf_text(&text));
}

struct status *repository_load_all(struct repository *repo)
{
    if (repo->options->control_mode == CONTROL_EXPLICIT) /* only there files come with requests */
        source_sweep();
    AUTO(buf) unlisted = BUF_INIT(MAX_ERROR_BYTES);
    list_startup_models(repo, &unlisted);
    struct loader l = make_loader(repo);
    load_in_parallel("model-load", repo->options->load_threads, l.n_models, load_one, &l);
    end_left_over(repo);
    mem_free(l.models);

    if (unlisted.size == 0 && all_loaded(repo))
        return NULL;
    return describe_start(repo, buf_text(&unlisted));
}
