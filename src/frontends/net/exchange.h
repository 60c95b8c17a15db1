/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exchange: one HTTP request and its reply. The connection makes it when a head is complete,
 * fills in the body, hands it to the handler, and sends what the handler replies, in the order of
 * the requests.
 *
 *      on_head ──► on_request ──► exchange_reply() ──► (sent) ──► on_end
 *          │            │                               ▲
 *          │            └─ on_cancel: the client is gone; a reply must still come, and is dropped
 *          └──► on_end: the connection ended before the body was there
 *
 * Exchanges are reused last in, first out, so that in steady state a request allocates nothing: an
 * exchange, its arena's first memory, a small body and the handler's part are one block.
 *
 * Thread: the loop's, everything here.
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

struct budget;
struct exchange;
struct http1;
struct loop;
struct page_order;
struct pool;

/* What a frontend does with requests. */
struct http_handler {
    size_t part_bytes; /* of exchange_part(): the handler's own memory in each exchange */

    /*
     * The head is there, the body may not be; `head` is valid during this call only. May set
     * x->aligned_at, and x->discard when the body does not matter. Optional.
     */
    void (*on_head)(struct exchange *x, const struct http_head *head);
    /* The body is there. Now or later exactly one exchange_reply…() follows. */
    void (*on_request)(struct exchange *x);
    /* The client is gone: the reply will be dropped, the sooner it comes the better. Optional. */
    void (*on_cancel)(struct exchange *x);
    /* The reply has left, or never will: what its bytes belonged to may go. Follows each on_head.
     */
    void (*on_end)(struct exchange *x);
};

struct http_limits {
    size_t max_head_bytes;
    uint64_t max_body_bytes;
    unsigned int max_chunks;   /* of a request body, not counting the last, empty one */
    unsigned int max_pipeline; /* requests of a connection that may wait for their replies */
    /* Of their bodies and replies: beyond that the next request is not looked at; 0 = no limit. */
    size_t max_pipeline_bytes;
};

/* The head of a reply of 200 with no further headers, for the next one that is alike. */
struct reply_memo {
    const char *content_type;
    uint64_t body_bytes;
    size_t json_length;
    size_t length; /* of the text; 0: none is kept */
    char text[192];
};

/* What exchanges tell and ask the connection that they came by. */
struct exchange_events {
    void (*on_replied)(struct http1 *h, struct exchange *x);
    bool (*is_last)(const struct http1 *h, const struct exchange *x); /* since the server drains */
    void (*on_goes_on)(struct http1 *h);                              /* see exchange_goes_on() */
};

/* What the connections of one loop share. */
struct http_env {
    /* Constant once connections exist. */
    const struct http_handler *handler;
    void *handler_ctx; /* the handler's, per loop */
    const struct http_limits *limits;
    struct pool *pool;     /* bodies, outputs */
    struct budget *budget; /* that the pool counts in; NULL: none */
    struct loop *loop;     /* NULL in tests without one */
    char *scratch;         /* where sockets are read to; hot in the cache */
    size_t scratch_bytes;

    const struct exchange_events *events; /* set by http1_init() */
    struct reply_memo reply_memo;
    unsigned int
        requests_left;  /* how many may begin in this iteration; set by who owns the iterations */
    struct list unused; /* exchanges, last used first */
    unsigned int n_unused;
    unsigned int n_least_unused; /* since the last http_env_settle() */
    unsigned int n_used;
    /* The budget has no room for a body that has begun: whether that could be changed. Optional. */
    bool (*make_room)(void *arg, struct http1 *for_whom, size_t bytes);
    void *make_room_arg;
    void (*on_space)(struct http1 *h); /* http1_read_space() has some again. Optional. */
    bool draining;                     /* replies say "Connection: close" from now on, … */
    bool goes_on; /* … unless the connection's client may have something to end (http1.goes_on) */
    /* Told when a connection or an exchange is gone, while draining. Optional. */
    void (*on_left)(void *arg);
    void *on_left_arg;
};

enum {
    EXCHANGE_BLOCK_BYTES = 8192,      /* with everything that is embedded */
    EXCHANGE_SMALL_BODY = 2048,       /* bodies up to here live in the arena */
    EXCHANGE_TRIAL_BYTES = 64 << 10,  /* that must have come before a length is believed */
    EXCHANGE_TRUSTED_BYTES = 1 << 20, /* a length up to here is believed with the first byte */
    /* From here on the pages of a body are made by another thread, this much at a time and ahead.
     */
    EXCHANGE_ORDERED_BYTES = 4 << 20,
    EXCHANGE_MAX_UNUSED = 1024,
    EXCHANGE_IOV = 6,
};

enum exchange_stage {
    EXCHANGE_RECEIVING, /* head seen, body incomplete */
    EXCHANGE_HANDLING,  /* with the handler */
    EXCHANGE_REPLIED,   /* the reply waits to be sent */
    EXCHANGE_ENDED,     /* on_end was called; references may be left */
};

struct exchange {
    struct http_env *env;
    struct http1 *connection; /* NULL when it is gone */
    struct list link;         /* of the connection's, oldest first; of env->unused */
    enum exchange_stage stage;
    unsigned int refs;
    enum http_method method;
    bool keep_alive; /* the connection may go on after this one */
    bool http_1_1;
    bool headed;           /* on_head was called: on_end follows */
    bool discard;          /* the body is read and counted, not kept */
    uint8_t continue_left; /* bytes of "100 Continue" that are still to be sent */
    uint8_t ahead;         /* bytes of the reply that left before it was made: http1_probe() */
    bool awaits_pages;     /* what has come of a chunked body is held until there are more */

    /* The body; the handler may read it from on_request to on_end. */
    char *body;
    size_t body_size;
    size_t body_capacity;
    size_t body_made;         /* of the capacity: to write beyond takes the kernel long */
    struct page_order *order; /* for what follows, up to order_end; NULL: none is under way */
    size_t order_end;
    size_t aligned_at;   /* this byte of the body is to be aligned for tensors */
    void *body_block;    /* from the pool; NULL when the arena has it */
    size_t weight_bytes; /* of body and reply, as the connection counts them */

    struct arena arena; /* the handler's too; lives as long as the exchange */

    /* The reply. */
    struct iovec *iov;
    int n_iov, next_iov;
    struct iovec iov_first[EXCHANGE_IOV];
    char head_text[320];
};

/* exchange_part - the handler's part, part_bytes large, aligned to 64; not cleared. */
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
 * http_env_settle - gives half of the exchanges back to the pool that nobody has needed since the
 * last call; about once a second. Returns whether few are left, so that another call would change
 * nothing.
 */
bool http_env_settle(struct http_env *env);
/* http_env_trim - gives back all that are unused. */
void http_env_trim(struct http_env *env);

/* exchange_ref, exchange_unref - keep the exchange and its memory beyond on_end. */
void exchange_ref(struct exchange *x);
void exchange_unref(struct exchange *x);

/*
 * exchange_goes_on - what the client has begun on this connection may take further requests: for as
 * long as it does, a server that stops keeps the connection (net_options.goes_on).
 */
void exchange_goes_on(struct exchange *x);

/* A reply that is always the same. */
struct http_reply_fixed {
    const char *text;
    size_t length;
    size_t head_length; /* up to and with the empty line */
};

/* An initialiser from literals: status line and headers, each with its CR LF, and the body. */
#define HTTP_REPLY_FIXED(head, body)                                                               \
    {                                                                                              \
        head "\r\n" body, sizeof(head "\r\n" body) - 1, sizeof(head "\r\n") - 1                    \
    }

struct http_reply {
    int status;
    const char *content_type; /* constant; NULL for none */
    const char *headers;      /* more of them: whole lines with CR LF; "" for none */
    size_t headers_length;
    size_t json_length;       /* Inference-Header-Content-Length, when not 0 */
    const struct iovec *body; /* the bytes must stay until on_end; the array itself need not */
    int n_body;
};

/* exchange_reply - the reply of an exchange that is in the handler's hands. */
void exchange_reply(struct exchange *x, const struct http_reply *reply);
void exchange_reply_fixed(struct exchange *x, const struct http_reply_fixed *reply);
/* exchange_reply_text - a small body, copied into the arena. */
void exchange_reply_text(struct exchange *x, int status, const char *content_type, const char *text,
                         size_t length);

/*
 * exchange_reply_error - {"error":"text"}.
 *
 * @text     constant, nothing in it needs an escape
 * @headers  more of them: whole lines with CR LF; "" for none
 */
void exchange_reply_error(struct exchange *x, int status, const char *text, const char *headers);

/* ---- For the connection ------------------------------------------------------------------- */

enum { EXCHANGE_CONTINUE_BYTES = 25 };
extern const char exchange_continue_text[EXCHANGE_CONTINUE_BYTES + 1]; /* the interim reply */

/* exchange_new - NULL when memory ends. */
struct exchange *exchange_new(struct http_env *env, struct http1 *connection);

/*
 * exchange_body_reserve - room for the body's first wanted_bytes, keeping aligned_at aligned; false
 * when memory ends, or the budget has no room.
 *
 * A body that is announced has 64 KiB until these have come, then its whole length in one piece.
 * One of unknown length grows by doubling; from 1 MiB on no byte is copied by that.
 *
 * @length_bytes  of the whole body; 0: unknown
 * @max_bytes     that it may have, when that is unknown
 */
NODISCARD bool exchange_body_reserve(struct exchange *x, size_t wanted_bytes, size_t length_bytes,
                                     size_t max_bytes);

/*
 * exchange_body_must_wait - whether up to n_bytes more of a body of unknown length may not be
 * written yet: its pages are being made, and http_env.on_space() will be called.
 */
bool exchange_body_must_wait(struct exchange *x, size_t n_bytes, size_t max_bytes);

/* exchange_body_came - n_bytes more of it lie where they belong. */
void exchange_body_came(struct exchange *x, size_t n_bytes);

/* exchange_body_drop - the body will not be whole, or nobody wants it. */
void exchange_body_drop(struct exchange *x);

/* http_env_left - a connection or an exchange is gone: tells who waits for that. */
static inline void http_env_left(const struct http_env *env)
{
    if (UNLIKELY(env->draining) && env->on_left)
        env->on_left(env->on_left_arg);
}

/* exchange_end - the connection lets go: on_end, then the connection's reference. */
void exchange_end(struct exchange *x);

/* http_status_text - "404 Not Found". */
const char *http_status_text(int status);

#endif
