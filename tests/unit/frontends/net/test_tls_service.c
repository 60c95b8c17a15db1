/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service with TLS over real sockets, while its certificate changes a thousand times (a hundred
 * in debug builds). Some of the changes are unfit. Each client checks the certificate against the
 * root; no request is lost.
 */
#include "lib/tls_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>

#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "frontends/net/server.h"
#include "frontends/net/tls_files.h"

#ifdef CONCH_DEBUG
enum { N_CHANGES = 100 }; /* a thousand would take a minute of each sanitizer */
#else
enum { N_CHANGES = 1000 };
#endif
enum { N_PAIRS = 8, N_CLIENTS = 2, REQUESTS_OF_CONNECTION = 3 };

/* ---- The service ----------------------------------------------------------------------------- */

static void on_request(struct exchange *x)
{
    exchange_reply_text(x, 200, NULL, "ok", 2);
}

static void on_end(struct exchange *x)
{
    (void)x;
}

static const struct http_handler handler = {.on_request = on_request, .on_end = on_end};

/* ---- Certificates ---------------------------------------------------------------------------- */

struct content {
    char bytes[4096];
    size_t length;
};

static struct tls_papers papers;
static struct content certificates[N_PAIRS], keys[N_PAIRS];
static long serials[N_PAIRS];

static struct content read_content(const char *path)
{
    struct content c;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    c.length = fread(c.bytes, 1, sizeof(c.bytes), f);
    fclose(f);
    return c;
}

/* Renames a new file over the old one, as an operator should. */
static void replace(const char *path, const char *bytes, size_t length)
{
    char new[128];
    snprintf(new, sizeof(new), "%s.new", path);
    FILE *f = fopen(new, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, length, f), length);
    fclose(f);
    assert_int_equal(rename(new, path), 0);
}

static int make_pairs(void **state)
{
    (void)state;
    tlsc_make_papers(&papers);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *root = tlsc_certify("root", key, NULL, key);
    tlsc_write_certificate(papers.root, root);
    for (int i = 0; i < N_PAIRS; i++) {
        EVP_PKEY *own = EVP_EC_gen("P-256");
        X509 *x = tlsc_certify("localhost", own, root, key);
        serials[i] = ASN1_INTEGER_get(X509_get0_serialNumber(x));
        tlsc_write_certificate(papers.server, x);
        tlsc_write_key(papers.server_key, own, NULL);
        certificates[i] = read_content(papers.server);
        keys[i] = read_content(papers.server_key);
        X509_free(x);
        EVP_PKEY_free(own);
    }
    X509_free(root);
    EVP_PKEY_free(key);
    return 0;
}

static int remove_pairs(void **state)
{
    (void)state;
    tlsc_remove_papers(&papers);
    return 0;
}

/* ---- Clients --------------------------------------------------------------------------------- */

static struct mutex mu;
static struct cond changed;
/* Under mu. */
static long last_serial;
static unsigned long n_connections, n_lost;
static atomic_bool over;
static int port;

static SSL *dial(SSL_CTX *ctx)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SSL *ssl = SSL_new(ctx);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 && SSL_set_fd(ssl, fd) == 1 &&
        SSL_connect(ssl) == 1)
        return ssl;
    SSL_free(ssl);
    close(fd);
    return NULL;
}

static bool ask(SSL *ssl)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    char text[4096];
    size_t n = 0;
    if (SSL_write(ssl, request, sizeof(request) - 1) != sizeof(request) - 1)
        return false;
    for (;;) {
        int got = SSL_read(ssl, text + n, (int)(sizeof(text) - 1 - n));
        if (got <= 0)
            return false;
        n += (size_t)got;
        text[n] = '\0';
        if (strstr(text, "\r\n\r\nok"))
            return strncmp(text, "HTTP/1.1 200 ", 13) == 0;
    }
}

static void hang_up(SSL *ssl)
{
    int fd = SSL_get_fd(ssl);
    SSL_shutdown(ssl);
    SSL_free(ssl);
    close(fd);
}

/* Counts a connection that has ended: a loss, or the certificate that the server has shown. */
static void note_connection(SSL *ssl, bool fine)
{
    X509 *shown = ssl ? SSL_get0_peer_certificate(ssl) : NULL;
    mutex_lock(&mu);
    n_connections++;
    n_lost += !fine;
    if (shown)
        last_serial = ASN1_INTEGER_get(X509_get0_serialNumber(shown));
    cond_broadcast(&changed);
    mutex_unlock(&mu);
}

static SSL_CTX *make_ctx(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_load_verify_file(ctx, papers.root);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return ctx;
}

/* Connects again and again. */
static void visit(void *arg)
{
    (void)arg;
    SSL_CTX *ctx = make_ctx();
    while (!atomic_load(&over)) {
        SSL *ssl = dial(ctx);
        bool fine = ssl != NULL;
        for (int i = 0; i < REQUESTS_OF_CONNECTION && fine; i++)
            fine = ask(ssl);
        note_connection(ssl, fine);
        if (ssl)
            hang_up(ssl);
    }
    SSL_CTX_free(ctx);
}

/* Asks all the time on the connection that was there before all changes. */
static void stay(void *arg)
{
    SSL_CTX *ctx = make_ctx();
    SSL *ssl = dial(ctx);
    bool fine = ssl != NULL;
    while (fine && !atomic_load(&over))
        fine = ask(ssl);
    *(bool *)arg = fine;
    if (ssl)
        hang_up(ssl);
    SSL_CTX_free(ctx);
}

/* Until a connection has got the certificate; 0: until three more have come, whatever they got. */
static void wait_for_clients(long serial)
{
    mutex_lock(&mu);
    unsigned long until = n_connections + 3;
    while (n_lost == 0 && (serial ? last_serial != serial : n_connections < until))
        assert_true(cond_wait_until(&changed, &mu, monotonic_ns() + 60 * NS_PER_S));
    mutex_unlock(&mu);
}

/* Puts something unfit in the place of the files. The server must go on with what it had. */
static void spoil(int round)
{
    const struct content *c = &certificates[round % N_PAIRS];
    switch (round % 5) {
    case 0:
        replace(papers.server, c->bytes, c->length / 2);
        break;
    case 1:
        replace(papers.server_key, "", 0);
        break;
    case 2: /* the certificate of another key */
        replace(papers.server, c->bytes, c->length);
        break;
    case 3:
        replace(papers.server_key, c->bytes, c->length);
        break;
    default:
        unlink(papers.server);
        break;
    }
    wait_for_clients(0);
}

static void many_changes_lose_no_request(void **state)
{
    (void)state;
    struct tls_options tls = {.certificate = papers.server,
                              .key = papers.server_key,
                              .alpn = "http/1.1",
                              .alpn_is_optional = true,
                              .check_ns = NS_PER_MS / 5};
    struct net_options o;
    struct net_server *s;
    struct thread threads[N_CLIENTS + 1];
    bool stayed = false;
    net_options_init(&o);
    o.address = "127.0.0.1";
    o.http1.handler = &handler;
    o.tls = &tls;
    assert_null(net_server_start(&o, &s));
    port = net_server_port(s);
    assert_null(thread_start(&threads[N_CLIENTS], "stays", stay, &stayed));
    for (int i = 0; i < N_CLIENTS; i++)
        assert_null(thread_start(&threads[i], "visits", visit, NULL));

    for (int i = 0; i < N_CHANGES; i++) {
        int pair = i % N_PAIRS;
        if (i % 10 == 9)
            spoil(i / 10);
        replace(papers.server, certificates[pair].bytes, certificates[pair].length);
        replace(papers.server_key, keys[pair].bytes, keys[pair].length);
        wait_for_clients(serials[pair]);
    }

    atomic_store(&over, true);
    for (int i = 0; i <= N_CLIENTS; i++)
        thread_join(&threads[i]);
    assert_int_equal(n_lost, 0);
    assert_true(n_connections >= N_CHANGES);
    assert_true(stayed);
    enum net_end end;
    assert_int_equal(net_server_stop(s, monotonic_ns() + 60 * NS_PER_S, NULL, &end), 0);
    assert_int_equal(end, NET_FREED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_changes_lose_no_request, make_pairs, remove_pairs),
    };
    mutex_init(&mu, 1, "test");
    cond_init(&changed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
