/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight of a connection: what it keeps for a client that does not act. When memory is short,
 * the heaviest is given up (upkeep.c).
 */
#include "frontends/net/conn_priv.h"

#include "base/budget.h"

/* Whether the client is to act: to send the rest of a body, or to read a reply. */
static bool awaits_client(const struct conn *c)
{
    if (c->waiting)
        return true;
    struct session_input input = conn_get_input(c);
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

void conn_note_pace(struct conn *c, uint64_t now_ns)
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
    bool may_refuse = c->session.protocol->get_burden || conn_get_input(c).kind == INPUT_BODY;
    if (c->waiting || !may_refuse) {
        net_count(conn_counts(c), NET_REFUSED_MEMORY, 1);
        conn_close(c); /* part of a reply is sent, so an error reply is impossible */
    } else {
        conn_refuse(c, REFUSAL_MEMORY);
    }
}
