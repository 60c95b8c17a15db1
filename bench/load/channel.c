/* SPDX-License-Identifier: Apache-2.0 */
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tally.h"

enum { RECORD_BYTES = 16 << 10 }; /* of TLS, at most */

static SSL_CTX *get_tls_context(const char *protocol)
{
    static SSL_CTX *context;
    unsigned char offer[256];
    size_t n = strlen(protocol);

    if (context)
        return context;
    context = SSL_CTX_new(TLS_client_method());
    offer[0] = (unsigned char)n;
    memcpy(offer + 1, protocol, n);
    if (!context || SSL_CTX_set_alpn_protos(context, offer, (unsigned int)n + 1) != 0)
        tally_die("TLS cannot be set up");
    /* A record that was sent in part is sent on from another copy of it. */
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
}

static void shake_hands(struct channel *ch, const char *protocol)
{
    const unsigned char *chosen = NULL;
    unsigned int n_chosen = 0;

    ch->ssl = SSL_new(get_tls_context(protocol));
    if (!ch->ssl || SSL_set_fd(ch->ssl, ch->fd) != 1 || SSL_connect(ch->ssl) != 1)
        tally_die("TLS handshake: %s", ERR_reason_error_string(ERR_get_error()));
    SSL_get0_alpn_selected(ch->ssl, &chosen, &n_chosen);
    if (n_chosen != strlen(protocol) || memcmp(chosen, protocol, n_chosen) != 0)
        tally_die("the server does not choose %s by ALPN", protocol);
}

void channel_open(struct channel *ch, const struct sockaddr_in *to, const char *protocol)
{
    int one = 1;

    ch->ssl = NULL;
    ch->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (ch->fd < 0 || connect(ch->fd, (const struct sockaddr *)to, sizeof(*to)) != 0)
        tally_die("connect to port %u: %s", ntohs(to->sin_port), strerror(errno));
    setsockopt(ch->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (protocol)
        shake_hands(ch, protocol);
    fcntl(ch->fd, F_SETFL, O_NONBLOCK);
}

void channel_close(struct channel *ch)
{
    SSL_free(ch->ssl);
    close(ch->fd);
}

static ssize_t get_tls_result(struct channel *ch, int result)
{
    int error;

    if (result > 0)
        return result;
    error = SSL_get_error(ch->ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    errno = ECONNRESET;
    return -1;
}

ssize_t channel_recv(struct channel *ch, void *bytes, size_t n_bytes)
{
    size_t n_come = 0;
    ssize_t n = 1;

    if (!ch->ssl)
        return recv(ch->fd, bytes, n_bytes, 0);
    while (n_come < n_bytes && n > 0) { /* a call gives one record */
        n = get_tls_result(ch, SSL_read(ch->ssl, (char *)bytes + n_come, (int)(n_bytes - n_come)));
        n_come += n > 0 ? (size_t)n : 0;
    }
    return n_come > 0 ? (ssize_t)n_come : n;
}

ssize_t channel_send(struct channel *ch, const struct iovec *pieces, int n_pieces)
{
    char record[RECORD_BYTES];
    size_t n_bytes = 0;

    if (!ch->ssl)
        return writev(ch->fd, pieces, n_pieces);
    for (int i = 0; i < n_pieces && n_bytes < sizeof(record); i++) {
        size_t n = pieces[i].iov_len;

        if (n > sizeof(record) - n_bytes)
            n = sizeof(record) - n_bytes;
        memcpy(record + n_bytes, pieces[i].iov_base, n);
        n_bytes += n;
    }
    return get_tls_result(ch, SSL_write(ch->ssl, record, (int)n_bytes));
}
