/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: pages are made by a write to each and not by madvise(MADV_POPULATE_WRITE), which holds
 * the lock of all mappings for as long as it takes; a fault holds only that of its own. A large
 * block is unmapped in pieces of 16 MiB from its end, since unmapping does block every other
 * mapping. Orders and pieces alternate, so that neither waits for many of the other.
 */
#include "base/memory_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/status.h"

enum {
    LEVEL = 897,            /* in the table of core/README.md */
    UNMAP_BYTES = 16 << 20, /* at once: at most a millisecond */
    PAGE_BYTES = 4096,
    ALL_ARENAS = 4096, /* jemalloc's MALLCTL_ARENAS_ALL */
    NICE = 10,         /* a loop that wakes up gets the CPU at once */
};

/* At the beginning of pages that wait to be unmapped. */
struct leaving_pages {
    struct leaving_pages *next;
    size_t bytes;
};

/*
 *     WAITS ──► RUNS ──► MADE            on its way to the loop, which frees it
 *       │         └──────► FORGOTTEN     the thread frees it
 *       └ forgotten: freed at once
 */
struct page_order {
    /* Constant while the order is in progress. */
    struct loop *loop;
    char *pages;
    size_t bytes;
    void (*on_made)(void *arg);
    void *arg; /* the loop's */
    /* Under mu. */
    struct list link; /* of orders, while it waits */
    enum { ORDER_WAITS, ORDER_RUNS, ORDER_FORGOTTEN, ORDER_MADE } stage;
    struct message made;
};

void memory_thread_init(struct memory_thread *t)
{
    *t = (struct memory_thread){.purge_ns = UINT64_MAX};
    mutex_init(&t->mu, LEVEL, "memory_thread.mu");
    cond_init(&t->work);
    list_init(&t->orders);
}

void memory_thread_done(struct memory_thread *t)
{
    cond_done(&t->work);
    mutex_done(&t->mu);
}

/* ---- The work -------------------------------------------------------------------------------- */

/* Writes without a change, whatever the pages contain. */
static void make_pages(const struct page_order *order)
{
    for (size_t at = 0; at < order->bytes; at += PAGE_BYTES) {
        char nothing = 0;
        (void)__atomic_compare_exchange_n(order->pages + at, &nothing, 0, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED);
    }
}

/* Unmaps a piece from the end; returns whether it was the last one. */
static bool unmap_piece(struct leaving_pages *pages)
{
    size_t rest = (pages->bytes - 1) / UNMAP_BYTES * UNMAP_BYTES;
    size_t piece = pages->bytes - rest;
    pages->bytes = rest;
    mem_unmap((char *)pages + rest, piece);
    return rest == 0;
}

/* jemalloc returns freed pages gradually, but only while a thread allocates. Other allocators
 * are not asked: they belong to the embedding program. */
__attribute__((weak)) int mallctl(const char *name, void *old, size_t *old_size, void *new,
                                  size_t new_size);

static void purge_allocator(void)
{
    _Static_assert(ALL_ARENAS == 4096, "the number in the name below");
    if (mallctl)
        (void)mallctl("arena.4096.purge", NULL, NULL, NULL, 0);
}

static void on_order_made(struct message *m)
{
    struct page_order *order = CONTAINER_OF(m, struct page_order, made);
    void *arg = order->arg;
    void (*on_made)(void *) = order->on_made;
    mem_free(order);
    if (arg)
        on_made(arg);
}

/* Executes the oldest order; false: there is none. Unlocks mu meanwhile. */
static bool fulfil_one_locked(struct memory_thread *t)
{
    mutex_assert_held(&t->mu);
    struct list *link = list_pop(&t->orders);
    if (!link)
        return false;
    struct page_order *order = LIST_ENTRY(link, struct page_order, link);
    order->stage = ORDER_RUNS;
    mutex_unlock(&t->mu);
    make_pages(order);
    mutex_lock(&t->mu);
    if (order->stage == ORDER_FORGOTTEN) { /* its loop may be freed */
        mem_free(order);
    } else {
        order->stage = ORDER_MADE;
        loop_post(order->loop, &order->made);
    }
    return true;
}

/* Unmaps a piece of the oldest block; false: there is none. Unlocks mu meanwhile. */
static bool unmap_some_locked(struct memory_thread *t)
{
    mutex_assert_held(&t->mu);
    struct leaving_pages *pages = t->leaving;
    if (!pages)
        return false;
    t->leaving = pages->next;
    mutex_unlock(&t->mu);
    bool over = unmap_piece(pages);
    mutex_lock(&t->mu);
    if (!over) {
        pages->next = t->leaving;
        t->leaving = pages;
    }
    return true;
}

static void run_memory_thread(void *arg)
{
    struct memory_thread *t = arg;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* of this thread */
    mutex_lock(&t->mu);
    for (;;) {
        bool busy = fulfil_one_locked(t);
        busy |= unmap_some_locked(t);
        if (busy)
            continue;
        if (t->stopping)
            break;
        if (monotonic_ns() < t->purge_ns) {
            (void)cond_wait_until(&t->work, &t->mu, t->purge_ns);
            continue;
        }
        t->purge_ns = UINT64_MAX;
        mutex_unlock(&t->mu);
        purge_allocator();
        mutex_lock(&t->mu);
    }
    mutex_unlock(&t->mu);
}

/* ---- Start and stop ------------------------------------------------------------------------- */

struct status *memory_thread_start(struct memory_thread *t)
{
    struct status *st = NULL;
    mutex_lock(&t->mu);
    if (t->n_users == 0) {
        t->stopping = false;
        st = thread_start(&t->thread, "memory", run_memory_thread, t);
    }
    t->n_users += !st;
    mutex_unlock(&t->mu);
    return st;
}

void memory_thread_stop(struct memory_thread *t)
{
    mutex_lock(&t->mu);
    bool last = --t->n_users == 0;
    t->stopping = last;
    cond_signal(&t->work);
    mutex_unlock(&t->mu);
    if (last)
        thread_join(&t->thread);
}

/* ---- Orders ---------------------------------------------------------------------------------- */

struct page_order *memory_thread_order(struct memory_thread *t, struct loop *loop, char *pages,
                                       size_t bytes, void (*on_made)(void *arg), void *arg)
{
    struct page_order *order = mem_try_zalloc(1, sizeof(*order));
    if (!order)
        return NULL;
    *order = (struct page_order){
        .loop = loop, .pages = pages, .bytes = bytes, .on_made = on_made, .arg = arg};
    order->made.deliver = on_order_made;
    mutex_lock(&t->mu);
    bool taken = t->n_users > 0;
    if (taken) {
        list_push(&t->orders, &order->link);
        cond_signal(&t->work);
    }
    mutex_unlock(&t->mu);
    if (taken)
        return order;
    mem_free(order);
    return NULL;
}

bool memory_thread_forget(struct memory_thread *t, struct page_order *order)
{
    mutex_lock(&t->mu);
    bool waits = order->stage == ORDER_WAITS, runs = order->stage == ORDER_RUNS;
    if (waits)
        list_remove(&order->link);
    else if (runs)
        order->stage = ORDER_FORGOTTEN;
    else
        order->arg = NULL; /* on its way to this thread */
    mutex_unlock(&t->mu);
    if (waits)
        mem_free(order);
    return runs;
}

void memory_thread_unmap(struct memory_thread *t, void *pages, size_t bytes)
{
    struct leaving_pages *leaving = pages;
    *leaving = (struct leaving_pages){.bytes = bytes};
    mutex_lock(&t->mu);
    bool handed = t->n_users > 0;
    if (handed) {
        leaving->next = t->leaving;
        t->leaving = leaving;
        cond_signal(&t->work);
    }
    mutex_unlock(&t->mu);
    while (!handed)
        handed = unmap_piece(leaving);
}

void memory_thread_purge(struct memory_thread *t)
{
    mutex_lock(&t->mu);
    if (t->purge_ns == UINT64_MAX) {
        t->purge_ns = monotonic_ns() + NS_PER_S; /* more pages of the same peak will follow */
        cond_signal(&t->work);
    }
    mutex_unlock(&t->mu);
}
