/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each shard has a hash table, and a list of its entries by their last use. A bucket is a cache
 * line, which has eight bits of each entry's hash beside its address: a look-up reads one line, and
 * touches no entry but the one that it finds, since entries are seldom in the processor's cache. An
 * entry whose bucket is full lies in one of the next, and those that it has passed count it.
 *
 * The limit is one for all shards: `used_bytes` is atomic. To make room, the shard whose oldest
 * entry was used before those of the others drops it; each shard shows that time in `oldest_at`, so
 * the others need not be locked. A thread that makes room reserves its bytes first, so all together
 * never exceed the limit.
 */
#include "local/store.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "local/ticks.h"
#include "triton/core/tritonserver.h"

enum {
    FIRST_BUCKETS = 8,
    BUCKET_SLOTS = 7,
    BUCKET_LOAD = 4,   /* with more entries for each bucket the table grows */
    MANY_BEYOND = 255, /* as many or more; not counted down any more */
    LINE_BYTES = 64,   /* buffers begin at one, too */
};

struct bucket {
    _Alignas(LINE_BYTES) uint8_t tags[BUCKET_SLOTS]; /* 0: the slot is free */
    uint8_t n_beyond;                                /* entries that have passed this bucket */
    struct store_entry *entries[BUCKET_SLOTS];
};

struct shard {
    _Alignas(LINE_BYTES) pthread_mutex_t mu;
    /* Under mu. */
    size_t n_entries, n_buckets;
    struct bucket *buckets; /* a power of 2 of them */
    struct store_entry *newest, *oldest;
    uint64_t n_look_ups, n_hits, n_inserts, n_evictions;
    /* Any thread. */
    atomic_uint_least64_t look_up_ticks, insert_ticks;
};

struct store {
    /* Constant. */
    size_t limit_bytes;
    uint64_t from_ticks, from_ns; /* of both clocks at the start */

    _Alignas(LINE_BYTES) atomic_size_t used_bytes;
    /* When each shard's oldest entry was used; UINT64_MAX: it has none. Written under its lock. */
    _Alignas(LINE_BYTES) atomic_uint_least64_t oldest_at[STORE_SHARDS];
    struct shard shards[STORE_SHARDS];
};

/* Keys are hashes already, as text: eight characters at a time are mixed. */
static uint64_t mix_hash(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0xff51afd7ed558ccdULL;
    return h ^ h >> 32;
}

struct store_key store_key_of(const char *text)
{
    uint64_t h = 0x9e3779b97f4a7c15ULL, word;
    size_t length = strlen(text), at = 0;
    for (; length - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, text + at, sizeof(word));
        h = mix_hash(h, word);
    }
    word = 0;
    memcpy(&word, text + at, length - at);
    return (struct store_key){.text = text, .length = length, .hash = mix_hash(h, word)};
}

static struct shard *shard_of(struct store *s, uint64_t hash)
{
    return &s->shards[hash % STORE_SHARDS];
}

/* ---- A shard, under its lock ------------------------------------------------------------------
 */

static size_t bucket_of_hash(uint64_t hash, size_t n_buckets)
{
    return hash / STORE_SHARDS & (n_buckets - 1);
}

static uint8_t tag_of_hash(uint64_t hash)
{
    uint8_t tag = hash >> 56;
    return tag ? tag : 1;
}

static bool has_key(const struct store_entry *e, const struct store_key *key)
{
    return e->hash == key->hash && e->key_length == key->length &&
           memcmp(e->key, key->text, key->length) == 0;
}

/* The slots whose tag is this one, as the high bit of their bytes; a slot above one of them may be
 * among them by mistake. */
static uint64_t slots_with_tag(const struct bucket *b, uint8_t tag)
{
    const uint64_t ones = 0x0101010101010101, highs = ones << 7;
    uint64_t tags;
    memcpy(&tags, b, sizeof(tags)); /* n_beyond, too, which is masked out */
    tags ^= ones * tag;
    return (tags - ones) & ~tags & highs & UINT64_MAX >> 8;
}

/* Returns NULL when there is none. */
static struct store_entry *find_entry_locked(const struct shard *sh, const struct store_key *key)
{
    size_t mask = sh->n_buckets - 1, at = bucket_of_hash(key->hash, sh->n_buckets);
    uint8_t tag = tag_of_hash(key->hash);
    for (size_t n = 0; n <= mask; n++) {
        const struct bucket *b = &sh->buckets[(at + n) & mask];
        for (uint64_t found = slots_with_tag(b, tag); found; found &= found - 1) {
            size_t i = (size_t)__builtin_ctzll(found) / 8;
            if (b->tags[i] == tag && has_key(b->entries[i], key))
                return b->entries[i];
        }
        if (b->n_beyond == 0)
            break;
    }
    return NULL;
}

/* The table has a free slot. */
static void place_in_table(struct bucket *buckets, size_t n_buckets, struct store_entry *e)
{
    size_t at = bucket_of_hash(e->hash, n_buckets);
    for (;; at = (at + 1) & (n_buckets - 1)) {
        struct bucket *b = &buckets[at];
        for (size_t i = 0; i < BUCKET_SLOTS; i++) {
            if (b->tags[i] == 0) {
                b->tags[i] = tag_of_hash(e->hash);
                b->entries[i] = e;
                return;
            }
        }
        b->n_beyond += b->n_beyond < MANY_BEYOND;
    }
}

static void take_from_table_locked(struct shard *sh, const struct store_entry *e)
{
    size_t at = bucket_of_hash(e->hash, sh->n_buckets);
    for (;; at = (at + 1) & (sh->n_buckets - 1)) {
        struct bucket *b = &sh->buckets[at];
        for (size_t i = 0; i < BUCKET_SLOTS; i++) {
            if (b->entries[i] == e && b->tags[i] != 0) {
                b->tags[i] = 0;
                return;
            }
        }
        b->n_beyond -= b->n_beyond < MANY_BEYOND;
    }
}

static struct bucket *new_buckets(size_t n)
{
    struct bucket *buckets = aligned_alloc(LINE_BYTES, n * sizeof(*buckets));
    if (buckets)
        memset(buckets, 0, n * sizeof(*buckets));
    return buckets;
}

/* Makes room in the table for another entry; false: there is no memory. */
static bool grow_table_locked(struct shard *sh)
{
    size_t n = 2 * sh->n_buckets;
    if (sh->n_entries < sh->n_buckets * BUCKET_LOAD)
        return true;
    struct bucket *grown = new_buckets(n);
    if (!grown)
        return sh->n_entries < sh->n_buckets * BUCKET_SLOTS;
    for (size_t i = 0; i < sh->n_buckets; i++) {
        for (size_t k = 0; k < BUCKET_SLOTS; k++) {
            if (sh->buckets[i].tags[k] != 0)
                place_in_table(grown, n, sh->buckets[i].entries[k]);
        }
    }
    free(sh->buckets);
    sh->buckets = grown;
    sh->n_buckets = n;
    return true;
}

/* relaxed: who drops an entry reads it again under the lock. */
static void show_oldest_locked(struct store *s, struct shard *sh)
{
    atomic_uint_least64_t *shown = &s->oldest_at[sh - s->shards];
    uint64_t at = sh->oldest ? sh->oldest->used_at : UINT64_MAX;
    if (atomic_load_explicit(shown, memory_order_relaxed) != at)
        atomic_store_explicit(shown, at, memory_order_relaxed);
}

static void unlink_use_locked(struct shard *sh, struct store_entry *e)
{
    *(e->newer ? &e->newer->older : &sh->newest) = e->older;
    *(e->older ? &e->older->newer : &sh->oldest) = e->newer;
}

static void link_as_newest_locked(struct shard *sh, struct store_entry *e, uint64_t now)
{
    e->used_at = now;
    e->newer = NULL;
    e->older = sh->newest;
    *(sh->newest ? &sh->newest->newer : &sh->oldest) = e;
    sh->newest = e;
}

/*
 * Entries are dropped long after the processor has forgotten them. So when one is dropped, what it
 * takes to drop the next one is fetched: its bucket and its block, and the head of the one after
 * it. (GCC drops the call of a function that does nothing else, so this one must be inlined.)
 */
__attribute__((always_inline)) static inline void fetch_oldest_locked(const struct shard *sh)
{
    enum { MAX_BYTES = 512 };
    const struct store_entry *e = sh->oldest;
    if (!e)
        return;
    __builtin_prefetch(e->newer, 1);
    __builtin_prefetch(&sh->buckets[bucket_of_hash(e->hash, sh->n_buckets)], 1);
    for (size_t at = LINE_BYTES; at < e->charged_bytes && at < MAX_BYTES; at += 64)
        __builtin_prefetch((const char *)e + at, 1);
}

/* Takes the shard's oldest entry out; NULL: it has none. */
static struct store_entry *take_oldest_locked(struct store *s, struct shard *sh)
{
    struct store_entry *e = sh->oldest;
    if (!e)
        return NULL;
    take_from_table_locked(sh, e);
    unlink_use_locked(sh, e);
    sh->n_entries--;
    show_oldest_locked(s, sh);
    fetch_oldest_locked(sh);
    return e;
}

/* ---- Entries ----------------------------------------------------------------------------------
 */

static size_t align_buffer(size_t n)
{
    return (n + LINE_BYTES - 1) & ~(size_t)(LINE_BYTES - 1);
}

static size_t entry_head_bytes(const struct store_key *key, size_t n)
{
    return align_buffer(sizeof(struct store_entry) + n * sizeof(struct store_buffer) + key->length +
                        1);
}

/* The bytes of an entry with these buffers; 0: they are too many. */
static size_t entry_bytes(const struct store_key *key, const size_t *sizes_bytes, size_t n)
{
    size_t bytes = entry_head_bytes(key, n);
    for (size_t i = 0; i < n; i++) {
        if (sizes_bytes[i] > SIZE_MAX / 2 - bytes)
            return 0;
        bytes += align_buffer(sizes_bytes[i]);
    }
    return bytes;
}

/* Fills an entry in its block, whose buffers have attributes or NULL already. */
static void fill_entry(struct store_entry *e, const struct store_key *key, size_t bytes,
                       const size_t *sizes_bytes, size_t n)
{
    char *at = (char *)e + entry_head_bytes(key, n);
    *e = (struct store_entry){.hash = key->hash,
                              .charged_bytes = bytes,
                              .key_length = key->length,
                              .n_buffers = n,
                              .buffers = (struct store_buffer *)(e + 1)};
    atomic_init(&e->refs, 1);
    e->key = memcpy(e->buffers + n, key->text, key->length + 1);
    for (size_t i = 0; i < n; i++) {
        e->buffers[i].size_bytes = sizes_bytes[i];
        e->buffers[i].base = at;
        at += align_buffer(sizes_bytes[i]);
    }
}

/* An entry in a new block; NULL: there is no memory. */
static struct store_entry *new_entry(size_t bytes, size_t n)
{
    struct store_entry *e = aligned_alloc(LINE_BYTES, bytes);
    if (e)
        memset(e + 1, 0, n * sizeof(struct store_buffer));
    return e;
}

static void free_entry(struct store_entry *e)
{
    for (size_t i = 0; i < e->n_buffers; i++) {
        if (e->buffers[i].attributes)
            TRITONSERVER_BufferAttributesDelete(e->buffers[i].attributes);
    }
    free(e);
}

/* acq_rel: the thread that frees or reuses it sees that the others have read it. */
static bool is_last_reference(struct store_entry *e)
{
    return atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1;
}

void store_put(struct store_entry *e)
{
    if (is_last_reference(e))
        free_entry(e);
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
    s->from_ticks = ticks_now();
    s->from_ns = ticks_clock_ns();
    for (size_t i = 0; i < STORE_SHARDS; i++) {
        struct shard *sh = &s->shards[i];
        pthread_mutex_init(&sh->mu, NULL);
        sh->n_buckets = FIRST_BUCKETS;
        sh->buckets = new_buckets(sh->n_buckets);
        atomic_init(&s->oldest_at[i], UINT64_MAX);
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
        while (sh->buckets && (e = take_oldest_locked(s, sh)))
            store_put(e);
        if (sh->n_buckets > 0)
            pthread_mutex_destroy(&sh->mu);
        free(sh->buckets);
    }
    free(s);
}

/* Each of the first calls is timed, then one of 16, which counts for the 15 after it. */
static unsigned int weight_of_call(uint64_t n_before)
{
    enum { TIMED_CALLS = 16 };
    return n_before < TIMED_CALLS ? 1 : n_before % TIMED_CALLS == 0 ? TIMED_CALLS : 0;
}

struct store_entry *store_find(struct store *s, const struct store_key *key, struct store_call *c)
{
    struct shard *sh = shard_of(s, key->hash);
    pthread_mutex_lock(&sh->mu);
    struct store_entry *e = find_entry_locked(sh, key);
    c->weight = weight_of_call(sh->n_look_ups++);
    if (e) {
        sh->n_hits++;
        if (sh->newest != e) {
            unlink_use_locked(sh, e);
            link_as_newest_locked(sh, e, c->from);
        }
        e->used_at = c->from;
        show_oldest_locked(s, sh);
        atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&sh->mu);
    return e;
}

/* It does not count as used. */
static bool has_stored_entry(struct store *s, const struct store_key *key)
{
    struct shard *sh = shard_of(s, key->hash);
    pthread_mutex_lock(&sh->mu);
    bool has = find_entry_locked(sh, key) != NULL;
    pthread_mutex_unlock(&sh->mu);
    return has;
}

static struct shard *shard_of_oldest(struct store *s)
{
    struct shard *from = NULL;
    uint64_t oldest_at = UINT64_MAX;
    for (size_t i = 0; i < STORE_SHARDS; i++) {
        uint64_t at = atomic_load_explicit(&s->oldest_at[i], memory_order_relaxed);
        if (at < oldest_at) {
            oldest_at = at;
            from = &s->shards[i];
        }
    }
    return from;
}

/* Can the entry's block have one of that size and number of buffers? */
static bool can_reuse(const struct store_entry *e, size_t bytes, size_t n)
{
    return e->charged_bytes == bytes && e->n_buffers == n;
}

/*
 * Drops the oldest entry. If nobody reads it and it fits, it becomes *reused, unless there is one.
 * Returns false when there is no entry to drop.
 */
static bool drop_oldest(struct store *s, size_t bytes, size_t n, struct store_entry **reused)
{
    struct shard *from = shard_of_oldest(s);
    if (!from)
        return false;
    pthread_mutex_lock(&from->mu);
    struct store_entry *e = take_oldest_locked(s, from);
    from->n_evictions += e != NULL;
    pthread_mutex_unlock(&from->mu);
    if (!e)
        return true; /* another thread was quicker */
    atomic_fetch_sub(&s->used_bytes, e->charged_bytes);
    if (!is_last_reference(e))
        return true;
    if (!*reused && can_reuse(e, bytes, n))
        *reused = e;
    else
        free_entry(e);
    return true;
}

/* Would others be dropped for that many bytes? */
static bool is_full(struct store *s, size_t bytes)
{
    return atomic_load_explicit(&s->used_bytes, memory_order_relaxed) + bytes > s->limit_bytes;
}

/* Reserves the bytes; false: they are more than the store may have. */
static bool reserve_bytes(struct store *s, size_t bytes, size_t n, struct store_entry **reused)
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
        if (!drop_oldest(s, bytes, n, reused)) /* all is reserved by other threads */
            return false;
        used = atomic_load(&s->used_bytes);
    }
}

enum store_result store_make_room(struct store *s, const struct store_key *key,
                                  const size_t *sizes_bytes, size_t n,
                                  struct store_entry **ret_entry)
{
    size_t bytes = entry_bytes(key, sizes_bytes, n);
    struct store_entry *e = NULL;
    if (is_full(s, bytes) && has_stored_entry(s, key))
        return STORE_EXISTS;
    if (bytes == 0 || !reserve_bytes(s, bytes, n, &e)) {
        if (e)
            free_entry(e);
        return STORE_TOO_LARGE;
    }
    if (!e)
        e = new_entry(bytes, n);
    if (!e) {
        atomic_fetch_sub(&s->used_bytes, bytes);
        return STORE_NO_MEMORY;
    }
    fill_entry(e, key, bytes, sizes_bytes, n);
    *ret_entry = e;
    return STORE_FINE;
}

void store_give_up(struct store *s, struct store_entry *e)
{
    atomic_fetch_sub(&s->used_bytes, e->charged_bytes);
    store_put(e);
}

static enum store_result add_entry_locked(struct store *s, struct shard *sh, struct store_entry *e,
                                          uint64_t now)
{
    const struct store_key key = {.text = e->key, .length = e->key_length, .hash = e->hash};
    if (find_entry_locked(sh, &key))
        return STORE_EXISTS;
    if (!grow_table_locked(sh))
        return STORE_NO_MEMORY;
    place_in_table(sh->buckets, sh->n_buckets, e);
    link_as_newest_locked(sh, e, now);
    sh->n_entries++;
    show_oldest_locked(s, sh);
    return STORE_FINE;
}

enum store_result store_add(struct store *s, struct store_entry *e, struct store_call *c)
{
    struct shard *sh = shard_of(s, e->hash);
    pthread_mutex_lock(&sh->mu);
    enum store_result result = add_entry_locked(s, sh, e, c->from);
    c->weight = weight_of_call(sh->n_inserts++);
    pthread_mutex_unlock(&sh->mu);
    if (result != STORE_FINE)
        store_give_up(s, e);
    return result;
}

static void note_ticks(atomic_uint_least64_t *ticks, const struct store_call *c)
{
    uint64_t all = c->weight * (ticks_now() - c->from);
    atomic_fetch_add_explicit(ticks, all, memory_order_relaxed);
}

void store_note_look_up(struct store *s, const struct store_key *key, const struct store_call *c)
{
    if (c->weight > 0)
        note_ticks(&shard_of(s, key->hash)->look_up_ticks, c);
}

void store_note_insert(struct store *s, const struct store_key *key, const struct store_call *c)
{
    if (c->weight > 0)
        note_ticks(&shard_of(s, key->hash)->insert_ticks, c);
}

void store_counts(struct store *s, struct store_counts *ret)
{
    uint64_t look_up_ticks = 0, insert_ticks = 0;
    uint64_t ticks = ticks_now() - s->from_ticks, ns = ticks_clock_ns() - s->from_ns;
    double tick_ns = ticks > 0 ? (double)ns / (double)ticks : 0;
    *ret = (struct store_counts){.used_bytes = atomic_load(&s->used_bytes)};
    for (size_t i = 0; i < STORE_SHARDS; i++) {
        struct shard *sh = &s->shards[i];
        pthread_mutex_lock(&sh->mu);
        ret->n_entries += sh->n_entries;
        ret->n_look_ups += sh->n_look_ups;
        ret->n_hits += sh->n_hits;
        ret->n_evictions += sh->n_evictions;
        pthread_mutex_unlock(&sh->mu);
        look_up_ticks += atomic_load_explicit(&sh->look_up_ticks, memory_order_relaxed);
        insert_ticks += atomic_load_explicit(&sh->insert_ticks, memory_order_relaxed);
    }
    ret->look_up_ns = (uint64_t)((double)look_up_ticks * tick_ns);
    ret->insert_ns = (uint64_t)((double)insert_ticks * tick_ns);
}

size_t store_limit_bytes(const struct store *s)
{
    return s->limit_bytes;
}
