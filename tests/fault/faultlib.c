/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faultlib - an LD_PRELOAD library that makes system calls fail in ways that are always possible:
 * interrupted, not ready after all, short, no descriptors left. None of these faults is fatal, so a
 * server under it must answer every request as usual.
 *
 * While the test wants it, connections are lost, too: a call fails as the kernel would let it fail
 * when the client is gone, and the socket is shut for both sides, so that all later calls agree.
 *
 * FAULT_SEED     the seed of the pattern; without it no call fails
 * FAULT_ONE_IN   one call in this many fails (4)
 * FAULT_COUNTS   a file that gets the number of faults of each kind (64-bit counts, in the order of
 *                enum kind), so that a test knows that faults happened. Behind them the test writes
 *                a number n: one call in n about a connection loses it; 0: none
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* tests/fault/test_syscalls.py knows this order. */
enum kind {
    INTERRUPTED, /* EINTR, any call */
    NOT_READY,   /* EAGAIN, sockets */
    SHORT,       /* fewer bytes than there are or fit */
    FEW,         /* epoll: one event at a time */
    NO_FILES,    /* accept: EMFILE, ENFILE, ENOMEM, ENOBUFS */
    ABORTED,     /* accept: ECONNABORTED */
    LOST_READ,   /* a connection: ECONNRESET */
    LOST_WRITE,  /* a connection: EPIPE */
    LOST_END,    /* shutdown: ENOTCONN */
    UNWATCHED,   /* epoll_ctl does not add a connection: ENOMEM, ENOSPC */
    N_KINDS
};

enum { LOSES_ONE_IN = N_KINDS, N_NUMBERS };

static atomic_uint_fast64_t unmapped[N_NUMBERS];
static atomic_uint_fast64_t *counts = unmapped;
static atomic_uint_fast64_t n_calls;
static uint64_t seed;
static uint64_t one_in = 4;
static bool on;

static struct {
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*readv)(int, const struct iovec *, int);
    ssize_t (*writev)(int, const struct iovec *, int);
    int (*accept4)(int, struct sockaddr *, socklen_t *, int);
    int (*shutdown)(int, int);
    int (*epoll_ctl)(int, int, int, struct epoll_event *);
    int (*epoll_wait)(int, struct epoll_event *, int, int);
    int (*epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
} next;

#define NEXT(name)                                                                                 \
    ({                                                                                             \
        if (!next.name)                                                                            \
            *(void **)&next.name = dlsym(RTLD_NEXT, #name);                                        \
        next.name;                                                                                 \
    })

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void start(void)
{
    seed = number_of("FAULT_SEED", 0);
    one_in = number_of("FAULT_ONE_IN", 4);
    const char *path = getenv("FAULT_COUNTS");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && ftruncate(fd, sizeof(unmapped)) == 0) {
        void *p = mmap(NULL, sizeof(unmapped), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED)
            counts = p;
    }
    if (fd >= 0)
        close(fd);
    on = getenv("FAULT_SEED") && one_in > 0;
}

/* Returns a random number if the call is to fail, as one in n does, and 0 otherwise. */
static uint64_t draw_one_in(uint64_t n)
{
    if (!on || n == 0)
        return 0;
    uint64_t x = seed * 0x9e3779b97f4a7c15u + atomic_fetch_add(&n_calls, 1);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x % n == 0 ? x / n | 1u << 31 : 0;
}

static uint64_t draw(void)
{
    return draw_one_in(one_in);
}

static int fail_with(enum kind kind, int error)
{
    atomic_fetch_add(&counts[kind], 1);
    errno = error;
    return -1;
}

static bool is_socket(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode);
}

/* Of packets: one moves whole or not at all. No client has such a socket. */
static bool is_packet_socket(int fd)
{
    int type;
    socklen_t length = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

static bool is_connection(int fd)
{
    struct sockaddr_storage peer;
    socklen_t length = sizeof(peer);
    return !is_packet_socket(fd) && getpeername(fd, (struct sockaddr *)&peer, &length) == 0;
}

/* Whether the connection is to be lost now. Then it is. */
static bool lose(int fd)
{
    if (!draw_one_in(atomic_load(&counts[LOSES_ONE_IN])) || !is_connection(fd))
        return false;
    NEXT(shutdown)(fd, SHUT_RDWR);
    return true;
}

/*
 * An edge-triggered socket reports available bytes once. A read that a fault cuts short leaves
 * bytes behind that the kernel would not leave, so they are reported again.
 */
enum { MOST_FILES = 1 << 16 };

static struct {
    int epoll_fd;
    struct epoll_event event;
} watched[MOST_FILES];

int epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event)
{
    if (event && fd >= 0 && fd < MOST_FILES) {
        watched[fd].epoll_fd = epoll_fd;
        watched[fd].event = *event;
    }
    uint64_t x = op == EPOLL_CTL_ADD ? draw_one_in(atomic_load(&counts[LOSES_ONE_IN])) : 0;
    if (x && is_connection(fd))
        return fail_with(UNWATCHED, x % 2 ? ENOMEM : ENOSPC);
    return NEXT(epoll_ctl)(epoll_fd, op, fd, event);
}

static void tell_again(int fd)
{
    int before = errno;
    if (fd >= 0 && fd < MOST_FILES && watched[fd].event.events & EPOLLET)
        NEXT(epoll_ctl)(watched[fd].epoll_fd, EPOLL_CTL_MOD, fd, &watched[fd].event);
    errno = before;
}

/* Decides the fate of a transfer. True: it fails, and errno is set. False: *size is how many
 * bytes it may move. */
static bool spoil(int fd, size_t *size, enum kind lost)
{
    if (lose(fd))
        return fail_with(lost, lost == LOST_WRITE ? EPIPE : ECONNRESET);
    uint64_t x = draw();
    if (!x)
        return false;
    bool to_socket = is_socket(fd);
    if (to_socket)
        tell_again(fd);
    if (to_socket && is_packet_socket(fd)) /* the call may wait, so EAGAIN could not be */
        return fail_with(INTERRUPTED, EINTR);
    switch (x % 4) {
    case 0:
        return fail_with(INTERRUPTED, EINTR);
    case 1:
        if (to_socket)
            return fail_with(NOT_READY, EAGAIN);
        return fail_with(INTERRUPTED, EINTR);
    default:
        /* An eventfd moves eight bytes or none. */
        if (*size > 8) {
            atomic_fetch_add(&counts[SHORT], 1);
            *size = x % 4 == 2 ? 1 : 1 + (x >> 8) % (*size - 1);
        }
        return false;
    }
}

/* Cuts the pieces to their first `size` bytes. */
static int cut(const struct iovec *pieces, int n, size_t size, struct iovec *ret_pieces)
{
    int k = 0;
    for (; k < n && size > 0; k++) {
        ret_pieces[k] = pieces[k];
        if (ret_pieces[k].iov_len > size)
            ret_pieces[k].iov_len = size;
        size -= ret_pieces[k].iov_len;
    }
    return k;
}

static size_t sum_of(const struct iovec *pieces, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += pieces[i].iov_len;
    return sum;
}

enum { MOST_PIECES = 1024 };

ssize_t read(int fd, void *bytes, size_t size)
{
    return spoil(fd, &size, LOST_READ) ? -1 : NEXT(read)(fd, bytes, size);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    return spoil(fd, &size, LOST_WRITE) ? -1 : NEXT(write)(fd, bytes, size);
}

ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    return spoil(fd, &size, LOST_READ) ? -1 : NEXT(recv)(fd, bytes, size, flags);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    return spoil(fd, &size, LOST_WRITE) ? -1 : NEXT(send)(fd, bytes, size, flags);
}

ssize_t readv(int fd, const struct iovec *pieces, int n)
{
    struct iovec some[MOST_PIECES];
    size_t size = sum_of(pieces, n);
    if (n > MOST_PIECES)
        return NEXT(readv)(fd, pieces, n);
    return spoil(fd, &size, LOST_READ) ? -1 : NEXT(readv)(fd, some, cut(pieces, n, size, some));
}

ssize_t writev(int fd, const struct iovec *pieces, int n)
{
    struct iovec some[MOST_PIECES];
    size_t size = sum_of(pieces, n);
    if (n > MOST_PIECES)
        return NEXT(writev)(fd, pieces, n);
    return spoil(fd, &size, LOST_WRITE) ? -1 : NEXT(writev)(fd, some, cut(pieces, n, size, some));
}

int shutdown(int fd, int how)
{
    if (lose(fd))
        return fail_with(LOST_END, ENOTCONN);
    return NEXT(shutdown)(fd, how);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    uint64_t x = draw();
    switch (x ? x % 6 : 99) {
    case 0:
        return fail_with(INTERRUPTED, EINTR);
    case 1:
        return fail_with(NOT_READY, EAGAIN);
    case 2:
        return fail_with(NO_FILES, EMFILE);
    case 3:
        return fail_with(NO_FILES, ENFILE);
    case 4:
        return fail_with(NO_FILES, x % 4 < 2 ? ENOMEM : ENOBUFS);
    case 5:
        return fail_with(ABORTED, ECONNABORTED);
    default:
        return NEXT(accept4)(fd, address, length, flags);
    }
}

/* True: the wait is interrupted. False: *most is how many events it may return. */
static bool spoil_wait(int *most)
{
    uint64_t x = draw();
    if (x && x % 2 == 0)
        return fail_with(INTERRUPTED, EINTR);
    if (x) {
        atomic_fetch_add(&counts[FEW], 1);
        *most = 1;
    }
    return false;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    return spoil_wait(&most) ? -1 : NEXT(epoll_wait)(fd, events, most, timeout_ms);
}

int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *timeout,
                 const sigset_t *mask)
{
    return spoil_wait(&most) ? -1 : NEXT(epoll_pwait2)(fd, events, most, timeout, mask);
}
