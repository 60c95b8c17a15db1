/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler calls one operation (ops/), prints its struct (documents/) into the buffer of the
 * loop, and replies with a copy. Thread: the loop's; no handler here blocks.
 */
#include "frontends/http/handlers.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/load/model_load.h"
#include "core/model/model.h"
#include "core/server/server.h"
#include "documents/documents.h"
#include "frontends/http/call.h"
#include "frontends/http/reply.h"

enum { MAX_PROGRESS_ROWS = 16 };

static const struct http_reply_fixed yes =
    HTTP_REPLY_FIXED("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n", "");
static const struct http_reply_fixed no = HTTP_REPLY_FIXED(
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n", "");

static void reply_health(struct exchange *x, struct status *st, bool fine)
{
    if (st)
        reply_status(x, st, content_text);
    else
        exchange_reply_fixed(x, fine ? &yes : &no);
}

void meta_live(struct exchange *x)
{
    bool live = false;
    struct status *st = server_is_live(call_ctx(x)->settings->server, &live);
    reply_health(x, st, live);
}

/* With `Accept: application/json` the body gives the reason. */
static void reply_progress(struct exchange *x)
{
    struct server_progress progress;
    struct status *st =
        server_progress(call_ctx(x)->settings->server, MAX_PROGRESS_ROWS, &progress);
    if (st) {
        reply_status(x, st, content_json);
        return;
    }
    struct buf *json = &call_ctx(x)->json;
    buf_reset(json);
    document_progress(&progress, json);
    mem_free(progress.rows);
    reply_printed(x, progress.ready ? 200 : 400, content_json);
}

void meta_ready(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    bool ready = false;
    if (UNLIKELY(call->facts.wants_json)) {
        reply_progress(x);
        return;
    }
    struct status *st = server_is_ready(call_ctx(x)->settings->server, &ready);
    reply_health(x, st, ready);
}

void meta_server(struct exchange *x)
{
    struct buf *json = &call_ctx(x)->json;
    buf_reset(json);
    document_server_metadata(call_ctx(x)->settings->server, json);
    reply_printed(x, 200, content_json);
}

void meta_model(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct ops_model_metadata m;
    struct status *st = ops_model_metadata(call_ctx(x)->settings->server, &call->model, &m);
    if (st) {
        reply_status(x, st, content_json);
        return;
    }
    struct buf *json = &call_ctx(x)->json;
    buf_reset(json);
    document_model_metadata(m.model, m.versions, m.n_versions, json);
    ops_model_metadata_done(&m);
    reply_printed(x, 200, content_json);
}

/* Returns the name of a stuck instance, which the caller frees; NULL: none is, or no such version.
 */
static char *find_stuck_instance(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct model *model;
    struct status *st = ops_model_find(call_ctx(x)->settings->server, &call->model, &model);
    if (st) {
        status_free(st);
        return NULL;
    }
    char *stuck = model_stuck_instance(model);
    model_unref(model);
    return stuck;
}

/* The reference's text, followed by the reason that only this server knows. */
static void reply_not_ready(struct exchange *x)
{
    char *stuck = find_stuck_instance(x);
    if (stuck) {
        char *text =
            mem_printf("Model version not ready: instance '%s' is stuck, the backend keeps "
                       "requests beyond the execution limit",
                       stuck);
        reply_error(x, 400, content_text, text);
        mem_free(text);
        mem_free(stuck);
    } else {
        reply_error(x, 400, content_text, "Model version not ready");
    }
}

void meta_model_ready(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    bool ready = false;
    struct status *st = ops_model_ready(call_ctx(x)->settings->server, &call->model, &ready);
    if (st)
        reply_status(x, st, content_text);
    else if (ready)
        exchange_reply_fixed(x, &yes);
    else
        reply_not_ready(x);
}

void meta_model_config(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct model *model;
    struct status *st = ops_model_find(call_ctx(x)->settings->server, &call->model, &model);
    if (st) {
        reply_status(x, st, content_json);
        return;
    }
    struct buf *json = &call_ctx(x)->json;
    buf_reset(json);
    model_print_config(model, json);
    model_unref(model);
    reply_printed(x, 200, content_json);
}

void meta_statistics(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct server_statistics statistics;
    struct status *st = ops_statistics(call_ctx(x)->settings->server, &call->model, &statistics);
    if (st) {
        reply_status(x, st, content_json);
        return;
    }
    struct buf *json = &call_ctx(x)->json;
    buf_reset(json);
    document_statistics(&statistics, json);
    server_statistics_done(&statistics);
    reply_printed(x, 200, content_json);
}
