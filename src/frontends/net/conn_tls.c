/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection with TLS (tls.h): its handshake, and what is between the socket and the session. The
 * session begins at once, and what it has to send waits for the end of the handshake. Handshakes go
 * on in worker.ready only, behind all small requests of an iteration and within its time, since one
 * takes more CPU than a small request does.
 */
#include "frontends/net/conn_priv.h"

#include <errno.h>

void conn_note_tls_sent(struct conn *c)
{
    size_t n = tls_take_sent(c->tls);
    if (n > 0)
        c->written_ns = loop_now_ns(&c->worker->loop);
    c->n_sent += n;
    net_count(conn_counts(c), NET_SENT_BYTES, n);
}

/* Whether TLS has sent all; if not, on_flush() is called again. */
static bool has_sent_tls(struct conn *c, enum tls_result result)
{
    conn_note_tls_sent(c);
    if (result == TLS_DONE)
        return true;
    if (result == TLS_FAILED) {
        conn_close(c);
        return false;
    }
    c->waiting = true;
    conn_update_interest(c);
    return false;
}

bool conn_end_tls(struct conn *c)
{
    return has_sent_tls(c, tls_end(c->tls));
}

bool conn_flush_tls(struct conn *c)
{
    if (!has_sent_tls(c, tls_flush(c->tls)))
        return false;
    conn_update_interest(c);
    return !conn_is_in_handshake(c);
}

/*
 * After a call of TLS: waits for the socket if TLS has begun to hold bytes. What it held before
 * waits for the socket already, or for a flush, because the socket has room again.
 */
static bool note_held(struct conn *c, bool held_before)
{
    if (held_before || tls_held_bytes(c->tls) == 0)
        return false;
    c->waiting = true;
    return true;
}

ssize_t conn_receive_tls(struct conn *c, const struct iovec *space, int n_space, size_t *ret_bytes)
{
    bool held_before = tls_held_bytes(c->tls) > 0;
    ssize_t n = tls_read(c->tls, space, n_space);
    int error = errno;
    size_t came = tls_take_received(c->tls);
    net_count(conn_counts(c), NET_RECEIVED_BYTES, came);
    if (n < 0 && error == EINTR)
        *ret_bytes = came;
    conn_note_tls_sent(c); /* answers of TLS itself */
    if (note_held(c, held_before))
        conn_update_interest(c);
    errno = error;
    return n;
}

bool conn_go_on_with_handshake(struct conn *c)
{
    bool held_before = tls_held_bytes(c->tls) > 0;
    enum tls_result result = tls_handshake(c->tls);
    size_t came = tls_take_received(c->tls);
    c->n_received += came;
    net_count(conn_counts(c), NET_RECEIVED_BYTES, came);
    conn_note_tls_sent(c);
    if (result == TLS_FAILED) {
        conn_linger_or_close(c); /* the client may have to be told why */
        return false;
    }
    (void)note_held(c, held_before);
    if (result == TLS_WAITS) {
        conn_update_interest(c);
        if (c->client_left) /* the end of the stream needs a read of its own */
            worker_go_on_later(c->worker, &c->ready);
        return false;
    }
    net_count(conn_counts(c), NET_HANDSHAKES, 1);
    c->read_ns = loop_now_ns(&c->worker->loop);
    loop_defer(&c->worker->loop, &c->flush); /* what the session has queued meanwhile */
    return true;
}
