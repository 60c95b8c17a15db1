/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that takes long, such as the load of a model, made for an event loop by a control thread:
 *
 *     control_call_begin ──► control_post ─► work ──► loop_post ─► on_done
 *            the loop                   a control thread            the loop
 *
 * The call is embedded in its owner's struct, so that beginning it allocates nothing.
 */
#ifndef CONCH_FRONTENDS_OPS_CONTROL_CALL_H
#define CONCH_FRONTENDS_OPS_CONTROL_CALL_H

#include <stdbool.h>

#include "base/loop.h"
#include "core/threads/control.h"

struct control_call {
    /* Set by the owner, constant while the call runs. */
    void (*work)(struct control_call *c);    /* on the control thread: may block */
    void (*on_done)(struct control_call *c); /* on the loop; the call is the owner's again */

    struct loop *loop;
    struct control_job job;
    struct message done;
};

/*
 * control_call_begin - has c->work() called on a control thread and then c->on_done() on the loop.
 *
 * Thread: the loop's. Does not block, except without control threads: then both are called before
 * this returns. When all control threads are busy and the system has no room for another, the loop
 * calls c->work() itself, unless the call has a key or is a load.
 * @control  ops_control() or ops_helpers(); NULL: the system has no room for a thread
 * @key      calls of the same key run one after another, in their order; NULL: no order
 * @is_load  whether the call counts as a load, of which only so many run at the same time
 */
void control_call_begin(struct control_call *c, struct control *control, struct loop *loop,
                        const char *key, bool is_load);

#endif
