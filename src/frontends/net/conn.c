/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket side of a connection: this file reads, sends, closes and keeps the deadlines. The
 * session understands the bytes.
 *
 * Read conn_give() and begin_conn() first, then on_ready(), which distributes the events:
 * on_readable() and read_once() read, on_flush() sends, conn_go_on() reads on when a connection has
 * more than a small request. linger_or_close() keeps the socket open for a while after the last
 * reply, so that the reply arrives. The rest finds clients that are too slow, and weighs
 * connections, so that the heaviest can be given up when memory is short (conn_burden()).
 *
 * Thread: the worker's; only conn_give() may run on another worker's. conn_close() frees the
 * connection at once, so nothing touches it after a call that may close it. The socket is
 * edge-triggered: a connection that may have unread bytes stands in worker.ready, or waits for a
 * change of interest (update_interest()).
 *
 * With TLS (tls.h) the session begins at once, and what it has to send waits for the end of the
 * handshake. Handshakes go on in worker.ready only, behind all small requests of an iteration and
 * within its time, since one takes more CPU than a small request does.
 */
#include "frontends/net/conn.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/budget.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "frontends/net/listener.h"
#include "frontends/net/tls.h"
#include "frontends/net/worker.h"

enum {
    MAX_PIECES = 128, /* HTTP/2 makes 75 of 602 kB: 37 frames, each with a head, and trailers */
    COPIED_BYTES = 1024,
    SMALL_BYTES = 64 << 10, /* of a request that is read and answered at once */
};

#define HANDSHAKE_NUMBER UINT64_MAX /* as session_input.number: no request has it */

static void on_ready(struct loop_fd *watch, uint32_t events);
static void on_flush(struct loop_work *work);
static void on_check(struct timer *t);

static void on_output(struct session *s)
{
    struct conn *c = CONTAINER_OF(s, struct conn, session);
    loop_defer(&c->worker->loop, &c->flush);
}

static struct net_counts *get_counts(const struct conn *c)
{
    return &c->service->env->counts;
}

static void count_out(struct worker_service *s, struct address_count *address)
{
    atomic_fetch_sub_explicit(&s->worker->n_conns, 1, memory_order_relaxed);
    listener_give_slot_back(s->listener, address);
}

static void move_check(struct conn *c)
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

/* For sessions whose times need a finer check than the sweep once a second. */
static inline void set_check(struct conn *c)
{
    if (UNLIKELY(c->session.protocol->get_next_ns != NULL))
        move_check(c);
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

static bool is_in_handshake(const struct conn *c)
{
    return UNLIKELY(c->tls != NULL) && !tls_is_established(c->tls);
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
    net_count(get_counts(c), NET_CONNS_BEGUN, 1);
    worker_add_conn(w, &c->link, &c->use);
    set_check(c);
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
    net_count(get_counts(c), NET_CONNS_ENDED, 1);
    /* A client that has connected and said nothing, such as a probe, began no handshake. */
    if (is_in_handshake(c) && c->n_received > 0)
        net_count(get_counts(c), NET_HANDSHAKES_FAILED, 1);
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

/*
 * Sets the events to wait for. Readiness to write matters only after the socket's buffer was full.
 * EPOLLRDHUP shows that a client left even while the pipeline is full and nothing is read.
 *
 * The watch is edge-triggered, so that the kernel does not check each socket again in the next
 * iteration only to find it empty. That check costs 3 % of a small request. A read that fills less
 * than its buffer has emptied the socket. In all other cases on_readable() queues the connection
 * again, and each change of interest makes the kernel check, too.
 */
static void update_interest(struct conn *c)
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

/* Whether the socket has unread bytes, which would turn the close into a reset. */
static bool has_unread(const struct conn *c)
{
    int n_bytes = 0;
    return c->session.discards || (c->tls && !list_empty(&c->ready)) ||
           (ioctl(c->fd, FIONREAD, &n_bytes) == 0 && n_bytes > 0);
}

/* Whether the kernel still has bytes that the client has not acknowledged. */
static bool has_unacknowledged(const struct conn *c)
{
    int n_bytes = 0;
    return ioctl(c->fd, SIOCOUTQ, &n_bytes) == 0 && n_bytes > 0;
}

/* Counts what TLS has sent. */
static void note_tls_sent(struct conn *c)
{
    size_t n = tls_take_sent(c->tls);
    if (n > 0)
        c->written_ns = loop_now_ns(&c->worker->loop);
    c->n_sent += n;
    net_count(get_counts(c), NET_SENT_BYTES, n);
}

/* Whether TLS has sent all; if not, on_flush() is called again. */
static bool has_sent_tls(struct conn *c, enum tls_result result)
{
    note_tls_sent(c);
    if (result == TLS_DONE)
        return true;
    if (result == TLS_FAILED) {
        conn_close(c);
        return false;
    }
    c->waiting = true;
    update_interest(c);
    return false;
}

/* Tells the client of the end. False: that waits for the socket, or the connection is closed. */
static bool end_tls(struct conn *c)
{
    return has_sent_tls(c, tls_end(c->tls));
}

/*
 * All is sent. Bytes that the client still sends would turn the close into a reset, and a reset
 * discards the part of the reply that the client has not read. So the connection reads and drops
 * such bytes for a while before it closes.
 */
static void linger_or_close(struct conn *c)
{
    if (UNLIKELY(c->tls != NULL) && !end_tls(c))
        return;
    if (c->eof || (!has_unread(c) && !has_unacknowledged(c))) {
        conn_close(c);
        return;
    }
    shutdown(c->fd, SHUT_WR);
    c->lingering = true;
    c->read_ns = loop_now_ns(&c->worker->loop);
    update_interest(c);
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
        note_tls_sent(c);
        c->waiting |= tls_held_bytes(c->tls) > 0;
        return;
    }
    c->written_ns = loop_now_ns(&c->worker->loop);
    c->n_sent += n_bytes;
    net_count(get_counts(c), NET_SENT_BYTES, n_bytes);
}

/*
 * Before the session sends: sends what TLS holds. False: the session cannot send now, since the
 * socket is full, the handshake goes on or has failed, or the connection is closed.
 */
static bool flush_tls(struct conn *c)
{
    if (!has_sent_tls(c, tls_flush(c->tls)))
        return false;
    update_interest(c);
    return !is_in_handshake(c);
}

static void on_flush(struct loop_work *work)
{
    struct conn *c = CONTAINER_OF(work, struct conn, flush);
    struct session *s = &c->session;
    struct iovec pieces[MAX_PIECES];
    size_t asked;

    worker_begin_iteration(c->worker);
    if (UNLIKELY(c->tls != NULL) && !c->waiting && !flush_tls(c))
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
            linger_or_close(c);
        return;
    }
    update_interest(c);
    set_check(c);
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
    update_interest(c);
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

/* What recv() would return; see tls_read(). *ret_bytes is set when no data, but much else came. */
static ssize_t receive_tls(struct conn *c, const struct iovec *space, int n_space,
                           size_t *ret_bytes)
{
    bool held_before = tls_held_bytes(c->tls) > 0;
    ssize_t n = tls_read(c->tls, space, n_space);
    int error = errno;
    size_t came = tls_take_received(c->tls);
    net_count(get_counts(c), NET_RECEIVED_BYTES, came);
    if (n < 0 && error == EINTR)
        *ret_bytes = came;
    note_tls_sent(c); /* answers of TLS itself */
    if (note_held(c, held_before))
        update_interest(c);
    errno = error;
    return n;
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
        update_interest(c);
        return READ_ENDED;
    }
    if (space[0].iov_len >= max_bytes) {
        space[0].iov_len = max_bytes;
        n_space = 1;
    }
    bool decrypts = UNLIKELY(c->tls != NULL) && !c->lingering;
    ssize_t n = decrypts       ? receive_tls(c, space, n_space, ret_bytes)
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
            net_count(get_counts(c), NET_RECEIVED_BYTES, (size_t)n);
        if (c->lingering) {
            c->session.discards = true;
        } else {
            s->protocol->received(s, (size_t)n);
            c->n_received += (size_t)n;
            c->read_ns = loop_now_ns(&c->worker->loop);
            update_interest(c);
            set_check(c);
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
    if (is_in_handshake(c)) {
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
    update_interest(c); /* while the session had no space, EPOLLIN was off */
    worker_go_on_later(c->worker, &c->ready);
}

/* Goes on with a handshake. Returns whether it has ended, so that the session may read. */
static bool go_on_with_handshake(struct conn *c)
{
    bool held_before = tls_held_bytes(c->tls) > 0;
    enum tls_result result = tls_handshake(c->tls);
    size_t came = tls_take_received(c->tls);
    c->n_received += came;
    net_count(get_counts(c), NET_RECEIVED_BYTES, came);
    note_tls_sent(c);
    if (result == TLS_FAILED) {
        linger_or_close(c); /* the client may have to be told why */
        return false;
    }
    (void)note_held(c, held_before);
    if (result == TLS_WAITS) {
        update_interest(c);
        if (c->client_left) /* the end of the stream needs a read of its own */
            worker_go_on_later(c->worker, &c->ready);
        return false;
    }
    net_count(get_counts(c), NET_HANDSHAKES, 1);
    c->read_ns = loop_now_ns(&c->worker->loop);
    loop_defer(&c->worker->loop, &c->flush); /* what the session has queued meanwhile */
    return true;
}

void conn_go_on(struct conn *c)
{
    struct worker *w = c->worker;
    if (is_in_handshake(c) && !c->lingering && !go_on_with_handshake(c))
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

static bool has_passed(uint64_t since_ns, uint64_t limit_ns, uint64_t now_ns)
{
    return limit_ns > 0 && now_ns > since_ns && now_ns - since_ns > limit_ns;
}

static struct session_input get_input(const struct conn *c)
{
    struct session_input input;
    if (is_in_handshake(c)) /* has the time of a head */
        return (struct session_input){
            .kind = INPUT_HEAD, .number = HANDSHAKE_NUMBER, .is_only_one = true};
    c->session.protocol->get_input(&c->session, &input);
    return input;
}

static void refuse_conn(struct conn *c, enum session_refusal why)
{
    c->session.protocol->refuse(&c->session, why);
}

/* ---- Slow clients --------------------------------------------------------------------------- */

/*
 * Whether fewer bytes than min_rate allows have moved since the measurement began. Begins a new
 * measurement when the time of the last one is over.
 */
static bool is_too_slow(const struct conn *c, struct pace *pace, uint64_t n_bytes, uint64_t now_ns)
{
    const struct net_timeouts *t = c->service->timeouts;
    if (t->min_rate == 0 || t->rate_ns == 0)
        return false;
    if (pace->since_ns > 0 && !c->worker->swept_late) {
        if (!has_passed(pace->since_ns, t->rate_ns, now_ns))
            return false;
        uint64_t ms = (now_ns - pace->since_ns) / NS_PER_MS;
        if ((n_bytes - pace->n_bytes) * 1000 < t->min_rate * ms)
            return true;
    }
    pace->since_ns = now_ns;
    pace->n_bytes = n_bytes;
    return false;
}

/* Whether the client sends the body too slowly; chunk heads and the like count as bytes of it. */
static bool sends_too_slowly(struct conn *c, const struct session_input *input, uint64_t now_ns)
{
    if (!list_empty(&c->ready) || input->awaits_us) { /* the client waits for us */
        c->received.since_ns = 0;
        c->read_ns = now_ns;
        return false;
    }
    if (c->received.mark != input->number) { /* a new body, perhaps begun long before */
        c->received.since_ns = 0;
        c->received.mark = input->number;
        c->read_ns = now_ns;
    }
    return is_too_slow(c, &c->received, c->n_received, now_ns) ||
           has_passed(c->read_ns, c->service->timeouts->body_ns, now_ns);
}

/* Whether the out-queue or the kernel has bytes that the client has not taken. */
static bool has_untaken(struct conn *c, uint64_t now_ns)
{
    if (c->n_taken != c->n_sent) {
        int n = 0;
        if (ioctl(c->fd, SIOCOUTQ, &n) < 0)
            n = 0;
        uint64_t taken = c->n_sent - MIN((uint64_t)n, c->n_sent);
        if (taken > c->n_taken) {
            c->n_taken = taken;
            c->written_ns = now_ns;
        }
    }
    return c->waiting || c->n_taken != c->n_sent;
}

static bool takes_too_slowly(struct conn *c, uint64_t now_ns)
{
    bool untaken = has_untaken(c, now_ns);
    /* A client that sends the next request as soon as it has a reply always has bytes under way.
     * So a measurement ends when the client has taken all that was sent at its start. */
    if (!untaken || (!c->waiting && c->n_taken >= c->taken.mark))
        c->taken.since_ns = 0;
    if (!untaken)
        return false;
    if (c->taken.since_ns == 0)
        c->taken.mark = c->n_sent;
    return is_too_slow(c, &c->taken, c->n_taken, now_ns) ||
           has_passed(c->written_ns, c->service->timeouts->write_ns, now_ns);
}

/*
 * The time of a head starts at the first sweep that sees it. The arrival of its bytes cannot start
 * it: they may come with the end of another request, and may be parsed only when a reply makes
 * room.
 */
static bool head_takes_too_long(struct conn *c, uint64_t number, uint64_t now_ns)
{
    if (c->head_ns == 0 || c->head_number != number) {
        c->head_ns = now_ns;
        c->head_number = number;
    }
    return has_passed(c->head_ns, c->service->timeouts->head_ns, now_ns);
}

/*
 * A connection with a head that has been incomplete for longer than this may be closed for its
 * descriptor.
 */
#define HEAD_PATIENCE_NS NS_PER_S

static bool has_slow_head(const struct conn *c)
{
    struct session_input input = get_input(c);
    return input.kind == INPUT_HEAD && input.is_only_one && c->head_ns > 0 &&
           c->head_number == input.number &&
           has_passed(c->head_ns, HEAD_PATIENCE_NS, loop_now_ns(&c->worker->loop));
}

/*
 * A lingering connection that has no unread and no unacknowledged bytes only awaits the client's
 * close.
 */
bool conn_is_idle(const struct conn *c)
{
    if (c->lingering)
        return !has_unread(c) && !has_unacknowledged(c);
    return (c->session.protocol->is_idle(&c->session) || has_slow_head(c)) && !has_unread(c);
}

/* Whether the client sends its request too slowly, so that it is refused. */
static bool takes_too_long(struct conn *c, const struct session_input *input, uint64_t now_ns)
{
    if (LIKELY(input->kind != INPUT_HEAD))
        c->head_ns = 0;
    else
        return head_takes_too_long(c, input->number, now_ns);
    return input->kind == INPUT_BODY && sends_too_slowly(c, input, now_ns);
}

/* ---- The burden of a connection ------------------------------------------------------------- */

/* Whether the client is to act: to send the rest of a body, or to read a reply. */
static bool awaits_client(const struct conn *c)
{
    if (c->waiting)
        return true;
    struct session_input input = get_input(c);
    return input.kind == INPUT_BODY && list_empty(&c->ready) && !input.awaits_us;
}

/*
 * The bytes since the last check, in the direction in which the client is to act: a client that
 * does not read its replies may well go on sending.
 */
static uint64_t count_moved(const struct conn *c)
{
    return c->waiting ? c->n_sent - c->checked_sent : c->n_received - c->checked_received;
}

/* Notes once per sweep whether the client is slow. */
static void note_pace(struct conn *c, uint64_t now_ns)
{
    uint64_t least_bytes = CLIENT_SLOW_BYTES_PER_S * c->worker->sweep_ns / NS_PER_S;
    c->recent_bytes = count_moved(c);
    if (!awaits_client(c) || c->worker->swept_late || c->recent_bytes >= least_bytes)
        c->slow_ns = 0;
    else if (c->slow_ns == 0)
        c->slow_ns = now_ns;
    c->checked_received = c->n_received;
    c->checked_sent = c->n_sent;
}

uint64_t conn_burden(const struct conn *c, uint64_t now_ns, bool *ret_stalled)
{
    const struct protocol *p = c->session.protocol;
    size_t weight_bytes = p->weigh(&c->session) + (c->tls ? tls_held_bytes(c->tls) : 0);
    *ret_stalled = false;
    if (p->get_burden && !c->waiting && !c->lingering && list_empty(&c->ready))
        return p->get_burden(&c->session, ret_stalled);
    if (c->lingering || !awaits_client(c) || weight_bytes < CLIENT_LIGHT_BYTES)
        return 0;
    uint64_t slow_ns = c->slow_ns > 0 && now_ns > c->slow_ns ? now_ns - c->slow_ns : 0;
    *ret_stalled = slow_ns >= CLIENT_STALL_NS;
    uint64_t moved_kib = (count_moved(c) + c->recent_bytes) / 1024;
    return weight_bytes / (1 + moved_kib) * (1 + slow_ns / NS_PER_S);
}

void conn_evict(struct conn *c)
{
    budget_evicted(c->worker->memory);
    bool may_refuse = c->session.protocol->get_burden || get_input(c).kind == INPUT_BODY;
    if (c->waiting || !may_refuse) {
        net_count(get_counts(c), NET_REFUSED_MEMORY, 1);
        conn_close(c); /* part of a reply is sent, so an error reply is impossible */
    } else {
        refuse_conn(c, REFUSAL_MEMORY);
    }
}

/* Has the session check its own times. */
static void check_session(struct conn *c, uint64_t now_ns)
{
    const struct protocol *p = c->session.protocol;
    if (!p->check_time)
        return;
    p->check_time(&c->session, now_ns);
    if (p->is_over(&c->session))
        linger_or_close(c);
    else
        set_check(c);
}

static void on_check(struct timer *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, check);
    c->check_ns = 0;
    if (!c->lingering)
        check_session(c, loop_now_ns(&c->worker->loop));
}

/* A handshake has the time of a head. Nothing is lost when it ends early. */
static bool is_handshake_over(struct conn *c, uint64_t now_ns)
{
    return is_in_handshake(c) &&
           (c->service->env->draining || head_takes_too_long(c, HANDSHAKE_NUMBER, now_ns) ||
            has_passed(c->read_ns, c->service->timeouts->idle_ns, now_ns));
}

static void refuse_slow(struct conn *c, const struct session_input *input)
{
    bool in_head = input->kind == INPUT_HEAD;
    net_count(get_counts(c), in_head ? NET_STALLED_HEAD : NET_STALLED_BODY, 1);
    refuse_conn(c, in_head ? REFUSAL_HEAD_TIME : REFUSAL_BODY_TIME);
}

/* A connection on which nothing has moved for so long needs no buffers for records. */
#define TLS_REST_NS NS_PER_S

void conn_check_time(struct conn *c, uint64_t now_ns)
{
    const struct net_timeouts *t = c->service->timeouts;

    note_pace(c, now_ns);
    if (UNLIKELY(c->tls != NULL) && has_passed(conn_active_ns(c), TLS_REST_NS, now_ns))
        tls_rest(c->tls);
    bool is_stalled = takes_too_slowly(c, now_ns);
    if (is_stalled || (!c->lingering && is_handshake_over(c, now_ns))) {
        net_count(get_counts(c), NET_STALLED_ANSWER, is_stalled);
        conn_close(c);
        return;
    }
    if (c->lingering) { /* a reset would discard the bytes that the kernel still has */
        if (c->n_taken == c->n_sent && has_passed(conn_active_ns(c), t->linger_ns, now_ns))
            conn_close(c);
        return;
    }
    if (is_in_handshake(c))
        return;
    const struct protocol *p = c->session.protocol;
    struct session_input input = get_input(c);
    if (takes_too_long(c, &input, now_ns))
        refuse_slow(c, &input);
    else if (c->service->env->draining && input.kind != INPUT_NONE &&
             has_passed(c->read_ns, CLIENT_DRAIN_PATIENCE_NS, now_ns))
        refuse_conn(c, REFUSAL_STOPPING);
    if (p->is_idle(&c->session) && has_passed(conn_active_ns(c), t->idle_ns, now_ns)) {
        if (!p->end_idle) {
            conn_close(c);
            return;
        }
        p->end_idle(&c->session);
    }
    check_session(c, now_ns);
}

void conn_drain(struct conn *c)
{
    const struct protocol *p = c->session.protocol;
    if (c->lingering)
        return;
    if (is_in_handshake(c)) { /* the client has begun nothing */
        conn_close(c);
        return;
    }
    if (p->drain)
        p->drain(&c->session);
    if (p->is_over(&c->session))
        linger_or_close(c);
}
