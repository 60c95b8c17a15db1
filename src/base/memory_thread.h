/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread "memory" does the work on large blocks that takes the kernel long, so that no event
 * loop waits for it. It
 *
 *  - makes pages: a page exists from the first write to it on. That write makes the kernel find and
 *    clear 2 MiB, which takes 0.2 ms, or 50 ms where a hypervisor has to find the memory first;
 *  - unmaps large blocks, since unmapping 2 GB takes 116 ms;
 *  - has the allocator return the memory that a peak has left unused.
 *
 * The thread does one of these at a time. So the pages of an order stay mapped while the thread
 * writes to them, provided that they are unmapped by memory_thread_unmap() only.
 */
#ifndef CONCH_BASE_MEMORY_THREAD_H
#define CONCH_BASE_MEMORY_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/thread.h"

struct leaving_pages;
struct loop;
struct page_order;

/* Embedded in the budget, which starts the thread. */
struct memory_thread {
    struct mutex mu; /* level 897 in core/README.md, a leaf */
    struct cond work;
    /* Under mu. */
    struct leaving_pages *leaving;
    struct list orders; /* oldest first */
    uint64_t purge_ns;  /* when the allocator is to be purged; UINT64_MAX: not planned */
    unsigned int n_users;
    bool stopping;
    struct thread thread;
};

void memory_thread_init(struct memory_thread *t);
void memory_thread_done(struct memory_thread *t);

/*
 * memory_thread_start, memory_thread_stop - the thread runs from the first start to the last stop;
 * that stop waits until everything is unmapped. Without the thread, callers of the functions below
 * do the work themselves.
 *
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *memory_thread_start(struct memory_thread *t);
void memory_thread_stop(struct memory_thread *t);

/*
 * memory_thread_order - has pages made, so that writing to them is fast.
 *
 * Thread: the loop's; memory_thread_forget(), too.
 * @pages    keep their content; no other thread may use them meanwhile. Not the first page of a
 *           mapping, to which memory_thread_unmap() writes
 * @on_made  called once with arg, later, on the loop's thread; the order is freed then
 * Returns   NULL when there is no thread, or no memory for the order: on_made is not called
 */
struct page_order *memory_thread_order(struct memory_thread *t, struct loop *loop, char *pages,
                                       size_t bytes, void (*on_made)(void *arg), void *arg);

/*
 * memory_thread_forget - cancels an order: on_made() will not be called. It must not have been
 * called before.
 *
 * Returns whether the thread may still be writing to the pages. If so, the caller must give the
 * pages back, by memory_thread_unmap().
 */
bool memory_thread_forget(struct memory_thread *t, struct page_order *order);

/* memory_thread_unmap - gives pages back to the system, soon. Thread: any; the next, too. */
void memory_thread_unmap(struct memory_thread *t, void *pages, size_t bytes);

/* memory_thread_purge - has the allocator return freed memory to the system, in about a second. */
void memory_thread_purge(struct memory_thread *t);

#endif
