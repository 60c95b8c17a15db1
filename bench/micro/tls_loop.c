/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_tls_loop - what OpenSSL alone takes for a request: one SSL_read() and one SSL_write() of
 * records as a gRPC call of 64 bytes has them, on several connections in turn, between memory and
 * memory. No socket, no server.
 *
 * "hot" serves one connection after the other. "cold" runs other code and reads other data before
 * each, as much as the first caches hold, since a server does so, too. So these figures are a floor
 * of what TLS adds to a request by that library. The last rows have only the ciphers' part: a
 * record opened and one sealed by EVP.
 *
 * The best of many rounds for hot, the median for cold, in ns per request.
 */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    CONNECTIONS = 64, /* at most */
    REQUEST_BYTES = 180,
    ANSWER_BYTES = 200,
    ROUNDS = 4000,
    CACHE_BYTES = 64 << 10, /* of code and of data between requests, when cold */
    WIRE_BYTES = 64 << 10,
    TAG_BYTES = 16,
    HEAD_BYTES = 5, /* of a record; OpenSSL authenticates them, too */
};

/* Bytes on the way in one direction. */
struct wire {
    size_t at, end;
    char bytes[WIRE_BYTES];
};

struct connection {
    SSL *server, *client;
    struct wire to_server, to_client;
};

static struct connection connections[CONNECTIONS];

static void check(bool fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "bench_tls_loop: %s failed\n", what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- Cold caches ----------------------------------------------------------------------------- */

/* Code that does nothing, and a lot of it. NULL: not known for this processor. */
static void (*other_code)(void);
static volatile char other_data[CACHE_BYTES];

static void make_other_code(void)
{
#ifdef __x86_64__
    enum { NOP = 0x90, RET = 0xc3 };
    unsigned char *code =
        mmap(NULL, CACHE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(code != MAP_FAILED, "a mapping");
    memset(code, NOP, CACHE_BYTES);
    code[CACHE_BYTES - 1] = RET;
    check(mprotect(code, CACHE_BYTES, PROT_READ | PROT_EXEC) == 0, "code");
    other_code = (void (*)(void))(uintptr_t)code;
#endif
}

static void do_other_work(void)
{
    other_code();
    for (size_t i = 0; i < CACHE_BYTES; i += 64)
        other_data[i]++;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* ---- A BIO of two wires ---------------------------------------------------------------------- */

struct ends {
    struct wire *in, *out;
};

static int read_wire(BIO *bio, char *bytes, int n_bytes)
{
    struct wire *w = ((struct ends *)BIO_get_data(bio))->in;
    size_t n = w->end - w->at;
    BIO_clear_retry_flags(bio);
    if (n == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    n = n < (size_t)n_bytes ? n : (size_t)n_bytes;
    memcpy(bytes, w->bytes + w->at, n);
    w->at += n;
    if (w->at == w->end)
        w->at = w->end = 0;
    return (int)n;
}

static int write_wire(BIO *bio, const char *bytes, int n_bytes)
{
    struct wire *w = ((struct ends *)BIO_get_data(bio))->out;
    BIO_clear_retry_flags(bio);
    check(w->end + (size_t)n_bytes <= WIRE_BYTES, "room on the wire");
    memcpy(w->bytes + w->end, bytes, (size_t)n_bytes);
    w->end += (size_t)n_bytes;
    return n_bytes;
}

static long control_wire(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static void join(SSL *ssl, struct wire *in, struct wire *out)
{
    static BIO_METHOD *method;
    if (!method) {
        method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "wire");
        BIO_meth_set_read(method, read_wire);
        BIO_meth_set_write(method, write_wire);
        BIO_meth_set_ctrl(method, control_wire);
    }
    struct ends *ends = malloc(sizeof(*ends));
    BIO *bio = BIO_new(method);
    check(ends && bio, "memory");
    *ends = (struct ends){in, out};
    BIO_set_data(bio, ends);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
}

/* ---- Connections ----------------------------------------------------------------------------- */

/* With a certificate that signs itself, as the server's files would be. */
static SSL_CTX *make_server(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    X509_set_version(x, 2);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    check(X509_sign(x, key, EVP_sha256()) > 0 && SSL_CTX_use_certificate(ctx, x) == 1 &&
              SSL_CTX_use_PrivateKey(ctx, key) == 1,
          "the certificate");
    X509_free(x);
    EVP_PKEY_free(key);
    SSL_CTX_set_read_ahead(ctx, 1); /* as net/tls_files.c */
    return ctx;
}

static void connect_all(SSL_CTX *server, SSL_CTX *client, int n)
{
    for (int i = 0; i < n; i++) {
        struct connection *c = &connections[i];
        memset(c, 0, sizeof(*c));
        c->server = SSL_new(server);
        c->client = SSL_new(client);
        join(c->server, &c->to_server, &c->to_client);
        join(c->client, &c->to_client, &c->to_server);
        SSL_set_accept_state(c->server);
        SSL_set_connect_state(c->client);
        for (int k = 0; k < 10; k++) {
            (void)SSL_do_handshake(c->client);
            (void)SSL_do_handshake(c->server);
        }
        check(SSL_is_init_finished(c->server) && SSL_is_init_finished(c->client), "a handshake");
    }
}

static void disconnect_all(int n)
{
    for (int i = 0; i < n; i++) {
        free(BIO_get_data(SSL_get_rbio(connections[i].server)));
        free(BIO_get_data(SSL_get_rbio(connections[i].client)));
        SSL_free(connections[i].server);
        SSL_free(connections[i].client);
    }
}

static void serve_one(struct connection *c)
{
    static char answer[ANSWER_BYTES], got[16 << 10];
    int n = SSL_read(c->server, got, sizeof(got));
    int m = SSL_write(c->server, answer, ANSWER_BYTES);
    check(n == REQUEST_BYTES && m == ANSWER_BYTES, "serving");
}

/* A request of each of n connections; returns the time of the server's side. */
static uint64_t serve_all(int n, bool is_cold)
{
    static char request[REQUEST_BYTES], got[16 << 10];
    uint64_t took_ns = 0;
    for (int i = 0; i < n; i++)
        check(SSL_write(connections[i].client, request, REQUEST_BYTES) == REQUEST_BYTES, "asking");
    uint64_t from_ns = now_ns();
    for (int i = 0; i < n; i++) {
        if (is_cold) {
            do_other_work();
            from_ns = now_ns();
        }
        serve_one(&connections[i]);
        if (is_cold)
            took_ns += now_ns() - from_ns;
    }
    if (!is_cold)
        took_ns = now_ns() - from_ns;
    for (int i = 0; i < n; i++)
        check(SSL_read(connections[i].client, got, sizeof(got)) == ANSWER_BYTES, "hearing");
    return took_ns;
}

static double measure_rounds(int n, bool is_cold)
{
    static uint64_t all_ns[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        all_ns[i] = serve_all(n, is_cold);
    qsort(all_ns, ROUNDS, sizeof(all_ns[0]), compare_times);
    return (double)all_ns[is_cold ? ROUNDS / 2 : 0] / n;
}

static void measure_ssl(const char *ciphers, bool releases)
{
    SSL_CTX *server = make_server(), *client = SSL_CTX_new(TLS_client_method());
    static const int counts[] = {8, CONNECTIONS};
    if (releases)
        SSL_CTX_set_mode(server, SSL_MODE_RELEASE_BUFFERS);
    check(SSL_CTX_set_ciphersuites(server, ciphers) == 1, ciphers);
    printf("| SSL_read, SSL_write | %s | %s |", ciphers, releases ? "freed each time" : "kept");
    for (int i = 0; i < 2; i++) {
        connect_all(server, client, counts[i]);
        printf(" %.0f |", measure_rounds(counts[i], false));
        if (other_code)
            printf(" %.0f |", measure_rounds(counts[i], true));
        else
            printf(" – |");
        disconnect_all(counts[i]);
    }
    printf("\n");
    SSL_CTX_free(server);
    SSL_CTX_free(client);
}

/* ---- The cipher alone ------------------------------------------------------------------------ */

static EVP_CIPHER_CTX *make_cipher(const EVP_CIPHER *cipher, bool seals)
{
    static const unsigned char key[32], nonce[12];
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    check(EVP_CipherInit_ex(c, cipher, NULL, key, nonce, seals) == 1, "a cipher");
    return c;
}

static void pass_record(EVP_CIPHER_CTX *c, bool seals, unsigned char *bytes, int n,
                        unsigned char *tag)
{
    static unsigned char nonce[12], head[HEAD_BYTES];
    int out;
    bool fine = EVP_CipherInit_ex(c, NULL, NULL, NULL, nonce, seals) == 1 &&
                EVP_CipherUpdate(c, NULL, &out, head, HEAD_BYTES) == 1 &&
                EVP_CipherUpdate(c, bytes, &out, bytes, n) == 1;
    if (!seals)
        fine &= EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) == 1;
    fine &= EVP_CipherFinal_ex(c, bytes, &out) == 1;
    if (seals)
        fine &= EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, tag) == 1;
    check(fine, "a record");
}

static void measure_cipher(const char *name)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, NULL);
    EVP_CIPHER_CTX *sealer = make_cipher(cipher, true), *opener = make_cipher(cipher, false);
    static unsigned char sealed[REQUEST_BYTES], bytes[ANSWER_BYTES];
    unsigned char sealed_tag[TAG_BYTES], tag[TAG_BYTES];
    uint64_t best_ns = UINT64_MAX;
    pass_record(sealer, true, sealed, REQUEST_BYTES, sealed_tag);
    for (int i = 0; i < ROUNDS; i++) {
        static unsigned char copies[CONNECTIONS][REQUEST_BYTES];
        for (int k = 0; k < CONNECTIONS; k++)
            memcpy(copies[k], sealed, REQUEST_BYTES);
        uint64_t from_ns = now_ns();
        for (int k = 0; k < CONNECTIONS; k++) {
            pass_record(opener, false, copies[k], REQUEST_BYTES, sealed_tag);
            pass_record(sealer, true, bytes, ANSWER_BYTES, tag);
        }
        uint64_t took_ns = now_ns() - from_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    printf("| EVP alone | %s | – | %.0f | – | – | – |\n", name, (double)best_ns / CONNECTIONS);
    EVP_CIPHER_CTX_free(sealer);
    EVP_CIPHER_CTX_free(opener);
    EVP_CIPHER_free(cipher);
}

int main(void)
{
    static const char *const suites[] = {"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256",
                                         "TLS_CHACHA20_POLY1305_SHA256"};
    make_other_code();
    printf(
        "%s\n\n| a request and its answer | cipher | buffers | 8 hot ns | 8 cold | 64 hot | 64 cold |"
        "\n|---|---|---|---|---|---|---|\n",
        OpenSSL_version(OPENSSL_VERSION));
    for (size_t i = 0; i < sizeof(suites) / sizeof(suites[0]); i++) {
        measure_ssl(suites[i], true);
        measure_ssl(suites[i], false);
    }
    measure_cipher("AES-256-GCM");
    measure_cipher("AES-128-GCM");
    measure_cipher("ChaCha20-Poly1305");
    return 0;
}
