/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mailbox: any thread posts messages, one thread takes them. Messages are embedded in the objects
 * they speak of, so that posting allocates nothing and cannot fail.
 *
 * The owner says when it is about to wait (mailbox_sleep); only the first message after that costs
 * a system call, which makes wake_fd readable. An owner that is awake finds its messages by itself.
 * Each event loop has one (base/loop.h).
 */
#ifndef CONCH_BASE_MAILBOX_H
#define CONCH_BASE_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct message;
/* Runs on the mailbox owner's thread. m is the callee's again: it may free it or post it anew. */
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
    /* Set by mailbox_init(), constant afterwards. An eventfd: watch it edge-triggered, or empty
     * it by mailbox_clear(). */
    int wake_fd;
    /* The owner's. */
    bool slept;         /* mailbox_sleep() gave leave, mailbox_take() has not followed yet */
    uint64_t n_awaited; /* sleeps that a message ended: each has a sender that writes wake_fd */
    uint64_t n_cleared; /* wake-ups taken out of wake_fd */
};

/* mailbox_init - Errors: STATUS_UNAVAILABLE  no file descriptor is left */
NODISCARD struct status *mailbox_init(struct mailbox *mb);

/*
 * mailbox_done - the mailbox must be empty, and nobody may begin to post or wake any more. A sender
 * whose message was delivered may still be inside mailbox_post(): it is waited for.
 */
void mailbox_done(struct mailbox *mb);

/*
 * mailbox_post - hands m to the owner's thread, which will call m->deliver(m).
 *
 * Thread: any, under any lock; takes none. Messages of one thread are delivered in the order of
 * their posting, and all that the sender wrote before is visible to deliver().
 * @m  the mailbox's until it is delivered; must not be posted twice meanwhile
 */
void mailbox_post(struct mailbox *mb, struct message *m);

/*
 * mailbox_sleep - the owner is going to wait on wake_fd; true when it may. False: there are
 * messages already. Either way mailbox_take() must follow.
 *
 * Thread: the owner's.
 */
bool mailbox_sleep(struct mailbox *mb);

/*
 * mailbox_take - all messages, oldest first, linked by next; NULL when there are none. The owner
 * counts as awake from here on.
 *
 * Thread: the owner's.
 */
struct message *mailbox_take(struct mailbox *mb);

/* mailbox_deliver - takes all messages and delivers them; how many. Thread: the owner's. */
unsigned int mailbox_deliver(struct mailbox *mb);

/*
 * mailbox_clear - makes wake_fd unreadable again; how many wake-ups there were. For owners that do
 * not watch it edge-triggered, and would find it ready for ever.
 *
 * Thread: the owner's.
 */
uint64_t mailbox_clear(struct mailbox *mb);

/*
 * mailbox_wake - makes wake_fd readable whatever the owner does. Must have returned before
 * mailbox_done(). Thread: any; signal handlers too.
 */
void mailbox_wake(struct mailbox *mb);

#endif
