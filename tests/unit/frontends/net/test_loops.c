/* SPDX-License-Identifier: Apache-2.0 */
/* Services that share loops: each has its port, its handler and its end. They begin to stop
 * together. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "frontends/net/loops.h"
#include "frontends/net/server.h"
#include "frontends/net/worker.h"

/* ---- Two services ---------------------------------------------------------------------------- */

struct side {
    const char *name; /* its answer to all requests except HEAD, which waits */
    struct net_server *server;
    struct exchange *held; /* under mu */
    struct message release;
};

static struct mutex mu;
static struct cond changed;
static struct side left, right;
static struct loops *loops;
static int n_ctxs; /* under mu: of existing loops */

static void on_request(struct exchange *x)
{
    struct side *s = x->env->net.handler_ctx;
    if (x->method != METHOD_HEAD) {
        exchange_reply_text(x, 200, NULL, s->name, strlen(s->name));
        return;
    }
    mutex_lock(&mu);
    s->held = x;
    cond_broadcast(&changed);
    mutex_unlock(&mu);
}

static void on_end(struct exchange *x)
{
    (void)x;
}

static const struct http_handler handler = {.on_request = on_request, .on_end = on_end};

static void *give_side(void *arg, struct net_env *env)
{
    assert_non_null(env->loop_ctx);
    return arg;
}

static void *new_ctx(void *arg, struct loop *loop)
{
    (void)loop;
    mutex_lock(&mu);
    n_ctxs++;
    mutex_unlock(&mu);
    return arg;
}

static void free_ctx(void *ctx)
{
    (void)ctx;
    mutex_lock(&mu);
    n_ctxs--;
    mutex_unlock(&mu);
}

static void start_wishful_side(struct side *s, const char *name, unsigned int n_threads,
                               unsigned int n_near_blocks)
{
    struct net_options o;
    *s = (struct side){.name = name};
    net_options_init(&o);
    o.address = "127.0.0.1";
    o.loops = loops;
    o.n_threads = n_threads;
    o.n_near_blocks = n_near_blocks;
    o.http1.handler = &handler;
    o.handler_arg = s;
    o.ctx_new = give_side;
    assert_null(net_server_start(&o, &s->server));
}

static void start_side(struct side *s, const char *name, unsigned int n_threads)
{
    start_wishful_side(s, name, n_threads, 0);
}

static void stop_side(struct side *s)
{
    enum net_end end;
    assert_int_equal(net_server_stop(s->server, monotonic_ns() + 60 * NS_PER_S, NULL, &end), 0);
    assert_int_equal(end, NET_FREED);
}

static int start(void **state)
{
    (void)state;
    struct loops_options o = {.name = "both",
                              .n_threads = 2,
                              .max_threads = 3,
                              .ctx_new = new_ctx,
                              .ctx_free = free_ctx,
                              .ctx_arg = &mu};
    assert_null(loops_new(&o, &loops));
    start_side(&left, "left", 2);
    start_side(&right, "right", 2);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    loops_unref(loops);
    assert_int_equal(n_ctxs, 0);
    return 0;
}

/* ---- Clients --------------------------------------------------------------------------------- */

/* Returns a connection; -1 if it is refused. */
static int dial(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    return -1;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads until `last` has arrived; NULL: until the server closes. */
static const char *hear(int fd, const char *last)
{
    static char text[4096];
    size_t n = 0;
    ssize_t got = 1;
    text[0] = '\0';
    while (got > 0 && !(last && strstr(text, last))) {
        got = recv(fd, text + n, sizeof(text) - 1 - n, 0);
        assert_true(got >= 0);
        n += (size_t)got;
        text[n] = '\0';
    }
    return text;
}

static void ask(int fd, const char *answer)
{
    say(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(hear(fd, answer), answer));
}

/* Sends a request that waits for its answer. */
static int hold(struct side *s)
{
    int fd = dial(net_server_port(s->server));
    say(fd, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    mutex_lock(&mu);
    while (!s->held)
        assert_true(cond_wait_until(&changed, &mu, monotonic_ns() + 60 * NS_PER_S));
    mutex_unlock(&mu);
    return fd;
}

static void on_release(struct message *m)
{
    exchange_reply_text(CONTAINER_OF(m, struct side, release)->held, 200, NULL, "", 0);
}

static void release_held(struct side *s)
{
    s->release.deliver = on_release;
    loop_post(s->held->env->net.loop, &s->release);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void services_on_the_same_loops_are_separate(void **state)
{
    (void)state;
    enum { N = 8 };
    int lefts[N], rights[N];
    for (int i = 0; i < N; i++) {
        lefts[i] = dial(net_server_port(left.server));
        rights[i] = dial(net_server_port(right.server));
    }
    for (int i = 0; i < N; i++) {
        ask(lefts[i], "left");
        ask(rights[i], "right");
        close(lefts[i]);
    }
    assert_int_equal(loops->n_workers, 2);

    stop_side(&left);
    for (int i = 0; i < N; i++) {
        ask(rights[i], "right"); /* its connections stay open */
        close(rights[i]);
    }
    start_side(&left, "again", 1);
    int fd = dial(net_server_port(left.server));
    ask(fd, "again");
    close(fd);
    stop_side(&right);
    stop_side(&left);
}

static void services_begin_to_stop_together(void **state)
{
    (void)state;
    int held_left = hold(&left), held_right = hold(&right);
    int idle = dial(net_server_port(right.server));
    ask(idle, "right");
    net_server_begin_stop(left.server);
    net_server_begin_stop(right.server);
    assert_int_equal(dial(net_server_port(left.server)), -1);
    assert_int_equal(dial(net_server_port(right.server)), -1);
    assert_string_equal(hear(idle, NULL), ""); /* nothing waits yet */

    release_held(&right); /* the service that is waited for last is answered meanwhile */
    assert_non_null(strstr(hear(held_right, NULL), "Connection: close\r\n"));
    net_server_begin_stop(left.server); /* a second call has no effect */
    release_held(&left);
    stop_side(&left);
    assert_non_null(strstr(hear(held_left, NULL), "Connection: close\r\n"));
    stop_side(&right);
    close(idle);
    close(held_left);
    close(held_right);
}

static void a_stop_waits_for_its_own_service_only(void **state)
{
    (void)state;
    int fd = hold(&right);
    stop_side(&left);
    release_held(&right);
    assert_non_null(strstr(hear(fd, "\r\n\r\n"), " 200 "));
    close(fd);
    stop_side(&right);
}

static void the_number_of_loops_can_grow(void **state)
{
    (void)state;
    stop_side(&right);
    assert_null(loops_grow(loops, 1));
    assert_int_equal(loops->n_workers, 2);
    assert_null(loops_grow(loops, 64));
    assert_int_equal(loops->n_workers, 3); /* the largest number wanted */
    assert_int_equal(n_ctxs, 3);
    start_side(&right, "wider", 3);
    for (int i = 0; i < 6; i++) {
        int fd = dial(net_server_port(right.server));
        ask(fd, "wider");
        close(fd);
    }
    stop_side(&left);
    stop_side(&right);
}

/* Has many blocks of one size at once, and returns how many stay with the loop. */
static void count_near_blocks(struct worker *w, void *arg)
{
    enum { N = 300, BYTES = 2560 }; /* a size that nothing else on these loops has */
    void *blocks[N];
    struct pool_stats stats[2];
    pool_stats(w->pool, &stats[0]);
    for (int i = 0; i < N; i++)
        blocks[i] = pool_alloc(w->pool, BYTES, NULL);
    for (int i = 0; i < N; i++)
        pool_release(blocks[i]);
    pool_stats(w->pool, &stats[1]);
    *(size_t *)arg = (stats[1].used_bytes - stats[0].used_bytes) / BYTES;
}

static size_t ask_for_near_blocks(unsigned int loop)
{
    size_t n = 0;
    struct worker_call *call = worker_post(&loops->workers[loop], count_near_blocks, &n);
    assert_true(worker_await(call, monotonic_ns() + 60 * NS_PER_S));
    return n;
}

static void a_loop_keeps_the_blocks_that_a_service_wants(void **state)
{
    (void)state;
    assert_int_equal(ask_for_near_blocks(0), POOL_NEAR_BLOCKS);
    stop_side(&right);
    start_wishful_side(&right, "greedy", 1, POOL_NEAR_BLOCKS + 100);
    assert_int_equal(ask_for_near_blocks(0), 100);              /* beside those it already has */
    assert_int_equal(ask_for_near_blocks(1), POOL_NEAR_BLOCKS); /* not its loop */
    stop_side(&left);
    stop_side(&right);
}

/* A service that cannot start leaves the loops as they are. */
static void a_service_that_does_not_start_leaves_the_loops(void **state)
{
    (void)state;
    struct net_options o;
    struct net_server *other;
    net_options_init(&o);
    o.address = "127.0.0.1";
    o.port = net_server_port(left.server);
    o.loops = loops;
    o.http1.handler = &handler;
    struct status *st = net_server_start(&o, &other);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_free(st);
    int fd = dial(net_server_port(left.server));
    ask(fd, "left");
    close(fd);
    stop_side(&right);
    stop_side(&left);
}

/* Holds its loop until `released`. */
static bool held, released; /* under mu */

static void hold_loop(struct message *m)
{
    (void)m;
    mutex_lock(&mu);
    held = true;
    cond_broadcast(&changed);
    while (!released)
        cond_wait(&changed, &mu);
    mutex_unlock(&mu);
}

static void loops_have_turned_unless_one_is_held(void **state)
{
    (void)state;
    struct message message = {.deliver = hold_loop};
    assert_true(loops_turned(loops)); /* since the start */
    while (!loops_turned(loops))
        sched_yield();

    held = released = false;
    while (!loops_turned(loops))
        sched_yield();
    loop_post(&loops->workers[0].loop, &message);
    mutex_lock(&mu);
    while (!held)
        cond_wait(&changed, &mu);
    mutex_unlock(&mu);
    loops_turned(loops); /* perhaps true: the loop was held after the last message */
    for (int i = 0; i < 100; i++)
        assert_false(loops_turned(loops));

    mutex_lock(&mu);
    released = true;
    cond_broadcast(&changed);
    mutex_unlock(&mu);
    while (!loops_turned(loops))
        sched_yield();
    net_server_begin_stop(left.server);
    net_server_begin_stop(right.server);
    stop_side(&left);
    stop_side(&right);
}

int main(void)
{
    mutex_init(&mu, 1, "test");
    cond_init(&changed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(services_on_the_same_loops_are_separate, start, stop),
        cmocka_unit_test_setup_teardown(services_begin_to_stop_together, start, stop),
        cmocka_unit_test_setup_teardown(a_stop_waits_for_its_own_service_only, start, stop),
        cmocka_unit_test_setup_teardown(the_number_of_loops_can_grow, start, stop),
        cmocka_unit_test_setup_teardown(loops_have_turned_unless_one_is_held, start, stop),
        cmocka_unit_test_setup_teardown(a_loop_keeps_the_blocks_that_a_service_wants, start, stop),
        cmocka_unit_test_setup_teardown(a_service_that_does_not_start_leaves_the_loops, start,
                                        stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
