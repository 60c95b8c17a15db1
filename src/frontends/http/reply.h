/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies and errors for several handlers. A reply is printed into the buffer of the loop
 * (http_ctx.json) and copied from there. Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_HTTP_REPLY_H
#define CONCH_FRONTENDS_HTTP_REPLY_H

#include <stddef.h>

#include "base/compiler.h"

struct buf;
struct exchange;
struct http_reply;
struct json_error;
struct status;

extern const char content_json[], content_text[];

/*
 * reply_status - replies {"error":"…"} with the HTTP status of the status code.
 *
 * @st  taken
 */
void reply_status(struct exchange *x, struct status *st, const char *content_type);
void reply_error(struct exchange *x, int http_status, const char *content_type, const char *text);

/* reply_printed - replies with the content of the loop's buffer as the body. */
void reply_printed(struct exchange *x, int status, const char *content_type);

/*
 * reply_stamp - the reply of an inference begins: its trace, if it has one, gets the time. Of
 * several calls the first one counts.
 */
void reply_stamp(struct exchange *x);

/* reply_traced - reply_stamp() and exchange_reply(). */
void reply_traced(struct exchange *x, const struct http_reply *reply);

/* http_print_error - prints {"error":"…"}. */
void http_print_error(struct buf *out, const char *text);

/*
 * request_json_too_large, request_json_fault - the errors for a JSON body beyond the limit, and for
 * a body that is not JSON.
 */
NODISCARD struct status *request_json_too_large(size_t json_bytes, size_t max_bytes);
NODISCARD struct status *request_json_fault(const struct json_error *fault, const char *text,
                                            size_t length);

/*
 * request_json_check - refuses a body that is too large or is not JSON (reference/behaviours §3.4,
 * §3.5). An empty body is fine.
 *
 * Errors: those of the two functions above
 */
NODISCARD struct status *request_json_check(const char *body, size_t size_bytes, size_t max_bytes);

#endif
