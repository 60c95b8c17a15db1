/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: the sleeping-flag protocol (publish, then wake only who sleeps) in a single atomic word.
 * `newest` is a stack of messages that senders push on; the owner takes the whole stack at once and
 * turns it round. Since nobody ever takes a single message, there is no ABA problem.
 *
 *     NULL ──mailbox_sleep──► ASLEEP ──mailbox_post (writes the eventfd)──► messages
 *       ▲  └──mailbox_post──► messages ──mailbox_post──► more messages        │
 *       └──────────────────── mailbox_take ◄──────────────────────────────────┘
 *
 * No wake-up can be lost: the owner goes to sleep only by changing NULL to ASLEEP, in the same word
 * that a sender changes; whichever of the two is second sees the first. No wake-up is sent twice:
 * the sender that replaces ASLEEP is the only one to see it. A separate flag would need a full
 * fence on both sides (and a second shared cache line) for the same.
 *
 * The end: a message can be delivered, and all that it stood for be over, while its sender is still
 * on its way to the eventfd. Were that closed by now, its number could be another file's. The owner
 * therefore counts the sleeps that a message ended, each of which owes one write, and
 * mailbox_done() waits until the eventfd has got them all.
 *
 * A list under a mutex costs about the same (bench_mailbox: 12–22 against 19–30 ns per message from
 * one sender, 16–54 against 29–49 from two to four on two cores; both drown in the 2–10 µs of a
 * wake-up). What decides is that a sender that loses its core in the middle holds up nobody, and
 * that a message may be posted under any lock.
 *
 * Memory orders: the release of a push pairs with the acquire of mailbox_take(). A later push is
 * part of the release sequence of the earlier ones (all are read-modify-writes), so taking the
 * newest message acquires all of them. Nothing is published by going to sleep: relaxed.
 */
#include "base/mailbox.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/status.h"

static struct message asleep_mark;
#define ASLEEP (&asleep_mark)

struct status *mailbox_init(struct mailbox *mb)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0)
        return status_from_errno(errno, "failed to create an eventfd");
    atomic_init(&mb->newest, NULL);
    atomic_init(&mb->n_wakes, 0);
    mb->wake_fd = fd;
    mb->slept = false;
    mb->left = NULL;
    mb->n_awaited = mb->n_cleared = 0;
    return NULL;
}

/* Waits until as many wake-ups have been written as senders must write. */
static void await_senders(struct mailbox *mb)
{
    uint64_t n_due = mb->n_awaited + atomic_load_explicit(&mb->n_wakes, memory_order_relaxed);
    while (mailbox_clear(mb), mb->n_cleared < n_due) {
        struct pollfd p = {.fd = mb->wake_fd, .events = POLLIN};
        (void)poll(&p, 1, -1);
    }
}

void mailbox_done(struct mailbox *mb)
{
    struct message *left = atomic_load_explicit(&mb->newest, memory_order_relaxed);
    BUG_ON(mb->left || (left != NULL && left != ASLEEP));
    await_senders(mb);
    close(mb->wake_fd);
    mb->wake_fd = -1;
}

static void write_wake_fd(struct mailbox *mb)
{
    uint64_t one = 1;
    int saved_errno = errno; /* a signal handler must not change it */
    /* The counter ends at 2^64 - 2, which is never reached. */
    while (write(mb->wake_fd, &one, sizeof(one)) < 0)
        BUG_ON(errno != EINTR);
    errno = saved_errno;
}

void mailbox_post(struct mailbox *mb, struct message *m)
{
    struct message *before = atomic_load_explicit(&mb->newest, memory_order_relaxed);
    do {
        m->next = before == ASLEEP ? NULL : before;
    } while (!atomic_compare_exchange_weak_explicit(&mb->newest, &before, m, memory_order_release,
                                                    memory_order_relaxed));
    if (before == ASLEEP)
        write_wake_fd(mb);
}

bool mailbox_sleep(struct mailbox *mb)
{
    struct message *none = NULL;
    if (mb->left)
        return false;
    mb->slept = atomic_compare_exchange_strong_explicit(&mb->newest, &none, ASLEEP,
                                                        memory_order_relaxed, memory_order_relaxed);
    return mb->slept;
}

struct message *mailbox_take(struct mailbox *mb)
{
    /* The usual case while requests run inline: no message, and no need to write the cache line. */
    if (!atomic_load_explicit(&mb->newest, memory_order_relaxed))
        return NULL;

    struct message *m = atomic_exchange_explicit(&mb->newest, NULL, memory_order_acquire);
    bool slept = mb->slept;
    mb->slept = false;
    if (m == ASLEEP)
        return NULL;
    mb->n_awaited += slept;
    struct message *oldest_first = NULL;
    while (m) {
        struct message *older = m->next;
        m->next = oldest_first;
        oldest_first = m;
        m = older;
    }
    return oldest_first;
}

unsigned int mailbox_deliver(struct mailbox *mb, unsigned int max)
{
    unsigned int n = 0;
    if (!mb->left)
        mb->left = mailbox_take(mb);
    while (mb->left && n < max) {
        struct message *m = mb->left;
        mb->left = m->next; /* deliver() may free m */
        m->deliver(m);
        n++;
    }
    return n;
}

void mailbox_wake(struct mailbox *mb)
{
    atomic_fetch_add_explicit(&mb->n_wakes, 1, memory_order_relaxed);
    write_wake_fd(mb);
}

uint64_t mailbox_clear(struct mailbox *mb)
{
    uint64_t sum;
    ssize_t n;
    while ((n = read(mb->wake_fd, &sum, sizeof(sum))) < 0 && errno == EINTR) {
    }
    BUG_ON(n < 0 && errno != EAGAIN);
    if (n < 0)
        return 0;
    mb->n_cleared += sum;
    return sum;
}
