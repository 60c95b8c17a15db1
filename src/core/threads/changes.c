/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A subscription is posted at most once at a time: `is_posted`. Both sides exchange it, so that the
 * loop that sets it to false sees every change whose announcer has found it true.
 *
 * A subscription that ends while its message is under way is freed when that is delivered. Nothing
 * else of the server is touched then, which may be gone.
 */
#include "core/threads/changes.h"

#include "base/loop.h"
#include "base/mem.h"

enum { CHANGES_LEVEL = 872 };

struct subscription {
    struct list link; /* under changes.mu */
    struct changes *changes;
    struct loop *loop;
    void (*on_change)(void *arg);
    void *arg;
    struct message message;
    atomic_bool is_posted;
    bool has_ended; /* the loop's */
};

void changes_init(struct changes *c)
{
    atomic_init(&c->generation, 0);
    mutex_init(&c->mu, CHANGES_LEVEL, "changes.mu");
    list_init(&c->subscribers);
}

void changes_done(struct changes *c)
{
    BUG_ON(!list_empty(&c->subscribers));
    mutex_done(&c->mu);
}

void changes_announce(struct changes *c)
{
    mutex_lock(&c->mu);
    atomic_fetch_add(&c->generation, 1);
    LIST_FOR_EACH (link, &c->subscribers) {
        struct subscription *s = LIST_ENTRY(link, struct subscription, link);
        if (!atomic_exchange(&s->is_posted, true))
            loop_post(s->loop, &s->message);
    }
    mutex_unlock(&c->mu);
}

uint32_t changes_generation(struct changes *c)
{
    return atomic_load(&c->generation);
}

static void deliver_change(struct message *m)
{
    struct subscription *s = CONTAINER_OF(m, struct subscription, message);
    if (s->has_ended) {
        mem_free(s);
        return;
    }
    (void)atomic_exchange(&s->is_posted, false);
    s->on_change(s->arg);
}

struct subscription *changes_subscribe(struct changes *c, struct loop *loop,
                                       void (*on_change)(void *arg), void *arg)
{
    struct subscription *s = mem_try_zalloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->changes = c;
    s->loop = loop;
    s->on_change = on_change;
    s->arg = arg;
    s->message.deliver = deliver_change;
    mutex_lock(&c->mu);
    list_push(&c->subscribers, &s->link);
    mutex_unlock(&c->mu);
    return s;
}

void changes_unsubscribe(struct subscription *s)
{
    if (!s)
        return;
    mutex_lock(&s->changes->mu);
    list_remove(&s->link);
    mutex_unlock(&s->changes->mu);
    s->has_ended = true;
    if (!atomic_load(&s->is_posted))
        mem_free(s);
}
