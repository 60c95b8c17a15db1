/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - see memory.h.
 *
 * Both sides map the largest size that the file may have at once: pages beyond its end cost address
 * space alone, and no address ever moves while the file grows.
 *
 * The owner's books are an array of blocks that tile the file. They are linked three ways by their
 * indices: by address (to merge free neighbours); in a list of their state, which is one of 64 bins
 * of free blocks by size, the queue of those that the receiver has, or none; and by a hash table
 * from offset to block. Each arena_take() asks a few of the blocks at the head of the queue whether
 * they are back; all are asked before the file grows. In steady state nothing is allocated.
 */
#include "python/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    N_BINS = 64,
    LOOKS_IN_BIN = 8,   /* blocks of the fitting bin that a take tries */
    LOOKS_IN_QUEUE = 4, /* blocks that a take asks whether they are back */
};

#define NO_BLOCK   UINT32_MAX
#define PAGE_BYTES 4096u
/* The largest size of a file: sums of offsets and sizes below it do not overflow. */
#define LARGEST_FILE (UINT64_C(1) << 46)

/* The header of a block, in the file. */
struct header {
    _Atomic uint32_t held; /* 1: the receiver has it */
    uint32_t unused[15];
};
_Static_assert(sizeof(struct header) == BLOCK_HEADER_BYTES, "the header of a block");

enum state { FREE, TAKEN, HANDED, PINNED, NO_STATE };

struct block {
    uint64_t at, size;      /* of the header in the file; with it */
    uint32_t before, after; /* by address */
    uint32_t prev, next; /* in the bin (FREE), the queue (HANDED), or the spare ones (NO_STATE) */
    enum state state;
};

struct list {
    uint32_t first, last;
};

struct arena {
    int fd;
    char *base;
    uint64_t max_bytes, grow_bytes;
    pthread_mutex_t mu;
    /* Under mu. */
    uint64_t size; /* of the file, as far as we have made it */
    struct block *blocks;
    uint32_t n_blocks, room; /* used ones of `blocks`, with the spare ones */
    uint32_t spare;          /* first of those that are no block now */
    uint32_t end;            /* the block with the highest address */
    struct list bins[N_BINS], queue;
    uint64_t filled; /* a bit for each bin that has blocks */
    uint32_t *table; /* offset → block, open addressing; NO_BLOCK: empty */
    uint32_t n_table, n_entries;
};

struct mapping {
    int fd;
    char *base;
    uint64_t max_bytes;
    _Atomic uint64_t size; /* of the file, as last seen; it never shrinks */
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static unsigned int find_bin(uint64_t size)
{
    return 63 - (unsigned int)__builtin_clzll(size);
}

static struct header *locate_header(const struct arena *a, const struct block *b)
{
    return (struct header *)(void *)(a->base + b->at);
}

/* Lists. */

static void append_block(struct arena *a, struct list *l, uint32_t i)
{
    struct block *b = &a->blocks[i];

    b->prev = l->last;
    b->next = NO_BLOCK;
    if (l->last == NO_BLOCK)
        l->first = i;
    else
        a->blocks[l->last].next = i;
    l->last = i;
}

static void unlink_block(struct arena *a, struct list *l, uint32_t i)
{
    const struct block *b = &a->blocks[i];

    if (b->prev == NO_BLOCK)
        l->first = b->next;
    else
        a->blocks[b->prev].next = b->next;
    if (b->next == NO_BLOCK)
        l->last = b->prev;
    else
        a->blocks[b->next].prev = b->prev;
}

/* The table. A block is in it while it is not free. */

static uint32_t hash_offset(const struct arena *a, uint64_t at)
{
    const uint64_t hash = (at / BLOCK_ALIGN) * UINT64_C(0x9e3779b97f4a7c15);

    return (uint32_t)(hash >> 32) & (a->n_table - 1);
}

static uint32_t find_block(const struct arena *a, uint64_t at)
{
    for (uint32_t s = hash_offset(a, at); a->table[s] != NO_BLOCK; s = (s + 1) & (a->n_table - 1)) {
        if (a->blocks[a->table[s]].at == at)
            return a->table[s];
    }
    return NO_BLOCK;
}

static void enter_block(struct arena *a, uint32_t i)
{
    uint32_t s = hash_offset(a, a->blocks[i].at);

    while (a->table[s] != NO_BLOCK)
        s = (s + 1) & (a->n_table - 1);
    a->table[s] = i;
    a->n_entries++;
}

static void strike_block(struct arena *a, uint32_t i)
{
    const uint32_t mask = a->n_table - 1;
    uint32_t s = hash_offset(a, a->blocks[i].at);

    while (a->table[s] != i)
        s = (s + 1) & mask;
    /* Entries behind it that would no more be found move up. */
    for (uint32_t t = (s + 1) & mask; a->table[t] != NO_BLOCK; t = (t + 1) & mask) {
        const uint32_t home = hash_offset(a, a->blocks[a->table[t]].at);

        if (((t - home) & mask) >= ((t - s) & mask)) {
            a->table[s] = a->table[t];
            s = t;
        }
    }
    a->table[s] = NO_BLOCK;
    a->n_entries--;
}

static bool reserve_entry(struct arena *a)
{
    uint32_t *old = a->table;
    const uint32_t n_old = a->n_table;

    if (a->n_entries < n_old / 2)
        return true;
    uint32_t *table = malloc((size_t)n_old * 2 * sizeof *table);
    if (!table)
        return false;
    memset(table, 0xff, (size_t)n_old * 2 * sizeof *table);
    a->table = table;
    a->n_table = n_old * 2;
    a->n_entries = 0;
    for (uint32_t s = 0; s < n_old; s++) {
        if (old[s] != NO_BLOCK)
            enter_block(a, old[s]);
    }
    free(old);
    return true;
}

/* reserve_block - an entry of the books; the caller gives it a state. NO_BLOCK: no memory. */
static uint32_t reserve_block(struct arena *a)
{
    if (a->spare != NO_BLOCK) {
        const uint32_t i = a->spare;

        a->spare = a->blocks[i].next;
        return i;
    }
    if (a->n_blocks == a->room) {
        const uint32_t room = a->room ? a->room * 2 : 64;
        struct block *blocks =
            room > UINT32_MAX / 4 ? NULL : realloc(a->blocks, room * sizeof *blocks);

        if (!blocks)
            return NO_BLOCK;
        a->blocks = blocks;
        a->room = room;
    }
    return a->n_blocks++;
}

static void spare_block(struct arena *a, uint32_t i)
{
    a->blocks[i].state = NO_STATE;
    a->blocks[i].next = a->spare;
    a->spare = i;
}

/* Free blocks. */

static void bin_block(struct arena *a, uint32_t i)
{
    const unsigned int bin = find_bin(a->blocks[i].size);

    a->blocks[i].state = FREE;
    append_block(a, &a->bins[bin], i);
    a->filled |= UINT64_C(1) << bin;
}

static void unbin_block(struct arena *a, uint32_t i)
{
    const unsigned int bin = find_bin(a->blocks[i].size);

    unlink_block(a, &a->bins[bin], i);
    if (a->bins[bin].first == NO_BLOCK)
        a->filled &= ~(UINT64_C(1) << bin);
}

/* join_after - the block takes over its neighbour at the higher address. */
static void join_after(struct arena *a, uint32_t i)
{
    struct block *b = &a->blocks[i];
    const uint32_t gone = b->after;

    b->size += a->blocks[gone].size;
    b->after = a->blocks[gone].after;
    if (b->after == NO_BLOCK)
        a->end = i;
    else
        a->blocks[b->after].before = i;
    spare_block(a, gone);
}

/* free_block - of a block in no list and not in the table; merges it with free neighbours. */
static void free_block(struct arena *a, uint32_t i)
{
    const uint32_t after = a->blocks[i].after, before = a->blocks[i].before;

    if (after != NO_BLOCK && a->blocks[after].state == FREE) {
        unbin_block(a, after);
        join_after(a, i);
    }
    if (before != NO_BLOCK && a->blocks[before].state == FREE) {
        unbin_block(a, before);
        join_after(a, before);
        i = before;
    }
    bin_block(a, i);
}

/* reclaim_block - of a block that is not free. */
static void reclaim_block(struct arena *a, uint32_t i)
{
    if (a->blocks[i].state == HANDED)
        unlink_block(a, &a->queue, i);
    strike_block(a, i);
    free_block(a, i);
}

/* ask_block - has the receiver given it back? Pairs with the store of mapping_give_back(). */
static bool ask_block(const struct arena *a, uint32_t i)
{
    return !atomic_load_explicit(&locate_header(a, &a->blocks[i])->held, memory_order_acquire);
}

/* collect_blocks - frees those of the first `most` blocks of the queue that are back; the others go
 * to its end. */
static void collect_blocks(struct arena *a, uint32_t most)
{
    const uint32_t last = a->queue.last;

    for (uint32_t n = 0; n < most && a->queue.first != NO_BLOCK; n++) {
        const uint32_t i = a->queue.first;

        if (ask_block(a, i)) {
            reclaim_block(a, i);
        } else {
            unlink_block(a, &a->queue, i);
            append_block(a, &a->queue, i);
        }
        if (i == last)
            break;
    }
}

/* find_free - a free block of at least this size, with its header. */
static uint32_t find_free(const struct arena *a, uint64_t need)
{
    const unsigned int bin = find_bin(need);
    unsigned int looks = 0;

    for (uint32_t i = a->bins[bin].first; i != NO_BLOCK && looks < LOOKS_IN_BIN;
         i = a->blocks[i].next, looks++) {
        if (a->blocks[i].size >= need)
            return i;
    }
    /* Each block of a higher bin is large enough. */
    const uint64_t higher = bin == N_BINS - 1 ? 0 : a->filled & (UINT64_MAX << (bin + 1));
    return higher ? a->bins[__builtin_ctzll(higher)].first : NO_BLOCK;
}

/* grow_file - adds a free block of at least this size at the end. */
static bool grow_file(struct arena *a, uint64_t need)
{
    const bool end_free = a->end != NO_BLOCK && a->blocks[a->end].state == FREE;
    const uint64_t have = end_free ? a->blocks[a->end].size : 0;
    uint64_t more = need > have ? need - have : 0;

    if (more < a->grow_bytes)
        more = a->grow_bytes;
    more = round_up(more, PAGE_BYTES);
    if (more > a->max_bytes - a->size)
        more = a->max_bytes - a->size;
    if (more == 0 || have + more < need) {
        errno = ENOMEM;
        return false;
    }
    const uint32_t i = reserve_block(a);
    if (i == NO_BLOCK)
        return false;
    if (ftruncate(a->fd, (off_t)(a->size + more))) {
        spare_block(a, i);
        return false;
    }
    a->blocks[i] = (struct block){.at = a->size, .size = more, .before = a->end, .after = NO_BLOCK};
    if (a->end != NO_BLOCK)
        a->blocks[a->end].after = i;
    a->end = i;
    a->size += more;
    free_block(a, i);
    return true;
}

/* cut_block - makes a free block of what is behind its first `need` bytes. Without memory for the
 * books it stays whole. */
static void cut_block(struct arena *a, uint32_t i, uint64_t need)
{
    if (a->blocks[i].size - need < BLOCK_HEADER_BYTES + BLOCK_ALIGN)
        return;
    const uint32_t rest = reserve_block(a);
    if (rest == NO_BLOCK)
        return;
    struct block *b = &a->blocks[i];

    a->blocks[rest] =
        (struct block){.at = b->at + need, .size = b->size - need, .before = i, .after = b->after};
    if (b->after == NO_BLOCK)
        a->end = rest;
    else
        a->blocks[b->after].before = rest;
    b->after = rest;
    b->size = need;
    bin_block(a, rest);
}

struct arena *arena_new(int fd, uint64_t first_bytes, uint64_t grow_bytes, uint64_t max_bytes)
{
    struct arena *a = calloc(1, sizeof *a);

    if (!a)
        return NULL;
    if (max_bytes > LARGEST_FILE)
        max_bytes = LARGEST_FILE;
    a->fd = fd;
    a->max_bytes = round_up(max_bytes ? max_bytes : 1, PAGE_BYTES);
    a->grow_bytes = grow_bytes > a->max_bytes ? a->max_bytes : grow_bytes;
    a->spare = a->end = NO_BLOCK;
    for (unsigned int bin = 0; bin < N_BINS; bin++)
        a->bins[bin] = (struct list){NO_BLOCK, NO_BLOCK};
    a->queue = (struct list){NO_BLOCK, NO_BLOCK};
    a->n_table = 64;
    a->table = malloc(a->n_table * sizeof *a->table);
    if (!a->table)
        goto no_table;
    memset(a->table, 0xff, a->n_table * sizeof *a->table);
    a->base = mmap(NULL, a->max_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (a->base == MAP_FAILED)
        goto no_map;
    pthread_mutex_init(&a->mu, NULL);
    if (first_bytes && !grow_file(a, first_bytes < a->max_bytes ? first_bytes : a->max_bytes)) {
        const int why = errno;

        arena_free(a);
        errno = why;
        return NULL;
    }
    return a;

no_map:
    free(a->table);
no_table:
    free(a);
    return NULL;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    munmap(a->base, a->max_bytes);
    pthread_mutex_destroy(&a->mu);
    free(a->blocks);
    free(a->table);
    free(a);
}

static void *take_locked(struct arena *a, uint64_t need, uint64_t *ret_at)
{
    if (!reserve_entry(a))
        return NULL;
    collect_blocks(a, LOOKS_IN_QUEUE);
    uint32_t i = find_free(a, need);
    if (i == NO_BLOCK) {
        collect_blocks(a, UINT32_MAX);
        i = find_free(a, need);
    }
    if (i == NO_BLOCK) {
        if (!grow_file(a, need))
            return NULL;
        i = a->end;
    }
    unbin_block(a, i);
    a->blocks[i].state = TAKEN;
    cut_block(a, i, need);
    enter_block(a, i);
    *ret_at = a->blocks[i].at + BLOCK_HEADER_BYTES;
    return a->base + *ret_at;
}

void *arena_take(struct arena *a, uint64_t size_bytes, uint64_t *ret_at)
{
    if (size_bytes > a->max_bytes) {
        errno = ENOMEM;
        return NULL;
    }
    pthread_mutex_lock(&a->mu);
    void *data = take_locked(
        a, BLOCK_HEADER_BYTES + round_up(size_bytes ? size_bytes : 1, BLOCK_ALIGN), ret_at);
    pthread_mutex_unlock(&a->mu);
    return data;
}

/* find_given - the block with data at this offset that is not free; NO_BLOCK: none. */
static uint32_t find_given(const struct arena *a, uint64_t at)
{
    return at < BLOCK_HEADER_BYTES ? NO_BLOCK : find_block(a, at - BLOCK_HEADER_BYTES);
}

void arena_drop(struct arena *a, uint64_t at)
{
    pthread_mutex_lock(&a->mu);
    const uint32_t i = find_given(a, at);
    if (i != NO_BLOCK)
        reclaim_block(a, i);
    pthread_mutex_unlock(&a->mu);
}

static void hand_block(struct arena *a, uint64_t at, enum state state)
{
    pthread_mutex_lock(&a->mu);
    const uint32_t i = find_given(a, at);
    if (i != NO_BLOCK && a->blocks[i].state == TAKEN) {
        a->blocks[i].state = state;
        atomic_store_explicit(&locate_header(a, &a->blocks[i])->held, 1, memory_order_release);
        if (state == HANDED)
            append_block(a, &a->queue, i);
    }
    pthread_mutex_unlock(&a->mu);
}

void block_hand(struct arena *a, uint64_t at)
{
    hand_block(a, at, HANDED);
}

void block_hand_pinned(struct arena *a, uint64_t at)
{
    hand_block(a, at, PINNED);
}

bool arena_given_back(struct arena *a, uint64_t at)
{
    pthread_mutex_lock(&a->mu);
    const uint32_t i = find_given(a, at);
    const bool back = i == NO_BLOCK || a->blocks[i].state == TAKEN || ask_block(a, i);
    pthread_mutex_unlock(&a->mu);
    return back;
}

uint64_t arena_held_bytes(struct arena *a)
{
    uint64_t held = 0;

    pthread_mutex_lock(&a->mu);
    for (uint32_t i = 0; i < a->n_blocks; i++) {
        const struct block *b = &a->blocks[i];

        if ((b->state == HANDED || b->state == PINNED) && !ask_block(a, i))
            held += b->size;
    }
    pthread_mutex_unlock(&a->mu);
    return held;
}

void arena_trim(struct arena *a, uint64_t keep_bytes)
{
    pthread_mutex_lock(&a->mu);
    collect_blocks(a, UINT32_MAX);
    for (uint32_t i = 0; i < a->n_blocks; i++) {
        const struct block *b = &a->blocks[i];

        if (b->state != FREE || b->at + b->size <= keep_bytes)
            continue;
        const uint64_t from = round_up(b->at > keep_bytes ? b->at : keep_bytes, PAGE_BYTES);
        const uint64_t to = (b->at + b->size) / PAGE_BYTES * PAGE_BYTES;

        /* An error leaves the pages where they are. */
        if (from < to)
            (void)fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                            (off_t)(to - from));
    }
    pthread_mutex_unlock(&a->mu);
}

struct mapping *mapping_new(int fd, uint64_t max_bytes)
{
    struct mapping *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    if (max_bytes > LARGEST_FILE)
        max_bytes = LARGEST_FILE;
    m->fd = fd;
    m->max_bytes = round_up(max_bytes ? max_bytes : 1, PAGE_BYTES);
    m->base = mmap(NULL, m->max_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (m->base == MAP_FAILED) {
        free(m);
        return NULL;
    }
    return m;
}

void mapping_free(struct mapping *m)
{
    if (!m)
        return;
    munmap(m->base, m->max_bytes);
    free(m);
}

void *mapping_find(struct mapping *m, uint64_t at, uint64_t size_bytes)
{
    /* Relaxed: the number alone counts, and an older one makes us ask again. */
    uint64_t size = atomic_load_explicit(&m->size, memory_order_relaxed);

    if (at > size || size_bytes > size - at) {
        struct stat st;

        if (fstat(m->fd, &st) || st.st_size < 0)
            return NULL;
        size = (uint64_t)st.st_size < m->max_bytes ? (uint64_t)st.st_size : m->max_bytes;
        atomic_store_explicit(&m->size, size, memory_order_relaxed);
        if (at > size || size_bytes > size - at)
            return NULL;
    }
    return m->base + at;
}

/* The thread sanitizer does not see the store: what orders it before the next use of the address is
 * the owner, who has the memory at another address or in another process. */
__attribute__((no_sanitize("thread"))) void mapping_give_back(struct mapping *m, uint64_t at)
{
    if (at < BLOCK_HEADER_BYTES || at % BLOCK_ALIGN)
        return;
    struct header *h = mapping_find(m, at - BLOCK_HEADER_BYTES, BLOCK_HEADER_BYTES);
    /* Our reads of the block come before the owner's next writes: pairs with ask_block(). */
    if (!h)
        return;
    atomic_store_explicit(&h->held, 0, memory_order_release);
}
