/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors: the kernel gives the lowest number that is free. So a connection whose number is
 * within the reserve shows that the process uses all numbers below the reserve. That connection is
 * served. From then on the acceptor makes room before it accepts, until enough descriptors are free
 * again. Counting the descriptors in use takes about 70 system calls, so it is done once for all
 * connections that an iteration accepts. Counting for each connection made new connections wait for
 * 20 to 40 ms while thousands came (bench/run others).
 *
 * An address that has as many connections as an option allows gets no further one: that one is
 * accepted and closed, since clients of other addresses wait behind it in the kernel's queue.
 */
#include "frontends/net/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "frontends/net/address_limit.h"
#include "frontends/net/conn.h"
#include "frontends/net/upkeep.h"
#include "frontends/net/worker.h"

enum {
    ACCEPTS_PER_ITERATION = 64, /* connections that exist come first */
    SIMILAR_PERMILLE = 250,     /* loops whose load differs by less than this have the same */
    SIMILAR_IDLE = 8, /* connections whose time idle differs by less than its 8th have the same */
    MAX_COUNTED = 256 /* free descriptors; more than a reserve, and more than most loops */
};

#define PAUSE_NS       (100 * NS_PER_MS)
#define REFUSAL_LOG_NS (10 * NS_PER_S)
/* Nothing tells when an iteration that lasts longer than this will end. */
#define LONG_ITERATION_NS NS_PER_MS

static void on_acceptable(struct loop_fd *watch, uint32_t events);

/* ---- The choice of a worker ----------------------------------------------------------------- */

/* Whether a worker may have a connection, and how busy its loop is. */
static bool takes_more(const struct acceptor *a, const struct worker *w, unsigned int *ret_busy)
{
    struct loop_load load;
    loop_get_load(&w->loop, loop_now_ns(&a->service->worker->loop), &load);
    *ret_busy = load.busy_permille;
    return w == a->service->worker || load.in_iteration_ns < LONG_ITERATION_NS;
}

struct worker_service *acceptor_choose(const struct acceptor *a)
{
    const struct listener *l = a->service->listener;
    struct worker_service *best = a->service;
    unsigned int least_busy = 1000, fewest = UINT32_MAX, busy;
    for (unsigned int i = 0; i < l->n_services; i++) {
        if (takes_more(a, l->services[i].worker, &busy))
            least_busy = MIN(least_busy, busy);
    }
    for (unsigned int i = 0; i < l->n_services; i++) {
        struct worker *w = l->services[i].worker;
        unsigned int n = atomic_load_explicit(&w->n_conns, memory_order_relaxed);
        if (n < fewest && takes_more(a, w, &busy) && busy <= least_busy + SIMILAR_PERMILLE) {
            best = &l->services[i];
            fewest = n;
        }
    }
    return best;
}

/* ---- Room ----------------------------------------------------------------------------------- */

static void watch_none(struct acceptor *a)
{
    for (unsigned int i = 0; i < a->service->listener->n_sockets; i++)
        loop_remove_fd(&a->service->worker->loop, &a->sockets[i].watch);
}

static struct status *watch_all(struct acceptor *a)
{
    for (unsigned int i = 0; i < a->service->listener->n_sockets; i++) {
        struct accepting *each = &a->sockets[i];
        struct status *st =
            loop_add_fd(&a->service->worker->loop, &each->watch, a->service->listener->fds[i],
                        EPOLLIN | EPOLLEXCLUSIVE, on_acceptable);
        if (st) {
            watch_none(a);
            return st;
        }
    }
    return NULL;
}

/*
 * An exclusive watch cannot be changed, so it is removed here and added again by on_pause_over().
 */
static void pause_accepting(struct acceptor *a, const char *why)
{
    struct loop *loop = &a->service->worker->loop;
    if (!atomic_exchange_explicit(&a->service->listener->pause_logged, true, memory_order_relaxed))
        log_warn("no more connections are accepted for now: %s", why);
    watch_none(a);
    loop_set_timer(loop, &a->pause, loop_now_ns(loop) + PAUSE_NS);
}

static void on_pause_over(struct timer *t)
{
    struct acceptor *a = CONTAINER_OF(t, struct acceptor, pause);
    struct status *st = watch_all(a);
    if (st) { /* the kernel has no room for a watch: try again later */
        status_free(st);
        loop_set_timer(&a->service->worker->loop, t,
                       loop_now_ns(&a->service->worker->loop) + PAUSE_NS);
    }
}

/* Counts the descriptors of the reserve that are in use. */
static unsigned int count_used_of_reserve(const struct listener *l)
{
    unsigned int n_used = 0;
    for (unsigned int i = 0; i < l->n_reserved_fds; i++)
        n_used += fcntl(l->first_reserved_fd + (int)i, F_GETFD) >= 0;
    return n_used;
}

/* Counts the free descriptors below the reserve, up to n. */
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

/* The number of connections that wait in the kernel's queue; 0 when the kernel does not tell. */
static unsigned int count_waiting(int from)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    return getsockopt(from, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_unacked : 0;
}

/*
 * A client that has just connected sends its request soon, so its connection is not closed as idle.
 */
#define FRESH_NS (10 * NS_PER_MS)

/*
 * Finds the worker whose connection may have been idle for longest, among the workers that can
 * close it at once. NULL: no worker has an idle connection.
 *
 * *ret_before_ns: the worker may close several connections that became idle by then, since no other
 * worker has one that has been idle for much longer
 */
static struct worker *with_longest_idle(const struct acceptor *a, uint64_t *ret_before_ns)
{
    const struct listener *l = a->service->listener;
    struct worker *best = NULL;
    uint64_t now_ns = loop_now_ns(&a->service->worker->loop), latest_ns = now_ns - FRESH_NS;
    uint64_t first_ns = latest_ns, second_ns = latest_ns;
    for (unsigned int i = 0; i < l->n_services; i++) {
        struct worker *w = l->services[i].worker;
        unsigned int busy;
        uint64_t since_ns = atomic_load_explicit(&w->idle_since_ns, memory_order_relaxed);
        if (since_ns >= second_ns || !takes_more(a, w, &busy))
            continue;
        second_ns = since_ns;
        if (since_ns < first_ns) {
            best = w;
            second_ns = first_ns;
            first_ns = since_ns;
        }
    }
    *ret_before_ns = MIN(second_ns + (now_ns - second_ns) / SIMILAR_IDLE, latest_ns);
    return best;
}

static void log_descriptor_shortage(struct listener *l)
{
    if (!atomic_exchange_explicit(&l->shortage_logged, true, memory_order_relaxed))
        log_warn(
            "descriptors are running short: connections that are idle are closed for new ones");
}

/*
 * Closes the n connections that have been idle for longest, as far as they belong to this loop.
 * Asks another loop to close the rest.
 *
 * Returns the number of connections that this loop closed
 */
static unsigned int close_idle_conns(struct acceptor *a, unsigned int n)
{
    unsigned int n_closed = 0;
    uint64_t before_ns;
    struct worker *w = NULL;
    while (n_closed < n && (w = with_longest_idle(a, &before_ns)) == a->service->worker)
        n_closed += upkeep_close_idle(w, n - n_closed, before_ns);
    a->asked = n_closed < n ? w : NULL;
    if (a->asked)
        upkeep_ask_close_idle(w, n - n_closed, before_ns);
    if (n_closed > 0 || a->asked)
        log_descriptor_shortage(a->service->listener);
    return n_closed;
}

/* Whether another loop is about to make room. Until then counting descriptors is useless. */
static bool waits_for_room(const struct acceptor *a)
{
    unsigned int busy;
    return a->asked && atomic_load_explicit(&a->asked->close_idle_posted, memory_order_relaxed) &&
           takes_more(a, a->asked, &busy);
}

static void end_in_shortage(struct acceptor *a)
{
    a->room = 0; /* other acceptors may use these descriptors from now on */
    if (!a->in_shortage)
        return;
    a->in_shortage = false;
    atomic_store_explicit(&a->service->listener->accepts_in_shortage, false, memory_order_release);
}

/*
 * While descriptors are short one acceptor accepts at a time. So no other acceptor takes the
 * descriptors for which it has closed connections. The acceptor also closes as many connections as
 * the reserve lacks descriptors, since each acceptor may have used one before it saw the shortage.
 * The shortage ends when no descriptor of the reserve is in use and enough others are free.
 *
 * begin_in_shortage() returns false for "not now". At the end of the iteration: end_in_shortage().
 */
static bool begin_in_shortage(struct acceptor *a, int from)
{
    struct listener *l = a->service->listener;
    if (waits_for_room(a))
        return false; /* asked again in the next iteration, which follows at once */
    unsigned int n_waiting = count_waiting(from);
    if (a->n_accepted > 0 && n_waiting == 0)
        return false; /* all clients have been accepted: no connection need be closed */
    if (!a->in_shortage &&
        atomic_exchange_explicit(&l->accepts_in_shortage, true, memory_order_acquire))
        return false; /* another loop accepts */
    a->in_shortage = true;
    unsigned int n_used = count_used_of_reserve(l);
    unsigned int n_wanted = n_used + MAX(MIN(n_waiting, (unsigned int)ACCEPTS_PER_ITERATION), 1U);
    unsigned int n_free = count_free(l, MAX(n_wanted, l->n_services));
    if (n_used == 0 && n_free >= MIN(l->n_services, (unsigned int)MAX_COUNTED)) {
        atomic_store_explicit(&l->in_shortage, false, memory_order_relaxed);
        atomic_store_explicit(&l->shortage_logged, false, memory_order_relaxed);
        a->room = n_free;
        return true;
    }
    if (n_free < n_wanted)
        n_free += close_idle_conns(a, n_wanted - n_free);
    if (n_free > n_used)
        a->room = n_free - n_used;
    else if (!a->asked) /* no connection can be closed for the reserve: accept one all the same */
        a->room = MIN(n_free, 1U);
    if (a->room == 0 && !a->asked)
        pause_accepting(a, "no descriptors are left, and no connection is idle");
    return a->room > 0;
}

/* Takes a slot among the connections that the user allows. */
static bool take_conn_slot(struct acceptor *a)
{
    struct listener *l = a->service->listener;
    unsigned int before = atomic_fetch_add_explicit(&l->n_open, 1, memory_order_relaxed);
    if (l->max_conns == 0 || before < l->max_conns)
        return true;
    listener_give_slot_back(l, NULL);
    net_count(&a->service->env->counts, NET_REFUSED_CONNS, 1);
    pause_accepting(a, "the maximum number of connections is open");
    return false;
}

/*
 * Takes a slot among the connections that the address may have. False: it has none, and the
 * connection is closed. The client could only wait for its own connections, and others must not
 * wait behind it.
 */
static bool take_address_slot(struct acceptor *a, const struct sockaddr *from,
                              struct address_count **ret_address)
{
    struct listener *l = a->service->listener;
    if (address_limit_take(l->per_address, from, ret_address))
        return true;
    net_count(&a->service->env->counts, NET_REFUSED_ADDRESS, 1);
    uint64_t now_ns = loop_now_ns(&a->service->worker->loop);
    uint64_t logged_ns = atomic_load_explicit(&l->refusal_logged_ns, memory_order_relaxed);
    if ((logged_ns > 0 && now_ns - logged_ns < REFUSAL_LOG_NS) ||
        !atomic_compare_exchange_strong(&l->refusal_logged_ns, &logged_ns, now_ns))
        return false;
    char text[ADDRESS_TEXT_BYTES];
    address_limit_print(from, text);
    log_warn("a connection was closed: its client %s has as many connections at %s as an address "
             "may have",
             text, l->place);
    return false;
}

/* ---- Accepting ------------------------------------------------------------------------------ */

static void on_failure(struct acceptor *a, int err)
{
    switch (err) {
    case EMFILE:
        atomic_store_explicit(&a->service->listener->in_shortage, true, memory_order_relaxed);
        break;
    case ENFILE: /* the whole machine's descriptors are short, not the process's */
    case ENOMEM:
    case ENOBUFS:
        pause_accepting(a, strerrordesc_np(err));
        break;
    default: /* EAGAIN: no client waits. Any other error is about a connection that is gone. */
        break;
    }
}

/* Accepts one connection and gives it to a worker; false: no more in this iteration. */
static bool accept_one(struct acceptor *a, int from)
{
    struct listener *l = a->service->listener;
    bool in_shortage = atomic_load_explicit(&l->in_shortage, memory_order_relaxed);
    if (UNLIKELY(in_shortage) && a->room == 0 && !begin_in_shortage(a, from))
        return false;
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof(address);
    struct sockaddr *client = l->per_address ? (struct sockaddr *)&address : NULL;
    struct address_count *slot = NULL;
    int fd = -1, err = 0;
    bool has_slot = take_conn_slot(a);
    if (has_slot &&
        (fd = accept4(from, client, client ? &length : NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0)
        err = errno;
    if (!has_slot)
        return false;
    if (fd < 0) {
        listener_give_slot_back(l, NULL);
        on_failure(a, err);
        return false;
    }
    a->n_accepted++;
    if (UNLIKELY(a->room > 0))
        a->room--;
    if (UNLIKELY(fd >= l->first_reserved_fd)) {
        atomic_store_explicit(&l->in_shortage, true, memory_order_relaxed);
        a->room = 0; /* another thread has used a descriptor that was counted */
    }
    if (UNLIKELY(client != NULL) && !take_address_slot(a, client, &slot)) {
        close(fd);
        listener_give_slot_back(l, NULL);
        return true;
    }
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    atomic_store_explicit(&l->pause_logged, false, memory_order_relaxed);
    conn_give(a->service, acceptor_choose(a), fd, slot);
    return true;
}

void acceptor_stop(struct acceptor *a)
{
    if (!a->started)
        return;
    a->started = false;
    watch_none(a);
    loop_clear_timer(&a->service->worker->loop, &a->pause);
}

static void on_acceptable(struct loop_fd *watch, uint32_t events)
{
    struct acceptor *a = CONTAINER_OF(watch, struct accepting, watch)->acceptor;
    if (events & EPOLLHUP) { /* listener_shut() */
        acceptor_stop(a);
        return;
    }
    int from = watch->fd;
    a->n_accepted = 0;
    for (int i = 0; i < ACCEPTS_PER_ITERATION && accept_one(a, from); i++)
        ;
    end_in_shortage(a);
}

struct status *acceptor_start(struct acceptor *a, struct worker_service *service)
{
    *a = (struct acceptor){.service = service};
    for (unsigned int i = 0; i < LISTENER_MAX_SOCKETS; i++)
        a->sockets[i] = (struct accepting){.watch.fd = -1, .acceptor = a};
    timer_init(&a->pause, on_pause_over);
    a->started = true;
    return watch_all(a);
}
