/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service manager (systemd, Type=notify) is told: lines in a datagram to the socket that
 * the environment variable NOTIFY_SOCKET names, as sd_notify(3) describes them. Without that
 * variable nothing is sent. Thread: main.
 */
#ifndef CONCH_NOTIFY_H
#define CONCH_NOTIFY_H

#include <stdint.h>

/*
 * notify_init - reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the
 * environment, so that no child speaks for this program. Call it before there are threads.
 */
void notify_init(void);

/* notify_send - sends lines such as "READY=1"; a failure is ignored, as sd_notify()'s callers do.
 */
void notify_send(const char *lines);

/* notify_period_ms - how often "WATCHDOG=1" is to be sent; 0: the manager does not wait for it. */
uint64_t notify_period_ms(void);

#endif
