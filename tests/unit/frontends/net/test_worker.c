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
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/budget.h"
#include "base/clock.h"
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
static struct budget *memory;

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

static struct exchange *held; /* asked for by HEAD, which waits to be told */
static char big[1 << 20];     /* the answer to POST / with 3 bytes */

static void on_request(struct exchange *x)
{
    char text[64];
    struct iovec body = {big, sizeof(big)};
    n_requests++;
    if (x->method == METHOD_HEAD) {
        held = x;
        return;
    }
    if (x->body_size == 3) {
        exchange_reply(
            x, &(struct http_reply){.status = 200, .headers = "", .body = &body, .n_body = 1});
        return;
    }
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

static struct http_limits limits;
static struct net_timeouts timeouts;
static struct clock_fake now; /* of the worker: a turn takes no time, however slow the machine is */

static int start(void **state)
{
    (void)state;
    limits = (struct http_limits){.max_head_bytes = 16 << 10,
                                  .max_body_bytes = 1 << 30,
                                  .max_chunks = 65536,
                                  .max_pipeline = 64};
    memset(&timeouts, 0, sizeof(timeouts));
    memset(&worker, 0, sizeof(worker));
    memset(uploads, 0, sizeof(uploads));
    memset(&listener, 0, sizeof(listener));
    memory = budget_new(1 << 30);
    assert_null(worker_init(&worker, &handler, NULL, &limits, &timeouts, memory));
    worker.listener = &listener;
    clock_fake_init(&now, 1000 * NS_PER_S);
    worker.loop.clock = &now.clock;
    loop_refresh_time(&worker.loop);
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
    budget_unref(memory);
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

/* A body that has waited for its pages goes on, also when nothing has come meanwhile. */
static void a_body_goes_on_when_there_are_pages(void **state)
{
    (void)state;
    enum { MADE_BYTES = 1000 };
    begin_uploads();
    for (int i = 0; i < MAX_TURNS && unread_of_all() > 0; i++)
        turn();
    struct conn *c = LIST_ENTRY(worker.conns.next, struct conn, link);
    struct client *client = &uploads[0];
    while (client->far_fd != c->fd)
        client++;
    struct exchange *x = c->http1.current;
    x->body_made = x->body_size + MADE_BYTES;
    x->order = (struct page_order *)x; /* one that is under way */
    say_bytes(client, MADE_BYTES);
    for (int i = 0; i < 3; i++)
        turn();
    assert_int_equal(x->body_size, x->body_made);

    x->order = NULL;
    x->body_made = x->body_capacity;
    conn_on_space(&c->http1);
    for (int i = 0; i < 3; i++)
        turn(); /* finds nothing to read */
    say_bytes(client, BODY_BYTES - SENT_BYTES - MADE_BYTES);
    for (int i = 0; i < 3; i++)
        turn();
    assert_int_equal(heard(client, "196608."), 1);
    for (int i = 0; i < N_UPLOADS; i++)
        leave(&uploads[i]);
}

static long faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt;
}

static void end_chunks(struct client *c)
{
    while (send(c->fd, "0\r\n\r\n", 5, MSG_NOSIGNAL) < 0)
        (void)loop_turn(&worker.loop, NS_PER_MS);
}

/* In chunks, as much as the socket takes between two turns */
static void upload_chunks(struct client *c, size_t n_bytes)
{
    static char chunk[TURN_BYTES + 16];
    const size_t n_chunk = (size_t)snprintf(chunk, 16, "%x\r\n", TURN_BYTES) + TURN_BYTES + 2;
    memset(chunk + n_chunk - TURN_BYTES - 2, 'x', TURN_BYTES);
    memcpy(chunk + n_chunk - 2, "\r\n", 2);
    say(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0, left = n_bytes / TURN_BYTES * n_chunk; left > 0;) {
        ssize_t n = send(c->fd, chunk + at, MIN(n_chunk - at, left), MSG_NOSIGNAL);
        if (n > 0) {
            at = (at + (size_t)n) % n_chunk;
            left -= (size_t)n;
            continue;
        }
        (void)loop_turn(&worker.loop, NS_PER_MS);
    }
}

/* The loop writes to pages that are there: it does not wait while the kernel finds them. */
static void pages_of_a_chunked_body_are_made_elsewhere(void **state)
{
    (void)state;
    enum { LARGE_BYTES = 64 << 20, PAGE_BYTES = 4096 };
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); /* so that pages can be counted */
    assert_null(budget_start(memory));
    worker.budget.turn_bytes = TURN_BYTES * 16;
    come(&asker);
    long before = faults();
    upload_chunks(&asker, LARGE_BYTES);
    end_chunks(&asker);
    while (heard(&asker, "67108864.") == 0)
        (void)loop_turn(&worker.loop, NS_PER_MS);
#if !defined(__SANITIZE_THREAD__) &&                                                               \
    !defined(__SANITIZE_ADDRESS__) /* which have pages of their own */
    /* Of the first 4 MiB, while it is not known to be large, and of what else it does. */
    assert_in_range(faults() - before, 0, (EXCHANGE_ORDERED_BYTES + (4 << 20)) / PAGE_BYTES);
#else
    (void)before;
#endif

    /* A client that leaves in between, and one whose body is refused. */
    upload_chunks(&asker, LARGE_BYTES / 2);
    leave(&asker);
    turn();
    come(&asker);
    limits.max_body_bytes = 30 << 20;
    upload_chunks(&asker, 29 << 20);
    end_chunks(&asker);
    while (heard(&asker, "30408704.") == 0)
        (void)loop_turn(&worker.loop, NS_PER_MS);
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1e00001\r\n");
    static char some[64 << 10];
    while (heard(&asker, " 413 ") == 0) {
        (void)send(asker.fd, some, sizeof(some), MSG_NOSIGNAL);
        (void)loop_turn(&worker.loop, 0);
    }
    leave(&asker);
    turn();
    budget_stop(memory);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
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

static uint64_t look_ns; /* that go by with each look at the clock */

static uint64_t tell_time(struct clock *c)
{
    struct clock_fake *fake = CONTAINER_OF(c, struct clock_fake, clock);
    return fake->time_ns += look_ns;
}

/* Time, too: when the kernel takes long to give memory, a turn reads less, but not nothing. */
static void a_turn_has_a_budget_of_time(void **state)
{
    (void)state;
    come(&asker);
    begin_uploads();
    now.clock.now_ns = tell_time;
    static const struct {
        uint64_t look_ns;
        int n_portions; /* in each turn */
    } cases[] = {
        {2 * NS_PER_MS, 3}, {4 * NS_PER_MS, 2}, {NS_PER_S, 1}, {0, TURN_BYTES / PORTION_BYTES}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        look_ns = cases[i].look_ns;
        for (int k = 0; k < 3; k++) {
            size_t before = unread_of_all();
            say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            turn();
            assert_int_equal(heard(&asker, "0."), 3 * i + k + 1);
            assert_int_equal(before - unread_of_all(), cases[i].n_portions * PORTION_BYTES);
        }
    }
    for (int i = 0; i < MAX_TURNS && unread_of_all() > 0; i++)
        turn();
    assert_int_equal(unread_of_all(), 0);
    for (int i = 0; i < N_UPLOADS; i++)
        leave(&uploads[i]);
    leave(&asker);
    turn();
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

/* ---- Slow clients: a second is a turn -------------------------------------------------------- */

static int start_slow(void **state)
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

static int stop_slow(void **state)
{
    leave(&asker);
    return stop(state);
}

static void pass_a_second(void)
{
    turn();
    turn(); /* what was left over */
    clock_fake_advance(&now, NS_PER_S);
    turn();
    turn();
}

/* How many seconds the client is borne that says so much in each; 200 for any time. */
static int endured(const char *text, const char *until)
{
    for (int i = 0; i < 200; i++) {
        if (heard(&asker, until) > 0)
            return i;
        say(&asker, text);
        turn();
        heard(&asker, until);
        pass_a_second();
    }
    return 200;
}

static void a_body_below_the_least_rate_is_refused(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=", /* extension */
    };
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        say(&asker, heads[i]);
        assert_in_range(endured("b", " 408 "), 30, 35);
        assert_int_equal(heard(&asker, "the request body took too long"), 1);
        leave(&asker);
        come(&asker);
    }
    /* After much has come at once, too. */
    say(&asker, heads[0]);
    say_bytes(&asker, 50000);
    assert_in_range(endured("b", " 408 "), 31, 65);
    leave(&asker);
    come(&asker);
    /* A trailer. */
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ");
    assert_in_range(endured("b", " 408 "), 30, 35);
}

static void a_body_that_comes_fast_enough_may_take_long(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 196608\r\n\r\n");
    for (int i = 0; i < 192; i++) {
        say_bytes(&asker, 1024);
        pass_a_second();
    }
    assert_int_equal(heard(&asker, "196608."), 1);
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 "), 1);
}

/* It is ours to go on, however long it takes. */
static void who_waits_for_an_answer_is_not_slow(void **state)
{
    (void)state;
    limits.max_pipeline = 1;
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
    for (int i = 0; i < 1000; i++)
        pass_a_second();
    exchange_reply_text(held, 200, NULL, "", 0);
    pass_a_second();
    say(&asker, "12345");
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 2);
    assert_int_equal(heard(&asker, "5."), 1);
    for (int i = 0; i < 1000; i++) /* nor is who has asked for nothing */
        pass_a_second();
    say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 3);
}

/* How much of a large answer a client gets that takes so much of it in each second. */
static size_t taken_of_big(size_t n_bytes)
{
    static char some[64 << 10];
    size_t n = 0;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    turn();
    for (int i = 0; i < 1000 && listener.n_open > 0; i++) {
        ssize_t got = recv(asker.fd, some, n_bytes, 0);
        n += got > 0 ? (size_t)got : 0;
        if (n > sizeof(big))
            break;
        pass_a_second();
    }
    return n;
}

static void a_reply_must_be_taken(void **state)
{
    (void)state;
    assert_true(taken_of_big(8 << 10) > sizeof(big));
    assert_int_equal(listener.n_open, 1);
    leave(&asker);
    turn();
    assert_int_equal(listener.n_open, 0);
    come(&asker);
    assert_in_range(taken_of_big(100), 100 * 30, 100 * 70);
    assert_int_equal(listener.n_open, 0);
    come(&asker); /* the fixture's */
}

/* A loop that stood still reads what came meanwhile before it says that it came too late. */
static void who_was_held_up_by_us_is_not_slow(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n");
    pass_a_second();
    say_bytes(&asker, 100);
    clock_fake_advance(&now, 50 * NS_PER_S);
    pass_a_second();
    pass_a_second();
    say_bytes(&asker, 9900);
    pass_a_second();
    assert_int_equal(heard(&asker, "10000."), 1);
}

static void a_head_ends_after_its_time(void **state)
{
    (void)state;
    assert_in_range(endured("\r\n", " 408 "), 30, 35); /* empty lines in front of none */
    assert_int_equal(heard(&asker, "the request head took too long"), 1);
    leave(&asker);
    come(&asker);

    /* Behind a request that takes its time. */
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nA: ");
    for (int i = 0; i < 35; i++) {
        pass_a_second();
        if (i < 25)
            say(&asker, "b");
    }
    exchange_reply_text(held, 200, NULL, "", 0);
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_int_equal(heard(&asker, "HTTP/1.1 408 "), 1);
    leave(&asker);
    turn();
    come(&asker);

    /* Behind as many as are under way at the same time: it has not begun before. */
    limits.max_pipeline = 1;
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nA: ");
    for (int i = 0; i < 100; i++)
        pass_a_second();
    exchange_reply_text(held, 200, NULL, "", 0);
    for (int i = 0; i < 35 && heard(&asker, " 408 ") == 0; i++)
        pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_int_equal(heard(&asker, "HTTP/1.1 408 "), 1);
}

/* Each head has its own time: an end of one may come with the beginning of the next for ever. */
static void heads_in_pieces_are_not_one_head(void **state)
{
    (void)state;
    say(&asker, "GET / HTTP/1.1\r\nHo");
    assert_int_equal(endured("st: x\r\n\r\nGET / HTTP/1.1\r\nHo", " 408 "), 200);
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 200);
}

int main(void)
{
#define SLOW(test) cmocka_unit_test_setup_teardown(test, start_slow, stop_slow)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_turn_has_a_budget_of_bytes, start, stop),
        cmocka_unit_test_setup_teardown(a_turn_has_a_budget_of_time, start, stop),
        cmocka_unit_test_setup_teardown(a_body_goes_on_when_there_are_pages, start, stop),
        cmocka_unit_test_setup_teardown(pages_of_a_chunked_body_are_made_elsewhere, start, stop),
        cmocka_unit_test_setup_teardown(a_turn_has_a_budget_of_requests, start, stop),
        cmocka_unit_test_setup_teardown(what_was_sent_before_the_end_is_handled, start, stop),
        SLOW(a_body_below_the_least_rate_is_refused),
        SLOW(a_body_that_comes_fast_enough_may_take_long),
        SLOW(who_waits_for_an_answer_is_not_slow),
        SLOW(a_reply_must_be_taken),
        SLOW(who_was_held_up_by_us_is_not_slow),
        SLOW(a_head_ends_after_its_time),
        SLOW(heads_in_pieces_are_not_one_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
