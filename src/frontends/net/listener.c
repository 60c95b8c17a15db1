/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing listening sockets; acceptor.c accepts connections. Thread: the one that
 * starts and stops the service, while no worker accepts.
 */
#include "frontends/net/listener.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"
#include "frontends/net/address_limit.h"

enum {
    BACKLOG = 1024,
    FREE_PORT_TRIES = 16,
};

/* The result of opening a socket on one address. */
enum opened { OPENED, OPENED_NO_SUCH_ADDRESS, OPENED_IN_USE, OPENED_ERROR };

/*
 * Connections inherit this: the kernel finds a client whose machine is gone within two minutes,
 * also while a model is silent and nothing is sent.
 */
static void keep_alive(int fd)
{
    int one = 1, idle_s = 60, interval_s = 15, n_probes = 4;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
}

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
    keep_alive(fd);
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

/* Addresses are IPv4 or IPv6, and both have a port. */
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

/* Whether an earlier address is the same: a hosts file may name one twice. */
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
        close(l->fds[--l->n_sockets]);
}

/*
 * Opens a socket on each address, all on the port of the first one. Leaves no socket open if one
 * fails.
 */
static enum opened open_sockets(struct listener *l, struct addrinfo *found, bool reuse_port)
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
        l->fds[l->n_sockets++] = fd;
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

static struct status *open_unix(struct listener *l, const char *address, bool reuse_port)
{
    if (reuse_port)
        return status_new(STATUS_INVALID_ARG,
                          "cannot listen on '%s': several servers cannot share it", address);
    struct status *st = unix_socket_open(&l->file, address, BACKLOG, &l->fds[0]);
    if (st)
        return st;
    l->n_sockets = 1;
    snprintf(l->place, sizeof(l->place), "%s", address);
    return NULL;
}

struct status *listener_open(struct listener *l, const char *address, int port, bool reuse_port)
{
    *l = (struct listener){0};
    if (unix_socket_is_meant(address))
        return open_unix(l, address, reuse_port);

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
        opened = open_sockets(l, found, reuse_port);
    }
    err = errno;
    freeaddrinfo(found);
    if (opened == OPENED) {
        snprintf(l->place, sizeof(l->place), "%s:%d", address, l->port);
        return NULL;
    }
    /* The blank at the end is the reference's (reference/behaviours §20.2), whose users match on
     * it. */
    if (opened == OPENED_IN_USE)
        return status_new(STATUS_UNAVAILABLE, "Socket '%s:%d' already in use ", address, port);
    return status_from_errno(err, "failed to listen on '%s:%d'", address, port);
}

unsigned int listener_reserve(void)
{
    enum { USUAL_RESERVE = 64 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return USUAL_RESERVE;
    return (unsigned int)MIN(limit.rlim_cur / 4, (rlim_t)USUAL_RESERVE);
}

void listener_shut(struct listener *l)
{
    for (unsigned int i = 0; i < l->n_sockets; i++)
        shutdown(l->fds[i], SHUT_RDWR);
    unix_socket_remove(&l->file);
}

void listener_close(struct listener *l)
{
    unix_socket_remove(&l->file);
    close_all(l);
}

void listener_done(struct listener *l)
{
    listener_close(l);
    address_limit_free(TAKE(l->per_address));
}

/* The lowest descriptor that is reserved for other uses than connections. */
static int first_reserved_fd(unsigned int n_reserved_fds)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= INT_MAX)
        return INT_MAX;
    return (int)limit.rlim_cur - (int)n_reserved_fds;
}

void listener_serve(struct listener *l, struct worker_service *services, unsigned int n_services,
                    unsigned int max_conns, unsigned int max_per_address,
                    unsigned int n_reserved_fds)
{
    l->services = services;
    l->n_services = n_services;
    l->max_conns = max_conns;
    l->per_address = max_per_address > 0 ? address_limit_new(max_per_address) : NULL;
    l->first_reserved_fd = first_reserved_fd(n_reserved_fds);
    l->n_reserved_fds = l->first_reserved_fd < INT_MAX ? n_reserved_fds : 0;
}

void listener_give_slot_back(struct listener *l, struct address_count *address)
{
    address_limit_give(l->per_address, address);
    /* Last: the listener is closed when no connection is counted. */
    atomic_fetch_sub_explicit(&l->n_open, 1, memory_order_relaxed);
}
