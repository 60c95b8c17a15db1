/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts in their order: the exchanges of a loop and their reuse, the memory of bodies, the
 * replies.
 *
 * One block of the pool holds an exchange, a small body and the text of its reply; a large body has
 * a block of its own. References keep both blocks: the connection drops its reference in
 * exchange_end(), the handler may hold more. A body that is kept has body_size <= body_made <=
 * body_capacity. The loop does not write beyond body_made, where the kernel would first have to
 * make pages. The thread `memory` makes pages ahead (order_pages()). An exchange passes through its
 * stages in their order, each at most once.
 *
 * Thread: the loop's.
 */
#include "frontends/net/exchange.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/budget.h"
#include "base/mem.h"
#include "base/memory_thread.h"
#include "base/pool.h"
#include "base/status.h"

enum {
    FIRST_BODY_BYTES = 16 << 10,  /* of a body of unknown length */
    FAST_GROWTH_BYTES = 64 << 20, /* it doubles up to this size, then grows by a quarter */
    FEW_UNUSED = 16,
    MAX_ARENA_BYTES = 64 << 20,
};

void http_env_init(struct http_env *env, const struct http_handler *handler, void *handler_ctx,
                   const struct http_limits *limits, struct pool *pool, struct loop *loop,
                   char *scratch, size_t scratch_bytes)
{
    *env = (struct http_env){
        .net = {.handler_ctx = handler_ctx,
                .pool = pool,
                .loop = loop,
                .scratch = scratch,
                .scratch_bytes = scratch_bytes},
        .handler = handler,
        .limits = limits,
    };
    list_init(&env->unused);
    /* The arena's part of a block must hold a small body and the reply's text. */
    BUG_ON(sizeof(struct exchange) + 64 + handler->part_bytes + EXCHANGE_SMALL_BODY + 512 >
           EXCHANGE_BLOCK_BYTES);
}

/* Takes the exchange that was used last; NULL: there is none. */
static struct exchange *take_unused(struct http_env *env)
{
    struct list *link = list_pop(&env->unused);
    if (!link)
        return NULL;
    env->n_unused--;
    env->n_least_unused = MIN(env->n_least_unused, env->n_unused);
    return LIST_ENTRY(link, struct exchange, link);
}

static void release_unused(struct http_env *env, unsigned int n)
{
    struct exchange *x;
    while (n-- > 0 && (x = take_unused(env)))
        pool_release(x);
}

bool http_env_settle(struct http_env *env)
{
    unsigned int most = env->n_unused - MIN(env->n_unused, (unsigned int)FEW_UNUSED);
    release_unused(env, MIN((env->n_least_unused + 1) / 2, most));
    env->n_least_unused = env->n_unused;
    return env->n_unused <= FEW_UNUSED;
}

void http_env_trim(struct http_env *env)
{
    release_unused(env, env->n_unused);
}

void http_env_done(struct http_env *env)
{
    BUG_ON(env->net.n_used > 0);
    http_env_trim(env);
}

struct exchange *exchange_new(struct http_env *env, struct http1 *connection)
{
    struct exchange *x = take_unused(env);
    if (!x) {
        x = pool_alloc(env->net.pool, EXCHANGE_BLOCK_BYTES, NULL);
        if (!x)
            return NULL;
        x->env = env;
        list_init(&x->link);
    }
    env->net.n_used++;
    x->connection = connection;
    x->stage = EXCHANGE_RECEIVING;
    x->refs = 1;
    x->wants_continue = x->interim_queued = false;
    x->ahead = 0;
    x->headed = false;
    x->in_parts = false;
    x->discard = false;
    x->body = NULL;
    x->body_size = 0;
    x->body_capacity = x->body_made = 0;
    x->awaits_pages = false;
    x->order = NULL;
    x->aligned_at = 0;
    x->body_block = NULL;
    x->weight_bytes = 0;
    x->status = 0;
    x->n_pieces = 0;
    char *rest = (char *)exchange_part(x) + ((env->handler->part_bytes + 63) & ~(size_t)63);
    arena_init(&x->arena, rest, (size_t)((char *)x + EXCHANGE_BLOCK_BYTES - rest), MAX_ARENA_BYTES,
               env->net.pool, NULL);
    return x;
}

void exchange_ref(struct exchange *x)
{
    x->refs++;
}

static void release_body(struct exchange *x)
{
    void *block = TAKE(x->body_block);
    struct page_order *order = TAKE(x->order);
    /* While the memory thread may still touch the pages, the pool must not give them to another
     * body. */
    if (UNLIKELY(order != NULL) && memory_thread_forget(budget_pages(x->env->net.budget), order))
        pool_discard(block);
    else
        pool_release(block);
}

void exchange_unref(struct exchange *x)
{
    if (--x->refs > 0)
        return;
    struct http_env *env = x->env;
    if (UNLIKELY(x->body_block != NULL)) /* else it is in the arena */
        release_body(x);
    arena_reset(&x->arena);
    env->net.n_used--;
    if (env->n_unused >= EXCHANGE_MAX_UNUSED) {
        pool_release(x);
    } else {
        list_push_front(&env->unused, &x->link);
        env->n_unused++;
    }
    net_env_left(&env->net);
}

void exchange_end(struct exchange *x)
{
    list_remove(&x->link);
    x->connection = NULL;
    x->stage = EXCHANGE_ENDED;
    if (x->headed)
        x->env->handler->on_end(x);
    exchange_unref(x);
}

/* The capacity to reserve for wanted_bytes. */
static size_t next_capacity(const struct exchange *x, size_t wanted_bytes, size_t length_bytes,
                            size_t max_bytes)
{
    size_t now = x->body_capacity;
    if (length_bytes > 0) {
        bool believed =
            length_bytes <= EXCHANGE_TRUSTED_BYTES || wanted_bytes > EXCHANGE_TRIAL_BYTES;
        return believed ? length_bytes : (size_t)EXCHANGE_TRIAL_BYTES;
    }
    if (now >= FAST_GROWTH_BYTES)
        now += MAX(now / 4, (size_t)FAST_GROWTH_BYTES);
    else
        now = now > 0 ? now * 2 : (size_t)FIRST_BODY_BYTES;
    return MIN(MAX(now, wanted_bytes), max_bytes);
}

static bool in_arena(struct exchange *x, size_t capacity, size_t pad)
{
    char *body = arena_alloc(&x->arena, capacity + 2 * MEM_ALIGNMENT);
    if (!body)
        return false;
    x->body = body + (MEM_ALIGNMENT - (uintptr_t)body % MEM_ALIGNMENT) % MEM_ALIGNMENT + pad;
    x->body_capacity = x->body_made = capacity;
    return true;
}

/* ---- Pages of large bodies ------------------------------------------------------------------ */

/*
 * The loop does not write where there are no pages yet. The body waits for its pages, and other
 * bodies are read meanwhile. Pages that are made stay with the block when it is reused.
 */
static void order_pages(struct exchange *x);

static void set_made(struct exchange *x, size_t bytes)
{
    x->body_made = MIN(bytes, x->body_capacity);
    pool_set_made(x->body_block, (size_t)(x->body - (char *)x->body_block) + x->body_made);
}

static void on_made(void *arg)
{
    struct exchange *x = arg;
    bool is_awaited = x->body_size == x->body_made || x->awaits_pages;
    x->order = NULL;
    x->awaits_pages = false;
    set_made(x, MAX(x->order_end, x->body_made));
    order_pages(x);
    if (is_awaited && x->connection)
        x->env->events->on_pages(x->connection);
}

static void order_pages(struct exchange *x)
{
    size_t missing = x->body_capacity - x->body_made;
    if (missing == 0 || x->order || x->body_made - x->body_size >= EXCHANGE_ORDERED_BYTES ||
        x->stage != EXCHANGE_RECEIVING)
        return;
    size_t bytes = MIN(missing, (size_t)EXCHANGE_ORDERED_BYTES);
    x->order_end = x->body_made + bytes;
    x->order = memory_thread_order(budget_pages(x->env->net.budget), x->env->net.loop,
                                   x->body + x->body_made, bytes, on_made, x);
    if (!x->order)
        set_made(x, x->body_capacity);
}

void exchange_body_came(struct exchange *x, size_t n_bytes)
{
    x->body_size += n_bytes;
    x->body_made = MAX(x->body_made, x->body_size);
    if (UNLIKELY(x->body_made < x->body_capacity))
        order_pages(x);
}

/*
 * Begins the pages of a block that is new or has grown. The first at_once_bytes are written whether
 * or not they have pages.
 */
static void begin_pages(struct exchange *x, size_t at_once_bytes, bool grows)
{
    size_t made = pool_made_bytes(x->body_block), pad = (size_t)(x->body - (char *)x->body_block);
    bool is_large = grows ? x->body_capacity > EXCHANGE_ORDERED_BYTES
                          : x->body_capacity >= EXCHANGE_ORDERED_BYTES;
    bool ordered =
        is_large && x->env->net.budget && x->env->net.loop && made < pad + x->body_capacity;
    if (LIKELY(!ordered)) {
        set_made(x, x->body_capacity);
        return;
    }
    x->body_made = MIN(MAX(made > pad ? made - pad : 0, at_once_bytes), x->body_capacity);
    order_pages(x);
}

/* ---- The body ------------------------------------------------------------------------------- */

/* Gives the body a block of that capacity: its own block grown in place, or another one. */
static bool in_pool(struct exchange *x, size_t capacity, size_t pad, size_t at_once_bytes,
                    bool grows)
{
    BUG_ON(x->order); /* the memory thread touches its pages */
    char *block = x->body_block ? pool_grow(x->body_block, capacity + pad) : NULL;
    if (!block) {
        if (x->body_capacity > EXCHANGE_TRUSTED_BYTES && x->env->net.budget)
            return false; /* the block could grow without a copy, but the budget refuses */
        block = pool_alloc(x->env->net.pool, capacity + pad, NULL);
        if (!block)
            return false;
        /* Copies the first 64 KiB of a body whose length was not believed yet, or up to 1 MiB. */
        if (x->body_size > 0)
            memcpy(block + pad, x->body, x->body_size);
        pool_release(x->body_block);
    }
    x->body_block = block;
    x->body = block + pad;
    x->body_capacity = capacity;
    begin_pages(x, at_once_bytes, grows);
    return true;
}

static bool reserve_body(struct exchange *x, size_t wanted_bytes, size_t length_bytes,
                         size_t max_bytes, size_t at_once_bytes)
{
    struct http_env *env = x->env;
    size_t pad = exchange_body_lead(x);
    size_t capacity = next_capacity(x, wanted_bytes, length_bytes, max_bytes);
    if (capacity <= EXCHANGE_SMALL_BODY)
        return in_arena(x, capacity, pad);
    /* A body that becomes large needs room in the budget. Once begun it may use the memory that
     * is kept for bodies in progress. */
    if (env->net.budget && capacity > EXCHANGE_TRIAL_BYTES &&
        x->body_capacity <= EXCHANGE_TRIAL_BYTES && !budget_has_room(env->net.budget, capacity))
        return false;
    bool grows = length_bytes == 0;
    return in_pool(x, capacity, pad, at_once_bytes, grows) ||
           (env->events->make_room(x->connection, capacity) &&
            in_pool(x, capacity, pad, at_once_bytes, grows));
}

bool exchange_body_reserve(struct exchange *x, size_t wanted_bytes, size_t length_bytes,
                           size_t max_bytes)
{
    return LIKELY(wanted_bytes <= x->body_capacity) ||
           reserve_body(x, wanted_bytes, length_bytes, max_bytes, wanted_bytes);
}

/* The body grows only while it has no order, so the memory thread never touches pages that move. */
bool exchange_body_must_wait(struct exchange *x, size_t n_bytes, size_t max_bytes)
{
    size_t wanted = x->body_size + n_bytes;
    if (LIKELY(wanted <= x->body_made || wanted <= EXCHANGE_ORDERED_BYTES))
        return false;
    if (!x->order && wanted > x->body_capacity && !reserve_body(x, wanted, 0, max_bytes, 0))
        return false; /* exchange_body_reserve() reports this when the bytes are written */
    x->awaits_pages = x->order && wanted > x->body_made;
    return x->awaits_pages;
}

size_t exchange_body_lead(const struct exchange *x)
{
    return (MEM_ALIGNMENT - x->aligned_at % MEM_ALIGNMENT) % MEM_ALIGNMENT;
}

void exchange_body_replace(struct exchange *x, char *block, size_t lead_bytes, size_t n_bytes)
{
    size_t weight = x->weight_bytes, capacity = pool_block_bytes(block) - lead_bytes;
    BUG_ON(x->stage != EXCHANGE_HANDLING || n_bytes > capacity);
    release_body(x);
    x->weight_bytes += capacity - x->body_capacity;
    x->body_block = block;
    x->body = block + lead_bytes;
    x->body_size = n_bytes;
    x->body_capacity = x->body_made = capacity;
    if (x->connection)
        x->env->events->on_weight(x->connection, x, weight);
}

void exchange_body_drop(struct exchange *x)
{
    release_body(x);
    x->body = NULL;
    x->body_size = x->body_capacity = x->body_made = 0;
    x->awaits_pages = false;
}

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {200, "200 OK"},
        {400, "400 Bad Request"},
        {403, "403 Forbidden"},
        {404, "404 Not Found"},
        {405, "405 Method Not Allowed"},
        {408, "408 Request Timeout"},
        {409, "409 Conflict"},
        {413, "413 Content Too Large"},
        {415, "415 Unsupported Media Type"},
        {417, "417 Expectation Failed"},
        {431, "431 Request Header Fields Too Large"},
        {500, "500 Internal Server Error"},
        {501, "501 Not Implemented"},
        {503, "503 Service Unavailable"},
        {504, "504 Gateway Timeout"},
        {505, "505 HTTP Version Not Supported"},
        {507, "507 Insufficient Storage"},
    };
    if (LIKELY(status == 200))
        return texts[0].text;
    for (size_t i = 1; i < ARRAY_SIZE(texts); i++) {
        if (texts[i].status == status)
            return texts[i].text;
    }
    return status < 500 ? "400 Bad Request" : "500 Internal Server Error";
}

const char exchange_continue_text[] = "HTTP/1.1 100 Continue\r\n\r\n";

/* ---- Replies ------------------------------------------------------------------------------- */

static void add_reply_piece(struct exchange *x, const void *bytes, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    struct out_piece *p = &x->pieces[x->n_pieces++];
    p->bytes = bytes;
    p->n_bytes = n_bytes;
    p->release = NULL;
}

static void begin_pieces(struct exchange *x, struct out_piece *pieces)
{
    x->pieces = pieces;
    x->n_pieces = 0;
}

static char *put_bytes(char *at, const void *bytes, size_t n_bytes)
{
    memcpy(at, bytes, n_bytes);
    return at + n_bytes;
}

#define PUT_TEXT(at, text) put_bytes(at, text, sizeof(text) - 1)

static char *put_number(char *at, uint64_t n)
{
    char *end = at + 1;
    for (uint64_t rest = n; rest >= 10; rest /= 10)
        end++;
    char *p = end;
    do {
        *--p = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    return end;
}

void exchange_goes_on(struct exchange *x)
{
    if (x->connection)
        x->env->events->on_goes_on(x->connection);
}

/* The header about the connection that the reply needs; "" when the reply needs none. */
static const char *connection_header(struct exchange *x)
{
    if (x->env->net.draining && x->connection && x->env->events->is_last(x->connection, x))
        x->keep_alive = false;
    if (!x->keep_alive)
        return "Connection: close\r\n";
    return x->http_1_1 ? "" : "Connection: keep-alive\r\n";
}

/* The status in the first bytes of a reply: "HTTP/1.1 200". */
static int read_status(const char *text)
{
    const char *digits = text + 9;
    if (LIKELY(memcmp(digits, "200 ", 4) == 0)) /* one comparison */
        return 200;
    return (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0');
}

static void count_reply(struct exchange *x, int status)
{
    enum { FIRST_STATUS = 100 };
    x->status = status;
    net_count_answer(&x->env->net.counts, (unsigned int)(status - FIRST_STATUS));
}

/*
 * The reply is complete. It leaves at the end of the iteration, or is dropped when the client is
 * gone.
 */
static void reply_done(struct exchange *x)
{
    BUG_ON(x->stage != EXCHANGE_HANDLING);
    x->stage = EXCHANGE_REPLIED;
    if (UNLIKELY(!x->connection)) {
        exchange_end(x);
        return;
    }
    count_reply(x, read_status(x->pieces[0].bytes));
    x->env->events->on_replied(x->connection, x);
}

/* Replies that memory is exhausted. This reply needs no memory. */
static void reply_no_memory(struct exchange *x)
{
    static const struct http_reply_fixed fixed =
        HTTP_REPLY_FIXED("HTTP/1.1 503 Service Unavailable\r\n"
                         "Content-Type: application/json\r\nContent-Length: 25\r\n",
                         "{\"error\":\"out of memory\"}");
    exchange_reply_fixed(x, &fixed);
}

/* As body_bytes: the length is not known, the reply comes in parts. */
#define IN_PARTS UINT64_MAX

static char *put_length(char *at, const struct exchange *x, uint64_t body_bytes)
{
    if (UNLIKELY(body_bytes == IN_PARTS))
        return x->parts.is_chunked ? PUT_TEXT(at, "Transfer-Encoding: chunked\r\n") : at;
    at = PUT_TEXT(at, "Content-Length: ");
    at = put_number(at, body_bytes);
    return PUT_TEXT(at, "\r\n");
}

/* The handler's headers of every reply; of length 0: it has none. */
static struct span find_handler_headers(struct exchange *x)
{
    const struct http_handler *handler = x->env->handler;
    return UNLIKELY(handler->find_headers != NULL) ? handler->find_headers(x)
                                                   : (struct span){"", 0};
}

/* Writes the head to text. Returns its length. */
static size_t print_head(const struct exchange *x, char *text, const struct http_reply *reply,
                         uint64_t body_bytes, const char *connection, struct span more)
{
    const char *status = http_status_text(reply->status);
    char *at = PUT_TEXT(text, "HTTP/1.1 ");
    at = put_bytes(at, status, strlen(status));
    if (reply->content_type) {
        at = PUT_TEXT(at, "\r\nContent-Type: ");
        at = put_bytes(at, reply->content_type, strlen(reply->content_type));
        if (reply->length_in_type && reply->json_length > 0)
            at = put_number(at, reply->json_length);
    }
    at = PUT_TEXT(at, "\r\n");
    at = put_bytes(at, reply->headers, reply->headers_length);
    if (reply->json_length > 0 && !reply->length_in_type) {
        at = PUT_TEXT(at, "Inference-Header-Content-Length: ");
        at = put_number(at, reply->json_length);
        at = PUT_TEXT(at, "\r\n");
    }
    at = put_length(at, x, body_bytes);
    at = put_bytes(at, connection, strlen(connection));
    at = put_bytes(at, more.at, more.length);
    at = PUT_TEXT(at, "\r\n");
    return (size_t)(at - text);
}

static bool is_reply_remembered(const struct reply_memo *m, const struct http_reply *reply,
                                uint64_t body_bytes)
{
    return m->length > 0 && m->body_bytes == body_bytes && m->json_length == reply->json_length &&
           m->content_type == reply->content_type;
}

static void remember_reply(struct reply_memo *m, const struct http_reply *reply,
                           uint64_t body_bytes, const char *text, size_t length)
{
    if (length > sizeof(m->text))
        return;
    m->content_type = reply->content_type;
    m->body_bytes = body_bytes;
    m->json_length = reply->json_length;
    m->length = length;
    memcpy(m->text, text, length);
}

/* Makes the head in the exchange. NULL: memory is exhausted. */
static const char *make_head(struct exchange *x, const struct http_reply *reply,
                             uint64_t body_bytes, size_t *ret_length)
{
    struct reply_memo *memo = &x->env->reply_memo;
    const char *connection = connection_header(x);
    bool plain = reply->status == 200 && reply->headers_length == 0 && !*connection;
    if (plain && is_reply_remembered(memo, reply, body_bytes)) {
        *ret_length = memo->length;
        return memcpy(x->head_text, memo->text, memo->length);
    }
    struct span more = find_handler_headers(x);
    size_t type_length = reply->content_type ? strlen(reply->content_type) : 0;
    size_t n_bytes = reply->headers_length + type_length + more.length;
    char *text = x->head_text;
    if (n_bytes > sizeof(x->head_text) - 256)
        text = arena_alloc(&x->arena, n_bytes + 256);
    if (!text)
        return NULL;
    *ret_length = print_head(x, text, reply, body_bytes, connection, more);
    if (plain && more.length == 0)
        remember_reply(memo, reply, body_bytes, text, *ret_length);
    return text;
}

void exchange_reply(struct exchange *x, const struct http_reply *reply)
{
    uint64_t body_bytes = 0;
    for (int i = 0; i < reply->n_body; i++)
        body_bytes += reply->body[i].iov_len;

    struct out_piece *pieces = x->first_pieces;
    if (reply->n_body + 1 > EXCHANGE_PIECES)
        pieces = arena_alloc(&x->arena, sizeof(*pieces) * (size_t)(reply->n_body + 1));
    size_t length = 0;
    const char *text = pieces ? make_head(x, reply, body_bytes, &length) : NULL;
    if (!text) {
        reply_no_memory(x);
        return;
    }
    begin_pieces(x, pieces);
    add_reply_piece(x, text, length);
    if (x->method != METHOD_HEAD) {
        for (int i = 0; i < reply->n_body; i++)
            add_reply_piece(x, reply->body[i].iov_base, reply->body[i].iov_len);
    }
    reply_done(x);
}

/* ---- Replies in parts ------------------------------------------------------------------------ */

/* The head, a part or the end of the reply has left, or was dropped. */
static void note_left(struct exchange *x)
{
    struct parted_reply *p = &x->parts;
    if (--p->n_unsent == 0 && p->has_ended && x->connection)
        x->env->events->on_parts_sent(x->connection, x);
}

static void on_frame_left(void *arg)
{
    note_left(arg);
}

static void on_part_left(void *arg)
{
    struct reply_part *part = arg;
    struct exchange *x = part->exchange;
    if (x->connection)
        x->env->events->on_part_left(x->connection, x, part->n_bytes);
    part->release(part->owner); /* which may free the part */
    note_left(x);
}

/* The head, or the end. */
static void add_frame(struct exchange *x, struct out_piece *piece, const char *bytes,
                      size_t n_bytes)
{
    *piece = (struct out_piece){
        .bytes = bytes, .n_bytes = n_bytes, .release = on_frame_left, .owner = x};
    out_queue_add(&x->parts.waiting, piece);
    x->parts.n_unsent++;
}

bool exchange_reply_begin(struct exchange *x, const struct http_reply *reply)
{
    size_t length = 0;
    x->parts = (struct parted_reply){
        .is_chunked = x->http_1_1, .status = reply->status, .filler = reply->filler};
    x->keep_alive &= x->http_1_1;
    const char *text = make_head(x, reply, IN_PARTS, &length);
    if (!text) {
        reply_no_memory(x);
        return false;
    }
    BUG_ON(x->stage != EXCHANGE_HANDLING);
    x->stage = EXCHANGE_REPLYING;
    x->in_parts = true;
    if (x->connection) {
        add_frame(x, &x->first_pieces[0], text + x->ahead, length - x->ahead);
        x->env->events->on_part(x->connection, x, 0);
    }
    return true;
}

static void add_part_piece(struct reply_part *part, int i, const char *bytes, size_t n_bytes)
{
    part->pieces[i] = (struct out_piece){.bytes = bytes, .n_bytes = n_bytes};
    out_queue_add(&part->exchange->parts.waiting, &part->pieces[i]);
    part->n_bytes += n_bytes;
}

static char *put_hex(char *at, uint64_t n)
{
    int n_digits = 1;
    for (uint64_t rest = n; rest >= 16; rest /= 16)
        n_digits++;
    for (int i = n_digits - 1; i >= 0; i--)
        *at++ = "0123456789abcdef"[n >> 4 * i & 15];
    return at;
}

void exchange_reply_more(struct exchange *x, struct reply_part *part, const char *bytes,
                         size_t n_bytes, void (*release)(void *owner), void *owner)
{
    BUG_ON(x->stage != EXCHANGE_REPLYING || n_bytes == 0);
    if (!x->connection || x->method == METHOD_HEAD) {
        release(owner);
        return;
    }
    int last = 0;
    part->exchange = x;
    part->n_bytes = 0;
    part->release = release;
    part->owner = owner;
    if (x->parts.is_chunked) {
        char *end = put_hex(part->head_text, n_bytes);
        end = PUT_TEXT(end, "\r\n");
        add_part_piece(part, 0, part->head_text, (size_t)(end - part->head_text));
        last = 2;
    }
    add_part_piece(part, last / 2, bytes, n_bytes);
    if (last > 0)
        add_part_piece(part, last, "\r\n", 2);
    part->pieces[last].release = on_part_left;
    part->pieces[last].owner = part;
    x->parts.n_unsent++;
    x->env->events->on_part(x->connection, x, part->n_bytes);
}

void exchange_reply_end(struct exchange *x)
{
    BUG_ON(x->stage != EXCHANGE_REPLYING);
    x->stage = EXCHANGE_REPLIED;
    x->parts.has_ended = true;
    if (!x->connection) {
        exchange_end(x);
        return;
    }
    count_reply(x, x->parts.status);
    if (x->parts.is_chunked && x->method != METHOD_HEAD)
        add_frame(x, &x->first_pieces[1], "0\r\n\r\n", 5);
    x->env->events->on_part(x->connection, x, 0);
    if (x->parts.n_unsent == 0)
        x->env->events->on_parts_sent(x->connection, x);
}

void exchange_queue_parts(struct exchange *x, struct out_queue *out)
{
    struct out_queue *waiting = &x->parts.waiting;
    if (!waiting->first)
        return;
    out_queue_add_chain(out, waiting->first, waiting->last, waiting->n_bytes);
    *waiting = (struct out_queue){0};
}

void exchange_drop_parts(struct exchange *x)
{
    BUG_ON(x->connection);
    out_queue_drop(&x->parts.waiting);
}

/* ---- Replies that are constant or small ------------------------------------------------------ */

void exchange_reply_fixed(struct exchange *x, const struct http_reply_fixed *reply)
{
    const char *connection = connection_header(x);
    struct span more = find_handler_headers(x);
    bool whole = x->method != METHOD_HEAD;

    begin_pieces(x, x->first_pieces);
    if (!*connection && more.length == 0) {
        add_reply_piece(x, reply->text, whole ? reply->length : reply->head_length);
    } else { /* add headers before the empty line */
        add_reply_piece(x, reply->text, reply->head_length - 2);
        add_reply_piece(x, connection, strlen(connection));
        add_reply_piece(x, more.at, more.length);
        add_reply_piece(x, reply->text + reply->head_length - 2,
                        (whole ? reply->length : reply->head_length) - (reply->head_length - 2));
    }
    reply_done(x);
}

/* Replies with a copy of the body. The headers need to live only until this returns. */
void exchange_reply_copied(struct exchange *x, int status, const char *content_type,
                           const char *headers, const char *text, size_t length)
{
    void *copy = arena_dup(&x->arena, text, length);
    if (!copy) {
        reply_no_memory(x);
        return;
    }
    struct iovec body = {copy, length};
    exchange_reply(x, &(struct http_reply){
                          .status = status,
                          .content_type = content_type,
                          .headers = headers,
                          .headers_length = strlen(headers),
                          .body = &body,
                          .n_body = 1,
                      });
}

void exchange_reply_text(struct exchange *x, int status, const char *content_type, const char *text,
                         size_t length)
{
    exchange_reply_copied(x, status, content_type, "", text, length);
}

void exchange_reply_error(struct exchange *x, int status, const char *text, const char *headers)
{
    char body[256];
    int length = snprintf(body, sizeof(body), "{\"error\":\"%s\"}", text);
    exchange_reply_copied(x, status, "application/json", headers, body, (size_t)length);
}
