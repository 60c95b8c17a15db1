/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of pools only grows, at its front. A pool belongs to its thread from the exchange of
 * `taken` until the thread ends; other threads may release blocks of it at any time.
 */
#include "base/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/pool.h"

enum { UNUSED_BYTES = 64 << 20 }; /* unused bytes that a pool may keep while its thread lives */

struct seat {
    struct pool *pool;
    atomic_bool taken;
    struct seat *next; /* constant once it is in the list */
};

static _Atomic(struct seat *) seats;
static THREAD_WORD struct seat *mine;
static pthread_key_t thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_seat(void *arg)
{
    struct seat *seat = arg;
    mine = NULL;
    pool_detach(seat->pool);
    pool_trim(seat->pool, 0);
    atomic_store(&seat->taken, false);
}

static void create_thread_key(void)
{
    pthread_key_create(&thread_end, free_seat);
}

static struct seat *make_seat(void)
{
    MEM_CHARGE(NULL, 0); /* it belongs to the process, whichever thread needs it first */
    struct seat *seat = mem_zalloc(sizeof(*seat));
    seat->pool = pool_new("thread", UNUSED_BYTES, 0);
    atomic_init(&seat->taken, true);
    seat->next = atomic_load(&seats);
    while (!atomic_compare_exchange_weak(&seats, &seat->next, seat)) {
    }
    return seat;
}

static struct seat *find_seat(void)
{
    pthread_once(&once, create_thread_key);
    struct seat *seat = atomic_load(&seats);
    for (; seat; seat = seat->next) {
        bool expected = false;
        if (atomic_compare_exchange_strong(&seat->taken, &expected, true))
            break;
    }
    if (!seat)
        seat = make_seat();
    mine = seat;
    pool_attach(seat->pool);
    pthread_setspecific(thread_end, seat);
    return seat;
}

struct pool *thread_pool(void)
{
    return (LIKELY(mine != NULL) ? mine : find_seat())->pool;
}

void thread_pools_trim(void)
{
    for (struct seat *seat = atomic_load(&seats); seat; seat = seat->next)
        pool_trim(seat->pool, 0);
}

size_t thread_pools_count(void)
{
    size_t n = 0;
    for (struct seat *seat = atomic_load(&seats); seat; seat = seat->next)
        n++;
    return n;
}
