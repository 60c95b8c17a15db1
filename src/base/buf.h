/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A byte buffer that grows up to a maximum, set when the buffer is made. Functions that add return
 * no error. When the maximum or the memory is exhausted, the buffer records the failure and ignores
 * all further additions; buf_status() reports it at the end. After each addition a zero byte
 * follows the content; `size` does not count it.
 */
#ifndef CONCH_BASE_BUF_H
#define CONCH_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

struct pool;
struct status;

struct buf {
    char *data; /* NULL until the first addition */
    size_t size;
    size_t capacity;
    size_t max;
    struct pool *pool; /* where the memory comes from; NULL = the system */
    bool failed;       /* something was not added */
    bool full;         /* … because of max; otherwise for want of memory */
};

#define BUF_INIT(max_bytes)                                                                        \
    {                                                                                              \
        .max = (max_bytes)                                                                         \
    }

void buf_init(struct buf *b, size_t max_bytes);
/* buf_init_pooled - for buffers that are large and made often: the pool reuses their memory. */
void buf_init_pooled(struct buf *b, size_t max_bytes, struct pool *pool);
void buf_done(struct buf *b);

/* buf_reset - empties the buffer, keeps its memory and forgets a failure. */
void buf_reset(struct buf *b);

/*
 * buf_reserve - makes room for n_bytes more. Returns the address to write them to, or NULL when the
 * buffer has failed. The caller adds to b->size what it wrote.
 */
char *buf_reserve(struct buf *b, size_t n_bytes);

void buf_add_slow(struct buf *b, const void *bytes, size_t n_bytes);
void buf_addf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_addv(struct buf *b, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);

static inline void buf_add(struct buf *b, const void *bytes, size_t n_bytes)
{
    if (LIKELY(!b->failed && b->capacity - b->size > n_bytes)) {
        memcpy(b->data + b->size, bytes, n_bytes);
        b->size += n_bytes;
        b->data[b->size] = '\0';
        return;
    }
    buf_add_slow(b, bytes, n_bytes);
}

static inline void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

static inline void buf_addc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

/* buf_status - NULL, or the first failure: the maximum (STATUS_INVALID_ARG) or no memory. */
NODISCARD struct status *buf_status(const struct buf *b);

/* buf_text - the content as a string, "" when empty; borrowed. */
static inline const char *buf_text(const struct buf *b)
{
    return b->size ? b->data : "";
}

/*
 * buf_take - returns the content as a string and empties the buffer. The caller owns the string and
 * frees it with mem_free(), or with pool_release() if the buffer is pooled. NULL, from a pooled
 * buffer only, means no memory.
 */
char *buf_take(struct buf *b);

#endif
