/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of one connection against OpenSSL's client, over a socket pair of which the test moves every
 * byte: handshakes in portions, a full socket, both ends, clients that are refused.
 */
#include "lib/tls_client.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/budget.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/net/tls.h"
#include "frontends/net/tls_files.h"

enum { LARGE_BYTES = 3 << 20 };

static struct tls_papers papers;
static struct budget *budget;
static struct pool *pool;
static struct tls_files *files;
static struct tls_client client;
static struct tls *tls;
static char large[LARGE_BYTES], taken[LARGE_BYTES];

static void begin(bool mutual, const char *alpn)
{
    struct tls_options o = {.certificate = papers.server,
                            .key = papers.server_key,
                            .root = mutual ? papers.root : NULL,
                            .alpn = "h2"};
    assert_null(tls_files_start(&o, &files));
    tlsc_init(&client, &papers, alpn);
    tls = tls_new(files, client.far_fd, pool, budget);
    assert_non_null(tls);
}

static unsigned int n_sends;

/* In place of the C library's: counts the server's calls, which have flags. */
ssize_t send(int fd, const void *bytes, size_t n_bytes, int flags)
{
    n_sends++;
    return syscall(SYS_sendto, fd, bytes, n_bytes, flags, NULL, 0);
}

static int end_all(void **state)
{
    (void)state;
    tls_free(TAKE(tls));
    if (client.ssl) {
        close(client.far_fd);
        tlsc_done(&client);
    }
    memset(&client, 0, sizeof(client));
    tls_files_stop(TAKE(files));
    struct budget_stats stats;
    pool_trim(pool, 0);
    budget_stats(budget, &stats);
    assert_int_equal(stats.used_bytes, 0);
    return 0;
}

/* Goes on until the handshake has an end for the server, the client sending so many bytes a time.
 */
static enum tls_result shake_hands(size_t portion_bytes)
{
    enum tls_result result = TLS_WAITS;
    for (int i = 0; i < 10000 && result == TLS_WAITS; i++) {
        (void)SSL_do_handshake(client.ssl);
        (void)tlsc_send(&client, portion_bytes);
        result = tls_handshake(tls);
        tlsc_receive(&client);
    }
    (void)SSL_do_handshake(client.ssl);
    return result;
}

static void say(const char *text)
{
    assert_int_equal(SSL_write(client.ssl, text, (int)strlen(text)), strlen(text));
    assert_int_equal(tlsc_send(&client, SIZE_MAX), 0);
}

static ssize_t hear(void *room, size_t room_bytes)
{
    struct iovec space = {room, room_bytes};
    return tls_read(tls, &space, 1);
}

static void a_handshake_may_come_in_any_portions(void **state)
{
    (void)state;
    static const size_t portions[] = {1, 2, 7, 100, SIZE_MAX};
    char room[100];
    for (size_t i = 0; i < ARRAY_SIZE(portions); i++) {
        begin(false, "\x02h2");
        assert_false(tls_is_established(tls));
        assert_int_equal(shake_hands(portions[i]), TLS_DONE);
        assert_true(tls_is_established(tls));
        say("hello");
        assert_int_equal(hear(room, sizeof(room)), 5);
        assert_memory_equal(room, "hello", 5);
        assert_false(tls_reads_on(tls));
        assert_int_equal(hear(room, sizeof(room)), -1);
        assert_int_equal(errno, EAGAIN);
        end_all(state);
    }
}

static void records_are_read_byte_by_byte(void **state)
{
    (void)state;
    char room[100];
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    assert_int_equal(SSL_write(client.ssl, "hello", 5), 5);
    while (tlsc_send(&client, 1) > 0) {
        assert_int_equal(hear(room, sizeof(room)), -1);
        assert_int_equal(errno, EAGAIN);
        assert_false(tls_reads_on(tls));
    }
    assert_int_equal(hear(room, sizeof(room)), 5);
}

static void what_does_not_fit_into_the_space_is_read_on(void **state)
{
    (void)state;
    char room[8];
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    say("0123456789");
    say("ab");
    assert_int_equal(hear(room, 4), 4);
    assert_true(tls_reads_on(tls)); /* though the socket is empty */
    struct iovec space[2] = {{room, 5}, {room + 5, 3}};
    assert_int_equal(tls_read(tls, space, 2), 8);
    assert_memory_equal(room, "456789ab", 8);
}

/* Writes as the out-queue's pieces lie, and reads at the client whatever has come. */
static size_t used_bytes(void)
{
    struct budget_stats stats;
    budget_stats(budget, &stats);
    return stats.used_bytes;
}

/* Exchanges n small records each way. */
static void talk(int n)
{
    for (int i = 0; i < n; i++) {
        char heard[100];
        struct iovec piece = {(char[]){"answer"}, 6};
        say("a question");
        assert_int_equal(hear(heard, sizeof(heard)), 10);
        assert_memory_equal(heard, "a question", 10);
        assert_int_equal(tls_write(tls, &piece, 1), 6);
        tlsc_receive(&client);
        assert_int_equal(SSL_read(client.ssl, heard, sizeof(heard)), 6);
        assert_memory_equal(heard, "answer", 6);
    }
}

/* What they keep counts in the budget until they rest; then they go on as before. */
static void busy_connections_keep_their_buffers(void **state)
{
    (void)state;
    enum { BUFFERS = 34 << 10 };
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    size_t at_rest = used_bytes();
    for (int round = 0; round < 3; round++) {
        talk(10);
        assert_int_equal(used_bytes(), at_rest);
        tls_rest(tls); /* a connection that is asked now and then keeps none */
        talk(100);
        assert_int_equal(used_bytes(), at_rest + BUFFERS);
        tls_rest(tls);
        assert_int_equal(used_bytes(), at_rest);
    }
    /* Bytes that are not read yet stay. */
    talk(100);
    char heard[10];
    say("a question");
    assert_int_equal(hear(heard, 4), 4);
    tls_rest(tls);
    assert_int_equal(used_bytes(), at_rest + BUFFERS);
    assert_int_equal(hear(heard, 6), 6);
    assert_memory_equal(heard, "estion", 6);
}

static void without_room_in_the_budget_no_buffers_are_kept(void **state)
{
    (void)state;
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    struct budget_stats stats;
    budget_stats(budget, &stats);
    size_t rest = stats.limit_bytes - stats.used_bytes - (100 << 10);
    assert_true(budget_take(budget, rest));
    size_t used = used_bytes();
    talk(100);
    assert_int_equal(used_bytes(), used);
    budget_give(budget, rest);
    talk(100);
    assert_true(used_bytes() > used - rest);
}

static void a_large_answer_waits_for_its_reader(void **state)
{
    (void)state;
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    for (size_t i = 0; i < LARGE_BYTES; i++)
        large[i] = (char)(i * 7 + i / 251);
    size_t written = 0, n_taken = 0, n_waits = 0;
    while (n_taken < LARGE_BYTES) {
        struct iovec pieces[40];
        int n_pieces = 0;
        size_t at = written;
        for (size_t size = 9; n_pieces < 40 && at < LARGE_BYTES; n_pieces++) {
            size_t n = MIN(size, LARGE_BYTES - at);
            pieces[n_pieces] = (struct iovec){large + at, n};
            at += n;
            size = size == 9 ? 16384 : size == 16384 ? 70000 : 9;
        }
        ssize_t n = n_pieces > 0 ? tls_write(tls, pieces, n_pieces) : 0;
        if (n < 0) {
            assert_int_equal(errno, EAGAIN);
            assert_true(tls_held_bytes(tls) > 0);
            n_waits++;
            tlsc_receive(&client);
            int got;
            while ((got = SSL_read(client.ssl, taken + n_taken, (int)(LARGE_BYTES - n_taken))) > 0)
                n_taken += (size_t)got;
            assert_true(tls_flush(tls) != TLS_FAILED);
            continue;
        }
        written += (size_t)n;
        if (n_pieces == 0) {
            (void)tls_flush(tls);
            tlsc_receive(&client);
            int got;
            while (n_taken < LARGE_BYTES &&
                   (got = SSL_read(client.ssl, taken + n_taken, (int)(LARGE_BYTES - n_taken))) > 0)
                n_taken += (size_t)got;
        }
    }
    assert_true(n_waits > 3);
    assert_memory_equal(taken, large, LARGE_BYTES);
    assert_int_equal(tls_flush(tls), TLS_DONE);
    assert_int_equal(tls_held_bytes(tls), 0);
    assert_true(tls_take_sent(tls) > LARGE_BYTES);
}

/* One system call takes several records, and the pool has the bytes between them no longer than
 * that. */
static void records_of_a_large_write_leave_together(void **state)
{
    (void)state;
    enum { WRITTEN = 150 << 10, RECORDS = 10 };
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    int room_bytes = 4 * WRITTEN;
    assert_int_equal(
        setsockopt(client.far_fd, SOL_SOCKET, SO_SNDBUF, &room_bytes, sizeof(room_bytes)), 0);
    memset(large, 'x', WRITTEN);
    struct iovec piece = {large, WRITTEN};
    n_sends = 0;
    assert_int_equal(tls_write(tls, &piece, 1), WRITTEN);
    assert_in_range(n_sends, 1, RECORDS / 4);
    assert_int_equal(tls_held_bytes(tls), 0);
    struct pool_stats stats;
    pool_stats(pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
    size_t n_taken = 0;
    while (n_taken < WRITTEN) {
        tlsc_receive(&client);
        int got = SSL_read(client.ssl, taken + n_taken, (int)(WRITTEN - n_taken));
        assert_true(got > 0);
        n_taken += (size_t)got;
    }
    assert_memory_equal(taken, large, WRITTEN);
}

static void both_sides_say_that_they_end(void **state)
{
    (void)state;
    char room[100];
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    say("last");
    assert_int_equal(SSL_shutdown(client.ssl), 0);
    (void)tlsc_send(&client, SIZE_MAX);
    assert_int_equal(hear(room, sizeof(room)), 4);
    assert_true(tls_reads_on(tls)); /* the end makes no event of the socket */
    assert_int_equal(hear(room, sizeof(room)), 0);
    assert_false(tls_reads_on(tls));
    struct iovec answer = {(void *)(uintptr_t) "answer", 6};
    assert_int_equal(tls_write(tls, &answer, 1), 6); /* the client may still read */
    assert_int_equal(tls_end(tls), TLS_DONE);
    tlsc_receive(&client);
    assert_int_equal(SSL_read(client.ssl, room, sizeof(room)), 6);
    assert_int_equal(SSL_read(client.ssl, room, sizeof(room)), 0);
    assert_int_equal(SSL_get_shutdown(client.ssl), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
}

static void a_socket_that_is_closed_ends_the_input(void **state)
{
    (void)state;
    char room[100];
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    shutdown(client.fd, SHUT_WR); /* without close_notify */
    assert_int_equal(hear(room, sizeof(room)), 0);
    struct iovec answer = {(void *)(uintptr_t) "answer", 6};
    assert_int_equal(tls_write(tls, &answer, 1), 6);
    tls_free(TAKE(tls)); /* says that it ends */
    tlsc_receive(&client);
    assert_int_equal(SSL_read(client.ssl, room, sizeof(room)), 6);
    assert_int_equal(SSL_read(client.ssl, room, sizeof(room)), 0);
    assert_true(SSL_get_shutdown(client.ssl) & SSL_RECEIVED_SHUTDOWN);
}

static void a_client_without_the_protocol_is_told_the_end(void **state)
{
    (void)state;
    static const char *const offers[] = {NULL, "\x08http/1.1"};
    char room[10];
    for (size_t i = 0; i < ARRAY_SIZE(offers); i++) {
        begin(false, offers[i]);
        assert_int_equal(shake_hands(SIZE_MAX), TLS_FAILED);
        assert_false(tls_is_established(tls));
        assert_int_equal(tls_end(tls), TLS_DONE);
        tlsc_receive(&client);
        assert_int_equal(SSL_do_handshake(client.ssl), 1);
        assert_int_equal(SSL_read(client.ssl, room, sizeof(room)), 0);
        assert_true(SSL_get_shutdown(client.ssl) & SSL_RECEIVED_SHUTDOWN);
        end_all(state);
    }
}

static void what_is_not_tls_fails_at_once(void **state)
{
    (void)state;
    static const char *const texts[] = {"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                        "\x16\x03\x01\x01nothing of a handshake"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        begin(false, NULL);
        assert_int_equal(send(client.fd, texts[i], strlen(texts[i]), 0), strlen(texts[i]));
        /* The last text may be the beginning of a record. */
        assert_int_equal(tls_handshake(tls), i < 2 ? TLS_FAILED : TLS_WAITS);
        end_all(state);
    }
}

static void a_protocol_may_be_optional(void **state)
{
    (void)state;
    static const struct {
        const char *offer, *chosen;
    } cases[] = {
        {NULL, ""},
        {"\x08http/1.1", "http/1.1"},
        {"\x08http/1.0", "http/1.0"},
        {"\x02h2\x08http/1.0\x08http/1.1", "http/1.1"},
        {"\x02h2", NULL},
        {"\x09http/1.12\x04http", NULL},
    };
    struct tls_options o = {.certificate = papers.server,
                            .key = papers.server_key,
                            .alpn = "http/1.1,http/1.0",
                            .alpn_is_optional = true};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const unsigned char *chosen;
        unsigned int n;
        assert_null(tls_files_start(&o, &files));
        tlsc_init(&client, &papers, cases[i].offer);
        tls = tls_new(files, client.far_fd, pool, budget);
        assert_int_equal(shake_hands(SIZE_MAX), cases[i].chosen ? TLS_DONE : TLS_FAILED);
        SSL_get0_alpn_selected(client.ssl, &chosen, &n);
        assert_int_equal(n, cases[i].chosen ? strlen(cases[i].chosen) : 0);
        if (n > 0)
            assert_memory_equal(chosen, cases[i].chosen, n);
        end_all(state);
    }
}

static void mutual_tls_knows_its_clients(void **state)
{
    (void)state;
    char room[10];
    begin(true, "\x02h2");
    tlsc_use_certificate(&client, papers.client, papers.client_key);
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    end_all(state);

    begin(true, "\x02h2");
    tlsc_use_certificate(&client, papers.stranger, papers.stranger_key);
    assert_int_equal(shake_hands(SIZE_MAX), TLS_FAILED);
    end_all(state);

    begin(true, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_FAILED);
    tlsc_receive(&client); /* an alert says why */
    assert_true(SSL_read(client.ssl, room, sizeof(room)) <= 0);
    assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()),
                     SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED);
}

static void old_versions_are_refused(void **state)
{
    (void)state;
    begin(false, "\x02h2");
    SSL_set_min_proto_version(client.ssl, TLS1_2_VERSION);
    SSL_set_max_proto_version(client.ssl, TLS1_2_VERSION);
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    end_all(state);
    begin(false, "\x02h2");
    SSL_set_security_level(client.ssl, 0);
    SSL_set_min_proto_version(client.ssl, TLS1_1_VERSION);
    SSL_set_max_proto_version(client.ssl, TLS1_1_VERSION);
    assert_int_equal(SSL_set_cipher_list(client.ssl, "ALL:@SECLEVEL=0"), 1);
    assert_int_equal(shake_hands(SIZE_MAX), TLS_FAILED);
}

static void garbage_ends_the_connection(void **state)
{
    (void)state;
    static const char *const texts[] = {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                        "GET / HTTP/1.1\r\n\r\n",
                                        "\x16\x03\x01\xff\xff garbage of a record"};
    char room[10];
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        begin(false, NULL);
        assert_int_equal(send(client.fd, texts[i], strlen(texts[i]), 0), strlen(texts[i]));
        shutdown(client.fd, SHUT_WR);
        enum tls_result result = tls_handshake(tls);
        if (result == TLS_WAITS) /* for the rest of a record; the end is read next */
            result = tls_handshake(tls);
        assert_int_equal(result, TLS_FAILED);
        assert_int_equal(tls_handshake(tls), TLS_FAILED);
        assert_true(tls_end(tls) != TLS_WAITS);
        end_all(state);
    }
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    assert_int_equal(send(client.fd, "\x17\x03\x03\x00\x12 not encrypted....", 23, 0), 23);
    assert_int_equal(hear(room, sizeof(room)), -1);
    assert_int_equal(errno, EPROTO);
}

/* Requests for new keys carry no data. They are answered, but not without end in one call. */
static void a_flood_of_key_updates_takes_turns(void **state)
{
    (void)state;
    char room[10];
    bool cut = false;
    begin(false, "\x02h2");
    assert_int_equal(shake_hands(SIZE_MAX), TLS_DONE);
    ssize_t n = -1;
    for (int i = 0; i < 200 && !cut; i++) {
        for (int j = 0; j < 30; j++) {
            assert_int_equal(SSL_key_update(client.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
            assert_int_equal(SSL_do_handshake(client.ssl), 1);
        }
        (void)tlsc_send(&client, SIZE_MAX);
        if (i % 60 == 59) {
            n = hear(room, sizeof(room));
            cut = n < 0 && errno == EINTR;
            assert_true(cut || (n < 0 && errno == EAGAIN));
            tlsc_receive(&client);
            (void)SSL_read(client.ssl, room, sizeof(room));
        }
    }
    assert_true(cut);
    assert_true(tls_reads_on(tls));
    say("x");
    while ((n = hear(room, sizeof(room))) < 0)
        assert_int_equal(errno, EINTR);
    assert_int_equal(n, 1);
}

static int make_all(void **state)
{
    (void)state;
    tlsc_make_papers(&papers);
    budget = budget_new(1 << 30);
    pool = pool_new("test", 0, 0);
    pool_set_budget(pool, budget);
    return 0;
}

static int free_all(void **state)
{
    (void)state;
    tlsc_remove_papers(&papers);
    pool_free(pool);
    budget_unref(budget);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handshake_may_come_in_any_portions),
        cmocka_unit_test_teardown(records_are_read_byte_by_byte, end_all),
        cmocka_unit_test_teardown(what_does_not_fit_into_the_space_is_read_on, end_all),
        cmocka_unit_test_teardown(busy_connections_keep_their_buffers, end_all),
        cmocka_unit_test_teardown(without_room_in_the_budget_no_buffers_are_kept, end_all),
        cmocka_unit_test_teardown(a_large_answer_waits_for_its_reader, end_all),
        cmocka_unit_test_teardown(records_of_a_large_write_leave_together, end_all),
        cmocka_unit_test_teardown(both_sides_say_that_they_end, end_all),
        cmocka_unit_test_teardown(a_socket_that_is_closed_ends_the_input, end_all),
        cmocka_unit_test(a_client_without_the_protocol_is_told_the_end),
        cmocka_unit_test_teardown(what_is_not_tls_fails_at_once, end_all),
        cmocka_unit_test_teardown(a_protocol_may_be_optional, end_all),
        cmocka_unit_test_teardown(mutual_tls_knows_its_clients, end_all),
        cmocka_unit_test_teardown(old_versions_are_refused, end_all),
        cmocka_unit_test_teardown(garbage_ends_the_connection, end_all),
        cmocka_unit_test_teardown(a_flood_of_key_updates_takes_turns, end_all),
    };
    return cmocka_run_group_tests(tests, make_all, free_all);
}
