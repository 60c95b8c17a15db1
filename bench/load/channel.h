/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A socket of the load generator, plain or with TLS. Thread: one.
 */
#ifndef BENCH_LOAD_CHANNEL_H
#define BENCH_LOAD_CHANNEL_H

#include <netinet/in.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct ssl_st;

struct channel {
    int fd;
    struct ssl_st *ssl; /* NULL: plain */
};

/*
 * channel_open - connects; non-blocking from then on. Exits when that fails. A server's certificate
 * is not verified.
 *
 * @protocol  with TLS and this protocol by ALPN, such as "h2"; NULL: plain. A channel of the
 * program has either none or the same as all others.
 */
void channel_open(struct channel *ch, const struct sockaddr_in *to, const char *protocol);

/* channel_close - closes the socket, without a farewell. */
void channel_close(struct channel *ch);

/* channel_recv, channel_send - as recv() and writev(); -1 with EAGAIN: not now. */
ssize_t channel_recv(struct channel *ch, void *bytes, size_t n_bytes);
ssize_t channel_send(struct channel *ch, const struct iovec *pieces, int n_pieces);

#endif
