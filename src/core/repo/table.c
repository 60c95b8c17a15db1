/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers first, then readers. Writers hold table.mu, except in table_set(), whose caller has
 * locked the entry's model. Readers enter by snapshot_enter(), take no lock, and may read heads,
 * directories, entries and views until snapshot_exit(), which must come soon: writers wait for it.
 *
 * Everything that readers can reach is constant, except an entry's view and its link to the next of
 * its name, which are replaced atomically. A replaced object is freed only after the head has been
 * replaced, too, and no reader of the old head is left.
 */
#include "core/repo/table.h"

#include <stdatomic.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/model/model.h"
#include "core/repo/model_version.h"

enum { TABLE_LEVEL = 150 };

struct table_entry {
    char *name;
    /* Replaced while readers are between snapshot_enter() and snapshot_exit(). */
    _Atomic(struct table_view *) view;
    _Atomic(struct table_entry *) next; /* another model of that name */
};

/* Constant once there are readers, except the contents of the entries. */
struct directory {
    struct map by_name; /* of struct table_entry: the first one of each name */
    size_t n_entries;
    struct table_entry *entries[]; /* by name */
};

struct head {
    struct directory *directory;
    uint64_t generation; /* no other head of any table has it */
};

/*
 * This thread's last look-ups: most threads ask for the same few names. An entry exists as long as
 * a reader has entered by the head of that generation, since the removal of a name makes another
 * head first.
 */
struct memo {
    uint64_t generation;
    const struct table_entry *entry;
    size_t name_length;
};
enum { N_MEMOS = 4 };
static THREAD_WORD struct memo memos[N_MEMOS];
static atomic_uint_least64_t n_generations;

void table_init(struct table *t)
{
    atomic_init(&t->head.current, NULL);
    mutex_init(&t->mu, TABLE_LEVEL, "table.mu");
}

void table_done(struct table *t)
{
    table_close(t);
    mutex_done(&t->mu);
}

/* ---- Writers --------------------------------------------------------------------------------- */

struct table_view *table_view_new(size_t n_versions)
{
    struct table_view *view = mem_zalloc(sizeof(*view) + n_versions * sizeof(view->versions[0]));
    view->n_versions = n_versions;
    return view;
}

static void view_free(struct table_view *view)
{
    for (size_t i = 0; i < view->n_versions; i++)
        model_unref(view->versions[i].model);
    mem_free(view);
}

/* Only this thread writes: returns what readers see now. */
static struct directory *get_directory_locked(struct table *t)
{
    mutex_assert_held(&t->mu);
    struct head *head = atomic_load(&t->head.current);
    return head ? head->directory : NULL;
}

/*
 * From now on readers enter by a new head, and see all earlier changes. Returns when no reader is
 * left that entered by the old head, or that could have seen the old state.
 */
static void replace_head_locked(struct table *t, struct directory *directory)
{
    mutex_assert_held(&t->mu);
    struct head *head = NULL;
    if (directory) {
        head = mem_alloc(sizeof(*head));
        head->directory = directory;
        head->generation = 1 + atomic_fetch_add(&n_generations, 1);
    }
    mem_free(snapshot_replace(&t->head, head));
}

static void directory_free(struct directory *d)
{
    if (!d)
        return;
    map_done(&d->by_name);
    mem_free(d);
}

/* Adds it behind the others of its name. */
static void add_name(struct directory *d, struct table_entry *e)
{
    struct table_entry *at = map_gets(&d->by_name, e->name);
    if (!at) {
        map_puts(&d->by_name, e->name, e);
        return;
    }
    for (struct table_entry *next; (next = atomic_load(&at->next));)
        at = next;
    atomic_store(&at->next, e);
}

static struct directory *copy_directory(const struct directory *old, size_t capacity)
{
    struct directory *d = mem_zalloc(sizeof(*d) + capacity * sizeof(struct table_entry *));
    if (old)
        map_copy(&d->by_name, &old->by_name);
    else
        map_init(&d->by_name);
    return d;
}

void table_add(struct table *t, size_t n, const char *const *names, struct table_entry **ret)
{
    mutex_lock(&t->mu);
    struct directory *old = get_directory_locked(t);
    size_t n_old = old ? old->n_entries : 0, i = 0, j = 0;
    struct directory *d = copy_directory(old, n_old + n);
    while (i < n_old || j < n) { /* both are sorted */
        if (j == n || (i < n_old && strcmp(old->entries[i]->name, names[j]) <= 0)) {
            d->entries[d->n_entries++] = old->entries[i++];
            continue;
        }
        struct table_entry *e = mem_zalloc(sizeof(*e));
        e->name = mem_strdup(names[j]);
        struct table_view *view = table_view_new(0);
        view->coming = true;
        atomic_init(&e->view, view);
        add_name(d, e);
        d->entries[d->n_entries++] = ret[j++] = e;
    }
    replace_head_locked(t, d);
    mutex_unlock(&t->mu);
    directory_free(old);
}

static void entry_free(struct table_entry *e)
{
    view_free(atomic_load(&e->view));
    mem_free(e->name);
    mem_free(e);
}

/* Removes it from the chain of its name; the keys of a map are parts of its values. */
static void remove_name(struct directory *d, struct table_entry *e)
{
    struct table_entry *at = map_gets(&d->by_name, e->name), *next = atomic_load(&e->next);
    if (at == e) {
        map_remove(&d->by_name, e->name, strlen(e->name));
        if (next)
            map_puts(&d->by_name, next->name, next);
        return;
    }
    while (atomic_load(&at->next) != e)
        at = atomic_load(&at->next);
    atomic_store(&at->next, next);
}

void table_remove(struct table *t, struct table_entry *e)
{
    mutex_lock(&t->mu);
    struct directory *old = get_directory_locked(t);
    struct directory *d = copy_directory(old, old->n_entries);
    remove_name(d, e);
    for (size_t i = 0; i < old->n_entries; i++) {
        if (old->entries[i] != e)
            d->entries[d->n_entries++] = old->entries[i];
    }
    replace_head_locked(t, d);
    mutex_unlock(&t->mu);
    directory_free(old);
    entry_free(e);
}

void table_close(struct table *t)
{
    mutex_lock(&t->mu);
    struct directory *old = get_directory_locked(t);
    replace_head_locked(t, NULL);
    mutex_unlock(&t->mu);
    for (size_t i = 0; old && i < old->n_entries; i++)
        entry_free(old->entries[i]);
    directory_free(old);
}

struct table_view *table_set(struct table_entry *e, struct table_view *view)
{
    return atomic_exchange(&e->view, view);
}

void table_view_end(struct table *t, struct table_view *view)
{
    if (!view)
        return;
    mutex_lock(&t->mu);
    /* A new head for the same directory: when no reader uses the old one, none has the view. */
    replace_head_locked(t, get_directory_locked(t));
    mutex_unlock(&t->mu);
    view_free(view);
}

/* ---- Looking models up ----------------------------------------------------------------------- */

#define UNKNOWN "Request for unknown model: "

/* Returns the first one of that name, or NULL. */
static const struct table_entry *first_named(const struct head *head, const char *name,
                                             size_t name_length)
{
    if (UNLIKELY(name_length == 0))
        return map_get(&head->directory->by_name, name, name_length);
    size_t which = name_length + (unsigned char)name[name_length - 1];
    struct memo *m = &memos[which % N_MEMOS];
    if (LIKELY(m->generation == head->generation && m->name_length == name_length &&
               memcmp(m->entry->name, name, name_length) == 0))
        return m->entry;
    const struct table_entry *e = map_get(&head->directory->by_name, name, name_length);
    if (e)
        *m = (struct memo){head->generation, e, name_length};
    return e;
}

/* Finds the only model of that name that is known or loading. */
static struct status *look_up(const struct head *head, const char *name, size_t name_length,
                              const struct table_entry **ret_entry,
                              const struct table_view **ret_view)
{
    if (!head)
        return status_new(STATUS_UNAVAILABLE, "Server not ready");
    size_t n_same = 0;
    const struct table_entry *e = first_named(head, name, name_length);
    for (; e; e = atomic_load_explicit(&e->next, memory_order_acquire)) {
        /* Acquire: pairs with the exchange in table_set(), before which the view was filled. */
        const struct table_view *view = atomic_load_explicit(&e->view, memory_order_acquire);
        if (!view->coming && !view->known)
            continue;
        *ret_entry = e;
        *ret_view = view;
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

/* Makes the error when no version is READY. */
static struct status *refuse_unready(const char *name, const struct table_view *v)
{
    if (!v->coming)
        return status_new(STATUS_NOT_FOUND, UNKNOWN "'%s' has no available versions", name);
    if (v->n_versions == 0)
        return status_new(STATUS_UNAVAILABLE, UNKNOWN "'%s' is not at ready state", name);
    return status_new(STATUS_UNAVAILABLE, UNKNOWN "'%s' version %lld is not at ready state", name,
                      (long long)v->versions[v->n_versions - 1].version);
}

static struct status *find_latest(const char *name, const struct table_view *v,
                                  struct model **ret_model)
{
    for (size_t j = v->n_versions; j-- > 0;) {
        if (v->versions[j].model) {
            *ret_model = v->versions[j].model;
            return NULL;
        }
    }
    return refuse_unready(name, v);
}

static struct status *find_version(const char *name, const struct table_view *v, int64_t version,
                                   struct model **ret_model)
{
    bool known = !v->known; /* such a version may still be found */
    for (size_t j = 0; j < v->n_versions; j++) {
        if (v->versions[j].version != version)
            continue;
        known = true;
        if (v->versions[j].model) {
            *ret_model = v->versions[j].model;
            return NULL;
        }
    }
    return known ? status_new(STATUS_UNAVAILABLE, UNKNOWN "'%s' version %lld is not at ready state",
                              name, (long long)version)
                 : status_new(STATUS_NOT_FOUND, UNKNOWN "'%s' version %lld is not found", name,
                              (long long)version);
}

struct status *table_find(struct table *t, const char *name, size_t name_length, int64_t version,
                          struct model **ret_model)
{
    const struct table_entry *e;
    const struct table_view *v;
    struct model *m = NULL;
    struct status *st = look_up(snapshot_enter(&t->head), name, name_length, &e, &v);
    if (!st)
        st = version == CONCH_VERSION_LATEST ? find_latest(e->name, v, &m)
                                             : find_version(e->name, v, version, &m);
    if (!st)
        model_ref(m);
    snapshot_exit();
    if (st)
        return st;
    *ret_model = m;
    return NULL;
}

static bool entry_serves(const struct table_entry *e)
{
    const struct table_view *v = atomic_load_explicit(&e->view, memory_order_acquire);
    for (size_t j = 0; v && j < v->n_versions; j++) {
        if (v->versions[j].model)
            return true;
    }
    return false;
}

char *table_nearest(struct table *t, const char *name, size_t name_length)
{
    enum { MOST_NAMES = 64 }; /* comparing takes about 1 µs each, on the thread of a loop */
    char *wanted = mem_strndup(name, name_length);
    const struct table_entry *nearest = NULL;
    const struct map_entry *next;
    const struct head *head = snapshot_enter(&t->head);
    size_t pos = 0, n = 0, least = SIZE_MAX;
    while (head && n < MOST_NAMES && (next = map_next(&head->directory->by_name, &pos))) {
        const struct table_entry *e = next->value;
        if (entry_serves(e) && str_nearer(wanted, e->name, &least))
            nearest = e;
        n++;
    }
    char *found = nearest ? mem_strdup(nearest->name) : NULL;
    snapshot_exit();
    mem_free(wanted);
    return found;
}

struct status *table_versions(struct table *t, const char *name, size_t name_length,
                              int64_t **ret_versions, size_t *ret_n)
{
    const struct table_entry *e;
    const struct table_view *v;
    int64_t *versions = NULL;
    size_t n = 0;
    struct status *st = look_up(snapshot_enter(&t->head), name, name_length, &e, &v);
    if (!st) {
        versions = mem_alloc((v->n_versions + 1) * sizeof(*versions));
        for (size_t j = 0; j < v->n_versions; j++) {
            if (v->versions[j].model)
                versions[n++] = v->versions[j].version;
        }
        if (n == 0)
            st = refuse_unready(e->name, v);
    }
    snapshot_exit();
    if (st) {
        mem_free(versions);
        return st;
    }
    *ret_versions = versions;
    *ret_n = n;
    return NULL;
}

/* ---- All serving models ---------------------------------------------------------------------- */

struct found {
    struct model **list; /* ended by NULL once there is one */
    size_t n, capacity;
};

/* Adds the fitting versions of a model, each with a reference. */
static void add_serving(struct found *f, const struct table_view *v, int64_t version)
{
    size_t count = v->n_versions;
    if (f->n + count >= f->capacity) {
        f->capacity = 2 * f->capacity + count + 1;
        f->list = mem_realloc(f->list, f->capacity * sizeof(*f->list));
    }
    for (size_t j = 0; j < count; j++) {
        struct model *m = v->versions[j].model;
        if (!m || (version != CONCH_VERSION_LATEST && m->version != version))
            continue;
        model_ref(m);
        f->list[f->n++] = m;
    }
    f->list[f->n] = NULL;
}

static struct status *find_serving(const struct head *head, const char *name, size_t name_length,
                                   int64_t version, struct found *f)
{
    if (head && name_length == 0) {
        const struct directory *d = head->directory;
        for (size_t i = 0; i < d->n_entries; i++)
            add_serving(f, atomic_load_explicit(&d->entries[i]->view, memory_order_acquire),
                        CONCH_VERSION_LATEST);
        return NULL;
    }
    const struct table_entry *e;
    const struct table_view *v;
    struct model *any;
    struct status *st = look_up(head, name, name_length, &e, &v);
    if (st && status_code(st) != STATUS_NOT_FOUND)
        return st;
    if (!st)
        st = find_latest(e->name, v, &any);
    if (st) {
        status_free(st);
        return status_new(STATUS_INVALID_ARG, "requested model '%.*s' is not available",
                          (int)name_length, name);
    }
    add_serving(f, v, version);
    return f->n ? NULL
                : status_new(STATUS_INVALID_ARG,
                             "requested model version is not available for model '%.*s'",
                             (int)name_length, name);
}

struct status *table_serving(struct table *t, const char *name, size_t name_length, int64_t version,
                             struct model ***ret_models)
{
    struct found f = {0};
    struct status *st = find_serving(snapshot_enter(&t->head), name, name_length, version, &f);
    snapshot_exit();
    if (st) {
        mem_free(f.list);
        return st;
    }
    *ret_models = f.list ? f.list : mem_zalloc(sizeof(*f.list));
    return NULL;
}
