/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: how long a client may take for each step, when the connection is a burden, when
 * it counts as idle, and how it is closed. Its worker has no thread (lib/worker_driver.h).
 */
#include "lib/worker_driver.h"

#include "frontends/net/tls_files.h"
#include "lib/tls_client.h"

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
    /* The time is the same after many bytes have arrived at once. */
    say(&asker, heads[0]);
    say_bytes(&asker, 50000);
    assert_in_range(endured("b", " 408 "), 31, 65);
    leave(&asker);
    come(&asker);
    /* A trailer. */
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ");
    assert_in_range(endured("b", " 408 "), 30, 35);
}

static void a_fast_enough_body_may_take_long(void **state)
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

/* The server owes the next step, however long it takes. */
static void a_client_that_waits_for_its_answer_is_not_slow(void **state)
{
    (void)state;
    limits->max_pipeline = 1;
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
    for (int i = 0; i < 1000; i++) /* nor is a client without a request */
        pass_a_second();
    say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 3);
}

/* Returns how much of a large answer a client gets that reads this much in each second. */
static size_t taken_of_big(size_t n_bytes)
{
    static char some[64 << 10];
    size_t n = 0;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    iteration();
    for (int i = 0; i < 1000 && listener.n_open > 0; i++) {
        ssize_t got = recv(asker.fd, some, n_bytes, 0);
        n += got > 0 ? (size_t)got : 0;
        if (n > sizeof(big))
            break;
        pass_a_second();
    }
    return n;
}

static void a_reply_must_be_read_at_the_least_rate(void **state)
{
    (void)state;
    assert_true(taken_of_big(8 << 10) > sizeof(big));
    assert_int_equal(listener.n_open, 1);
    leave(&asker);
    iteration();
    assert_int_equal(listener.n_open, 0);
    come(&asker);
    assert_in_range(taken_of_big(100), 100 * 30, 100 * 70);
    assert_int_equal(listener.n_open, 0);
    come(&asker); /* of the fixture */
}

/* A loop that stood still reads the bytes that arrived meanwhile before it checks times. */
static void a_client_held_up_by_the_loop_is_not_slow(void **state)
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

static void a_head_beyond_its_time_is_refused(void **state)
{
    (void)state;
    assert_in_range(endured("\r\n", " 408 "), 30, 35); /* empty lines before no request */
    assert_int_equal(heard(&asker, "the request head took too long"), 1);
    leave(&asker);
    come(&asker);

    /* The head follows a request that takes long. */
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
    iteration();
    come(&asker);

    /* The head follows as many requests as may be in flight, so its time has not begun. */
    limits->max_pipeline = 1;
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nA: ");
    for (int i = 0; i < 100; i++)
        pass_a_second();
    exchange_reply_text(held, 200, NULL, "", 0);
    for (int i = 0; i < 35 && heard(&asker, " 408 ") == 0; i++)
        pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_int_equal(heard(&asker, "HTTP/1.1 408 "), 1);
}

/* Each head has its own time: an end of one may arrive with the beginning of the next for ever. */
static void each_head_has_its_own_time(void **state)
{
    (void)state;
    say(&asker, "GET / HTTP/1.1\r\nHo");
    assert_int_equal(endured("st: x\r\n\r\nGET / HTTP/1.1\r\nHo", " 408 "), 200);
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 200);
}

/* ---- Idle, a burden, evicted ----------------------------------------------------------------- */

/* The worker's connection of the only client. */
static struct conn *of_asker(void)
{
    assert_false(list_empty(&worker.conns));
    return LIST_ENTRY(worker.conns.next, struct conn, link);
}

static void a_client_without_a_request_is_idle(void **state)
{
    (void)state;
    struct conn *c = of_asker();
    assert_true(conn_is_idle(c));
    say(&asker, "HEAD / HTTP/1.1\r\n");
    assert_false(conn_is_idle(c)); /* some bytes are not read yet */
    iteration();
    assert_false(conn_is_idle(c));
    for (int i = 0; i < 3; i++)
        pass_a_second();
    assert_true(conn_is_idle(c)); /* an endless head must not keep other clients' descriptor */
    say(&asker, "Host: x\r\n\r\n");
    iteration();
    assert_false(conn_is_idle(c));
    exchange_reply_text(held, 200, NULL, "", 0);
    iteration();
    iteration();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_true(conn_is_idle(c));
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
    for (int i = 0; i < 3; i++)
        pass_a_second();
    assert_false(conn_is_idle(c)); /* a body is no head */
}

static void an_idle_client_is_closed_after_its_time(void **state)
{
    (void)state;
    clock_fake_advance(&now, 3590 * NS_PER_S);
    pass_a_second();
    assert_int_equal(listener.n_open, 1);
    say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); /* which restarts the time */
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1); /* a reply must be read sooner */
    pass_a_second();
    clock_fake_advance(&now, 3590 * NS_PER_S);
    pass_a_second();
    assert_int_equal(listener.n_open, 1);
    for (int i = 0; i < 15; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(heard(&asker, "HTTP/1.1 "), 1);
}

/* Memory counts more if it is kept longer, and less if its bytes move. */
static void a_client_that_stalls_is_a_burden(void **state)
{
    (void)state;
    struct conn *c = of_asker();
    bool stalled;
    assert_int_equal(conn_burden(c, now.time_ns, &stalled), 0);
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 196608\r\n\r\n");
    say_bytes(&asker, 100000);
    for (int i = 0; i < MAX_ITERATIONS && unread(&asker) > 0; i++)
        iteration();
    uint64_t at_first = conn_burden(c, now.time_ns, &stalled);
    assert_true(at_first > 0 && !stalled);
    uint64_t before = 0;
    for (int i = 0; i < 8; i++) {
        pass_a_second();
        uint64_t burden = conn_burden(c, now.time_ns, &stalled);
        assert_true(burden > before);
        assert_int_equal(stalled, i >= 6); /* five seconds from the first look without progress */
        before = burden;
    }
    assert_true(before > at_first);
    say_bytes(&asker, 50000);
    pass_a_second();
    uint64_t burden = conn_burden(c, now.time_ns, &stalled);
    assert_true(burden < before && !stalled);
}

/* The next requests of a client do not hide that it does not read its replies. */
static void a_client_that_sends_and_does_not_read_is_a_burden(void **state)
{
    (void)state;
    struct conn *c = of_asker();
    bool stalled = false;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 196608\r\n\r\n");
    iteration();
    for (int i = 0; i < 10; i++) {
        assert_false(stalled && i < 5);
        say_bytes(&asker, 8192);
        pass_a_second();
        assert_true(conn_burden(c, now.time_ns, &stalled) > 0);
    }
    assert_true(c->waiting && stalled);
}

static void a_client_that_waits_or_has_little_is_no_burden(void **state)
{
    (void)state;
    struct conn *c = of_asker();
    bool stalled;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n12345");
    for (int i = 0; i < 20; i++)
        pass_a_second();
    assert_int_equal(conn_burden(c, now.time_ns, &stalled), 0);
    assert_false(stalled);
    say_bytes(&asker, 95);
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 20; i++)
        pass_a_second();
    assert_non_null(held);
    assert_int_equal(conn_burden(c, now.time_ns, &stalled), 0);
    assert_false(stalled);
    exchange_reply_text(held, 200, NULL, "", 0);
}

static unsigned long long n_evicted(void)
{
    struct budget_stats stats;
    budget_stats(memory, &stats);
    return stats.n_evicted;
}

static void an_evicted_client_gets_503_if_possible(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\nabc");
    iteration();
    iteration();
    conn_evict(of_asker());
    iteration();
    assert_int_equal(n_evicted(), 1);
    assert_int_equal(heard(&asker, "HTTP/1.1 503 "), 1);
    assert_int_equal(heard(&asker, "Retry-After: "), 1);
    for (int i = 0; i < 5; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
    leave(&asker);

    come(&asker); /* a client without a request gets no reply */
    conn_evict(of_asker());
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(heard(&asker, "HTTP/1.1 "), 0);
    leave(&asker);

    come(&asker); /* nor does a client with half a reply */
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    iteration();
    iteration();
    assert_true(of_asker()->waiting);
    conn_evict(of_asker());
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(n_evicted(), 3);
}

static void a_stop_waits_for_clients_that_go_on(void **state)
{
    (void)state;
    service.env->draining = true;
    conn_drain(of_asker());
    assert_int_equal(listener.n_open, 0); /* no request was in flight */
    leave(&asker);
    service.env->draining = false;

    come(&asker);
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    iteration();
    service.env->draining = true;
    conn_drain(of_asker());
    for (int i = 0; i < 100; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 1);
    exchange_reply_text(held, 200, NULL, "", 0);
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    for (int i = 0; i < 5; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
    leave(&asker);

    /* … but not for a client that stands still. */
    service.env->draining = false;
    come(&asker);
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\nabc");
    iteration();
    service.env->draining = true;
    for (int i = 0; i < 3; i++)
        pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 503 "), 1);
    assert_int_equal(heard(&asker, "the server is stopping"), 1);
}

/* A close with unread bytes would be a reset, which would take the reply from the client. */
static void a_close_waits_for_a_client_that_still_sends(void **state)
{
    (void)state;
    say(&asker, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nthis is too much");
    iteration();
    iteration();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_int_equal(listener.n_open, 1);
    assert_true(of_asker()->lingering);
    say(&asker, "and so is this");
    iteration();
    assert_int_equal(unread(&asker), 0); /* the unread input was dropped */
    for (int i = 0; i < 4; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(heard(&asker, "HTTP/1.1 "), 1);
}

static void a_client_that_has_left_is_closed_at_once(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\nabc");
    iteration();
    iteration();
    shutdown(asker.fd, SHUT_RDWR);
    iteration();
    iteration();
    assert_int_equal(listener.n_open, 0);
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static struct tls_papers papers;
static struct tls_client secret; /* the client of `asker`, which speaks TLS */

/* `asker` is connected to a service with TLS, and has sent nothing yet. */
static int start_tls(void **state)
{
    tlsc_make_papers(&papers);
    struct tls_options o = {
        .certificate = papers.server, .key = papers.server_key, .alpn = "http/1.1"};
    start_slow(state);
    leave(&asker);
    iteration();
    assert_null(tls_files_start(&o, &service.tls));
    come(&asker);
    tlsc_init(&secret, &papers, "\x08http/1.1");
    close(secret.fd);
    close(secret.far_fd);
    secret.fd = asker.fd;
    return 0;
}

static int stop_tls(void **state)
{
    tlsc_done(&secret); /* closes asker.fd */
    stop(state);
    tls_files_stop(TAKE(service.tls));
    tlsc_remove_papers(&papers);
    return 0;
}

static void shake_hands(void)
{
    for (int i = 0; i < 10 && SSL_do_handshake(secret.ssl) != 1; i++) {
        (void)tlsc_send(&secret, SIZE_MAX);
        iteration();
        tlsc_receive(&secret);
    }
    (void)tlsc_send(&secret, SIZE_MAX);
    iteration();
    assert_true(SSL_is_init_finished(secret.ssl));
}

static void say_secretly(const char *text)
{
    assert_int_equal(SSL_write(secret.ssl, text, (int)strlen(text)), strlen(text));
    assert_int_equal(tlsc_send(&secret, SIZE_MAX), 0);
    iteration();
}

static size_t n_secret; /* bytes of the answers so far */

/* Returns how often `what` is in the answers that have come since the last call. */
static int heard_secretly(const char *what)
{
    static char said[64 << 10];
    size_t n_said = 0;
    int n, times = 0;
    tlsc_receive(&secret);
    while ((n = SSL_read(secret.ssl, said + n_said, (int)(sizeof(said) - 1 - n_said))) > 0) {
        n_said += (size_t)n;
        n_secret += (size_t)n;
        if (n_said > sizeof(said) / 2)
            n_said = 0;
    }
    said[n_said] = '\0';
    for (const char *at = said; (at = strstr(at, what)); at++)
        times++;
    return times;
}

static void a_handshake_has_the_time_of_a_head(void **state)
{
    (void)state;
    (void)SSL_do_handshake(secret.ssl);
    int n_seconds = 0;
    for (; listener.n_open > 0 && n_seconds < 200; n_seconds++) {
        (void)tlsc_send(&secret, 1); /* a byte a second does not prolong it */
        pass_a_second();
    }
    assert_in_range(n_seconds, 30, 35);
}

static void a_client_in_its_handshake_is_idle_after_a_second(void **state)
{
    (void)state;
    (void)SSL_do_handshake(secret.ssl);
    (void)tlsc_send(&secret, 10);
    assert_false(conn_is_idle(of_asker()));
    for (int i = 0; i < 3; i++)
        pass_a_second();
    assert_true(conn_is_idle(of_asker()));
    (void)tlsc_send(&secret, SIZE_MAX);
    shake_hands();
    assert_true(conn_is_idle(of_asker()));
    say_secretly("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_false(conn_is_idle(of_asker()));
    exchange_reply_text(held, 200, NULL, "", 0);
    iteration();
    assert_int_equal(heard_secretly("HTTP/1.1 200 "), 1);
}

static void a_stop_ends_handshakes_and_idle_clients(void **state)
{
    (void)state;
    (void)SSL_do_handshake(secret.ssl);
    (void)tlsc_send(&secret, SIZE_MAX);
    iteration();
    service.env->draining = true;
    conn_drain(of_asker());
    assert_int_equal(listener.n_open, 0);
}

static void requests_that_tls_has_read_are_answered_in_turn(void **state)
{
    (void)state;
    limits->max_pipeline = 1;
    shake_hands();
    /* One record has all of them, so the socket is empty while the first is in progress. */
    say_secretly("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"
                 "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345"
                 "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(n_requests, 1);
    exchange_reply_text(held, 200, NULL, "", 0);
    for (int i = 0; i < 5; i++)
        iteration();
    assert_int_equal(heard_secretly("HTTP/1.1 200 "), 3);
}

static void a_large_reply_waits_for_its_reader(void **state)
{
    (void)state;
    n_secret = 0;
    shake_hands();
    say_secretly("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    assert_true(of_asker()->waiting);
    for (int i = 0; i < 1000 && n_secret < sizeof(big); i++) {
        heard_secretly("x");
        iteration();
    }
    assert_true(n_secret > sizeof(big));
    assert_false(of_asker()->waiting);
    /* Half of the next one is not read: the client is closed after its time. */
    say_secretly("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    int n_seconds = 0;
    for (; listener.n_open > 0 && n_seconds < 200; n_seconds++)
        pass_a_second();
    assert_in_range(n_seconds, 30, 65);
}

/* Each time that the socket has room again, another request has come, too. */
static void a_large_reply_goes_on_beside_requests(void **state)
{
    (void)state;
    n_secret = 0;
    shake_hands();
    say_secretly("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    assert_true(of_asker()->waiting);
    for (int i = 0; i < 40 && n_secret < sizeof(big); i++) {
        heard_secretly("x");
        say_secretly("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
        iteration();
    }
    assert_true(n_secret > sizeof(big));
    assert_false(of_asker()->waiting);
    assert_true(n_held > 1);
    for (unsigned int i = 0; i < n_held; i++)
        exchange_reply_text(all_held[i], 200, NULL, "", 0);
    iteration();
    assert_int_equal(heard_secretly("HTTP/1.1 200 "), n_held);
}

/* The socket is full when the server answers the client's first message, and has room again when
 * the next one comes. */
static void a_handshake_goes_on_beside_messages(void **state)
{
    (void)state;
    static char junk[64 << 10];
    ssize_t n;
    size_t n_junk = 0;
    while ((n = send(asker.far_fd, junk, sizeof(junk), MSG_NOSIGNAL)) > 0)
        n_junk += (size_t)n;
    (void)SSL_do_handshake(secret.ssl);
    (void)tlsc_send(&secret, SIZE_MAX);
    iteration();
    assert_true(of_asker()->waiting);
    while (n_junk > 0 && (n = recv(secret.fd, junk, MIN(n_junk, sizeof(junk)), 0)) > 0)
        n_junk -= (size_t)n;
    assert_int_equal(n_junk, 0);
    /* A client may send this at any time, and it means nothing. */
    assert_int_equal(send(secret.fd, "\x14\3\3\0\1\1", 6, MSG_NOSIGNAL), 6);
    iteration();
    iteration();
    tlsc_receive(&secret);
    shake_hands();
    say_secretly("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    iteration();
    assert_int_equal(heard_secretly("HTTP/1.1 200 "), 1);
}

static void an_end_is_told_and_awaited(void **state)
{
    (void)state;
    shake_hands();
    say_secretly("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nthis is too much");
    iteration();
    assert_int_equal(heard_secretly("HTTP/1.1 200 "), 1);
    assert_true(SSL_get_shutdown(secret.ssl) & SSL_RECEIVED_SHUTDOWN);
    for (int i = 0; i < 4; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
}

static void a_client_that_ends_gets_its_answer(void **state)
{
    (void)state;
    shake_hands();
    assert_true(SSL_write(secret.ssl, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 28) > 0);
    (void)SSL_shutdown(secret.ssl); /* in one read with the request; the socket stays open */
    (void)tlsc_send(&secret, SIZE_MAX);
    iteration();
    iteration();
    assert_int_equal(n_requests, 1);
    assert_true(of_asker()->eof);
    exchange_reply_text(held, 200, NULL, "", 0);
    for (int i = 0; i < 3; i++)
        iteration();
    assert_int_equal(heard_secretly("HTTP/1.1 200 "), 1);
    assert_int_equal(listener.n_open, 0);
}

static bool is_always_over(const struct session *s)
{
    (void)s;
    return true;
}

/* The client does nothing, and its time is not awaited. */
static void a_session_without_memory_ends_at_once(void **state)
{
    struct protocol broken = http1_protocol; /* as one of HTTP/2 that got no memory */
    char byte;
    (void)state;
    broken.is_over = is_always_over;
    service.env->protocol = &broken;
    struct client late;
    come(&late);
    iteration();
    assert_int_equal(recv(late.fd, &byte, 1, 0), 0);
    assert_int_equal(listener.n_open, 1); /* asker's */
    leave(&late);
    service.env->protocol = &http1_protocol;
}

/* What the service has counted. */
static uint64_t counted(enum net_count which)
{
    return atomic_load(&service.env->counts.of[which]);
}

static uint64_t answered(int status)
{
    return atomic_load(&service.env->counts.answers[status - 100]);
}

static void slow_clients_are_counted_by_what_they_hold_up(void **state)
{
    (void)state;
    (void)endured("\r\n", " 408 ");
    assert_int_equal(counted(NET_STALLED_HEAD), 1);
    leave(&asker);
    come(&asker);
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    (void)endured("b", " 408 ");
    assert_int_equal(counted(NET_STALLED_BODY), 1);
    assert_int_equal(answered(408), 2);
    leave(&asker);
    come(&asker);
    (void)taken_of_big(100);
    assert_int_equal(counted(NET_STALLED_ANSWER), 1);
    assert_int_equal(counted(NET_STALLED_HEAD) + counted(NET_STALLED_BODY), 2);
    assert_int_equal(answered(200), 1);
    assert_int_equal(counted(NET_CONNS_BEGUN), 3);
    assert_int_equal(counted(NET_CONNS_ENDED), 3);
    come(&asker); /* of the fixture */
}

/* Each is counted once: as answered, or as cancelled. */
static void requests_are_counted_when_they_end(void **state)
{
    (void)state;
    static const char three[] = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"
                                "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
                                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123";
    say(&asker, three);
    pass_a_second();
    assert_int_equal(answered(200), 1); /* the second, which waits behind the first */
    assert_int_equal(counted(NET_CANCELLED), 0);
    assert_int_equal(counted(NET_RECEIVED_BYTES), sizeof(three) - 1);
    conn_close(LIST_ENTRY(worker.conns.next, struct conn, link));
    assert_int_equal(counted(NET_CANCELLED), 2); /* one is executed, one is half there */
    exchange_reply_text(held, 200, NULL, "", 0);
    assert_int_equal(answered(200), 1);
    assert_int_equal(counted(NET_SENT_BYTES), 0);
    leave(&asker);
    come(&asker);
}

static void an_evicted_client_is_counted_once(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    iteration();
    conn_evict(LIST_ENTRY(worker.conns.next, struct conn, link));
    pass_a_second();
    assert_int_equal(heard(&asker, " 503 "), 1);
    assert_int_equal(counted(NET_REFUSED_MEMORY), 1);
    assert_int_equal(answered(503), 1);
    leave(&asker);
    come(&asker);
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123"); /* a large answer */
    iteration();
    conn_evict(LIST_ENTRY(worker.conns.next, struct conn, link));
    assert_int_equal(counted(NET_REFUSED_MEMORY), 2);
    assert_int_equal(counted(NET_CANCELLED), 0); /* it was answered, and cut off */
    leave(&asker);
    come(&asker);
}

int main(void)
{
#define TLS(test)  cmocka_unit_test_setup_teardown(test, start_tls, stop_tls)
#define SLOW(test) cmocka_unit_test_setup_teardown(test, start_slow, stop_slow)
    const struct CMUnitTest tests[] = {
        SLOW(a_body_below_the_least_rate_is_refused),
        SLOW(a_fast_enough_body_may_take_long),
        SLOW(a_client_that_waits_for_its_answer_is_not_slow),
        SLOW(a_reply_must_be_read_at_the_least_rate),
        SLOW(a_client_held_up_by_the_loop_is_not_slow),
        SLOW(a_head_beyond_its_time_is_refused),
        SLOW(each_head_has_its_own_time),
        SLOW(a_client_without_a_request_is_idle),
        SLOW(an_idle_client_is_closed_after_its_time),
        SLOW(a_client_that_stalls_is_a_burden),
        SLOW(a_client_that_sends_and_does_not_read_is_a_burden),
        SLOW(a_client_that_waits_or_has_little_is_no_burden),
        SLOW(an_evicted_client_gets_503_if_possible),
        SLOW(a_stop_waits_for_clients_that_go_on),
        SLOW(a_close_waits_for_a_client_that_still_sends),
        SLOW(a_client_that_has_left_is_closed_at_once),
        SLOW(a_session_without_memory_ends_at_once),
        SLOW(slow_clients_are_counted_by_what_they_hold_up),
        SLOW(requests_are_counted_when_they_end),
        SLOW(an_evicted_client_is_counted_once),
        TLS(a_session_without_memory_ends_at_once),
        TLS(a_handshake_has_the_time_of_a_head),
        TLS(a_client_in_its_handshake_is_idle_after_a_second),
        TLS(a_stop_ends_handshakes_and_idle_clients),
        TLS(requests_that_tls_has_read_are_answered_in_turn),
        TLS(a_large_reply_waits_for_its_reader),
        TLS(a_large_reply_goes_on_beside_requests),
        TLS(a_handshake_goes_on_beside_messages),
        TLS(an_end_is_told_and_awaited),
        TLS(a_client_that_ends_gets_its_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
