/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A socket's file outlives a process that crashes, and then nobody can bind it. So a file to which
 * nobody listens is removed before a second attempt. Whether somebody listens shows a connection.
 */
#include "frontends/net/unix_socket.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

static const char prefix[] = "unix:";

bool unix_socket_is_meant(const char *address)
{
    return strncmp(address, prefix, sizeof(prefix) - 1) == 0;
}

/* Reads the address; an abstract name begins with a NUL and has no other. */
static struct status *read_name(const char *address, struct sockaddr_un *ret, socklen_t *ret_length)
{
    const char *name = address + sizeof(prefix) - 1;
    bool is_abstract = name[0] == '@';
    size_t length = strlen(name);
    if (length <= is_abstract)
        return status_new(STATUS_INVALID_ARG, "cannot listen on '%s': it has no %s", address,
                          is_abstract ? "name" : "path");
    if (length >= sizeof(ret->sun_path))
        return status_new(STATUS_INVALID_ARG,
                          "cannot listen on '%s': it is longer than %zu characters", address,
                          sizeof(prefix) - 1 + sizeof(ret->sun_path) - 1);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path, name, length);
    if (is_abstract)
        ret->sun_path[0] = '\0';
    *ret_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + !is_abstract);
    return NULL;
}

static int make_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Whether nobody listens to the socket of that name. */
static bool has_no_listener(const struct sockaddr_un *name, socklen_t length)
{
    int fd = make_socket();
    if (fd < 0)
        return false;
    bool is = connect(fd, (const struct sockaddr *)name, length) < 0 && errno == ECONNREFUSED;
    close(fd);
    return is;
}

/* Why the name cannot be bound though it exists; NULL: its file was stale and is removed. */
static struct status *remove_stale(const char *address, const struct sockaddr_un *name,
                                   socklen_t length)
{
    struct stat info;
    if (name->sun_path[0] != '\0' && lstat(name->sun_path, &info) == 0) {
        if (!S_ISSOCK(info.st_mode))
            return status_new(STATUS_INVALID_ARG,
                              "cannot listen on '%s': the file exists and is not a socket",
                              address);
        if (has_no_listener(name, length))
            return unlink(name->sun_path) == 0 || errno == ENOENT
                       ? NULL
                       : status_from_errno(errno, "failed to listen on '%s'", address);
    }
    /* The blank at the end is the reference's: see listener_open(). */
    return status_new(STATUS_UNAVAILABLE, "Socket '%s' already in use ", address);
}

static struct status *bind_socket(int fd, const char *address, const struct sockaddr_un *name,
                                  socklen_t length)
{
    struct status *st = NULL;
    int failed = bind(fd, (const struct sockaddr *)name, length);
    if (failed && errno == EADDRINUSE) {
        st = remove_stale(address, name, length);
        if (!st)
            failed = bind(fd, (const struct sockaddr *)name, length);
    }
    if (!st && failed)
        st = status_from_errno(errno, "failed to listen on '%s'", address);
    return st;
}

/*
 * Notes the file, so that no other server's is removed in its place. While our socket is open no
 * other file gets the number.
 */
static void note_file(struct unix_socket *u, const struct sockaddr_un *name)
{
    struct stat info;
    if (name->sun_path[0] == '\0' || lstat(name->sun_path, &info) < 0)
        return;
    memcpy(u->path, name->sun_path, sizeof(u->path));
    u->device = info.st_dev;
    u->number = info.st_ino;
}

struct status *unix_socket_open(struct unix_socket *u, const char *address, int backlog,
                                int *ret_fd)
{
    struct sockaddr_un name;
    socklen_t length = 0;
    *u = (struct unix_socket){0};
    struct status *st = read_name(address, &name, &length);
    if (st)
        return st;
    int fd = make_socket();
    if (fd < 0)
        return status_from_errno(errno, "failed to listen on '%s'", address);
    st = bind_socket(fd, address, &name, length);
    if (!st) {
        note_file(u, &name);
        if (listen(fd, backlog) < 0)
            st = status_from_errno(errno, "failed to listen on '%s'", address);
    }
    if (st) {
        unix_socket_remove(u);
        close(fd);
        return st;
    }
    *ret_fd = fd;
    return NULL;
}

void unix_socket_remove(struct unix_socket *u)
{
    struct stat info;
    if (u->path[0] && lstat(u->path, &info) == 0 && info.st_dev == u->device &&
        info.st_ino == u->number)
        unlink(u->path);
    u->path[0] = '\0';
}
