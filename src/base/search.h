/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary search in a sorted array, for an element that may be missing. (bsearch() finds any of
 * several equal elements, and cannot say where a missing one belongs.)
 *
 * Thread: any. Inline, so that the comparison is, too.
 */
#ifndef CONCH_BASE_SEARCH_H
#define CONCH_BASE_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the element stands before the key. */
typedef bool (*search_before_fn)(const void *element, const void *key);

/*
 * lower_bound - the index of the first element that does not stand before the key: where the first
 * equal one is, or would be. n if there is none.
 */
static inline __attribute__((always_inline)) size_t lower_bound(const void *items, size_t n,
                                                                size_t item_bytes,
                                                                search_before_fn is_before,
                                                                const void *key)
{
    size_t from = 0, to = n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (is_before((const char *)items + middle * item_bytes, key))
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

#endif
