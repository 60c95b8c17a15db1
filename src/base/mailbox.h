/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mailbox: any thread posts messages, and one thread, the owner, takes them. Messages are
 * embedded in the objects that they are about, so that posting allocates nothing and cannot fail.
 *
 * The owner calls mailbox_sleep() before it waits. Only the first message after that costs a system
 * call, which makes wake_fd readable. An owner that is awake finds its messages without one. Each
 * event loop has a mailbox (base/loop.h).
 */
#ifndef CONCH_BASE_MAILBOX_H
#define CONCH_BASE_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct message;
/* Runs on the owner's thread. The message is the callee's again, to free or to post anew. */
typedef void (*message_fn)(struct message *m);

struct message {
    struct message *next;
    message_fn deliver; /* set by the sender */
};

struct mailbox {
    /* Any thread: the newest message, linked to the older ones; or NULL, or a mark for "asleep". */
    _Atomic(struct message *) newest;
    /* Any thread: calls of mailbox_wake(). */
    atomic_uint_fast64_t n_wakes;
    /*
     * Set by mailbox_init(), constant afterwards. An eventfd: watch it edge-triggered, or empty it
     * with mailbox_clear().
     */
    int wake_fd;
    /* The owner's. */
    bool slept;         /* mailbox_sleep() returned true, and mailbox_take() has not followed yet */
    uint64_t n_awaited; /* sleeps that a message ended; the sender of each writes wake_fd once */
    uint64_t n_cleared; /* wake-ups read from wake_fd */
    struct message *left; /* taken by mailbox_deliver(), which had delivered enough; oldest first */
};

/* mailbox_init - Errors: STATUS_UNAVAILABLE  no file descriptor is left */
NODISCARD struct status *mailbox_init(struct mailbox *mb);

/*
 * mailbox_done - ends the mailbox, which must be empty. No thread may begin to post or wake any
 * more. A sender whose message was delivered may still be inside mailbox_post(): mailbox_done()
 * waits for it.
 */
void mailbox_done(struct mailbox *mb);

/*
 * mailbox_post - hands m to the owner's thread, which will call m->deliver(m).
 *
 * Thread: any, under any lock; takes none. Messages of one thread are delivered in the order of
 * their posting. Everything that the sender wrote before the post is visible to deliver().
 * @m  belongs to the mailbox until it is delivered; must not be posted a second time before that
 */
void mailbox_post(struct mailbox *mb, struct message *m);

/*
 * mailbox_sleep - announces that the owner is going to wait on wake_fd. True: it may wait. False:
 * there are messages already. In both cases mailbox_take() or mailbox_deliver() must follow.
 *
 * Thread: the owner's.
 */
bool mailbox_sleep(struct mailbox *mb);

/*
 * mailbox_take - removes and returns all messages, oldest first, linked by next; NULL when there
 * are none. The owner counts as awake from here on.
 *
 * Thread: the owner's.
 */
struct message *mailbox_take(struct mailbox *mb);

/*
 * mailbox_deliver - takes all messages and delivers up to `max` of them. The next call goes on with
 * the rest, before it takes more; until then mailbox_sleep() returns false. Returns the number of
 * messages delivered.
 *
 * Thread: the owner's. An owner calls either this or mailbox_take().
 */
unsigned int mailbox_deliver(struct mailbox *mb, unsigned int max);

/*
 * mailbox_clear - makes wake_fd unreadable again and returns the number of wake-ups. For owners
 * that watch it level-triggered, which would otherwise find it ready for ever.
 *
 * Thread: the owner's.
 */
uint64_t mailbox_clear(struct mailbox *mb);

/*
 * mailbox_wake - makes wake_fd readable, whether or not the owner waits. It must have returned
 * before mailbox_done() is called. Thread: any; signal handlers, too.
 */
void mailbox_wake(struct mailbox *mb);

#endif
