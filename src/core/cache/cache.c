/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading the library, and the calls of it.
 */
#include "core/cache/cache.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/dl.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mem_owner.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/str.h"
#include "core/cache/cache_key.h"
#include "core/cache/response_image.h"
#include "core/model/model.h"
#include "core/model/model_statistics.h"
#include "core/options/server_options.h"
#include "core/request/life.h"

enum { CACHE_LEVEL = 862 };

/* ---- Loading --------------------------------------------------------------------------------- */

NODISCARD static struct status *resolve_cache_functions(struct cache *c)
{
    const struct {
        const char *symbol;
        void **slot;
    } wanted[] = {
        {"TRITONCACHE_CacheInitialize", (void **)&c->fns.initialize},
        {"TRITONCACHE_CacheFinalize", (void **)&c->fns.finalize},
        {"TRITONCACHE_CacheLookup", (void **)&c->fns.look_up},
        {"TRITONCACHE_CacheInsert", (void **)&c->fns.insert},
    };
    struct status *st = NULL;
    for (size_t i = 0; !st && i < ARRAY_SIZE(wanted); i++)
        st = dl_symbol(c->library, wanted[i].symbol, wanted[i].slot);
    bool (*never_waits)(void) = NULL;
    *(void **)&never_waits = dl_optional_symbol(c->library, "conch_cache_never_waits");
    c->never_waits = !st && never_waits && never_waits();
    return st;
}

static bool is_library_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

NODISCARD static struct status *find_cache_library(const struct server_options *o, char **ret_path)
{
    const char *name = o->cache_configs[0].name;
    if (!*o->cache_directory)
        return status_new(STATUS_INVALID_ARG, "cache directory can not be empty");
    char *path = mem_printf("%s/%s/libtritoncache_%s.so", o->cache_directory, name, name);
    if (!strchr(name, '/') && !str_escapes_folder(name) && is_library_file(path)) {
        *ret_path = path;
        return NULL;
    }
    mem_free(path);
    return status_new(STATUS_INVALID_ARG,
                      "unable to find 'libtritoncache_%s.so' for cache. Searched: %s", name,
                      o->cache_directory);
}

NODISCARD static struct status *load_cache_library(struct cache *c)
{
    dl_offer_self(); /* caches that do not name the server's library then find its functions */
    struct status *st = dl_open(c->path, &c->library);
    if (!st)
        st = resolve_cache_functions(c);
    if (st)
        return st;
    /* Without the settings, which the reference prints, too: one may be a password. */
    log_info("Creating TritonCache with name: '%s', libpath: '%s'", c->name, c->path);
    st = c->fns.initialize(&c->of_library, c->config);
    if (!st && !c->of_library)
        st = status_new(STATUS_INTERNAL, "cache '%s' has initialised no cache", c->name);
    return st;
}

struct status *cache_open(const struct server_options *o, struct cache **ret_cache)
{
    char *path = NULL;
    *ret_cache = NULL;
    if (o->n_cache_configs == 0)
        return NULL;
    if (o->n_cache_configs > 1)
        return status_new(
            STATUS_INVALID_ARG,
            "found multiple cache configurations, but only a single cache is currently supported");
    struct status *st = find_cache_library(o, &path);
    if (st)
        return st;
    struct cache *c = mem_zalloc(sizeof(*c));
    c->name = mem_strdup(o->cache_configs[0].name);
    c->config = mem_strdup(o->cache_configs[0].json);
    c->path = path;
    helpers_init(&c->threads);
    mutex_init(&c->mu, CACHE_LEVEL, "cache.mu");
    st = load_cache_library(c);
    if (st)
        cache_close(c);
    else
        *ret_cache = c;
    return st;
}

void cache_close(struct cache *c)
{
    if (!c)
        return;
    helpers_done(&c->threads);
    if (c->of_library)
        log_status(LOG_ERROR, "failed to finalize cache", c->fns.finalize(c->of_library));
    /* Event loops and embedders' threads have run it, and may have its thread-local data. */
    if (c->library && c->of_library)
        dl_stay(c->library);
    else
        dl_close(c->library);
    mutex_done(&c->mu);
    mem_free(c->name);
    mem_free(c->path);
    mem_free(c->config);
    mem_free(c);
}

/* ---- Look-up --------------------------------------------------------------------------------- */

/* What the cache has not found is no failure of it. Takes the error. */
static void note_look_up_error(const struct cache *c, struct status *st)
{
    if (status_code(st) != STATUS_NOT_FOUND)
        log_error("failed to look up a response in cache '%s': %s", c->name, status_message(st));
    status_free(st);
}

/* Calls the library; its errors are logged. */
static struct response *ask_library(struct cache *c, struct cache_key key,
                                    struct cache_copier *copier)
{
    struct cache_entry entry;
    char text[CACHE_KEY_TEXT_BYTES];
    entry.n = 0;
    copier->entry = &entry;
    cache_key_print(key, text);
    mutex_assert_none_held();
    struct status *st = c->fns.look_up(c->of_library, text, &entry, copier);
    if (LIKELY(!st && copier->response))
        return copier->response;
    response_free(copier->response); /* the cache has failed after the copy */
    if (copier->claim && copier->claim->has_failed) {
        status_free(st);
        return NULL;
    }
    if (!st)
        st = status_new(STATUS_INTERNAL, "it has found the response, and not copied it");
    note_look_up_error(c, st);
    return NULL;
}

struct response *cache_look_up(struct request *r)
{
    struct cache_copier copier = {.request = r};
    return ask_library(r->model->cached->cache, r->cache.key, &copier);
}

struct response *cache_look_up_claiming(struct cache *c, struct cache_key key,
                                        struct cache_claim *claim)
{
    struct cache_copier copier = {.claim = claim};
    return ask_library(c, key, &copier);
}

/* ---- Insert ---------------------------------------------------------------------------------- */

/* Returns whether the response was not there before (reference/behaviours §16.4). */
static bool insert_image(struct cache *c, struct cache_key key, void *image, size_t n)
{
    struct cache_entry entry;
    struct cache_copier copier = {.entry = &entry, .image = image, .image_bytes = n};
    char text[CACHE_KEY_TEXT_BYTES];
    entry.n = 1;
    entry.buffers[0] = (struct cache_buffer){.base = image, .size_bytes = n, .type = MEMORY_CPU};
    cache_key_print(key, text);
    mutex_assert_none_held();
    struct status *st = c->fns.insert(c->of_library, text, &entry, &copier);
    bool is_new = !st || status_code(st) != STATUS_ALREADY_EXISTS;
    if (st && is_new)
        log_error("Failed to insert key [%s] into response cache: %s", text, status_message(st));
    status_free(st);
    return is_new;
}

/* Written by a thread of the cache. */
struct keeping {
    struct control_job job;
    struct cache *cache;
    struct cache_key key;
    size_t size_bytes;
    char image[];
};

static void run_keeping(struct control_job *job)
{
    struct keeping *k = CONTAINER_OF(job, struct keeping, job);
    struct cache *c = k->cache;
    insert_image(c, k->key, k->image, k->size_bytes);
    atomic_fetch_sub_explicit(&c->keeping_bytes, k->size_bytes, memory_order_relaxed);
    mem_free(k);
}

/* When there is no room for it, the response is not kept: NULL. */
static struct keeping *make_keeping(struct cache *c, struct cache_key key, size_t n)
{
    size_t before = atomic_fetch_add_explicit(&c->keeping_bytes, n, memory_order_relaxed);
    struct keeping *k =
        before + n <= CACHE_MAX_KEEPING_BYTES ? mem_try_alloc(sizeof(*k) + n) : NULL;
    if (!k) {
        atomic_fetch_sub_explicit(&c->keeping_bytes, n, memory_order_relaxed);
        log_verbose(1, "cache '%s' is slow: a response of %zu bytes is not kept", c->name, n);
        return NULL;
    }
    k->job = (struct control_job){.run = run_keeping};
    k->cache = c;
    k->key = key;
    k->size_bytes = n;
    return k;
}

static void post_keeping(struct cache *c, const struct response *resp, size_t n)
{
    struct keeping *k = make_keeping(c, resp->request->cache.key, n);
    if (!k)
        return;
    response_image_write(resp, k->image, n);
    helpers_post(&c->threads, &k->job);
}

/* Without memory for the image the response is not kept. */
static bool keep_here(struct cache *c, const struct response *resp, size_t n)
{
    enum { SMALL_BYTES = 1024 };
    const struct request *r = resp->request;
    _Alignas(64) char small[SMALL_BYTES];
    void *image = n <= sizeof(small) ? small : pool_alloc(r->pool, n, r->model->owner);
    if (!image)
        return true;
    response_image_write(resp, image, n);
    bool is_new = insert_image(c, r->cache.key, image, n);
    if (image != small)
        pool_release(image);
    return is_new;
}

void cache_keep(const struct response *resp)
{
    const struct request *r = resp->request;
    struct model *m = r->model;
    size_t n = response_image_bytes(resp);
    if (n == 0)
        return;
    if (!m->cached->cache->never_waits) {
        post_keeping(m->cached->cache, resp, n);
        model_count_cache_miss(m, r->cache.look_up_ns, 0);
        return;
    }
    uint64_t from_ns = clock_now_ns(m->clock);
    if (keep_here(m->cached->cache, resp, n))
        model_count_cache_miss(m, r->cache.look_up_ns, clock_now_ns(m->clock) - from_ns);
}

/* ---- Insert, when the final flag comes ------------------------------------------------------- */

/* A block of the request's pool. */
struct held_response {
    size_t size_bytes;
    _Alignas(64) char image[];
};

struct held_response *cache_hold(const struct response *resp)
{
    const struct request *r = resp->request;
    size_t n = response_image_bytes(resp);
    struct held_response *h = n > 0 ? pool_alloc(r->pool, sizeof(*h) + n, r->model->owner) : NULL;
    if (!h)
        return NULL;
    h->size_bytes = n;
    response_image_write(resp, h->image, n);
    return h;
}

void cache_keep_held(const struct request *r, struct held_response *h)
{
    struct model *m = r->model;
    struct cache *c = m->cached->cache;
    uint64_t from_ns = clock_now_ns(m->clock);
    bool is_new = true;
    if (c->never_waits) {
        is_new = insert_image(c, r->cache.key, h->image, h->size_bytes);
    } else {
        struct keeping *k = make_keeping(c, r->cache.key, h->size_bytes);
        if (k) {
            memcpy(k->image, h->image, h->size_bytes);
            helpers_post(&c->threads, &k->job);
        }
    }
    if (is_new)
        model_count_cache_miss(m, r->cache.look_up_ns, clock_now_ns(m->clock) - from_ns);
    pool_release(h);
}
