/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header Conch-Timeout-Ms: how long the client waits, from when its head has come. It becomes
 * the deadline of the request, so that late work is never executed, and a timer of the loop, so
 * that the client is answered in time. Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_HTTP_DEADLINE_H
#define CONCH_FRONTENDS_HTTP_DEADLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct exchange;
struct status;

/*
 * deadline_parse - reads the header's value: milliseconds in digits. Returns false for all else. A
 * number beyond the range becomes the greatest.
 */
NODISCARD bool deadline_parse(const char *at, size_t length, uint32_t *ret_ms);

/*
 * deadline_begin - for an exchange with the header, whose request is initialised: sets the
 * request's deadline and the timer.
 *
 * @on_passed  called once when the time has passed, unless deadline_end() comes before
 * Errors: STATUS_INVALID_ARG  the header is no number
 *         STATUS_TIMED_OUT    the time has passed already
 */
NODISCARD struct status *deadline_begin(struct exchange *x, void (*on_passed)(struct exchange *x));

/* deadline_end - clears the timer, if there is one. */
void deadline_end(struct exchange *x);

/* deadline_status - makes the error of a request whose deadline has passed. */
struct status *deadline_status(void);

#endif
