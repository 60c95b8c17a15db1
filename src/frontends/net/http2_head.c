/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a stream while it comes. Each header is copied once into the head's block, since
 * nghttp2 keeps it only during its callback. A full block is replaced by a larger one; few heads
 * need more than the first.
 *
 * Most clients repeat the head of a call again and again, as indices of the header table. Such a
 * head is not copied, checked and read each time: the last one is remembered with what the handler
 * has noted about it. A head that has a new field, such as a deadline, is always a new one.
 *
 * Thread: the loop's.
 */
#include <string.h>

#include "base/pool.h"
#include "frontends/net/http2_priv.h"

enum {
    FIRST_BYTES = 1024 - sizeof(struct head_builder), /* with which it is one of the pool's sizes */
    HEADER_BYTES = 32,                                /* RFC 9113, 6.5.2 */
};

_Static_assert(sizeof(struct http2_header) <= HEADER_BYTES, "a block of the maximum suffices");

static const char *move_pointer(const char *p, const char *from, const char *to)
{
    return p ? to + (p - from) : NULL;
}

/*
 * Moves headers and text to other bytes with room for them. The text lies at the end of each, so it
 * moves by another distance than the headers.
 */
static void move_head(const struct head_builder *b, char *bytes, size_t capacity,
                      struct http2_head *ret)
{
    size_t text_bytes = b->capacity - b->text_at;
    char *text = bytes + capacity - text_bytes;
    const char *from = b->bytes + b->text_at;
    struct http2_header *headers = (struct http2_header *)(void *)bytes;
    memcpy(text, from, text_bytes);
    *ret = b->head;
    for (size_t i = 0; i < b->head.n_headers; i++) {
        headers[i] = b->head.headers[i];
        headers[i].name.at = move_pointer(headers[i].name.at, from, text);
        headers[i].value.at = move_pointer(headers[i].value.at, from, text);
    }
    struct span *pseudo[] = {&ret->method, &ret->scheme, &ret->authority, &ret->path};
    for (size_t i = 0; i < ARRAY_SIZE(pseudo); i++)
        pseudo[i]->at = move_pointer(pseudo[i]->at, from, text);
    ret->headers = headers;
}

/* Makes the first builder, or replaces it by a larger one. */
static bool make_larger(struct head_builder **b, struct pool *pool, size_t max_bytes)
{
    struct head_builder *old = *b;
    size_t capacity = MIN(old ? old->capacity * 4 : (size_t)FIRST_BYTES, max_bytes);
    struct head_builder *made = pool_alloc(pool, sizeof(*made) + capacity, NULL);
    if (!made)
        return false;
    *made = (struct head_builder){.capacity = capacity, .text_at = capacity};
    if (old) {
        made->text_at = capacity - (old->capacity - old->text_at);
        made->size_bytes = old->size_bytes;
        move_head(old, made->bytes, capacity, &made->head);
        pool_release(old);
    } else {
        made->head.headers = (struct http2_header *)(void *)made->bytes;
    }
    *b = made;
    return true;
}

static struct span put_header_text(struct head_builder *b, struct span text)
{
    b->text_at -= text.length;
    memcpy(b->bytes + b->text_at, text.at, text.length);
    return (struct span){b->bytes + b->text_at, text.length};
}

static struct span *find_pseudo(struct head_builder *b, struct span name)
{
    static const struct {
        const char *name;
        size_t length, offset;
    } all[] = {
        {":method", 7, offsetof(struct http2_head, method)},
        {":scheme", 7, offsetof(struct http2_head, scheme)},
        {":authority", 10, offsetof(struct http2_head, authority)},
        {":path", 5, offsetof(struct http2_head, path)},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (name.length == all[i].length && memcmp(name.at, all[i].name, name.length) == 0)
            return (struct span *)(void *)((char *)&b->head + all[i].offset);
    }
    return NULL;
}

static bool has_room(const struct head_builder *b, size_t size_bytes)
{
    return b->text_at - b->head.n_headers * sizeof(struct http2_header) >= size_bytes;
}

bool head_add(struct head_builder **b, struct pool *pool, size_t max_bytes, struct span name,
              struct span value)
{
    size_t size_bytes = name.length + value.length + HEADER_BYTES;
    if (!*b && !make_larger(b, pool, max_bytes))
        return false;
    (*b)->size_bytes += size_bytes;
    if ((*b)->size_bytes > max_bytes) {
        (*b)->head.is_too_large = true;
        return true;
    }
    while (!has_room(*b, size_bytes)) {
        if (!make_larger(b, pool, max_bytes))
            return false;
    }
    struct span *pseudo = name.length > 0 && name.at[0] == ':' ? find_pseudo(*b, name) : NULL;
    if (pseudo) {
        *pseudo = put_header_text(*b, value);
        return true;
    }
    struct http2_header *h = (struct http2_header *)(void *)(*b)->bytes + (*b)->head.n_headers++;
    h->name = put_header_text(*b, name);
    h->value = put_header_text(*b, value);
    return true;
}

void head_done(struct head_builder **b)
{
    pool_release(TAKE(*b));
}

struct span http2_head_find(const struct http2_head *head, const char *name, size_t name_length)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        const struct http2_header *h = &head->headers[i];
        if (h->name.length == name_length && memcmp(h->name.at, name, name_length) == 0)
            return h->value;
    }
    return (struct span){NULL, 0};
}

struct span http2_head_find_only(const struct http2_head *head, const char *name,
                                 size_t name_length)
{
    struct span found = {NULL, 0};
    for (size_t i = 0; i < head->n_headers; i++) {
        const struct http2_header *h = &head->headers[i];
        if (h->name.length != name_length || memcmp(h->name.at, name, name_length) != 0)
            continue;
        if (found.at)
            return (struct span){NULL, 0};
        found = h->value;
    }
    return found;
}

/* ---- Heads that are repeated ----------------------------------------------------------------- */

static void drop_fields(struct memo_field *fields, unsigned int n)
{
    for (unsigned int i = 0; i < n; i++) {
        nghttp2_rcbuf_decref(fields[i].name);
        nghttp2_rcbuf_decref(fields[i].value);
    }
}

void head_memo_unref(struct head_memo *memo)
{
    if (!memo || --memo->refs > 0)
        return;
    drop_fields(memo->fields, memo->n_fields);
    pool_release(memo);
}

void coming_head_reset(struct coming_head *coming)
{
    if (!coming->repeats)
        drop_fields(coming->fields, MIN(coming->n_fields, (unsigned int)MEMO_FIELDS));
    coming->repeats = coming->is_bad = false;
    coming->n_fields = 0;
    coming->rules = (struct head_rules){0};
}

struct head_memo *head_memo_make(struct coming_head *coming, struct head_builder **builder,
                                 struct pool *pool)
{
    enum { ROOM = MEMO_BYTES - sizeof(struct head_memo) };
    const struct head_builder *built = *builder;
    size_t n_bytes = built->head.n_headers * sizeof(struct http2_header);
    n_bytes += built->capacity - built->text_at;
    if (coming->n_fields > MEMO_FIELDS || built->head.is_too_large || coming->rules.has_length ||
        n_bytes > ROOM)
        return NULL;
    struct head_memo *memo = pool_alloc(pool, MEMO_BYTES, NULL);
    if (!memo)
        return NULL;
    memo->refs = 1;
    memo->n_fields = coming->n_fields;
    memcpy(memo->fields, coming->fields, coming->n_fields * sizeof(coming->fields[0]));
    coming->n_fields = 0;
    move_head(built, memo->text, ROOM, &memo->head);
    memset(memo->note, 0, sizeof(memo->note));
    memo->head.note = memo->note;
    head_done(builder);
    return memo;
}
