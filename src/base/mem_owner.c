/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: an owner counts its blocks, and its holder as one more. The thread that takes the count
 * to zero frees the owner. So a block may outlive its purpose (a tensor that is still being sent
 * when its model was unloaded), and an account is never written after its end.
 *
 * Tensors are allocated and freed with each request, on all loops at once. So blocks are counted in
 * stripes while the owner has its holder. The same word counts the bytes of tensors: ONE_BLOCK is
 * more than all of them. The value of one stripe may have wrapped; the sum of all has not.
 */
#include "base/mem_owner.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem_raw.h"
#include "base/stripe.h"

enum { BYTES_BITS = 40, SEEN_BYTES = 64 << 10 };
#define ONE_BLOCK (1L << BYTES_BITS) /* more than the bytes that it shares its word with */
#define BIAS      (1L << 62)         /* more than any count: keeps it above 0 while it is open */

struct mem_owner {
    struct stripe *stripes; /* constant */
    atomic_long blocks;     /* plus one for the holder; with BIAS: plus those of the stripes */
    /* Any thread, relaxed: gauges. */
    struct {
        atomic_long now, peak;
    } bytes[MEM_KINDS];
    char name[];
};

static THREAD_WORD struct mem_payer payer;

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
    size_t name_bytes = strlen(name) + 1;
    /* An owner has no owner, or it would never end. */
    struct mem_owner *o = mem_alloc_aligned(sizeof(*o) + name_bytes);
    memset(o, 0, sizeof(*o));
    memcpy(o->name, name, name_bytes);
    o->stripes = stripes_new();
    stripes_open(o->stripes, STRIPE_BLOCKS);
    atomic_init(&o->blocks, BIAS + ONE_BLOCK);
    return o;
}

struct stripe *mem_owner_stripes(struct mem_owner *o)
{
    return o->stripes;
}

static void drop_blocks(struct mem_owner *o, long n)
{
    /* seq_cst: the accounts of all earlier threads are settled when the last one frees them. */
    if (atomic_fetch_sub(&o->blocks, n) != n)
        return;
    stripes_free(o->stripes);
    mem_free_aligned(o);
}

void mem_owner_free(struct mem_owner *o)
{
    if (o)
        drop_blocks(o, BIAS + ONE_BLOCK - stripes_close(o->stripes, STRIPE_BLOCKS));
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

static size_t clamp_to_zero(long n)
{
    return n > 0 ? (size_t)n : 0; /* a change in progress may be read in part */
}

/* Sums the blocks, the holder included, and the bytes of tensors. */
static long sum_blocks(const struct mem_owner *o)
{
    long n = atomic_load_explicit(&o->blocks, memory_order_relaxed);
    return n > BIAS / 2 ? n - BIAS + stripes_sum(o->stripes, STRIPE_BLOCKS) : n;
}

static long bytes_in(long n)
{
    return (long)((unsigned long)n << (64 - BYTES_BITS)) >> (64 - BYTES_BITS);
}

size_t mem_owner_bytes(const struct mem_owner *o, enum mem_kind kind)
{
    if (kind == MEM_TENSORS)
        return clamp_to_zero(bytes_in(sum_blocks(o)));
    return clamp_to_zero(atomic_load_explicit(&o->bytes[kind].now, memory_order_relaxed));
}

size_t mem_owner_blocks(const struct mem_owner *o)
{
    long n = sum_blocks(o);
    return clamp_to_zero(((n - bytes_in(n)) >> BYTES_BITS) - 1);
}

/* Raises the peak to `now`, and returns it. */
static long raise_peak(struct mem_owner *o, enum mem_kind kind, long now)
{
    atomic_long *highest = &o->bytes[kind].peak;
    long peak = atomic_load_explicit(highest, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak_explicit(
                             highest, &peak, now, memory_order_relaxed, memory_order_relaxed)) {
    }
    return MAX(now, peak);
}

size_t mem_owner_peak(struct mem_owner *o, enum mem_kind kind)
{
    return clamp_to_zero(raise_peak(o, kind, (long)mem_owner_bytes(o, kind)));
}

static void add_bytes(struct mem_owner *o, enum mem_kind kind, long bytes)
{
    atomic_long *account = &o->bytes[kind].now;
    raise_peak(o, kind, atomic_fetch_add_explicit(account, bytes, memory_order_relaxed) + bytes);
}

/* Returns the count of a block; for tensors with its bytes. */
static long count_of_block(enum mem_kind kind, size_t bytes)
{
    return ONE_BLOCK + (kind == MEM_TENSORS ? (long)bytes : 0);
}

void mem_owner_charge(struct mem_owner *o, enum mem_kind kind, size_t bytes)
{
    if (!o)
        return;
    long n = count_of_block(kind, bytes);
    if (!stripe_add(o->stripes, STRIPE_BLOCKS, n))
        atomic_fetch_add(&o->blocks, n);
    if (kind != MEM_TENSORS)
        add_bytes(o, kind, (long)bytes);
    else if (UNLIKELY(bytes >= SEEN_BYTES))
        raise_peak(o, kind, (long)mem_owner_bytes(o, kind));
}

void mem_owner_discharge(struct mem_owner *o, enum mem_kind kind, size_t bytes)
{
    if (!o)
        return;
    long n = count_of_block(kind, bytes);
    if (kind != MEM_TENSORS)
        add_bytes(o, kind, -(long)bytes);
    if (!stripe_add(o->stripes, STRIPE_BLOCKS, -n))
        drop_blocks(o, n);
}
