/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory owners. An owner (a model version) has one account per kind of memory. While a thread is
 * between MEM_CHARGE() and the end of that C block, its allocations by mem.h are charged to the
 * owner named there. A block of a pool is charged to the owner that pool_alloc() is given. A freed
 * block is taken off the account of the owner that was charged, whichever thread frees it and
 * whenever.
 *
 *     MEM_CHARGE(m->owner, MEM_INSTANCES);    until the end of this C block, on this thread
 *     struct instance *in = mem_zalloc(sizeof(*in));
 *
 * Two things are not charged: statuses, since they travel between owners, and allocations under
 * MEM_CHARGE(NULL, 0), for what several owners share, such as a backend's library.
 */
#ifndef CONCH_BASE_MEM_OWNER_H
#define CONCH_BASE_MEM_OWNER_H

#include <stddef.h>

#include "base/compiler.h"

/* The kinds of memory of a model; mem_kind_name() names each. */
enum mem_kind {
    MEM_CONFIG,    /* the model itself: configuration, tensors, labels, names, statistics */
    MEM_INSTANCES, /* instances and scheduler */
    MEM_BACKEND,   /* what backends got through the C ABI and have not released */
    MEM_TENSORS,   /* of requests in flight, from pools */
    MEM_KINDS
};

struct mem_owner;
struct stripe;

/*
 * mem_owner_new - makes an owner with empty accounts.
 *
 * @name  for messages; copied
 */
struct mem_owner *mem_owner_new(const char *name);

/*
 * mem_owner_free - ends the owner. No new block may be charged to it; its memory is freed with its
 * last block. NULL is fine.
 */
void mem_owner_free(struct mem_owner *o);

/* mem_owner_name, mem_kind_name - borrowed. */
const char *mem_owner_name(const struct mem_owner *o);
const char *mem_kind_name(enum mem_kind kind);

/*
 * mem_owner_stripes - the owner's stripes (stripe.h), valid as long as the owner. The owner uses
 * STRIPE_BLOCKS; the other counts belong to the object that made the owner.
 */
struct stripe *mem_owner_stripes(struct mem_owner *o);

/*
 * mem_owner_bytes, mem_owner_peak - the bytes on the account now, and the most so far. The peak of
 * MEM_TENSORS is an estimate: it is measured only by calls of mem_owner_peak(), and when a block of
 * 64 KiB or more is charged. Thread: any.
 */
size_t mem_owner_bytes(const struct mem_owner *o, enum mem_kind kind);
size_t mem_owner_peak(struct mem_owner *o, enum mem_kind kind);

/* mem_owner_blocks - the number of blocks of all kinds. Thread: any. */
size_t mem_owner_blocks(const struct mem_owner *o);

/*
 * mem_owner_charge, mem_owner_discharge - for allocators: add and remove one block. NULL is fine.
 * Thread: any.
 */
void mem_owner_charge(struct mem_owner *o, enum mem_kind kind, size_t bytes);
void mem_owner_discharge(struct mem_owner *o, enum mem_kind kind, size_t bytes);

/* The owner that is charged for allocations of this thread; NULL: nobody is. */
struct mem_payer {
    struct mem_owner *owner;
    enum mem_kind kind;
};

/* mem_payer_now - the payer of the calling thread. */
struct mem_payer mem_payer_now(void);
/* mem_payer_set - sets the payer of the calling thread; returns the previous one. */
struct mem_payer mem_payer_set(struct mem_owner *owner, enum mem_kind kind);
void mem_payer_done(struct mem_payer *before); /* for MEM_CHARGE */

#define MEM_CHARGE(owner, kind)             MEM_CHARGE_HERE_(owner, kind, __LINE__)
#define MEM_CHARGE_HERE_(owner, kind, line) MEM_CHARGE_AS_(owner, kind, line)
#define MEM_CHARGE_AS_(owner, kind, line)                                                          \
    AUTO(mem_payer) payer_before_##line __attribute__((unused)) = mem_payer_set(owner, kind)

#endif
