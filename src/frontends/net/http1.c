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

/*
 * Clients and their tests match "request JSON size" and the words after it, whatever the body is.
 */
#define BODY_TOO_LARGE                                                                             \
    "request body or request JSON size exceeds the maximum allowed input size. Use "               \
    "--http-max-body-size to increase the limit."

/* Every reply begins with this. */
static const char version_text[] = "HTTP/1.1 ";

enum { VERSION_BYTES = sizeof(version_text) - 1 };

enum { HTTP_NO_ROOM = -1 }; /* a fault of on_chunk_data(): there is no room for the data */

static bool on_chunk_data(void *ctx, const char *bytes, size_t n_bytes);

static const struct exchange_events events;

static void begin_http1(struct http1 *h, struct http_env *env)
{
    h->env = env;
    h->session.protocol = &http1_protocol;
    env->events = &events;
    list_init(&h->exchanges);
    head_parser_init(&h->parser, env->limits->max_chunks);
    h->parser.on_data = on_chunk_data;
    h->parser.ctx = h;
}

void http1_init(struct http1 *h, struct http_env *env, void (*on_output)(struct session *s))
{
    *h = (struct http1){.session.on_output = on_output, .input = HTTP1_HEAD};
    begin_http1(h, env);
}

static void drop_held(struct http1 *h)
{
    pool_release(TAKE(h->held));
    h->held_start = h->held_end = h->held_capacity = 0;
}

/* The exchange no longer belongs to the connection. */
static void let_go(struct http1 *h, struct exchange *x)
{
    h->n_exchanges--;
    h->weight_bytes -= x->weight_bytes;
}

/* Counts bytes that the exchange keeps until its reply has left. */
static void add_weight(struct http1 *h, struct exchange *x, size_t bytes)
{
    x->weight_bytes += bytes;
    h->weight_bytes += bytes;
}

void http1_abort(struct http1 *h)
{
    struct list *link;
    out_queue_drop(&h->session.out);
    while ((link = list_pop(&h->exchanges))) {
        struct exchange *x = LIST_ENTRY(link, struct exchange, link);
        bool is_handled = x->stage == EXCHANGE_HANDLING || x->stage == EXCHANGE_REPLYING;
        let_go(h, x);
        if (x->stage < EXCHANGE_REPLIED)
            net_count(&h->env->net.counts, NET_CANCELLED, 1);
        x->connection = NULL;
        if (x->in_parts)
            exchange_drop_parts(x);
        if (is_handled) {
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

/* Whether the next request must wait for a later iteration. */
static bool must_pause(const struct http1 *h)
{
    const unsigned int *left = h->env->net.requests_left;
    return UNLIKELY(left && *left == 0) && h->input == HTTP1_HEAD && h->parser.parsed == 0;
}

bool http1_wants_input(const struct http1 *h)
{
    const struct exchange *x = h->current;
    if (h->input == HTTP1_DONE || h->session.paused || is_blocked(h))
        return false;
    if (h->input == HTTP1_CHUNKS && UNLIKELY(x->awaits_pages))
        return false;
    if (h->held)
        return h->held_end < h->held_capacity;
    return h->input != HTTP1_BODY || x->body_made == x->body_capacity ||
           x->body_made > x->body_size;
}

int http1_read_space(struct http1 *h, struct iovec space[2])
{
    struct iovec scratch = {h->env->net.scratch, h->env->net.scratch_bytes};

    if (!http1_wants_input(h))
        return 0;
    if (h->held) {
        space[0] = (struct iovec){h->held + h->held_end, h->held_capacity - h->held_end};
        return 1;
    }
    struct exchange *x = h->current;
    /* Before its first byte has come, a larger body has no memory of its own. */
    if (h->input == HTTP1_BODY && x->body_capacity > x->body_size) {
        space[0] = (struct iovec){x->body + x->body_size, x->body_made - x->body_size};
        if (UNLIKELY(x->body_made < x->body_capacity))
            return 1;
        /* The last part of a body: the same call also reads bytes that follow the body. */
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
    size_t capacity = MAX(h->env->limits->max_head_bytes, h->env->net.scratch_bytes);
    h->held = pool_alloc(h->env->net.pool, capacity, NULL);
    if (!h->held) {
        http1_fault(h, 503, "out of memory");
        return;
    }
    memcpy(h->held, bytes, n_bytes); /* a part of a head, or bytes that must wait */
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

/*
 * The client no longer waits for the interim reply. A "100 Continue" of which no byte has left is
 * taken back; one that has begun to leave must end.
 */
static void forget_continue(struct http1 *h, struct exchange *x)
{
    x->wants_continue = false;
    if (UNLIKELY(x->interim_queued) && x->ahead == 0 &&
        x->interim.n_bytes == EXCHANGE_CONTINUE_BYTES) {
        out_queue_take_back(&h->session.out, &x->interim);
        x->interim_queued = false;
    }
}

/* Counts what a limit refuses, by the status that tells the client. */
static void count_refusal(struct http1 *h, int status)
{
    if (status == 431)
        net_count(&h->env->net.counts, NET_REFUSED_HEAD, 1);
    else if (status == 413)
        net_count(&h->env->net.counts, NET_REFUSED_BODY, 1);
}

static void refuse_input(struct http1 *h, int status, const char *text, const char *headers)
{
    if (h->input == HTTP1_DONE)
        return;
    count_refusal(h, status);
    struct exchange *x = TAKE(h->current);
    if (!x)
        x = exchange_begin(h);
    h->input = HTTP1_DONE;
    h->session.discards = true;
    if (!x) { /* no memory for an error reply: the connection just ends */
        h->session.on_output(&h->session);
        return;
    }
    x->keep_alive = false;
    forget_continue(h, x);
    exchange_body_drop(x); /* the handler has not seen the body */
    x->stage = EXCHANGE_HANDLING;
    exchange_reply_error(x, status, text, headers);
}

void http1_fault(struct http1 *h, int status, const char *text)
{
    refuse_input(h, status, text, "");
}

void http1_refuse(struct http1 *h)
{
    if (h->input != HTTP1_DONE)
        net_count(&h->env->net.counts, NET_REFUSED_MEMORY, 1);
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
    h->session.on_output(&h->session);
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
    forget_continue(h, x);
    h->env->handler->on_request(x);
}

/*
 * Refuses a large body before it is read. Other bodies may still take the room before this one
 * comes.
 */
static void check_budget(struct http1 *h, size_t length)
{
    struct budget *b = h->env->net.budget;
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
    if (head->chunked || x->discard) /* memory is reserved as the chunks come, or never */
        return;
    size_t length = (size_t)head->content_length;
    if (length <= EXCHANGE_SMALL_BODY) { /* the exchange's arena has room for that */
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
    unsigned int *left = h->env->net.requests_left;
    if (left && *left > 0) /* none may be left when the head began in an earlier iteration */
        (*left)--;
    h->current = x;
    x->method = head->method;
    x->http_1_1 = head->http_1_1;
    x->keep_alive = head->keep_alive;
    x->headed = true;
    if (h->env->handler->on_head)
        h->env->handler->on_head(x, head);

    bool has_body = head->content_length > 0 || head->chunked;
    if (UNLIKELY(head->expects_continue) && head->http_1_1 && has_body && !body_follows)
        x->wants_continue = true;

    if (!has_body) {
        dispatch_exchange(h);
        return;
    }
    begin_body(h, head);
    if (x->wants_continue)
        h->session.on_output(&h->session);
}

/*
 * Parses on in a head at bytes. Returns the number of bytes used; SIZE_MAX: the head is incomplete.
 */
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
        /* Copies the bytes that came with the head: at most the scratch buffer. */
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
        /* A copy is needed, since chunk heads stand between the pieces. */
        memcpy(x->body + x->body_size, bytes, n_bytes);
        exchange_body_came(x, n_bytes);
    } else {
        x->body_size += n_bytes;
    }
    return true;
}

/*
 * Whether a chunked body must wait for pages. Its rest may be shorter than n_bytes, since the bytes
 * contain chunk heads.
 */
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

/* Processes the bytes that may be processed now, and holds the rest. */
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
    h->session.paused = n_bytes > 0 && h->input != HTTP1_DONE && !is_blocked(h) && must_pause(h);
    if (h->input == HTTP1_DONE) {
        h->session.discards |= n_bytes > 0;
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
        process_bytes(h, h->env->net.scratch, n_bytes);
        return;
    }

    /* The bytes were read straight into the body; those beyond its end are in the scratch
     * buffer. */
    struct exchange *x = h->current;
    size_t length = (size_t)h->parser.head.content_length;
    size_t direct = MIN(n_bytes, x->body_capacity - x->body_size);
    exchange_body_came(x, direct);
    n_bytes -= direct;
    if (x->body_size == length) {
        dispatch_exchange(h);
    } else if (x->body_size == x->body_capacity &&
               /* The first 64 KiB have come, so the length is believed now, even when no further
                * byte has come. */
               !exchange_body_reserve(x, x->body_size + MAX(n_bytes, (size_t)1), length, length)) {
        http1_refuse(h);
    }
    if (n_bytes > 0 && h->input != HTTP1_DONE)
        process_bytes(h, h->env->net.scratch, n_bytes);
}

bool http1_is_in_head(const struct http1 *h)
{
    enum { MAX_BLANK = 4 }; /* clients are known to send up to this many behind a body */
    if (h->input != HTTP1_HEAD || h->session.paused || is_blocked(h))
        return false;
    return h->parser.parsed > 0 || h->n_blank > MAX_BLANK;
}

void http1_resume(struct http1 *h)
{
    h->session.paused = false;
    if (h->held && !h->processing && !is_blocked(h))
        process_bytes(h, h->held + h->held_start, h->held_end - h->held_start);
}

/* ---- Writing ------------------------------------------------------------------------------- */

/* The reply is sent or dropped. */
static void on_reply_sent(void *arg)
{
    struct exchange *x = arg;
    struct http1 *h = x->connection;
    let_go(h, x);
    h->has_room = true;
    exchange_end(x);
}

/*
 * The reply tells the client that no request may follow: the server drains, or the end of the
 * connection ends the reply.
 */
static void note_last(struct http1 *h, const struct exchange *x)
{
    if (LIKELY(x->keep_alive || h->input == HTTP1_DONE))
        return;
    h->input = HTTP1_DONE;
    h->session.discards |= h->held != NULL;
    if (!h->processing)
        drop_held(h);
}

static void on_replied(struct http1 *h, struct exchange *x)
{
    note_last(h, x);
    if (UNLIKELY(x->ahead > 0)) {
        BUG_ON(memcmp(x->pieces[0].bytes, version_text, VERSION_BYTES) != 0);
        x->pieces[0].bytes += x->ahead;
        x->pieces[0].n_bytes -= x->ahead;
    }
    size_t size_bytes = 0;
    for (struct out_piece *p = x->pieces, *end = p + x->n_pieces; p < end; p++) {
        p->next = p + 1;
        size_bytes += p->n_bytes;
    }
    x->pieces[x->n_pieces - 1].release = on_reply_sent;
    x->pieces[x->n_pieces - 1].owner = x;
    x->reply_bytes = size_bytes;
    if (size_bytes >= HTTP1_LARGE_BYTES)
        h->session.large_output = true;
    add_weight(h, x, size_bytes);
    h->session.on_output(&h->session);
}

static void on_part(struct http1 *h, struct exchange *x, size_t n_bytes)
{
    note_last(h, x);
    add_weight(h, x, n_bytes);
    h->session.on_output(&h->session);
}

static void uncount_part(struct http1 *h, struct exchange *x, size_t n_bytes)
{
    x->weight_bytes -= n_bytes;
    h->weight_bytes -= n_bytes;
    h->has_room = true;
}

static void on_parts_sent(struct http1 *h, struct exchange *x)
{
    on_reply_sent(x);
}

/*
 * While the server drains: whether no request follows this one and the client has nothing to end.
 */
static bool is_last(const struct http1 *h, const struct exchange *x)
{
    return h->exchanges.prev == &x->link && !http1_is_kept(h);
}

static void on_weight(struct http1 *h, struct exchange *x, size_t old_bytes)
{
    h->weight_bytes += x->weight_bytes - old_bytes;
}

static void on_goes_on(struct http1 *h)
{
    h->goes_on = true;
}

static void on_pages(struct http1 *h)
{
    if (h->env->net.on_space)
        h->env->net.on_space(&h->session);
}

static bool make_room(struct http1 *h, size_t bytes)
{
    struct net_env *env = &h->env->net;
    return env->make_room && env->make_room(env->make_room_arg, &h->session, bytes);
}

static const struct exchange_events events = {
    .on_replied = on_replied,
    .on_weight = on_weight,
    .on_part = on_part,
    .on_part_left = uncount_part,
    .on_parts_sent = on_parts_sent,
    .is_last = is_last,
    .on_goes_on = on_goes_on,
    .on_pages = on_pages,
    .make_room = make_room,
};

static void on_interim_sent(void *arg)
{
    struct exchange *x = arg;
    x->interim_queued = false;
}

/* Queues an interim piece. All earlier replies must be queued. */
static void queue_interim(struct http1 *h, struct exchange *x, const char *text, size_t n_bytes)
{
    x->interim = (struct out_piece){
        .bytes = text, .n_bytes = n_bytes, .release = on_interim_sent, .owner = x};
    x->interim_queued = true;
    out_queue_add(&h->session.out, &x->interim);
}

/*
 * The byte that may be sent between two parts to find out whether the client still reads: a digit
 * of the next chunk's size, since sizes may begin with zeros, or what the handler names. NULL:
 * there is none.
 */
static const char *find_probe(const struct exchange *x)
{
    if (x->stage != EXCHANGE_REPLYING || x->parts.is_probed || x->method == METHOD_HEAD)
        return NULL;
    return x->parts.is_chunked ? "0" : x->parts.filler;
}

/*
 * Queues what may leave before the reply of the first unanswered exchange. The out-queue is empty,
 * so that "100 Continue" can be taken back, and the piece delays no other.
 */
static void queue_ahead(struct http1 *h, struct exchange *x)
{
    const char *probe;
    if (x->wants_continue) {
        x->wants_continue = false;
        queue_interim(h, x, exchange_continue_text, EXCHANGE_CONTINUE_BYTES);
    } else if (UNLIKELY(h->probing) && x->stage == EXCHANGE_HANDLING && x->ahead == 0) {
        x->ahead = VERSION_BYTES;
        queue_interim(h, x, version_text, VERSION_BYTES);
    } else if (UNLIKELY(h->probing) && (probe = find_probe(x))) {
        x->parts.is_probed = true;
        queue_interim(h, x, probe, 1);
    }
}

static void queue_reply(struct http1 *h, struct exchange *x)
{
    x->stage = EXCHANGE_SENDING;
    out_queue_add_chain(&h->session.out, x->pieces, &x->pieces[x->n_pieces - 1], x->reply_bytes);
}

/* Goes on with the exchange at that link: its reply comes in parts, or is not complete. */
static __attribute__((noinline)) void queue_from(struct http1 *h, struct list *link)
{
    for (; link != &h->exchanges; link = link->next) {
        struct exchange *x = LIST_ENTRY(link, struct exchange, link);
        if (x->in_parts) {
            exchange_queue_parts(x, &h->session.out);
            if (x->stage == EXCHANGE_REPLIED)
                x->stage = EXCHANGE_SENDING;
        } else if (x->stage == EXCHANGE_REPLIED) {
            queue_reply(h, x);
        }
        if (x->stage == EXCHANGE_SENDING)
            continue;
        if (h->session.out.n_bytes == 0)
            queue_ahead(h, x);
        return;
    }
}

void http1_queue_output(struct http1 *h)
{
    if (h->has_room) { /* a reply has left: the pipeline has room again */
        h->has_room = false;
        http1_resume(h);
    }
    LIST_FOR_EACH (link, &h->exchanges) {
        struct exchange *x = LIST_ENTRY(link, struct exchange, link);
        if (LIKELY(x->stage == EXCHANGE_REPLIED && !x->in_parts)) {
            queue_reply(h, x);
        } else if (x->stage != EXCHANGE_SENDING) {
            queue_from(h, link);
            return;
        }
    }
}

/* ---- The protocol's table -------------------------------------------------------------------- */

static struct http1 *http1_of(struct session *s)
{
    return CONTAINER_OF(s, struct http1, session);
}

static const struct http1 *const_http1_of(const struct session *s)
{
    return (const struct http1 *)(const void *)s;
}

static void begin_session(struct session *s, struct net_env *env)
{
    begin_http1(http1_of(s), CONTAINER_OF(env, struct http_env, net));
}

static void abort_session(struct session *s)
{
    http1_abort(http1_of(s));
}

static int find_read_space(struct session *s, struct iovec space[2])
{
    return http1_read_space(http1_of(s), space);
}

static bool wants_input(const struct session *s)
{
    return http1_wants_input(const_http1_of(s));
}

static void take_received(struct session *s, size_t n_bytes)
{
    http1_received(http1_of(s), n_bytes);
}

static void resume_session(struct session *s)
{
    http1_resume(http1_of(s));
}

static void end_session_input(struct session *s)
{
    http1_end_input(http1_of(s));
}

static uint64_t count_body_left(const struct session *s)
{
    return http1_body_left(const_http1_of(s));
}

static void queue_session_output(struct session *s)
{
    http1_queue_output(http1_of(s));
}

static void probe_client(struct session *s)
{
    http1_probe(http1_of(s));
}

static bool is_session_over(const struct session *s)
{
    return http1_is_over(const_http1_of(s));
}

static bool is_session_idle(const struct session *s)
{
    return http1_is_idle(const_http1_of(s));
}

static void get_session_input(const struct session *s, struct session_input *ret_input)
{
    const struct http1 *h = const_http1_of(s);
    *ret_input = (struct session_input){
        .kind = h->current            ? INPUT_BODY
                : http1_is_in_head(h) ? INPUT_HEAD
                                      : INPUT_NONE,
        .number = h->n_begun,
        .awaits_us = http1_awaits_space(h),
        .is_only_one = h->n_exchanges == (h->current ? 1 : 0),
    };
}

static size_t weigh_session(const struct session *s)
{
    return http1_weight(const_http1_of(s));
}

static void refuse_session(struct session *s, enum session_refusal why)
{
    struct http1 *h = http1_of(s);
    switch (why) {
    case REFUSAL_HEAD_TIME:
        http1_fault(h, 408, "the request head took too long");
        break;
    case REFUSAL_BODY_TIME:
        http1_fault(h, 408, "the request body took too long");
        break;
    case REFUSAL_STOPPING:
        http1_fault(h, 503, "the server is stopping");
        break;
    case REFUSAL_MEMORY:
        http1_refuse(h);
        break;
    }
}

static struct net_env *new_env(const struct net_env *members, const void *settings)
{
    const struct http1_settings *given = settings;
    struct http_env *env = mem_alloc(sizeof(*env));
    http_env_init(env, given->handler, members->handler_ctx, &given->limits, members->pool,
                  members->loop, members->scratch, members->scratch_bytes);
    env->net = *members;
    return &env->net;
}

static void free_env(struct net_env *env)
{
    struct http_env *http = CONTAINER_OF(env, struct http_env, net);
    http_env_done(http);
    mem_free(http);
}

static bool settle_sessions(struct net_env *env)
{
    return http_env_settle(CONTAINER_OF(env, struct http_env, net));
}

static void trim_sessions(struct net_env *env)
{
    http_env_trim(CONTAINER_OF(env, struct http_env, net));
}

const struct protocol http1_protocol = {
    .session_bytes = sizeof(struct http1),
    .max_scratch_bytes = 16 << 10, /* the begin of a body that comes with its head is copied */
    .begin = begin_session,
    .abort = abort_session,
    .wants_input = wants_input,
    .read_space = find_read_space,
    .received = take_received,
    .resume = resume_session,
    .end_input = end_session_input,
    .body_left = count_body_left,
    .queue_output = queue_session_output,
    .probe = probe_client,
    .is_over = is_session_over,
    .is_idle = is_session_idle,
    .get_input = get_session_input,
    .weigh = weigh_session,
    .refuse = refuse_session,
    .env_new = new_env,
    .env_free = free_env,
    .settle = settle_sessions,
    .trim = trim_sessions,
};
