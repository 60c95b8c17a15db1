/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the service that no client sees, on the loops of a real server without models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "conch/conch.h"
#include "frontends/serve/server_loops.h"
#include "lib/server_driver.h"

static int start_server(void **state)
{
    (void)state;
    start_prepared_server(prepare_server("/backends"));
    return 0;
}

/* Has many blocks of one size at once, and returns how many stay with the loop. */
static void count_near_blocks(struct worker *w, void *arg)
{
    enum { N = 2000, BYTES = 320 };
    void *blocks[N];
    struct pool_stats before, after;
    pool_stats(w->pool, &before);
    for (int i = 0; i < N; i++)
        blocks[i] = pool_alloc(w->pool, BYTES, NULL);
    for (int i = 0; i < N; i++)
        pool_release(blocks[i]);
    pool_stats(w->pool, &after);
    *(size_t *)arg = (after.used_bytes - before.used_bytes) / BYTES;
}

/* Serves gRPC, and returns how many blocks of a size its loop keeps. */
static size_t count_blocks_for_calls(unsigned int n_kept_calls)
{
    struct conch_grpc_options o;
    struct conch_grpc *grpc;
    struct loops *loops;
    size_t n = 0;
    conch_grpc_options_init(&o);
    o.address = "127.0.0.1";
    o.port = 0;
    o.n_threads = 1;
    o.n_kept_calls = n_kept_calls;
    assert_null(conch_grpc_start((struct TRITONSERVER_Server *)server, &o, &grpc));
    assert_null(server_loops_get(server, 1, &loops));
    struct worker_call *call = worker_post(&loops->workers[0], count_near_blocks, &n);
    assert_true(worker_await(call, monotonic_ns() + 60 * NS_PER_S));
    server_loops_put(server, NET_FREED);
    assert_int_equal(conch_grpc_stop(grpc, 60000), 0); /* the loops end with it */
    return n;
}

static void a_loop_keeps_the_memory_of_as_many_calls_as_the_option_says(void **state)
{
    (void)state;
    struct conch_grpc_options o;
    conch_grpc_options_init(&o);
    assert_int_equal(o.n_kept_calls, 8);
    assert_int_equal(count_blocks_for_calls(o.n_kept_calls), 64);
    assert_int_equal(count_blocks_for_calls(0), 64); /* HTTP shares the loop */
    assert_int_equal(count_blocks_for_calls(20), 160);
    assert_int_equal(count_blocks_for_calls(UINT32_MAX), 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_keeps_the_memory_of_as_many_calls_as_the_option_says),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
