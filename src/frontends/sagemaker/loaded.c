/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops look names up, control threads add and remove them. A request takes the lock once: a
 * multi-model endpoint has one client, the platform, and its requests are few beside those of
 * /invocations, which take none.
 */
#include "frontends/sagemaker/loaded.h"

#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"

enum { LOADED_LEVEL = 65 };

struct loaded_model {
    char *name, *target, *repository;
    bool is_loaded;
};

static void free_model(struct loaded_model *m)
{
    mem_free(m->name);
    mem_free(m->target);
    mem_free(m->repository);
    mem_free(m);
}

void loaded_init(struct loaded_models *l)
{
    mutex_init(&l->mu, LOADED_LEVEL, "loaded_models.mu");
    map_init(&l->by_name);
}

void loaded_done(struct loaded_models *l)
{
    struct map_entry *e;
    for (size_t pos = 0; (e = map_next(&l->by_name, &pos));)
        free_model(e->value);
    map_done(&l->by_name);
    mutex_done(&l->mu);
}

bool loaded_claim(struct loaded_models *l, const char *name, const char *target,
                  const char *repository)
{
    mutex_lock(&l->mu);
    bool is_free = !map_gets(&l->by_name, name);
    if (is_free) {
        struct loaded_model *m = mem_zalloc(sizeof(*m));
        m->name = mem_strdup(name);
        m->target = mem_strdup(target);
        m->repository = mem_strdup(repository);
        map_puts(&l->by_name, m->name, m);
    }
    mutex_unlock(&l->mu);
    return is_free;
}

void loaded_confirm(struct loaded_models *l, const char *name)
{
    mutex_lock(&l->mu);
    struct loaded_model *m = map_gets(&l->by_name, name);
    if (m)
        m->is_loaded = true;
    mutex_unlock(&l->mu);
}

void loaded_remove(struct loaded_models *l, const char *name)
{
    mutex_lock(&l->mu);
    struct loaded_model *m = map_remove(&l->by_name, name, strlen(name));
    mutex_unlock(&l->mu);
    if (m)
        free_model(m);
}

static const struct loaded_model *find_loaded_locked(const struct loaded_models *l,
                                                     const char *name, size_t length)
{
    mutex_assert_held(&l->mu);
    const struct loaded_model *m = map_get(&l->by_name, name, length);
    return m && m->is_loaded ? m : NULL;
}

bool loaded_find(struct loaded_models *l, const char *name, size_t length, struct arena *arena,
                 const char **ret_target, const char **ret_repository)
{
    mutex_lock(&l->mu);
    const struct loaded_model *m = find_loaded_locked(l, name, length);
    if (m && arena) {
        *ret_target = arena_strndup(arena, m->target, strlen(m->target));
        *ret_repository = arena_strndup(arena, m->repository, strlen(m->repository));
    }
    mutex_unlock(&l->mu);
    return m != NULL;
}

static void print_model(struct json_writer *w, const struct loaded_model *m)
{
    json_put_name(w, "modelName");
    json_put_text(w, m->name);
    json_put_name(w, "modelUrl");
    json_put_text(w, m->repository);
}

bool loaded_print_one(struct loaded_models *l, const char *name, size_t length, struct buf *out)
{
    struct json_writer w = {.out = out};
    mutex_lock(&l->mu);
    const struct loaded_model *m = find_loaded_locked(l, name, length);
    if (m) {
        json_put_open(&w, '{');
        print_model(&w, m);
        json_put_close(&w, '}');
    }
    mutex_unlock(&l->mu);
    return m != NULL;
}

static bool is_ready(struct server *server, const struct loaded_model *m)
{
    bool ready = false;
    status_free(
        server_model_is_ready(server, m->target, strlen(m->target), CONCH_VERSION_LATEST, &ready));
    return ready;
}

void loaded_print_all(struct loaded_models *l, struct server *server, struct buf *out)
{
    struct json_writer w = {.out = out};
    struct map_entry *e;
    json_put_open(&w, '{');
    json_put_name(&w, "models");
    json_put_open(&w, '[');
    mutex_lock(&l->mu);
    for (size_t pos = 0; (e = map_next(&l->by_name, &pos));) {
        const struct loaded_model *m = e->value;
        if (!m->is_loaded)
            continue;
        json_put_open(&w, '{');
        if (is_ready(server, m))
            print_model(&w, m);
        json_put_close(&w, '}');
    }
    mutex_unlock(&l->mu);
    json_put_close(&w, ']');
    json_put_close(&w, '}');
}
