/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sched/spare_block.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/mem_owner.h"
#include "base/pool.h"
#include "core/request/request.h"
#include "core/sched/afterwards.h"
#include "core/sched/execution.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

#define A_AND_X                                                                                    \
    "input { name: 'A' data_type: TYPE_FP32 dims: 1 } "                                            \
    "output { name: 'X' data_type: TYPE_FP32 dims: 1 } "                                           \
    "parameters { key: 'CONCH_EXECUTION' value { string_value: 'inline' } } "

enum { LEAST = SPARE_BLOCK_LEAST_BYTES };

static struct pool *pool, *other;
static struct mem_owner *before, *behind;

static size_t used_bytes(void)
{
    struct pool_stats stats;
    pool_stats(pool, &stats);
    return stats.used_bytes;
}

static void run_nothing(struct afterwards *a, struct inline_budget *budget);
static struct afterwards step = {.run = run_nothing};
static int n_steps;
static size_t used_in_step;

/* The next step takes what the one before has freed, and frees it again. */
static void run_nothing(struct afterwards *a, struct inline_budget *budget)
{
    (void)a;
    (void)budget;
    void *block = spare_block_take(pool, LEAST, behind);
    assert_non_null(block);
    assert_int_equal(mem_owner_bytes(behind, MEM_TENSORS), LEAST);
    used_in_step = used_bytes();
    pool_release(block);
    n_steps++;
}

/* As the end of an ensemble's step: frees its input, and posts the next one. */
static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    void *first = pool_alloc(pool, LEAST, before), *small = pool_alloc(pool, LEAST / 2, before);
    spare_block_release(small); /* that is the pool's */
    assert_null(spare_block_take(pool, LEAST / 2, behind));
    spare_block_release(first);
    assert_int_equal(mem_owner_blocks(before), 0); /* its model may end meanwhile */
    assert_null(spare_block_take(other, LEAST, behind));
    assert_null(spare_block_take(pool, 2 * LEAST, behind));
    spare_block_release(pool_alloc(pool, LEAST, before)); /* only the last one is kept */
    assert_int_equal(used_bytes(), LEAST);
    afterwards_post(&step);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

static void send(struct fake_request *r, struct fake_model *f, struct inline_budget *budget)
{
    static const float value = 1;
    static const int64_t shape[] = {1};
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    fake_request_make(r, f);
    r->request.maker.inline_budget = budget;
    assert_null(request_add_input(&r->request, "A", 1, DTYPE_FP32, shape, 1, &in));
    assert_null(request_add_data(&r->request, in, &data));
    assert_null(server_infer(&f->server, &r->request));
}

static void a_block_is_kept_for_the_next_step_on_the_thread(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request r;
    struct inline_budget budget = {.left_ns = UINT64_MAX};
    fake_model_make(&f, A_AND_X, 1, execute);
    send(&r, &f, &budget);
    assert_int_equal(n_steps, 1);
    assert_int_equal(used_in_step, LEAST);
    fake_request_end(&r);
    assert_int_equal(used_bytes(), 0);
    fake_model_end(&f);
}

/* … for which nobody asks, so that it is the end of it. */
static struct status *execute_and_free(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    spare_block_release(pool_alloc(pool, LEAST, before));
    assert_int_equal(used_bytes(), LEAST);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

static void a_block_is_gone_after_the_execution(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request r;
    struct inline_budget budget = {.left_ns = UINT64_MAX};
    fake_model_make(&f, A_AND_X, 1, execute_and_free);
    for (int i = 0; i < 3; i++) {
        send(&r, &f, &budget);
        assert_int_equal(used_bytes(), 0);
        fake_request_end(&r);
    }
    fake_model_end(&f);
}

static void a_thread_that_executes_nothing_keeps_nothing(void **state)
{
    (void)state;
    spare_block_release(pool_alloc(pool, LEAST, before));
    assert_int_equal(used_bytes(), 0);
    assert_null(spare_block_take(pool, LEAST, behind));
}

static int make_pools(void **state)
{
    (void)state;
    pool = pool_new("test", 0, 0);
    other = pool_new("other", 0, 0);
    before = mem_owner_new("before");
    behind = mem_owner_new("behind");
    return 0;
}

static int end_pools(void **state)
{
    (void)state;
    pool_free(pool);
    pool_free(other);
    mem_owner_free(before);
    mem_owner_free(behind);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_kept_for_the_next_step_on_the_thread),
        cmocka_unit_test(a_block_is_gone_after_the_execution),
        cmocka_unit_test(a_thread_that_executes_nothing_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, make_pools, end_pools);
}
