/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exchange: one HTTP request and its reply. The connection makes it when a head is complete,
 * receives the body, and hands the exchange to the handler. It sends the handler's replies in the
 * order of the requests.
 *
 *      on_head ──► on_request ──► exchange_reply() ──► (sent) ──► on_end
 *          │            │                               ▲
 *          │            └─ on_cancel: the client is gone; a reply must still come, and is dropped
 *          └──► on_end: the connection ended before the body was complete
 *
 * A reply whose length is not known comes in parts: exchange_reply_begin(), _more(), _end().
 *
 * Exchanges are reused last in, first out. One block holds an exchange, the first memory of its
 * arena, a small body and the handler's part. So in steady state a request allocates nothing.
 *
 * Thread: the loop's, for everything here.
 */
#ifndef CONCH_FRONTENDS_NET_EXCHANGE_H
#define CONCH_FRONTENDS_NET_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/arena.h"
#include "base/list.h"
#include "frontends/net/head.h"
#include "frontends/net/out_queue.h"
#include "frontends/net/session.h"

struct exchange;
struct http1;
struct page_order;

/* The callbacks of a frontend. */
struct http_handler {
    size_t part_bytes; /* of exchange_part(): the handler's own memory in each exchange */

    /*
     * The head is complete, the body may not be. `head` is valid during this call only. The handler
     * may set x->aligned_at, and x->discard when it needs no body. Optional.
     */
    void (*on_head)(struct exchange *x, const struct http_head *head);
    /*
     * The body is complete. Exactly one exchange_reply…() must follow, now or later; or one
     * exchange_reply_begin(), any number of exchange_reply_more(), and one exchange_reply_end().
     */
    void (*on_request)(struct exchange *x);
    /* The client is gone. The handler should reply soon; the reply is dropped. Optional. */
    void (*on_cancel)(struct exchange *x);
    /*
     * The reply is sent or dropped: the memory of its bytes may be freed. Called once for each
     * on_head.
     */
    void (*on_end)(struct exchange *x);
    /*
     * Further headers of every reply, also of those that the connection makes, which may come
     * without on_head: whole lines with CR LF, never empty, which stay until on_end. Optional; with
     * it no head of a reply is remembered.
     */
    struct span (*find_headers)(struct exchange *x);
};

struct http_limits {
    size_t max_head_bytes;
    uint64_t max_body_bytes;
    unsigned int max_chunks;   /* of a request body, without the last, empty one */
    unsigned int max_pipeline; /* requests of a connection that may await replies */
    /*
     * The most bytes of bodies and replies of a connection. Beyond them the connection's next
     * request is not read yet. 0: no limit.
     */
    size_t max_pipeline_bytes;
};

/* The head of the last reply of 200 without further headers, for reuse when the next is equal. */
struct reply_memo {
    const char *content_type;
    uint64_t body_bytes;
    size_t json_length;
    size_t length; /* of the text; 0: nothing is kept */
    char text[192];
};

/* The calls from an exchange to its connection. */
struct exchange_events {
    void (*on_replied)(struct http1 *h, struct exchange *x);
    /* x->weight_bytes has changed from old_bytes. */
    void (*on_weight)(struct http1 *h, struct exchange *x, size_t old_bytes);
    /* A reply in parts has n_bytes more to send, has sent or dropped n_bytes, has sent all. */
    void (*on_part)(struct http1 *h, struct exchange *x, size_t n_bytes);
    void (*on_part_left)(struct http1 *h, struct exchange *x, size_t n_bytes);
    void (*on_parts_sent)(struct http1 *h, struct exchange *x);
    bool (*is_last)(const struct http1 *h, const struct exchange *x); /* the server drains */
    void (*on_goes_on)(struct http1 *h);                              /* see exchange_goes_on() */
    void (*on_pages)(struct http1 *h); /* a body that has waited for pages can go on */
    bool (*make_room)(struct http1 *h, size_t bytes); /* see net_env.make_room */
};

/* The data that the HTTP/1.1 connections of one service on one loop share. */
struct http_env {
    struct net_env net;

    /* Constant once connections exist. */
    const struct http_handler *handler;
    const struct http_limits *limits;

    const struct exchange_events *events; /* set by http1_init() */
    struct reply_memo reply_memo;
    struct list unused; /* exchanges, last used first */
    unsigned int n_unused;
    unsigned int n_least_unused; /* the least n_unused since the last http_env_settle() */
};

enum {
    EXCHANGE_BLOCK_BYTES = 8192,      /* an exchange with everything embedded in it */
    EXCHANGE_SMALL_BODY = 2048,       /* bodies up to here live in the arena */
    EXCHANGE_TRIAL_BYTES = 64 << 10,  /* must have come before a larger length is believed */
    EXCHANGE_TRUSTED_BYTES = 1 << 20, /* a length up to here is believed with the first byte */
    /*
     * For bodies from this size on, another thread makes the pages ahead, in pieces of this size.
     */
    EXCHANGE_ORDERED_BYTES = 4 << 20,
    EXCHANGE_MAX_UNUSED = 1024,
    EXCHANGE_PIECES = 6,
};

enum exchange_stage {
    EXCHANGE_RECEIVING, /* head seen, body incomplete */
    EXCHANGE_HANDLING,  /* in the handler's hands */
    EXCHANGE_REPLYING,  /* … and its reply has begun, in parts */
    EXCHANGE_REPLIED,   /* the reply waits for those before it */
    EXCHANGE_SENDING,   /* the reply is in the out-queue */
    EXCHANGE_ENDED,     /* on_end was called; there may still be references */
};

/* What an exchange knows of its reply in parts. */
struct parted_reply {
    int status;
    struct out_queue waiting; /* pieces that wait for the replies of earlier requests */
    unsigned int n_unsent;    /* the head, parts and end that have neither left nor been dropped */
    bool is_chunked;          /* else the end of the connection ends the reply: HTTP/1.0 */
    bool has_ended;
    const char *filler; /* http_reply.filler */
    bool is_probed;     /* http1_probe() has queued its byte */
};

struct exchange {
    struct http_env *env;
    struct http1 *connection; /* NULL when the connection is gone */
    struct list link;         /* in connection->exchanges, oldest first, or in env->unused */
    enum exchange_stage stage;
    unsigned int refs;
    enum http_method method;
    bool keep_alive; /* the connection may stay open after this exchange */
    bool http_1_1;
    bool headed;         /* on_head was called: on_end follows */
    bool discard;        /* the body is read and counted, not kept */
    bool wants_continue; /* the client is to be told to go on with its body */
    bool interim_queued; /* `interim` is in the out-queue */
    bool in_parts;       /* the reply comes in parts: `parts` is valid */
    uint8_t ahead;       /* bytes of the reply queued before it was made: http1_probe() */
    bool awaits_pages;   /* a chunked body waits for pages; its bytes are held meanwhile */

    /* The body; the handler may read it from on_request to on_end. */
    char *body;
    size_t body_size;
    size_t body_capacity;
    size_t body_made; /* the part of the capacity that has pages; beyond it writes are slow */
    struct page_order *order; /* an order for pages up to order_end; NULL: there is none */
    size_t order_end;
    size_t aligned_at;   /* this byte of the body shall be aligned for tensors */
    void *body_block;    /* a pool block; NULL when the body is in the arena */
    size_t weight_bytes; /* bytes of body and reply, as http1.weight_bytes counts them */

    struct arena arena; /* the handler may use it, too; lives as long as the exchange */

    /* The reply. */
    struct out_piece *pieces; /* an array */
    int n_pieces;
    size_t reply_bytes;
    int status;               /* of HTTP; 0: no reply was made, or its client was gone */
    struct out_piece interim; /* what leaves before the reply: "100 Continue", `ahead` */
    struct parted_reply parts;
    struct out_piece first_pieces[EXCHANGE_PIECES];
    char head_text[320];
};

/* exchange_part - the handler's part: part_bytes large, aligned to 64 bytes, not cleared. */
static inline void *exchange_part(struct exchange *x)
{
    return (char *)x + ((sizeof(*x) + 63) & ~(size_t)63);
}

/* exchange_of_part - the exchange around the handler's part. */
static inline struct exchange *exchange_of_part(void *part)
{
    return (struct exchange *)(void *)((char *)part -
                                       ((sizeof(struct exchange) + 63) & ~(size_t)63));
}

void http_env_init(struct http_env *env, const struct http_handler *handler, void *handler_ctx,
                   const struct http_limits *limits, struct pool *pool, struct loop *loop,
                   char *scratch, size_t scratch_bytes);
/* http_env_done - frees the unused exchanges; none may be in use. */
void http_env_done(struct http_env *env);

/*
 * http_env_settle - frees half of the exchanges that were not needed since the last call. Call it
 * about once a second. Returns true when few are left, so that another call would change nothing.
 */
bool http_env_settle(struct http_env *env);
/* http_env_trim - frees all unused exchanges. */
void http_env_trim(struct http_env *env);

/* exchange_ref, exchange_unref - references that keep the exchange and its memory beyond on_end. */
void exchange_ref(struct exchange *x);
void exchange_unref(struct exchange *x);

/*
 * exchange_body_lead - the free bytes that a block for the body needs in front of it, so that
 * x->aligned_at is aligned.
 */
size_t exchange_body_lead(const struct exchange *x);

/*
 * exchange_body_replace - gives an exchange in the handler's hands another body, such as the
 * unpacked one: n_bytes behind the first lead_bytes of a block of the loop's pool, which is taken.
 */
void exchange_body_replace(struct exchange *x, char *block, size_t lead_bytes, size_t n_bytes);

/*
 * exchange_goes_on - records that the client has begun something on this connection, such as a
 * sequence, that may take further requests. While that is so, a server that stops keeps the
 * connection open (net_options.goes_on).
 */
void exchange_goes_on(struct exchange *x);

/* A reply that is always the same. */
struct http_reply_fixed {
    const char *text;
    size_t length;
    size_t head_length; /* including the empty line */
};

/* An initialiser from literals: status line and headers, each with its CR LF; then the body. */
#define HTTP_REPLY_FIXED(head, body)                                                               \
    {                                                                                              \
        head "\r\n" body, sizeof(head "\r\n" body) - 1, sizeof(head "\r\n") - 1                    \
    }

struct http_reply {
    int status;
    const char *content_type; /* constant; NULL for none */
    const char *headers;      /* further headers: whole lines with CR LF; "" for none */
    size_t headers_length;
    size_t json_length;       /* Inference-Header-Content-Length, when not 0 */
    bool length_in_type;      /* that length stands at the end of the content type instead */
    const struct iovec *body; /* the bytes must stay until on_end; the array need not */
    int n_body;
    /* Of a reply in parts: a static text of one byte that means nothing between two parts. It may
     * be sent to find out whether the client still reads. NULL: there is none. */
    const char *filler;
};

/* exchange_reply - sends the reply of an exchange that is in the handler's hands. */
void exchange_reply(struct exchange *x, const struct http_reply *reply);
void exchange_reply_fixed(struct exchange *x, const struct http_reply_fixed *reply);
/* exchange_reply_text - the same with a small body, which is copied into the arena. */
void exchange_reply_text(struct exchange *x, int status, const char *content_type, const char *text,
                         size_t length);

/* exchange_reply_copied - likewise, with further headers as in struct http_reply. */
void exchange_reply_copied(struct exchange *x, int status, const char *content_type,
                           const char *headers, const char *text, size_t length);

/*
 * exchange_reply_error - replies {"error":"text"}.
 *
 * @text     constant; must not need an escape
 * @headers  further headers: whole lines with CR LF; "" for none
 */
void exchange_reply_error(struct exchange *x, int status, const char *text, const char *headers);

/* A part of a reply in parts, in memory of the handler's. All members are the exchange's. */
struct reply_part {
    struct exchange *exchange;
    size_t n_bytes; /* of all pieces */
    void (*release)(void *owner);
    void *owner;
    struct out_piece pieces[3]; /* the chunk's head, the bytes, the chunk's end */
    char head_text[20];
};

/*
 * exchange_reply_begin - begins a reply in parts: chunks, or in HTTP/1.0 bytes until the connection
 * is closed. The head leaves at the end of the iteration, with the parts that have come by then.
 * False: memory is exhausted, an error was replied instead, and no part may follow.
 *
 * @reply  without a body and without json_length
 */
NODISCARD bool exchange_reply_begin(struct exchange *x, const struct http_reply *reply);

/*
 * exchange_reply_more - adds a part. All parts of an iteration leave in one write. When the client
 * is gone, the part is released at once.
 *
 * @part     stays until the release, as do the bytes
 * @n_bytes  at least 1
 * @release  called when the bytes are sent or dropped; must not reply, nor change the out-queue
 */
void exchange_reply_more(struct exchange *x, struct reply_part *part, const char *bytes,
                         size_t n_bytes, void (*release)(void *owner), void *owner);

/* exchange_reply_end - the reply is complete. on_end follows, now or when all parts have left. */
void exchange_reply_end(struct exchange *x);

/* ---- For the connection ------------------------------------------------------------------- */

enum { EXCHANGE_CONTINUE_BYTES = 25 };
extern const char exchange_continue_text[EXCHANGE_CONTINUE_BYTES + 1]; /* "100 Continue" */

/* exchange_new - makes an exchange; NULL when memory is exhausted. */
struct exchange *exchange_new(struct http_env *env, struct http1 *connection);

/*
 * exchange_body_reserve - makes room for the first wanted_bytes of the body, with aligned_at
 * aligned. False when memory is exhausted or the budget has no room.
 *
 * A body of known length first gets 64 KiB; once these have come it gets its whole length in one
 * piece. A body of unknown length grows by doubling; from 1 MiB on that copies no byte.
 *
 * @length_bytes  of the whole body; 0: unknown
 * @max_bytes     the most that a body of unknown length may have
 */
NODISCARD bool exchange_body_reserve(struct exchange *x, size_t wanted_bytes, size_t length_bytes,
                                     size_t max_bytes);

/*
 * exchange_body_must_wait - for a body of unknown length: true when n_bytes more may not be written
 * yet, because their pages are being made. net_env.on_space() is called when the pages are ready.
 */
bool exchange_body_must_wait(struct exchange *x, size_t n_bytes, size_t max_bytes);

/* exchange_body_came - records that n_bytes more of the body have been written to it. */
void exchange_body_came(struct exchange *x, size_t n_bytes);

/* exchange_body_drop - frees a body that stays incomplete or is not needed. */
void exchange_body_drop(struct exchange *x);

/*
 * exchange_queue_parts - moves the parts that wait to the out-queue. All replies before this one
 * must be there.
 */
void exchange_queue_parts(struct exchange *x, struct out_queue *out);

/* exchange_drop_parts - releases the parts that wait, of an exchange without a connection. */
void exchange_drop_parts(struct exchange *x);

/* exchange_end - calls on_end and ends the connection's reference. */
void exchange_end(struct exchange *x);

/* http_status_text - such as "404 Not Found"; static. */
const char *http_status_text(int status);

#endif
