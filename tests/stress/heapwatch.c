/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heapwatch - an LD_PRELOAD library that reports how much memory the allocator of a program has
 * given out. A client that connects to the socket whose path is in HEAPWATCH gets one JSON object,
 * in bytes:
 *
 *     allocated   not freed; jemalloc's unused pages were purged before
 *
 * The client gets nothing if neither jemalloc nor a sanitizer allocates. The library has a thread
 * of its own, which takes no signals. tests/stress/test_soak.py connects.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

__attribute__((weak)) int mallctl(const char *name, void *old, size_t *old_size, void *new,
                                  size_t new_size);
__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes(void);

static int listener;

static size_t jemalloc_count(const char *name)
{
    size_t bytes = 0, size = sizeof(bytes);
    mallctl(name, &bytes, &size, NULL, 0);
    return bytes;
}

static void tell(int fd)
{
    size_t allocated;
    if (__sanitizer_get_current_allocated_bytes) {
        allocated = __sanitizer_get_current_allocated_bytes();
    } else if (mallctl) {
        uint64_t epoch = 1;
        mallctl("arena.4096.purge", NULL, NULL, NULL, 0); /* purges all arenas */
        mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
        allocated = jemalloc_count("stats.allocated");
        allocated -=
            jemalloc_count("stats.arenas.4096.tcache_bytes"); /* freed; kept for a thread */
    } else {
        return;
    }
    dprintf(fd, "{\"allocated\": %zu}\n", allocated);
}

static void *serve(void *arg)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return arg;
        tell(fd);
        close(fd);
    }
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("HEAPWATCH");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    sigset_t all, before;
    pthread_t thread;
    if (!path || strlen(path) >= sizeof(at.sun_path))
        return;
    strcpy(at.sun_path, path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(listener, 8) < 0 ||
        pthread_create(&thread, NULL, serve, NULL) != 0)
        perror("heapwatch"); /* clients find no socket */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
