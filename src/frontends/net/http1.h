/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session of one HTTP/1.1 connection (session.h): bytes in, exchanges out, bytes out.
 *
 * Reading: http1_read_space() says where to put the next bytes; http1_received() processes them. A
 * body of known length is read directly into its final memory.
 * Writing: http1_queue_output() adds replies to session.out, in the order of the requests.
 *
 *      HEAD ──► BODY ──┐        the next request, until one is the last
 *       ▲  └──► CHUNKS ┤
 *       └──────────────┴──► DONE: nothing more is read; over when all replies are sent
 *
 * Thread: the loop's.
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

enum { HTTP1_LARGE_BYTES = 128 << 10 }; /* replies from this size on are large */

struct http1 {
    struct session session;
    struct http_env *env;

    enum http1_input input;
    struct head_parser parser;
    struct exchange *current; /* the one being received, last of `exchanges`; or NULL */

    /*
     * Bytes that may not be processed yet, or an incomplete head: held[held_start..held_end), in a
     * pool block. Usually NULL.
     */
    char *held;
    size_t held_start, held_end, held_capacity;
    bool processing; /* process_bytes() runs, and must not be entered again from a handler */

    unsigned int n_blank; /* bytes of empty lines before the next head */
    uint64_t n_begun;     /* exchanges so far; the number of the one being received */

    struct list exchanges; /* oldest first */
    unsigned int n_exchanges;
    size_t weight_bytes; /* of complete bodies and of replies */
    bool probing;        /* see http1_probe() */
    bool goes_on;        /* exchange_goes_on() was called */
    bool has_room;       /* a reply has left: held requests may begin */
};

/* The settings of a service, for protocol.env_new(). */
struct http1_settings {
    const struct http_handler *handler;
    struct http_limits limits;
};

/* The functions below, as the connection calls them; env_new takes struct http1_settings. */
extern const struct protocol http1_protocol;

/* http1_init - makes the state; on_output as in struct session. */
void http1_init(struct http1 *h, struct http_env *env, void (*on_output)(struct session *s));

/*
 * http1_abort - ends the state when the connection is gone. Exchanges that the handler has are
 * cancelled and live until the handler replies; all others end at once.
 */
void http1_abort(struct http1 *h);

/*
 * http1_end_input - the client sends no more, and everything that it has sent was received.
 * Complete requests are answered, since the client may still read. An incomplete request is
 * refused.
 */
void http1_end_input(struct http1 *h);

/*
 * http1_probe - finds out whether a client that has closed its sending side still reads. It may
 * have closed only that side, or the whole connection. TCP shows the difference only when something
 * is sent: a client that is gone answers with a reset. So the first bytes of the next reply, which
 * are always the same, are sent before the reply is there. Between the parts of a reply it is the
 * first digit of the next chunk, or without chunks http_reply.filler.
 */
void http1_probe(struct http1 *h);

/* http1_wants_input - whether bytes may be read now. */
bool http1_wants_input(const struct http1 *h);

/*
 * http1_read_space - where to put the next bytes: returns the number of pieces (1 or 2), or 0
 * unless http1_wants_input().
 */
int http1_read_space(struct http1 *h, struct iovec space[2]);

/* http1_received - processes n_bytes that were put into the space. */
void http1_received(struct http1 *h, size_t n_bytes);

/* http1_resume - in a later iteration: goes on with the held bytes; harmless without any. */
void http1_resume(struct http1 *h);

/* http1_body_left - the missing bytes of a body of known length; 0 outside of one. */
static inline uint64_t http1_body_left(const struct http1 *h)
{
    return h->input == HTTP1_BODY ? h->parser.head.content_length - h->current->body_size : 0;
}

/* http1_awaits_space - whether a body waits for pages, until net_env.on_space() is called. */
static inline bool http1_awaits_space(const struct http1 *h)
{
    const struct exchange *x = h->current;
    if (h->input == HTTP1_BODY)
        return x->body_made < x->body_capacity && x->body_size == x->body_made;
    return h->input == HTTP1_CHUNKS && x->awaits_pages;
}

/* http1_fault - refuses all further input: sends a last reply, then closes. */
void http1_fault(struct http1 *h, int status, const char *text);

/* http1_refuse - the same with 503 and Retry-After, when the memory budget is short. */
void http1_refuse(struct http1 *h);

/* http1_queue_output - adds what may be sent now to session.out, in the order of the requests. */
void http1_queue_output(struct http1 *h);

/* http1_is_idle - whether the connection is between two requests. */
static inline bool http1_is_idle(const struct http1 *h)
{
    return h->n_exchanges == 0 && !h->held && h->input == HTTP1_HEAD && h->parser.parsed == 0;
}

/*
 * http1_is_kept - whether the connection stays open although the server stops, because its client
 * may have begun something to end (exchange_goes_on()).
 */
static inline bool http1_is_kept(const struct http1 *h)
{
    return h->goes_on && h->env->net.goes_on;
}

/*
 * http1_is_over - true when the connection owes no reply and takes no further request, so that it
 * can be closed. While the service stops, that is also so between two requests.
 */
static inline bool http1_is_over(const struct http1 *h)
{
    return h->n_exchanges == 0 &&
           (h->input == HTTP1_DONE ||
            (UNLIKELY(h->env->net.draining) && http1_is_idle(h) && !http1_is_kept(h)));
}

/* http1_weight - the bytes of bodies and replies that the connection keeps, complete or not. */
static inline size_t http1_weight(const struct http1 *h)
{
    return h->weight_bytes + h->held_capacity + (h->current ? h->current->body_capacity : 0);
}

/* http1_is_in_head - whether a head has begun and its rest must still come from the client. */
bool http1_is_in_head(const struct http1 *h);

#endif
