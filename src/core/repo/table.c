/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/table.h"

#include <stdatomic.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model.h"
#include "core/server.h"

struct entry_version {
    int64_t version;
    /* A reference, or NULL unless READY. Released when set, so that who sees it sees all of it. */
    _Atomic(struct model *) model;
};

struct entry_versions {
    size_t count;
    struct entry_version list[];
};

struct entry {
    const char *name;
    struct entry *next; /* another model of that name */
    /* Released when set: the list is complete by then. NULL: nobody has looked, or nobody could. */
    _Atomic(struct entry_versions *) versions;
    /*
     * Released when cleared, after all that is set above. So a reader looks here first: who finds
     * that nothing is coming sees everything that came.
     */
    atomic_bool coming;
};

struct table {
    struct map by_name; /* of struct entry */
    size_t n_entries;
    struct entry entries[];
};

struct table *table_new(size_t n_models)
{
    struct table *t = mem_zalloc(sizeof(*t) + n_models * sizeof(t->entries[0]));
    map_init(&t->by_name);
    t->n_entries = n_models;
    return t;
}

void table_free(struct table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_entries; i++) {
        struct entry_versions *versions = atomic_load(&t->entries[i].versions);
        for (size_t j = 0; versions && j < versions->count; j++)
            model_unref(atomic_load(&versions->list[j].model));
        mem_free(versions);
    }
    map_done(&t->by_name);
    mem_free(t);
}

void table_set_name(struct table *t, size_t i, const char *name, bool coming)
{
    struct entry *e = &t->entries[i];
    struct entry *first = map_gets(&t->by_name, name);
    e->name = name;
    atomic_init(&e->coming, coming);
    if (first) {
        e->next = first->next;
        first->next = e;
    } else {
        map_puts(&t->by_name, name, e);
    }
}

void table_set_versions(struct table *t, size_t i, const int64_t *versions, size_t n_versions)
{
    struct entry_versions *list = mem_zalloc(sizeof(*list) + n_versions * sizeof(list->list[0]));
    list->count = n_versions;
    for (size_t j = 0; j < n_versions; j++)
        list->list[j].version = versions[j];
    atomic_store_explicit(&t->entries[i].versions, list, memory_order_release);
}

void table_set_ready(struct table *t, size_t i, size_t j, struct model *m)
{
    /* relaxed: this thread, or one that it has met since, has set them. */
    struct entry_versions *versions =
        atomic_load_explicit(&t->entries[i].versions, memory_order_relaxed);
    model_ref(m);
    atomic_store_explicit(&versions->list[j].model, m, memory_order_release);
}

void table_set_settled(struct table *t, size_t i)
{
    atomic_store_explicit(&t->entries[i].coming, false, memory_order_release);
}

/* ---- Looking up ----------------------------------------------------------------------------- */

#define UNKNOWN "Request for unknown model: "

/* What a look-up sees of a model: `coming` is as it was before the rest was read. */
struct view {
    const char *name;
    bool coming;
    struct entry_versions *versions; /* NULL: none yet, or none at all */
};

static struct status *look_up(const struct table *t, const char *name, size_t name_length,
                              struct view *ret)
{
    if (!t)
        return status_new(STATUS_UNAVAILABLE, "Server not ready");
    size_t n_same = 0;
    for (const struct entry *e = map_get(&t->by_name, name, name_length); e; e = e->next) {
        struct view v = {.name = e->name};
        v.coming = atomic_load_explicit(&e->coming, memory_order_acquire);
        v.versions = atomic_load_explicit(&e->versions, memory_order_acquire);
        if (!v.coming && !v.versions)
            continue;
        *ret = v;
        n_same++;
    }
    if (n_same == 1)
        return NULL;
    if (n_same > 1)
        return status_new(
            STATUS_INVALID_ARG,
            "There are %zu identifiers of model '%.*s' in global map, model namespace "
            "must be provided to resolve ambiguity.",
            n_same, (int)name_length, name);
    return status_new(STATUS_NOT_FOUND, UNKNOWN "'%.*s' is not found", (int)name_length, name);
}

static struct model *model_of(const struct entry_version *v)
{
    return atomic_load_explicit(&v->model, memory_order_acquire);
}

/* No version of it is READY. */
static struct status *none_ready(const struct view *v)
{
    if (!v->coming)
        return status_new(STATUS_NOT_FOUND, UNKNOWN "'%s' has no available versions", v->name);
    if (!v->versions || v->versions->count == 0)
        return status_new(STATUS_UNAVAILABLE, UNKNOWN "'%s' is not at ready state", v->name);
    return status_new(STATUS_UNAVAILABLE, UNKNOWN "'%s' version %lld is not at ready state",
                      v->name, (long long)v->versions->list[v->versions->count - 1].version);
}

static struct status *find_latest(const struct view *v, struct model **ret_model)
{
    for (size_t j = v->versions ? v->versions->count : 0; j-- > 0;) {
        struct model *m = model_of(&v->versions->list[j]);
        if (m) {
            *ret_model = m;
            return NULL;
        }
    }
    return none_ready(v);
}

static struct status *find_version(const struct view *v, int64_t version, struct model **ret_model)
{
    bool known = !v->versions; /* it may yet turn out that there is such a version */
    for (size_t j = 0; v->versions && j < v->versions->count; j++) {
        if (v->versions->list[j].version != version)
            continue;
        known = true;
        struct model *m = model_of(&v->versions->list[j]);
        if (m) {
            *ret_model = m;
            return NULL;
        }
    }
    return known ? status_new(STATUS_UNAVAILABLE, UNKNOWN "'%s' version %lld is not at ready state",
                              v->name, (long long)version)
                 : status_new(STATUS_NOT_FOUND, UNKNOWN "'%s' version %lld is not found", v->name,
                              (long long)version);
}

struct status *table_find(const struct table *t, const char *name, size_t name_length,
                          int64_t version, struct model **ret_model)
{
    struct view v;
    struct status *st = look_up(t, name, name_length, &v);
    if (st)
        return st;
    return version == CONCH_VERSION_LATEST ? find_latest(&v, ret_model)
                                           : find_version(&v, version, ret_model);
}

struct status *table_versions(const struct table *t, const char *name, size_t name_length,
                              int64_t **ret_versions, size_t *ret_n)
{
    struct view v;
    struct status *st = look_up(t, name, name_length, &v);
    if (st)
        return st;

    size_t count = v.versions ? v.versions->count : 0, n = 0;
    int64_t *versions = mem_alloc((count + 1) * sizeof(*versions));
    for (size_t j = 0; j < count; j++) {
        if (model_of(&v.versions->list[j]))
            versions[n++] = v.versions->list[j].version;
    }
    if (n == 0) {
        mem_free(versions);
        return none_ready(&v);
    }
    *ret_versions = versions;
    *ret_n = n;
    return NULL;
}

/* ---- All that serve ------------------------------------------------------------------------- */

struct found {
    struct model **list; /* ended by NULL once there is one */
    size_t n, capacity;
};

/* Those of a model that fit, each with a reference. */
static void add_serving(struct found *f, const struct entry_versions *versions, int64_t version)
{
    size_t count = versions ? versions->count : 0;
    if (f->n + count >= f->capacity) {
        f->capacity = 2 * f->capacity + count + 1;
        f->list = mem_realloc(f->list, f->capacity * sizeof(*f->list));
    }
    for (size_t j = 0; j < count; j++) {
        struct model *m = model_of(&versions->list[j]);
        if (!m || (version != CONCH_VERSION_LATEST && m->version != version))
            continue;
        model_ref(m);
        f->list[f->n++] = m;
    }
    f->list[f->n] = NULL;
}

struct status *table_serving(const struct table *t, const char *name, size_t name_length,
                             int64_t version, struct model ***ret_models)
{
    struct found f = {0};
    struct view v = {0};
    if (t && name_length == 0) {
        for (size_t i = 0; i < t->n_entries; i++)
            add_serving(&f, atomic_load(&t->entries[i].versions), CONCH_VERSION_LATEST);
        *ret_models = f.list ? f.list : mem_zalloc(sizeof(*f.list));
        return NULL;
    }
    struct status *st = look_up(t, name, name_length, &v);
    if (st && status_code(st) != STATUS_NOT_FOUND)
        return st;
    struct model *any;
    if (!st)
        st = find_latest(&v, &any);
    if (st) {
        status_free(st);
        return status_new(STATUS_INVALID_ARG, "requested model '%.*s' is not available",
                          (int)name_length, name);
    }
    add_serving(&f, v.versions, version);
    if (f.n == 0) {
        mem_free(f.list);
        return status_new(STATUS_INVALID_ARG,
                          "requested model version is not available for model '%.*s'",
                          (int)name_length, name);
    }
    *ret_models = f.list;
    return NULL;
}
