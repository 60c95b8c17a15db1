/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_call() runs on a control thread, all else on the loop. The loop's mailbox makes the writes of
 * work() visible to on_done().
 */
#include "frontends/ops/control_call.h"

static void on_call_done(struct message *m)
{
    struct control_call *c = CONTAINER_OF(m, struct control_call, done);
    c->on_done(c);
}

static void run_call(struct control_job *job)
{
    struct control_call *c = CONTAINER_OF(job, struct control_call, job);
    c->work(c);
    loop_post(c->loop, &c->done);
}

void control_call_begin(struct control_call *c, struct control *control, struct loop *loop,
                        const char *key, bool is_load)
{
    if (!control) {
        c->work(c);
        c->on_done(c);
        return;
    }
    c->loop = loop;
    c->done.deliver = on_call_done;
    c->job = (struct control_job){.key = key, .is_load = is_load, .run = run_call};
    if (key || is_load)
        control_post(control, &c->job);
    else
        control_post_or_run(control, &c->job);
}
