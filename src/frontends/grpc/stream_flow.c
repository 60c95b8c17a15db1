/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of unsent responses and their bytes, under a mutex that is held for a few instructions.
 * The flow becomes full at a limit and stays so until both counts are below half of their limits,
 * so that the backend's thread is not woken for each response. Thread: any.
 */
#include "frontends/grpc/stream_flow.h"

#include "base/clock.h"
#include "base/status.h"

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

struct status *stream_flow_await(struct stream_flow *f)
{
    bool in_time = true;
    mutex_lock(&f->mu);
    while (f->is_full && !f->has_ended && in_time) {
        uint64_t deadline_ns = find_deadline_ns(f);
        in_time = cond_wait_by_clock(&f->changed, &f->mu, f->clock, deadline_ns) ||
                  find_deadline_ns(f) > deadline_ns; /* some have left meanwhile */
    }
    bool has_ended = f->has_ended, is_full = f->is_full;
    mutex_unlock(&f->mu);
    if (has_ended)
        return status_new(STATUS_CANCELLED, "the client has ended the call");
    if (is_full)
        return status_new(STATUS_EXHAUSTED, "the client has not read its responses for %llu s",
                          (unsigned long long)(f->limits->stall_ns / NS_PER_S));
    return NULL;
}

static bool is_above(const struct stream_flow *f, size_t n_responses, size_t n_bytes)
{
    const struct stream_flow_limits *l = f->limits;
    return (l->max_responses && n_responses >= l->max_responses) || n_bytes >= l->max_bytes;
}

bool stream_flow_is_full(struct stream_flow *f)
{
    mutex_lock(&f->mu);
    bool is_full = f->is_full && !f->has_ended;
    mutex_unlock(&f->mu);
    return is_full;
}

void stream_flow_add(struct stream_flow *f, size_t n_bytes)
{
    mutex_lock(&f->mu);
    f->n_responses++;
    f->n_bytes += n_bytes;
    if (!f->is_full && is_above(f, f->n_responses, f->n_bytes)) {
        f->is_full = true;
        f->moved_ns = clock_now_ns(f->clock);
    }
    mutex_unlock(&f->mu);
}

void stream_flow_drop(struct stream_flow *f, size_t n_bytes)
{
    mutex_lock(&f->mu);
    f->n_responses--;
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
