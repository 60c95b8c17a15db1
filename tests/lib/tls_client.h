/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates for a test, made in a folder of its own, and a client that speaks TLS over a socket
 * through memory, so that the test decides how many bytes move and when.
 */
#ifndef CONCH_TESTS_LIB_TLS_CLIENT_H
#define CONCH_TESTS_LIB_TLS_CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/compiler.h"

/* ---- Certificates ---------------------------------------------------------------------------- */

/* The paths of PEM files: an authority, and who has a certificate of it. */
struct tls_papers {
    char folder[64];
    char root[96], server[96], server_key[96], client[96], client_key[96];
    char stranger[96], stranger_key[96]; /* signed by itself */
};

static inline void tlsc_write_key(const char *path, EVP_PKEY *key, const char *passphrase)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_PrivateKey(f, key, passphrase ? EVP_aes_128_cbc() : NULL, NULL, 0,
                                          NULL, (void *)(uintptr_t)passphrase),
                     1);
    fclose(f);
}

static inline void tlsc_write_certificate(const char *path, X509 *certificate)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509(f, certificate), 1);
    fclose(f);
}

/* Makes a certificate for a key, valid for an hour; issuer NULL: signed by itself. */
static inline X509 *tlsc_certify(const char *name, EVP_PKEY *key, X509 *issuer, EVP_PKEY *signer)
{
    static long serial;
    X509 *x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(issuer ? issuer : x));
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer ? issuer : x, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, NID_basic_constraints,
                                            issuer ? "CA:FALSE" : "critical,CA:TRUE");
    assert_non_null(e);
    X509_add_ext(x, e, -1);
    X509_EXTENSION_free(e);
    assert_true(X509_sign(x, signer, EVP_sha256()) > 0);
    return x;
}

/* Makes a key and its certificate, and writes both. */
static inline void tlsc_issue(const char *name, const char *certificate, const char *key_path,
                              X509 *issuer, EVP_PKEY *signer)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = tlsc_certify(name, key, issuer, signer ? signer : key);
    tlsc_write_key(key_path, key, NULL);
    tlsc_write_certificate(certificate, x);
    X509_free(x);
    EVP_PKEY_free(key);
}

static inline void tlsc_make_papers(struct tls_papers *p)
{
    snprintf(p->folder, sizeof(p->folder), "/tmp/conch-tls-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
#define TLSC_PATH(member, name) snprintf(p->member, sizeof(p->member), "%s/%s", p->folder, name)
    TLSC_PATH(root, "root.pem");
    TLSC_PATH(server, "server.pem");
    TLSC_PATH(server_key, "server.key");
    TLSC_PATH(client, "client.pem");
    TLSC_PATH(client_key, "client.key");
    TLSC_PATH(stranger, "stranger.pem");
    TLSC_PATH(stranger_key, "stranger.key");
#undef TLSC_PATH
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *root = tlsc_certify("root", key, NULL, key);
    tlsc_write_certificate(p->root, root);
    tlsc_issue("localhost", p->server, p->server_key, root, key);
    tlsc_issue("client", p->client, p->client_key, root, key);
    tlsc_issue("stranger", p->stranger, p->stranger_key, NULL, NULL);
    X509_free(root);
    EVP_PKEY_free(key);
}

static inline void tlsc_remove_papers(const struct tls_papers *p)
{
    unlink(p->root);
    unlink(p->server);
    unlink(p->server_key);
    unlink(p->client);
    unlink(p->client_key);
    unlink(p->stranger);
    unlink(p->stranger_key);
    rmdir(p->folder);
}

/* ---- A client -------------------------------------------------------------------------------- */

struct tls_client {
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *in, *out; /* of ssl: bytes from the socket, bytes for it */
    int fd, far_fd;
    bool left; /* the other side has closed */
};

/* Makes a client of a new socket pair. @alpn  in wire form, "\x02h2"; NULL: none */
static inline void tlsc_init(struct tls_client *c, const struct tls_papers *p, const char *alpn)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *c = (struct tls_client){.fd = fds[0], .far_fd = fds[1]};
    c->ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(c->ctx);
    assert_int_equal(SSL_CTX_load_verify_file(c->ctx, p->root), 1);
    SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
    if (alpn)
        SSL_CTX_set_alpn_protos(c->ctx, (const unsigned char *)alpn, (unsigned int)strlen(alpn));
    c->ssl = SSL_new(c->ctx);
    c->in = BIO_new(BIO_s_mem());
    c->out = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(c->in, -1);
    SSL_set_bio(c->ssl, c->in, c->out);
    SSL_set_connect_state(c->ssl);
}

static inline void tlsc_use_certificate(struct tls_client *c, const char *certificate,
                                        const char *key)
{
    assert_int_equal(SSL_use_certificate_file(c->ssl, certificate, SSL_FILETYPE_PEM), 1);
    assert_int_equal(SSL_use_PrivateKey_file(c->ssl, key, SSL_FILETYPE_PEM), 1);
}

/* Sends up to max_bytes that TLS has for the socket; returns how many are left. */
static inline size_t tlsc_send(struct tls_client *c, size_t max_bytes)
{
    char *bytes;
    while (max_bytes > 0 && BIO_get_mem_data(c->out, &bytes) > 0) {
        size_t n = MIN((size_t)BIO_get_mem_data(c->out, &bytes), max_bytes);
        ssize_t sent = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        char gone[4096];
        for (size_t left = (size_t)sent; left > 0;)
            left -= (size_t)BIO_read(c->out, gone, (int)MIN(left, sizeof(gone)));
        max_bytes -= (size_t)sent;
    }
    return (size_t)BIO_get_mem_data(c->out, &bytes);
}

/* Gives TLS what has come. */
static inline void tlsc_receive(struct tls_client *c)
{
    char bytes[4096];
    ssize_t n;
    while ((n = recv(c->fd, bytes, sizeof(bytes), 0)) > 0)
        assert_int_equal(BIO_write(c->in, bytes, (int)n), n);
    c->left |= n == 0;
}

static inline void tlsc_done(struct tls_client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
    ERR_clear_error();
}

#endif
