/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for nghttp2: streams, queued frames, entries of header tables. All memory comes from the
 * loop's pool, so that it counts in the budget, and steady traffic allocates nothing from the
 * system. Most blocks have between 40 and 250 bytes, but the smallest block of a pool has 256. So
 * small blocks are carved out of chunks, which are blocks of the pool: one size per chunk, a list
 * of free blocks in each. Large blocks come from the pool directly.
 *
 * The memory of a session has a maximum, whatever nghttp2 keeps for the client, such as
 * acknowledgements that the client does not read. A session that would exceed the maximum ends with
 * "out of memory".
 *
 * Thread: the loop's.
 */
#include <string.h>

#include "base/pool.h"
#include "frontends/net/http2_priv.h"

enum {
    CHUNK_BYTES = 3584, /* of the pool's sizes the largest that fits into a page with its header */
    LARGE = SLAB_CLASSES,
};

/*
 * Each size is 8 less than a multiple of 16, so that a block with its header keeps the alignment of
 * the next block.
 */
static const uint16_t class_bytes[SLAB_CLASSES] = {40, 56, 72, 104, 136, 168, 200, 264, 328, 520};

/* The header in front of a small block. */
struct block {
    uint32_t class;
    uint32_t offset; /* from the beginning of the chunk */
};

struct chunk {
    struct list link;   /* in slab->chunks, while it has a free block */
    struct block *free; /* linked by their first bytes */
    unsigned int n_used;
};

_Static_assert(sizeof(struct block) == 8 && sizeof(struct chunk) % 16 == 0,
               "a small block begins 8 bytes behind a multiple of 16");

/* Blocks of the pool are aligned to 64 bytes, and small blocks never are. */
static bool is_pool_block(const void *at)
{
    return (uintptr_t)at % 16 == 0;
}

static struct block **next_free(struct block *b)
{
    return (struct block **)(void *)(b + 1);
}

void http2_slab_init(struct http2_slab *slab, struct pool *pool)
{
    slab->pool = pool;
    for (unsigned int i = 0; i < SLAB_CLASSES; i++)
        list_init(&slab->chunks[i]);
}

void http2_slab_trim(struct http2_slab *slab)
{
    for (unsigned int i = 0; i < SLAB_CLASSES; i++) {
        LIST_FOR_EACH_SAFE (link, &slab->chunks[i]) {
            struct chunk *c = LIST_ENTRY(link, struct chunk, link);
            if (c->n_used > 0)
                continue;
            list_remove(link);
            pool_release(c);
        }
    }
}

void http2_slab_done(struct http2_slab *slab)
{
    http2_slab_trim(slab);
    for (unsigned int i = 0; i < SLAB_CLASSES; i++)
        BUG_ON(!list_empty(&slab->chunks[i]));
}

/* The class of each size, in steps of 8 bytes. */
enum { STEP = 8, MAX_SMALL_BYTES = 520 };
static const uint8_t classes[MAX_SMALL_BYTES / STEP + 1] = {
    [0 ... 5] = 0,   [6 ... 7] = 1,   [8 ... 9] = 2,   [10 ... 13] = 3, [14 ... 17] = 4,
    [18 ... 21] = 5, [22 ... 25] = 6, [26 ... 33] = 7, [34 ... 41] = 8, [42 ... 65] = 9,
};

static unsigned int find_slab_class(size_t size_bytes)
{
    if (size_bytes > MAX_SMALL_BYTES)
        return LARGE;
    return classes[(size_bytes + STEP - 1) / STEP];
}

static struct chunk *make_chunk(struct http2_slab *slab, unsigned int class)
{
    struct chunk *c = pool_alloc(slab->pool, CHUNK_BYTES, NULL);
    if (!c)
        return NULL;
    c->free = NULL;
    c->n_used = 0;
    size_t step = sizeof(struct block) + class_bytes[class];
    size_t n = (CHUNK_BYTES - sizeof(*c)) / step;
    for (size_t i = n; i-- > 0;) {
        size_t offset = sizeof(*c) + i * step;
        struct block *b = (struct block *)(void *)((char *)c + offset);
        *b = (struct block){class, (uint32_t)offset};
        *next_free(b) = c->free;
        c->free = b;
    }
    list_push_front(&slab->chunks[class], &c->link);
    return c;
}

static struct block *take_small(struct http2_slab *slab, unsigned int class)
{
    struct chunk *c = list_empty(&slab->chunks[class])
                          ? make_chunk(slab, class)
                          : LIST_ENTRY(slab->chunks[class].next, struct chunk, link);
    if (!c)
        return NULL;
    struct block *b = c->free;
    c->free = *next_free(b);
    c->n_used++;
    if (!c->free)
        list_remove(&c->link);
    return b;
}

/*
 * Keeps one empty chunk of each size, so that a stream that begins and ends again and again needs
 * no new chunk each time.
 */
static void give_small_back(struct http2_slab *slab, struct block *b)
{
    struct chunk *c = (struct chunk *)(void *)((char *)b - b->offset);
    struct list *chunks = &slab->chunks[b->class];
    bool was_full = !c->free;
    *next_free(b) = c->free;
    c->free = b;
    c->n_used--;
    if (was_full) {
        list_push_front(chunks, &c->link);
    } else if (c->n_used == 0 && chunks->next != chunks->prev) {
        list_remove(&c->link);
        pool_release(c);
    }
}

static size_t get_size(const void *at)
{
    return is_pool_block(at) ? pool_block_bytes(at)
                             : class_bytes[((const struct block *)at - 1)->class];
}

static void *take_block(struct http2_memory *m, size_t size_bytes)
{
    unsigned int class = find_slab_class(size_bytes);
    if (size_bytes > m->max_bytes - MIN(m->max_bytes, m->used_bytes))
        return NULL;
    void *at = NULL;
    if (class == LARGE) {
        at = pool_alloc(m->slab->pool, size_bytes, NULL);
    } else {
        struct block *b = take_small(m->slab, class);
        at = b ? b + 1 : NULL;
    }
    if (at)
        m->used_bytes += get_size(at);
    return at;
}

static void release_block(struct http2_memory *m, void *at)
{
    m->used_bytes -= get_size(at);
    if (is_pool_block(at))
        pool_release(at);
    else
        give_small_back(m->slab, (struct block *)at - 1);
}

static void *alloc_memory(size_t size_bytes, void *arg)
{
    return take_block(arg, size_bytes);
}

static void free_memory(void *at, void *arg)
{
    if (at)
        release_block(arg, at);
}

static void *alloc_zeros(size_t n_items, size_t item_bytes, void *arg)
{
    size_t size_bytes;
    if (__builtin_mul_overflow(n_items, item_bytes, &size_bytes))
        return NULL;
    void *at = take_block(arg, size_bytes);
    if (at)
        memset(at, 0, size_bytes);
    return at;
}

static void *realloc_memory(void *at, size_t size_bytes, void *arg)
{
    if (!at)
        return take_block(arg, size_bytes);
    size_t old_bytes = get_size(at);
    if (size_bytes <= old_bytes)
        return at;
    void *larger = take_block(arg, size_bytes);
    if (!larger)
        return NULL;
    memcpy(larger, at, old_bytes);
    release_block(arg, at);
    return larger;
}

void http2_memory_init(struct http2_memory *m, struct http2_slab *slab, size_t max_bytes)
{
    *m = (struct http2_memory){
        .slab = slab,
        .max_bytes = max_bytes,
        .functions = {m, alloc_memory, free_memory, alloc_zeros, realloc_memory},
    };
}
