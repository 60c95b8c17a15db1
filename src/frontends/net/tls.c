/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL reads and writes through a BIO of ours, so that it makes the system calls that a
 * connection without TLS makes: no second recv() on a socket that a short read has emptied, and no
 * SIGPIPE.
 *
 * That BIO takes every byte that OpenSSL writes. What the socket has no room for is held, and
 * tls_write() writes no record while something is. So SSL_write() never has to be repeated, and the
 * caller's bytes are free when it returns. Held are at most GATHERED_BYTES of records, a flight of
 * the handshake and answers to messages of the client; a client that asks for more of these without
 * reading is cut off.
 *
 * A record costs one copy of its bytes on each side, inside OpenSSL, and a second one before
 * SSL_write() where several pieces make a record. The records of a large write are gathered, for
 * one send() of several: a send() takes longer than the copy.
 *
 * Thread: the worker's. Errors of other users of OpenSSL may be in the thread's list of errors, so
 * SSL_get_error(), which looks there, is not called: the BIO knows whether the socket is empty.
 */
#include "frontends/net/tls.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/budget.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "frontends/net/tls_files.h"

enum {
    RECORD_BYTES = SSL3_RT_MAX_PLAIN_LENGTH,
    MAX_HELD_BYTES = 256 << 10,
    MAX_NAMES_BYTES = 64 << 10, /* of a client's certificate */
    /*
     * What OpenSSL keeps of an idle connection: 14 KiB of TLS 1.3, and the client's certificate.
     * During the handshake it is about twice as much.
     */
    KEPT_BYTES = 20 << 10,
    /*
     * A read of data takes up to two system calls, for a record that came in two parts. What needs
     * more carries no data, and goes on in another turn.
     */
    RECEIVES = 2,
    HANDSHAKE_RECEIVES = 8,
    GATHERED_BYTES = 128 << 10, /* within MAX_HELD_BYTES */
    /*
     * OpenSSL frees its buffers for records after each record. A connection that has read so often
     * since it was last at rest keeps them, which saves a tenth of what a small record costs.
     */
    BUSY_READS = 32,
    BUFFER_BYTES = 2 * (17 << 10), /* one for each direction */
    SPARE_BYTES = 1 << 20,         /* … for which nothing else may have to be given up */
};

struct tls {
    SSL *ssl;
    struct tls_files *files;
    struct budget *budget;
    int fd;
    bool established;
    bool failed;               /* OpenSSL must not be called again */
    bool ended;                /* the client has sent close_notify, or closed its side */
    bool emptied;              /* in this call: the socket has no more bytes */
    bool cut;                  /* in this call: it has, but receives_left is 0 */
    bool starved;              /* the last read of OpenSSL's got no byte for now */
    bool unread;               /* see tls_reads_on() */
    bool more_follows;         /* another record of the same tls_write() */
    char *gathered;            /* in a large tls_write(): a block for its records, or NULL */
    size_t n_gathered;         /* bytes there that the socket was not offered yet */
    bool keeps_buffers;        /* until tls_rest() */
    unsigned int n_reads;      /* since it was last at rest, until it keeps them */
    int receives_left;         /* of this call */
    int error;                 /* errno of a send() or recv() that failed; 0: none */
    size_t n_sent, n_received; /* by the socket, since they were last taken */
    struct buf held;           /* what the socket had no room for, from held_at on */
    size_t held_at;
    struct buf names; /* of the client, each behind its length; see read_names() */
    bool names_read;
};

/* ---- The BIO --------------------------------------------------------------------------------- */

static ssize_t send_bytes(struct tls *t, const void *bytes, size_t n_bytes, int flags)
{
    ssize_t n;
    do
        n = send(t->fd, bytes, n_bytes, MSG_NOSIGNAL | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN) {
        t->error = errno;
        return -1;
    }
    n = MAX(n, 0);
    t->n_sent += (size_t)n;
    return n;
}

/* Sends the bytes as far as the socket has room, and holds the others. */
static bool send_or_hold(struct tls *t, const char *bytes, size_t n_bytes)
{
    if (t->held.size == 0) {
        ssize_t sent = send_bytes(t, bytes, n_bytes, t->more_follows ? MSG_MORE : 0);
        if (sent < 0)
            return false;
        bytes += sent;
        n_bytes -= (size_t)sent;
    }
    if (n_bytes > 0)
        buf_add(&t->held, bytes, n_bytes);
    if (t->held.failed)
        t->error = ENOBUFS;
    return !t->held.failed;
}

static bool send_gathered(struct tls *t)
{
    size_t n_bytes = t->n_gathered;
    t->n_gathered = 0;
    return n_bytes == 0 || send_or_hold(t, t->gathered, n_bytes);
}

/* What is held goes first, so nothing is gathered while something is. */
static int write_bio(BIO *bio, const char *bytes, int n_bytes)
{
    struct tls *t = BIO_get_data(bio);
    size_t n = (size_t)n_bytes;
    bool is_fine = true;
    BIO_clear_retry_flags(bio);
    if (n > GATHERED_BYTES - t->n_gathered)
        is_fine = send_gathered(t);
    if (is_fine && t->gathered && t->held.size == 0 && n <= GATHERED_BYTES) {
        memcpy(t->gathered + t->n_gathered, bytes, n);
        t->n_gathered += n;
        is_fine = t->more_follows || send_gathered(t);
    } else if (is_fine) {
        is_fine = send_or_hold(t, bytes, n);
    }
    return is_fine ? n_bytes : -1;
}

static int read_bio(BIO *bio, char *bytes, int n_bytes)
{
    struct tls *t = BIO_get_data(bio);
    ssize_t n;
    BIO_clear_retry_flags(bio);
    t->cut = !t->emptied && t->receives_left-- <= 0;
    t->starved = t->emptied || t->cut;
    if (t->starved) {
        BIO_set_retry_read(bio);
        return -1;
    }
    do
        n = recv(t->fd, bytes, (size_t)n_bytes, 0);
    while (n < 0 && errno == EINTR);
    t->emptied = n < n_bytes; /* a short read, as conn.c takes it, too */
    if (n > 0) {
        t->n_received += (size_t)n;
        return (int)n;
    }
    if (n == 0)
        t->ended = true;
    else if (errno == EAGAIN) {
        t->starved = true;
        BIO_set_retry_read(bio);
    } else
        t->error = errno;
    return n == 0 ? 0 : -1;
}

static long control_bio(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *socket_bio; /* for ever */
static pthread_once_t socket_bio_once = PTHREAD_ONCE_INIT;

static void make_socket_bio(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "conch socket");
    if (!m)
        return;
    BIO_meth_set_write(m, write_bio);
    BIO_meth_set_read(m, read_bio);
    BIO_meth_set_ctrl(m, control_bio);
    socket_bio = m;
}

/* ---- Begin and end --------------------------------------------------------------------------- */

static SSL *new_ssl(struct tls *t)
{
    pthread_once(&socket_bio_once, make_socket_bio);
    SSL_CTX *ctx = tls_files_get(t->files);
    SSL *ssl = SSL_new(ctx);
    BIO *bio = ssl && socket_bio ? BIO_new(socket_bio) : NULL;
    SSL_CTX_free(ctx);
    if (!bio) {
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_accept_state(ssl);
    return ssl;
}

struct tls *tls_new(struct tls_files *files, int fd, struct pool *pool, struct budget *budget)
{
    struct tls *t = mem_try_zalloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->files = files;
    t->fd = fd;
    t->ssl = new_ssl(t);
    if (!t->ssl || !budget_take(budget, KEPT_BYTES)) {
        SSL_free(t->ssl);
        mem_free(t);
        return NULL;
    }
    t->budget = budget;
    buf_init_pooled(&t->held, MAX_HELD_BYTES, pool);
    buf_init_pooled(&t->names, MAX_NAMES_BYTES, pool);
    return t;
}

static void send_close_notify(struct tls *t)
{
    if (!t->established || t->failed || SSL_get_shutdown(t->ssl) & SSL_SENT_SHUTDOWN)
        return;
    if (SSL_shutdown(t->ssl) < 0)
        ERR_clear_error();
}

/* Lets OpenSSL keep its buffers, while the budget has room for much more than these. */
static void keep_buffers(struct tls *t)
{
    t->n_reads = 0;
    t->keeps_buffers =
        budget_could_take(t->budget, SPARE_BYTES) && budget_take(t->budget, BUFFER_BYTES);
    if (t->keeps_buffers)
        SSL_clear_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
}

void tls_rest(struct tls *t)
{
    t->n_reads = 0;
    if (!t->keeps_buffers || SSL_free_buffers(t->ssl) != 1)
        return;
    SSL_set_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
    t->keeps_buffers = false;
    budget_give(t->budget, BUFFER_BYTES);
}

void tls_free(struct tls *t)
{
    if (!t)
        return;
    if (t->held.size == 0) /* else it would come in the middle of a record */
        send_close_notify(t);
    SSL_free(t->ssl);
    buf_done(&t->held);
    buf_done(&t->names);
    budget_give(t->budget, KEPT_BYTES + (t->keeps_buffers ? BUFFER_BYTES : 0));
    mem_free(t);
}

enum tls_result tls_flush(struct tls *t)
{
    if (t->held.size == 0)
        return TLS_DONE;
    ssize_t n = send_bytes(t, t->held.data + t->held_at, t->held.size - t->held_at, 0);
    if (n < 0)
        return TLS_FAILED;
    t->held_at += (size_t)n;
    if (t->held_at < t->held.size)
        return TLS_WAITS;
    struct pool *pool = t->held.pool;
    buf_done(&t->held);
    buf_init_pooled(&t->held, MAX_HELD_BYTES, pool);
    t->held_at = 0;
    return TLS_DONE;
}

enum tls_result tls_end(struct tls *t)
{
    send_close_notify(t);
    return tls_flush(t);
}

/* ---- The handshake --------------------------------------------------------------------------- */

static void begin_tls_call(struct tls *t, int receives)
{
    t->emptied = t->cut = t->starved = false;
    t->receives_left = receives;
}

/*
 * OpenSSL has returned without a result: whether it only wants bytes, now or in another turn.
 * SSL_want_read() alone is also true when what has come is no message.
 */
static bool only_waits(const struct tls *t)
{
    return !t->failed && !t->ended && t->error == 0 && t->starved && SSL_want_read(t->ssl);
}

/* Logs a failure, once, and empties OpenSSL's list of errors. */
static void note_failure(struct tls *t, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    if (!t->failed)
        log_verbose(1, "TLS: %s: %s", what,
                    t->error   ? strerrordesc_np(t->error)
                    : reason   ? reason
                    : t->ended ? "the client has closed the connection"
                               : "no reason is known");
    ERR_clear_error();
    t->failed = true;
}

static bool has_protocol(const struct tls *t)
{
    const unsigned char *chosen;
    unsigned int n;
    SSL_get0_alpn_selected(t->ssl, &chosen, &n);
    return n > 0 || !tls_files_alpn(t->files); /* choose_protocol() knows the service's only */
}

/*
 * A client without the protocol is not a client of this service, and is told no more than that the
 * connection ends.
 * Source: grpc++ does so, too (tests/system/test_grpc_tls.py)
 */
static void end_for_protocol(struct tls *t)
{
    log_verbose(1, "TLS: the client does not negotiate the protocol '%s'",
                tls_files_alpn(t->files));
    send_close_notify(t);
    t->established = false;
    t->failed = true;
}

enum tls_result tls_handshake(struct tls *t)
{
    begin_tls_call(t, HANDSHAKE_RECEIVES);
    t->unread = false;
    int result = t->failed ? -1 : SSL_do_handshake(t->ssl);
    if (result == 1) {
        t->unread = true; /* a request may have come with the client's last message */
        t->established = true;
        if (has_protocol(t))
            return TLS_DONE;
        end_for_protocol(t);
        return TLS_FAILED;
    }
    if (only_waits(t)) {
        t->unread = t->cut;
        return TLS_WAITS;
    }
    note_failure(t, "a handshake failed");
    return TLS_FAILED;
}

bool tls_is_established(const struct tls *t)
{
    return t->established;
}

/* ---- The client ------------------------------------------------------------------------------ */

static void add_peer_name(struct tls *t, const void *name, size_t length)
{
    buf_add(&t->names, &length, sizeof(length));
    buf_add(&t->names, name, length);
}

static void add_alternative_names(struct tls *t, const X509 *certificate)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_DNS && name->type != GEN_URI && name->type != GEN_EMAIL)
            continue;
        const ASN1_STRING *text = name->d.ia5;
        add_peer_name(t, ASN1_STRING_get0_data(text), (size_t)ASN1_STRING_length(text));
    }
    GENERAL_NAMES_free(names);
}

/* The common name, if there is just one: of several nobody knows which is meant. */
static void add_common_name(struct tls *t, const X509 *certificate)
{
    const X509_NAME *subject = X509_get_subject_name(certificate);
    unsigned char *text = NULL;
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
        return;
    int length =
        ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (length > 0)
        add_peer_name(t, text, (size_t)length);
    OPENSSL_free(text);
}

/*
 * The names of the client, once for its connection: reading them takes some microseconds. Names
 * that do not fit leave the client without any.
 */
static void read_names(struct tls *t)
{
    const X509 *certificate = t->established ? SSL_get0_peer_certificate(t->ssl) : NULL;
    if (!certificate)
        return;
    t->names_read = true;
    add_alternative_names(t, certificate);
    if (t->names.size == 0 && !t->names.failed)
        add_common_name(t, certificate);
    if (t->names.failed)
        buf_done(&t->names);
    ERR_clear_error();
}

bool tls_peer_has_name(struct tls *t, const char *name, size_t length)
{
    size_t at = 0, n;
    if (!t->names_read)
        read_names(t);
    for (; at < t->names.size; at += sizeof(n) + n) {
        memcpy(&n, t->names.data + at, sizeof(n));
        if (n == length && memcmp(t->names.data + at + sizeof(n), name, n) == 0)
            return true;
    }
    return false;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Reads from one record; 0 when there is nothing now, or never again. */
static size_t read_record(struct tls *t, char *bytes, size_t room_bytes)
{
    if (t->failed)
        return 0;
    t->receives_left = RECEIVES;
    t->starved = false;
    int n = SSL_read(t->ssl, bytes, (int)MIN(room_bytes, (size_t)RECORD_BYTES));
    if (n > 0) {
        t->unread = !t->emptied || SSL_has_pending(t->ssl);
        return (size_t)n;
    }
    if (SSL_get_shutdown(t->ssl) & SSL_RECEIVED_SHUTDOWN)
        t->ended = true;
    bool waits = only_waits(t);
    if (t->ended)
        ERR_clear_error(); /* "unexpected EOF" is no failure, and no other connection's either */
    else if (!waits)
        note_failure(t, "a connection failed");
    t->unread = !waits || t->cut;
    return 0;
}

/* The result of a read without a byte; see tls_read(). */
static ssize_t read_nothing(struct tls *t)
{
    if (t->failed)
        errno = t->error ? t->error : EPROTO;
    else if (t->ended)
        t->unread = false;
    else
        errno = t->unread ? EINTR : EAGAIN;
    return !t->failed && t->ended ? 0 : -1;
}

ssize_t tls_read(struct tls *t, const struct iovec *space, int n_space)
{
    size_t total = 0, n = 1;
    if (UNLIKELY(!t->keeps_buffers) && ++t->n_reads > BUSY_READS && !t->failed)
        keep_buffers(t);
    begin_tls_call(t, 0);
    t->unread = true;
    for (int i = 0; i < n_space && n > 0; i++) {
        char *bytes = space[i].iov_base;
        for (size_t at = 0; at < space[i].iov_len && n > 0 && t->unread; at += n) {
            n = read_record(t, bytes + at, space[i].iov_len - at);
            total += n;
        }
    }
    return total > 0 ? (ssize_t)total : read_nothing(t);
}

bool tls_reads_on(const struct tls *t)
{
    return t->unread;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* A place in a list of pieces. */
struct cursor {
    const struct iovec *piece;
    size_t at; /* in that piece */
};

/*
 * The bytes of the next record: where they lie if one piece has them all, else copied together.
 * Without the copy each head of an HTTP/2 frame would be a record of its own.
 */
static const char *next_record(struct cursor *c, size_t n_bytes, char *together)
{
    if (c->at == c->piece->iov_len)
        *c = (struct cursor){c->piece + 1, 0};
    const char *bytes = (const char *)c->piece->iov_base + c->at;
    if (c->piece->iov_len - c->at >= n_bytes) {
        c->at += n_bytes;
        return bytes;
    }
    for (size_t at = 0; at < n_bytes;) {
        size_t n = MIN(c->piece->iov_len - c->at, n_bytes - at);
        memcpy(together + at, (const char *)c->piece->iov_base + c->at, n);
        at += n;
        c->at += n;
        if (c->at == c->piece->iov_len && at < n_bytes)
            *c = (struct cursor){c->piece + 1, 0};
    }
    return together;
}

static size_t sum_pieces(const struct iovec *pieces, int n_pieces)
{
    size_t n_bytes = 0;
    for (int i = 0; i < n_pieces; i++)
        n_bytes += pieces[i].iov_len;
    return n_bytes;
}

/* Writes a record. It is the socket's, or held, when this returns. */
static bool write_record(struct tls *t, const char *bytes, size_t n_bytes, bool more_follows)
{
    if (t->failed)
        return false;
    t->more_follows = more_follows;
    int n = SSL_write(t->ssl, bytes, (int)n_bytes);
    t->more_follows = false;
    if (n == (int)n_bytes)
        return true;
    note_failure(t, "a connection failed");
    return false;
}

/* Returns how many bytes are in records that the socket has, or that are held; -1: TLS failed. */
static ssize_t write_records(struct tls *t, const struct iovec *pieces, size_t n_bytes)
{
    char together[RECORD_BYTES];
    struct cursor cursor = {pieces, 0};
    size_t done = 0;
    while (done < n_bytes && t->held.size == 0) {
        size_t n = MIN(n_bytes - done, (size_t)RECORD_BYTES);
        const char *bytes = next_record(&cursor, n, together);
        if (!write_record(t, bytes, n, done + n < n_bytes))
            return -1;
        done += n;
    }
    return (ssize_t)done;
}

ssize_t tls_write(struct tls *t, const struct iovec *pieces, int n_pieces)
{
    size_t n_bytes = sum_pieces(pieces, n_pieces);
    if (n_bytes > RECORD_BYTES && t->held.size == 0) /* without memory each record is sent alone */
        t->gathered = pool_alloc(t->held.pool, GATHERED_BYTES, NULL);
    ssize_t done = write_records(t, pieces, n_bytes);
    pool_release(TAKE(t->gathered));
    t->n_gathered = 0;
    if (done > 0)
        return done;
    errno = done == 0 ? EAGAIN : t->error ? t->error : EPROTO;
    return -1;
}

/* ---- Counts ---------------------------------------------------------------------------------- */

size_t tls_held_bytes(const struct tls *t)
{
    return t->held.size - t->held_at;
}

size_t tls_take_sent(struct tls *t)
{
    size_t n = t->n_sent;
    t->n_sent = 0;
    return n;
}

size_t tls_take_received(struct tls *t)
{
    size_t n = t->n_received;
    t->n_received = 0;
    return n;
}
