/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker without a thread: the test runs the iterations of its loop, and its clock. Clients are
 * ends of socket pairs. The handler answers a request with the size of its body and a full stop;
 * HEAD waits for the test, and a body of 3 bytes gets a large answer.
 *
 * start() and stop() are for tests of the work of an iteration; start_slow() and stop_slow() for
 * tests of slow clients: there the loop looks at its clients twice a second, and `asker` is
 * connected.
 */
#ifndef CONCH_TESTS_LIB_WORKER_DRIVER_H
#define CONCH_TESTS_LIB_WORKER_DRIVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/status.h"
#include "frontends/net/conn.h"
#include "frontends/net/http1.h"
#include "frontends/net/listener.h"
#include "frontends/net/upkeep.h"
#include "frontends/net/worker.h"
#include "lib/fake_clock.h"

enum {
    PORTION_BYTES = 16 << 10,
    ITERATION_BYTES = 4 * PORTION_BYTES,
    ITERATION_REQUESTS = 8,
    MAX_SAID_BYTES = 128 << 10, /* by say_bytes() */
    MAX_ITERATIONS = 10000,
};

static struct listener listener;
static struct worker worker;
static struct worker_service service;
static struct budget *memory;

/* A client, and the worker's connection of it. */
struct client {
    int fd, far_fd;
    char said[16 << 10]; /* the answers that it has got */
    size_t n_said;
};

static struct client asker;
static int n_requests;
static void (*on_each_request)(void); /* before it is answered; may be NULL */

static inline size_t unread(const struct client *c)
{
    int n = 0;
    assert_int_equal(ioctl(c->far_fd, FIONREAD, &n), 0);
    return (size_t)n;
}

static struct exchange *held; /* the newest exchange of HEAD, which waits for the test */
static struct exchange *all_held[64];
static unsigned int n_held;
static char big[1 << 20]; /* the answer to POST / with 3 bytes */

static inline void on_request(struct exchange *x)
{
    char text[64];
    struct iovec body = {big, sizeof(big)};
    n_requests++;
    if (x->method == METHOD_HEAD) {
        held = x;
        if (n_held < ARRAY_SIZE(all_held))
            all_held[n_held++] = x;
        return;
    }
    if (x->body_size == 3) {
        exchange_reply(
            x, &(struct http_reply){.status = 200, .headers = "", .body = &body, .n_body = 1});
        return;
    }
    if (on_each_request)
        on_each_request();
    int n = snprintf(text, sizeof(text), "%zu.", x->body_size);
    exchange_reply_text(x, 200, NULL, text, (size_t)n);
}

static inline void on_end(struct exchange *x)
{
    (void)x;
}

static const struct http_handler handler = {.on_request = on_request, .on_end = on_end};

static inline void iteration(void)
{
    loop_iterate(&worker.loop, 0);
}

static inline void come(struct client *c)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *c = (struct client){.fd = fds[0], .far_fd = fds[1]};
    listener.n_open++;
    conn_give(&service, &service, c->far_fd, NULL);
}

static inline void leave(struct client *c)
{
    close(c->fd);
    c->fd = 0;
}

static inline void say(struct client *c, const char *text)
{
    assert_int_equal(send(c->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static inline void say_bytes(struct client *c, size_t n_bytes)
{
    static char bytes[MAX_SAID_BYTES];
    memset(bytes, 'x', sizeof(bytes));
    assert_int_equal(send(c->fd, bytes, n_bytes, MSG_NOSIGNAL), n_bytes);
}

/* Returns how often `what` is in the answers that the client has got so far. */
static inline int heard(struct client *c, const char *what)
{
    ssize_t n;
    while ((n = recv(c->fd, c->said + c->n_said, sizeof(c->said) - 1 - c->n_said, 0)) > 0)
        c->n_said += (size_t)n;
    c->said[c->n_said] = '\0';
    int times = 0;
    for (const char *at = c->said; (at = strstr(at, what)); at++)
        times++;
    return times;
}

static struct http1_settings settings = {.handler = &handler};
static struct http_limits *const limits = &settings.limits;
static struct net_timeouts timeouts;
static struct clock_fake
    now; /* of the worker: an iteration takes no time, however slow the machine is */

static inline int start(void **state)
{
    (void)state;
    *limits = (struct http_limits){.max_head_bytes = 16 << 10,
                                   .max_body_bytes = 1 << 30,
                                   .max_chunks = 65536,
                                   .max_pipeline = 64};
    memset(&timeouts, 0, sizeof(timeouts));
    memset(&worker, 0, sizeof(worker));
    on_each_request = NULL;
    n_requests = 0;
    n_held = 0;
    memset(&listener, 0, sizeof(listener));
    memory = budget_new(1 << 30);
    assert_null(worker_init(&worker, memory));
    upkeep_begin(&worker);
    struct net_env members = worker_get_env(&worker, &http1_protocol);
    upkeep_serve(&worker, &service, &listener, &timeouts,
                 http1_protocol.env_new(&members, &settings));
    clock_fake_init(&now, 1000 * NS_PER_S);
    worker.loop.clock = &now.clock;
    loop_refresh_time(&worker.loop);
    worker.budget = (struct net_budget){.portion_bytes = PORTION_BYTES,
                                        .iteration_bytes = ITERATION_BYTES,
                                        .requests = ITERATION_REQUESTS};
    return 0;
}

static inline int stop(void **state)
{
    (void)state;
    upkeep_serve_no_more(&service);
    assert_int_equal(listener.n_open, 0);
    http1_protocol.env_free(service.env);
    worker_done(&worker);
    budget_unref(memory);
    return 0;
}

/* ---- Clients whose second is an iteration ---------------------------------------------------- */

static inline int start_slow(void **state)
{
    start(state);
    timeouts = (struct net_timeouts){.head_ns = 30 * NS_PER_S,
                                     .body_ns = 60 * NS_PER_S,
                                     .write_ns = 60 * NS_PER_S,
                                     .idle_ns = 3600 * NS_PER_S,
                                     .linger_ns = 2 * NS_PER_S,
                                     .min_rate = 1024,
                                     .rate_ns = 30 * NS_PER_S};
    worker.sweep_ns = NS_PER_S / 2;
    held = NULL;
    come(&asker);
    return 0;
}

static inline int stop_slow(void **state)
{
    leave(&asker);
    return stop(state);
}

static inline void pass_a_second(void)
{
    iteration();
    iteration(); /* the rest */
    clock_fake_advance(&now, NS_PER_S);
    iteration();
    iteration();
}

/* Returns for how many seconds a client is served that sends this text in each; 200: without a
 * limit. */
static inline int endured(const char *text, const char *until)
{
    for (int i = 0; i < 200; i++) {
        if (heard(&asker, until) > 0)
            return i;
        say(&asker, text);
        iteration();
        heard(&asker, until);
        pass_a_second();
    }
    return 200;
}

#endif
