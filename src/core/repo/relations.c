/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from the name of a member to the ensembles that name it. Only ensembles cost something
 * here: a repository without any has an empty map.
 */
#include "core/repo/relations.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/ensemble.h"
#include "core/storage/source.h"

enum { MAX_JSON_BYTES = 1 << 30 }; /* of a text of CONFIG_MAX_BYTES */

struct dependents {
    char *name; /* the key */
    size_t n;
    struct repo_model **list;
};

/* ---- One ensemble ---------------------------------------------------------------------------- */

static void note_member(struct composition *c, const Inference__ModelEnsembling__Step *step)
{
    for (size_t i = 0; i < c->n_members; i++) {
        if (strcmp(c->members[i].name, step->model_name) == 0 &&
            strcmp(c->members[i].namespace, step->model_namespace) == 0)
            return;
    }
    c->members[c->n_members++] = (struct composition_member){
        .name = mem_strdup(step->model_name), .namespace = mem_strdup(step->model_namespace)};
}

struct composition *composition_new(const struct model_config *config, const int64_t *versions,
                                    size_t n_versions, struct source *source)
{
    AUTO(buf) json = BUF_INIT(MAX_JSON_BYTES);
    if (!model_config_is_ensemble(config))
        return NULL;
    model_config_print_json(config, &json);
    struct status *st = buf_status(&json);
    if (st) {
        status_free(st);
        return NULL;
    }
    const Inference__ModelEnsembling *e = config->pb->ensemble_scheduling;
    struct composition *c = mem_zalloc(sizeof(*c));
    c->config = mem_strdup(buf_text(&json));
    c->members = mem_zalloc((e->n_step + 1) * sizeof(*c->members));
    for (size_t i = 0; i < e->n_step; i++)
        note_member(c, e->step[i]);
    c->n_versions = n_versions;
    c->versions = mem_alloc((n_versions + 1) * sizeof(*c->versions));
    if (n_versions > 0)
        memcpy(c->versions, versions, n_versions * sizeof(*c->versions));
    source_ref(source);
    c->source = source;
    return c;
}

void composition_free(struct composition *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_members; i++) {
        mem_free(c->members[i].name);
        mem_free(c->members[i].namespace);
    }
    mem_free(c->members);
    mem_free(c->config);
    mem_free(c->versions);
    source_unref(c->source);
    mem_free(c);
}

/* ---- All of them ----------------------------------------------------------------------------- */

void relations_init(struct relations *r)
{
    map_init(&r->by_member);
}

static void dependents_free(struct dependents *d)
{
    mem_free(d->list);
    mem_free(d->name);
    mem_free(d);
}

void relations_done(struct relations *r)
{
    size_t pos = 0;
    struct map_entry *e;
    while ((e = map_next(&r->by_member, &pos)))
        dependents_free(e->value);
    map_done(&r->by_member);
}

static void add_dependent(struct relations *r, const char *member, struct repo_model *ensemble)
{
    struct dependents *d = map_gets(&r->by_member, member);
    if (!d) {
        d = mem_zalloc(sizeof(*d));
        d->name = mem_strdup(member);
        map_puts(&r->by_member, d->name, d);
    }
    if (d->n > 0 && d->list[d->n - 1] == ensemble)
        return; /* it names models of that name in several repositories */
    d->list = mem_realloc(d->list, (d->n + 1) * sizeof(struct repo_model *));
    d->list[d->n++] = ensemble;
}

/* Returns whether nobody names that member any more. */
static bool drop_dependent(struct dependents *d, const struct repo_model *ensemble)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->n; i++) {
        if (d->list[i] != ensemble)
            d->list[kept++] = d->list[i];
    }
    d->n = kept;
    return kept == 0;
}

static void drop_all(struct relations *r, const struct repo_model *ensemble,
                     const struct composition *before)
{
    for (size_t i = 0; i < before->n_members; i++) {
        struct dependents *d = map_gets(&r->by_member, before->members[i].name);
        if (d && drop_dependent(d, ensemble)) {
            map_remove(&r->by_member, d->name, strlen(d->name));
            dependents_free(d);
        }
    }
}

void relations_set(struct relations *r, struct repo_model *ensemble,
                   const struct composition *before, const struct composition *now)
{
    if (before)
        drop_all(r, ensemble, before);
    for (size_t i = 0; now && i < now->n_members; i++)
        add_dependent(r, now->members[i].name, ensemble);
}

struct repo_model *const *relations_dependents(const struct relations *r, const char *name,
                                               size_t *ret_n)
{
    const struct dependents *d = map_gets(&r->by_member, name);
    *ret_n = d ? d->n : 0;
    return d ? d->list : NULL;
}
