/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group becomes complete in rounds. Each round locks the models of the wishes, and the ensembles
 * that name one of them, and so on upwards. It then looks at the folders. When an ensemble is found
 * that names further models, these become wishes, and another round begins.
 *
 * The tickets of all locks are drawn in one hold of repository.mu, so of two groups with a common
 * model one comes first for all their common models: no circle of waiting threads can arise.
 *
 * The parts of a group are in the order in which they joined. A part is LOAD or UNLOAD as wished,
 * or FOLLOW: an ensemble that gets another model only if its members change.
 */
#include "core/repo/group.h"

#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/ensemble.h"
#include "core/model/model.h"
#include "core/repo/load_steps.h"
#include "core/repo/relations.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"
#include "core/threads/load_slot.h"

enum { MAX_WHY_BYTES = 1 << 16 };

struct wish {
    char *name;
    struct repo_model *rm; /* of group_unload_model(), else NULL */
    bool unloads;
    bool is_for_others;      /* a member, found in an ensemble's configuration */
    struct storage *storage; /* a reference, or NULL */
    struct source *source;   /* a reference */
    struct source *place;    /* where its agents have left the files: a reference, or NULL */
    const char *config;
    enum load_reason reason;
};

struct part {
    struct repo_model *rm; /* locked */
    enum { FOLLOW, LOAD, UNLOAD } kind;
    size_t wish;    /* of LOAD: its index */
    bool is_locked; /* by its ticket */
    uint64_t ticket;
    struct load *load; /* NULL: nothing has been looked at */
    bool is_visited;   /* by bring_up_in_order() */
    bool is_settled;
    struct table_view *before; /* of UNLOAD */
    struct list retiring;      /* likewise */
    struct composition *gone;  /* likewise: that of an ensemble */
};

struct group {
    struct repository *repo;
    size_t max_threads;
    bool unloads_members;
    size_t n_rounds;
    size_t n_wishes;
    struct wish *wishes;
    size_t n_parts;
    struct part **parts;
    struct map asked; /* names of members for which the repositories have been asked; owned keys */
    struct status *error;
};

/* ---- Wishes ---------------------------------------------------------------------------------- */

struct group *group_new(struct repository *repo, size_t max_threads)
{
    struct group *g = mem_zalloc(sizeof(*g));
    g->repo = repo;
    g->max_threads = max_threads;
    map_init(&g->asked);
    return g;
}

static struct wish *add_wish(struct group *g, const char *name)
{
    g->wishes = mem_realloc(g->wishes, (g->n_wishes + 1) * sizeof(*g->wishes));
    struct wish *w = &g->wishes[g->n_wishes++];
    *w = (struct wish){.name = mem_strdup(name)};
    return w;
}

void group_load(struct group *g, const char *name, struct storage *storage, struct source *source,
                const char *config, enum load_reason reason)
{
    struct wish *w = add_wish(g, name);
    w->storage = storage ? storage_ref(storage) : NULL;
    w->source = source;
    w->config = config;
    w->reason = reason;
}

void group_unload(struct group *g, const char *name)
{
    add_wish(g, name)->unloads = true;
}

void group_unload_model(struct group *g, struct repo_model *rm)
{
    struct wish *w = add_wish(g, rm->name);
    w->unloads = true;
    w->rm = rm;
}

void group_unload_members(struct group *g)
{
    g->unloads_members = true;
}

static void drop_wishes(struct group *g)
{
    for (size_t i = 0; i < g->n_wishes; i++) {
        struct wish *w = &g->wishes[i];
        if (w->rm) {
            mutex_lock(&g->repo->mu);
            repository_drop_user_and_unlock(g->repo, w->rm);
        }
        source_unref(w->place);
        source_unref(w->source);
        storage_unref(w->storage);
        mem_free(w->name);
    }
    mem_free(g->wishes);
}

/* ---- Parts and their locks ------------------------------------------------------------------- */

static struct part *find_part(const struct group *g, const struct repo_model *rm)
{
    for (size_t i = 0; i < g->n_parts; i++) {
        if (g->parts[i]->rm == rm)
            return g->parts[i];
    }
    return NULL;
}

/* Adds the model, unless it is a part already; its kind becomes at least that one. */
static struct part *join_locked(struct group *g, struct repo_model *rm, int kind)
{
    struct part *p = find_part(g, rm);
    mutex_assert_held(&g->repo->mu);
    if (!p) {
        p = mem_zalloc(sizeof(*p));
        p->rm = rm;
        list_init(&p->retiring);
        rm->n_users++;
        g->parts = mem_realloc(g->parts, (g->n_parts + 1) * sizeof(struct part *));
        g->parts[g->n_parts++] = p;
    }
    if (kind > (int)p->kind)
        p->kind = kind;
    return p;
}

static void join_wish_locked(struct group *g, size_t i)
{
    const struct wish *w = &g->wishes[i];
    size_t n = 0;
    struct repo_model **named = repository_named_locked(g->repo, w->name, &n);
    if (w->rm) {
        join_locked(g, w->rm, UNLOAD);
        return;
    }
    for (size_t k = 0; k < n && w->unloads; k++)
        join_locked(g, named[k], UNLOAD);
    if (w->unloads)
        return;
    struct repo_model *rm = repository_find_or_add_locked(g->repo, w->name, w->storage);
    join_locked(g, rm, LOAD)->wish = i;
}

/* Do all ensembles that name the model leave with this group? */
static bool is_left_alone_locked(const struct group *g, const struct repo_model *rm)
{
    size_t n;
    struct repo_model *const *users = relations_dependents(&g->repo->relations, rm->name, &n);
    for (size_t i = 0; i < n; i++) {
        const struct part *p = find_part(g, users[i]);
        if (!p || p->kind != UNLOAD)
            return false;
    }
    return true;
}

/* Adds the members of the part that were loaded only for ensembles that leave. Those of a later
 * part may free more of them. Returns whether there was one. */
static bool join_members_locked(struct group *g, const struct repo_model *ensemble)
{
    const struct composition *c = ensemble->composition;
    bool any = false;
    for (size_t i = 0; c && i < c->n_members; i++) {
        struct repo_model *rm = repository_member_locked(g->repo, ensemble, c->members[i].namespace,
                                                         c->members[i].name);
        if (!rm || !rm->is_for_others || !is_left_alone_locked(g, rm))
            continue;
        const struct part *p = find_part(g, rm);
        any |= !p || p->kind != UNLOAD;
        join_locked(g, rm, UNLOAD);
    }
    return any;
}

static void join_all_members_locked(struct group *g)
{
    for (bool any = true; any;) {
        any = false;
        for (size_t i = 0; i < g->n_parts; i++) {
            if (g->parts[i]->kind == UNLOAD)
                any |= join_members_locked(g, g->parts[i]->rm);
        }
    }
}

/* Makes the group complete as far as it is known now. Returns whether a part was added. */
static bool complete_locked(struct group *g)
{
    size_t n_before = g->n_parts;
    for (size_t i = 0; i < g->n_wishes; i++)
        join_wish_locked(g, i);
    if (g->unloads_members)
        join_all_members_locked(g);
    for (size_t i = 0; i < g->n_parts; i++) { /* grows meanwhile */
        size_t n;
        struct repo_model *const *users =
            relations_dependents(&g->repo->relations, g->parts[i]->rm->name, &n);
        for (size_t k = 0; k < n; k++)
            join_locked(g, users[k], FOLLOW);
    }
    return g->n_parts > n_before;
}

static void await_tickets_locked(struct group *g)
{
    for (size_t i = 0; i < g->n_parts; i++)
        g->parts[i]->ticket = g->parts[i]->rm->n_tickets++;
    for (size_t i = 0; i < g->n_parts; i++) {
        while (g->parts[i]->rm->ticket_served != g->parts[i]->ticket)
            cond_wait(&g->repo->changed, &g->repo->mu);
        g->parts[i]->is_locked = true;
    }
}

static void drop_model(struct repository *repo, const struct part *p)
{
    if (p->is_locked) {
        repository_unlock_model(repo, p->rm);
        return;
    }
    mutex_lock(&repo->mu);
    repository_drop_user_and_unlock(repo, p->rm);
}

/* Unlocks and forgets all parts, and what has been found out about them. */
static void drop_parts(struct group *g)
{
    for (size_t i = 0; i < g->n_parts; i++) {
        struct part *p = g->parts[i];
        struct status *st = p->load ? load_end(p->load) : NULL;
        if (p->kind == LOAD && !g->wishes[p->wish].is_for_others && !g->error)
            g->error = TAKE(st);
        status_free(st);
        drop_model(g->repo, p);
        mem_free(p);
    }
    mem_free(TAKE(g->parts));
    g->n_parts = 0;
}

static void drop_round(struct group *g)
{
    drop_parts(g);
    status_free(TAKE(g->error)); /* of a look that is repeated */
}

/* The relations may change while this thread waits for its tickets, so it looks again. */
static void lock_parts(struct group *g)
{
    for (;;) {
        mutex_lock(&g->repo->mu);
        complete_locked(g);
        await_tickets_locked(g);
        bool has_grown = complete_locked(g); /* by parts without a lock */
        mutex_unlock(&g->repo->mu);
        if (!has_grown)
            return;
        drop_round(g);
    }
}

/* ---- Looking --------------------------------------------------------------------------------- */

static void look_at_folder(struct group *g, struct part *p)
{
    struct wish *w = &g->wishes[p->wish];
    if (w->storage)
        repository_move(g->repo, p->rm, w->storage);
    mutex_lock(&g->repo->mu);
    p->rm->is_for_others = w->is_for_others && (p->rm->is_for_others || !p->rm->wanted);
    mutex_unlock(&g->repo->mu);
    p->load = load_new(g->repo, p->rm, w->source, w->config, w->reason);
    load_set_place(p->load, w->place);
    load_look(p->load, g->n_rounds > 0);
    if (!w->place) /* the next round does not have the agents act again */
        w->place = load_ref_place(p->load);
}

static bool has_wish(const struct group *g, const char *name)
{
    for (size_t i = 0; i < g->n_wishes; i++) {
        if (strcmp(g->wishes[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Makes wishes of the folders that the repositories have for a member. Returns whether there is
 * one. */
static bool wish_member(struct group *g, const char *name)
{
    struct listing listing;
    bool any = false;
    if (has_wish(g, name) || map_gets(&g->asked, name))
        return false;
    char *key = mem_strdup(name);
    map_puts(&g->asked, key, key);
    struct status *st = repository_check_name(name);
    if (st) { /* no model can have it */
        status_free(st);
        return false;
    }
    listing_of_model(repository_roots(g->repo), g->repo->options, name, &listing);
    for (size_t i = 0; i < listing.n_models; i++) {
        const struct listed_model *pm = &listing.models[i];
        if (pm->failure)
            continue;
        group_load(g, name, pm->storage, source_of_folder(pm->storage, pm->folder), NULL,
                   LOAD_ON_REQUEST);
        g->wishes[g->n_wishes - 1].is_for_others = true;
        any = true;
    }
    listing_done(&listing);
    return any;
}

/* Adds wishes for the members of the ensembles to be loaded. Returns whether there are new ones. */
static bool wish_members(struct group *g)
{
    bool any = false;
    for (size_t i = 0; i < g->n_parts; i++) {
        const struct part *p = g->parts[i];
        const struct composition *c = p->kind == LOAD ? p->rm->composition : NULL;
        if (!c || g->wishes[p->wish].reason != LOAD_ON_REQUEST)
            continue;
        for (size_t k = 0; k < c->n_members; k++)
            any |= wish_member(g, c->members[k].name);
    }
    return any;
}

static void work_look(void *arg, size_t i)
{
    struct group *g = arg;
    if (g->parts[i]->kind == LOAD)
        look_at_folder(g, g->parts[i]);
}

/* Does the work for each part, which must not depend on that of another one. */
static void for_each_part(struct group *g, void (*work)(void *arg, size_t i))
{
    if (g->max_threads > 0) {
        load_in_parallel("model-load", g->max_threads, g->n_parts, work, g);
        return;
    }
    for (size_t i = 0; i < g->n_parts; i++)
        work(g, i);
}

/* ---- The members of an ensemble ---------------------------------------------------------------
 */

/* What looks for the models of one ensemble's steps. */
struct finder {
    struct group *group;
    const struct repo_model *ensemble;
    const Inference__ModelEnsembling *steps;
    struct model **members; /* by step: references */
    char **whys;            /* by step: texts for the check */
};

/* The version that will serve when the change is published. */
static struct model *version_after_locked(const struct group *g, const struct repo_model *rm,
                                          int64_t version)
{
    const struct part *p = find_part(g, rm);
    struct model *found = NULL;
    if (p && p->kind == UNLOAD)
        return NULL;
    if (p && p->load && !p->is_settled)
        return load_version_after(p->load, version);
    for (size_t i = 0; i < rm->n_versions; i++) {
        if (rm->versions[i].model &&
            (version == CONCH_VERSION_LATEST || rm->versions[i].version == version))
            found = rm->versions[i].model;
    }
    return found;
}

static void add_failures_locked(const struct group *g, const struct repo_model *rm, struct buf *out)
{
    const struct part *p = find_part(g, rm);
    if (p && p->load && !p->is_settled)
        load_add_failures(p->load, out);
    for (size_t i = 0; i < rm->n_versions && out->size == 0; i++) {
        const struct repo_version *rv = &rm->versions[i];
        if (rv->state == VERSION_FAILED)
            buf_addf(out, "version %lld is at %s state: %s;", (long long)rv->version,
                     version_state_name(rv->state), rv->failure);
    }
}

/* Why has a member no version that could be used? */
static enum ensemble_answer explain_locked(const struct group *g, const struct repo_model *rm,
                                           char **ret_why)
{
    const struct part *p = rm ? find_part(g, rm) : NULL;
    bool is_gone = !rm || !rm->wanted || rm->duplicate || rm->missing || (p && p->kind == UNLOAD);
    if (is_gone || (rm->n_versions == 0 && !rm->empty))
        return ENSEMBLE_NO_MODEL;
    const char *unfit = p && p->load && !p->is_settled ? load_unfit(p->load) : rm->unfit;
    if (unfit) {
        *ret_why = mem_strdup(unfit);
        return ENSEMBLE_INVALID;
    }
    AUTO(buf) why = BUF_INIT(MAX_WHY_BYTES);
    add_failures_locked(g, rm, &why);
    if (why.size > 0)
        *ret_why = mem_strdup(buf_text(&why));
    return ENSEMBLE_NO_VERSION;
}

static enum ensemble_answer find_step_model(void *arg, const Inference__ModelEnsembling__Step *step,
                                            struct ensemble_member *ret_member)
{
    struct finder *f = arg;
    struct repository *repo = f->group->repo;
    enum ensemble_answer answer = ENSEMBLE_FOUND;
    size_t i = 0;
    while (f->steps->step[i] != step)
        i++;
    mutex_lock(&repo->mu);
    const struct repo_model *rm =
        repository_member_locked(repo, f->ensemble, step->model_namespace, step->model_name);
    struct model *m = rm ? version_after_locked(f->group, rm, step->model_version) : NULL;
    if (m)
        model_ref(m);
    else
        answer = explain_locked(f->group, rm, &f->whys[i]);
    mutex_unlock(&repo->mu);
    f->members[i] = m;
    *ret_member = (struct ensemble_member){
        .pb = m ? m->config->pb : NULL, .is_complete = true, .why = f->whys[i]};
    return answer;
}

/* Returns the ensemble that leads back to the first one, at any depth; NULL: there is no cycle. */
static const struct repo_model *find_way_back_locked(const struct repository *repo,
                                                     struct repo_model *first)
{
    struct map seen = MAP_INIT;
    size_t n = 1, capacity = 16;
    struct repo_model **open = mem_alloc(capacity * sizeof(struct repo_model *));
    const struct repo_model *back = NULL;
    open[0] = first;
    for (size_t at = 0; at < n && !back; at++) {
        const struct composition *c = open[at]->composition;
        for (size_t i = 0; c && i < c->n_members && !back; i++) {
            struct repo_model *rm = repository_member_locked(
                repo, open[at], c->members[i].namespace, c->members[i].name);
            back = rm == first ? open[at] : NULL;
            if (back || !rm || !rm->composition || map_gets(&seen, rm->title))
                continue;
            map_puts(&seen, rm->title, rm);
            if (n == capacity)
                open = mem_realloc(open, (capacity *= 2) * sizeof(struct repo_model *));
            open[n++] = rm;
        }
    }
    map_done(&seen);
    mem_free(open);
    return back;
}

bool group_is_circular_locked(const struct repository *repo, struct repo_model *ensemble)
{
    return find_way_back_locked(repo, ensemble) != NULL;
}

NODISCARD static struct status *check_cycle(struct repository *repo, struct repo_model *rm,
                                            const struct model_config *c)
{
    mutex_lock(&repo->mu);
    const struct repo_model *back = find_way_back_locked(repo, rm);
    char *through = back ? mem_strdup(back->name) : NULL;
    mutex_unlock(&repo->mu);
    struct status *st = through ? ensemble_fail_cycle(c, through, NULL) : NULL;
    mem_free(through);
    return st;
}

static void bring_up_with_members(struct group *g, struct repo_model *rm, struct load *l,
                                  bool keeps_old)
{
    const struct model_config *c = load_ensemble(l);
    struct finder f = {.group = g, .ensemble = rm, .steps = c->pb->ensemble_scheduling};
    size_t n = f.steps->n_step;
    f.members = mem_zalloc((n + 1) * sizeof(struct model *));
    f.whys = mem_zalloc((n + 1) * sizeof(char *));
    const struct ensemble_lookup lookup = {.find = find_step_model, .arg = &f};
    struct status *unfit = check_cycle(g->repo, rm, c);
    if (!unfit)
        unfit = ensemble_check(c, &lookup);
    load_bring_up_ensemble(l, f.members, unfit, keeps_old);
    for (size_t i = 0; i < n; i++) {
        model_unref(f.members[i]);
        mem_free(f.whys[i]);
    }
    mem_free(f.members);
    mem_free(f.whys);
}

void group_bring_up_alone(struct repository *repo, struct repo_model *rm, struct load *l)
{
    struct group none = {.repo = repo};
    bring_up_with_members(&none, rm, l, false);
}

/* ---- Bringing up ----------------------------------------------------------------------------- */

/* Will all models of that version's steps be the ones that it has? */
static bool keeps_members_locked(const struct group *g, const struct repo_model *rm,
                                 const struct model *m)
{
    const Inference__ModelEnsembling *e = m->config->pb->ensemble_scheduling;
    for (size_t i = 0; i < m->n_members; i++) {
        const struct repo_model *member = repository_member_locked(
            g->repo, rm, e->step[i]->model_namespace, e->step[i]->model_name);
        if (!member || version_after_locked(g, member, e->step[i]->model_version) != m->members[i])
            return false;
    }
    return true;
}

/* Does the ensemble serve, with members that stay? */
static bool can_stay(const struct group *g, const struct repo_model *rm)
{
    bool serves = false, keeps = true;
    mutex_lock(&g->repo->mu);
    for (size_t i = 0; i < rm->n_versions; i++) {
        const struct model *m = rm->versions[i].model;
        serves |= m != NULL;
        keeps &= !m || keeps_members_locked(g, rm, m);
    }
    mutex_unlock(&g->repo->mu);
    return serves && keeps;
}

static struct part *find_member_part(const struct group *g, const struct repo_model *ensemble,
                                     const struct composition_member *m)
{
    mutex_lock(&g->repo->mu);
    const struct repo_model *rm =
        repository_member_locked(g->repo, ensemble, m->namespace, m->name);
    mutex_unlock(&g->repo->mu);
    return rm ? find_part(g, rm) : NULL;
}

/* Is a member unloaded, or was something of it to be brought up? */
static bool does_a_member_change(const struct group *g, const struct repo_model *rm)
{
    const struct composition *c = rm->composition;
    for (size_t i = 0; c && i < c->n_members; i++) {
        const struct part *p = find_member_part(g, rm, &c->members[i]);
        if (p && (p->kind == UNLOAD || (p->load && load_is_due(p->load))))
            return true;
    }
    return false;
}

/* Brings the ensemble up, if it is to be loaded or its members change. */
static void bring_up_ensemble(struct group *g, struct part *p)
{
    bool stays = can_stay(g, p->rm);
    bool is_due = p->load && load_ensemble(p->load);
    if (!is_due && (stays || !does_a_member_change(g, p->rm)))
        return;
    if (!p->load)
        p->load = load_new(g->repo, p->rm, NULL, NULL, LOAD_FOR_MEMBER);
    if (is_due || load_follow(p->load))
        bring_up_with_members(g, p->rm, p->load, stays);
}

/* Members first. In a circle of ensembles the order does not matter: all of them fail. */
static void bring_up_in_order(struct group *g, struct part *p)
{
    const struct composition *c = p->rm->composition;
    if (p->is_visited || p->kind == UNLOAD)
        return;
    p->is_visited = true;
    for (size_t i = 0; c && i < c->n_members; i++) {
        struct part *member = find_member_part(g, p->rm, &c->members[i]);
        if (member)
            bring_up_in_order(g, member);
    }
    if (c || (p->load && load_ensemble(p->load)))
        bring_up_ensemble(g, p);
}

static void settle_locked(struct group *g, struct part *p)
{
    if (p->kind == UNLOAD)
        p->before = repository_unload_locked(g->repo, p->rm, &p->retiring, &p->gone);
    else if (p->load)
        load_settle_locked(p->load);
    p->is_settled = true;
}

static void after_settling(struct group *g, struct part *p)
{
    if (p->kind == UNLOAD) {
        table_view_end(&g->repo->table, p->before);
        retire_start(&p->retiring);
        composition_free(p->gone);
    } else if (p->load) {
        load_settled(p->load);
    }
}

/* A model that no ensemble names serves as soon as it is up, or ends at once. */
static void settle_if_alone(struct group *g, struct part *p)
{
    size_t n;
    mutex_lock(&g->repo->mu);
    relations_dependents(&g->repo->relations, p->rm->name, &n);
    if (n == 0)
        settle_locked(g, p);
    mutex_unlock(&g->repo->mu);
    if (n == 0)
        after_settling(g, p);
}

static void work_bring_up(void *arg, size_t i)
{
    struct group *g = arg;
    struct part *p = g->parts[i];
    bool is_due = p->kind == LOAD && load_is_due(p->load) && !load_ensemble(p->load);
    if (is_due)
        load_bring_up(p->load);
    if (is_due || p->kind == UNLOAD)
        settle_if_alone(g, p);
}

static void settle_rest(struct group *g)
{
    bool *mine = mem_zalloc((g->n_parts + 1) * sizeof(*mine));
    mutex_lock(&g->repo->mu);
    for (size_t i = 0; i < g->n_parts; i++) {
        mine[i] = !g->parts[i]->is_settled;
        if (mine[i])
            settle_locked(g, g->parts[i]);
    }
    mutex_unlock(&g->repo->mu);
    for (size_t i = 0; i < g->n_parts; i++) {
        if (mine[i])
            after_settling(g, g->parts[i]);
    }
    mem_free(mine);
}

void group_run(struct group *g)
{
    for (;; g->n_rounds++) {
        lock_parts(g);
        for_each_part(g, work_look);
        if (!wish_members(g))
            break;
        drop_round(g);
    }
    for_each_part(g, work_bring_up);
    for (size_t i = 0; i < g->n_parts; i++)
        bring_up_in_order(g, g->parts[i]);
    settle_rest(g);
    drop_parts(g);
}

struct status *group_end(struct group *g)
{
    struct status *st = g->error;
    size_t pos = 0;
    struct map_entry *e;
    drop_wishes(g);
    while ((e = map_next(&g->asked, &pos)))
        mem_free(e->value);
    map_done(&g->asked);
    mem_free(g);
    return st;
}
