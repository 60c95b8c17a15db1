/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BIO of either end reads from one wire and writes to the other. It gives one record at a time,
 * as a socket does on which a client waits for each answer.
 */
#include "tls_pair.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 5 }; /* of a record, with its length in the last two */

struct ends {
    struct wire *in, *out;
};

void tls_check(bool fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "OpenSSL: %s failed\n", what);
    exit(1);
}

/* ---- A BIO of two wires ---------------------------------------------------------------------- */

static size_t next_record_bytes(const struct wire *w)
{
    const unsigned char *head = (const unsigned char *)w->bytes + w->at;
    size_t left = w->end - w->at;
    size_t n = left < HEAD_BYTES ? left : HEAD_BYTES + ((size_t)head[3] << 8 | head[4]);
    return n < left ? n : left;
}

static int read_wire(BIO *bio, char *bytes, int n_bytes)
{
    struct wire *w = ((struct ends *)BIO_get_data(bio))->in;
    size_t n = next_record_bytes(w);
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
    tls_check(w->end + (size_t)n_bytes <= WIRE_BYTES, "room on the wire");
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

static void join_wires(SSL *ssl, struct wire *in, struct wire *out)
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
    tls_check(ends && bio, "memory");
    *ends = (struct ends){in, out};
    BIO_set_data(bio, ends);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

SSL_CTX *tls_server(void)
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
    tls_check(X509_sign(x, key, EVP_sha256()) > 0 && SSL_CTX_use_certificate(ctx, x) == 1 &&
                  SSL_CTX_use_PrivateKey(ctx, key) == 1,
              "the certificate");
    X509_free(x);
    EVP_PKEY_free(key);
    SSL_CTX_set_read_ahead(ctx, 1); /* as net/tls_files.c */
    return ctx;
}

void tls_pair_connect(struct tls_pair *p, SSL_CTX *server, SSL_CTX *client)
{
    p->to_server.at = p->to_server.end = p->to_client.at = p->to_client.end = 0;
    p->server = SSL_new(server);
    p->client = SSL_new(client);
    join_wires(p->server, &p->to_server, &p->to_client);
    join_wires(p->client, &p->to_client, &p->to_server);
    SSL_set_accept_state(p->server);
    SSL_set_connect_state(p->client);
    for (int k = 0; k < 10; k++) {
        (void)SSL_do_handshake(p->client);
        (void)SSL_do_handshake(p->server);
    }
    tls_check(SSL_is_init_finished(p->server) && SSL_is_init_finished(p->client), "a handshake");
}

void tls_pair_done(struct tls_pair *p)
{
    free(BIO_get_data(SSL_get_rbio(p->server)));
    free(BIO_get_data(SSL_get_rbio(p->client)));
    SSL_free(p->server);
    SSL_free(p->client);
}
