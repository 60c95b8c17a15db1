/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of unsent responses and their bytes, under a mutex that is held for a few instructions.
 * The flow becomes full at a limit and stays so until both counts are below half of their limits,
 * so that the backend's thread is not woken for each response. Thread: any.
 */
#include "frontends/ops/stream_flow.h"

#include "base/clock.h"
#include "base/loop.h"

enum { FLOW_LEVEL = 880 };

void stream_flow_init(struct stream_flow *f, const struct stream_flow_limits *limits,
                      struct clock *clock)
{
    *f = (struct stream_flow){.limits = limits, .clock = clock};
    mutex_init(&f->mu, FLOW_LEVEL, "stream_flow.mu");
    cond_init(&f->changed);
}

void stream_flow_done(struct stream_flow *f)
{
    cond_done(&f->changed);
    mutex_done(&f->mu);
}

static uint64_t find_deadline_ns(const struct stream_flow *f)
{
    return f->limits->stall_ns ? f->moved_ns + f->limits->stall_ns : UINT64_MAX;
}

static bool is_above(const struct stream_flow *f, size_t n_responses, size_t n_bytes)
{
    const struct stream_flow_limits *l = f->limits;
    return (l->max_responses && n_responses >= l->max_responses) || n_bytes >= l->max_bytes;
}

/* Under mu: the counts have grown. */
static void note_growth(struct stream_flow *f)
{
    if (f->is_full || !is_above(f, f->n_responses, f->n_bytes))
        return;
    f->is_full = true;
    f->moved_ns = clock_now_ns(f->clock);
}

/* Under mu: waits for room. False: none has left for the time that a client may take. */
static bool await_room_locked(struct stream_flow *f)
{
    bool in_time = true;
    while (f->is_full && !f->has_ended && in_time) {
        uint64_t deadline_ns = find_deadline_ns(f);
        in_time = cond_wait_by_clock(&f->changed, &f->mu, f->clock, deadline_ns) ||
                  find_deadline_ns(f) > deadline_ns; /* some have left meanwhile */
    }
    return !f->is_full;
}

bool stream_flow_take(struct stream_flow *f, const struct loop *loop, size_t n_bytes, bool is_error)
{
    bool may_wait = !is_error && !loop_is_on_thread(loop);
    mutex_lock(&f->mu);
    bool has_room = may_wait ? await_room_locked(f) : !f->is_full;
    if (!is_error && !has_room && !f->has_ended)
        atomic_store(&f->has_stalled, true);
    bool is_wanted = !may_wait || !f->has_ended;
    if (is_wanted) {
        f->n_responses++;
        f->n_bytes += n_bytes;
        note_growth(f);
    }
    mutex_unlock(&f->mu);
    return is_wanted;
}

void stream_flow_exchange(struct stream_flow *f, size_t n_bytes, size_t n_bytes_now)
{
    mutex_lock(&f->mu);
    f->n_bytes += n_bytes_now - n_bytes;
    note_growth(f);
    mutex_unlock(&f->mu);
}

void stream_flow_drop(struct stream_flow *f, size_t n_responses, size_t n_bytes)
{
    mutex_lock(&f->mu);
    f->n_responses -= n_responses;
    f->n_bytes -= n_bytes;
    if (f->is_full)
        f->moved_ns = clock_now_ns(f->clock);
    bool has_room = f->is_full && !is_above(f, 2 * f->n_responses, 2 * f->n_bytes);
    /* With a limit of one response the flow has room only without any. */
    if (f->is_full && f->n_responses == 0)
        has_room = true;
    if (has_room)
        f->is_full = false;
    mutex_unlock(&f->mu);
    if (has_room)
        cond_broadcast(&f->changed);
}

void stream_flow_end(struct stream_flow *f)
{
    mutex_lock(&f->mu);
    f->has_ended = true;
    mutex_unlock(&f->mu);
    cond_broadcast(&f->changed);
}
