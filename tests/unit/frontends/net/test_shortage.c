/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two loops when descriptors run out: the choice of the connection that is closed for a new one,
 * and its cost. The test runs the iterations and owns the clock. Its own ends of the connections
 * have numbers beyond those that the listener counts.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/status.h"
#include "frontends/net/acceptor.h"
#include "frontends/net/http1.h"
#include "frontends/net/conn.h"
#include "frontends/net/listener.h"
#include "frontends/net/upkeep.h"
#include "frontends/net/worker.h"
#include "lib/fake_clock.h"

enum {
    N_LOOPS = 2,
    LIMIT = 64,
    RESERVE = 16,
    FIRST_RESERVED = LIMIT - RESERVE,
    FIRST_OWN = 128,
    MANY = 20, /* new ones at once; fewer than the limit */
    MAX_CLIENTS = 256,
};

static unsigned int n_fcntl;

int fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    long argument = va_arg(more, long);
    va_end(more);
    n_fcntl++;
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

static struct worker workers[N_LOOPS];
static struct worker_service services[N_LOOPS];
static struct acceptor acceptors[N_LOOPS];
static struct listener listener;
static struct budget *memory;
static struct clock_fake now;
static struct client {
    int fd;
    uint64_t came_ns;
    bool closed; /* by the server */
} clients[MAX_CLIENTS];
static unsigned int n_clients;
static unsigned int reserved_before;

static const struct net_timeouts timeouts;

static void on_request(struct exchange *x)
{
    exchange_reply_text(x, 200, NULL, "", 0);
}

static void on_end(struct exchange *x)
{
    (void)x;
}

static const struct http_handler handler = {.on_request = on_request, .on_end = on_end};
static const struct http1_settings settings = {.handler = &handler,
                                               .limits = {.max_head_bytes = 16 << 10,
                                                          .max_body_bytes = 1 << 30,
                                                          .max_chunks = 65536,
                                                          .max_pipeline = 64}};

static void set_limit(rlim_t n)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static unsigned int count_reserved(void)
{
    unsigned int n = 0;
    for (int fd = FIRST_RESERVED; fd < LIMIT; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int start(void **state)
{
    (void)state;
    memset(workers, 0, sizeof(workers));
    n_clients = 0;
    memory = budget_new(1 << 30);
    clock_fake_init(&now, 1000 * NS_PER_S);
    assert_null(listener_open(&listener, "127.0.0.1", 0, false));
    for (int i = 0; i < N_LOOPS; i++) {
        assert_null(worker_init(&workers[i], memory));
        upkeep_begin(&workers[i]);
        struct net_env members = worker_get_env(&workers[i], &http1_protocol);
        upkeep_serve(&workers[i], &services[i], &listener, &timeouts,
                     http1_protocol.env_new(&members, &settings));
        workers[i].loop.clock = &now.clock;
        loop_refresh_time(&workers[i].loop);
    }
    set_limit(LIMIT); /* for the listener */
    listener_serve(&listener, services, N_LOOPS, 0, 0, RESERVE);
    for (int i = 0; i < N_LOOPS; i++)
        assert_null(acceptor_start(&acceptors[i], &services[i]));
    set_limit(FIRST_OWN + MAX_CLIENTS);
    reserved_before = count_reserved();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < N_LOOPS; i++) {
        acceptor_stop(&acceptors[i]);
        upkeep_serve_no_more(&services[i]);
        http1_protocol.env_free(services[i].env);
    }
    assert_int_equal(listener.n_open, 0);
    listener_close(&listener);
    for (int i = 0; i < N_LOOPS; i++)
        worker_done(&workers[i]);
    while (n_clients > 0)
        close(clients[--n_clients].fd);
    budget_unref(memory);
    return 0;
}

static void iterations(void)
{
    for (int i = 0; i < 20 * N_LOOPS; i++) {
        struct loop *loop = &workers[i % N_LOOPS].loop;
        loop_iterate(loop, 0);
        loop->phase = loop_now_ns(loop) * 2 + 1; /* other threads see that the loop waits */
    }
}

/* Connects a client, which waits in the kernel's queue until there are iterations. */
static void come(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)listener.port)};
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &to.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && n_clients < MAX_CLIENTS);
    struct client *c = &clients[n_clients++];
    *c = (struct client){.fd = fcntl(fd, F_DUPFD_CLOEXEC, (long)FIRST_OWN), .came_ns = now.time_ns};
    assert_true(c->fd >= FIRST_OWN);
    close(fd);
    assert_int_equal(connect(c->fd, (struct sockaddr *)&to, sizeof(to)), 0);
}

static bool is_closed(const struct client *c)
{
    char byte;
    return recv(c->fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/*
 * Returns the number of connections closed since the last call. Checks that no open connection was
 * idle for longer, or, with `nearly`, for more than an eighth longer.
 */
static unsigned int count_closed(bool nearly)
{
    uint64_t longest_open_ns = 0, shortest_closed_ns = UINT64_MAX;
    unsigned int n = 0;
    for (unsigned int i = 0; i < n_clients; i++) {
        uint64_t idle_ns = now.time_ns - clients[i].came_ns;
        if (clients[i].closed)
            continue;
        clients[i].closed = is_closed(&clients[i]);
        if (clients[i].closed)
            shortest_closed_ns = MIN(shortest_closed_ns, idle_ns);
        else
            longest_open_ns = MAX(longest_open_ns, idle_ns);
        n += clients[i].closed;
    }
    if (nearly)
        longest_open_ns = longest_open_ns * 7 / 8;
    assert_true(shortest_closed_ns >= longest_open_ns);
    return n;
}

static unsigned int closed_for(unsigned int n_more, bool nearly)
{
    while (n_more-- > 0)
        come();
    iterations();
    unsigned int n = count_closed(nearly);
    clock_fake_advance(&now, 20 * NS_PER_MS);
    return n;
}

/* Connects clients one after the other, each idle for longer than the next, until some have been
 * closed. */
static void fill(void)
{
    while (closed_for(1, true) == 0)
        ;
    assert_true(workers[0].n_conns > 4 && workers[1].n_conns > 4);
}

static void the_longest_idle_connection_of_all_loops_is_closed(void **state)
{
    (void)state;
    fill();
    for (unsigned int i = 0; i < 2 * LIMIT; i++) {
        assert_int_equal(closed_for(1, false), 1);
        /* The connection that showed the shortage has a reserved descriptor until it ends. */
        assert_in_range(count_reserved(), reserved_before, reserved_before + 1);
    }
    assert_int_equal(count_reserved(), reserved_before);
}

static void as_many_connections_are_closed_as_arrive(void **state)
{
    (void)state;
    fill();
    for (int times = 0; times < 5; times++) {
        assert_int_equal(closed_for(MANY, true), MANY);
        assert_in_range(count_reserved(), reserved_before, reserved_before + 1);
    }
    assert_int_equal(count_reserved(), reserved_before);
}

/* Counting the descriptors takes many system calls: each iteration does it once, not each
 * connection. */
static void each_iteration_counts_the_descriptors_once(void **state)
{
    (void)state;
    fill();
    n_fcntl = 0;
    unsigned int n_own = 2 * MANY; /* come() has one, and the count of free ones has another */
    assert_int_equal(closed_for(MANY, true), MANY);
    assert_in_range(n_fcntl, RESERVE, n_own + 8 * RESERVE); /* the loops wait for each other */
}

/* No connection is closed for a client that has left the queue, nor when there is room again. */
static void a_client_that_leaves_makes_room(void **state)
{
    (void)state;
    fill();
    for (unsigned int i = 0; i < MANY; i++)
        close(clients[--n_clients].fd);
    assert_int_equal(closed_for(0, false), 0);
    assert_int_equal(closed_for(MANY, false), 0);
    assert_int_equal(count_reserved(), reserved_before);
}

/*
 * Sets whether the kernel acknowledges at once. The server closes as soon as all is acknowledged.
 */
static void acknowledge(const struct client *c, int at_once)
{
    assert_int_equal(
        setsockopt(c->fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, (socklen_t)sizeof(at_once)), 0);
}

/*
 * The server waits for such clients to close, for a limited time and only while no client needs
 * their descriptors.
 */
static void a_client_with_its_last_answer_makes_room(void **state)
{
    (void)state;
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for (int i = 0; i < 2 * LIMIT; i++) {
        come();
        struct client *c = &clients[n_clients - 1];
        acknowledge(c, 0);
        assert_int_equal(send(c->fd, request, sizeof(request) - 1, 0), sizeof(request) - 1);
        iterations();
        char answer[256];
        assert_in_range(recv(c->fd, answer, sizeof(answer), MSG_DONTWAIT), 12, sizeof(answer));
        assert_memory_equal(answer, "HTTP/1.1 200", 12);
        if (i == LIMIT / 4)
            assert_in_range(listener.n_open, LIMIT / 8, LIMIT); /* they linger */
        acknowledge(c, 1);
        clock_fake_advance(&now, 20 * NS_PER_MS);
    }
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(the_longest_idle_connection_of_all_loops_is_closed),
        TEST(as_many_connections_are_closed_as_arrive),
        TEST(each_iteration_counts_the_descriptors_once),
        TEST(a_client_that_leaves_makes_room),
        TEST(a_client_with_its_last_answer_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
