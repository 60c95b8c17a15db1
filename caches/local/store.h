/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of the cache `local`: entries by their key, in the memory of the process. It has a
 * limit in bytes; when an entry does not fit, those that have not been used for longest are
 * dropped.
 *
 * The store has STORE_SHARDS parts, each with its lock, so that threads seldom wait for each other.
 * A lock is held to find, link and unlink an entry, never to copy one: an entry that is found has a
 * reference until store_put(), also when it is dropped meanwhile.
 *
 * Thread: any, for all functions but store_new() and store_free().
 */
#ifndef CONCH_CACHES_LOCAL_STORE_H
#define CONCH_CACHES_LOCAL_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct TRITONSERVER_BufferAttributes;

enum { STORE_SHARDS = 16 };

/* A part of an entry. */
struct store_buffer {
    struct TRITONSERVER_BufferAttributes *attributes; /* the entry's: freed with it */
    size_t size_bytes;
    char *base; /* in the entry's own block */
};

struct store_entry {
    /* Constant once it is in the store. */
    uint64_t hash;
    size_t charged_bytes; /* with everything that the entry needs */
    const char *key;
    size_t n_buffers;
    struct store_buffer *buffers;

    atomic_uint refs;
    /* Under the lock of its shard. */
    struct store_entry *next_in_bucket, *newer, *older;
    uint64_t used_ns;
};

/* Counts since the start, and what is there now. */
struct store_counts {
    uint64_t n_entries, used_bytes;
    uint64_t n_look_ups, n_hits, n_evictions;
    uint64_t look_up_ns, insert_ns;
};

struct store;

/* store_new - NULL: there is no memory. */
struct store *store_new(size_t limit_bytes);
void store_free(struct store *s);

/* store_now_ns - the monotonic clock. */
uint64_t store_now_ns(void);

/* A key with its hash, which is computed once for each call of the cache. */
struct store_key {
    const char *text;
    size_t length;
    uint64_t hash;
};
struct store_key store_key_of(const char *text);

/* store_find - a reference to the entry, which counts as used now; NULL: there is none. */
struct store_entry *store_find(struct store *s, const struct store_key *key, uint64_t now_ns);
/* store_has - is there an entry? It does not count as used. */
bool store_has(struct store *s, const struct store_key *key);
/* store_put - gives a reference back; the last one frees the entry. */
void store_put(struct store_entry *e);

/*
 * store_entry_new - an entry that is not in the store yet, with room for these buffers. The caller
 * fills them and ends it with store_add() or store_put(). NULL: there is no memory.
 *
 * @buffers  their sizes and attributes; the attributes are taken on success
 */
struct store_entry *store_entry_new(const struct store_key *key, const struct store_buffer *buffers,
                                    size_t n);

enum store_result { STORE_ADDED, STORE_EXISTS, STORE_TOO_LARGE };

/* store_add - takes the caller's reference in each case. Drops others until there is room. */
enum store_result store_add(struct store *s, struct store_entry *e, uint64_t now_ns);

/* store_note_look_up, store_note_insert - count how long it took. */
void store_note_look_up(struct store *s, const struct store_key *key, uint64_t took_ns);
void store_note_insert(struct store *s, const struct store_key *key, uint64_t took_ns);

void store_counts(struct store *s, struct store_counts *ret);
size_t store_limit_bytes(const struct store *s);

#endif
