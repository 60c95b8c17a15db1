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
};

#define PAUSE_NS (100 * NS_PER_MS)

static struct status *open_address(struct listener *l, const struct addrinfo *ai,
                                   const char *address, int port, bool reuse_port)
{
    int one = 1;
    l->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        return status_from_errno(errno, "failed to open a socket");
    setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (reuse_port)
        setsockopt(l->fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    if (bind(l->fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(l->fd, BACKLOG) < 0) {
        int err = errno;
        close(l->fd);
        l->fd = -1;
        /* The blank at the end is the reference's (behaviours §20.2), whose users match on it. */
        if (err == EADDRINUSE)
            return status_new(STATUS_UNAVAILABLE, "Socket '%s:%d' already in use ", address, port);
        return status_from_errno(err, "failed to listen on '%s:%d'", address, port);
    }
    struct sockaddr_storage name;
    socklen_t length = sizeof(name);
    if (getsockname(l->fd, (struct sockaddr *)&name, &length) == 0) {
        if (name.ss_family == AF_INET)
            l->port = ntohs(((struct sockaddr_in *)(void *)&name)->sin_port);
        else if (name.ss_family == AF_INET6)
            l->port = ntohs(((struct sockaddr_in6 *)(void *)&name)->sin6_port);
    }
    return NULL;
}

struct status *listener_open(struct listener *l, const char *address, int port, bool reuse_port)
{
    *l = (struct listener){.fd = -1, .watch.fd = -1};

    char service[16];
    snprintf(service, sizeof(service), "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int err = getaddrinfo(*address ? address : "0.0.0.0", service, &hints, &found);
    if (err)
        return status_new(STATUS_INVALID_ARG, "cannot listen on '%s:%d': %s", address, port,
                          gai_strerror(err));
    struct status *st = open_address(l, found, address, port, reuse_port);
    freeaddrinfo(found);
    return st;
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

static void pause_accepting(struct listener *l, const char *why)
{
    struct loop *loop = &l->workers[0].loop;
    if (!l->told)
        log_warn("no more connections are accepted for now: %s", why);
    l->told = true;
    loop_change_fd(loop, &l->watch, 0);
    loop_set_timer(loop, &l->pause, loop_now_ns(loop) + PAUSE_NS);
}

static void on_pause_over(struct timer *t)
{
    struct listener *l = CONTAINER_OF(t, struct listener, pause);
    loop_change_fd(&l->workers[0].loop, &l->watch, EPOLLIN);
}

static void on_acceptable(struct loop_fd *watch, uint32_t events)
{
    struct listener *l = CONTAINER_OF(watch, struct listener, watch);
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        unsigned int total;
        struct worker *w = emptiest(l, &total);
        if (l->max_conns && total >= l->max_conns) {
            pause_accepting(l, "the maximum number of connections is open");
            return;
        }
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
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
    timer_init(&l->pause, on_pause_over);
    return loop_add_fd(&workers[0].loop, &l->watch, l->fd, EPOLLIN, on_acceptable);
}

void listener_close(struct listener *l)
{
    if (l->fd < 0)
        return;
    if (l->watch.fd >= 0) {
        loop_remove_fd(&l->workers[0].loop, &l->watch);
        loop_clear_timer(&l->workers[0].loop, &l->pause);
    }
    close(l->fd);
    l->fd = -1;
}
