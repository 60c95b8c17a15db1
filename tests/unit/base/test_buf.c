/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"

static void a_buf_grows_by_every_function_that_adds(void **state)
{
    (void)state;
    AUTO(buf) b = BUF_INIT(1000);
    assert_string_equal(buf_text(&b), "");
    assert_null(buf_status(&b));
    buf_add(&b, "", 0);
    assert_string_equal(buf_text(&b), "");
    buf_adds(&b, "one");
    buf_addc(&b, ' ');
    buf_addf(&b, "%d %s", 2, "three");
    buf_add(&b, " four!", 5);
    assert_string_equal(buf_text(&b), "one 2 three four");
    assert_int_equal(b.size, 16);

    char *place = buf_reserve(&b, 3);
    assert_ptr_equal(place, b.data + b.size);
    assert_int_equal(b.size, 16); /* reserves room only */
    for (int i = 0; i < 900; i++)
        buf_addc(&b, 'x');
    assert_int_equal(b.size, 916);
    assert_int_equal(b.data[916], '\0');
    assert_memory_equal(b.data, "one 2 three fourxxx", 19);
    assert_null(buf_status(&b));
}

static void a_buf_fails_at_its_maximum(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct buf b;
        buf_init(&b, 10);
        buf_adds(&b, "0123456789"); /* fits exactly */
        assert_null(buf_status(&b));
        assert_true(b.capacity <= 11);
        if (way == 0)
            buf_addc(&b, 'x');
        else if (way == 1)
            buf_addf(&b, "%s", "x");
        else if (way == 2)
            assert_null(buf_reserve(&b, 1));
        else
            assert_null(buf_reserve(&b, SIZE_MAX));
        assert_true(b.failed && b.full);
        buf_add(&b, "", 0); /* the buffer stays failed */
        assert_null(buf_reserve(&b, 0));
        assert_string_equal(buf_text(&b), "0123456789");
        struct status *st = buf_status(&b);
        assert_int_equal(status_code(st), STATUS_INVALID_ARG);
        assert_string_equal(status_message(st), "text exceeds the maximum of 10 bytes");
        status_free(st);

        buf_reset(&b);
        assert_null(buf_status(&b));
        assert_string_equal(buf_text(&b), "");
        buf_adds(&b, "again");
        assert_string_equal(buf_text(&b), "again");
        buf_done(&b);
        buf_done(&b);
    }
    AUTO(buf) none = BUF_INIT(0);
    buf_addc(&none, 'x');
    assert_true(none.full);
}

static bool refuse(size_t size_bytes)
{
    (void)size_bytes;
    return false;
}

static void a_buf_that_failed_stays_failed(void **state)
{
    (void)state;
    AUTO(buf) b = BUF_INIT(1000);
    buf_adds(&b, "start");
    mem_set_test_hook(refuse);
    buf_addf(&b, "%0100d", 1);
    mem_set_test_hook(NULL);
    buf_adds(&b, " more");
    assert_string_equal(buf_text(&b), "start");
    assert_false(b.full);
    assert_ptr_equal(buf_status(&b), status_no_memory());
}

static void a_buf_hands_over_its_text(void **state)
{
    (void)state;
    struct buf b = BUF_INIT(100);
    buf_adds(&b, "text");
    char *text = buf_take(&b);
    assert_string_equal(text, "text");
    mem_free(text);
    text = buf_take(&b);
    assert_string_equal(text, "");
    mem_free(text);
    assert_non_null(buf_reserve(&b, 5)); /* reserved, but not added */
    text = buf_take(&b);
    assert_string_equal(text, "");
    mem_free(text);
    assert_int_equal(b.max, 100);
}

static void a_buf_takes_its_memory_from_a_pool(void **state)
{
    (void)state;
    struct pool *pool = pool_new("test", 1 << 20, 0);
    struct pool_stats stats;
    struct buf b;
    buf_init_pooled(&b, 1000, pool);
    for (int i = 0; i < 1000; i++)
        buf_addc(&b, 'x');
    assert_null(buf_status(&b));
    buf_addc(&b, 'x'); /* a block may be larger than the maximum, which holds all the same */
    assert_true(b.full);
    char *text = buf_take(&b);
    assert_int_equal(strlen(text), 1000);
    assert_null(b.data);
    pool_release(text);
    text = buf_take(&b);
    assert_string_equal(text, "");
    pool_release(text);

    pool_stats(pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
    uint64_t n_misses = stats.n_misses;
    for (int i = 0; i < 1000; i++)
        buf_addc(&b, 'y');
    buf_done(&b);
    pool_stats(pool, &stats);
    assert_int_equal(stats.n_misses, n_misses); /* blocks of the pool again */
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buf_grows_by_every_function_that_adds),
        cmocka_unit_test(a_buf_fails_at_its_maximum),
        cmocka_unit_test(a_buf_that_failed_stays_failed),
        cmocka_unit_test(a_buf_hands_over_its_text),
        cmocka_unit_test(a_buf_takes_its_memory_from_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
