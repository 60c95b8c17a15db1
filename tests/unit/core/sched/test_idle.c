/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sched/idle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/thread.h"

static void the_last_idle_instance_is_taken_first(void **state)
{
    (void)state;
    struct idle i;
    idle_init(&i, 5);
    assert_int_equal(idle_best(&i), IDLE_NONE);
    for (uint32_t n = 5; n-- > 0;)
        idle_add(&i, n);
    assert_int_equal(idle_best(&i), 0);
    idle_remove(&i, 0);
    idle_remove(&i, 3);
    idle_remove(&i, 1);
    idle_add(&i, 3);
    assert_int_equal(idle_best(&i), 3);
    idle_remove(&i, 3);
    assert_int_equal(idle_best(&i), 2);
    idle_done(&i);
}

static void idle_instances_are_taken_in_order(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 63, 64, 65, 200};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct idle i;
        uint32_t n = counts[c];
        idle_init(&i, n);
        for (uint32_t k = 0; k < n; k++)
            idle_add(&i, k);
        for (uint32_t k = 0; k < n; k++)
            assert_int_equal(idle_next(&i, k), k);
        assert_int_equal(idle_next(&i, n), IDLE_NONE);
        for (uint32_t k = 0; k + 1 < n; k++)
            idle_remove(&i, k);
        assert_int_equal(idle_next(&i, 0), n - 1);
        assert_int_equal(idle_best(&i), n - 1);
        idle_remove(&i, n - 1);
        assert_int_equal(idle_next(&i, 0), IDLE_NONE);
        idle_done(&i);
    }
}

static void other_thread(void *arg)
{
    struct idle *i = arg;
    idle_remove(i, 1);
    idle_note_inline(i, 1);
    idle_add(i, 1);
    assert_int_equal(idle_best(i), 1);
}

/* A thread that executes inline gets its own instance again, although another instance was idle
 * later. */
static void each_thread_gets_its_own_instance_again(void **state)
{
    (void)state;
    struct idle i;
    struct thread t;
    idle_init(&i, 3);
    for (uint32_t n = 0; n < 3; n++)
        idle_add(&i, n);
    idle_remove(&i, 0);
    idle_note_inline(&i, 0);
    idle_add(&i, 0);
    assert_null(thread_start(&t, "other", other_thread, &i));
    thread_join(&t);
    assert_int_equal(idle_best(&i), 0);
    idle_remove(&i, 0);
    assert_int_equal(idle_best(&i), 2); /* 1 belongs to the other thread */
    idle_remove(&i, 2);
    assert_int_equal(idle_best(&i), 1);
    idle_done(&i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_idle_instance_is_taken_first),
        cmocka_unit_test(idle_instances_are_taken_in_order),
        cmocka_unit_test(each_thread_gets_its_own_instance_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
