/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_mailbox - the cost of a message to another thread: base/mailbox.c compared with the plain
 * way, a list under a mutex with a flag that the reader sleeps. Both wake through an eventfd, at
 * most once per sleep. CPU time of the whole process per message.
 *
 * burst: senders post as fast as they can; single: a sender waits until its message is delivered.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/mailbox.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

enum { MOST_SENDERS = 4, BURST = 400000, SINGLES = 20000 };

struct plain {
    pthread_mutex_t mu;
    struct message *first, *last;
    bool asleep;
    int wake_fd;
};

static struct mailbox mailbox;
static struct plain plain;
static bool use_plain;

static void post(struct message *m)
{
    if (!use_plain) {
        mailbox_post(&mailbox, m);
        return;
    }
    m->next = NULL;
    pthread_mutex_lock(&plain.mu);
    if (plain.last)
        plain.last->next = m;
    else
        plain.first = m;
    plain.last = m;
    bool wake = plain.asleep;
    plain.asleep = false;
    pthread_mutex_unlock(&plain.mu);
    if (wake)
        eventfd_write(plain.wake_fd, 1);
}

static bool may_sleep(void)
{
    if (!use_plain)
        return mailbox_sleep(&mailbox);
    pthread_mutex_lock(&plain.mu);
    plain.asleep = !plain.first;
    bool asleep = plain.asleep;
    pthread_mutex_unlock(&plain.mu);
    return asleep;
}

static struct message *take(void)
{
    if (!use_plain)
        return mailbox_take(&mailbox);
    pthread_mutex_lock(&plain.mu);
    struct message *m = plain.first;
    plain.first = plain.last = NULL;
    plain.asleep = false;
    pthread_mutex_unlock(&plain.mu);
    return m;
}

/* A message is free again when the reader has cleared its flag. */
struct letter {
    struct message message;
    atomic_bool busy;
};

struct sender {
    struct thread thread;
    long n_messages;
    int n_letters;
    struct letter *letters;
};

static void send_all(void *arg)
{
    struct sender *s = arg;
    for (long i = 0; i < s->n_messages; i++) {
        struct letter *l = &s->letters[i % s->n_letters];
        while (atomic_load_explicit(&l->busy, memory_order_acquire))
            sched_yield();
        atomic_store_explicit(&l->busy, true, memory_order_relaxed);
        post(&l->message);
    }
}

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double measure(bool with_plain, int n_senders, long n_messages, int n_letters)
{
    static struct sender senders[MOST_SENDERS];
    use_plain = with_plain;
    for (int i = 0; i < n_senders; i++) {
        senders[i].n_messages = n_messages;
        senders[i].n_letters = n_letters;
        senders[i].letters = mem_alloc((size_t)n_letters * sizeof(struct letter));
        memset(senders[i].letters, 0, (size_t)n_letters * sizeof(struct letter));
    }
    double before = cpu_ns();
    for (int i = 0; i < n_senders; i++) {
        struct status *st = thread_start(&senders[i].thread, "sender", send_all, &senders[i]);
        if (st)
            return 0;
    }
    int fd = with_plain ? plain.wake_fd : mailbox.wake_fd;
    for (long left = n_senders * n_messages; left > 0;) {
        if (may_sleep()) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            eventfd_t sum;
            (void)poll(&p, 1, -1);
            if (with_plain)
                eventfd_read(fd, &sum);
            else
                mailbox_clear(&mailbox);
        }
        for (struct message *m = take(), *next; m; m = next, left--) {
            next = m->next;
            struct letter *l = CONTAINER_OF(m, struct letter, message);
            atomic_store_explicit(&l->busy, false, memory_order_release);
        }
    }
    for (int i = 0; i < n_senders; i++)
        thread_join(&senders[i].thread);
    double spent_ns = cpu_ns() - before;
    for (int i = 0; i < n_senders; i++)
        mem_free(senders[i].letters);
    return spent_ns / (double)(n_senders * n_messages);
}

int main(void)
{
    struct status *st = mailbox_init(&mailbox);
    if (st) {
        fprintf(stderr, "bench_mailbox: %s\n", status_message(st));
        return 1;
    }
    pthread_mutex_init(&plain.mu, NULL);
    plain.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    printf("| CPU ns per message | mailbox | list under a mutex |\n|---|---|---|\n");
    for (int senders = 1; senders <= MOST_SENDERS; senders *= 2) {
        double best[2] = {1e9, 1e9};
        for (int round = 0; round < 5; round++) {
            for (int way = 0; way < 2; way++) {
                double ns = measure(way, senders, BURST / senders, BURST / senders);
                best[way] = MIN(best[way], ns);
            }
        }
        printf("| burst, %d sender%s | %.0f | %.0f |\n", senders, senders > 1 ? "s" : "", best[0],
               best[1]);
    }
    double best[2] = {1e9, 1e9};
    for (int round = 0; round < 5; round++) {
        for (int way = 0; way < 2; way++) {
            double ns = measure(way, 1, SINGLES, 1);
            best[way] = MIN(best[way], ns);
        }
    }
    printf("| single, with its wake-up | %.0f | %.0f |\n", best[0], best[1]);
    mailbox_done(&mailbox);
    close(plain.wake_fd);
    return 0;
}
