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
 *
 *     bench_tls_loop --allocations     prints {"read":…,"written":…}: how often OpenSSL allocates
 *                                      memory for a record
 */
#include "tls_pair.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
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
    TAG_BYTES = 16,
    HEAD_BYTES = 5, /* of a record; OpenSSL authenticates them, too */
};

static struct tls_pair connections[CONNECTIONS];

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
    tls_check(code != MAP_FAILED, "a mapping");
    memset(code, NOP, CACHE_BYTES);
    code[CACHE_BYTES - 1] = RET;
    tls_check(mprotect(code, CACHE_BYTES, PROT_READ | PROT_EXEC) == 0, "code");
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

/* ---- Connections ----------------------------------------------------------------------------- */

static void connect_all(SSL_CTX *server, SSL_CTX *client, int n)
{
    for (int i = 0; i < n; i++)
        tls_pair_connect(&connections[i], server, client);
}

static void disconnect_all(int n)
{
    for (int i = 0; i < n; i++)
        tls_pair_done(&connections[i]);
}

static void serve_one(struct tls_pair *c)
{
    static char answer[ANSWER_BYTES], got[16 << 10];
    int n = SSL_read(c->server, got, sizeof(got));
    int m = SSL_write(c->server, answer, ANSWER_BYTES);
    tls_check(n == REQUEST_BYTES && m == ANSWER_BYTES, "serving");
}

/* A request of each of n connections; returns the time of the server's side. */
static uint64_t serve_all(int n, bool is_cold)
{
    static char request[REQUEST_BYTES], got[16 << 10];
    uint64_t took_ns = 0;
    for (int i = 0; i < n; i++)
        tls_check(SSL_write(connections[i].client, request, REQUEST_BYTES) == REQUEST_BYTES,
                  "asking");
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
        tls_check(SSL_read(connections[i].client, got, sizeof(got)) == ANSWER_BYTES, "hearing");
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

/* ---- Allocations ------------------------------------------------------------------------------
 */

static unsigned long n_allocations;

static void *count_malloc(size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    n_allocations++;
    return malloc(n);
}

static void *count_realloc(void *p, size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    n_allocations++;
    return realloc(p, n);
}

static void count_free(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    free(p);
}

/* Prints how often OpenSSL allocates memory for a record, on a connection that keeps its buffers.
 */
static void print_allocations(void)
{
    static char request[REQUEST_BYTES], got[16 << 10];
    SSL_CTX *server = tls_server(), *client = SSL_CTX_new(TLS_client_method());
    struct tls_pair *c = &connections[0];
    unsigned long n_read = 0, n_written = 0;
    tls_pair_connect(c, server, client);
    for (int i = 0; i < ROUNDS; i++) {
        tls_check(SSL_write(c->client, request, REQUEST_BYTES) == REQUEST_BYTES, "asking");
        n_allocations = 0;
        tls_check(SSL_read(c->server, got, sizeof(got)) == REQUEST_BYTES, "reading");
        n_read += n_allocations;
        n_allocations = 0;
        tls_check(SSL_write(c->server, got, ANSWER_BYTES) == ANSWER_BYTES, "answering");
        n_written += n_allocations;
        tls_check(SSL_read(c->client, got, sizeof(got)) == ANSWER_BYTES, "hearing");
    }
    printf("{\"read\":%.3f,\"written\":%.3f}\n", (double)n_read / ROUNDS,
           (double)n_written / ROUNDS);
    tls_pair_done(c);
    SSL_CTX_free(server);
    SSL_CTX_free(client);
}

static void measure_ssl(const char *ciphers, bool releases)
{
    SSL_CTX *server = tls_server(), *client = SSL_CTX_new(TLS_client_method());
    static const int counts[] = {8, CONNECTIONS};
    if (releases)
        SSL_CTX_set_mode(server, SSL_MODE_RELEASE_BUFFERS);
    tls_check(SSL_CTX_set_ciphersuites(server, ciphers) == 1, ciphers);
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
    tls_check(EVP_CipherInit_ex(c, cipher, NULL, key, nonce, seals) == 1, "a cipher");
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
    tls_check(fine, "a record");
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

int main(int argc, char **argv)
{
    static const char *const suites[] = {"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256",
                                         "TLS_CHACHA20_POLY1305_SHA256"};
    if (argc > 1 && strcmp(argv[1], "--allocations") == 0) {
        tls_check(CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) == 1,
                  "counting");
        print_allocations();
        return 0;
    }
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
