/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The times of a connection, which the sweep checks once a second (upkeep.c): clients that send a
 * head or a body too slowly, do not take a reply, or are silent.
 */
#include "frontends/net/conn_priv.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

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
        if (!conn_has_passed(pace->since_ns, t->rate_ns, now_ns))
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
           conn_has_passed(c->read_ns, c->service->timeouts->body_ns, now_ns);
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
           conn_has_passed(c->written_ns, c->service->timeouts->write_ns, now_ns);
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
    return conn_has_passed(c->head_ns, c->service->timeouts->head_ns, now_ns);
}

/*
 * A connection with a head that has been incomplete for longer than this may be closed for its
 * descriptor.
 */
#define HEAD_PATIENCE_NS NS_PER_S

static bool has_slow_head(const struct conn *c)
{
    struct session_input input = conn_get_input(c);
    return input.kind == INPUT_HEAD && input.is_only_one && c->head_ns > 0 &&
           c->head_number == input.number &&
           conn_has_passed(c->head_ns, HEAD_PATIENCE_NS, loop_now_ns(&c->worker->loop));
}

bool conn_is_idle(const struct conn *c)
{
    if (c->lingering)
        return !conn_has_unread(c) && !conn_has_unacknowledged(c);
    return (c->session.protocol->is_idle(&c->session) || has_slow_head(c)) && !conn_has_unread(c);
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

void conn_check_session(struct conn *c, uint64_t now_ns)
{
    const struct protocol *p = c->session.protocol;
    if (!p->check_time)
        return;
    p->check_time(&c->session, now_ns);
    if (p->is_over(&c->session))
        conn_linger_or_close(c);
    else
        conn_set_check(c);
}

/* A handshake has the time of a head. Nothing is lost when it ends early. */
static bool is_handshake_over(struct conn *c, uint64_t now_ns)
{
    return conn_is_in_handshake(c) &&
           (c->service->env->draining || head_takes_too_long(c, HANDSHAKE_NUMBER, now_ns) ||
            conn_has_passed(c->read_ns, c->service->timeouts->idle_ns, now_ns));
}

static void refuse_slow(struct conn *c, const struct session_input *input)
{
    bool in_head = input->kind == INPUT_HEAD;
    net_count(conn_counts(c), in_head ? NET_STALLED_HEAD : NET_STALLED_BODY, 1);
    conn_refuse(c, in_head ? REFUSAL_HEAD_TIME : REFUSAL_BODY_TIME);
}

/* A connection on which nothing has moved for so long needs no buffers for records. */
#define TLS_REST_NS NS_PER_S

void conn_check_time(struct conn *c, uint64_t now_ns)
{
    const struct net_timeouts *t = c->service->timeouts;

    conn_note_pace(c, now_ns);
    if (UNLIKELY(c->tls != NULL) && conn_has_passed(conn_active_ns(c), TLS_REST_NS, now_ns))
        tls_rest(c->tls);
    bool is_stalled = takes_too_slowly(c, now_ns);
    if (is_stalled || (!c->lingering && is_handshake_over(c, now_ns))) {
        net_count(conn_counts(c), NET_STALLED_ANSWER, is_stalled);
        conn_close(c);
        return;
    }
    if (c->lingering) { /* a reset would discard the bytes that the kernel still has */
        if (c->n_taken == c->n_sent && conn_has_passed(conn_active_ns(c), t->linger_ns, now_ns))
            conn_close(c);
        return;
    }
    if (conn_is_in_handshake(c))
        return;
    const struct protocol *p = c->session.protocol;
    struct session_input input = conn_get_input(c);
    if (takes_too_long(c, &input, now_ns))
        refuse_slow(c, &input);
    else if (c->service->env->draining && input.kind != INPUT_NONE &&
             conn_has_passed(c->read_ns, CLIENT_DRAIN_PATIENCE_NS, now_ns))
        conn_refuse(c, REFUSAL_STOPPING);
    if (p->is_idle(&c->session) && conn_has_passed(conn_active_ns(c), t->idle_ns, now_ns)) {
        if (!p->end_idle) {
            conn_close(c);
            return;
        }
        p->end_idle(&c->session);
    }
    conn_check_session(c, now_ns);
}
