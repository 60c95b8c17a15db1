/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives a struct http1 without a socket: bytes in, in any portions; replies out, in any portions.
 * The handler answers each request with a line that describes it, at once or later. Shared by the
 * unit test and the fuzz target.
 */
#ifndef CONCH_TESTS_LIB_HTTP1_DRIVER_H
#define CONCH_TESTS_LIB_HTTP1_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "frontends/net/http1.h"

enum { DRIVER_MAX_WAITING = 256 };

struct driver {
    struct http_limits limits;
    struct http_env env;
    struct pool *pool;
    char scratch[512];
    struct http1 http1;
    bool defer; /* replies wait until driver_reply() */
    struct exchange *waiting[DRIVER_MAX_WAITING];
    unsigned int n_waiting;
    unsigned int n_heads, n_ends, n_requests, n_cancelled;
    unsigned int n_parts, n_parts_left; /* of replies */
    size_t max_send;                    /* bytes per write; 0 = all */
    char *out;
    size_t out_size, out_capacity;
    size_t aligned_at;
    size_t body_capacity; /* of the last request */
};

struct driver_part {
    char path[64];
    unsigned int n_parts; /* begun so far, of a reply in parts: paths that begin with /parts */
    struct reply_part parts[3]; /* "one", "two and", "three" */
};

static void driver_on_head(struct exchange *x, const struct http_head *head)
{
    struct driver *d = x->env->net.handler_ctx;
    struct driver_part *part = exchange_part(x);
    struct span path = head_path(head);
    snprintf(part->path, sizeof(part->path), "%.*s", (int)path.length, path.at);
    struct span at = head_find(head, "inference-header-content-length", 31);
    if (at.at)
        x->aligned_at = strtoul(at.at, NULL, 10);
    x->discard = strcmp(part->path, "/void") == 0;
    part->n_parts = 0;
    d->n_heads++;
}

static void driver_on_part_left(void *arg)
{
    struct driver *d = arg;
    d->n_parts_left++;
}

/* Goes on with a reply in parts: its head, its three parts, its end. Returns whether it is over. */
static bool driver_go_on(struct exchange *x)
{
    static const char *const texts[] = {"one", "two and", "three"};
    struct driver *d = x->env->net.handler_ctx;
    struct driver_part *part = exchange_part(x);
    unsigned int i = part->n_parts++;
    struct http_reply reply = {.status = 200, .headers = "", .filler = "\n"};
    if (i == 0)
        return !exchange_reply_begin(x, &reply);
    if (i > 3) {
        exchange_reply_end(x);
        return true;
    }
    d->n_parts++;
    exchange_reply_more(x, &part->parts[i - 1], texts[i - 1], strlen(texts[i - 1]),
                        driver_on_part_left, d);
    return false;
}

static bool driver_replies_in_parts(struct exchange *x)
{
    struct driver_part *part = exchange_part(x);
    return strncmp(part->path, "/parts", 6) == 0;
}

static void driver_answer(struct exchange *x)
{
    struct driver_part *part = exchange_part(x);
    if (driver_replies_in_parts(x)) {
        while (!driver_go_on(x)) {
        }
        return;
    }
    char text[256];
    uint32_t hash = 2166136261u;
    for (size_t i = 0; x->body && i < x->body_size; i++)
        hash = (hash ^ (unsigned char)x->body[i]) * 16777619u;
    int n = snprintf(text, sizeof(text), "%d %s %zu %08x\n", (int)x->method, part->path,
                     x->body_size, hash);
    if (x->aligned_at > 0) /* the header with its value was understood */
        n = snprintf(text, sizeof(text), "aligned %zu\n", x->aligned_at);
    exchange_reply_text(x, 200, NULL, text, (size_t)n);
}

static void driver_on_request(struct exchange *x)
{
    struct driver *d = x->env->net.handler_ctx;
    d->n_requests++;
    d->body_capacity = x->body_capacity;
    if (x->body && x->aligned_at < x->body_size && (uintptr_t)(x->body + x->aligned_at) % 64 != 0)
        abort();
    if (!d->defer || d->n_waiting == DRIVER_MAX_WAITING)
        driver_answer(x);
    else
        d->waiting[d->n_waiting++] = x;
}

static void driver_on_cancel(struct exchange *x)
{
    struct driver *d = x->env->net.handler_ctx;
    d->n_cancelled++;
}

static void driver_on_end(struct exchange *x)
{
    struct driver *d = x->env->net.handler_ctx;
    d->n_ends++;
}

static const struct http_handler driver_handler = {
    .part_bytes = sizeof(struct driver_part),
    .on_head = driver_on_head,
    .on_request = driver_on_request,
    .on_cancel = driver_on_cancel,
    .on_end = driver_on_end,
};

static void driver_on_output(struct session *s)
{
    (void)s; /* driver_flush() is called anyway */
}

static inline void driver_init(struct driver *d)
{
    memset(d, 0, sizeof(*d));
    d->limits = (struct http_limits){
        .max_head_bytes = 1024, .max_body_bytes = 1 << 20, .max_chunks = 40, .max_pipeline = 4};
    d->pool = pool_new("test", 1 << 20, 0);
    http_env_init(&d->env, &driver_handler, d, &d->limits, d->pool, NULL, d->scratch,
                  sizeof(d->scratch));
    http1_init(&d->http1, &d->env, driver_on_output);
}

/* driver_flush - sends what may be sent. */
static inline void driver_flush(struct driver *d)
{
    struct iovec pieces[8];
    struct out_queue *out = &d->http1.session.out;
    size_t n_bytes;
    int n;
    http1_queue_output(&d->http1);
    while ((n = out_queue_gather(out, pieces, 8, &n_bytes)) > 0) {
        size_t room = d->max_send ? d->max_send : SIZE_MAX, sent = 0;
        for (int i = 0; i < n && room > 0; i++) {
            size_t k = pieces[i].iov_len < room ? pieces[i].iov_len : room;
            if (d->out_size + k > d->out_capacity) {
                d->out_capacity = (d->out_size + k) * 2;
                d->out = realloc(d->out, d->out_capacity);
            }
            memcpy(d->out + d->out_size, pieces[i].iov_base, k);
            d->out_size += k;
            sent += k;
            room -= k;
        }
        out_queue_sent(out, sent);
        http1_queue_output(&d->http1);
    }
}

/* driver_feed - passes the bytes as far as they are read; returns how many were. */
static inline size_t driver_feed(struct driver *d, const char *bytes, size_t n_bytes)
{
    size_t fed = 0;
    while (fed < n_bytes) {
        struct iovec space[2];
        int n_space = http1_read_space(&d->http1, space);
        size_t got = 0;
        for (int i = 0; i < n_space && fed < n_bytes; i++) {
            size_t k = space[i].iov_len < n_bytes - fed ? space[i].iov_len : n_bytes - fed;
            memcpy(space[i].iov_base, bytes + fed, k);
            fed += k;
            got += k;
        }
        if (got == 0)
            break;
        http1_received(&d->http1, got);
    }
    return fed;
}

/* driver_reply - answers the i-th of the waiting requests; of a reply in parts gives the next. */
static inline void driver_reply(struct driver *d, unsigned int i)
{
    struct exchange *x = d->waiting[i];
    bool in_parts = driver_replies_in_parts(x);
    if (in_parts && !driver_go_on(x))
        return;
    memmove(d->waiting + i, d->waiting + i + 1, (--d->n_waiting - i) * sizeof(x));
    if (!in_parts)
        driver_answer(x);
}

/* driver_done - closes the client's side. False if something was not freed. */
static inline bool driver_done(struct driver *d)
{
    http1_abort(&d->http1);
    while (d->n_waiting > 0)
        driver_reply(d, d->n_waiting - 1);
    bool fine = d->env.net.n_used == 0 && d->n_heads == d->n_ends && d->n_parts == d->n_parts_left;
    http_env_done(&d->env);
    struct pool_stats stats;
    pool_stats(d->pool, &stats);
    fine = fine && stats.used_bytes == 0;
    pool_free(d->pool);
    free(d->out);
    return fine;
}

#endif
