/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf_reserve() is the only place where a buffer grows: it doubles, up to the maximum. Once
 * `failed` is set, the content stays as it is. After each function here `data`, if there is any,
 * has a zero byte behind the content, and the capacity counts it. One thread at a time uses a
 * buffer.
 */
#include "base/buf.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"

enum { SMALLEST_BYTES = 64 };

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = (struct buf)BUF_INIT(max_bytes);
}

void buf_init_pooled(struct buf *b, size_t max_bytes, struct pool *pool)
{
    *b = (struct buf){.max = max_bytes, .pool = pool};
}

static void forget_block(struct buf *b)
{
    *b = (struct buf){.max = b->max, .pool = b->pool};
}

void buf_done(struct buf *b)
{
    if (b->pool)
        pool_release(b->data);
    else
        mem_free(b->data);
    forget_block(b);
}

/* Moves the content into room for `capacity` bytes; NULL leaves the buffer as it was. */
static char *move_content(struct buf *b, size_t *capacity)
{
    if (!b->pool)
        return mem_try_realloc(b->data, *capacity);
    char *data = pool_alloc(b->pool, *capacity, NULL);
    if (!data)
        return NULL;
    *capacity = MIN(pool_block_bytes(data), b->max + 1);
    if (b->data)
        memcpy(data, b->data, b->size);
    pool_release(b->data);
    return data;
}

void buf_reset(struct buf *b)
{
    b->size = 0;
    b->failed = b->full = false;
    if (b->data)
        b->data[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n_bytes)
{
    if (b->failed)
        return NULL;
    if (n_bytes > b->max - b->size) {
        b->failed = b->full = true;
        return NULL;
    }
    size_t needed = b->size + n_bytes + 1; /* the zero byte; max is never as large as SIZE_MAX */
    if (needed > b->capacity) {
        size_t capacity = MAX(b->capacity * 2, (size_t)SMALLEST_BYTES);
        capacity = MAX(MIN(capacity, b->max + 1), needed);
        char *data = move_content(b, &capacity);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->capacity = capacity;
        b->data[b->size] = '\0'; /* the caller may add nothing after all */
    }
    return b->data + b->size;
}

void buf_add_slow(struct buf *b, const void *bytes, size_t n_bytes)
{
    char *place = buf_reserve(b, n_bytes);
    if (!place)
        return;
    if (n_bytes)
        memcpy(place, bytes, n_bytes);
    place[n_bytes] = '\0';
    b->size += n_bytes;
}

void buf_addv(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int length = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (length < 0) { /* more than INT_MAX bytes */
        b->failed = b->full = true;
        return;
    }
    char *place = buf_reserve(b, (size_t)length);
    if (!place)
        return;
    vsnprintf(place, (size_t)length + 1, fmt, ap);
    b->size += (size_t)length;
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_addv(b, fmt, ap);
    va_end(ap);
}

struct status *buf_status(const struct buf *b)
{
    if (!b->failed)
        return NULL;
    if (b->full)
        return status_new(STATUS_INVALID_ARG, "text exceeds the maximum of %zu bytes", b->max);
    return status_no_memory();
}

char *buf_take(struct buf *b)
{
    if (!b->data && b->pool)
        buf_add_slow(b, "", 0);
    char *text = b->data || b->pool ? b->data : mem_strdup("");
    forget_block(b);
    return text;
}
