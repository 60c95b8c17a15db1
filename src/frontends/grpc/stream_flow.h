/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit of the unsent responses of one decoupled request. A backend that sends faster than its
 * client reads waits in the call that sends.
 *
 *      stream_flow_await()   on the backend's thread, before it takes a response
 *      stream_flow_add()     … when it takes the response
 *      stream_flow_drop()    on the loop, when the response is sent or dropped
 *
 * The thread waits until half of the responses, or of their bytes, has left, or the request ends
 * (stream_flow_end()), or none has left for the time that a client may take. So such a request must
 * not be executed on the loop.
 */
#ifndef CONCH_FRONTENDS_GRPC_STREAM_FLOW_H
#define CONCH_FRONTENDS_GRPC_STREAM_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mutex.h"

struct clock;
struct status;

struct stream_flow_limits {
    size_t max_responses; /* --grpc-max-response-pool-size; 0: no limit */
    size_t max_bytes;
    uint64_t stall_ns; /* how long a thread waits; 0: without limit */
};

struct stream_flow {
    /* Set by stream_flow_init(), constant afterwards. */
    const struct stream_flow_limits *limits;
    struct clock *clock;

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
 * stream_flow_await - waits for room for another response.
 *
 * Thread: any but the loop's. Blocks.
 * Errors: STATUS_CANCELLED    the request has ended: nobody wants the response
 *         STATUS_EXHAUSTED    no response has left for stall_ns
 */
NODISCARD struct status *stream_flow_await(struct stream_flow *f);

/* stream_flow_is_full - whether stream_flow_await() would wait. Thread: any. */
bool stream_flow_is_full(struct stream_flow *f);

/* stream_flow_add, stream_flow_drop - count a response of n_bytes, uncount it. Thread: any. */
void stream_flow_add(struct stream_flow *f, size_t n_bytes);
void stream_flow_drop(struct stream_flow *f, size_t n_bytes);

/*
 * stream_flow_end - wakes the waiting thread; stream_flow_await() fails from now on. Thread: any.
 */
void stream_flow_end(struct stream_flow *f);

#endif
