/* SPDX-License-Identifier: Apache-2.0 */
/* Listener, workers and connections over real sockets: limits in time and number, cancellation,
 * stop. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "frontends/net/server.h"

/* ---- A handler ------------------------------------------------------------------------------- */

/* /big answers much, /hold waits for the test, /block holds up its loop until the test ends it;
 * all other paths answer "ok" at once. */

struct part {
    char path[32];
    struct message release;
};

static struct mutex mu;
static struct cond changed;
/* Under mu. */
static struct exchange *held;
static bool blocked, may_go_on;
static int n_cancelled, n_ended;

static char big[8 << 20];

static void on_head(struct exchange *x, const struct http_head *head)
{
    struct part *part = exchange_part(x);
    struct span path = head_path(head);
    snprintf(part->path, sizeof(part->path), "%.*s", (int)path.length, path.at);
}

static void on_request(struct exchange *x)
{
    struct part *part = exchange_part(x);
    struct iovec body = {big, sizeof(big)};
    if (strcmp(part->path, "/hold") == 0) {
        mutex_lock(&mu);
        held = x;
        cond_broadcast(&changed);
        mutex_unlock(&mu);
    } else if (strcmp(part->path, "/block") == 0) {
        mutex_lock(&mu);
        blocked = true;
        cond_broadcast(&changed);
        while (!may_go_on)
            cond_wait(&changed, &mu);
        mutex_unlock(&mu);
        exchange_reply_text(x, 200, NULL, "at last", 7);
    } else if (strcmp(part->path, "/big") == 0) {
        exchange_reply(
            x, &(struct http_reply){.status = 200, .headers = "", .body = &body, .n_body = 1});
    } else {
        exchange_reply_text(x, 200, NULL, "ok", 2);
    }
}

static void count(int *counter)
{
    mutex_lock(&mu);
    ++*counter;
    cond_broadcast(&changed);
    mutex_unlock(&mu);
}

static void on_cancel(struct exchange *x)
{
    (void)x;
    count(&n_cancelled);
}

static void on_end(struct exchange *x)
{
    (void)x;
    count(&n_ended);
}

static const struct http_handler handler = {.part_bytes = sizeof(struct part),
                                            .on_head = on_head,
                                            .on_request = on_request,
                                            .on_cancel = on_cancel,
                                            .on_end = on_end};

static void wait_for(const int *counter, int value)
{
    mutex_lock(&mu);
    while (*counter < value)
        assert_true(cond_wait_until(&changed, &mu, monotonic_ns() + 60 * NS_PER_S));
    mutex_unlock(&mu);
}

static struct exchange *wait_for_held(void)
{
    mutex_lock(&mu);
    while (!held)
        assert_true(cond_wait_until(&changed, &mu, monotonic_ns() + 60 * NS_PER_S));
    struct exchange *x = held;
    held = NULL;
    mutex_unlock(&mu);
    return x;
}

static void on_release(struct message *m)
{
    struct part *part = CONTAINER_OF(m, struct part, release);
    exchange_reply_text(exchange_of_part(part), 200, NULL, "late", 4);
}

static void release(struct exchange *x)
{
    struct part *part = exchange_part(x);
    part->release.deliver = on_release;
    loop_post(x->env->net.loop, &part->release);
}

static int n_ticks; /* of a stop: under mu, as the two below */
static unsigned int last_seconds, last_conns;

/* ---- Clients --------------------------------------------------------------------------------- */

static struct net_server *start(struct net_options *o)
{
    struct net_server *s;
    o->address = "127.0.0.1";
    o->http1.handler = &handler;
    assert_null(net_server_start(o, &s));
    mutex_lock(&mu); /* a test that failed leaves its server */
    n_cancelled = n_ended = n_ticks = 0;
    held = NULL;
    mutex_unlock(&mu);
    return s;
}

static void stop(struct net_server *s)
{
    enum net_end end;
    assert_int_equal(net_server_stop(s, monotonic_ns() + 60 * NS_PER_S, NULL, &end), 0);
    assert_int_equal(end, NET_FREED);
}

static int dial(const struct net_server *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)net_server_port(s)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads until the server closes, or until `last` has arrived (NULL: until it closes). */
static const char *hear(int fd, const char *last)
{
    static char text[4096];
    size_t n = 0;
    for (;;) {
        text[n] = '\0';
        if (last && strstr(text, last))
            return text;
        ssize_t got = recv(fd, text + n, sizeof(text) - 1 - n, 0);
        if (got < 0 && errno == ECONNRESET)
            return text;
        assert_true(got >= 0);
        if (got == 0)
            return text;
        n += (size_t)got;
    }
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void an_address_in_use_is_named(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    struct net_server *s = start(&o), *other;
    o.port = net_server_port(s);
    struct status *st = net_server_start(&o, &other);
    char text[64];
    snprintf(text, sizeof(text), "Socket '127.0.0.1:%d' already in use ", o.port);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_free(st);
    o.address = "no such host.";
    st = net_server_start(&o, &other);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    status_free(st);
    stop(s);
}

static void slow_clients_are_answered_and_closed(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    o.n_threads = 2;
    o.timeouts.head_ns = o.timeouts.body_ns = 60 * NS_PER_MS;
    o.timeouts.linger_ns = 60 * NS_PER_MS;
    struct net_server *s = start(&o);

    int head = dial(s), body = dial(s), after = dial(s);
    say(head, "GET / HTTP/1.1\r\nHost: x\r\nHos");
    say(body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
    say(after, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT");
    assert_non_null(strstr(hear(head, NULL), "408 Request Timeout"));
    assert_non_null(strstr(hear(body, NULL), "the request body took too long"));
    const char *both = hear(after, NULL);
    assert_non_null(strstr(both, "\r\n\r\nokHTTP/1.1 408 "));
    close(head);
    close(body);
    close(after);
    stop(s);
}

static void idle_clients_are_closed(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    o.timeouts.idle_ns = 60 * NS_PER_MS;
    struct net_server *s = start(&o);
    int idle = dial(s);
    assert_string_equal(hear(idle, NULL), "");
    close(idle);
    stop(s);
}

static void clients_that_do_not_read_are_closed(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    o.timeouts.write_ns = 60 * NS_PER_MS;
    struct net_server *s = start(&o);
    int deaf = dial(s);
    say(deaf, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(&n_ended, 1); /* its reply was dropped */
    close(deaf);
    stop(s);
}

static bool has_ended(int n)
{
    mutex_lock(&mu);
    bool ended = n_ended >= n;
    mutex_unlock(&mu);
    return ended;
}

/* Asks for much and sends more behind it, and reads so little that the server ends the exchange,
 * its `n`th. Returns the bytes read: all of them if the server had to wait for a processor. */
static size_t ask_and_take_little(int fd, int n)
{
    static char text[4096];
    const int little = 16 << 10;
    size_t taken = 0;
    ssize_t got = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    say(fd, "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nmore");
    while (!has_ended(n) && got > 0) {
        got = recv(fd, text, sizeof(text), 0);
        taken += got > 0 ? (size_t)got : 0;
    }
    assert_true(got > 0 || taken >= sizeof(big));
    return taken;
}

/* The kernel has the whole reply and keeps it until the client reads it. More input from the
 * client, which the server does not want, must not discard it. */
static void a_client_that_still_sends_gets_its_whole_reply(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    o.timeouts.linger_ns = 60 * NS_PER_MS;
    struct net_server *s = start(&o);
    static char text[64 << 10];
    int late = dial(s), n_asked = 1;
    size_t n;
    ssize_t got;
    while ((n = ask_and_take_little(late, n_asked)) > sizeof(big) - sizeof(text)) {
        close(late);
        wait_for(&n_ended, n_asked++);
        late = dial(s);
    }
    uint64_t until_ns = monotonic_ns() + 5 * o.timeouts.linger_ns;
    while (monotonic_ns() < until_ns) {
        send(late, "and more", 8, MSG_NOSIGNAL); /* the server may have closed the socket */
        usleep(1000);
    }
    while ((got = recv(late, text, sizeof(text), 0)) > 0)
        n += (size_t)got;
    assert_in_range(n, sizeof(big), sizeof(big) + 1000);
    close(late);
    stop(s);
}

static void a_client_that_leaves_cancels_its_request(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    struct net_server *s = start(&o);

    int gone = dial(s);
    say(gone, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    struct exchange *x = wait_for_held();
    close(gone);
    wait_for(&n_cancelled, 1);
    release(x);
    wait_for(&n_ended, 1);

    stop(s);
}

/* Half closed: the client reads the reply, which is whole although its beginning was sent before
 * the rest. */
static void a_half_closed_client_gets_its_reply(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    o.http1.limits.max_pipeline = 2;
    struct net_server *s = start(&o);

    int half = dial(s);
    say(half, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    struct exchange *x = wait_for_held();
    shutdown(half, SHUT_WR);
    hear(half, "HTTP/1.1 "); /* the server has seen it, and probes whether the client is there */
    release(x);
    const char *reply = hear(half, NULL);
    assert_memory_equal(reply, "200 OK\r\n", 8);
    assert_non_null(strstr(reply, "\r\n\r\nlate"));
    close(half);

    /* The client sent more requests than are read ahead, and one of them is cut off. */
    int many = dial(s);
    say(many,
        "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\nGET /");
    x = wait_for_held();
    shutdown(many, SHUT_WR);
    hear(many, "HTTP/1.1 ");
    release(x);
    reply = hear(many, NULL);
    assert_memory_equal(reply, "200 OK\r\n", 8);
    assert_non_null(strstr(reply, "\r\n\r\nlateHTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(reply, "\r\n\r\nokHTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(reply, "\r\n\r\nokHTTP/1.1 400 Bad Request\r\n"));
    close(many);

    wait_for(&n_ended, 4);
    assert_int_equal(n_cancelled, 0);
    stop(s);
}

/*
 * As above, but the client has left: the server notices this although it reads no more from the
 * client.
 */
static void a_client_that_leaves_a_full_pipeline_cancels_it(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    o.http1.limits.max_pipeline = 1;
    struct net_server *s = start(&o);
    int gone = dial(s);
    say(gone, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    struct exchange *x = wait_for_held();
    close(gone);
    wait_for(&n_cancelled, 1);
    release(x);
    wait_for(&n_ended, 1);
    stop(s);
}

/*
 * One loop is blocked, whichever it is. The other loop accepts and serves all later clients. The
 * blocked loop gets no new connections; those that it has wait.
 */
static void a_loop_that_stands_still_keeps_no_client_out(void **state)
{
    (void)state;
    enum { N = 50 };
    struct net_options o;
    net_options_init(&o);
    o.n_threads = 2;
    struct net_server *s = start(&o);
    int fds[N], slow = dial(s);
    say(slow, "GET /block HTTP/1.1\r\nHost: x\r\n\r\n");
    mutex_lock(&mu);
    while (!blocked)
        assert_true(cond_wait_until(&changed, &mu, monotonic_ns() + 60 * NS_PER_S));
    /* After a millisecond the iteration counts as long. */
    uint64_t until_ns = monotonic_ns() + 2 * NS_PER_MS;
    while (monotonic_ns() < until_ns)
        cond_wait_until(&changed, &mu, until_ns);
    mutex_unlock(&mu);
    for (int i = 0; i < N; i++) {
        fds[i] = dial(s);
        say(fds[i], "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for (int i = 0; i < N; i++) {
        hear(fds[i], "ok");
        close(fds[i]);
    }
    mutex_lock(&mu);
    may_go_on = true;
    cond_broadcast(&changed);
    mutex_unlock(&mu);
    hear(slow, "at last");
    close(slow);
    stop(s);
}

static void too_many_connections_wait(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    o.max_conns = 2;
    struct net_server *s = start(&o);
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = dial(s);
        say(fds[i], "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    hear(fds[0], "ok");
    hear(fds[1], "ok");
    char c;
    assert_int_equal(recv(fds[2], &c, 1, MSG_DONTWAIT), -1);
    close(fds[0]); /* frees a connection */
    hear(fds[2], "ok");
    close(fds[1]);
    close(fds[2]);
    stop(s);
}

/* A reset would discard the part of the reply that the server has not sent yet. */
static void a_last_reply_is_whole_though_the_client_sends_more(void **state)
{
    (void)state;
    static const char last[] = "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    static char more[64 << 10];
    struct net_options o;
    net_options_init(&o);
    struct net_server *s = start(&o);
    for (int later = 0; later < 2; later++) {
        int fd = dial(s);
        say(fd, last);
        if (later) { /* beyond what the server reads along with the request */
            char first;
            assert_int_equal(recv(fd, &first, 1, MSG_PEEK), 1);
            memset(more, 'x', sizeof(more) - 1);
            say(fd, more);
        } else {
            say(fd, last);
        }
        size_t n = 0;
        static char taken[1 << 16];
        for (ssize_t got; (got = recv(fd, taken, sizeof(taken), 0)) != 0; n += (size_t)got)
            assert_true(got > 0);
        assert_true(n > sizeof(big));
        close(fd);
    }
    stop(s);
}

struct stopping {
    struct net_server *s;
    uint64_t wait_ns;
    unsigned int n_cut;
    enum net_end end;
    struct thread thread;
};

static void on_tick(unsigned int seconds_left, unsigned int n_conns)
{
    mutex_lock(&mu);
    n_ticks++;
    last_seconds = seconds_left;
    last_conns = n_conns;
    cond_broadcast(&changed);
    mutex_unlock(&mu);
}

static void run_stop(void *arg)
{
    struct stopping *p = arg;
    p->n_cut = net_server_stop(p->s, monotonic_ns() + p->wait_ns, on_tick, &p->end);
}

static void a_stop_waits_for_requests_in_flight(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    struct stopping p = {.s = start(&o), .wait_ns = 20 * NS_PER_S};
    int idle = dial(p.s), busy = dial(p.s);
    say(idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    hear(idle, "ok");
    say(busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    struct exchange *x = wait_for_held();
    assert_null(thread_start(&p.thread, "stop", run_stop, &p));
    assert_string_equal(hear(idle, NULL), ""); /* closed at once */
    wait_for(&n_ticks, 1);
    release(x);
    const char *reply = hear(busy, NULL);
    assert_non_null(strstr(reply, "Connection: close\r\n"));
    assert_non_null(strstr(reply, "late"));
    thread_join(&p.thread);
    assert_int_equal(p.n_cut, 0);
    assert_int_equal(p.end, NET_FREED);
    assert_in_range(last_seconds, 1, 20);
    assert_int_equal(last_conns, 1);
    close(idle);
    close(busy);
}

static void a_stop_cuts_off_connections_at_the_deadline(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    struct stopping p = {.s = start(&o), .wait_ns = 50 * NS_PER_MS};
    int deaf = dial(p.s);
    say(deaf, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    hear(deaf, "HTTP/1.1 200 OK");
    run_stop(&p);
    assert_int_equal(p.n_cut, 1);
    assert_int_equal(p.end, NET_FREED);
    close(deaf);
}

/* The client has left, its request has not ended: the stop ends with the request, and not at a
 * later look. */
static void a_stop_waits_for_requests_without_a_client(void **state)
{
    (void)state;
    struct net_options o;
    net_options_init(&o);
    struct stopping p = {.s = start(&o), .wait_ns = 20 * NS_PER_S};
    int busy = dial(p.s);
    say(busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    struct exchange *x = wait_for_held();
    close(busy);
    wait_for(&n_cancelled, 1);
    assert_null(thread_start(&p.thread, "stop", run_stop, &p));
    wait_for(&n_ticks, 1);
    release(x);
    thread_join(&p.thread);
    assert_int_equal(p.n_cut, 0);
    assert_int_equal(p.end, NET_FREED);
}

int main(void)
{
    mutex_init(&mu, 1, "test");
    cond_init(&changed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_in_use_is_named),
        cmocka_unit_test(slow_clients_are_answered_and_closed),
        cmocka_unit_test(idle_clients_are_closed),
        cmocka_unit_test(clients_that_do_not_read_are_closed),
        cmocka_unit_test(a_client_that_still_sends_gets_its_whole_reply),
        cmocka_unit_test(a_client_that_leaves_cancels_its_request),
        cmocka_unit_test(a_half_closed_client_gets_its_reply),
        cmocka_unit_test(a_client_that_leaves_a_full_pipeline_cancels_it),
        cmocka_unit_test(a_loop_that_stands_still_keeps_no_client_out),
        cmocka_unit_test(too_many_connections_wait),
        cmocka_unit_test(a_last_reply_is_whole_though_the_client_sends_more),
        cmocka_unit_test(a_stop_waits_for_requests_in_flight),
        cmocka_unit_test(a_stop_waits_for_requests_without_a_client),
        cmocka_unit_test(a_stop_cuts_off_connections_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
