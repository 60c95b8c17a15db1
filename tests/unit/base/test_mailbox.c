/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mailbox alone: order, one wake-up per sleep, and a stress test in which a lost wake-up would
 * leave the reader asleep for ever.
 */
#include "base/mailbox.h"

#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

enum { ALL = 1000 }; /* more than there are */

struct letter {
    struct message message;
    int sender;
    int number;
};

static int delivered[16];
static int n_delivered;

static void note(struct message *m)
{
    delivered[n_delivered++] = CONTAINER_OF(m, struct letter, message)->number;
}

static void messages_are_delivered_in_order(void **state)
{
    (void)state;
    struct mailbox mb;
    struct letter letters[5];
    assert_null(mailbox_init(&mb));
    n_delivered = 0;
    for (int i = 0; i < 5; i++) {
        letters[i] = (struct letter){.message.deliver = note, .number = i};
        mailbox_post(&mb, &letters[i].message);
    }
    assert_int_equal(mailbox_deliver(&mb, ALL), 5);
    assert_int_equal(n_delivered, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(delivered[i], i);
    assert_int_equal(mailbox_deliver(&mb, ALL), 0);
    assert_int_equal(mailbox_clear(&mb), 0); /* the reader never slept */
    mailbox_done(&mb);
}

static void a_sleeping_reader_is_woken_once(void **state)
{
    (void)state;
    struct mailbox mb;
    struct letter a = {.message.deliver = note}, b = a, c = a;
    assert_null(mailbox_init(&mb));
    n_delivered = 0;

    assert_true(mailbox_sleep(&mb));
    mailbox_post(&mb, &a.message);
    mailbox_post(&mb, &b.message);
    assert_int_equal(mailbox_clear(&mb), 1);
    assert_int_equal(mailbox_deliver(&mb, ALL), 2);

    /* The reader is awake again: no wake-up. While a message waits it may not sleep. */
    mailbox_post(&mb, &c.message);
    assert_int_equal(mailbox_clear(&mb), 0);
    assert_false(mailbox_sleep(&mb));
    assert_int_equal(mailbox_deliver(&mb, ALL), 1);

    assert_true(mailbox_sleep(&mb));
    assert_int_equal(mailbox_deliver(&mb, ALL), 0); /* something else woke the reader */
    mailbox_post(&mb, &c.message);
    assert_int_equal(mailbox_clear(&mb), 0);
    assert_int_equal(mailbox_deliver(&mb, ALL), 1);
    mailbox_done(&mb);
}

/* Messages that come meanwhile are behind them, and the owner may not sleep before them. */
static void what_is_left_comes_first_in_the_next_delivery(void **state)
{
    (void)state;
    struct mailbox mb;
    struct letter letters[5];
    assert_null(mailbox_init(&mb));
    n_delivered = 0;
    for (int i = 0; i < 4; i++) {
        letters[i] = (struct letter){.message.deliver = note, .number = i};
        mailbox_post(&mb, &letters[i].message);
    }
    assert_int_equal(mailbox_deliver(&mb, 3), 3);
    assert_int_equal(n_delivered, 3);
    assert_false(mailbox_sleep(&mb));
    letters[4] = (struct letter){.message.deliver = note, .number = 4};
    mailbox_post(&mb, &letters[4].message);
    assert_int_equal(mailbox_deliver(&mb, ALL), 1);
    assert_int_equal(mailbox_deliver(&mb, ALL), 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(delivered[i], i);
    assert_true(mailbox_sleep(&mb));
    assert_int_equal(mailbox_deliver(&mb, ALL), 0);
    assert_int_equal(mailbox_clear(&mb), 0);
    mailbox_done(&mb);
}

static struct mailbox *repost_to;

static void post_again(struct message *m)
{
    struct letter *l = CONTAINER_OF(m, struct letter, message);
    if (l->number-- > 0)
        mailbox_post(repost_to, m);
}

static void a_delivered_message_may_be_posted_again(void **state)
{
    (void)state;
    struct mailbox mb;
    struct letter l = {.message.deliver = post_again, .number = 2};
    assert_null(mailbox_init(&mb));
    repost_to = &mb;
    assert_int_equal(mailbox_deliver(&mb, ALL), 0);
    mailbox_post(&mb, &l.message);
    /* Each delivery takes the messages that were there when it began. */
    assert_int_equal(mailbox_deliver(&mb, ALL), 1);
    assert_int_equal(mailbox_deliver(&mb, ALL), 1);
    assert_int_equal(mailbox_deliver(&mb, ALL), 1);
    assert_int_equal(mailbox_deliver(&mb, ALL), 0);
    mailbox_done(&mb);
}

static void wake_twice(void *arg)
{
    mailbox_wake(arg);
    mailbox_wake(arg);
}

static void a_reader_is_woken_without_a_message(void **state)
{
    (void)state;
    struct mailbox mb;
    struct thread t;
    assert_null(mailbox_init(&mb));
    assert_true(mailbox_sleep(&mb));
    assert_null(thread_start(&t, "waker", wake_twice, &mb));
    thread_join(&t);
    struct pollfd p = {.fd = mb.wake_fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, -1), 1);
    assert_int_equal(mailbox_deliver(&mb, ALL), 0);
    mailbox_done(&mb);
}

struct last {
    struct message message;
    bool came; /* of the owner */
};

static void note_last(struct message *m)
{
    CONTAINER_OF(m, struct last, message)->came = true;
}

struct post_of {
    struct mailbox *mb;
    struct last last;
};

static void post_one(void *arg)
{
    struct post_of *p = arg;
    mailbox_post(p->mb, &p->last.message);
}

/* The owner does not wait for the wake-up: it finds the message and ends the mailbox at once,
 * while the sender may still be writing. If the end does not wait for the sender, the thread
 * sanitizer sees it. */
static void the_end_waits_for_the_last_sender(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct mailbox *mb = mem_alloc(sizeof(*mb));
        struct post_of p = {.mb = mb, .last.message.deliver = note_last};
        struct thread t;
        assert_null(mailbox_init(mb));
        assert_true(mailbox_sleep(mb));
        assert_null(thread_start(&t, "last", post_one, &p));
        while (!p.last.came) {
            mailbox_deliver(mb, ALL);
            if (!p.last.came && i % 2)
                (void)mailbox_sleep(mb);
            sched_yield(); /* with few processors the sender needs this one */
        }
        mailbox_done(mb);
        mem_free(mb);
        thread_join(&t);
    }
}

enum { N_SENDERS = 4, N_EACH = 100000 };

struct sender {
    struct thread thread;
    struct mailbox *mb;
    int number;
};

static int next_of[N_SENDERS];
static long n_received;

static void check_and_free(struct message *m)
{
    struct letter *l = CONTAINER_OF(m, struct letter, message);
    assert_int_equal(l->number, next_of[l->sender]);
    next_of[l->sender]++;
    n_received++;
    mem_free(l);
}

static void send_all(void *arg)
{
    struct sender *s = arg;
    for (int i = 0; i < N_EACH; i++) {
        struct letter *l = mem_alloc(sizeof(*l));
        *l = (struct letter){.message.deliver = check_and_free, .sender = s->number, .number = i};
        mailbox_post(s->mb, &l->message);
    }
}

/* The reader waits without a limit. A lost wake-up hangs the test, and ctest ends it. */
static void no_message_is_lost_between_threads(void **state)
{
    (void)state;
    struct mailbox mb;
    struct sender senders[N_SENDERS];
    assert_null(mailbox_init(&mb));
    for (int i = 0; i < N_SENDERS; i++) {
        senders[i] = (struct sender){.mb = &mb, .number = i};
        assert_null(thread_start(&senders[i].thread, "sender", send_all, &senders[i]));
    }
    uint64_t n_wakeups = 0, n_sleeps = 0;
    while (n_received < (long)N_SENDERS * N_EACH) {
        if (mailbox_sleep(&mb)) {
            struct pollfd p = {.fd = mb.wake_fd, .events = POLLIN};
            assert_int_equal(poll(&p, 1, -1), 1);
            n_wakeups += mailbox_clear(&mb);
            n_sleeps++;
        }
        mailbox_deliver(&mb, ALL);
    }
    for (int i = 0; i < N_SENDERS; i++) {
        thread_join(&senders[i].thread);
        assert_int_equal(next_of[i], N_EACH);
    }
    assert_int_equal(n_wakeups, n_sleeps); /* one wake-up per sleep */
    mailbox_done(&mb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_delivered_in_order),
        cmocka_unit_test(a_sleeping_reader_is_woken_once),
        cmocka_unit_test(what_is_left_comes_first_in_the_next_delivery),
        cmocka_unit_test(a_delivered_message_may_be_posted_again),
        cmocka_unit_test(a_reader_is_woken_without_a_message),
        cmocka_unit_test(the_end_waits_for_the_last_sender),
        cmocka_unit_test(no_message_is_lost_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
