/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit of the unsent responses of one decoupled request. A backend that sends faster than its
 * client reads waits in the call that sends.
 *
 *      stream_flow_take()      on the backend's thread, when it sends a response
 *      stream_flow_exchange()  on the loop, when responses become text
 *      stream_flow_drop()      on the loop, when they are sent or dropped
 *
 * The thread waits until half of the responses, or of their bytes, has left, or the request ends
 * (stream_flow_end()), or none has left for the time that a client may take. So such a request must
 * not be executed on the loop. If it is, as CONCH_EXECUTION=inline demands, a full flow has stalled
 * at once, since the loop cannot wait for itself.
 */
#ifndef CONCH_FRONTENDS_OPS_STREAM_FLOW_H
#define CONCH_FRONTENDS_OPS_STREAM_FLOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mutex.h"

struct clock;
struct loop;
struct status;

struct stream_flow_limits {
    size_t max_responses; /* 0: no limit */
    size_t max_bytes;
    uint64_t stall_ns; /* how long a thread waits; 0: without limit */
};

struct stream_flow {
    /* Set by stream_flow_init(), constant afterwards. */
    const struct stream_flow_limits *limits;
    struct clock *clock;

    atomic_bool has_stalled; /* a thread has waited for too long, or could not wait; for the loop */

    struct mutex mu; /* level 880 in core/README.md; a leaf */
    struct cond changed;
    /* Under mu. */
    size_t n_responses, n_bytes; /* that have not left */
    uint64_t moved_ns;           /* the last time that one has left, or the flow became full */
    bool is_full;                /* until half has left */
    bool has_ended;
};

void stream_flow_init(struct stream_flow *f, const struct stream_flow_limits *limits,
                      struct clock *clock);
void stream_flow_done(struct stream_flow *f);

/*
 * stream_flow_take - waits for room for a response of n_bytes, and counts it. When the wait has
 * been too long, or is impossible on the loop's thread, the flow has stalled; the response counts
 * nevertheless. Errors of the core come on threads that must not wait, so they never do.
 *
 * Thread: any. Blocks, unless it is the loop's.
 * Returns false, and counts nothing, when the request has ended: nobody wants the response.
 */
NODISCARD bool stream_flow_take(struct stream_flow *f, const struct loop *loop, size_t n_bytes,
                                bool is_error);

/*
 * stream_flow_exchange - the responses of n_bytes that were taken have another size now. Thread:
 * any.
 */
void stream_flow_exchange(struct stream_flow *f, size_t n_bytes, size_t n_bytes_now);

/* stream_flow_drop - uncounts responses that have n_bytes together. Thread: any. */
void stream_flow_drop(struct stream_flow *f, size_t n_responses, size_t n_bytes);

/* stream_flow_end - wakes the waiting thread; nobody wants a further response. Thread: any. */
void stream_flow_end(struct stream_flow *f);

#endif
