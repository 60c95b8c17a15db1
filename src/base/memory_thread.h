/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread "memory": what the kernel needs long for, when large blocks come and go, so that no
 * event loop waits for it. It
 *
 *  - makes pages: a page exists when something was written to it, and until then the kernel has to
 *    find and clear 2 MiB at a time, 0.2 ms, or 50 where a hypervisor has to find them first;
 *  - unmaps large blocks, since 2 GB take 116 ms;
 *  - has the allocator give back what a peak has left.
 *
 * It does one at a time. So the pages of an order are there while it is at them, if they leave by
 * memory_thread_unmap() alone.
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

/* Embedded in the budget, which starts it. */
struct memory_thread {
    struct mutex mu; /* level 897 in core/README.md, a leaf */
    struct cond work;
    /* Under mu. */
    struct leaving_pages *leaving;
    struct list orders; /* oldest first */
    uint64_t purge_ns;  /* when the allocator is to be asked; UINT64_MAX: not */
    unsigned int n_users;
    bool stopping;
    struct thread thread;
};

void memory_thread_init(struct memory_thread *t);
void memory_thread_done(struct memory_thread *t);

/*
 * memory_thread_start, memory_thread_stop - the thread runs from the first start to the last stop,
 * which waits until all is unmapped. Without it, all is done by whoever asks for it.
 *
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *memory_thread_start(struct memory_thread *t);
void memory_thread_stop(struct memory_thread *t);

/*
 * memory_thread_order - has pages made ready to be written to.
 *
 * Thread: the loop's, as the next.
 * @pages    what they hold stays; nobody else uses them meanwhile. Not the first of a mapping,
 *           which memory_thread_unmap() writes to
 * @on_made  called once on the loop's thread, later, with arg
 * Returns   NULL when there is no thread, or no memory for the order: nothing will happen
 */
struct page_order *memory_thread_order(struct memory_thread *t, struct loop *loop, char *pages,
                                       size_t bytes, void (*on_made)(void *arg), void *arg);

/*
 * memory_thread_forget - on_made() will not be called. It must not have been.
 *
 * Returns whether the thread may still be at the pages: then they must leave, and by
 * memory_thread_unmap()
 */
bool memory_thread_forget(struct memory_thread *t, struct page_order *order);

/* memory_thread_unmap - gives pages back to the system, soon. Thread: any, as below. */
void memory_thread_unmap(struct memory_thread *t, void *pages, size_t bytes);

/* memory_thread_purge - freed memory is to leave the allocator, too, in about a second. */
void memory_thread_purge(struct memory_thread *t);

#endif
