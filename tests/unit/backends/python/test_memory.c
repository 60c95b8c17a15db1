/* SPDX-License-Identifier: Apache-2.0 */
#include "python/memory.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define KB UINT64_C(1024)
#define MB (KB * KB)

struct both {
    int fd;
    struct arena *arena;
    struct mapping *mapping;
};

static struct both start(uint64_t first, uint64_t grow, uint64_t most)
{
    struct both b = {.fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};

    assert_true(b.fd >= 0);
    assert_int_equal(fcntl(b.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    b.arena = arena_new(b.fd, first, grow, most);
    b.mapping = mapping_new(b.fd, most);
    assert_non_null(b.arena);
    assert_non_null(b.mapping);
    return b;
}

static void end(struct both *b)
{
    mapping_free(b->mapping);
    arena_free(b->arena);
    close(b->fd);
}

static uint64_t file_size(const struct both *b)
{
    struct stat st;

    assert_int_equal(fstat(b->fd, &st), 0);
    return (uint64_t)st.st_size;
}

/* The blocks tile the file, free neighbours are merged, and the table has all that are not free. */
static void check_books(struct arena *a)
{
    uint64_t at = a->size;
    uint32_t n = 0;

    for (uint32_t i = a->end; i != NO_BLOCK; i = a->blocks[i].before) {
        const struct block *b = &a->blocks[i];

        assert_true(b->at + b->size == at);
        at = b->at;
        if (b->state == FREE)
            assert_true(b->before == NO_BLOCK || a->blocks[b->before].state != FREE);
        else
            assert_int_equal(find_block(a, b->at), i);
        n += b->state != FREE;
    }
    assert_int_equal(at, 0);
    assert_int_equal(n, a->n_entries);
}

static void a_block_goes_over_and_comes_back(void **state)
{
    struct both b = start(64 * KB, 64 * KB, MB);
    uint64_t at, again;

    (void)state;
    char *data = arena_take(b.arena, 100, &at);
    assert_int_equal(at % BLOCK_ALIGN, 0);
    assert_int_equal((uintptr_t)data % BLOCK_ALIGN, 0);
    snprintf(data, 100, "hello");
    block_hand(b.arena, at);
    assert_int_equal(arena_held_bytes(b.arena), BLOCK_HEADER_BYTES + 128);
    assert_string_equal(mapping_find(b.mapping, at, 100), "hello");
    mapping_give_back(b.mapping, at);
    assert_int_equal(arena_held_bytes(b.arena), 0);
    arena_take(b.arena, 100, &again); /* its memory is used again */
    assert_int_equal(again, at);
    check_books(b.arena);
    end(&b);
}

static void a_held_block_is_not_used_again(void **state)
{
    struct both b = start(64 * KB, 64 * KB, MB);
    uint64_t first, at;

    (void)state;
    arena_take(b.arena, 1000, &first);
    block_hand(b.arena, first);
    for (int i = 0; i < 500; i++) {
        assert_non_null(arena_take(b.arena, 1000, &at));
        assert_true(at >= first + 1000);
        arena_drop(b.arena, at);
    }
    assert_int_equal(file_size(&b), 64 * KB);
    end(&b);
}

static void a_pinned_block_stays_until_it_is_dropped(void **state)
{
    struct both b = start(64 * KB, 64 * KB, MB);
    uint64_t pinned, at;

    (void)state;
    arena_take(b.arena, 1000, &pinned);
    block_hand_pinned(b.arena, pinned);
    assert_false(arena_given_back(b.arena, pinned));
    mapping_give_back(b.mapping, pinned);
    assert_true(arena_given_back(b.arena, pinned));
    arena_take(b.arena, 1000, &at);
    assert_int_not_equal(at, pinned);
    assert_true(arena_given_back(b.arena, pinned));
    arena_drop(b.arena, at);
    arena_drop(b.arena, pinned);
    arena_take(b.arena, 1000, &at);
    assert_int_equal(at, pinned);
    end(&b);
}

static void the_file_grows_up_to_its_limit(void **state)
{
    struct both b = start(64 * KB, 64 * KB, MB);
    uint64_t at, n = 0;

    (void)state;
    assert_int_equal(file_size(&b), 64 * KB);
    while (arena_take(b.arena, 100 * KB, &at)) {
        assert_non_null(mapping_find(b.mapping, at, 100 * KB));
        n++;
    }
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(n, MB / (100 * KB + 64));
    assert_true(file_size(&b) <= MB);
    assert_null(arena_take(b.arena, UINT64_MAX, &at));
    assert_null(arena_take(b.arena, UINT64_MAX - 100, &at));
    assert_null(arena_take(b.arena, MB, &at));
    check_books(b.arena);
    end(&b);
}

static void freed_neighbours_become_one(void **state)
{
    struct both b = start(64 * KB, 64 * KB, 64 * KB);
    uint64_t at[60], whole;

    (void)state;
    for (int i = 0; i < 60; i++)
        assert_non_null(arena_take(b.arena, 900, &at[i]));
    for (int i = 0; i < 60; i += 2)
        arena_drop(b.arena, at[i]);
    check_books(b.arena);
    for (int i = 1; i < 60; i += 2) {
        block_hand(b.arena, at[i]);
        mapping_give_back(b.mapping, at[i]);
    }
    assert_non_null(arena_take(b.arena, 64 * KB - BLOCK_HEADER_BYTES, &whole));
    check_books(b.arena);
    end(&b);
}

static void what_lies_beyond_the_file_is_not_found(void **state)
{
    struct both b = start(64 * KB, 64 * KB, MB);
    const uint64_t size = 64 * KB;

    (void)state;
    assert_non_null(mapping_find(b.mapping, 0, size));
    assert_non_null(mapping_find(b.mapping, size, 0));
    assert_null(mapping_find(b.mapping, 0, size + 1));
    assert_null(mapping_find(b.mapping, size - 1, 2));
    assert_null(mapping_find(b.mapping, size + 1, 0));
    assert_null(mapping_find(b.mapping, UINT64_MAX, 1));
    assert_null(mapping_find(b.mapping, 1, UINT64_MAX));
    assert_null(mapping_find(b.mapping, UINT64_MAX, UINT64_MAX));
    /* A file that became larger than its limit, which the other side can do. */
    assert_int_equal(ftruncate(b.fd, (off_t)(4 * MB)), 0);
    assert_non_null(mapping_find(b.mapping, 0, MB));
    assert_null(mapping_find(b.mapping, 0, MB + 1));
    end(&b);
}

static void offsets_that_are_no_block_s_do_nothing(void **state)
{
    struct both b = start(64 * KB, 64 * KB, MB);
    static const uint64_t bad[] = {
        0, 1, 63, 64, 65, 128, 64 * 1024, MB, UINT64_MAX, UINT64_MAX - 63, UINT64_MAX - 127};
    uint64_t at;

    (void)state;
    arena_take(b.arena, 1000, &at);
    block_hand(b.arena, at);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (bad[i] == at)
            continue;
        mapping_give_back(b.mapping, bad[i]);
        arena_drop(b.arena, bad[i]);
        block_hand(b.arena, bad[i]);
        assert_true(arena_given_back(b.arena, bad[i]));
    }
    block_hand(b.arena, at); /* twice */
    check_books(b.arena);
    assert_int_equal(arena_held_bytes(b.arena), BLOCK_HEADER_BYTES + 1024);
    end(&b);
}

static void what_the_receiver_writes_into_headers_harms_nobody_else(void **state)
{
    struct both b = start(64 * KB, 64 * KB, MB);
    uint64_t at[32];

    (void)state;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 32; i++) {
            assert_non_null(arena_take(b.arena, 64u * (unsigned int)i, &at[i]));
            block_hand(b.arena, at[i]);
        }
        memset(mapping_find(b.mapping, 0, 64 * KB), round % 2 ? 0xff : 0, 64 * KB);
        check_books(b.arena);
        for (int i = 0; i < 32; i++)
            arena_drop(b.arena, at[i]);
    }
    end(&b);
}

static void trimming_gives_pages_back(void **state)
{
    struct both b = start(4 * MB, MB, 8 * MB);
    struct stat st;
    uint64_t at;

    (void)state;
    memset(arena_take(b.arena, 3 * MB, &at), 1, 3 * MB);
    arena_trim(b.arena, 64 * KB);
    fstat(b.fd, &st);
    assert_true((uint64_t)st.st_blocks * 512 >= 3 * MB); /* none of a block that is in use */
    block_hand(b.arena, at);
    mapping_give_back(b.mapping, at);
    arena_trim(b.arena, 64 * KB);
    fstat(b.fd, &st);
    assert_true((uint64_t)st.st_blocks * 512 <= 72 * KB);
    assert_int_equal(file_size(&b), 4 * MB);
    end(&b);
}

/* Many threads take, fill and hand over blocks; others check them and give them back. */

enum { N_PAIRS = 4, N_ROUNDS = 20000, N_SLOTS = 64 };

struct pair {
    struct both *both;
    unsigned int seed;
    _Atomic uint64_t slots[N_SLOTS]; /* offset and size / 64 in the lowest bits; 0: empty */
    pthread_t owner, receiver;
};

static void *own(void *arg)
{
    struct pair *p = arg;

    for (unsigned int i = 0; i < N_ROUNDS; i++) {
        _Atomic uint64_t *slot = &p->slots[i % N_SLOTS];
        const uint64_t n = (unsigned int)rand_r(&p->seed) % 63 + 1;
        uint64_t at;

        while (atomic_load(slot))
            sched_yield();
        char *data = arena_take(p->both->arena, n * 64, &at);
        if (!data)
            abort();
        memset(data, (int)(i % 251), n * 64);
        if (i % 7 == 0) {
            arena_drop(p->both->arena, at);
            continue;
        }
        block_hand(p->both->arena, at);
        atomic_store(slot, at | n);
    }
    return NULL;
}

static void *receive(void *arg)
{
    struct pair *p = arg;

    for (unsigned int i = 0; i < N_ROUNDS; i++) {
        _Atomic uint64_t *slot = &p->slots[i % N_SLOTS];
        uint64_t message;

        if (i % 7 == 0)
            continue;
        while (!(message = atomic_load(slot)))
            sched_yield();
        const uint64_t at = message & ~(uint64_t)63, n = message & 63;
        const unsigned char *data = mapping_find(p->both->mapping, at, n * 64);
        if (!data)
            abort();
        for (uint64_t k = 0; k < n * 64; k++) {
            if (data[k] != i % 251)
                abort();
        }
        mapping_give_back(p->both->mapping, at);
        atomic_store(slot, 0);
    }
    return NULL;
}

static void threads_take_and_give_back_at_once(void **state)
{
    struct both b = start(64 * KB, 64 * KB, 64 * MB);
    static struct pair pairs[N_PAIRS];

    (void)state;
    for (unsigned int i = 0; i < N_PAIRS; i++) {
        pairs[i] = (struct pair){.both = &b, .seed = i};
        assert_int_equal(pthread_create(&pairs[i].owner, NULL, own, &pairs[i]), 0);
        assert_int_equal(pthread_create(&pairs[i].receiver, NULL, receive, &pairs[i]), 0);
    }
    for (unsigned int i = 0; i < N_PAIRS; i++) {
        pthread_join(pairs[i].owner, NULL);
        pthread_join(pairs[i].receiver, NULL);
    }
    assert_int_equal(arena_held_bytes(b.arena), 0);
    check_books(b.arena);
    /* At most all slots were held at once. */
    assert_true(file_size(&b) <= N_PAIRS * N_SLOTS * 8 * KB);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_goes_over_and_comes_back),
        cmocka_unit_test(a_held_block_is_not_used_again),
        cmocka_unit_test(a_pinned_block_stays_until_it_is_dropped),
        cmocka_unit_test(the_file_grows_up_to_its_limit),
        cmocka_unit_test(freed_neighbours_become_one),
        cmocka_unit_test(what_lies_beyond_the_file_is_not_found),
        cmocka_unit_test(offsets_that_are_no_block_s_do_nothing),
        cmocka_unit_test(what_the_receiver_writes_into_headers_harms_nobody_else),
        cmocka_unit_test(trimming_gives_pages_back),
        cmocka_unit_test(threads_take_and_give_back_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
