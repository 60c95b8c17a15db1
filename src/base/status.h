/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status: what a function that can fail returns. NULL is success, otherwise a code and a message
 * of one line that names the thing and the values. A status is immutable, may cross threads, and
 * is the same object from a backend to the wire (TRITONSERVER_Error is this struct).
 *
 * A status ends in exactly one place: returned, sent to the client, or logged and freed.
 */
#ifndef CONCH_BASE_STATUS_H
#define CONCH_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

#include "base/compiler.h"

/* The values are those of TRITONSERVER_Error_Code, which lacks the last one: the C API calls it
 * STATUS_UNAVAILABLE. */
enum status_code {
    STATUS_UNKNOWN,
    STATUS_INTERNAL,
    STATUS_NOT_FOUND,
    STATUS_INVALID_ARG,
    STATUS_UNAVAILABLE,
    STATUS_UNSUPPORTED,
    STATUS_ALREADY_EXISTS,
    STATUS_CANCELLED,
    STATUS_TIMED_OUT,
};

struct status;

/*
 * Longer messages are cut, with their length said: "…(62914560 bytes)". A name that a configuration
 * brings may have any length, and texts are put around texts.
 */
enum { STATUS_MAX_BYTES = 16 << 10 };

/*
 * status_new - a new status; falls back to status_no_memory() when there is none left.
 *
 * Thread: any. The caller owns the result and ends it with status_free().
 * @fmt  printf format of the message, without a line end
 */
NODISCARD struct status *status_new(enum status_code code, const char *fmt, ...) PRINTF_LIKE(2, 3);
NODISCARD struct status *status_newv(enum status_code code, const char *fmt, va_list ap)
    PRINTF_LIKE(2, 0);

/*
 * status_no_memory - the one status for "out of memory"; making it allocates nothing.
 */
NODISCARD struct status *status_no_memory(void);

/*
 * status_prefix - st with the text put before its message, the code kept.
 *
 * @st  taken; NULL gives NULL
 */
NODISCARD struct status *status_prefix(struct status *st, const char *fmt, ...) PRINTF_LIKE(2, 3);

/*
 * status_from_errno - a status for a failed system call: "<text>: <strerror>", with the code that
 * fits the errno (ENOENT not found, ENOMEM unavailable, …, else internal).
 */
NODISCARD struct status *status_from_errno(int err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* status_ref - one more owner, for an error that several requests share. NULL gives NULL. */
struct status *status_ref(struct status *st);

/* status_free - gives up the caller's reference; NULL is fine. */
void status_free(struct status *st);

/* The code and the message; st is not NULL. The message lives as long as st. */
enum status_code status_code(const struct status *st);
const char *status_message(const struct status *st);

/*
 * status_reason - "<Code>: <message>" as the repository index prints why a model does not serve.
 * Always UTF-8, although messages name files as they are; the caller frees it.
 */
char *status_reason(const struct status *st);

/* status_code_name - "Invalid argument" and so on, as logs and index reasons print it. */
const char *status_code_name(enum status_code code);

#endif
