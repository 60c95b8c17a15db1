/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose memory it is. An owner (a model version) has an account per kind of memory; whoever asks
 * mem.h for memory between MEM_CHARGE() and the end of that block charges it to the owner named
 * there, and a pool's block is charged to the owner that pool_alloc() is given. What is freed goes
 * off the account of the owner that paid, whatever thread frees it and whenever.
 *
 *     MEM_CHARGE(m->owner, MEM_INSTANCES);    until the end of this C block, on this thread
 *     struct instance *in = mem_zalloc(sizeof(*in));
 *
 * Not charged: statuses, since they travel to whoever wants to know; and what is made under
 * MEM_CHARGE(NULL, 0) because others share it (a backend's library).
 */
#ifndef CONCH_BASE_MEM_OWNER_H
#define CONCH_BASE_MEM_OWNER_H

#include <stddef.h>

#include "base/compiler.h"

/* Kinds that a model has; mem_kind_name() has a word for each. */
enum mem_kind {
    MEM_CONFIG,    /* the model itself: configuration, tensors, labels, names, statistics */
    MEM_INSTANCES, /* instances and scheduler */
    MEM_BACKEND,   /* what a backend was given through the C ABI and has not given back */
    MEM_TENSORS,   /* of requests in flight, from pools */
    MEM_KINDS
};

struct mem_owner;
struct stripe;

/*
 * mem_owner_new - an owner of nothing.
 *
 * @name  for messages; copied
 */
struct mem_owner *mem_owner_new(const char *name);

/* mem_owner_free - nobody charges it any more; it goes with the last of its blocks. NULL is fine.
 */
void mem_owner_free(struct mem_owner *o);

/* mem_owner_name - borrowed. */
const char *mem_owner_name(const struct mem_owner *o);
const char *mem_kind_name(enum mem_kind kind);

/*
 * mem_owner_stripes - the owner's stripes, which live as long as it does: counts of them that are
 * not its own belong to whoever has made it.
 */
struct stripe *mem_owner_stripes(struct mem_owner *o);

/*
 * mem_owner_bytes, mem_owner_peak - on the account now, and at most so far. Of tensors the peak is
 * what was seen: by who asked for it, and by blocks of 64 KiB and more. Thread: any.
 */
size_t mem_owner_bytes(const struct mem_owner *o, enum mem_kind kind);
size_t mem_owner_peak(struct mem_owner *o, enum mem_kind kind);

/* mem_owner_blocks - of all kinds together. Thread: any. */
size_t mem_owner_blocks(const struct mem_owner *o);

/* mem_owner_charge, mem_owner_discharge - for allocators: one block more, one less. NULL is fine.
 */
void mem_owner_charge(struct mem_owner *o, enum mem_kind kind, size_t bytes);
void mem_owner_discharge(struct mem_owner *o, enum mem_kind kind, size_t bytes);

/* Who pays for what this thread asks for; owner NULL: nobody. */
struct mem_payer {
    struct mem_owner *owner;
    enum mem_kind kind;
};

struct mem_payer mem_payer_now(void);
/* mem_payer_set - returns who paid before. */
struct mem_payer mem_payer_set(struct mem_owner *owner, enum mem_kind kind);
void mem_payer_done(struct mem_payer *before); /* for MEM_CHARGE */

#define MEM_CHARGE(owner, kind)             MEM_CHARGE_HERE_(owner, kind, __LINE__)
#define MEM_CHARGE_HERE_(owner, kind, line) MEM_CHARGE_AS_(owner, kind, line)
#define MEM_CHARGE_AS_(owner, kind, line)                                                          \
    AUTO(mem_payer) payer_before_##line __attribute__((unused)) = mem_payer_set(owner, kind)

#endif
