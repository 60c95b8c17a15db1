/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "base/budget.h"
#include "base/mem.h"
#include "base/thread.h"
#include "lib/death.h"

static void sizes_are_rounded_up_by_less_than_a_quarter(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 0, 0);
    size_t size = 256;
    for (; size <= (size_t)70 << 20; size += size < 5000 ? 1 : size / 7) {
        void *block = pool_alloc(p, size, NULL);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        size_t got = pool_block_bytes(block);
        if (got < size || got - size >= size / 4 + 1)
            fail_msg("%zu bytes for %zu", got, size);
        ((char *)block)[0] = ((char *)block)[got - 1] = 1;
        pool_release(block);
    }
    /* The upper limit of a class is in that class. */
    for (int shift = 8; shift <= 26; shift++) {
        void *block = pool_alloc(p, (size_t)1 << shift, NULL);
        assert_int_equal(pool_block_bytes(block), (size_t)1 << shift);
        pool_release(block);
    }
    void *least = pool_alloc(p, 0, NULL);
    assert_int_equal(pool_block_bytes(least), 256);
    pool_release(least);
    pool_release(NULL);
    pool_free(p);
    pool_free(NULL);
}

static void the_last_released_block_is_used_first(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 1 << 20, 0);
    void *a = pool_alloc(p, 1000, NULL), *b = pool_alloc(p, 1000, NULL);
    pool_release(a);
    pool_release(b);
    assert_ptr_equal(pool_alloc(p, 990, NULL), b); /* of the same class */
    assert_ptr_equal(pool_alloc(p, 1000, NULL), a);
    struct pool_stats stats;
    pool_stats(p, &stats);
    assert_int_equal(stats.n_allocs, 4);
    assert_int_equal(stats.n_misses, 2);
    assert_int_equal(stats.used_bytes, 2048);
    assert_int_equal(stats.unused_bytes, 0);
    pool_release(a);
    pool_release(b);
    pool_free(p);
}

static void a_pool_keeps_only_its_share_of_unused_blocks(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 3000, 0);
    void *blocks[5];
    for (int i = 0; i < 5; i++)
        blocks[i] = pool_alloc(p, 1024, NULL);
    for (int i = 0; i < 5; i++)
        pool_release(blocks[i]);
    struct pool_stats stats;
    pool_stats(p, &stats);
    assert_int_equal(stats.unused_bytes, 2048);
    pool_trim(p, 2047);
    pool_stats(p, &stats);
    assert_int_equal(stats.unused_bytes, 1024);
    pool_trim(p, 0);
    pool_stats(p, &stats);
    assert_int_equal(stats.unused_bytes, 0);
    assert_int_equal(stats.used_bytes, 0);
    pool_free(p);
}

static void a_pool_gives_at_most_its_limit(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 1 << 20, 4096);
    assert_null(pool_alloc(p, 4097, NULL));
    assert_null(pool_alloc(p, (size_t)1 << 40, NULL));
    assert_null(pool_alloc(p, SIZE_MAX, NULL));
    assert_null(pool_alloc(p, SIZE_MAX - 64, NULL));
    void *a = pool_alloc(p, 2048, NULL), *b = pool_alloc(p, 2048, NULL);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(pool_alloc(p, 1, NULL));
    pool_release(a);
    a = pool_alloc(p, 1, NULL);
    assert_non_null(a);
    pool_release(a);
    pool_release(b);
    pool_free(p);

    p = pool_new("no limit", 0, 0);
    assert_null(pool_alloc(p, SIZE_MAX, NULL));
    assert_null(pool_alloc(p, SIZE_MAX - 63, NULL));
    struct pool_stats stats;
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, 0);
    pool_free(p);
}

static bool refuse(size_t size_bytes)
{
    (void)size_bytes;
    return false;
}

static void lack_of_memory_returns_null_and_charges_nothing(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 0, 4096);
    struct mem_owner *owner = mem_owner_new("test");
    mem_set_test_hook(refuse);
    void *none = pool_alloc(p, 4096, owner);
    mem_set_test_hook(NULL);
    assert_null(none);
    assert_int_equal(mem_owner_blocks(owner), 0);
    void *block = pool_alloc(p, 4096, owner); /* the failed allocation is not counted */
    assert_non_null(block);
    pool_release(block);
    mem_owner_free(owner);
    pool_free(p);
}

static void a_pool_charges_the_owners_of_its_blocks(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 1 << 20, 0);
    struct mem_owner *x = mem_owner_new("x"), *y = mem_owner_new("y");
    void *a = pool_alloc(p, 1024, x), *b = pool_alloc(p, 2 << 20, x);
    pool_release(a);
    void *c = pool_alloc(p, 1024, y); /* x's old block has another owner */
    assert_ptr_equal(c, a);
    assert_int_equal(mem_owner_bytes(x, MEM_TENSORS), 2 << 20);
    assert_int_equal(mem_owner_blocks(x), 1);
    assert_int_equal(mem_owner_peak(x, MEM_TENSORS), (2 << 20) + 1024);
    assert_int_equal(mem_owner_bytes(y, MEM_TENSORS), 1024);
    pool_release(b);
    pool_release(c);
    assert_int_equal(mem_owner_bytes(x, MEM_TENSORS), 0);
    assert_int_equal(mem_owner_peak(x, MEM_TENSORS), (2 << 20) + 1024);
    assert_int_equal(mem_owner_blocks(y), 0);
    mem_owner_free(x);
    mem_owner_free(y);
    pool_free(p);
}

static void release_all(void *arg)
{
    void **blocks = arg;
    for (int i = 0; blocks[i]; i++)
        pool_release(blocks[i]);
}

/* The pool ends while blocks are in use. The last release, on another thread, frees the rest. */
static void blocks_outlive_the_pool(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct pool *p = pool_new("test", 1 << 20, 0);
        struct mem_owner *owner = mem_owner_new("test");
        void *blocks[9] = {NULL}, *unused[4];
        for (int i = 0; i < 8; i++) {
            blocks[i] = pool_alloc(p, 1000 * ((size_t)i + 1), owner);
            memset(blocks[i], i, 1000);
        }
        for (int i = 0; i < 4; i++)
            unused[i] = pool_alloc(p, 5000, NULL);
        for (int i = 0; i < 4; i++)
            pool_release(unused[i]);
        struct thread t;
        assert_null(thread_start(&t, "releaser", release_all, blocks));
        pool_free(p); /* at the same time */
        thread_join(&t);
        assert_int_equal(mem_owner_bytes(owner, MEM_TENSORS), 0);
        mem_owner_free(owner);
    }
}

static void churn(void *arg)
{
    struct pool *p = arg;
    void *held[8] = {NULL};
    uint64_t seed = (uintptr_t)&held;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005ULL + 1;
        void **slot = &held[seed >> 61];
        pool_release(*slot);
        *slot = pool_alloc(p, (seed >> 32) % 3000, NULL);
        if (*slot)
            memset(*slot, 1, 256);
    }
    for (int i = 0; i < 8; i++)
        pool_release(held[i]);
}

static void many_threads_share_a_pool(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 20000, 50000);
    struct thread threads[4];
    for (int i = 0; i < 4; i++)
        assert_null(thread_start(&threads[i], "churn", churn, p));
    for (int i = 0; i < 20; i++)
        pool_trim(p, 1000);
    for (int i = 0; i < 4; i++)
        thread_join(&threads[i]);
    struct pool_stats stats;
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_in_range(stats.unused_bytes, 0, 20000);
    assert_int_equal(stats.n_allocs, 80000);
    pool_free(p);
}

static void release_twice(void *arg)
{
    pool_release(arg);
    pool_release(arg);
}

static void a_second_release_aborts(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 1 << 20, 0);
    void *block = pool_alloc(p, 10, NULL);
    assert_aborts(release_twice, block, "h->magic != MAGIC_USED");
    pool_release(block);
    pool_free(p);
}

static void a_pool_keeps_the_blocks_of_its_recent_peak(void **state)
{
    (void)state;
    enum { N = 40, BYTES = 64 << 10 };
    struct pool *p = pool_new("test", BYTES, 0); /* keeps only one block for ever */
    pool_settle(p);
    struct pool_stats stats;
    void *blocks[N];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++)
            assert_non_null(blocks[i] = pool_alloc(p, BYTES, NULL));
        for (int i = 0; i < N; i++)
            pool_release(blocks[i]);
        pool_stats(p, &stats);
        assert_int_equal(stats.n_misses, N); /* all in the first round */
        assert_int_equal(stats.unused_bytes, N * BYTES);
        pool_settle(p);
    }
    /* Less is needed now: a period without use frees half of the unused blocks, down to 1 MiB. */
    blocks[0] = pool_alloc(p, BYTES, NULL);
    blocks[1] = pool_alloc(p, BYTES, NULL);
    pool_release(blocks[1]);
    pool_settle(p);
    assert_false(pool_settle(p));
    pool_stats(p, &stats);
    assert_in_range(stats.unused_bytes, (N / 2 - 1) * BYTES, (N / 2 + 1) * BYTES);
    for (int i = 0; i < 3; i++)
        pool_settle(p);
    assert_true(pool_settle(p));
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, BYTES);
    assert_int_equal(stats.unused_bytes, 1 << 20);
    pool_release(blocks[0]);
    pool_free(p);
}

static void use_at_once(struct pool *p, int n, size_t bytes)
{
    void *blocks[64];
    for (int i = 0; i < n; i++)
        assert_non_null(blocks[i] = pool_alloc(p, bytes, NULL));
    for (int i = 0; i < n; i++)
        pool_release(blocks[i]);
}

/* As when 16 clients send large tensors: how many meet differs from second to second. */
static void a_pool_keeps_what_is_needed_every_few_seconds(void **state)
{
    (void)state;
    enum { BYTES = 512 << 10 };
    static const int needs[] = {16, 9, 11, 8, 15, 10, 9, 16, 7, 12, 8, 16, 9, 10, 7, 8, 16};
    struct pool *p = pool_new("test", 64 << 20, 0);
    pool_settle(p);
    struct pool_stats stats;

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        use_at_once(p, needs[i], BYTES);
        pool_settle(p);
    }
    pool_stats(p, &stats);
    assert_int_equal(stats.n_misses, 16);

    /* What a peak has left goes while others of the size are in use, only later. */
    for (int i = 0; i < 8; i++) {
        use_at_once(p, 2, BYTES);
        pool_settle(p);
    }
    for (int i = 0; i < 4; i++) {
        use_at_once(p, 2, BYTES);
        pool_settle(p);
    }
    pool_stats(p, &stats);
    assert_in_range(stats.unused_bytes, 2 * BYTES, 4 * BYTES);
    pool_free(p);
}

static uint64_t used_of(const struct budget *b)
{
    struct budget_stats stats;
    budget_stats(b, &stats);
    return stats.used_bytes;
}

/* All memory that the pool has from the system counts in its budget, used or not. The thread of
 * the last release does not matter. */
static void a_pool_counts_in_its_budget(void **state)
{
    (void)state;
    struct budget *b = budget_new(58 << 20);
    struct pool *p = pool_new("test", 8 << 20, 0);
    pool_set_budget(p, b);
    void *small = pool_alloc(p, 1000, NULL), *large = pool_alloc(p, 3 << 20, NULL);
    uint64_t used = used_of(b);
    assert_in_range(used, (3 << 20) + 1000, (3 << 20) + 10000);
    pool_release(large);
    assert_int_equal(used_of(b), used); /* kept for the next allocation */
    large = pool_alloc(p, 3 << 20, NULL);
    assert_int_equal(used_of(b), used);

    assert_null(pool_alloc(p, 70 << 20, NULL));
    assert_null(pool_alloc(p, 56 << 20, NULL));
    assert_int_equal(used_of(b), used);
    pool_release(large);
    void *other = pool_alloc(p, 56 << 20, NULL); /* unused blocks are freed for it */
    assert_non_null(other);
    assert_in_range(used_of(b), 56 << 20, 58 << 20);
    pool_release(other);
    pool_trim(p, 0);
    pool_free(p);
    assert_in_range(used_of(b), 1000, 2000);
    pool_release(small);
    assert_int_equal(used_of(b), 0);
    budget_unref(b);
}

static void a_large_block_grows_without_a_copy(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    struct budget *b = budget_new(64 << 20);
    struct pool *p = pool_new("test", 0, 0);
    pool_set_budget(p, b);
    struct mem_owner *owner = mem_owner_new("m");
    char *small = pool_alloc(p, 1000, NULL);
    assert_null(pool_grow(small, 5000)); /* a copy would be needed */
    pool_release(small);

    char *block = pool_alloc(p, MIB, owner);
    for (size_t i = 0; i < MIB; i++)
        block[i] = (char)(i * 7);
    for (size_t size = 2 * MIB; size <= 33 * (size_t)MIB; size += 5 * (size_t)MIB + 77) {
        block = pool_grow(block, size);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 4096,
                         64); /* so that an address aligned for a tensor stays aligned */
        assert_int_equal(pool_block_bytes(block), size);
        assert_int_equal(mem_owner_bytes(owner, MEM_TENSORS), size);
        assert_in_range(used_of(b), size, size + 8192);
        for (size_t i = 0; i < MIB; i++)
            assert_int_equal(block[i], (char)(i * 7));
        block[size - 1] = 1;
    }
    size_t size = pool_block_bytes(block);
    assert_null(pool_grow(block, 65 * (size_t)MIB));
    assert_int_equal(pool_block_bytes(block), size);
    assert_in_range(used_of(b), size, size + 8192);
    pool_release(block);
    assert_int_equal(used_of(b), 0);
    pool_free(p);
    mem_owner_free(owner);
    budget_unref(b);
}

static void *get_and_give(struct pool *p, size_t bytes)
{
    void *block = pool_alloc(p, bytes, NULL);
    memset(block, 1, bytes);
    pool_release(block);
    return block;
}

static void get_elsewhere(void *arg)
{
    void **ret = arg;
    void *block = pool_alloc(ret[0], 1000, NULL);
    pool_release(ret[1]); /* a block of the joined thread */
    pool_release(block);
    ret[2] = block;
}

static void a_joined_thread_has_blocks_of_its_own(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", (size_t)1 << 20, 0);
    struct mem_owner *owner = mem_owner_new("m");
    struct pool_stats stats;
    struct thread t;
    pool_attach(p);
    void *near = get_and_give(p, 1000);
    assert_ptr_equal(get_and_give(p, 1000), near);
    pool_stats(p, &stats);
    assert_int_equal(stats.n_allocs, 1); /* the second allocation took no lock */
    assert_int_equal(stats.unused_bytes, 0);
    pool_trim(p, 0);
    void *mine = pool_alloc(p, 1000, owner);
    assert_ptr_equal(mine, near);
    assert_int_equal(mem_owner_bytes(owner, MEM_TENSORS), pool_block_bytes(mine));

    void *shared[] = {p, mine, NULL};
    assert_null(thread_start(&t, "other", get_elsewhere, shared));
    thread_join(&t);
    assert_ptr_not_equal(shared[2], mine);
    assert_int_equal(mem_owner_bytes(owner, MEM_TENSORS), 0);
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, 0); /* blocks that other threads released are free for all */
    assert_true(stats.unused_bytes >= 2000);

    void *blocks[200];
    for (size_t i = 0; i < 200; i++)
        blocks[i] = pool_alloc(p, 300, owner);
    for (size_t i = 0; i < 200; i++)
        pool_release(blocks[i]);
    get_and_give(p, 5000); /* too large */
    pool_stats(p, &stats);
    assert_in_range(stats.used_bytes, 1, 100 * 320); /* some of the blocks */
    pool_detach(p);
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, 0);
    pool_attach(p); /* joins again */
    get_and_give(p, 300);
    pool_detach(p);
    pool_trim(p, 0);
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes + stats.unused_bytes, 0);
    mem_owner_free(owner);
    pool_free(p);
}

/* Has more blocks of a size at once than a thread keeps. Returns how many stay with the thread. */
static unsigned int count_kept_near(struct pool *p)
{
    enum { N = 2000, BYTES = 320 };
    void **blocks = mem_alloc(N * sizeof(*blocks));
    struct pool_stats stats;
    for (size_t i = 0; i < N; i++)
        blocks[i] = pool_alloc(p, BYTES, NULL);
    for (size_t i = 0; i < N; i++)
        pool_release(blocks[i]);
    mem_free(blocks);
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes % BYTES, 0);
    return (unsigned int)(stats.used_bytes / BYTES);
}

static void a_block_gets_another_owner(void **state)
{
    (void)state;
    struct mem_owner *x = mem_owner_new("x"), *y = mem_owner_new("y");
    struct pool *p = pool_new("test", 0, 0), *other = pool_new("other", 0, 0);
    struct pool_stats stats;
    void *block = pool_alloc(p, 1 << 20, x);
    pool_disown(block);
    assert_int_equal(mem_owner_blocks(x), 0);
    assert_false(pool_reuse(block, other, 1 << 20, y)); /* of another pool */
    assert_false(pool_reuse(block, p, (1 << 20) + 1, y));
    assert_false(pool_reuse(block, p, (1 << 19) - 1, y));
    assert_int_equal(mem_owner_blocks(y), 0);
    assert_true(pool_reuse(block, p, 1 << 19, y));
    assert_int_equal(mem_owner_bytes(y, MEM_TENSORS), 1 << 20);
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, 1 << 20);
    pool_release(block);
    assert_int_equal(mem_owner_blocks(y), 0);
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, 0);
    pool_free(p);
    pool_free(other);
    mem_owner_free(x);
    mem_owner_free(y);
}

static void a_joined_thread_keeps_as_many_blocks_as_it_may(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", (size_t)1 << 20, 0);
    struct pool_stats stats;
    pool_attach(p);
    assert_int_equal(count_kept_near(p), POOL_NEAR_BLOCKS);
    pool_keep_near(p, 1000);
    assert_int_equal(count_kept_near(p), 1000);
    pool_keep_near(p, 0); /* what another service of the loop asked for stays */
    assert_int_equal(count_kept_near(p), 1000);
    pool_detach(p);
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, 0);
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_keeps_the_blocks_of_its_recent_peak),
        cmocka_unit_test(a_pool_keeps_what_is_needed_every_few_seconds),
        cmocka_unit_test(a_pool_counts_in_its_budget),
        cmocka_unit_test(a_large_block_grows_without_a_copy),
        cmocka_unit_test(sizes_are_rounded_up_by_less_than_a_quarter),
        cmocka_unit_test(the_last_released_block_is_used_first),
        cmocka_unit_test(a_pool_keeps_only_its_share_of_unused_blocks),
        cmocka_unit_test(a_pool_gives_at_most_its_limit),
        cmocka_unit_test(lack_of_memory_returns_null_and_charges_nothing),
        cmocka_unit_test(a_pool_charges_the_owners_of_its_blocks),
        cmocka_unit_test(a_block_gets_another_owner),
        cmocka_unit_test(blocks_outlive_the_pool),
        cmocka_unit_test(many_threads_share_a_pool),
        cmocka_unit_test(a_joined_thread_has_blocks_of_its_own),
        cmocka_unit_test(a_joined_thread_keeps_as_many_blocks_as_it_may),
        cmocka_unit_test(a_second_release_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
