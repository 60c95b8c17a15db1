/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors: the kernel gives the lowest number that is free, so a connection whose number is
 * within the reserve says that all below it are in use, by whomever. That one is served; from then
 * on room is made for each, until enough descriptors are free again.
 */
#include "frontends/net/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "frontends/net/conn.h"
#include "frontends/net/worker.h"

enum {
    ACCEPTS_PER_TURN = 64,  /* connections that exist come first */
    SIMILAR_PERMILLE = 250, /* loops whose load differs by less than this have the same */
    MAX_COUNTED = 256       /* free descriptors; more than a reserve, and more than most loops */
};

#define PAUSE_NS (100 * NS_PER_MS)
/* A turn that lasts longer is one of which nobody knows when it will end. */
#define LONG_TURN_NS NS_PER_MS

static void on_acceptable(struct loop_fd *watch, uint32_t events);

/* ---- Who gets it ---------------------------------------------------------------------------- */

/* Whether a worker may have a connection, and how busy its loop is. */
static bool takes_more(const struct acceptor *a, const struct worker *w, unsigned int *ret_busy)
{
    struct loop_load load;
    loop_get_load(&w->loop, loop_now_ns(&a->worker->loop), &load);
    *ret_busy = load.busy_permille;
    return w == a->worker || load.in_turn_ns < LONG_TURN_NS;
}

struct worker *acceptor_choose(const struct acceptor *a)
{
    const struct listener *l = a->listener;
    struct worker *best = a->worker;
    unsigned int least_busy = 1000, fewest = UINT32_MAX, busy;
    for (unsigned int i = 0; i < l->n_workers; i++) {
        if (takes_more(a, &l->workers[i], &busy))
            least_busy = MIN(least_busy, busy);
    }
    for (unsigned int i = 0; i < l->n_workers; i++) {
        struct worker *w = &l->workers[i];
        unsigned int n = atomic_load_explicit(&w->n_conns, memory_order_relaxed);
        if (n < fewest && takes_more(a, w, &busy) && busy <= least_busy + SIMILAR_PERMILLE) {
            best = w;
            fewest = n;
        }
    }
    return best;
}

/* ---- Room ----------------------------------------------------------------------------------- */

static void watch_none(struct acceptor *a)
{
    for (unsigned int i = 0; i < a->listener->n_sockets; i++)
        loop_remove_fd(&a->worker->loop, &a->sockets[i].watch);
}

static struct status *watch_all(struct acceptor *a)
{
    for (unsigned int i = 0; i < a->listener->n_sockets; i++) {
        struct accepting *each = &a->sockets[i];
        struct status *st = loop_add_fd(&a->worker->loop, &each->watch, a->listener->fds[i],
                                        EPOLLIN | EPOLLEXCLUSIVE, on_acceptable);
        if (st) {
            watch_none(a);
            return st;
        }
    }
    return NULL;
}

/* An exclusive watch cannot be changed, so it is taken away and put back. */
static void pause_accepting(struct acceptor *a, const char *why)
{
    struct loop *loop = &a->worker->loop;
    if (!atomic_exchange_explicit(&a->listener->told, true, memory_order_relaxed))
        log_warn("no more connections are accepted for now: %s", why);
    watch_none(a);
    loop_set_timer(loop, &a->pause, loop_now_ns(loop) + PAUSE_NS);
}

static void on_pause_over(struct timer *t)
{
    struct acceptor *a = CONTAINER_OF(t, struct acceptor, pause);
    struct status *st = watch_all(a);
    if (st) { /* the kernel has no room for a watch: later, perhaps */
        status_free(st);
        loop_set_timer(&a->worker->loop, t, loop_now_ns(&a->worker->loop) + PAUSE_NS);
    }
}

/* How many descriptors of the reserve are in use, by whomever. */
static unsigned int count_used_of_reserve(const struct listener *l)
{
    unsigned int n_used = 0;
    for (unsigned int i = 0; i < l->n_reserved_fds; i++)
        n_used += fcntl(l->first_reserved_fd + (int)i, F_GETFD) >= 0;
    return n_used;
}

/* How many descriptors below the reserve are free; n at most, for more are not counted. */
static unsigned int count_free(const struct listener *l, unsigned int n)
{
    int fds[MAX_COUNTED];
    unsigned int n_free = 0;
    n = MIN(n, (unsigned int)MAX_COUNTED);
    while (n_free < n) {
        int fd = fcntl(l->fds[0], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            break;
        if (fd >= l->first_reserved_fd) {
            close(fd);
            break;
        }
        fds[n_free++] = fd;
    }
    for (unsigned int i = 0; i < n_free; i++)
        close(fds[i]);
    return n_free;
}

/* A client that has just come will ask for something any moment: it does not make room for itself.
 */
#define FRESH_NS (10 * NS_PER_MS)

/* Of the workers that can do it at once, the one that may have the connection that has been idle
 * for longest. */
static struct worker *with_longest_idle(const struct acceptor *a)
{
    const struct listener *l = a->listener;
    struct worker *best = NULL;
    uint64_t earliest_ns = loop_now_ns(&a->worker->loop) - FRESH_NS;
    for (unsigned int i = 0; i < l->n_workers; i++) {
        struct worker *w = &l->workers[i];
        unsigned int busy;
        uint64_t since_ns = atomic_load_explicit(&w->idle_since_ns, memory_order_relaxed);
        if (since_ns < earliest_ns && takes_more(a, w, &busy)) {
            best = w;
            earliest_ns = since_ns;
        }
    }
    return best;
}

enum room { ROOM_NONE, ROOM_SOON, ROOM_MADE };

/* Closes an idle connection, here or on another loop. */
static enum room make_room(struct acceptor *a)
{
    struct worker *w;
    while ((w = with_longest_idle(a)) == a->worker) {
        if (worker_close_idle(w)) {
            if (!atomic_exchange_explicit(&a->listener->told_short, true, memory_order_relaxed))
                log_warn("descriptors are running short: connections that are idle are closed for "
                         "new ones");
            return ROOM_MADE;
        }
    }
    if (!w)
        return ROOM_NONE;
    worker_ask_close_idle(w);
    return ROOM_SOON;
}

static void end_in_shortage(struct listener *l)
{
    atomic_store_explicit(&l->accepts_in_shortage, false, memory_order_release);
}

/*
 * While descriptors are short one acceptor accepts at a time, so that nobody else takes the
 * descriptor for which it has closed a connection. It closes as many as the reserve lacks, too:
 * each acceptor may have used one before it saw the shortage, which lasts until none is in use.
 *
 * begin_in_shortage() returns false for "not now". After true: end_in_shortage().
 */
static bool begin_in_shortage(struct acceptor *a)
{
    struct listener *l = a->listener;
    if (atomic_exchange_explicit(&l->accepts_in_shortage, true, memory_order_acquire))
        return false; /* asked again in the next turn, which follows at once */
    for (;;) {
        unsigned int n_used = count_used_of_reserve(l);
        unsigned int n_free = count_free(l, MAX(n_used + 1, l->n_workers));
        if (n_used == 0 && n_free >= MIN(l->n_workers, (unsigned int)MAX_COUNTED)) {
            atomic_store_explicit(&l->is_short, false, memory_order_relaxed);
            atomic_store_explicit(&l->told_short, false, memory_order_relaxed);
            return true;
        }
        if (n_free > n_used)
            return true;
        enum room room = make_room(a);
        if (room == ROOM_MADE)
            continue;
        if (room == ROOM_NONE && n_free > 0)
            return true;
        end_in_shortage(l);
        if (room == ROOM_NONE)
            pause_accepting(a, "no descriptors are left, and no connection is idle");
        return false;
    }
}

/* Takes a place among the connections that the user allows. */
static bool take_place(struct acceptor *a)
{
    struct listener *l = a->listener;
    unsigned int before = atomic_fetch_add_explicit(&l->n_open, 1, memory_order_relaxed);
    if (l->max_conns == 0 || before < l->max_conns)
        return true;
    listener_give_place_back(l);
    pause_accepting(a, "the maximum number of connections is open");
    return false;
}

/* ---- Accepting ------------------------------------------------------------------------------ */

static void on_failure(struct acceptor *a, int err)
{
    switch (err) {
    case EMFILE:
        atomic_store_explicit(&a->listener->is_short, true, memory_order_relaxed);
        break;
    case ENFILE: /* of the whole machine; ours are not short */
    case ENOMEM:
    case ENOBUFS:
        pause_accepting(a, strerrordesc_np(err));
        break;
    default: /* EAGAIN: that was all. Anything else concerns a connection that is gone already. */
        break;
    }
}

/* Accepts one connection and gives it to a worker; false: no more in this turn. */
static bool accept_one(struct acceptor *a, int from)
{
    struct listener *l = a->listener;
    bool is_short = atomic_load_explicit(&l->is_short, memory_order_relaxed);
    if (UNLIKELY(is_short) && !begin_in_shortage(a))
        return false;
    int fd = -1, err = 0;
    bool has_place = take_place(a);
    if (has_place && (fd = accept4(from, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0)
        err = errno;
    if (UNLIKELY(is_short))
        end_in_shortage(l);
    if (!has_place)
        return false;
    if (fd < 0) {
        listener_give_place_back(l);
        on_failure(a, err);
        return false;
    }
    if (UNLIKELY(fd >= l->first_reserved_fd))
        atomic_store_explicit(&l->is_short, true, memory_order_relaxed);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    atomic_store_explicit(&l->told, false, memory_order_relaxed);
    conn_give(a->worker, acceptor_choose(a), fd);
    return true;
}

static void on_acceptable(struct loop_fd *watch, uint32_t events)
{
    struct acceptor *a = CONTAINER_OF(watch, struct accepting, watch)->acceptor;
    if (events & EPOLLHUP) { /* listener_shut() */
        acceptor_stop(a);
        return;
    }
    int from = watch->fd;
    for (int i = 0; i < ACCEPTS_PER_TURN && accept_one(a, from); i++)
        ;
}

struct status *acceptor_start(struct acceptor *a, struct listener *l, struct worker *w)
{
    *a = (struct acceptor){.listener = l, .worker = w};
    for (unsigned int i = 0; i < LISTENER_MAX_SOCKETS; i++)
        a->sockets[i] = (struct accepting){.watch.fd = -1, .acceptor = a};
    timer_init(&a->pause, on_pause_over);
    a->started = true;
    return watch_all(a);
}

void acceptor_stop(struct acceptor *a)
{
    if (!a->started)
        return;
    a->started = false;
    watch_none(a);
    loop_clear_timer(&a->worker->loop, &a->pause);
}
