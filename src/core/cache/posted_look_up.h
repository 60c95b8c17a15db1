/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look-up that a thread of the cache makes for a request, since the cache may wait. The request
 * may be cancelled meanwhile: it is then answered at once, and ends, while the cache goes on. So
 * the look-up has memory of its own, and touches the request only once it has claimed it:
 *
 *     waits ──┬─ the cache copies a response, or has returned: claimed, the request goes on
 *             └─ request_cancel(): claimed, a helper of the server answers
 */
#ifndef CONCH_CORE_CACHE_POSTED_LOOK_UP_H
#define CONCH_CORE_CACHE_POSTED_LOOK_UP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct request;
struct response;
struct scheduler;

/*
 * What follows a look-up of a request that has not been cancelled meanwhile.
 *
 * Thread: the cache's, without locks
 * @resp     the caller's to end; NULL: there is none
 * @from_ns  when the thread began
 */
typedef void (*looked_up_fn)(struct scheduler *s, struct request *r, struct response *resp,
                             uint64_t from_ns);

/*
 * cache_post_look_up - has a thread of the cache look up the request, which is accepted.
 * False: too many look-ups wait already, or there is no memory; nothing has happened.
 *
 * Thread: any that has the request; on success it has it no longer
 */
NODISCARD bool cache_post_look_up(struct scheduler *s, struct request *r, looked_up_fn next);

/* posted_look_up_cancel - model_cache.cancel: see there. */
void posted_look_up_cancel(struct request *r);

#endif
