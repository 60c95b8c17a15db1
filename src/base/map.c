/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: linear probing, at most three quarters full. Removal moves later entries of the same run
 * back instead of leaving tombstones, so that a map that lives for ever does not silt up. The hash
 * is SipHash-1-3 with a key drawn once per process: model names, parameter names and the like come
 * from clients, who must not be able to make all keys meet in one slot.
 */
#include "base/map.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { SMALLEST = 8 };

static uint64_t hash_key[2];

static void draw_hash_key(void)
{
    /* Without entropy (very early in a machine's life) the key still differs between processes. */
    if (getrandom(hash_key, sizeof(hash_key), GRND_NONBLOCK) != sizeof(hash_key)) {
        hash_key[0] = monotonic_ns() * 0x9e3779b97f4a7c15ULL;
        hash_key[1] = (uint64_t)getpid() ^ (uint64_t)(uintptr_t)hash_key;
    }
}

static inline uint64_t rotate_left(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] = rotate_left(v[2], 32);
}

static uint64_t hash_bytes(const char *key, size_t length)
{
    static pthread_once_t drawn = PTHREAD_ONCE_INIT;
    pthread_once(&drawn, draw_hash_key);

    uint64_t v[4] = {
        hash_key[0] ^ 0x736f6d6570736575ULL, /* the constants of SipHash */
        hash_key[1] ^ 0x646f72616e646f6dULL,
        hash_key[0] ^ 0x6c7967656e657261ULL,
        hash_key[1] ^ 0x7465646279746573ULL,
    };
    uint64_t word;
    size_t at = 0;
    for (; length - at >= 8; at += 8) {
        memcpy(&word, key + at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)length << 56;
    memcpy(&word, key + at, length - at); /* the lower bytes of a little-endian word */
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void map_init(struct map *m)
{
    *m = (struct map)MAP_INIT;
}

void map_done(struct map *m)
{
    mem_free(m->entries);
    map_init(m);
}

void map_copy(struct map *m, const struct map *from)
{
    *m = *from;
    if (!from->entries)
        return;
    m->entries = mem_alloc(from->capacity * sizeof(*m->entries));
    memcpy(m->entries, from->entries, from->capacity * sizeof(*m->entries));
}

/* Returns the entry of the key, or the empty slot where it would go; the map has a capacity. */
static struct map_entry *find_entry(const struct map *m, const char *key, size_t length,
                                    uint64_t hash)
{
    size_t mask = m->capacity - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct map_entry *e = &m->entries[i];
        if (!e->key ||
            (e->hash == hash && e->key_length == length && memcmp(e->key, key, length) == 0))
            return e;
    }
}

void *map_get(const struct map *m, const char *key, size_t key_length)
{
    if (m->count == 0)
        return NULL;
    return find_entry(m, key, key_length, hash_bytes(key, key_length))->value;
}

void *map_gets(const struct map *m, const char *key)
{
    return map_get(m, key, strlen(key));
}

static void grow_map(struct map *m)
{
    struct map old = *m;
    m->capacity = old.capacity ? old.capacity * 2 : SMALLEST;
    m->entries = mem_zalloc(m->capacity * sizeof(*m->entries));
    for (size_t i = 0; i < old.capacity; i++) {
        struct map_entry *e = &old.entries[i];
        if (e->key)
            *find_entry(m, e->key, e->key_length, e->hash) = *e;
    }
    mem_free(old.entries);
}

void *map_put(struct map *m, const char *key, size_t key_length, void *value)
{
    BUG_ON(!value);
    if (m->count + 1 > m->capacity / 4 * 3)
        grow_map(m);

    uint64_t hash = hash_bytes(key, key_length);
    struct map_entry *e = find_entry(m, key, key_length, hash);
    void *before = e->value;
    if (!e->key)
        m->count++;
    /* The new key replaces the old one, which may be part of the old value. */
    *e = (struct map_entry){.key = key, .key_length = key_length, .value = value, .hash = hash};
    return before;
}

void *map_puts(struct map *m, const char *key, void *value)
{
    return map_put(m, key, strlen(key), value);
}

void *map_remove(struct map *m, const char *key, size_t key_length)
{
    if (m->count == 0)
        return NULL;
    struct map_entry *e = find_entry(m, key, key_length, hash_bytes(key, key_length));
    if (!e->key)
        return NULL;
    void *value = e->value;
    m->count--;

    /* Closes the gap: a later entry may move into it unless its own slot lies in between. */
    size_t mask = m->capacity - 1;
    size_t gap = (size_t)(e - m->entries);
    for (size_t i = (gap + 1) & mask; m->entries[i].key; i = (i + 1) & mask) {
        size_t from_home = (i - m->entries[i].hash) & mask;
        if (from_home >= ((i - gap) & mask)) {
            m->entries[gap] = m->entries[i];
            gap = i;
        }
    }
    m->entries[gap] = (struct map_entry){0};
    return value;
}

struct map_entry *map_next(const struct map *m, size_t *pos)
{
    while (*pos < m->capacity) {
        struct map_entry *e = &m->entries[(*pos)++];
        if (e->key)
            return e;
    }
    return NULL;
}
