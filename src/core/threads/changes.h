/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of what readiness is made of: the state of a server, its models in the table of look-ups,
 * instances that are stuck, answers of backends. Event loops subscribe to them, so that nobody has
 * to look again and again.
 *
 *     c->generation changes, and a message to each subscriber's loop is posted, unless one is under
 *     way already;  the loop calls on_change(), which looks
 *
 * A subscriber that looks after changes_subscribe() or in on_change() misses no later change.
 */
#ifndef CONCH_CORE_THREADS_CHANGES_H
#define CONCH_CORE_THREADS_CHANGES_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/mutex.h"

struct loop;
struct subscription;

/* A server's. */
struct changes {
    atomic_uint_least32_t generation; /* how often something has changed */

    struct mutex mu;         /* level 872 in core/README.md; a leaf */
    struct list subscribers; /* under mu; of struct subscription */
};

void changes_init(struct changes *c);
/* changes_done - no subscription is left. */
void changes_done(struct changes *c);

/*
 * changes_announce - something has changed, which the caller has made visible before. Thread: any,
 * under any lock of a lower level.
 */
void changes_announce(struct changes *c);

/* changes_generation - another value after each change. Thread: any. */
uint32_t changes_generation(struct changes *c);

/*
 * changes_subscribe - has the loop call on_change(arg) after changes: at least once after the last
 * one. The caller ends it with changes_unsubscribe().
 *
 * Thread: the loop's. Returns NULL when memory is exhausted.
 */
NODISCARD struct subscription *changes_subscribe(struct changes *c, struct loop *loop,
                                                 void (*on_change)(void *arg), void *arg);

/* changes_unsubscribe - on_change() is not called any more. Thread: the loop's; NULL is fine. */
void changes_unsubscribe(struct subscription *s);

#endif
