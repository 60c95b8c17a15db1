/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_added - an LD_PRELOAD library that has a server copy from one object of shared memory to
 * another behind each recv() of some bytes, after it has asked for the sizes of both, since clients
 * may shrink them. It does nothing else with them. So the difference to the same server without the
 * library is what that copy takes there: by the process that has mapped the objects, with the
 * caches and pages as they are between two requests, and with what the copy evicts from them. A
 * server whose model copies a region to another takes at least that.
 *
 * COPY_ADDED_FROM and COPY_ADDED_TO name the files, COPY_ADDED_BYTES says how much of them.
 * Thread: any; one copies at a time, as in a server with one event loop.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "map_file.h"

struct object {
    int fd;
    void *bytes;
};

static struct object from, to;
static size_t n_copied;
static ssize_t (*next_recv)(int, void *, size_t, int);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *get_setting(const char *name)
{
    const char *value = getenv(name);
    if (value)
        return value;
    fprintf(stderr, "copy_added: %s is not set\n", name);
    exit(2);
}

static struct object open_object(const char *path)
{
    return (struct object){.fd = open(path, O_RDONLY | O_CLOEXEC),
                           .bytes = map_file(path, n_copied)};
}

static bool has_all(const struct object *o)
{
    return lseek(o->fd, 0, SEEK_END) >= (off_t)n_copied;
}

static void begin(void)
{
    *(void **)&next_recv = dlsym(RTLD_NEXT, "recv");
    n_copied = strtoull(get_setting("COPY_ADDED_BYTES"), NULL, 10);
    from = open_object(get_setting("COPY_ADDED_FROM"));
    to = open_object(get_setting("COPY_ADDED_TO"));
}

ssize_t recv(int fd, void *bytes, size_t n_bytes, int flags)
{
    pthread_once(&once, begin);
    ssize_t n = next_recv(fd, bytes, n_bytes, flags);
    if (n > 0 && has_all(&from) && has_all(&to))
        memcpy(to.bytes, from.bytes, n_copied);
    return n;
}
