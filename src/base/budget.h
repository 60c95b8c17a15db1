/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A budget of bytes that several pools (pool.h) share. It counts the bytes that the pools have from
 * the system, both in use and kept for later. The sum never exceeds the limit by much. A pool calls
 * the budget only when it takes a block from the system or gives one back, so steady traffic writes
 * no shared memory.
 *
 *      0 ─────────────────────────────── 7/8 ─────────── limit ──────►
 *      everything                        │ no new large   │ small blocks only
 *                                        │ ones           │
 *
 * When the budget refuses something, or when small blocks exceed the limit, it calls on_short() of
 * every member, so that each can give back what it needs least.
 *
 * While a budget has users it has a thread, "memory" (memory_thread.h).
 */
#ifndef CONCH_BASE_BUDGET_H
#define CONCH_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

struct budget;
struct memory_thread;

enum { BUDGET_SMALL_BYTES = 80 << 10 }; /* blocks up to here are never refused */

struct budget_stats {
    uint64_t limit_bytes, used_bytes;
    uint64_t n_refused; /* refusals so far */
    uint64_t n_evicted; /* connections that were given up to free memory */
};

/* A user of the budget that can give memory back, such as a worker. Embedded in that user. */
struct budget_member {
    struct list link;
    atomic_uint_fast64_t burden; /* set by the member: the weight of what it could give up */
    /* The budget is short. Called under budget.mu (level 896): may only post a message. */
    void (*on_short)(struct budget_member *m);
};

/*
 * budget_new - the caller has the first reference. A quarter of memory_limit_bytes() is a good
 * limit.
 */
struct budget *budget_new(uint64_t limit_bytes);
struct budget *budget_ref(struct budget *b);
void budget_unref(struct budget *b); /* NULL is fine */

/*
 * budget_set_limit - changes the limit. Memory that is in use beyond the new limit stays in use.
 * Thread: any.
 */
void budget_set_limit(struct budget *b, uint64_t limit_bytes);

/* budget_start, budget_stop - call memory_thread_start() and memory_thread_stop(). */
NODISCARD struct status *budget_start(struct budget *b);
void budget_stop(struct budget *b);
/* budget_pages - the thread "memory", for callers that have pages made; borrowed. */
struct memory_thread *budget_pages(struct budget *b);

/*
 * budget_attach, budget_detach - from attach to detach, the budget calls m->on_short(). After
 * detach has returned it does not. Thread: any, without locks from level 896 on.
 */
void budget_attach(struct budget *b, struct budget_member *m);
void budget_detach(struct budget *b, struct budget_member *m);

/*
 * budget_take - counts the bytes as used. False: there is no room, nothing is counted, and the
 * members have been called. Blocks up to BUDGET_SMALL_BYTES are never refused.
 * Thread: any, without locks from level 896 on; this holds for all functions below.
 */
NODISCARD bool budget_take(struct budget *b, size_t bytes);
void budget_give(struct budget *b, size_t bytes);

/*
 * budget_has_room - whether something new of that size may begin. False counts a refusal and calls
 * the members, as in budget_take().
 */
NODISCARD bool budget_has_room(struct budget *b, uint64_t bytes);

/* budget_could_hold - whether something of that size fits into an empty budget. */
bool budget_could_hold(const struct budget *b, uint64_t bytes);

/*
 * budget_lacks - whether the budget refused something in the ten seconds before now_ns (monotonic)
 * and still has no room for it.
 */
bool budget_lacks(const struct budget *b, uint64_t now_ns);

/* budget_is_exceeded - whether more than the limit is in use, which small blocks can cause. */
bool budget_is_exceeded(const struct budget *b);

/* budget_is_heaviest - whether no other member has a greater burden. */
bool budget_is_heaviest(struct budget *b, const struct budget_member *m);

/* budget_could_take - whether the bytes fit below the limit now; counts nothing, calls nobody. */
bool budget_could_take(const struct budget *b, uint64_t bytes);

/* budget_evicted - counts a connection that a member gave up. */
void budget_evicted(struct budget *b);

/* budget_unmap - gives the bytes back to the budget at once, and the pages to the system soon. */
void budget_unmap(struct budget *b, void *pages, size_t bytes);

/* budget_purge - has the allocator return freed memory to the system, in about a second. */
void budget_purge(struct budget *b);

void budget_stats(const struct budget *b, struct budget_stats *ret_stats);

#endif
