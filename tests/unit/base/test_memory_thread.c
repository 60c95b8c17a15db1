/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory_thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/status.h"

enum { MIB = 1 << 20, PAGE = 4096 };

struct fixture {
    struct memory_thread memory;
    struct loop loop;
    int n_made, n_awaited;
};

static void set_up(struct fixture *f)
{
    *f = (struct fixture){0};
    memory_thread_init(&f->memory);
    assert_null(loop_init(&f->loop, clock_real()));
}

static void tear_down(struct fixture *f)
{
    loop_done(&f->loop);
    memory_thread_done(&f->memory);
}

static void on_made(void *arg)
{
    struct fixture *f = arg;
    if (++f->n_made == f->n_awaited)
        loop_stop(&f->loop);
}

static size_t n_resident(char *pages, size_t bytes)
{
    unsigned char states[64 * MIB / PAGE];
    size_t n = 0;
    assert_int_equal(mincore(pages, bytes, states), 0);
    for (size_t i = 0; i < bytes / PAGE; i++)
        n += states[i] & 1;
    return n;
}

static void the_thread_makes_pages_and_keeps_their_contents(void **state)
{
    (void)state;
    enum { BYTES = 9 * MIB };
    struct fixture f;
    set_up(&f);
    char *pages = mem_try_map(BYTES);
    assert_non_null(pages);
    pages[MIB] = 'x';
    assert_true(n_resident(pages, BYTES) < BYTES / PAGE);

    /* Without the thread an order has no effect. */
    assert_null(memory_thread_order(&f.memory, &f.loop, pages, BYTES, on_made, &f));
    assert_null(memory_thread_start(&f.memory));
    f.n_awaited = 2;
    assert_non_null(memory_thread_order(&f.memory, &f.loop, pages, 4 * MIB, on_made, &f));
    assert_non_null(memory_thread_order(&f.memory, &f.loop, pages + 4 * MIB, 5 * MIB, on_made, &f));
    loop_run(&f.loop);
    assert_int_equal(f.n_made, 2);
    assert_int_equal(n_resident(pages, BYTES), BYTES / PAGE);
    assert_int_equal(pages[MIB], 'x');
    assert_int_equal(pages[MIB + 1], 0);

    memory_thread_unmap(&f.memory, pages, BYTES);
    memory_thread_stop(&f.memory);
    tear_down(&f);
}

/* In each state of an order: waiting, in work, made, and being delivered. */
static void orders_may_be_forgotten(void **state)
{
    (void)state;
    enum { BYTES = 4 * MIB, N = 8 };
    for (int round = 0; round < 20; round++) {
        struct fixture f;
        set_up(&f);
        assert_null(memory_thread_start(&f.memory));
        char *pages[N];
        struct page_order *orders[N];
        for (int i = 0; i < N; i++) {
            pages[i] = mem_try_map(BYTES);
            assert_non_null(pages[i]);
            orders[i] =
                memory_thread_order(&f.memory, &f.loop, pages[i] + PAGE, BYTES - PAGE, on_made, &f);
            assert_non_null(orders[i]);
        }
        for (int i = N - 1; i >= 0; i--) {
            /* Pages that the thread does not use may be freed in any way. */
            if (memory_thread_forget(&f.memory, orders[i]) || i % 2 == 0)
                memory_thread_unmap(&f.memory, pages[i], BYTES);
            else
                mem_unmap(pages[i], BYTES);
        }
        memory_thread_stop(&f.memory);
        tear_down(&f); /* delivers orders that are made */
        assert_int_equal(f.n_made, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_makes_pages_and_keeps_their_contents),
        cmocka_unit_test(orders_may_be_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
