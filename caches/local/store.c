/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each shard has a hash table with chains, and a list of its entries by their last use. The limit
 * is one for all shards: `used_bytes` is atomic. To make room, the shard whose oldest entry was
 * used before those of the others drops it; each shard shows that time in `oldest_ns`, so the
 * others need not be locked. A thread that makes room reserves its bytes first, so all together
 * never exceed the limit.
 */
#include "local/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "triton/core/tritonserver.h"

enum { FIRST_BUCKETS = 64, BUFFER_ALIGNMENT = 64 };

struct shard {
    _Alignas(64) pthread_mutex_t mu;
    /* Under mu. */
    size_t n_entries, n_buckets;
    struct store_entry **buckets; /* a power of 2 of them */
    struct store_entry *newest, *oldest;
    uint64_t n_look_ups, n_hits, n_evictions;
    /* Any thread; oldest_ns is written under mu. UINT64_MAX: it has no entry. */
    atomic_uint_least64_t oldest_ns, look_up_ns, insert_ns;
};

struct store {
    size_t limit_bytes; /* constant */
    atomic_size_t used_bytes;
    struct shard shards[STORE_SHARDS];
};

uint64_t store_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Keys are hashes already, as text: eight characters at a time are mixed. */
struct store_key store_key_of(const char *text)
{
    uint64_t h = 0x9e3779b97f4a7c15ULL;
    size_t length = strlen(text), left = length;
    const char *key = text;
    while (left > 0) {
        uint64_t word = 0;
        size_t n = left < sizeof(word) ? left : sizeof(word);
        memcpy(&word, key, n);
        h = (h ^ word) * 0xff51afd7ed558ccdULL;
        h ^= h >> 32;
        key += n;
        left -= n;
    }
    return (struct store_key){.text = text, .length = length, .hash = h};
}

static struct shard *shard_of(struct store *s, uint64_t hash)
{
    return &s->shards[hash % STORE_SHARDS];
}

static struct store_entry **store_bucket_of(struct shard *sh, uint64_t hash)
{
    return &sh->buckets[hash / STORE_SHARDS & (sh->n_buckets - 1)];
}

/* ---- A shard, under its lock ------------------------------------------------------------------
 */

static struct store_entry **find_link_locked(struct shard *sh, uint64_t hash, const char *key)
{
    struct store_entry **link = store_bucket_of(sh, hash);
    while (*link && ((*link)->hash != hash || strcmp((*link)->key, key) != 0))
        link = &(*link)->next_in_bucket;
    return link;
}

static void show_oldest_locked(struct shard *sh)
{
    atomic_store_explicit(&sh->oldest_ns, sh->oldest ? sh->oldest->used_ns : UINT64_MAX,
                          memory_order_relaxed);
}

static void unlink_use_locked(struct shard *sh, struct store_entry *e)
{
    *(e->newer ? &e->newer->older : &sh->newest) = e->older;
    *(e->older ? &e->older->newer : &sh->oldest) = e->newer;
}

static void link_as_newest_locked(struct shard *sh, struct store_entry *e, uint64_t now_ns)
{
    e->used_ns = now_ns;
    e->newer = NULL;
    e->older = sh->newest;
    *(sh->newest ? &sh->newest->newer : &sh->oldest) = e;
    sh->newest = e;
}

/* Without memory the chains become longer. */
static void grow_buckets_locked(struct shard *sh)
{
    size_t n = 2 * sh->n_buckets;
    struct store_entry **grown = calloc(n, sizeof(*grown));
    if (!grown)
        return;
    for (size_t i = 0; i < sh->n_buckets; i++) {
        struct store_entry *next;
        for (struct store_entry *e = sh->buckets[i]; e; e = next) {
            struct store_entry **to = &grown[e->hash / STORE_SHARDS & (n - 1)];
            next = e->next_in_bucket;
            e->next_in_bucket = *to;
            *to = e;
        }
    }
    free(sh->buckets);
    sh->buckets = grown;
    sh->n_buckets = n;
}

/* Takes the shard's oldest entry out; NULL: it has none. */
static struct store_entry *take_oldest_locked(struct shard *sh)
{
    struct store_entry *e = sh->oldest;
    if (!e)
        return NULL;
    *find_link_locked(sh, e->hash, e->key) = e->next_in_bucket;
    unlink_use_locked(sh, e);
    sh->n_entries--;
    show_oldest_locked(sh);
    return e;
}

/* ---- Entries ----------------------------------------------------------------------------------
 */

static size_t align_buffer(size_t n)
{
    return (n + BUFFER_ALIGNMENT - 1) & ~(size_t)(BUFFER_ALIGNMENT - 1);
}

struct store_entry *store_entry_new(const struct store_key *key, const struct store_buffer *buffers,
                                    size_t n)
{
    size_t key_bytes = key->length + 1;
    size_t at = align_buffer(sizeof(struct store_entry) + n * sizeof(*buffers) + key_bytes);
    size_t bytes = at;
    for (size_t i = 0; i < n; i++) {
        if (buffers[i].size_bytes > SIZE_MAX / 2 - bytes)
            return NULL;
        bytes += align_buffer(buffers[i].size_bytes);
    }
    char *block = aligned_alloc(BUFFER_ALIGNMENT, bytes);
    if (!block)
        return NULL;
    struct store_entry *e = (struct store_entry *)block;
    *e = (struct store_entry){.hash = key->hash, .charged_bytes = bytes, .n_buffers = n};
    atomic_init(&e->refs, 1);
    e->buffers = (struct store_buffer *)(e + 1);
    e->key = memcpy(e->buffers + n, key->text, key_bytes);
    for (size_t i = 0; i < n; i++) {
        e->buffers[i] = buffers[i];
        e->buffers[i].base = block + at;
        at += align_buffer(buffers[i].size_bytes);
    }
    return e;
}

void store_put(struct store_entry *e)
{
    /* acq_rel: the thread that frees it sees that the others have read it. */
    if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < e->n_buffers; i++)
        TRITONSERVER_BufferAttributesDelete(e->buffers[i].attributes);
    free(e);
}

/* ---- The store --------------------------------------------------------------------------------
 */

struct store *store_new(size_t limit_bytes)
{
    struct store *s = aligned_alloc(_Alignof(struct store), sizeof(*s));
    if (!s)
        return NULL;
    memset(s, 0, sizeof(*s));
    s->limit_bytes = limit_bytes;
    for (size_t i = 0; i < STORE_SHARDS; i++) {
        struct shard *sh = &s->shards[i];
        pthread_mutex_init(&sh->mu, NULL);
        sh->n_buckets = FIRST_BUCKETS;
        sh->buckets = calloc(sh->n_buckets, sizeof(struct store_entry *));
        atomic_init(&sh->oldest_ns, UINT64_MAX);
        if (!sh->buckets) {
            store_free(s);
            return NULL;
        }
    }
    return s;
}

void store_free(struct store *s)
{
    for (size_t i = 0; s && i < STORE_SHARDS; i++) {
        struct shard *sh = &s->shards[i];
        struct store_entry *e;
        while (sh->buckets && (e = take_oldest_locked(sh)))
            store_put(e);
        if (sh->n_buckets > 0)
            pthread_mutex_destroy(&sh->mu);
        free(sh->buckets);
    }
    free(s);
}

struct store_entry *store_find(struct store *s, const struct store_key *key, uint64_t now_ns)
{
    struct shard *sh = shard_of(s, key->hash);
    pthread_mutex_lock(&sh->mu);
    struct store_entry *e = *find_link_locked(sh, key->hash, key->text);
    sh->n_look_ups++;
    if (e) {
        sh->n_hits++;
        if (sh->newest != e) {
            unlink_use_locked(sh, e);
            link_as_newest_locked(sh, e, now_ns);
        }
        e->used_ns = now_ns;
        show_oldest_locked(sh);
        atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&sh->mu);
    return e;
}

bool store_has(struct store *s, const struct store_key *key)
{
    struct shard *sh = shard_of(s, key->hash);
    pthread_mutex_lock(&sh->mu);
    bool has = *find_link_locked(sh, key->hash, key->text);
    pthread_mutex_unlock(&sh->mu);
    return has;
}

/* Returns whether there was an entry to drop. */
static bool drop_oldest(struct store *s)
{
    struct shard *from = NULL;
    uint64_t oldest_ns = UINT64_MAX;
    for (size_t i = 0; i < STORE_SHARDS; i++) {
        uint64_t ns = atomic_load_explicit(&s->shards[i].oldest_ns, memory_order_relaxed);
        if (ns < oldest_ns) {
            oldest_ns = ns;
            from = &s->shards[i];
        }
    }
    if (!from)
        return false;
    pthread_mutex_lock(&from->mu);
    struct store_entry *e = take_oldest_locked(from);
    from->n_evictions += e != NULL;
    pthread_mutex_unlock(&from->mu);
    if (e) {
        atomic_fetch_sub(&s->used_bytes, e->charged_bytes);
        store_put(e);
    }
    return true;
}

/* Reserves the bytes; false: they are more than the store may have. */
static bool reserve_bytes(struct store *s, size_t bytes)
{
    if (bytes > s->limit_bytes)
        return false;
    size_t used = atomic_load(&s->used_bytes);
    for (;;) {
        if (used + bytes <= s->limit_bytes) {
            if (atomic_compare_exchange_weak(&s->used_bytes, &used, used + bytes))
                return true;
            continue;
        }
        if (!drop_oldest(s)) /* all is reserved by other threads */
            return false;
        used = atomic_load(&s->used_bytes);
    }
}

enum store_result store_add(struct store *s, struct store_entry *e, uint64_t now_ns)
{
    struct shard *sh = shard_of(s, e->hash);
    if (!reserve_bytes(s, e->charged_bytes)) {
        store_put(e);
        return STORE_TOO_LARGE;
    }
    pthread_mutex_lock(&sh->mu);
    bool exists = *find_link_locked(sh, e->hash, e->key);
    if (!exists) {
        if (sh->n_entries >= sh->n_buckets)
            grow_buckets_locked(sh);
        struct store_entry **bucket = store_bucket_of(sh, e->hash);
        e->next_in_bucket = *bucket;
        *bucket = e;
        link_as_newest_locked(sh, e, now_ns);
        sh->n_entries++;
        show_oldest_locked(sh);
    }
    pthread_mutex_unlock(&sh->mu);
    if (!exists)
        return STORE_ADDED;
    atomic_fetch_sub(&s->used_bytes, e->charged_bytes);
    store_put(e);
    return STORE_EXISTS;
}

void store_note_look_up(struct store *s, const struct store_key *key, uint64_t took_ns)
{
    atomic_fetch_add_explicit(&shard_of(s, key->hash)->look_up_ns, took_ns, memory_order_relaxed);
}

void store_note_insert(struct store *s, const struct store_key *key, uint64_t took_ns)
{
    atomic_fetch_add_explicit(&shard_of(s, key->hash)->insert_ns, took_ns, memory_order_relaxed);
}

void store_counts(struct store *s, struct store_counts *ret)
{
    *ret = (struct store_counts){.used_bytes = atomic_load(&s->used_bytes)};
    for (size_t i = 0; i < STORE_SHARDS; i++) {
        struct shard *sh = &s->shards[i];
        pthread_mutex_lock(&sh->mu);
        ret->n_entries += sh->n_entries;
        ret->n_look_ups += sh->n_look_ups;
        ret->n_hits += sh->n_hits;
        ret->n_evictions += sh->n_evictions;
        pthread_mutex_unlock(&sh->mu);
        ret->look_up_ns += atomic_load_explicit(&sh->look_up_ns, memory_order_relaxed);
        ret->insert_ns += atomic_load_explicit(&sh->insert_ns, memory_order_relaxed);
    }
}

size_t store_limit_bytes(const struct store *s)
{
    return s->limit_bytes;
}
