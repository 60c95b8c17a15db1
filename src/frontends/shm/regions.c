/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table is a map behind a snapshot pointer: a change makes another map, publishes it, and frees
 * the old one when no thread reads it. mu lets one thread at a time make changes. A map has one
 * reference to each of its regions, which the next map takes over.
 */
#include "frontends/shm/regions.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "core/repo/snapshot.h"
#include "frontends/shm/cuda_memory.h"
#include "frontends/shm/region_limits.h"

enum { REGIONS_LEVEL = 160 /* in the table of core/README.md */, MAX_NAME_BYTES = 1024 };

struct regions {
    /* Constant. */
    bool allowed;
    struct region_limits *limits; /* a reference */

    struct snapshot names; /* struct map: from names to regions */
    struct mutex mu;
};

/* ---- The table ------------------------------------------------------------------------------- */

static struct map *make_map(const struct map *from)
{
    struct map *m = mem_zalloc(sizeof(*m));
    if (from)
        map_copy(m, from);
    else
        map_init(m);
    return m;
}

static void free_map(struct map *m)
{
    map_done(m);
    mem_free(m);
}

static struct map *get_map_locked(struct regions *t)
{
    mutex_assert_held(&t->mu);
    return atomic_load(&t->names.current);
}

static void publish_locked(struct regions *t, struct map *next)
{
    mutex_assert_held(&t->mu);
    free_map(snapshot_replace(&t->names, next));
}

struct regions *regions_new(const struct regions_options *options, struct server *server)
{
    struct regions *t = mem_zalloc(sizeof(*t));
    t->allowed = options->allowed;
    t->limits = region_limits_new(options->max_regions, options->max_bytes, server);
    atomic_init(&t->names.current, make_map(NULL));
    mutex_init(&t->mu, REGIONS_LEVEL, "regions.mu");
    return t;
}

/* Removes from `next` those of that kind, or the one of that name, and keeps them in the list. */
static size_t take_names(struct map *next, const char *name, enum region_kind kind,
                         struct region **list)
{
    size_t n = 0, pos = 0;
    struct map_entry *e;
    while ((e = map_next(next, &pos))) {
        struct region *r = e->value;
        if (r->kind == kind && (!name[0] || strcmp(r->name, name) == 0))
            list[n++] = r;
    }
    for (size_t i = 0; i < n; i++)
        map_remove(next, list[i]->name, strlen(list[i]->name));
    return n;
}

static void hide_names(struct regions *t, const char *name, enum region_kind kind)
{
    mutex_lock(&t->mu);
    struct map *next = make_map(get_map_locked(t));
    struct region **hidden = mem_alloc((next->count + 1) * sizeof(*hidden));
    size_t n = take_names(next, name, kind, hidden);
    if (n > 0)
        publish_locked(t, next);
    else
        free_map(next);
    mutex_unlock(&t->mu);
    for (size_t i = 0; i < n; i++)
        region_unref(hidden[i]);
    mem_free(hidden);
}

void regions_free(struct regions *t)
{
    if (!t)
        return;
    region_limits_close(t->limits);
    hide_names(t, "", REGION_SYSTEM);
    hide_names(t, "", REGION_CUDA);
    region_limits_unref(t->limits);
    free_map(atomic_load(&t->names.current));
    mutex_done(&t->mu);
    mem_free(t);
}

/* ---- Registering ----------------------------------------------------------------------------- */

bool regions_are_allowed(const struct regions *t)
{
    return t && t->allowed;
}

struct status *regions_allow(const struct regions *t)
{
    if (regions_are_allowed(t))
        return NULL;
    return status_new(STATUS_UNSUPPORTED, "Client shared memory is disabled. Start the server with "
                                          "'--allow-client-shm=true' to enable.");
}

static struct status *check_region_name(const char *name)
{
    if (strlen(name) <= MAX_NAME_BYTES)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "cannot register shared memory region '%.*s…': its name has more than %d "
                      "bytes",
                      32, name, MAX_NAME_BYTES);
}

/* The checks of the reference (reference/behaviours §9.2). shm_open() refuses a slash inside. */
static struct status *check_region_key(const char *name, const char *key)
{
    static const char reserved[] = "triton_python_backend_shm_region_";
    const char *bare = key + strspn(key, "/");
    if (!bare[0])
        return status_new(STATUS_INVALID_ARG,
                          "cannot register shared memory region '%s' - invalid shm key '%s'", name,
                          key);
    if (strncmp(bare, reserved, sizeof(reserved) - 1) == 0)
        return status_new(STATUS_INVALID_ARG,
                          "cannot register shared memory region '%s' with key '%s' as the key "
                          "contains the reserved prefix '%s'",
                          name, key, reserved);
    return NULL;
}

/* What a client registers: an object, or with a handle memory of a GPU. */
struct region_source {
    const char *key;
    uint64_t offset;
    const void *handle;
    int64_t device_id;
    uint64_t size_bytes;
};

static struct status *register_locked(struct regions *t, const char *name,
                                      const struct region_source *from)
{
    struct region *r;
    if (map_gets(get_map_locked(t), name))
        return status_new(STATUS_ALREADY_EXISTS, "shared memory region '%s' already in manager",
                          name);
    struct status *st =
        from->handle
            ? region_open_cuda(t->limits, name, from->handle, from->device_id, from->size_bytes, &r)
            : region_open(t->limits, name, from->key, from->offset, from->size_bytes, &r);
    if (st)
        return st;
    struct map *next = make_map(get_map_locked(t));
    map_puts(next, r->name, r);
    publish_locked(t, next);
    return NULL;
}

static struct status *register_source(struct regions *t, const char *name,
                                      const struct region_source *from)
{
    mutex_lock(&t->mu);
    struct status *st = register_locked(t, name, from);
    mutex_unlock(&t->mu);
    return st;
}

struct status *regions_register(struct regions *t, const char *name, const char *key,
                                uint64_t offset, uint64_t size_bytes)
{
    struct status *st = regions_allow(t);
    if (!st)
        st = check_region_name(name);
    if (!st)
        st = check_region_key(name, key);
    if (st)
        return st;
    return register_source(
        t, name, &(struct region_source){.key = key, .offset = offset, .size_bytes = size_bytes});
}

struct status *regions_allow_cuda(const struct regions *t, const char *name)
{
    struct status *st = regions_allow(t);
    if (st || cuda_is_there())
        return st;
    return status_new(STATUS_INVALID_ARG,
                      "failed to register CUDA shared memory region: '%s', GPUs not supported",
                      name);
}

struct status *regions_register_cuda(struct regions *t, const char *name, const void *handle,
                                     size_t handle_bytes, int64_t device_id, uint64_t size_bytes)
{
    struct status *st = regions_allow_cuda(t, name);
    if (!st)
        st = check_region_name(name);
    if (!st && handle_bytes != CUDA_HANDLE_BYTES)
        st = status_new(STATUS_INVALID_ARG,
                        "failed to register CUDA shared memory region '%s': its handle has %zu "
                        "bytes instead of %d",
                        name, handle_bytes, CUDA_HANDLE_BYTES);
    if (st)
        return st;
    return register_source(t, name,
                           &(struct region_source){
                               .handle = handle, .device_id = device_id, .size_bytes = size_bytes});
}

struct status *regions_unregister(struct regions *t, const char *name, enum region_kind kind)
{
    struct status *st = regions_allow(t);
    if (!st)
        hide_names(t, name, kind);
    return st;
}

struct region_total regions_count(const struct regions *t, enum region_kind kind)
{
    return region_limits_count(t->limits, kind);
}

/* ---- Looking up ------------------------------------------------------------------------------ */

static struct region *find_region(struct regions *t, const char *name, size_t length)
{
    if (!t)
        return NULL;
    const struct map *names = snapshot_enter(&t->names);
    struct region *r = map_get(names, name, length);
    if (r)
        region_ref(r);
    snapshot_exit();
    return r;
}

struct status *regions_use(struct regions *t, const char *name, size_t name_length, uint64_t offset,
                           uint64_t size_bytes, struct region **ret_region, char **ret_base)
{
    struct region *r = find_region(t, name, name_length);
    if (!r)
        return status_new(STATUS_NOT_FOUND, "Unable to find shared memory region: '%.*s'",
                          (int)MIN(name_length, (size_t)1024), name);
    struct status *st = region_view(r, offset, size_bytes, ret_base);
    if (st)
        region_unref(r);
    else
        *ret_region = r;
    return st;
}

static const char *region_kind_title(enum region_kind kind)
{
    return kind == REGION_CUDA ? "CUDA" : "system";
}

static struct status *check_found(const struct region *r, const char *name, enum region_kind kind)
{
    if (!r)
        return status_new(STATUS_NOT_FOUND, "Unable to find %s shared memory region: '%s'",
                          kind == REGION_CUDA ? "cuda" : "system", name);
    if (r->kind == kind)
        return NULL;
    return status_new(STATUS_NOT_FOUND,
                      "The region named '%s' is registered as %s shared memory, not %s shared "
                      "memory",
                      name, region_kind_title(r->kind), region_kind_title(kind));
}

static int compare_names(const void *a, const void *b)
{
    const struct region *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

/* Under mu, and not in a snapshot, since a list needs memory. */
static struct region **list_all(struct regions *t, enum region_kind kind, size_t *ret_n)
{
    size_t n = 0, pos = 0;
    struct map_entry *e;
    mutex_lock(&t->mu);
    const struct map *names = get_map_locked(t);
    struct region **list = mem_alloc((names->count + 1) * sizeof(*list));
    while ((e = map_next(names, &pos))) {
        struct region *r = e->value;
        if (r->kind != kind)
            continue;
        region_ref(r);
        list[n++] = r;
    }
    mutex_unlock(&t->mu);
    qsort(list, n, sizeof(*list), compare_names);
    *ret_n = n;
    return list;
}

struct status *regions_list(struct regions *t, const char *name, enum region_kind kind,
                            struct region ***ret_list, size_t *ret_n)
{
    if (!t && !name[0]) {
        *ret_list = NULL;
        *ret_n = 0;
        return NULL;
    }
    if (!name[0]) {
        *ret_list = list_all(t, kind, ret_n);
        return NULL;
    }
    struct region *r = find_region(t, name, strlen(name));
    struct status *st = check_found(r, name, kind);
    if (st) {
        region_unref(r);
        return st;
    }
    *ret_list = mem_alloc(sizeof(**ret_list));
    (*ret_list)[0] = r;
    *ret_n = 1;
    return NULL;
}

void regions_list_free(struct region **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        region_unref(list[i]);
    mem_free(list);
}
