/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map from byte strings to pointers, with open addressing. Keys are borrowed: they usually
 * live in the value. The hash has a random seed per process, so that clients cannot choose
 * collisions.
 */
#ifndef CONCH_BASE_MAP_H
#define CONCH_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct map_entry {
    const char *key; /* NULL = empty */
    size_t key_length;
    void *value;
    uint64_t hash;
};

struct map {
    struct map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

#define MAP_INIT                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }

void map_init(struct map *m);
void map_done(struct map *m);

/* map_copy - makes *m a copy of `from`; keys and values are shared. map_done() ends it. */
void map_copy(struct map *m, const struct map *from);

/* map_get - the value of the key, or NULL. */
void *map_get(const struct map *m, const char *key, size_t key_length);
void *map_gets(const struct map *m, const char *key);

/* map_put - sets the value (not NULL) of the key; returns the previous value, or NULL. */
void *map_put(struct map *m, const char *key, size_t key_length, void *value);
void *map_puts(struct map *m, const char *key, void *value);

/* map_remove - removes the key and returns its value, or NULL. */
void *map_remove(struct map *m, const char *key, size_t key_length);

/* map_next - the next entry, in no particular order; *pos starts at 0; NULL after the last. */
struct map_entry *map_next(const struct map *m, size_t *pos);

#endif
