/* SPDX-License-Identifier: Apache-2.0 */
/* A server's session and a client, joined in memory, for tests with cmocka. */
#ifndef CONCH_TESTS_LIB_HTTP2_PAIR_H
#define CONCH_TESTS_LIB_HTTP2_PAIR_H

#include "lib/http2_client.h"

struct pair {
    struct h2_driver d;
    struct h2_client c;
};

static inline struct pair *begin_pair_with(void (*change)(struct h2_driver *d),
                                           uint32_t client_window)
{
    struct pair *p = malloc(sizeof(*p));
    h2_init(&p->d);
    if (change)
        change(&p->d);
    h2_begin(&p->d);
    h2c_init(&p->c, &p->d, client_window);
    return p;
}

static inline struct pair *begin_pair(void)
{
    return begin_pair_with(NULL, 0);
}

static inline void end_pair(struct pair *p)
{
    assert_int_equal(p->c.error, 0);
    h2c_done(&p->c);
    assert_true(h2_done(&p->d));
    free(p);
}

static inline char *make_letters(size_t n)
{
    char *letters = malloc(n);
    for (size_t i = 0; i < n; i++)
        letters[i] = (char)('a' + i * 7 % 26);
    return letters;
}

#endif
