/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of the files becomes one SSL_CTX. It is never changed: a change of the files makes
 * another one, and the old one ends with the last connection that has it. Its keys for session
 * tickets end with it, so that no client resumes a session which the new roots would not allow.
 *
 * Threads: "tls-files" (base/file_watch.h) reads the files when they have changed. `ctx` is read by
 * loops, under mu.
 */
#include "frontends/net/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/file_watch.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"

enum {
    LEVEL = 892, /* a leaf in the table of core/README.md */
    MAX_FILE_BYTES = 4 << 20,
    N_FILES = 3,
};

/* RFC 9113 §9.2.2 forbids all others of TLS 1.2 for HTTP/2; those of TLS 1.3 are all allowed. */
#define CIPHERS_1_2 "ECDHE+AESGCM:ECDHE+CHACHA20"

struct tls_files {
    /* Constant. */
    char *paths[N_FILES]; /* certificate, key, roots; roots may be NULL */
    char *alpn;
    bool alpn_is_optional;
    struct file_watch *watch;

    struct mutex mu;
    SSL_CTX *ctx; /* under mu */
};

enum { CERTIFICATE, KEY, ROOTS };

static const char *const file_names[N_FILES] = {"server certificate", "server key",
                                                "root certificate"};

const char *tls_files_alpn(const struct tls_files *f)
{
    return f->alpn_is_optional ? NULL : f->alpn;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* An error of a file, with the reason that OpenSSL gives; empties OpenSSL's list of errors. */
static struct status *unfit(const struct tls_files *f, int which, const char *otherwise)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    struct status *st = status_new(STATUS_INVALID_ARG, "%s '%s': %s", file_names[which],
                                   f->paths[which], reason ? reason : otherwise);
    ERR_clear_error();
    return st;
}

static struct status *read_pem(const struct tls_files *f, int which, struct buf *content, BIO **ret)
{
    buf_init(content, MAX_FILE_BYTES);
    struct status *st = file_read(f->paths[which], content);
    if (st) {
        struct status *named = status_new(
            status_code(st) == STATUS_UNAVAILABLE ? STATUS_UNAVAILABLE : STATUS_INVALID_ARG,
            "%s '%s': %s", file_names[which], f->paths[which], status_message(st));
        status_free(st);
        return named;
    }
    ERR_clear_error();
    *ret = BIO_new_mem_buf(buf_text(content), (int)content->size);
    return *ret ? NULL : status_no_memory();
}

/* Whether the last error says no more than that the content has no further PEM block. */
static bool is_end_of_pem(void)
{
    unsigned long error = ERR_peek_last_error();
    return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

/* A key with a passphrase is unfit; without this OpenSSL would ask at the terminal. */
static int refuse_passphrase(char *text, int size, int rwflag, void *arg)
{
    (void)text;
    (void)size;
    (void)rwflag;
    *(bool *)arg = true;
    return -1;
}

static int no_passphrase(char *text, int size, int rwflag, void *arg)
{
    (void)text;
    (void)size;
    (void)rwflag;
    (void)arg;
    return -1;
}

static void warn_of_time(const struct tls_files *f, X509 *certificate)
{
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        log_warn("server certificate '%s' has expired", f->paths[CERTIFICATE]);
    else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
        log_warn("server certificate '%s' is not valid yet", f->paths[CERTIFICATE]);
}

/* The server's certificate, then those that clients need to get from it to a root. */
static bool use_chain(const struct tls_files *f, SSL_CTX *ctx, BIO *pem)
{
    X509 *own = PEM_read_bio_X509_AUX(pem, NULL, no_passphrase, NULL), *next;
    bool fit = own && SSL_CTX_use_certificate(ctx, own) == 1;
    if (fit)
        warn_of_time(f, own);
    X509_free(own);
    while (fit && (next = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL))) {
        fit = SSL_CTX_add0_chain_cert(ctx, next) == 1;
        if (!fit)
            X509_free(next);
    }
    return fit && is_end_of_pem();
}

static struct status *use_certificate(const struct tls_files *f, SSL_CTX *ctx)
{
    struct buf content;
    BIO *pem = NULL;
    struct status *st = read_pem(f, CERTIFICATE, &content, &pem);
    if (!st && !use_chain(f, ctx, pem))
        st = unfit(f, CERTIFICATE, "not a certificate");
    BIO_free(pem);
    buf_done(&content);
    return st;
}

static struct status *use_key(const struct tls_files *f, SSL_CTX *ctx)
{
    struct buf content;
    BIO *pem = NULL;
    EVP_PKEY *key = NULL;
    bool has_passphrase = false;
    struct status *st = read_pem(f, KEY, &content, &pem);
    if (!st) {
        key = PEM_read_bio_PrivateKey(pem, NULL, refuse_passphrase, &has_passphrase);
        if (has_passphrase)
            st = status_new(STATUS_INVALID_ARG, "%s '%s': has a passphrase", file_names[KEY],
                            f->paths[KEY]);
        else if (!key || SSL_CTX_use_PrivateKey(ctx, key) != 1 ||
                 SSL_CTX_check_private_key(ctx) != 1)
            st = unfit(f, KEY, "not a private key");
    }
    EVP_PKEY_free(key);
    BIO_free(pem);
    if (content.data)
        OPENSSL_cleanse(content.data, content.size);
    buf_done(&content);
    return st;
}

/* Each certificate of the file is trusted, and clients are told its name. */
static bool use_each_root(SSL_CTX *ctx, BIO *pem)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    X509 *root;
    unsigned int n = 0;
    bool fit = true;
    while (fit && (root = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL))) {
        fit = X509_STORE_add_cert(store, root) == 1 && SSL_CTX_add_client_CA(ctx, root) == 1;
        X509_free(root);
        n++;
    }
    return fit && n > 0 && is_end_of_pem();
}

static struct status *use_roots(const struct tls_files *f, SSL_CTX *ctx)
{
    struct buf content;
    BIO *pem = NULL;
    struct status *st = read_pem(f, ROOTS, &content, &pem);
    if (!st && !use_each_root(ctx, pem))
        st = unfit(f, ROOTS, "no certificate");
    BIO_free(pem);
    buf_done(&content);
    /* A root may be one that another has signed. */
    X509_STORE_set_flags(SSL_CTX_get_cert_store(ctx), X509_V_FLAG_PARTIAL_CHAIN);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return st;
}

/* Where the client offers the protocol, as ALPN writes it: behind a byte with its length. */
static const unsigned char *find_offer(const char *name, size_t length,
                                       const unsigned char *offered, unsigned int n_offered)
{
    for (unsigned int at = 0; at < n_offered; at += 1 + offered[at]) {
        if (offered[at] == length && memcmp(&offered[at + 1], name, length) == 0)
            return &offered[at];
    }
    return NULL;
}

/*
 * Chooses the first of the service's protocols that the client offers. If it offers none of them, a
 * service that needs no protocol refuses the client (RFC 7301 §3.2). With a service that needs one
 * the handshake goes on without a protocol, as in grpc++, and the connection ends behind it
 * (tls.c). OpenSSL has checked the form of the offer.
 */
static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_length,
                           const unsigned char *offered, unsigned int n_offered, void *arg)
{
    const struct tls_files *f = arg;
    const unsigned char *found = NULL;
    (void)ssl;
    for (const char *name = f->alpn; *name && !found;) {
        size_t length = strcspn(name, ",");
        found = find_offer(name, length, offered, n_offered);
        name += length + (name[length] == ',');
    }
    if (!found)
        return f->alpn_is_optional ? SSL_TLSEXT_ERR_ALERT_FATAL : SSL_TLSEXT_ERR_NOACK;
    *ret = found + 1;
    *ret_length = *found;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *new_ctx(struct tls_files *f)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx)
        return NULL;
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS); /* but for busy connections: tls.c */
    SSL_CTX_set_read_ahead(ctx, 1); /* one system call reads a record with its head */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* clients keep sessions, as tickets */
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, f);
    static const unsigned char id[] = "conch";
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
        SSL_CTX_set_cipher_list(ctx, CIPHERS_1_2) == 1 &&
        SSL_CTX_set_session_id_context(ctx, id, sizeof(id)) == 1)
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

static struct status *read_files(struct tls_files *f, SSL_CTX **ret)
{
    SSL_CTX *ctx = new_ctx(f);
    struct status *st = NULL;
    if (!ctx) {
        const char *reason = ERR_reason_error_string(ERR_peek_last_error());
        st = status_new(STATUS_UNAVAILABLE, "OpenSSL: %s", reason ? reason : "out of memory");
        ERR_clear_error();
    }
    if (!st)
        st = use_certificate(f, ctx);
    if (!st)
        st = use_key(f, ctx);
    if (!st && f->paths[ROOTS])
        st = use_roots(f, ctx);
    ERR_clear_error(); /* the end of each file is an error of OpenSSL */
    if (st)
        SSL_CTX_free(ctx);
    else
        *ret = ctx;
    return st;
}

static bool read_again(void *arg)
{
    struct tls_files *f = arg;
    SSL_CTX *ctx;
    struct status *st = read_files(f, &ctx);
    if (st) {
        bool is_final = status_code(st) != STATUS_UNAVAILABLE;
        log_status(LOG_WARN, "TLS goes on with the files that were read before", st);
        return is_final;
    }
    mutex_lock(&f->mu);
    SSL_CTX *before = f->ctx;
    f->ctx = ctx;
    mutex_unlock(&f->mu);
    SSL_CTX_free(before);
    log_info("TLS: read %s '%s' and %s '%s' again%s", file_names[CERTIFICATE],
             f->paths[CERTIFICATE], file_names[KEY], f->paths[KEY],
             f->paths[ROOTS] ? ", with the root certificate" : "");
    return true;
}

/* ---- Start and stop -------------------------------------------------------------------------- */

void tls_files_stop(struct tls_files *f)
{
    if (!f)
        return;
    file_watch_free(f->watch);
    for (int i = 0; i < N_FILES; i++)
        mem_free(f->paths[i]);
    mem_free(f->alpn);
    SSL_CTX_free(f->ctx);
    mutex_done(&f->mu);
    mem_free(f);
}

struct status *tls_files_start(const struct tls_options *o, struct tls_files **ret)
{
    struct tls_files *f = mem_zalloc(sizeof(*f));
    f->paths[CERTIFICATE] = mem_strdup(o->certificate);
    f->paths[KEY] = mem_strdup(o->key);
    f->paths[ROOTS] = o->root ? mem_strdup(o->root) : NULL;
    f->alpn = mem_strdup(o->alpn);
    f->alpn_is_optional = o->alpn_is_optional;
    struct file_watch_options watch = {.thread_name = "tls-files",
                                       .paths = {o->certificate, o->key, o->root},
                                       .check_ns = o->check_ns,
                                       .on_change = read_again,
                                       .arg = f};
    mutex_init(&f->mu, LEVEL, "tls_files.mu");
    f->watch = file_watch_new(&watch);
    struct status *st = read_files(f, &f->ctx);
    if (!st)
        st = file_watch_start(f->watch);
    if (st)
        tls_files_stop(f);
    else
        *ret = f;
    return st;
}

SSL_CTX *tls_files_get(struct tls_files *f)
{
    mutex_lock(&f->mu);
    SSL_CTX *ctx = f->ctx;
    SSL_CTX_up_ref(ctx);
    mutex_unlock(&f->mu);
    return ctx;
}

bool tls_files_certificate_s(struct tls_files *f, double *ret_left_s)
{
    int days, seconds;
    SSL_CTX *ctx = tls_files_get(f);
    const X509 *own = SSL_CTX_get0_certificate(ctx);
    bool is_known = own && ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(own)) == 1;
    SSL_CTX_free(ctx);
    ERR_clear_error();
    if (is_known)
        *ret_left_s = (double)days * 24 * 3600 + seconds;
    return is_known;
}
