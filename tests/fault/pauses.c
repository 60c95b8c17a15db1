/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pauses - an LD_PRELOAD library that delays threads at random where another thread may overtake
 * them. It shows code that relies on the order of threads.
 *
 * PAUSES         <n>,<max_us>  at one of n such places on average, for up to max_us microseconds
 * PAUSES_WRITES  1             only behind a write(), such as that of a line of a log file
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static unsigned int one_of, max_us; /* one_of 0: never */
static bool only_writes;

static struct {
    int (*mutex_lock)(pthread_mutex_t *);
    int (*mutex_unlock)(pthread_mutex_t *);
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*writev)(int, const struct iovec *, int);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*sendmsg)(int, const struct msghdr *, int);
    int (*accept4)(int, struct sockaddr *, socklen_t *, int);
    int (*epoll_wait)(int, struct epoll_event *, int, int);
} next;

static void start(void)
{
    *(void **)&next.mutex_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    *(void **)&next.mutex_unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    *(void **)&next.create = dlsym(RTLD_NEXT, "pthread_create");
    *(void **)&next.read = dlsym(RTLD_NEXT, "read");
    *(void **)&next.write = dlsym(RTLD_NEXT, "write");
    *(void **)&next.writev = dlsym(RTLD_NEXT, "writev");
    *(void **)&next.recv = dlsym(RTLD_NEXT, "recv");
    *(void **)&next.send = dlsym(RTLD_NEXT, "send");
    *(void **)&next.sendmsg = dlsym(RTLD_NEXT, "sendmsg");
    *(void **)&next.accept4 = dlsym(RTLD_NEXT, "accept4");
    *(void **)&next.epoll_wait = dlsym(RTLD_NEXT, "epoll_wait");

    const char *text = getenv("PAUSES");
    if (text && sscanf(text, "%u,%u", &one_of, &max_us) != 2)
        abort();
    only_writes = getenv("PAUSES_WRITES");
}

/* Other constructors may call before ours runs. */
static void ready(void)
{
    if (!next.epoll_wait)
        start();
}

/* Each thread has random numbers of its own (xorshift), different in each run. */
static uint64_t draw(void)
{
    static __thread uint64_t x;
    if (!x) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        x = ((uint64_t)now.tv_nsec << 32 | (uint64_t)syscall(SYS_gettid)) * 0x9E3779B97F4A7C15u | 1;
    }
    x ^= x << 13;
    x ^= x >> 7;
    return x ^= x << 17;
}

static void dawdle_behind_write(void)
{
    if (one_of == 0 || max_us == 0 || (draw() >> 32) % one_of != 0)
        return;
    int saved = errno;
    uint64_t us = (draw() >> 32) % max_us;
    struct timespec pause = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    syscall(SYS_nanosleep, &pause, NULL);
    errno = saved;
}

static void dawdle(void)
{
    if (!only_writes)
        dawdle_behind_write();
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    ready();
    dawdle();
    return next.mutex_lock(m);
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    ready();
    int result = next.mutex_unlock(m);
    dawdle();
    return result;
}

/* The new thread may run long before its maker continues, or long after. */
int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    ready();
    dawdle();
    int result = next.create(ret, attr, run, arg);
    dawdle();
    return result;
}

ssize_t read(int fd, void *data, size_t size)
{
    ready();
    dawdle();
    return next.read(fd, data, size);
}

ssize_t write(int fd, const void *data, size_t size)
{
    ready();
    ssize_t n = next.write(fd, data, size);
    dawdle_behind_write();
    return n;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    ready();
    ssize_t n = next.writev(fd, parts, count);
    dawdle();
    return n;
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
    ready();
    dawdle();
    return next.recv(fd, data, size, flags);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    ready();
    ssize_t n = next.send(fd, data, size, flags);
    dawdle();
    return n;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ready();
    ssize_t n = next.sendmsg(fd, message, flags);
    dawdle();
    return n;
}

int accept4(int fd, struct sockaddr *ret, socklen_t *ret_size, int flags)
{
    ready();
    dawdle();
    return next.accept4(fd, ret, ret_size, flags);
}

int epoll_wait(int fd, struct epoll_event *ret, int max, int timeout_ms)
{
    ready();
    int n = next.epoll_wait(fd, ret, max, timeout_ms);
    dawdle();
    return n;
}
