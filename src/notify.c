/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol is a datagram of a few bytes, so that no library is needed for it. The socket is a
 * file, or has an abstract name, which NOTIFY_SOCKET writes with an '@' in front.
 */
#include "notify.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address;
static socklen_t address_length; /* 0: nobody is to be told */
static uint64_t watchdog_us;     /* 0: nobody waits for a sign of life */

static void read_socket(const char *path)
{
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof(address.sun_path) || (*path != '/' && *path != '@'))
        return;
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path, length);
    if (*path == '@')
        address.sun_path[0] = '\0';
    address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
}

static uint64_t number_in_variable(const char *text)
{
    char *end;
    unsigned long long n = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    return n && !*end ? n : 0;
}

void notify_init(void)
{
    const char *pid = getenv("WATCHDOG_PID");
    read_socket(getenv("NOTIFY_SOCKET"));
    if (address_length && (!pid || number_in_variable(pid) == (uint64_t)getpid()))
        watchdog_us = number_in_variable(getenv("WATCHDOG_USEC"));
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void notify_send(const char *lines)
{
    if (!address_length)
        return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                  address_length);
    close(fd);
}

uint64_t notify_period_ms(void)
{
    /* Two signs of life may be late or lost before the manager acts. */
    uint64_t period = watchdog_us / 3000;
    return watchdog_us && !period ? 1 : period;
}
