/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a connection share: conn.c (its life, reading, sending), conn_tls.c (TLS),
 * conn_time.c (slow clients), conn_burden.c (its weight when memory is short).
 */
#ifndef CONCH_FRONTENDS_NET_CONN_PRIV_H
#define CONCH_FRONTENDS_NET_CONN_PRIV_H

#include <sys/types.h>
#include <sys/uio.h>

#include "frontends/net/conn.h"
#include "frontends/net/listener.h"
#include "frontends/net/tls.h"
#include "frontends/net/worker.h"

#define HANDSHAKE_NUMBER UINT64_MAX /* as session_input.number: no request has it */

static inline struct net_counts *conn_counts(const struct conn *c)
{
    return &c->service->env->counts;
}

static inline bool conn_is_in_handshake(const struct conn *c)
{
    return UNLIKELY(c->tls != NULL) && !tls_is_established(c->tls);
}

/* conn_has_passed - whether more than limit_ns have passed since then; a limit of 0 is none. */
static inline bool conn_has_passed(uint64_t since_ns, uint64_t limit_ns, uint64_t now_ns)
{
    return limit_ns > 0 && now_ns > since_ns && now_ns - since_ns > limit_ns;
}

/* conn_get_input - what the connection waits for from the client. */
static inline struct session_input conn_get_input(const struct conn *c)
{
    struct session_input input;
    if (conn_is_in_handshake(c)) /* has the time of a head */
        return (struct session_input){
            .kind = INPUT_HEAD, .number = HANDSHAKE_NUMBER, .is_only_one = true};
    c->session.protocol->get_input(&c->session, &input);
    return input;
}

static inline void conn_refuse(struct conn *c, enum session_refusal why)
{
    c->session.protocol->refuse(&c->session, why);
}

/* ---- conn.c ---------------------------------------------------------------------------------- */

/*
 * conn_update_interest - sets the events to wait for. Readiness to write matters only after the
 * socket's buffer was full. EPOLLRDHUP shows that a client left even while the pipeline is full and
 * nothing is read.
 *
 * The watch is edge-triggered, so that the kernel does not check each socket again in the next
 * iteration only to find it empty. That check costs 3 % of a small request. A read that fills less
 * than its buffer has emptied the socket. In all other cases on_readable() queues the connection
 * again, and each change of interest makes the kernel check, too.
 */
void conn_update_interest(struct conn *c);

/*
 * conn_linger_or_close - all is sent. Bytes that the client still sends would turn the close into a
 * reset, and a reset discards the part of the reply that the client has not read. So the connection
 * reads and drops such bytes for a while before it closes.
 */
void conn_linger_or_close(struct conn *c);

/* conn_has_unread - whether the socket has unread bytes, which would turn the close into a reset.
 */
bool conn_has_unread(const struct conn *c);

/* conn_has_unacknowledged - whether the kernel has bytes that the client has not acknowledged. */
bool conn_has_unacknowledged(const struct conn *c);

/* conn_move_check - sets the timer to the time for which the session asks. */
void conn_move_check(struct conn *c);

/* conn_set_check - for sessions whose times need a finer check than the sweep once a second. */
static inline void conn_set_check(struct conn *c)
{
    if (UNLIKELY(c->session.protocol->get_next_ns != NULL))
        conn_move_check(c);
}

/* ---- conn_tls.c; of connections with TLS only ------------------------------------------------ */

/* conn_note_tls_sent - counts what TLS has sent. */
void conn_note_tls_sent(struct conn *c);

/*
 * conn_end_tls - tells the client of the end. False: that waits for the socket, or the connection
 * is closed.
 */
bool conn_end_tls(struct conn *c);

/*
 * conn_flush_tls - before the session sends: sends what TLS holds. False: the session cannot send
 * now, since the socket is full, the handshake goes on or has failed, or the connection is closed.
 */
bool conn_flush_tls(struct conn *c);

/*
 * conn_receive_tls - what recv() would return; see tls_read(). *ret_bytes is set when no data, but
 * much else came.
 */
ssize_t conn_receive_tls(struct conn *c, const struct iovec *space, int n_space, size_t *ret_bytes);

/*
 * conn_go_on_with_handshake - returns whether the handshake has ended, so that the session may
 * read. If it has failed, the connection may be closed.
 */
bool conn_go_on_with_handshake(struct conn *c);

/* ---- conn_time.c and conn_burden.c ----------------------------------------------------------- */

/* conn_check_session - has the session check its own times. May close the connection. */
void conn_check_session(struct conn *c, uint64_t now_ns);

/* conn_note_pace - notes once per sweep whether the client is slow. */
void conn_note_pace(struct conn *c, uint64_t now_ns);

#endif
