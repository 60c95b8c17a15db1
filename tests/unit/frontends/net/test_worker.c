/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker does in one turn of its loop. The test runs the turns, and counts. */
#include <errno.h>
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

#include "base/status.h"
#include "frontends/net/conn.h"
#include "frontends/net/listener.h"
#include "frontends/net/worker.h"

enum {
    N_UPLOADS = 64,
    PORTION_BYTES = 16 << 10,
    TURN_BYTES = 4 * PORTION_BYTES,
    TURN_REQUESTS = 8,
    SENT_BYTES = 128 << 10, /* of each body, before the turns that are looked at */
    BODY_BYTES = 192 << 10,
    MAX_TURNS = 10000,
};

static struct listener listener;
static struct worker worker;

/* A client, and what the worker has of it. */
struct client {
    int fd, far_fd;
    char said[16 << 10]; /* what it was answered */
    size_t n_said;
};

static struct client uploads[N_UPLOADS], asker, other;
static size_t unread_at_request; /* of all uploads, when the last request was handled */
static int n_requests;

static size_t unread(const struct client *c)
{
    int n = 0;
    assert_int_equal(ioctl(c->far_fd, FIONREAD, &n), 0);
    return (size_t)n;
}

static size_t unread_of_all(void)
{
    size_t n = 0;
    for (int i = 0; i < N_UPLOADS && uploads[i].fd > 0; i++)
        n += unread(&uploads[i]);
    return n;
}

static void on_request(struct exchange *x)
{
    char text[64];
    n_requests++;
    unread_at_request = unread_of_all();
    int n = snprintf(text, sizeof(text), "%zu.", x->body_size);
    exchange_reply_text(x, 200, NULL, text, (size_t)n);
}

static void on_end(struct exchange *x)
{
    (void)x;
}

static const struct http_handler handler = {.on_request = on_request, .on_end = on_end};

static void turn(void)
{
    loop_turn(&worker.loop, 0);
}

static void come(struct client *c)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *c = (struct client){.fd = fds[0], .far_fd = fds[1]};
    listener.n_open++;
    conn_give(&worker, &worker, c->far_fd);
}

static void leave(struct client *c)
{
    close(c->fd);
    c->fd = 0;
}

static void say(struct client *c, const char *text)
{
    assert_int_equal(send(c->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void say_bytes(struct client *c, size_t n_bytes)
{
    static char bytes[SENT_BYTES];
    memset(bytes, 'x', sizeof(bytes));
    assert_int_equal(send(c->fd, bytes, n_bytes, MSG_NOSIGNAL), n_bytes);
}

/* How often `what` is in what the client has been answered by now. */
static int heard(struct client *c, const char *what)
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

static int start(void **state)
{
    (void)state;
    static const struct http_limits limits = {.max_head_bytes = 16 << 10,
                                              .max_body_bytes = 1 << 30,
                                              .max_chunks = 65536,
                                              .max_pipeline = 64};
    static const struct net_timeouts timeouts;
    memset(&worker, 0, sizeof(worker));
    memset(uploads, 0, sizeof(uploads));
    memset(&listener, 0, sizeof(listener));
    assert_null(worker_init(&worker, &handler, NULL, &limits, &timeouts));
    worker.listener = &listener;
    worker.budget = (struct net_budget){
        .portion_bytes = PORTION_BYTES, .turn_bytes = TURN_BYTES, .requests = TURN_REQUESTS};
    return 0;
}

static int stop(void **state)
{
    (void)state;
    LIST_FOR_EACH_SAFE (link, &worker.conns) {
        conn_close(LIST_ENTRY(link, struct conn, link));
    }
    assert_int_equal(listener.n_open, 0);
    worker_done(&worker);
    return 0;
}

/* Bodies that are under way, of which much has come at the same time. */
static void begin_uploads(void)
{
    for (int i = 0; i < N_UPLOADS; i++) {
        char head[96];
        come(&uploads[i]);
        snprintf(head, sizeof(head), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
                 BODY_BYTES);
        say(&uploads[i], head);
    }
    for (int i = 0; i < MAX_TURNS && unread_of_all() > 0; i++)
        turn();
    for (int i = 0; i < N_UPLOADS; i++)
        say_bytes(&uploads[i], SENT_BYTES);
}

/* Whatever is there for it, a turn reads so much of bodies, and that when all else is done. */
static void a_turn_has_a_budget_of_bytes(void **state)
{
    (void)state;
    come(&asker);
    begin_uploads();
    size_t before = unread_of_all();
    assert_int_equal(before, N_UPLOADS * SENT_BYTES);
    for (int i = 1; i <= N_UPLOADS * PORTION_BYTES / TURN_BYTES; i++) {
        say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        turn();
        assert_int_equal(n_requests, i);
        assert_int_equal(heard(&asker, "0."), i);    /* in the same turn */
        assert_int_equal(unread_at_request, before); /* before any body */
        assert_int_equal(before - unread_of_all(), TURN_BYTES);
        before = unread_of_all();
    }
    for (int i = 0; i < N_UPLOADS; i++) /* one portion each */
        assert_int_equal(SENT_BYTES - unread(&uploads[i]), PORTION_BYTES);

    /* Nothing is left behind, although no event tells of it once more. */
    int n_turns = 0;
    for (; unread_of_all() > 0; n_turns++) {
        assert_true(n_turns < MAX_TURNS);
        turn();
    }
    assert_int_equal(n_turns, N_UPLOADS * (SENT_BYTES - PORTION_BYTES) / TURN_BYTES);
    for (int i = 0; i < N_UPLOADS; i++)
        say_bytes(&uploads[i], BODY_BYTES - SENT_BYTES);
    for (int i = 0; i < N_UPLOADS; i++) {
        for (int k = 0; k < MAX_TURNS && heard(&uploads[i], "196608.") == 0; k++)
            turn();
        assert_int_equal(heard(&uploads[i], "196608."), 1);
        leave(&uploads[i]);
    }
    leave(&asker);
}

/* Requests, too; who has many of them does not keep others from theirs. */
static void a_turn_has_a_budget_of_requests(void **state)
{
    (void)state;
    enum { N = 100 };
    n_requests = 0;
    come(&asker);
    come(&other);
    for (int i = 0; i < N; i++)
        say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    say(&other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    int done = 0;
    for (int i = 0; i < 2; i++) {
        turn();
        assert_in_range(n_requests - done, 1, 2 * TURN_REQUESTS);
        done = n_requests;
    }
    assert_int_equal(heard(&other, "0."), 1);
    for (int i = 0; i < MAX_TURNS && heard(&asker, "0.") < N; i++) {
        turn();
        assert_in_range(n_requests - done, 0, 2 * TURN_REQUESTS);
        done = n_requests;
    }
    assert_int_equal(heard(&asker, "0."), N);
    leave(&asker);
    leave(&other);
}

/* A client that has sent all, much of it unread, and leaves. */
static void what_was_sent_before_the_end_is_handled(void **state)
{
    (void)state;
    enum { N = 30 };
    n_requests = 0;
    come(&asker);
    for (int i = 0; i < N; i++)
        say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(shutdown(asker.fd, SHUT_WR), 0);
    for (int i = 0; i < MAX_TURNS && !list_empty(&worker.conns); i++)
        turn();
    assert_true(list_empty(&worker.conns)); /* the end was noticed, too */
    assert_int_equal(heard(&asker, "0."), N);
    leave(&asker);

    come(&asker);
    come(&other);
    for (int i = 0; i < N; i++)
        say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    turn();
    leave(&asker); /* while it waits for its next portion */
    say(&other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < MAX_TURNS && heard(&other, "0.") == 0; i++)
        turn();
    assert_int_equal(heard(&other, "0."), 1);
    leave(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_turn_has_a_budget_of_bytes, start, stop),
        cmocka_unit_test_setup_teardown(a_turn_has_a_budget_of_requests, start, stop),
        cmocka_unit_test_setup_teardown(what_was_sent_before_the_end_is_handled, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
