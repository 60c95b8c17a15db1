/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: each sink has a ring of bytes. While it is empty, the thread that logs a line writes it,
 * without waiting. The rest of it, and all later lines, are queued until the log thread has emptied
 * the ring. So lines keep their order, and a log whose reader keeps up never uses the thread.
 *
 * How a descriptor is written without waiting depends on its kind. Its flags are not changed: it is
 * shared with other processes, which do not expect it to be non-blocking.
 *
 *     a pipe, a terminal    pwritev2(RWF_NOWAIT); before Linux 6.4, and on terminals, poll() and
 *                           then no more than PIPE_BUF bytes, for which a ready pipe has room
 *     a socket              send(MSG_DONTWAIT)
 *     a regular file        write(), which waits for a disk at most
 *     … of another machine  write(), by the thread alone
 *
 * The thread unlocks the mutex while it writes: only it moves `head`, so the bytes that it writes
 * do not move. A child made by fork() has no thread, and the queue belongs to the parent.
 */
#include "base/log_sink.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"

enum {
    USERS_LEVEL = 990,
    SINKS_LEVEL = 1001, /* below log.mu, the last of all */
    PATIENCE_MS = 1000, /* for a sink that accepts nothing */
    LOOK_MS = 100,      /* while a sink is full: how often the thread looks at the others */
};

#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xFE534D42
#endif

enum way { WAY_UNKNOWN, WAY_NOWAIT, WAY_POLLED, WAY_SOCKET, WAY_FILE, WAY_REMOTE };

/* All under log_sinks.mu, except the atomic members, which log_await() reads, too. */
struct sink {
    int fd; /* -1: none */
    enum way way;
    bool is_shared;       /* stderr is stdout: its lines go to that sink, which keeps their order */
    bool is_writing;      /* the thread writes, from ring[head] … */
    int closes_fd;        /* … to that descriptor, which it closes afterwards; -1: none */
    bool stalled;         /* the last wait for the reader failed: do not wait again */
    bool torn;            /* a line was cut off in the middle */
    unsigned long n_lost; /* lost lines that are not reported yet */
    /* Counts of bytes: ring[head % size .. tail % size) is queued. */
    _Atomic size_t head, tail;
    char *ring; /* LOG_QUEUE_BYTES */
};

static char rings[LOG_SINKS][LOG_QUEUE_BYTES];

static struct {
    struct mutex mu;
    /* Under mu. */
    bool has_thread, stopping;
    uint64_t stop_ns; /* … and by when it must end */
    struct thread thread;
    struct sink sinks[LOG_SINKS];
    /* Initialised by the first user. */
    struct cond filled; /* a line is queued, or the thread must end */
    struct cond room;   /* the queue has become shorter */
} log_sinks = {
    .mu = {.mu = PTHREAD_MUTEX_INITIALIZER, .level = SINKS_LEVEL, .name = "log_sinks.mu"},
    .sinks =
        {[LOG_TO_STDOUT] = {.fd = STDOUT_FILENO, .closes_fd = -1, .ring = rings[LOG_TO_STDOUT]},
         [LOG_TO_STDERR] = {.fd = STDERR_FILENO, .closes_fd = -1, .ring = rings[LOG_TO_STDERR]},
         [LOG_TO_FILE] = {.fd = -1, .closes_fd = -1, .ring = rings[LOG_TO_FILE]}},
};

/* Users of the log thread: the first starts it, the last ends it. */
static struct {
    struct mutex mu;
    unsigned int n; /* under mu */
} log_users = {
    .mu = {.mu = PTHREAD_MUTEX_INITIALIZER, .level = USERS_LEVEL, .name = "log_users.mu"},
};

static size_t n_queued(const struct sink *k)
{
    return atomic_load_explicit(&k->tail, memory_order_relaxed) -
           atomic_load_explicit(&k->head, memory_order_relaxed);
}

/* ---- Writing without waiting ----------------------------------------------------------------- */

static bool is_remote(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0)
        return false;
    switch ((unsigned long)fs.f_type) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case CEPH_SUPER_MAGIC:
    case FUSE_SUPER_MAGIC:
        return true;
    default:
        return false;
    }
}

static enum way way_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return WAY_NOWAIT; /* the write gives the error */
    if (S_ISSOCK(st.st_mode))
        return WAY_SOCKET;
    if (S_ISREG(st.st_mode))
        return is_remote(fd) ? WAY_REMOTE : WAY_FILE;
    return WAY_NOWAIT;
}

static bool is_writable(int fd, int wait_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n;
    do {
        n = poll(&p, 1, wait_ms);
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

static ssize_t write_when_ready(int fd, const char *bytes, size_t length)
{
    if (!is_writable(fd, 0)) {
        errno = EAGAIN;
        return -1;
    }
    return write(fd, bytes, MIN(length, (size_t)PIPE_BUF));
}

/* As write(); -1 with EAGAIN when the sink accepts nothing now. May change *way. */
static ssize_t write_some(int fd, enum way *way, const char *bytes, size_t length)
{
    struct iovec piece = {(char *)(uintptr_t)bytes, length};
    ssize_t n;
    switch (*way) {
    case WAY_NOWAIT:
        n = pwritev2(fd, &piece, 1, -1, RWF_NOWAIT);
        if (n >= 0 || (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS))
            return n;
        *way = WAY_POLLED;
        return write_when_ready(fd, bytes, length);
    case WAY_POLLED:
        return write_when_ready(fd, bytes, length);
    case WAY_SOCKET:
        return send(fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    default:
        return write(fd, bytes, length);
    }
}

/* Writes as much as the sink accepts, and returns how much. *ret_error: errno, if an error has
 * ended it. */
static size_t write_until_full(int fd, enum way *way, const char *bytes, size_t length,
                               int *ret_error)
{
    size_t done = 0;
    *ret_error = 0;
    while (done < length) {
        ssize_t n = write_some(fd, way, bytes + done, length - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR) {
            *ret_error = errno;
            break;
        }
    }
    return done;
}

/* ---- Adding a line --------------------------------------------------------------------------- */

static void enqueue_locked(struct sink *k, const char *bytes, size_t length)
{
    size_t tail = atomic_load_explicit(&k->tail, memory_order_relaxed);
    size_t at = tail % LOG_QUEUE_BYTES;
    size_t first = MIN(length, LOG_QUEUE_BYTES - at);
    memcpy(k->ring + at, bytes, first);
    memcpy(k->ring, bytes + first, length - first);
    atomic_store_explicit(&k->tail, tail + length, memory_order_release);
    cond_signal(&log_sinks.filled);
}

/* With the thread: queues what the sink does not accept at once. False: it does not fit. */
static bool put_or_queue_locked(struct sink *k, const char *bytes, size_t length)
{
    size_t done = 0;
    int error = 0;
    if (n_queued(k) == 0 && k->way != WAY_REMOTE)
        done = write_until_full(k->fd, &k->way, bytes, length, &error);
    k->torn |= done > 0 && done < length;
    if (error || length - done > LOG_QUEUE_BYTES - n_queued(k))
        return false;
    if (done < length) {
        enqueue_locked(k, bytes + done, length - done);
        k->torn = false;
    }
    return true;
}

/* Without the thread: the caller waits a little. The descriptor may differ each time. */
static bool put_or_wait_locked(struct sink *k, const char *bytes, size_t length)
{
    int error;
    k->way = way_of(k->fd);
    size_t done = write_until_full(k->fd, &k->way, bytes, length, &error);
    while (done < length && !error) {
        k->stalled = !is_writable(k->fd, k->stalled ? 0 : PATIENCE_MS);
        if (k->stalled)
            break;
        done += write_until_full(k->fd, &k->way, bytes + done, length - done, &error);
    }
    k->torn |= done > 0 && done < length;
    return done == length;
}

static bool put_text_locked(struct sink *k, const char *bytes, size_t length)
{
    return log_sinks.has_thread ? put_or_queue_locked(k, bytes, length)
                                : put_or_wait_locked(k, bytes, length);
}

/* Reports lost lines before the next line. False: there is no room even for that. */
static bool put_lost_locked(struct sink *k)
{
    char note[LOG_LOST_BYTES + 1];
    if (!k->n_lost && !k->torn)
        return true;
    size_t torn = k->torn;
    note[0] = '\n';
    k->torn = false;
    size_t length = torn + log_put_lost(note + torn, k->n_lost);
    if (!put_text_locked(k, note, length)) {
        k->torn = torn;
        return false;
    }
    k->n_lost = 0;
    return true;
}

static struct sink *sink_locked(enum log_where where)
{
    struct sink *k = &log_sinks.sinks[where];
    return k->is_shared ? &log_sinks.sinks[LOG_TO_STDOUT] : k;
}

void log_sink_put(enum log_where where, const char *bytes, size_t length)
{
    int saved_errno = errno;
    mutex_lock(&log_sinks.mu);
    struct sink *k = sink_locked(where);
    if (!put_lost_locked(k) || !put_text_locked(k, bytes, length))
        k->n_lost++;
    mutex_unlock(&log_sinks.mu);
    errno = saved_errno;
}

static void await_room(enum log_where where, size_t length)
{
    mutex_lock(&log_sinks.mu);
    struct sink *k = sink_locked(where);
    uint64_t until_ns = monotonic_ns() + PATIENCE_MS * NS_PER_MS;
    size_t head = atomic_load_explicit(&k->head, memory_order_relaxed);
    while (log_sinks.has_thread && n_queued(k) + length > LOG_QUEUE_BYTES &&
           cond_wait_until(&log_sinks.room, &log_sinks.mu, until_ns)) {
        size_t now = atomic_load_explicit(&k->head, memory_order_relaxed);
        if (now != head)
            until_ns = monotonic_ns() + PATIENCE_MS * NS_PER_MS;
        head = now;
    }
    mutex_unlock(&log_sinks.mu);
}

/* Returns how many of the bytes are whole lines of at most this many in all; all of a longer
 * line. */
static size_t whole_lines(const char *bytes, size_t length, size_t most)
{
    if (length <= most)
        return length;
    const char *end = memrchr(bytes, '\n', most);
    if (!end)
        end = memchr(bytes + most, '\n', length - most);
    return end ? (size_t)(end - bytes) + 1 : length;
}

void log_sink_put_patiently(enum log_where where, const char *bytes, size_t length)
{
    while (length > 0) {
        size_t n = whole_lines(bytes, length, LOG_QUEUE_BYTES / 2);
        await_room(where, n);
        log_sink_put(where, bytes, n);
        bytes += n;
        length -= n;
    }
}

void log_sink_set_file(int fd)
{
    mutex_lock(&log_sinks.mu);
    struct sink *k = &log_sinks.sinks[LOG_TO_FILE];
    int before = k->fd;
    k->fd = fd;
    k->way = fd >= 0 ? way_of(fd) : WAY_UNKNOWN;
    k->stalled = k->torn = false;
    for (int i = 0; i < LOG_SINKS; i++)
        log_sinks.sinks[i].stalled = false;
    if (fd < 0) /* no descriptor is left to write to */
        atomic_store_explicit(&k->head, atomic_load(&k->tail), memory_order_relaxed);
    if (before >= 0 && k->is_writing && k->closes_fd < 0)
        k->closes_fd = before;
    else if (before >= 0)
        close(before);
    mutex_unlock(&log_sinks.mu);
}

/* ---- The thread ------------------------------------------------------------------------------ */

static unsigned long count_lines_locked(const struct sink *k)
{
    unsigned long n = 0;
    size_t tail = atomic_load_explicit(&k->tail, memory_order_relaxed);
    for (size_t i = atomic_load_explicit(&k->head, memory_order_relaxed); i != tail; i++)
        n += k->ring[i % LOG_QUEUE_BYTES] == '\n';
    return n;
}

/* Writes one piece of the queue. Returns whether the sink has accepted any of it. */
static bool write_queued_locked(struct sink *k)
{
    size_t head = atomic_load_explicit(&k->head, memory_order_relaxed);
    size_t at = head % LOG_QUEUE_BYTES;
    size_t length = MIN(n_queued(k), LOG_QUEUE_BYTES - at);
    int fd = k->fd, error;
    enum way way = k->way;
    k->is_writing = true;
    mutex_unlock(&log_sinks.mu);
    size_t done = write_until_full(fd, &way, k->ring + at, length, &error);
    mutex_lock(&log_sinks.mu);
    k->is_writing = false;
    if (k->closes_fd >= 0)
        close(k->closes_fd);
    k->closes_fd = -1;
    if (k->fd == fd)
        k->way = way;
    if (atomic_load_explicit(&k->head, memory_order_relaxed) != head)
        return true; /* all was dropped meanwhile */
    atomic_store_explicit(&k->head, head + done, memory_order_relaxed);
    if (error) { /* it accepts nothing any more: its queue is lost */
        k->n_lost += count_lines_locked(k);
        atomic_store_explicit(&k->head, atomic_load(&k->tail), memory_order_relaxed);
    } else if (n_queued(k) == 0) {
        put_lost_locked(k);
    }
    cond_broadcast(&log_sinks.room);
    return done > 0 || error;
}

/* Waits until one of the full sinks accepts more; or for a moment, since another one may have
 * filled. */
static void await_sinks(void)
{
    struct pollfd polled[LOG_SINKS];
    nfds_t n = 0;
    mutex_lock(&log_sinks.mu);
    for (int i = 0; i < LOG_SINKS; i++) {
        if (n_queued(&log_sinks.sinks[i]) > 0)
            polled[n++] = (struct pollfd){.fd = log_sinks.sinks[i].fd, .events = POLLOUT};
    }
    mutex_unlock(&log_sinks.mu);
    poll(polled, n, LOOK_MS);
}

static void run_log_thread(void *arg)
{
    (void)arg;
    mutex_lock(&log_sinks.mu);
    for (;;) {
        size_t n_full = 0, n_taken = 0;
        for (int i = 0; i < LOG_SINKS; i++) {
            struct sink *k = &log_sinks.sinks[i];
            if (n_queued(k) == 0)
                continue;
            n_full++;
            n_taken += write_queued_locked(k);
        }
        bool over = log_sinks.stopping && (n_full == 0 || monotonic_ns() >= log_sinks.stop_ns);
        if (over)
            break;
        if (n_full == 0) {
            cond_wait(&log_sinks.filled, &log_sinks.mu);
        } else if (n_taken == 0) {
            mutex_unlock(&log_sinks.mu);
            await_sinks();
            mutex_lock(&log_sinks.mu);
        }
    }
    mutex_unlock(&log_sinks.mu);
}

/* ---- Start and stop -------------------------------------------------------------------------- */

static void lock_sinks_before_fork(void)
{
    mutex_lock(&log_sinks.mu);
}

static void unlock_sinks_after_fork(void)
{
    mutex_unlock(&log_sinks.mu);
}

static void after_fork_in_child(void)
{
    log_sinks.has_thread = false;
    for (int i = 0; i < LOG_SINKS; i++) {
        struct sink *k = &log_sinks.sinks[i];
        atomic_store_explicit(&k->head, atomic_load(&k->tail), memory_order_relaxed);
        k->n_lost = 0;
        k->torn = k->is_writing = false;
    }
    mutex_unlock(&log_sinks.mu);
}

static void init_once(void)
{
    cond_init(&log_sinks.filled);
    cond_init(&log_sinks.room);
    pthread_atfork(lock_sinks_before_fork, unlock_sinks_after_fork, after_fork_in_child);
}

static bool are_same_locked(void)
{
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino && !S_ISREG(out.st_mode);
}

static void start_log_thread(void)
{
    mutex_lock(&log_sinks.mu);
    log_sinks.stopping = false;
    for (int i = 0; i < LOG_SINKS; i++) {
        struct sink *k = &log_sinks.sinks[i];
        k->way = k->fd >= 0 ? way_of(k->fd) : WAY_UNKNOWN;
    }
    log_sinks.sinks[LOG_TO_STDERR].is_shared = are_same_locked();
    struct status *st = thread_start(&log_sinks.thread, "log", run_log_thread, NULL);
    log_sinks.has_thread = !st;
    mutex_unlock(&log_sinks.mu);
    status_free(st);
}

static void end_thread(void)
{
    mutex_lock(&log_sinks.mu);
    bool has_thread = log_sinks.has_thread; /* not in the child of a fork */
    log_sinks.stopping = true;
    log_sinks.stop_ns = monotonic_ns() + PATIENCE_MS * NS_PER_MS;
    cond_signal(&log_sinks.filled);
    mutex_unlock(&log_sinks.mu);
    if (has_thread)
        thread_join(&log_sinks.thread);
    mutex_lock(&log_sinks.mu);
    log_sinks.has_thread = false;
    for (int i = 0; i < LOG_SINKS; i++) {
        struct sink *k = &log_sinks.sinks[i];
        k->n_lost += count_lines_locked(k);
        k->stalled = n_queued(k) > 0;
        atomic_store_explicit(&k->head, atomic_load(&k->tail), memory_order_relaxed);
        k->is_shared = false;
    }
    mutex_unlock(&log_sinks.mu);
}

void log_sinks_start(void)
{
    static pthread_once_t init = PTHREAD_ONCE_INIT;
    pthread_once(&init, init_once);
    mutex_lock(&log_users.mu);
    if (log_users.n++ == 0)
        start_log_thread();
    mutex_unlock(&log_users.mu);
}

void log_sinks_stop(void)
{
    mutex_lock(&log_users.mu);
    if (--log_users.n == 0)
        end_thread();
    mutex_unlock(&log_users.mu);
}

bool log_await(uint64_t timeout_ms)
{
    int saved_errno = errno;
    bool done = false;
    for (uint64_t waited_ms = 0; !done; waited_ms++) {
        done = true;
        for (int i = 0; i < LOG_SINKS; i++)
            done &= n_queued(&log_sinks.sinks[i]) == 0;
        if (!done && waited_ms >= timeout_ms)
            break;
        if (!done)
            poll(NULL, 0, 1);
    }
    errno = saved_errno;
    return done;
}
