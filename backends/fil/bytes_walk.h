/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes_walk - a walk over a file of numbers as they lie in the memory of a little-endian machine:
 * XGBoost's old format and treelite's checkpoints.
 */
#ifndef BACKENDS_FIL_BYTES_WALK_H
#define BACKENDS_FIL_BYTES_WALK_H

#include <string.h>

#include "fil/treefile.h"

struct bytes_walk {
    const char *begin, *at, *end;
    struct treefile_why *why;
};

static inline size_t walk_left(const struct bytes_walk *w)
{
    return (size_t)(w->end - w->at);
}

/* walk_skip - go over n elements of that size; false: the file has fewer. */
static inline bool walk_skip(struct bytes_walk *w, uint64_t n, size_t size)
{
    if (n > walk_left(w) / size)
        return treefile_refuse(w->why,
                               "the file ends within %llu elements of %zu bytes, at byte %zu",
                               (unsigned long long)n, size, (size_t)(w->at - w->begin));
    w->at += n * size;
    return true;
}

/* walk_read - copy the next bytes. */
static inline bool walk_read(struct bytes_walk *w, void *to, size_t size)
{
    const char *from = w->at;

    if (!walk_skip(w, 1, size))
        return false;
    memcpy(to, from, size);
    return true;
}

/* walk_array - go over a 64-bit number and as many elements. */
static inline bool walk_array(struct bytes_walk *w, size_t size, uint64_t *ret_n)
{
    return walk_read(w, ret_n, sizeof(*ret_n)) && walk_skip(w, *ret_n, size);
}

#endif
