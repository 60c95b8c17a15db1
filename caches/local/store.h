/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of the cache `local`: entries by their key, in the memory of the process. It has a
 * limit in bytes; when an entry does not fit, those that have not been used for longest are
 * dropped. A new entry gets the block of a dropped one, if that has its size: a full store of
 * responses of one size asks the allocator for nothing.
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
#include <stddef.h>
#include <stdint.h>

struct TRITONSERVER_BufferAttributes;

enum { STORE_SHARDS = 16 };

/* A part of an entry. */
struct store_buffer {
    /* The entry's: freed with it. NULL, or those of an equal buffer of the block's last entry. */
    struct TRITONSERVER_BufferAttributes *attributes;
    size_t size_bytes;
    char *base; /* in the entry's own block */
};

/* An entry's first cache line has all that it takes to drop it. */
struct store_entry {
    /* Constant once it is in the store. */
    uint64_t hash;
    size_t charged_bytes; /* with everything that the entry needs */
    size_t n_buffers;

    atomic_uint refs;
    /* Under the lock of its shard. */
    struct store_entry *newer, *older;
    uint64_t used_at; /* ticks.h */

    /* Constant. */
    size_t key_length;
    const char *key;
    struct store_buffer *buffers;
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

/* A key with its hash, which is computed once for each call of the cache. */
struct store_key {
    const char *text;
    size_t length;
    uint64_t hash;
};
struct store_key store_key_of(const char *text);

/* A call of the cache. Not each is timed, since to read the clock takes as long as to find an
 * entry.
 */
struct store_call {
    uint64_t from;       /* ticks_now() at its beginning */
    unsigned int weight; /* set by store_find(), store_add(): for how many calls its time counts */
};

/* store_find - a reference to the entry, which counts as used now; NULL: there is none. */
struct store_entry *store_find(struct store *s, const struct store_key *key, struct store_call *c);
/* store_put - gives a reference back; the last one frees the entry. */
void store_put(struct store_entry *e);

enum store_result { STORE_FINE, STORE_EXISTS, STORE_TOO_LARGE, STORE_NO_MEMORY };

/*
 * store_make_room - drops others until there is room for an entry with these buffers, and makes it.
 * It is not in the store yet: the caller fills it, and ends it with store_add() or store_give_up().
 *
 * Returns  STORE_EXISTS  there is one of that key, seen before any other was dropped for it
 */
enum store_result store_make_room(struct store *s, const struct store_key *key,
                                  const size_t *sizes_bytes, size_t n,
                                  struct store_entry **ret_entry);
void store_give_up(struct store *s, struct store_entry *e);

/* store_add - takes the caller's reference in each case. Returns no STORE_TOO_LARGE. */
enum store_result store_add(struct store *s, struct store_entry *e, struct store_call *c);

/* store_note_look_up, store_note_insert - the call ends now. */
void store_note_look_up(struct store *s, const struct store_key *key, const struct store_call *c);
void store_note_insert(struct store *s, const struct store_key *key, const struct store_call *c);

void store_counts(struct store *s, struct store_counts *ret);
size_t store_limit_bytes(const struct store *s);

#endif
