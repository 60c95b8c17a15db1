/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading fills one exchange at a time, `current`. Writing sends the replies in the order of the
 * requests, whatever the order in which they become ready.
 *
 * Read process_bytes() first: by the state `input` it calls take_head(), take_body() or
 * take_chunks(), until dispatch_exchange() hands a complete exchange to the handler. `held` keeps
 * bytes that must wait: an unfinished head, a full pipeline (is_blocked()), an iteration of the
 * loop that may begin no more requests (must_pause()), or a chunked body whose memory is not ready
 * (must_wait()). Each fault ends in refuse_input(): one error reply, and no input after it.
 *
 * Thread: the loop's. A handler may reply before on_request() returns, which calls back into this
 * file; `processing` then keeps process_bytes() from being entered twice.
 */
#include "frontends/net/http1.h"

#include <string.h>

#include "base/budget.h"
#include "base/mem.h"
#include "base/pool.h"

/* Clients and their tests look for "request JSON size" and what follows, whatever the body is. */
#define BODY_TOO_LARGE                                                                             \
    "request body or request JSON size exceeds the maximum allowed input size. Use "               \
    "--http-max-body-size to increase the limit."

/* What every reply begins with. */
static const char version_text[] = "HTTP/1.1 ";

enum { VERSION_BYTES = sizeof(version_text) - 1 };

enum { HTTP_NO_ROOM = -1 }; /* a fault of on_chunk_data(): there is no room for the data */

static bool on_chunk_data(void *ctx, const char *bytes, size_t n_bytes);

static const struct exchange_events events;

void http1_init(struct http1 *h, struct http_env *env, void (*on_output)(struct http1 *h))
{
    *h = (struct http1){.env = env, .on_output = on_output, .input = HTTP1_HEAD};
    env->events = &events;
    list_init(&h->exchanges);
    head_parser_init(&h->parser, env->limits->max_chunks);
    h->parser.on_data = on_chunk_data;
    h->parser.ctx = h;
}

static void drop_held(struct http1 *h)
{
    pool_release(TAKE(h->held));
    h->held_start = h->held_end = h->held_capacity = 0;
}

/* The exchange is the connection's no more. */
static void let_go(struct http1 *h, struct exchange *x)
{
    h->n_exchanges--;
    h->weight_bytes -= x->weight_bytes;
}

/* What it keeps until its reply has left. */
static void add_weight(struct http1 *h, struct exchange *x, size_t bytes)
{
    x->weight_bytes += bytes;
    h->weight_bytes += bytes;
}

void http1_abort(struct http1 *h)
{
    struct list *link;
    while ((link = list_pop(&h->exchanges))) {
        struct exchange *x = LIST_ENTRY(link, struct exchange, link);
        let_go(h, x);
        if (x->stage == EXCHANGE_HANDLING) {
            x->connection = NULL;
            if (h->env->handler->on_cancel)
                h->env->handler->on_cancel(x);
        } else {
            exchange_end(x);
        }
    }
    h->current = NULL;
    h->input = HTTP1_DONE;
    drop_held(h);
}

/* ---- Reading ------------------------------------------------------------------------------- */

static bool is_blocked(const struct http1 *h)
{
    const struct http_limits *limits = h->env->limits;
    if (h->input != HTTP1_HEAD)
        return false;
    return h->n_exchanges >= limits->max_pipeline ||
           (limits->max_pipeline_bytes > 0 && h->weight_bytes >= limits->max_pipeline_bytes);
}

/* The next request does not begin in this iteration. */
static bool must_pause(const struct http1 *h)
{
    return UNLIKELY(h->env->requests_left == 0) && h->input == HTTP1_HEAD && h->parser.parsed == 0;
}

int http1_read_space(struct http1 *h, struct iovec space[2])
{
    struct iovec scratch = {h->env->scratch, h->env->scratch_bytes};

    if (h->input == HTTP1_DONE || h->paused)
        return 0;
    if (h->input == HTTP1_CHUNKS && UNLIKELY(h->current->awaits_pages))
        return 0;
    if (h->held) {
        if (is_blocked(h) || h->held_end == h->held_capacity)
            return 0;
        space[0] = (struct iovec){h->held + h->held_end, h->held_capacity - h->held_end};
        return 1;
    }
    if (is_blocked(h))
        return 0;
    struct exchange *x = h->current;
    /* A body that is only announced has no place of its own yet. */
    if (h->input == HTTP1_BODY && x->body_capacity > x->body_size) {
        space[0] = (struct iovec){x->body + x->body_size, x->body_made - x->body_size};
        if (UNLIKELY(x->body_made < x->body_capacity))
            return space[0].iov_len > 0;
        /* The last part of a body: whatever follows it comes along with the same call. */
        space[1] = scratch;
        return 2;
    }
    space[0] = scratch;
    return 1;
}

/* Keeps bytes for later; they may lie in `held` itself. */
static void hold_bytes(struct http1 *h, const char *bytes, size_t n_bytes)
{
    if (n_bytes == 0) {
        drop_held(h);
        return;
    }
    if (h->held) {
        h->held_start = (size_t)(bytes - h->held);
        if (h->held_start > 0) {
            memmove(h->held, bytes, n_bytes);
            h->held_start = 0;
        }
        h->held_end = n_bytes;
        return;
    }
    size_t capacity = MAX(h->env->limits->max_head_bytes, h->env->scratch_bytes);
    h->held = pool_alloc(h->env->pool, capacity, NULL);
    if (!h->held) {
        http1_fault(h, 503, "out of memory");
        return;
    }
    memcpy(h->held, bytes, n_bytes); /* a part of a head, or what came ahead of its time */
    h->held_start = 0;
    h->held_end = n_bytes;
    h->held_capacity = capacity;
}

static struct exchange *exchange_begin(struct http1 *h)
{
    struct exchange *x = exchange_new(h->env, h);
    if (!x)
        return NULL;
    x->method = METHOD_GET;
    x->http_1_1 = true;
    x->keep_alive = true;
    list_push(&h->exchanges, &x->link);
    h->n_exchanges++;
    h->n_begun++;
    h->n_blank = 0;
    return x;
}

/* Nobody waits for the interim reply any more; but what has begun to leave must end. */
static void forget_continue(struct exchange *x)
{
    if (x->continue_left == EXCHANGE_CONTINUE_BYTES)
        x->continue_left = 0;
}

static void refuse_input(struct http1 *h, int status, const char *text, const char *headers)
{
    if (h->input == HTTP1_DONE)
        return;
    struct exchange *x = TAKE(h->current);
    if (!x)
        x = exchange_begin(h);
    h->input = HTTP1_DONE;
    h->discards = true;
    if (!x) { /* no memory to say so: the connection just ends */
        h->on_output(h);
        return;
    }
    x->keep_alive = false;
    forget_continue(x);
    exchange_body_drop(x); /* nobody has seen it */
    x->stage = EXCHANGE_HANDLING;
    exchange_reply_error(x, status, text, headers);
}

void http1_fault(struct http1 *h, int status, const char *text)
{
    refuse_input(h, status, text, "");
}

void http1_refuse(struct http1 *h)
{
    refuse_input(h, 503, "out of memory for requests: try again later", "Retry-After: 1\r\n");
}

void http1_end_input(struct http1 *h)
{
    if (h->current || h->parser.parsed > 0) {
        http1_fault(h, 400, "the request is incomplete: the client sends no more");
        return;
    }
    h->input = HTTP1_DONE;
    drop_held(h);
}

void http1_probe(struct http1 *h)
{
    if (h->probing)
        return;
    h->probing = true;
    h->on_output(h);
}

/* The body of the current exchange is complete. */
static void dispatch_exchange(struct http1 *h)
{
    struct exchange *x = TAKE(h->current);
    if (x->keep_alive) {
        h->input = HTTP1_HEAD;
        head_parser_reset(&h->parser);
    } else {
        h->input = HTTP1_DONE;
    }
    x->stage = EXCHANGE_HANDLING;
    add_weight(h, x, x->body_capacity);
    forget_continue(x);
    h->env->handler->on_request(x);
}

/* A large body is refused before it is read; when it comes there may be no room after all. */
static void check_budget(struct http1 *h, size_t length)
{
    struct budget *b = h->env->budget;
    if (!b)
        return;
    if (!budget_could_hold(b, length))
        http1_fault(h, 413, "the request body is larger than the memory for all requests");
    else if (!budget_has_room(b, length))
        http1_refuse(h);
}

static void begin_body(struct http1 *h, const struct http_head *head)
{
    struct exchange *x = h->current;
    const struct http_limits *limits = h->env->limits;

    if (head->content_length > limits->max_body_bytes) {
        http1_fault(h, 413, BODY_TOO_LARGE);
        return;
    }
    h->input = head->chunked ? HTTP1_CHUNKS : HTTP1_BODY;
    if (head->chunked || x->discard) /* memory is taken as the chunks come, or never */
        return;
    size_t length = (size_t)head->content_length;
    if (length <= EXCHANGE_SMALL_BODY) { /* the exchange has that already */
        if (!exchange_body_reserve(x, length, length, length))
            http1_refuse(h);
    } else if (length > EXCHANGE_TRIAL_BYTES) {
        check_budget(h, length);
    }
}

/* A head is complete. */
static void begin_exchange(struct http1 *h, bool body_follows)
{
    const struct http_head *head = &h->parser.head;
    struct exchange *x = exchange_begin(h);
    if (!x) {
        http1_fault(h, 503, "out of memory");
        return;
    }
    h->env->requests_left -= h->env->requests_left > 0; /* its head may have begun before */
    h->current = x;
    x->method = head->method;
    x->http_1_1 = head->http_1_1;
    x->keep_alive = head->keep_alive;
    x->headed = true;
    if (h->env->handler->on_head)
        h->env->handler->on_head(x, head);

    bool has_body = head->content_length > 0 || head->chunked;
    if (UNLIKELY(head->expects_continue) && head->http_1_1 && has_body && !body_follows)
        x->continue_left = EXCHANGE_CONTINUE_BYTES;

    if (!has_body) {
        dispatch_exchange(h);
        return;
    }
    begin_body(h, head);
    if (x->continue_left > 0)
        h->on_output(h);
}

/* Goes on with a head at bytes; how much was used, SIZE_MAX to wait for more. */
static size_t take_head(struct http1 *h, const char *bytes, size_t n_bytes)
{
    size_t max_bytes = MIN(h->env->limits->max_head_bytes, (size_t)HEAD_MAX_BYTES);
    size_t end = 0;

    /* Empty lines in front of a request are ignored (RFC 9112, 2.2). */
    if (UNLIKELY(h->parser.parsed == 0 && (bytes[0] == '\r' || bytes[0] == '\n'))) {
        h->n_blank++;
        return 1;
    }

    switch (head_parse(&h->parser, bytes, MIN(n_bytes, max_bytes), &end)) {
    case PARSE_MORE:
        if (n_bytes >= max_bytes) {
            http1_fault(h, 431, "the request head is too large");
            return 0;
        }
        return SIZE_MAX;
    case PARSE_FAULT:
        http1_fault(h, h->parser.fault.status, h->parser.fault.text);
        return 0;
    case PARSE_DONE:
        break;
    }
    begin_exchange(h, n_bytes > end);
    return end;
}

static size_t take_body(struct http1 *h, const char *bytes, size_t n_bytes)
{
    struct exchange *x = h->current;
    size_t length = (size_t)h->parser.head.content_length;
    size_t n = MIN(n_bytes, length - x->body_size);

    if (!x->discard) {
        if (!exchange_body_reserve(x, x->body_size + n, length, length)) {
            http1_refuse(h);
            return 0;
        }
        /* A copy of what came along with the head: at most the scratch buffer. */
        memcpy(x->body + x->body_size, bytes, n);
        exchange_body_came(x, n);
    } else {
        x->body_size += n;
    }
    if (x->body_size == length)
        dispatch_exchange(h);
    return n;
}

static bool on_chunk_data(void *ctx, const char *bytes, size_t n_bytes)
{
    struct http1 *h = ctx;
    struct exchange *x = h->current;
    uint64_t max_bytes = h->env->limits->max_body_bytes;

    if (n_bytes > max_bytes - x->body_size) {
        h->parser.fault = (struct http_fault){413, BODY_TOO_LARGE};
        return false;
    }
    if (!x->discard) {
        if (!exchange_body_reserve(x, x->body_size + n_bytes, 0, (size_t)max_bytes)) {
            h->parser.fault = (struct http_fault){HTTP_NO_ROOM, NULL};
            return false;
        }
        /* A copy: chunk headers stand between the pieces. */
        memcpy(x->body + x->body_size, bytes, n_bytes);
        exchange_body_came(x, n_bytes);
    } else {
        x->body_size += n_bytes;
    }
    return true;
}

/* What is left of a chunked body may be less than n_bytes, since it has heads of chunks. */
static bool must_wait(const struct http1 *h, size_t n_bytes)
{
    return h->input == HTTP1_CHUNKS && !h->current->discard &&
           exchange_body_must_wait(h->current, n_bytes, (size_t)h->env->limits->max_body_bytes);
}

static size_t take_chunks(struct http1 *h, const char *bytes, size_t n_bytes)
{
    size_t used = n_bytes;
    switch (head_parse_chunks(&h->parser, bytes, n_bytes, &used)) {
    case PARSE_MORE:
        return n_bytes;
    case PARSE_FAULT:
        if (h->parser.fault.status == HTTP_NO_ROOM)
            http1_refuse(h);
        else
            http1_fault(h, h->parser.fault.status, h->parser.fault.text);
        return 0;
    case PARSE_DONE:
        dispatch_exchange(h);
        return used;
    }
    return n_bytes;
}

/* Takes from bytes what may be taken now, and holds the rest. */
static void process_bytes(struct http1 *h, const char *bytes, size_t n_bytes)
{
    h->processing = true;
    while (n_bytes > 0 && h->input != HTTP1_DONE && !is_blocked(h) && !must_pause(h) &&
           !must_wait(h, n_bytes)) {
        size_t used = 0;
        if (h->input == HTTP1_HEAD)
            used = take_head(h, bytes, n_bytes);
        else if (h->input == HTTP1_BODY)
            used = take_body(h, bytes, n_bytes);
        else if (h->input == HTTP1_CHUNKS)
            used = take_chunks(h, bytes, n_bytes);
        if (used == SIZE_MAX)
            break;
        bytes += used;
        n_bytes -= used;
    }
    h->processing = false;
    h->paused = n_bytes > 0 && h->input != HTTP1_DONE && !is_blocked(h) && must_pause(h);
    if (h->input == HTTP1_DONE) {
        h->discards |= n_bytes > 0;
        drop_held(h);
    } else if (n_bytes > 0 || h->held) {
        hold_bytes(h, bytes, n_bytes);
    }
}

void http1_received(struct http1 *h, size_t n_bytes)
{
    if (h->input == HTTP1_DONE || n_bytes == 0)
        return;
    if (h->held) {
        h->held_end += n_bytes;
        process_bytes(h, h->held + h->held_start, h->held_end - h->held_start);
        return;
    }
    if (h->input != HTTP1_BODY || h->current->body_capacity <= h->current->body_size) {
        process_bytes(h, h->env->scratch, n_bytes);
        return;
    }

    /* Straight into the body, and perhaps beyond it into the scratch buffer. */
    struct exchange *x = h->current;
    size_t length = (size_t)h->parser.head.content_length;
    size_t direct = MIN(n_bytes, x->body_capacity - x->body_size);
    exchange_body_came(x, direct);
    n_bytes -= direct;
    if (x->body_size == length) {
        dispatch_exchange(h);
    } else if (x->body_size == x->body_capacity &&
               /* The trial is full: the length is believed now, also when no byte lies beyond. */
               !exchange_body_reserve(x, x->body_size + MAX(n_bytes, (size_t)1), length, length)) {
        http1_refuse(h);
    }
    if (n_bytes > 0 && h->input != HTTP1_DONE)
        process_bytes(h, h->env->scratch, n_bytes);
}

bool http1_is_in_head(const struct http1 *h)
{
    enum { MAX_BLANK = 4 }; /* what clients are known to send behind a body */
    if (h->input != HTTP1_HEAD || h->paused || is_blocked(h))
        return false;
    return h->parser.parsed > 0 || h->n_blank > MAX_BLANK;
}

void http1_resume(struct http1 *h)
{
    h->paused = false;
    if (h->held && !h->processing && !is_blocked(h))
        process_bytes(h, h->held + h->held_start, h->held_end - h->held_start);
}

/* ---- Writing ------------------------------------------------------------------------------- */

static void on_replied(struct http1 *h, struct exchange *x)
{
    if (!x->keep_alive && h->input != HTTP1_DONE) {
        /* Decided while replying, since the server drains: the client has been told. */
        h->input = HTTP1_DONE;
        h->discards |= h->held != NULL;
        if (!h->processing)
            drop_held(h);
    }
    if (UNLIKELY(x->ahead > 0)) { /* and all of "100 Continue" has left: the head is first */
        BUG_ON(memcmp(x->iov[0].iov_base, version_text, VERSION_BYTES) != 0);
        x->iov[0].iov_base = (char *)x->iov[0].iov_base + x->ahead;
        x->iov[0].iov_len -= x->ahead;
    }
    size_t size_bytes = 0;
    for (int i = 0; i < x->n_iov; i++)
        size_bytes += x->iov[i].iov_len;
    if (size_bytes >= HTTP1_LARGE_BYTES)
        h->large_reply = true;
    add_weight(h, x, size_bytes);
    h->on_output(h);
}

/* The server drains, no request came after this one, and the client has nothing to end. */
static bool is_last(const struct http1 *h, const struct exchange *x)
{
    return h->exchanges.prev == &x->link && !http1_is_kept(h);
}

static void on_goes_on(struct http1 *h)
{
    h->goes_on = true;
}

static const struct exchange_events events = {on_replied, is_last, on_goes_on};

int http1_gather(struct http1 *h, struct iovec *pieces, int max_pieces)
{
    int n = 0;
    LIST_FOR_EACH (link, &h->exchanges) {
        struct exchange *x = LIST_ENTRY(link, struct exchange, link);
        if (x->stage != EXCHANGE_REPLIED) {
            /* Only the first request that is not replied to may be told to go on with its body. */
            if (x->continue_left > 0 && n < max_pieces) {
                const char *rest =
                    exchange_continue_text + EXCHANGE_CONTINUE_BYTES - x->continue_left;
                pieces[n++] = (struct iovec){(void *)(uintptr_t)rest, x->continue_left};
            } else if (UNLIKELY(h->probing) && x->stage == EXCHANGE_HANDLING &&
                       x->ahead < VERSION_BYTES && n < max_pieces) {
                pieces[n++] = (struct iovec){(void *)(uintptr_t)(version_text + x->ahead),
                                             VERSION_BYTES - x->ahead};
            }
            break;
        }
        for (int i = x->next_iov; i < x->n_iov && n < max_pieces; i++)
            pieces[n++] = x->iov[i];
        if (n == max_pieces)
            break;
    }
    return n;
}

void http1_sent(struct http1 *h, size_t n_bytes)
{
    struct list *link;
    while ((link = h->exchanges.next) != &h->exchanges) {
        struct exchange *x = LIST_ENTRY(link, struct exchange, link);
        if (x->stage != EXCHANGE_REPLIED) {
            /* http1_gather() gave one piece: the interim reply, else what comes ahead. */
            if (x->continue_left > 0)
                x->continue_left -= (uint8_t)n_bytes;
            else
                x->ahead = (uint8_t)(x->ahead + n_bytes);
            break;
        }
        while (x->next_iov < x->n_iov && n_bytes >= x->iov[x->next_iov].iov_len)
            n_bytes -= x->iov[x->next_iov++].iov_len;
        if (x->next_iov < x->n_iov) {
            struct iovec *v = &x->iov[x->next_iov];
            v->iov_base = (char *)v->iov_base + n_bytes;
            v->iov_len -= n_bytes;
            break;
        }
        let_go(h, x);
        exchange_end(x);
    }
    /* There is room in the pipeline again. */
    http1_resume(h);
}
