/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: one atomic sum, changed only together with a system call or a walk through the allocator.
 * A large block leaves the sum when it is given to the thread, so that no request is refused for
 * memory that is about to be free. For some milliseconds the memory being unmapped exceeds the
 * limit.
 */
#include "base/budget.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/memory_thread.h"
#include "base/mutex.h"

enum {
    BUDGET_LEVEL = 896, /* in the table of core/README.md */
};

#define LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

static const uint64_t SHORT_NS = 10 * NS_PER_S, LOG_NS = 10 * NS_PER_S;

struct budget {
    /* Any thread, relaxed: sums. */
    atomic_uint_fast64_t used_bytes;
    atomic_uint_fast64_t n_refused, n_evicted;
    atomic_uint_fast64_t refused_ns;    /* when a request was last refused; 0: never */
    atomic_uint_fast64_t lacking_bytes; /* its size */
    atomic_uint_fast64_t logged_ns;

    char apart[64]; /* the line above is written often, the line below is not */
    atomic_uint_fast64_t limit_bytes;
    atomic_uint refs;

    struct mutex mu;
    /* Under mu. */
    struct list members;

    struct memory_thread pages;
};

struct budget *budget_new(uint64_t limit_bytes)
{
    struct budget *b = mem_zalloc(sizeof(*b));
    atomic_init(&b->limit_bytes, limit_bytes);
    atomic_init(&b->refs, 1);
    mutex_init(&b->mu, BUDGET_LEVEL, "budget.mu");
    list_init(&b->members);
    memory_thread_init(&b->pages);
    return b;
}

struct budget *budget_ref(struct budget *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void budget_unref(struct budget *b)
{
    /* acq_rel: the thread that frees it sees all writes of the others. */
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
        return;
    memory_thread_done(&b->pages);
    mutex_done(&b->mu);
    mem_free(b);
}

void budget_set_limit(struct budget *b, uint64_t limit_bytes)
{
    atomic_store_explicit(&b->limit_bytes, limit_bytes, memory_order_relaxed);
}

/* ---- Pages -------------------------------------------------------------------------------- */

struct status *budget_start(struct budget *b)
{
    return memory_thread_start(&b->pages);
}

void budget_stop(struct budget *b)
{
    memory_thread_stop(&b->pages);
}

struct memory_thread *budget_pages(struct budget *b)
{
    return &b->pages;
}

void budget_unmap(struct budget *b, void *pages, size_t bytes)
{
    budget_give(b, bytes);
    memory_thread_unmap(&b->pages, pages, bytes);
}

void budget_purge(struct budget *b)
{
    memory_thread_purge(&b->pages);
}

/* ---- Members -------------------------------------------------------------------------------- */

void budget_attach(struct budget *b, struct budget_member *m)
{
    mutex_lock(&b->mu);
    list_push(&b->members, &m->link);
    mutex_unlock(&b->mu);
}

void budget_detach(struct budget *b, struct budget_member *m)
{
    mutex_lock(&b->mu);
    list_remove(&m->link);
    mutex_unlock(&b->mu);
}

static void notify_members(struct budget *b)
{
    mutex_lock(&b->mu);
    LIST_FOR_EACH (link, &b->members) {
        struct budget_member *m = LIST_ENTRY(link, struct budget_member, link);
        m->on_short(m);
    }
    mutex_unlock(&b->mu);
}

/*
 * A member knows only its own connections, so each publishes its greatest burden, and the one with
 * the greatest of all gives up its own. Otherwise every member would close a connection for the
 * same shortage, and one with small connections would pay for the large one of another.
 */
bool budget_is_heaviest(struct budget *b, const struct budget_member *m)
{
    bool heaviest = true;
    mutex_lock(&b->mu);
    LIST_FOR_EACH (link, &b->members) {
        const struct budget_member *other = LIST_ENTRY(link, struct budget_member, link);
        heaviest = heaviest && LOAD(other->burden) <= LOAD(m->burden);
    }
    mutex_unlock(&b->mu);
    return heaviest;
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

/* Logs a line at most every ten seconds. */
static void log_shortage(struct budget *b, uint64_t now_ns)
{
    uint64_t logged_ns = LOAD(b->logged_ns);
    if ((logged_ns && now_ns - logged_ns < LOG_NS) ||
        !atomic_compare_exchange_strong(&b->logged_ns, &logged_ns, now_ns))
        return;
    log_warn("the memory budget of the connections is short: %llu of %llu MiB are in use, %llu "
             "refusals so far; large requests are refused, and the slowest connections go",
             (unsigned long long)LOAD(b->used_bytes) >> 20,
             (unsigned long long)LOAD(b->limit_bytes) >> 20,
             (unsigned long long)LOAD(b->n_refused));
}

static bool refuse_bytes(struct budget *b, uint64_t bytes)
{
    uint64_t now_ns = monotonic_ns();
    atomic_fetch_add_explicit(&b->n_refused, 1, memory_order_relaxed);
    STORE(b->refused_ns, now_ns);
    STORE(b->lacking_bytes, bytes);
    log_shortage(b, now_ns);
    notify_members(b);
    return false;
}

/* A small request is not refused: instead the members close connections with more memory. */
static void count_small_block(struct budget *b, size_t bytes)
{
    uint64_t used_bytes =
        atomic_fetch_add_explicit(&b->used_bytes, bytes, memory_order_relaxed) + bytes;
    if (UNLIKELY(used_bytes > LOAD(b->limit_bytes)))
        notify_members(b);
}

bool budget_take(struct budget *b, size_t bytes)
{
    uint64_t limit_bytes = LOAD(b->limit_bytes), used_bytes = LOAD(b->used_bytes);
    if (bytes <= BUDGET_SMALL_BYTES) {
        count_small_block(b, bytes);
        return true;
    }
    /* Not added before it is known to fit: budget_stats() would show more than the limit. */
    do {
        if (bytes > limit_bytes || used_bytes > limit_bytes - bytes)
            return refuse_bytes(b, bytes);
    } while (!atomic_compare_exchange_weak_explicit(&b->used_bytes, &used_bytes, used_bytes + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void budget_give(struct budget *b, size_t bytes)
{
    atomic_fetch_sub_explicit(&b->used_bytes, bytes, memory_order_relaxed);
}

static uint64_t limit_for_new(const struct budget *b)
{
    uint64_t limit_bytes = LOAD(b->limit_bytes);
    return limit_bytes - limit_bytes / 8;
}

bool budget_has_room(struct budget *b, uint64_t bytes)
{
    uint64_t used_bytes = LOAD(b->used_bytes), limit_bytes = limit_for_new(b);
    if (LIKELY(bytes <= limit_bytes && used_bytes <= limit_bytes - bytes))
        return true;
    return refuse_bytes(b, bytes);
}

bool budget_could_hold(const struct budget *b, uint64_t bytes)
{
    return bytes <= limit_for_new(b);
}

bool budget_lacks(const struct budget *b, uint64_t now_ns)
{
    uint64_t refused_ns = LOAD(b->refused_ns);
    if (LIKELY(!refused_ns) || (now_ns > refused_ns && now_ns - refused_ns > SHORT_NS))
        return false;
    return LOAD(b->used_bytes) + LOAD(b->lacking_bytes) > limit_for_new(b);
}

bool budget_is_exceeded(const struct budget *b)
{
    return LOAD(b->used_bytes) > LOAD(b->limit_bytes);
}

bool budget_could_take(const struct budget *b, uint64_t bytes)
{
    return LOAD(b->used_bytes) + bytes <= LOAD(b->limit_bytes);
}

void budget_evicted(struct budget *b)
{
    atomic_fetch_add_explicit(&b->n_evicted, 1, memory_order_relaxed);
}

void budget_stats(const struct budget *b, struct budget_stats *ret_stats)
{
    *ret_stats = (struct budget_stats){
        .limit_bytes = LOAD(b->limit_bytes),
        .used_bytes = LOAD(b->used_bytes),
        .n_refused = LOAD(b->n_refused),
        .n_evicted = LOAD(b->n_evicted),
    };
}
