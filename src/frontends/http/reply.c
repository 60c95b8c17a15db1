/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies with errors and with the contents of the loop's buffer. An error that does not fit into
 * memory becomes a short one that needs none. Thread: the loop's.
 */
#include "frontends/http/reply.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/status.h"
#include "frontends/http/call.h"
#include "frontends/http/dialect.h"
#include "frontends/ops/errors.h"

enum { NO_MEMORY_STATUS = 503 };

/* Of replies for want of memory, which another request may have freed a second later. */
static const char try_again[] = "Retry-After: 1\r\n";

const char content_json[] = "application/json";
const char content_text[] = "text/plain";

void http_print_error(struct buf *out, const char *text)
{
    struct json_writer w = {.out = out};
    json_put_open(&w, '{');
    json_put_name(&w, "error");
    json_put_text(&w, text);
    json_put_close(&w, '}');
}

void reply_printed(struct exchange *x, int status, const char *content_type)
{
    struct buf *json = &call_ctx(x)->json;
    if (json->failed) {
        reply_status(x, buf_status(json), content_type);
        return;
    }
    exchange_reply_text(x, status, content_type, buf_text(json), json->size);
}

void reply_stamp(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    if (UNLIKELY(call->traced != NULL))
        traced_stamp(call->traced, STAMP_HTTP_SEND_START, clock_now_ns(x->env->net.loop->clock));
}

void reply_traced(struct exchange *x, const struct http_reply *reply)
{
    reply_stamp(x);
    exchange_reply(x, reply);
}

/* Replies with an error; header is a line of the head, or "". */
static void send_error(struct exchange *x, int http_status, const char *content_type,
                       const char *header, const char *text)
{
    struct buf *json = &call_ctx(x)->json;
    buf_reset(json);
    http_print_error(json, text);
    if (json->failed) { /* an error text of this size is not worth its memory */
        static const char brief[] = "{\"error\":\"out of memory\"}";
        exchange_reply_copied(x, NO_MEMORY_STATUS, content_type, try_again, brief,
                              sizeof(brief) - 1);
        return;
    }
    exchange_reply_copied(x, http_status, content_type, header, json->data, json->size);
}

void reply_error(struct exchange *x, int http_status, const char *content_type, const char *text)
{
    send_error(x, http_status, content_type, "", text);
}

void reply_status(struct exchange *x, struct status *st, const char *content_type)
{
    const struct http_dialect *dialect = call_ctx(x)->settings->dialect;
    int http_status = dialect->error_status ? dialect->error_status(x, st, &content_type)
                                            : ops_error_of(status_code(st))->http_status;
    bool may_pass = st == status_no_memory() && http_status == NO_MEMORY_STATUS;
    send_error(x, http_status, content_type, may_pass ? try_again : "", status_message(st));
    status_free(st);
}

struct status *request_json_too_large(size_t json_bytes, size_t max_bytes)
{
    return status_new(
        STATUS_INVALID_ARG,
        "request JSON size of %zu bytes exceeds the maximum allowed input size of %zu "
        "bytes. Use --http-max-input-size to increase the limit.",
        json_bytes, max_bytes);
}

struct status *request_json_fault(const struct json_error *fault, const char *text, size_t length)
{
    const char *at = text + MIN(fault->offset, length), *line = text, *end;
    size_t n_lines = 1, column = 1;
    if (length == 0)
        return status_new(STATUS_INTERNAL,
                          "failed to parse the request JSON buffer: %s at %zu (the body is empty)",
                          fault->text, fault->offset);
    while ((end = memchr(line, '\n', (size_t)(at - line)))) {
        n_lines++;
        line = end + 1;
    }
    for (const char *p = line; p < at; p++)
        column += ((unsigned char)*p & 0xc0) != 0x80; /* characters, not bytes */
    return status_new(STATUS_INTERNAL,
                      "failed to parse the request JSON buffer: %s at %zu (line %zu, column %zu)",
                      fault->text, fault->offset, n_lines, column);
}

struct status *request_json_check(const char *body, size_t size_bytes, size_t max_bytes)
{
    struct json_error fault;
    if (size_bytes > max_bytes)
        return request_json_too_large(size_bytes, max_bytes);
    if (size_bytes > 0 && !json_check(body, size_bytes, &fault))
        return request_json_fault(&fault, body, size_bytes);
    return NULL;
}
