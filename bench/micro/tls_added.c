/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_added - an LD_PRELOAD library that has a server without TLS do what OpenSSL does for TLS, and
 * nothing else: an SSL_read() of a record behind each recv(), an SSL_write() of one before each
 * send(), of as many bytes, by connections in memory. So the difference to the same server without
 * the library is what OpenSSL takes, with the caches as they are in that server, and with what it
 * evicts from them. A server that speaks TLS takes at least that.
 *
 * The records that "clients" have sent are made in advance, RECORDS at a time. That is not the
 * server's work: its CPU time in ns is added to the 64-bit count in the file that TLS_ADDED_FILE
 * names, for bench/run to subtract.
 *
 * It begins with a connection's STEADY-th recv() of the same length. Larger ones do not count.
 * Thread: a descriptor is one thread's at a time; the count is atomic.
 */
#include "tls_pair.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 4096, RECORDS = 32, STEADY = 8, MAX_BYTES = 1024 };

/* A connection, by its descriptor; the next one with that number goes on with it. */
struct added {
    struct tls_pair pair;
    bool is_connected;
    size_t n_bytes;   /* of the last recv() */
    unsigned n_equal; /* … and how many before it had as many */
    unsigned n_left;  /* records that have been made and not been read */
};

static struct added *added[MAX_FD];
static SSL_CTX *server, *client;
static atomic_uint_fast64_t none, *not_the_servers_ns = &none;
static ssize_t (*next_recv)(int, void *, size_t, int);
static ssize_t (*next_send)(int, const void *, size_t, int);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map_count(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    tls_check(fd >= 0 && ftruncate(fd, sizeof(uint64_t)) == 0, path);
    void *at = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    tls_check(at != MAP_FAILED, path);
    not_the_servers_ns = at;
    close(fd);
}

static void begin(void)
{
    *(void **)&next_recv = dlsym(RTLD_NEXT, "recv");
    *(void **)&next_send = dlsym(RTLD_NEXT, "send");
    server = tls_server();
    client = SSL_CTX_new(TLS_client_method());
    if (getenv("TLS_ADDED_FILE"))
        map_count(getenv("TLS_ADDED_FILE"));
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Does the client's part for the next records. */
static void make_records(struct added *a)
{
    static const char request[MAX_BYTES];
    uint64_t from_ns = cpu_ns();
    if (!a->is_connected)
        tls_pair_connect(&a->pair, server, client);
    a->is_connected = true;
    for (; a->n_left < RECORDS; a->n_left++)
        tls_check(SSL_write(a->pair.client, request, (int)a->n_bytes) == (int)a->n_bytes, "asking");
    atomic_fetch_add(not_the_servers_ns, cpu_ns() - from_ns);
}

static void read_record(int fd, size_t n_bytes)
{
    char got[MAX_BYTES];
    if (fd >= MAX_FD || n_bytes > MAX_BYTES)
        return;
    if (!added[fd])
        added[fd] = calloc(1, sizeof(*added[fd]));
    struct added *a = added[fd];
    tls_check(a != NULL, "memory");
    a->n_equal = a->n_bytes == n_bytes ? a->n_equal + 1 : 0;
    a->n_bytes = n_bytes;
    if (a->n_equal < STEADY)
        return;
    if (a->n_left == 0)
        make_records(a);
    tls_check(SSL_read(a->pair.server, got, sizeof(got)) > 0, "reading");
    a->n_left--;
}

static void write_record(int fd, const void *bytes, size_t n_bytes)
{
    if (fd >= MAX_FD || n_bytes > MAX_BYTES || !added[fd] || added[fd]->n_equal < STEADY)
        return;
    struct tls_pair *p = &added[fd]->pair;
    tls_check(SSL_write(p->server, bytes, (int)n_bytes) == (int)n_bytes, "answering");
    p->to_client.at = p->to_client.end = 0; /* nobody reads it */
}

ssize_t recv(int fd, void *bytes, size_t n_bytes, int flags)
{
    pthread_once(&once, begin);
    ssize_t n = next_recv(fd, bytes, n_bytes, flags);
    if (n > 0)
        read_record(fd, (size_t)n);
    return n;
}

ssize_t send(int fd, const void *bytes, size_t n_bytes, int flags)
{
    pthread_once(&once, begin);
    write_record(fd, bytes, n_bytes);
    return next_send(fd, bytes, n_bytes, flags);
}
