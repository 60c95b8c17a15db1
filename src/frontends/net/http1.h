/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP/1.1 of one connection, without the connection: bytes in, exchanges out, bytes out. No
 * system call happens here, so that tests and fuzzers drive exactly what sockets drive.
 *
 * Reading: ask http1_read_space() where the next bytes should go, put them there, and tell
 * http1_received(). A body whose length is known is read to where it stays.
 * Writing: http1_gather() gives what should leave, http1_sent() takes note of what did.
 *
 *      HEAD ──► BODY ──┐        the next request, until one says that it is the last
 *       ▲  └──► CHUNKS ┤
 *       └──────────────┴──► DONE: nothing more is read; over when all replies are sent
 */
#ifndef CONCH_FRONTENDS_NET_HTTP1_H
#define CONCH_FRONTENDS_NET_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "base/list.h"
#include "frontends/net/exchange.h"
#include "frontends/net/head.h"

enum http1_input { HTTP1_HEAD, HTTP1_BODY, HTTP1_CHUNKS, HTTP1_DONE };

enum { HTTP1_LARGE_BYTES = 128 << 10 }; /* what makes a reply large */

struct http1 {
    struct http_env *env;
    void (*on_output)(struct http1 *h); /* something waits to be sent; may be called often */

    enum http1_input input;
    struct head_parser parser;
    struct exchange *current; /* being received: the last of `exchanges`; NULL between two */

    /*
     * Bytes that may not be processed yet, or an unfinished head: a pool block, NULL usually.
     * held[held_start..held_end) are they.
     */
    char *held;
    size_t held_start, held_end, held_capacity;
    bool processing; /* guards against coming back in from a handler */
    bool paused;     /* more lies there than may begin in this iteration: http1_resume() */

    unsigned int n_blank; /* bytes of empty lines in front of the next head */
    uint64_t n_begun;     /* exchanges; tells which one is being received */

    struct list exchanges; /* oldest first */
    unsigned int n_exchanges;
    size_t weight_bytes; /* of bodies that are complete, and of replies */
    bool large_reply;    /* among what waits to be sent: see conn.c */
    bool probing;        /* see http1_probe() */
    bool goes_on;        /* exchange_goes_on() was said */
    bool discards; /* bytes came, or may come, that nobody will read: conn.c ends accordingly */
};

void http1_init(struct http1 *h, struct http_env *env, void (*on_output)(struct http1 *h));

/*
 * http1_abort - the connection is gone. Exchanges in the handler's hands are cancelled and live on
 * until they are replied to; all others end.
 */
void http1_abort(struct http1 *h);

/*
 * http1_end_input - all that the client has sent was received, and it sends no more. Requests that
 * are complete are answered, since it may still read; one that is not is refused.
 */
void http1_end_input(struct http1 *h);

/*
 * http1_probe - the client has closed its sending side: either only that, and it reads the replies,
 * or the connection, and nobody does. TCP says which only when something is sent, since a client
 * that is gone answers with a reset. So the first bytes of the next reply, which are always the
 * same, leave before it is there.
 */
void http1_probe(struct http1 *h);

/*
 * http1_read_space - where the next bytes go: how many pieces were set (1 or 2), 0 when nothing may
 * be read now.
 */
int http1_read_space(struct http1 *h, struct iovec space[2]);

/* http1_received - n_bytes were put into the space. */
void http1_received(struct http1 *h, size_t n_bytes);

/* http1_resume - in a later iteration: goes on with what is held; harmless when nothing is. */
void http1_resume(struct http1 *h);

/* http1_body_left - how much of a body of known length is still to come; 0 outside of one. */
static inline uint64_t http1_body_left(const struct http1 *h)
{
    return h->input == HTTP1_BODY ? h->parser.head.content_length - h->current->body_size : 0;
}

/* http1_awaits_space - a body goes on as soon as there are pages for it: http_env.on_space(). */
static inline bool http1_awaits_space(const struct http1 *h)
{
    const struct exchange *x = h->current;
    if (h->input == HTTP1_BODY)
        return x->body_made < x->body_capacity && x->body_size == x->body_made;
    return h->input == HTTP1_CHUNKS && x->awaits_pages;
}

/* http1_fault - refuses the input from here on: a last reply, then the end. */
void http1_fault(struct http1 *h, int status, const char *text);

/* http1_refuse - the same with 503 and Retry-After, since the memory budget is short. */
void http1_refuse(struct http1 *h);

/*
 * http1_gather - what should leave next, in order.
 *
 * Returns how many pieces were set, 0 when nothing is ready.
 */
int http1_gather(struct http1 *h, struct iovec *pieces, int max_pieces);

/* http1_sent - n_bytes of what was gathered have left; replies that are complete end. */
void http1_sent(struct http1 *h, size_t n_bytes);

/* http1_is_over - no reply is due and none will come: close. */
static inline bool http1_is_over(const struct http1 *h)
{
    return h->input == HTTP1_DONE && h->n_exchanges == 0;
}

/* http1_weight - bytes of bodies and replies that the connection keeps, complete or not. */
static inline size_t http1_weight(const struct http1 *h)
{
    return h->weight_bytes + h->held_capacity + (h->current ? h->current->body_capacity : 0);
}

/* http1_is_idle - between two requests. */
static inline bool http1_is_idle(const struct http1 *h)
{
    return h->n_exchanges == 0 && !h->held && h->input == HTTP1_HEAD && h->parser.parsed == 0;
}

/* http1_is_in_head - a head has begun, and it is up to the client that it ends. */
bool http1_is_in_head(const struct http1 *h);

/* http1_is_kept - although the server stops: its client may have something to end. */
static inline bool http1_is_kept(const struct http1 *h)
{
    return h->goes_on && h->env->goes_on;
}

#endif
