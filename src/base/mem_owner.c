/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: an owner counts its blocks, and its holder as one more. Whoever takes the count to zero
 * frees the owner, so that a block may outlive what it was made for (a tensor that is still being
 * sent when its model has gone) and no account is ever written to after its end.
 */
#include "base/mem_owner.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct mem_owner {
    atomic_size_t blocks; /* and one for the holder */
    /* Any thread, relaxed: gauges. */
    struct {
        atomic_size_t now, peak;
    } bytes[MEM_KINDS];
    char name[];
};

static __thread struct mem_payer payer;

struct mem_payer mem_payer_now(void)
{
    return payer;
}

struct mem_payer mem_payer_set(struct mem_owner *owner, enum mem_kind kind)
{
    struct mem_payer before = payer;
    payer = (struct mem_payer){owner, kind};
    return before;
}

void mem_payer_done(struct mem_payer *before)
{
    payer = *before;
}

struct mem_owner *mem_owner_new(const char *name)
{
    MEM_CHARGE(NULL, 0); /* an owner is nobody's, or it would never come to an end */
    size_t name_bytes = strlen(name) + 1;
    struct mem_owner *o = mem_zalloc(sizeof(*o) + name_bytes);
    memcpy(o->name, name, name_bytes);
    atomic_init(&o->blocks, 1);
    return o;
}

static void leave(struct mem_owner *o)
{
    /* acq_rel: the accounts of all who left before are settled when the last one frees them. */
    if (atomic_fetch_sub_explicit(&o->blocks, 1, memory_order_acq_rel) == 1)
        mem_free(o);
}

void mem_owner_free(struct mem_owner *o)
{
    if (o)
        leave(o);
}

const char *mem_owner_name(const struct mem_owner *o)
{
    return o->name;
}

const char *mem_kind_name(enum mem_kind kind)
{
    static const char *const names[MEM_KINDS] = {"configuration", "instances", "backend objects",
                                                 "tensors"};
    return names[kind];
}

size_t mem_owner_bytes(const struct mem_owner *o, enum mem_kind kind)
{
    return atomic_load_explicit(&o->bytes[kind].now, memory_order_relaxed);
}

size_t mem_owner_peak(const struct mem_owner *o, enum mem_kind kind)
{
    return atomic_load_explicit(&o->bytes[kind].peak, memory_order_relaxed);
}

size_t mem_owner_blocks(const struct mem_owner *o)
{
    return atomic_load_explicit(&o->blocks, memory_order_relaxed) - 1;
}

void mem_owner_charge(struct mem_owner *o, enum mem_kind kind, size_t bytes)
{
    if (!o)
        return;
    atomic_size_t *account = &o->bytes[kind].now, *highest = &o->bytes[kind].peak;
    atomic_fetch_add_explicit(&o->blocks, 1, memory_order_relaxed);
    size_t now = atomic_fetch_add_explicit(account, bytes, memory_order_relaxed) + bytes;
    size_t peak = atomic_load_explicit(highest, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak_explicit(
                             highest, &peak, now, memory_order_relaxed, memory_order_relaxed)) {
    }
}

void mem_owner_discharge(struct mem_owner *o, enum mem_kind kind, size_t bytes)
{
    if (!o)
        return;
    atomic_fetch_sub_explicit(&o->bytes[kind].now, bytes, memory_order_relaxed);
    leave(o);
}
