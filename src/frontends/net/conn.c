/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket side of a connection: this file reads, sends and closes. The session understands the
 * bytes.
 *
 * Read conn_give() and begin_conn() first, then on_ready(), which distributes the events:
 * on_readable() and read_once() read, on_flush() sends, conn_go_on() reads on when a connection has
 * more than a small request. conn_linger_or_close() keeps the socket open for a while after the
 * last reply, so that the reply arrives. The other parts stand in files of their own (conn_priv.h).
 *
 * Thread: the worker's; only conn_give() may run on another worker's. conn_close() frees the
 * connection at once, so nothing touches it after a call that may close it. The socket is
 * edge-triggered: a connection that may have unread bytes stands in worker.ready, or waits for a
 * change of interest (conn_update_interest()).
 */
#include "frontends/net/conn_priv.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

enum {
    MAX_PIECES = 128, /* HTTP/2 makes 75 of 602 kB: 37 frames, each with a head, and trailers */
    COPIED_BYTES = 1024,
    SMALL_BYTES = 64 << 10, /* of a request that is read and answered at once */
};

static void on_ready(struct loop_fd *watch, uint32_t events);
static void on_flush(struct loop_work *work);
static void on_check(struct timer *t);

static void on_output(struct session *s)
{
    struct conn *c = CONTAINER_OF(s, struct conn, session);
    loop_defer(&c->worker->loop, &c->flush);
}

static void count_out(struct worker_service *s, struct address_count *address)
{
    atomic_fetch_sub_explicit(&s->worker->n_conns, 1, memory_order_relaxed);
    listener_give_slot_back(s->listener, address);
}

void conn_move_check(struct conn *c)
{
    struct loop *loop = &c->worker->loop;
    uint64_t next_ns = c->session.protocol->get_next_ns(&c->session);
    if (next_ns == c->check_ns)
        return;
    c->check_ns = next_ns;
    if (next_ns == UINT64_MAX)
        loop_clear_timer(loop, &c->check);
    else
        loop_set_timer(loop, &c->check, next_ns);
}

/*
 * Begins the session, and TLS if the service speaks it. False: there is no memory. A session that
 * got none is over. It would notice that only behind the handshake of TLS.
 */
static bool begin_session(struct conn *c)
{
    const struct worker *w = c->worker;
    const struct protocol *p = c->session.protocol;
    p->begin(&c->session, c->service->env);
    if (p->is_over(&c->session))
        return false;
    if (!c->service->tls)
        return true;
    c->session.tls = c->tls = tls_new(c->service->tls, c->fd, w->pool, w->memory);
    return c->tls != NULL;
}

/* Gives up a connection whose session has begun, but which is in no list yet. */
static void drop_conn(struct conn *c)
{
    c->session.protocol->abort(&c->session);
    loop_cancel_work(&c->worker->loop, &c->flush);
    tls_free(c->tls);
    close(c->fd);
    count_out(c->service, c->address);
    mem_free(c);
}

static void begin_conn(struct conn *c)
{
    struct worker *w = c->worker;
    uint64_t now_ns = loop_now_ns(&w->loop);

    c->session.protocol = c->service->env->protocol;
    c->session.on_output = on_output;
    loop_work_init(&c->flush, on_flush); /* the session may call on_output() in begin() already */
    timer_init(&c->check, on_check);
    c->read_ns = c->written_ns = now_ns;
    struct status *st = begin_session(c) ? loop_add_fd(&w->loop, &c->watch, c->fd,
                                                       EPOLLET | EPOLLIN | EPOLLRDHUP, on_ready)
                                         : status_no_memory();
    if (st) {
        log_status(LOG_WARN, "connection refused", st);
        drop_conn(c);
        return;
    }
    c->ranked_ns = now_ns;
    net_count(conn_counts(c), NET_CONNS_BEGUN, 1);
    worker_add_conn(w, &c->link, &c->use);
    conn_set_check(c);
    if (c->service->env->draining)
        conn_drain(c);
}

static void on_arrival(struct message *m)
{
    begin_conn(CONTAINER_OF(m, struct conn, arrival));
}

void conn_give(struct worker_service *here, struct worker_service *to, int fd,
               struct address_count *address)
{
    size_t session_bytes = to->env->protocol->session_bytes;
    struct conn *c = mem_try_zalloc(1, offsetof(struct conn, session) + session_bytes);
    if (!c) {
        close(fd);
        listener_give_slot_back(to->listener, address);
        return;
    }
    c->worker = to->worker;
    c->service = to;
    c->fd = fd;
    c->address = address;
    c->watch.fd = -1;
    list_init(&c->link);
    list_init(&c->ready);
    /* Counted before the worker has it, so that the next acceptor_choose() sees it. */
    atomic_fetch_add_explicit(&c->worker->n_conns, 1, memory_order_relaxed);
    c->arrival.deliver = on_arrival;
    if (to == here)
        begin_conn(c);
    else
        loop_post(&c->worker->loop, &c->arrival);
}

void conn_close(struct conn *c)
{
    struct worker *w = c->worker;
    struct worker_service *s = c->service;
    net_count(conn_counts(c), NET_CONNS_ENDED, 1);
    /* A client that has connected and said nothing, such as a probe, began no handshake. */
    if (conn_is_in_handshake(c) && c->n_received > 0)
        net_count(conn_counts(c), NET_HANDSHAKES_FAILED, 1);
    c->session.protocol->abort(&c->session);
    loop_cancel_work(&w->loop, &c->flush);
    loop_clear_timer(&w->loop, &c->check);
    loop_remove_fd(&w->loop, &c->watch);
    tls_free(c->tls);
    close(c->fd);
    worker_remove_conn(w, &c->link, &c->ready, &c->use);
    count_out(s, c->address);
    mem_free(c);
    net_env_left(s->env);
}

void conn_update_interest(struct conn *c)
{
    uint32_t events = EPOLLET | (c->waiting ? EPOLLOUT : 0);
    if (!c->eof) {
        events |= EPOLLRDHUP;
        if (c->lingering || c->session.paused || c->session.protocol->wants_input(&c->session))
            events |= EPOLLIN;
    }
    loop_change_fd(&c->worker->loop, &c->watch, events);
    /* What TLS has read already makes no event. */
    if (UNLIKELY(c->tls != NULL) && events & EPOLLIN && !c->lingering && tls_reads_on(c->tls))
        worker_go_on_later(c->worker, &c->ready);
}

bool conn_has_unread(const struct conn *c)
{
    int n_bytes = 0;
    return c->session.discards || (c->tls && !list_empty(&c->ready)) ||
           (ioctl(c->fd, FIONREAD, &n_bytes) == 0 && n_bytes > 0);
}

bool conn_has_unacknowledged(const struct conn *c)
{
    int n_bytes = 0;
    return ioctl(c->fd, SIOCOUTQ, &n_bytes) == 0 && n_bytes > 0;
}

void conn_linger_or_close(struct conn *c)
{
    if (UNLIKELY(c->tls != NULL) && !conn_end_tls(c))
        return;
    if (c->eof || (!conn_has_unread(c) && !conn_has_unacknowledged(c))) {
        conn_close(c);
        return;
    }
    shutdown(c->fd, SHUT_WR);
    c->lingering = true;
    c->read_ns = loop_now_ns(&c->worker->loop);
    conn_update_interest(c);
}

/*
 * Sends pieces by one system call, without a copy. Short replies are copied together first, so that
 * send() of one piece suffices; that took about 3 % off the CPU of a small request.
 */
static ssize_t send_pieces(const struct conn *c, const struct iovec *pieces, int n,
                           size_t size_bytes)
{
    char together[COPIED_BYTES];
    if (UNLIKELY(c->tls != NULL))
        return tls_write(c->tls, pieces, n);
    if (size_bytes > sizeof(together))
        return writev(c->fd, pieces, n);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        memcpy(together + at, pieces[i].iov_base, pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    return send(c->fd, together, at, MSG_NOSIGNAL);
}

/* Counts what the session has sent. */
static void note_sent(struct conn *c, size_t n_bytes)
{
    if (UNLIKELY(c->tls != NULL)) {
        conn_note_tls_sent(c);
        c->waiting |= tls_held_bytes(c->tls) > 0;
        return;
    }
    c->written_ns = loop_now_ns(&c->worker->loop);
    c->n_sent += n_bytes;
    net_count(conn_counts(c), NET_SENT_BYTES, n_bytes);
}

static void on_flush(struct loop_work *work)
{
    struct conn *c = CONTAINER_OF(work, struct conn, flush);
    struct session *s = &c->session;
    struct iovec pieces[MAX_PIECES];
    size_t asked;

    worker_begin_iteration(c->worker);
    if (UNLIKELY(c->tls != NULL) && !c->waiting && !conn_flush_tls(c))
        return;
    s->large_output = false;
    s->protocol->queue_output(s);
    while (!c->waiting && s->out.n_bytes > 0) {
        int n = out_queue_gather(&s->out, pieces, MAX_PIECES, &asked);
        ssize_t sent = send_pieces(c, pieces, n, asked);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN) {
                conn_close(c);
                return;
            }
            c->waiting = true;
            break;
        }
        /* A short write means a full buffer: the next one would fail. */
        if ((size_t)sent < asked)
            c->waiting = true;
        note_sent(c, (size_t)sent);
        out_queue_sent(&s->out, (size_t)sent);
        s->protocol->queue_output(s); /* releasing pieces may have made room for more */
    }
    if (s->protocol->is_over(s)) {
        if (!c->lingering)
            conn_linger_or_close(c);
        return;
    }
    conn_update_interest(c);
    conn_set_check(c);
    if (UNLIKELY(c->session.paused))
        worker_go_on_later(c->worker, &c->ready);
}

static void probe_conn(struct conn *c)
{
    if (c->session.protocol->probe)
        c->session.protocol->probe(&c->session);
}

static void on_eof(struct conn *c)
{
    c->eof = true;
    if (c->lingering) {
        conn_close(c);
        return;
    }
    c->session.protocol->end_input(&c->session);
    if (c->session.protocol->is_over(&c->session)) {
        conn_close(c);
        return;
    }
    probe_conn(c);
    conn_update_interest(c);
}

enum read_result {
    READ_EMPTIED, /* the socket has nothing more now */
    READ_MORE,    /* it may have more */
    READ_ENDED,   /* the connection is closed, or the session wants no input now */
};

/*
 * Reads at most max_bytes by one system call and has the session process them. *ret_bytes is set
 * when bytes have come.
 */
static enum read_result read_once(struct conn *c, size_t max_bytes, size_t *ret_bytes)
{
    const struct worker *w = c->worker;
    struct session *s = &c->session;
    struct iovec space[2];
    int n_space = 1;

    if (c->lingering)
        space[0] = (struct iovec){w->scratch, w->scratch_bytes};
    else
        n_space = s->protocol->read_space(s, space);
    if (n_space == 0) {
        conn_update_interest(c);
        return READ_ENDED;
    }
    if (space[0].iov_len >= max_bytes) {
        space[0].iov_len = max_bytes;
        n_space = 1;
    }
    bool decrypts = UNLIKELY(c->tls != NULL) && !c->lingering;
    ssize_t n = decrypts       ? conn_receive_tls(c, space, n_space, ret_bytes)
                : n_space == 1 ? recv(c->fd, space[0].iov_base, space[0].iov_len, 0)
                               : readv(c->fd, space, n_space);
    if (n == 0) {
        on_eof(c);
        return READ_ENDED;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        conn_close(c);
        return READ_ENDED;
    }
    size_t asked = space[0].iov_len + (n_space > 1 ? space[1].iov_len : 0);
    bool more = decrypts ? tls_reads_on(c->tls) : n < 0 ? errno == EINTR : (size_t)n == asked;
    if (n > 0) {
        *ret_bytes = (size_t)n;
        if (LIKELY(!decrypts))
            net_count(conn_counts(c), NET_RECEIVED_BYTES, (size_t)n);
        if (c->lingering) {
            c->session.discards = true;
        } else {
            s->protocol->received(s, (size_t)n);
            c->n_received += (size_t)n;
            c->read_ns = loop_now_ns(&c->worker->loop);
            conn_update_interest(c);
            conn_set_check(c);
        }
    }
    /* The end of the stream needs a read of its own. */
    return more || UNLIKELY(c->client_left) || UNLIKELY(c->session.paused) ? READ_MORE
                                                                           : READ_EMPTIED;
}

/*
 * Sends a large reply at once; small ones wait for the end of the iteration. So a large reply is
 * sent while it is in this core's cache, and its memory serves the next connection of the
 * iteration. With 16 and 64 connections that saves a tenth of the CPU for 602 kB both ways, and
 * halves the cost of the backend's copy.
 */
static void send_large_reply(struct conn *c)
{
    loop_cancel_work(&c->worker->loop, &c->flush);
    on_flush(&c->flush);
}

/* Whether a body lacks more bytes than a small request has. */
static bool is_bulk(const struct conn *c)
{
    return c->session.protocol->body_left(&c->session) > SMALL_BYTES;
}

/*
 * Reads the first bytes that have come, which are all of a small request. The watch is
 * edge-triggered, so a connection that has more to read, or may have, queues itself in
 * worker.ready.
 */
static void on_readable(struct conn *c)
{
    struct worker *w = c->worker;
    if (UNLIKELY(!list_empty(&c->ready)))
        return;
    if (conn_is_in_handshake(c)) {
        worker_go_on_later(w, &c->ready);
        return;
    }
    size_t n = 0;
    enum read_result result = READ_MORE;
    if (!is_bulk(c) && w->left_bytes > 0 && w->requests_left > 0) {
        result = read_once(c, SMALL_BYTES, &n);
        w->left_bytes -= MIN(n, w->left_bytes);
        /* A head and the begin of its body: the rest of the body is read straight to its place. */
        if (result == READ_MORE && c->session.protocol->body_left(&c->session) > 0 &&
            worker_may_read_body(w)) {
            n = 0;
            result = read_once(c, MIN(w->budget.portion_bytes, w->left_bytes), &n);
            w->left_bytes -= MIN(n, w->left_bytes);
        }
    }
    if (result == READ_ENDED)
        return;
    if (UNLIKELY(result == READ_MORE))
        worker_go_on_later(w, &c->ready);
    if (UNLIKELY(c->session.large_output))
        send_large_reply(c);
}

void conn_on_space(struct session *s)
{
    struct conn *c = CONTAINER_OF(s, struct conn, session);
    conn_update_interest(c); /* while the session had no space, EPOLLIN was off */
    worker_go_on_later(c->worker, &c->ready);
}

void conn_go_on(struct conn *c)
{
    struct worker *w = c->worker;
    if (conn_is_in_handshake(c) && !c->lingering && !conn_go_on_with_handshake(c))
        return;
    size_t left = MIN(w->budget.portion_bytes, w->left_bytes);
    enum read_result result = READ_MORE;
    c->session.protocol->resume(&c->session); /* pauses again if no more requests may begin */
    while (result == READ_MORE && left > 0 && !c->session.paused && !c->session.large_output) {
        size_t n = 0;
        result = read_once(c, left, &n);
        left -= MIN(n, left);
        w->left_bytes -= MIN(n, w->left_bytes);
    }
    if (result == READ_ENDED)
        return;
    if (result == READ_MORE)
        worker_go_on_later(w, &c->ready);
    if (c->session.large_output)
        send_large_reply(c);
}

static void on_ready(struct loop_fd *watch, uint32_t events)
{
    struct conn *c = CONTAINER_OF(watch, struct conn, watch);

    if (events & (EPOLLERR | EPOLLHUP)) {
        conn_close(c);
        return;
    }
    worker_begin_iteration(c->worker);
    if (events & EPOLLOUT) {
        c->waiting = false;
        loop_defer(&c->worker->loop, &c->flush);
    }
    if (UNLIKELY(events & EPOLLRDHUP))
        c->client_left = true;
    if (events & EPOLLIN)
        on_readable(c);
    else if (events & EPOLLRDHUP)
        probe_conn(c); /* the end is read after the bytes before it, when the session wants input */
}

static void on_check(struct timer *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, check);
    c->check_ns = 0;
    if (!c->lingering)
        conn_check_session(c, loop_now_ns(&c->worker->loop));
}

void conn_drain(struct conn *c)
{
    const struct protocol *p = c->session.protocol;
    if (c->lingering)
        return;
    if (conn_is_in_handshake(c)) { /* the client has begun nothing */
        conn_close(c);
        return;
    }
    if (p->drain)
        p->drain(&c->session);
    if (p->is_over(&c->session))
        conn_linger_or_close(c);
}
