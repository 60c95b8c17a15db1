/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status: what a function that can fail returns. NULL is success. Otherwise it has a code and a
 * message of one line that names the thing and the values. A status is immutable, may cross
 * threads, and is the same object from a backend to the wire (TRITONSERVER_Error is this struct).
 *
 * A status ends in exactly one place: returned, sent to the client, or logged and freed.
 */
#ifndef CONCH_BASE_STATUS_H
#define CONCH_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

#include "base/compiler.h"

/*
 * STATUS_UNKNOWN, STATUS_INTERNAL, STATUS_NOT_FOUND, STATUS_INVALID_ARG, STATUS_UNAVAILABLE, …: the
 * table has all of them, and what depends on each.
 */
enum status_code {
#define STATUS_CODE(code, name, public, http, grpc, grpc_name) STATUS_##code,
#include "base/status.def"
};

struct status;

/*
 * Longer messages are cut, and their length is added: "…(62914560 bytes)". Names from a
 * configuration may have any length, and prefixes make messages longer.
 */
enum { STATUS_MAX_BYTES = 16 << 10 };

/*
 * status_new - makes a status; without memory it returns status_no_memory().
 *
 * Thread: any. The caller owns the result and ends it with status_free().
 * @fmt  printf format of the message, without a newline
 */
NODISCARD struct status *status_new(enum status_code code, const char *fmt, ...) PRINTF_LIKE(2, 3);
NODISCARD struct status *status_newv(enum status_code code, const char *fmt, va_list ap)
    PRINTF_LIKE(2, 0);

/*
 * status_no_memory - the one status for "out of memory", a static object; never fails.
 */
NODISCARD struct status *status_no_memory(void);

/*
 * status_not_found - the one status for "not found", a static object, for look-ups that often find
 * nothing and whose caller reads the code alone.
 */
NODISCARD struct status *status_not_found(void);

/*
 * status_prefix, status_suffix - put the text before or behind the message of st and keep the code;
 * return the result.
 *
 * @st  taken; NULL gives NULL
 */
NODISCARD struct status *status_prefix(struct status *st, const char *fmt, ...) PRINTF_LIKE(2, 3);
NODISCARD struct status *status_suffix(struct status *st, const char *fmt, ...) PRINTF_LIKE(2, 3);

/*
 * status_from_errno - makes the status of a failed system call: "<text>: <strerror>". The code
 * follows the errno: ENOENT not found, ENOMEM unavailable, …, else internal.
 */
NODISCARD struct status *status_from_errno(int err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* status_ref - adds an owner, for an error that several requests share. NULL gives NULL. */
struct status *status_ref(struct status *st);

/* status_free - gives up the caller's reference; NULL is fine. */
void status_free(struct status *st);

/* status_code, status_message - st must not be NULL. The message is valid as long as st. */
enum status_code status_code(const struct status *st);
const char *status_message(const struct status *st);

/*
 * status_reason - "<Code>: <message>", as the repository index shows why a model is not ready. The
 * result is always UTF-8, although file names in messages may not be. The caller frees it with
 * mem_free().
 */
char *status_reason(const struct status *st);

/* status_code_name - "Invalid argument" and so on, as logs and the index print it; static. */
const char *status_code_name(enum status_code code);

#endif
