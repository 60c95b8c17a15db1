/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A budget of bytes that several pools (pool.h) share: what they have from the system, given out or
 * kept for the next, is never much more than the limit. A pool comes here only when it asks the
 * system for a block or gives one back, so steady traffic writes nothing that is shared.
 *
 *      0 ─────────────────────────────── 7/8 ─────────── limit ──────►
 *      everything                        │ no new large   │ small blocks only
 *                                        │ ones           │
 *
 * When something is refused, or small blocks alone are beyond the limit, all members are told, so
 * that they may give back what they need least.
 *
 * A budget has a thread, "memory" (memory_thread.h), while somebody uses it.
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
    uint64_t n_refused; /* times that something was refused */
    uint64_t n_evicted; /* connections that were given up for others */
};

/* Somebody who can give back, embedded. */
struct budget_member {
    struct list link;
    atomic_uint_fast64_t burden; /* the member's: how much it would gain to give up something */
    /* The budget is short. Called under budget.mu (896): post a message, do nothing else. */
    void (*on_short)(struct budget_member *m);
};

/* budget_new - the caller has the first reference. a quarter of memory_limit_bytes() is a good
 * limit. */
struct budget *budget_new(uint64_t limit_bytes);
struct budget *budget_ref(struct budget *b);
void budget_unref(struct budget *b); /* NULL is fine */

/*
 * budget_set_limit - Thread: any. What is in use already stays.
 */
void budget_set_limit(struct budget *b, uint64_t limit_bytes);

/* budget_start, budget_stop - memory_thread_start() and _stop(). */
NODISCARD struct status *budget_start(struct budget *b);
void budget_stop(struct budget *b);
/* budget_pages - for who wants pages made. */
struct memory_thread *budget_pages(struct budget *b);

/* budget_attach, budget_detach - is told from now on, and no more. */
void budget_attach(struct budget *b, struct budget_member *m);
void budget_detach(struct budget *b, struct budget_member *m);

/*
 * budget_take - false: there is no room for them; the members know. Never so for small blocks.
 * Thread: any, without locks from 896 on, as all below.
 */
NODISCARD bool budget_take(struct budget *b, size_t bytes);
void budget_give(struct budget *b, size_t bytes);

/* budget_has_room - whether something new of that size may begin. false: as above. */
NODISCARD bool budget_has_room(struct budget *b, uint64_t bytes);

/* budget_could_hold - whether something of that size may ever begin. */
bool budget_could_hold(const struct budget *b, uint64_t bytes);

/*
 * budget_lacks - something was refused in the ten seconds before now_ns (monotonic), and there is
 * no room for it yet.
 */
bool budget_lacks(const struct budget *b, uint64_t now_ns);

/* budget_is_exceeded - more is in use than the limit: small blocks. */
bool budget_is_exceeded(const struct budget *b);

/* budget_is_heaviest - no other member has said to have a greater burden. */
bool budget_is_heaviest(struct budget *b, const struct budget_member *m);

/* budget_could_take - whether budget_take() has room now; counts and tells nothing. */
bool budget_could_take(const struct budget *b, uint64_t bytes);

/* budget_evicted - counts a connection that was given up. */
void budget_evicted(struct budget *b);

/* budget_unmap - gives pages back to the system and to the budget, soon. */
void budget_unmap(struct budget *b, void *pages, size_t bytes);

/* budget_purge - freed memory is to leave the allocator, too, in about a second. */
void budget_purge(struct budget *b);

void budget_stats(const struct budget *b, struct budget_stats *ret_stats);

#endif
