/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writes - an LD_PRELOAD library that records what event loops send, write by write, and can hold
 * the loops back, so that a test decides what comes together in one turn.
 *
 * WRITES_FILE  a file of the size of struct record, which the test makes and reads. While `held` is
 *              set, a loop that has been woken waits before its turn begins.
 *
 * A turn begins when epoll returns to a thread. Threads that never wait by epoll have turn 0.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WRITES = 1 << 16 };

/* tests/fault/test_writes.py knows this form. */
struct record {
    atomic_uint held;
    atomic_uint n_waiting; /* loops that are held */
    atomic_uint n_writes;
    uint32_t unused;
    struct {
        uint32_t turn, fd;
        _Atomic int64_t asked; /* bytes; set last */
        int64_t sent;
    } writes[MOST_WRITES];
};

static struct record *record;
static atomic_uint n_turns;
static _Thread_local uint32_t turn;

#define NEXT(name)                                                                                 \
    ({                                                                                             \
        static typeof(&(name)) next;                                                               \
        if (!next)                                                                                 \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                             \
        next;                                                                                      \
    })

__attribute__((constructor)) static void map_record(void)
{
    const char *path = getenv("WRITES_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED
                      : mmap(NULL, sizeof(*record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        record = at;
    if (fd >= 0)
        close(fd);
}

static void begin_turn(void)
{
    static const struct timespec moment = {.tv_nsec = 1000000};
    if (record && atomic_load(&record->held)) {
        atomic_fetch_add(&record->n_waiting, 1);
        while (atomic_load(&record->held))
            nanosleep(&moment, NULL);
        atomic_fetch_sub(&record->n_waiting, 1);
    }
    turn = atomic_fetch_add(&n_turns, 1) + 1;
}

static ssize_t note_write(int fd, size_t asked, ssize_t sent)
{
    unsigned int at = record ? atomic_fetch_add(&record->n_writes, 1) : MOST_WRITES;
    if (at < MOST_WRITES) {
        record->writes[at].turn = turn;
        record->writes[at].fd = (uint32_t)fd;
        record->writes[at].sent = sent;
        atomic_store(&record->writes[at].asked, (int64_t)asked);
    }
    return sent;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    int n = NEXT(epoll_wait)(fd, events, most, timeout_ms);
    begin_turn();
    return n;
}

int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *timeout,
                 const sigset_t *mask)
{
    int n = NEXT(epoll_pwait2)(fd, events, most, timeout, mask);
    begin_turn();
    return n;
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    return note_write(fd, size, NEXT(send)(fd, bytes, size, flags));
}

ssize_t writev(int fd, const struct iovec *pieces, int n)
{
    size_t asked = 0;
    for (int i = 0; i < n; i++)
        asked += pieces[i].iov_len;
    return note_write(fd, asked, NEXT(writev)(fd, pieces, n));
}
