/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/net/listener.h"

#include <errno.h>
#include <netdb.h>
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
    BACKLOG = 1024,
    ACCEPTS_PER_TURN = 64, /* connections that exist come first */
    FREE_PORT_TRIES = 16,
};

#define PAUSE_NS (100 * NS_PER_MS)

/* What opening a socket on one address came to. */
enum opened { OPENED, OPENED_NO_SUCH_ADDRESS, OPENED_IN_USE, OPENED_ERROR };

/* Binds and listens; errno says why not. */
static enum opened open_socket(const struct addrinfo *ai, bool reuse_port, int *ret_fd)
{
    int one = 1;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno == EAFNOSUPPORT ? OPENED_NO_SUCH_ADDRESS : OPENED_ERROR;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (reuse_port)
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
        *ret_fd = fd;
        return OPENED;
    }
    int err = errno;
    close(fd);
    errno = err;
    return err == EADDRINUSE      ? OPENED_IN_USE
           : err == EADDRNOTAVAIL ? OPENED_NO_SUCH_ADDRESS
                                  : OPENED_ERROR;
}

/* The port is in the same place of both kinds of address, and nothing else comes here. */
static in_port_t *port_of(struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return &((struct sockaddr_in6 *)(void *)address)->sin6_port;
    return &((struct sockaddr_in *)(void *)address)->sin_port;
}

static void set_port(struct addrinfo *found, int port)
{
    for (struct addrinfo *ai = found; ai; ai = ai->ai_next)
        *port_of(ai->ai_addr) = htons((in_port_t)port);
}

static int bound_port(int fd)
{
    struct sockaddr_storage name = {.ss_family = AF_INET};
    socklen_t length = sizeof(name);
    if (getsockname(fd, (struct sockaddr *)&name, &length) < 0)
        return 0;
    return ntohs(*port_of((struct sockaddr *)&name));
}

/* A hosts file may say the same twice. */
static bool came_before(const struct addrinfo *first, const struct addrinfo *ai)
{
    for (; first != ai; first = first->ai_next) {
        if (first->ai_addrlen == ai->ai_addrlen &&
            memcmp(first->ai_addr, ai->ai_addr, ai->ai_addrlen) == 0)
            return true;
    }
    return false;
}

static void close_all(struct listener *l)
{
    while (l->n_sockets)
        close(l->sockets[--l->n_sockets].fd);
}

/* A socket on each address, all on the port that the first one has got; none if one fails. */
static enum opened open_all(struct listener *l, struct addrinfo *found, bool reuse_port)
{
    enum opened result = OPENED_NO_SUCH_ADDRESS;
    int missing = EADDRNOTAVAIL;
    for (struct addrinfo *ai = found; ai; ai = ai->ai_next) {
        int fd;
        if (came_before(found, ai))
            continue;
        result = open_socket(ai, reuse_port, &fd);
        if (result == OPENED_NO_SUCH_ADDRESS) {
            missing = errno;
            continue;
        }
        if (result != OPENED) {
            int err = errno;
            close_all(l);
            errno = err;
            return result;
        }
        l->sockets[l->n_sockets++] = (struct listening){.fd = fd, .watch.fd = -1, .listener = l};
        if (l->n_sockets == 1) {
            l->port = bound_port(fd);
            set_port(found, l->port);
        }
    }
    errno = missing;
    return l->n_sockets ? OPENED : OPENED_NO_SUCH_ADDRESS;
}

static unsigned int count_addresses(const struct addrinfo *found)
{
    unsigned int n = 0;
    for (const struct addrinfo *ai = found; ai; ai = ai->ai_next)
        n += !came_before(found, ai);
    return n;
}

struct status *listener_open(struct listener *l, const char *address, int port, bool reuse_port)
{
    *l = (struct listener){0};

    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const char *host = *address ? address : "0.0.0.0";
    if (strncmp(host, "ipv4:", 5) == 0 || strncmp(host, "ipv6:", 5) == 0) {
        hints.ai_family = host[3] == '4' ? AF_INET : AF_INET6;
        host += 5;
    }
    char service[16];
    snprintf(service, sizeof(service), "%d", port);
    int err = getaddrinfo(host, service, &hints, &found);
    if (err)
        return status_new(STATUS_INVALID_ARG, "cannot listen on '%s:%d': %s", address, port,
                          gai_strerror(err));
    if (count_addresses(found) > LISTENER_MAX_SOCKETS) {
        struct status *st = status_new(STATUS_INVALID_ARG,
                                       "cannot listen on '%s:%d': it has %u addresses, %d at most",
                                       address, port, count_addresses(found), LISTENER_MAX_SOCKETS);
        freeaddrinfo(found);
        return st;
    }
    /* The port that was free on the first address may be in use on another one. */
    enum opened opened = OPENED_IN_USE;
    for (int i = 0; i < (port ? 1 : FREE_PORT_TRIES) && opened == OPENED_IN_USE; i++) {
        set_port(found, port);
        opened = open_all(l, found, reuse_port);
    }
    err = errno;
    freeaddrinfo(found);
    if (opened == OPENED)
        return NULL;
    /* The blank at the end is the reference's (behaviours §20.2), whose users match on it. */
    if (opened == OPENED_IN_USE)
        return status_new(STATUS_UNAVAILABLE, "Socket '%s:%d' already in use ", address, port);
    return status_from_errno(err, "failed to listen on '%s:%d'", address, port);
}

static struct worker *emptiest(struct listener *l, unsigned int *ret_total)
{
    struct worker *best = NULL;
    unsigned int best_count = 0, total = 0;
    for (unsigned int i = 0; i < l->n_workers; i++) {
        unsigned int count = atomic_load_explicit(&l->workers[i].n_conns, memory_order_relaxed);
        total += count;
        if (!best || count < best_count) {
            best = &l->workers[i];
            best_count = count;
        }
    }
    *ret_total = total;
    return best;
}

static void watch_all(struct listener *l, uint32_t events)
{
    for (unsigned int i = 0; i < l->n_sockets; i++)
        loop_change_fd(&l->workers[0].loop, &l->sockets[i].watch, events);
}

static void pause_accepting(struct listener *l, const char *why)
{
    struct loop *loop = &l->workers[0].loop;
    if (!l->told)
        log_warn("no more connections are accepted for now: %s", why);
    l->told = true;
    watch_all(l, 0);
    loop_set_timer(loop, &l->pause, loop_now_ns(loop) + PAUSE_NS);
}

static void on_pause_over(struct timer *t)
{
    struct listener *l = CONTAINER_OF(t, struct listener, pause);
    watch_all(l, EPOLLIN);
}

static void on_acceptable(struct loop_fd *watch, uint32_t events)
{
    struct listening *from = CONTAINER_OF(watch, struct listening, watch);
    struct listener *l = from->listener;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        unsigned int total;
        struct worker *w = emptiest(l, &total);
        if (l->max_conns && total >= l->max_conns) {
            pause_accepting(l, "the maximum number of connections is open");
            return;
        }
        int fd = accept4(from->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                pause_accepting(l, strerrordesc_np(errno));
            /* EAGAIN: that was all. Anything else concerns a connection that is gone already. */
            return;
        }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        conn_give(w, fd);
        l->told = false;
    }
}

struct status *listener_start(struct listener *l, struct worker *workers, unsigned int n_workers,
                              unsigned int max_conns)
{
    l->workers = workers;
    l->n_workers = n_workers;
    l->max_conns = max_conns;
    l->started = true;
    timer_init(&l->pause, on_pause_over);
    for (unsigned int i = 0; i < l->n_sockets; i++) {
        struct listening *each = &l->sockets[i];
        struct status *st =
            loop_add_fd(&workers[0].loop, &each->watch, each->fd, EPOLLIN, on_acceptable);
        if (st)
            return st;
    }
    return NULL;
}

void listener_close(struct listener *l)
{
    if (l->started) {
        for (unsigned int i = 0; i < l->n_sockets; i++)
            loop_remove_fd(&l->workers[0].loop, &l->sockets[i].watch);
        loop_clear_timer(&l->workers[0].loop, &l->pause);
        l->started = false;
    }
    close_all(l);
}
