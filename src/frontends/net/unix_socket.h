/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets of this machine (AF_UNIX), by address: "unix:PATH" is a file, "unix:@NAME" a
 * name of Linux's abstract namespace, which needs no file and ends with the process.
 *
 * The file gets the permissions that the process's umask allows; a client must be able to write it.
 * A file that a dead server has left is replaced. The file is removed when the service stops.
 *
 * Thread: the one that starts and stops the service.
 */
#ifndef CONCH_FRONTENDS_NET_UNIX_SOCKET_H
#define CONCH_FRONTENDS_NET_UNIX_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/compiler.h"

struct status;

/* The file of a listening socket. */
struct unix_socket {
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path]; /* "": there is none to remove */
    dev_t device;
    ino_t number;
};

/* unix_socket_is_meant - whether the address begins with "unix:". */
bool unix_socket_is_meant(const char *address);

/*
 * unix_socket_open - binds and listens. unix_socket_remove() ends the file; the caller closes the
 * descriptor.
 *
 * Errors: STATUS_UNAVAILABLE  Socket 'a' already in use
 *         STATUS_INVALID_ARG  the path is empty or too long, or a file that is no socket
 *         as status_from_errno()
 */
NODISCARD struct status *unix_socket_open(struct unix_socket *u, const char *address, int backlog,
                                          int *ret_fd);

/*
 * unix_socket_remove - removes the file, unless another server has replaced it; once. The socket
 * must still be open.
 */
void unix_socket_remove(struct unix_socket *u);

#endif
