/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/http/admin.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "documents/documents.h"
#include "frontends/http/call.h"

/*
 * The body of such a request: JSON of any kind, or nothing (behaviours §3.4, §3.5). Members of a
 * body that is no object are those of an empty one, as the reference has it.
 */
static struct status *check_body(const struct exchange *x)
{
    size_t max_bytes = call_ctx((struct exchange *)(uintptr_t)x)->settings->max_input_bytes;
    struct json_error fault;
    if (x->body_size > max_bytes)
        return status_new(STATUS_INVALID_ARG,
                          "request JSON size of %zu bytes exceeds the maximum allowed input size "
                          "of %zu bytes. Use --http-max-input-size to increase the limit.",
                          x->body_size, max_bytes);
    if (x->body_size > 0 && !json_check(x->body, x->body_size, &fault))
        return status_new(STATUS_INTERNAL, "failed to parse the request JSON buffer: %s at %zu",
                          fault.text, fault.offset);
    return NULL;
}

/* The first member `ready`; the text has been checked. */
static struct status *read_ready(struct exchange *x, bool *ret_ready)
{
    struct json j;
    struct json_str key;

    *ret_ready = false;
    json_init(&j, x->body, x->body_size, &x->arena);
    if (x->body_size == 0 || !json_enter_object(&j))
        return NULL;
    while (json_next_member(&j, &key)) {
        if (!json_str_is(key, "ready")) {
            json_skip_value(&j);
            continue;
        }
        if (!json_read_bool(&j, ret_ready))
            return status_new(STATUS_INVALID_ARG, "Invalid value for 'ready': expected a boolean");
        return NULL;
    }
    return j.failure == JSON_OUT_OF_MEMORY ? status_no_memory() : NULL;
}

void admin_index(struct exchange *x)
{
    struct model_index_row *rows = NULL;
    bool ready_only = false;
    size_t n_rows = 0;

    struct status *st = check_body(x);
    if (!st)
        st = read_ready(x, &ready_only);
    if (!st)
        st = ops_repository_index(call_ctx(x)->settings->server, ready_only, &rows, &n_rows);
    if (st) {
        reply_status(x, st, content_json);
        return;
    }
    struct buf *json = &call_ctx(x)->json;
    buf_reset(json);
    document_index(rows, n_rows, json);
    mem_free(rows);
    reply_printed(x, 200, content_json);
}

static void control(struct exchange *x,
                    struct status *(*operation)(struct server *, const struct ops_model_ref *))
{
    struct http_call *call = exchange_part(x);
    struct status *st = NULL;
    if (call->names_repository)
        st = status_new(STATUS_UNSUPPORTED, "'repository_name' specification is not supported");
    if (!st)
        st = check_body(x);
    if (!st)
        st = operation(call_ctx(x)->settings->server, &call->model);
    if (st)
        reply_status(x, st, content_json);
    else
        exchange_reply_text(x, 200, content_json, "", 0);
}

void admin_load(struct exchange *x)
{
    control(x, ops_model_load);
}

void admin_unload(struct exchange *x)
{
    control(x, ops_model_unload);
}
