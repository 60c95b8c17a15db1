/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of one connection, between its socket and its session. conn.c calls tls_read() and
 * tls_write() where it would call recv() and writev(), and they have the same results. The files
 * with the server's key are in tls_files.h.
 *
 * Thread: the worker's.
 */
#ifndef CONCH_FRONTENDS_NET_TLS_H
#define CONCH_FRONTENDS_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"

struct budget;
struct pool;
struct tls;
struct tls_files;

enum tls_result {
    TLS_DONE,
    TLS_WAITS,  /* for the socket, or for another turn: see tls_reads_on() */
    TLS_FAILED, /* the client broke the protocol, showed no fit certificate, or is gone */
};

/*
 * tls_new - TLS of an accepted socket, whose handshake is still to come.
 *
 * @files   must outlive the result
 * @fd      borrowed
 * @pool    has the bytes that a full socket does not take
 * @budget  counts what OpenSSL keeps, as an estimate
 * Returns  NULL when memory is exhausted; tls_free() ends it
 */
struct tls *tls_new(struct tls_files *files, int fd, struct pool *pool, struct budget *budget);

/* tls_free - frees it. Tells the client of the end (close_notify) if it can; NULL is fine. */
void tls_free(struct tls *t);

/*
 * tls_handshake - goes on with the handshake as far as bytes have come. TLS_DONE: the client is who
 * it must be and has negotiated the service's protocol. After TLS_FAILED the client may still have
 * to be told why: tls_end().
 */
enum tls_result tls_handshake(struct tls *t);

/* tls_is_established - whether tls_handshake() has returned TLS_DONE. */
bool tls_is_established(const struct tls *t);

/*
 * tls_peer_has_name - whether the certificate that the client has shown, and that TLS has verified,
 * has that name, byte by byte: as a DNS name, URI or e-mail address among its alternative names. A
 * certificate without any of these has the common name of its subject. False for a client without a
 * certificate.
 */
bool tls_peer_has_name(struct tls *t, const char *name, size_t length);

/*
 * tls_read - fills the space as recv() would. Less than asked for means that the socket is empty,
 * unless tls_reads_on().
 *
 * Returns the number of bytes; 0 at the end of what the client sends; -1 with errno EAGAIN when
 *         nothing has come, EINTR when only tls_reads_on(), EPROTO or the socket's error
 */
ssize_t tls_read(struct tls *t, const struct iovec *space, int n_space);

/*
 * tls_reads_on - whether the last tls_read() or tls_handshake() left something that it can go on
 * with although the socket is empty: bytes, the end, an error.
 */
bool tls_reads_on(const struct tls *t);

/*
 * tls_write - sends the pieces as writev() would, in records of up to 16 KiB.
 *
 * Returns the number of bytes that are the client's or held for it. -1 with errno EAGAIN while the
 *         socket is full, or with the socket's error
 */
ssize_t tls_write(struct tls *t, const struct iovec *pieces, int n_pieces);

/* tls_flush - sends what is held since the socket was full. TLS_WAITS: it still is. */
enum tls_result tls_flush(struct tls *t);

/*
 * tls_end - tells the client that nothing more comes (close_notify), and flushes. After a failure
 * it flushes only.
 */
enum tls_result tls_end(struct tls *t);

/*
 * tls_rest - frees the buffers that a busy connection keeps. To be called for one on which nothing
 * has moved for a while.
 */
void tls_rest(struct tls *t);

/* tls_held_bytes - the bytes for which the socket had no room. */
size_t tls_held_bytes(const struct tls *t);

/* tls_take_sent, tls_take_received - the bytes that the socket has taken, or given, since the last
 * call. */
size_t tls_take_sent(struct tls *t);
size_t tls_take_received(struct tls *t);

#endif
