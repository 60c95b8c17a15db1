/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation on the repository, or on all models, may take long. So the loop gives it to a
 * control thread, with its body, which may be large, and goes on. The answer returns as a message:
 *
 *     admin_load ──► control_call_begin ─► work ─► on_done ─► reply
 *
 * The handler owns the exchange until the reply, whatever happens to its connection. If the client
 * leaves, the operation is completed all the same.
 */
#include "frontends/http/handlers.h"

#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"
#include "documents/documents.h"
#include "frontends/http/call.h"
#include "frontends/http/load_body.h"
#include "frontends/http/reply.h"
#include "frontends/ops/control_call.h"

enum { MAX_DOCUMENT = INT32_MAX };

struct admin_call {
    struct exchange *x;
    struct status *(*work)(struct admin_call *a);
    char *name; /* of the model; NULL: none */
    struct control_call call;

    struct arena arena; /* for values read from the body */

    /* The answer. */
    struct status *st;
    struct model_index_row *rows; /* of the index */
    size_t n_rows;
    struct buf text; /* a document; pooled */
};

static struct server *server_of(const struct admin_call *a)
{
    return call_ctx(a->x)->settings->server;
}

/* ---- On the loop ---------------------------------------------------------------------------- */

/* Replies with the text itself, which may be long; it is freed when the reply has been sent. */
static void reply_text(struct admin_call *a)
{
    struct http_call *call = exchange_part(a->x);
    struct iovec body = {.iov_len = a->text.size};
    body.iov_base = call->text_taken = buf_take(&a->text);
    struct http_reply reply = {
        .status = 200, .content_type = content_json, .headers = "", .body = &body, .n_body = 1};
    exchange_reply(a->x, &reply);
}

static void reply_and_free_call(struct admin_call *a)
{
    struct exchange *x = a->x;
    struct buf *json = &call_ctx(x)->json;
    if (a->st) {
        reply_status(x, a->st, content_json);
    } else if (a->text.size) {
        reply_text(a);
    } else if (a->rows) {
        buf_reset(json);
        document_index(a->rows, a->n_rows, json);
        reply_printed(x, 200, content_json);
    } else {
        exchange_reply_text(x, 200, content_json, "", 0);
    }
    mem_free(a->rows);
    buf_done(&a->text);
    arena_reset(&a->arena);
    mem_free(a->name);
    mem_free(a);
}

static void on_done(struct control_call *c)
{
    reply_and_free_call(CONTAINER_OF(c, struct admin_call, call));
}

/* ---- On a control thread -------------------------------------------------------------------- */

static void run_admin_call(struct control_call *c)
{
    struct admin_call *a = CONTAINER_OF(c, struct admin_call, call);
    a->st = a->work(a);
}

static void begin_admin_call(struct exchange *x, struct status *(*work)(struct admin_call *a),
                             bool is_load, struct control *control)
{
    struct http_call *call = exchange_part(x);
    struct admin_call *a = mem_zalloc(sizeof(*a));
    a->x = x;
    a->work = work;
    a->call.work = run_admin_call;
    a->call.on_done = on_done;
    buf_init_pooled(&a->text, MAX_DOCUMENT, x->env->net.pool);
    arena_init(&a->arena, NULL, 0, load_body_arena_bytes(x->body_size), NULL, NULL);
    if (call->model.name)
        a->name = mem_strndup(call->model.name, call->model.name_length);
    control_call_begin(&a->call, control, x->env->net.loop, a->name, is_load);
}

/* ---- Bodies --------------------------------------------------------------------------------- */

/* As in the reference, a body that is no object counts as an empty one. */
static struct status *check_body(const struct admin_call *a)
{
    const struct exchange *x = a->x;
    return request_json_check(x->body, x->body_size, call_ctx(a->x)->settings->max_input_bytes);
}

/* ---- The index ------------------------------------------------------------------------------ */

/* Reads the first member `ready` of a valid text. */
static struct status *read_ready(struct admin_call *a, bool *ret_ready)
{
    struct json j;
    struct json_str key;

    *ret_ready = false;
    json_init(&j, a->x->body, a->x->body_size, &a->arena);
    if (a->x->body_size == 0 || !json_enter_object(&j))
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

static struct status *index_models(struct admin_call *a)
{
    bool ready_only = false;
    struct model_index_row *rows;
    size_t n_rows;
    struct status *st = check_body(a);
    if (!st)
        st = read_ready(a, &ready_only);
    if (!st)
        st = server_index(server_of(a), ready_only, &rows, &n_rows);
    if (st)
        return st;
    document_index(rows, n_rows, &a->text);
    mem_free(rows);
    return buf_status(&a->text);
}

static struct control *control_of(struct exchange *x)
{
    return ops_control(call_ctx(x)->settings->server);
}

void admin_index(struct exchange *x)
{
    begin_admin_call(x, index_models, false, control_of(x));
}

/* ---- Statistics ----------------------------------------------------------------------------- */

static struct status *print_statistics(struct admin_call *a)
{
    static const struct ops_model_ref all;
    struct server_statistics statistics;
    struct status *st = ops_statistics(server_of(a), &all, &statistics);
    if (st)
        return st;
    document_statistics(&statistics, &a->text);
    server_statistics_done(&statistics);
    return buf_status(&a->text);
}

void admin_statistics(struct exchange *x)
{
    begin_admin_call(x, print_statistics, false, server_helpers(call_ctx(x)->settings->server));
}

/* ---- Loading and unloading ------------------------------------------------------------------ */

static struct status *load_requested_model(struct admin_call *a)
{
    struct load_parameter *list = NULL;
    size_t n = 0;
    struct status *st = check_body(a);
    if (!st)
        st = load_body_read(a->x->body, a->x->body_size, &a->arena, &list, &n);
    if (!st)
        st = server_load_model(server_of(a), a->name, list, n);
    mem_free(list);
    return st;
}

static struct status *unload_requested_model(struct admin_call *a)
{
    bool with_members = false;
    struct status *st = check_body(a);
    if (!st)
        st = load_body_read_unload(a->x->body, a->x->body_size, &a->arena, &with_members);
    return st ? st : server_unload_model(server_of(a), a->name, with_members);
}

static bool names_repository(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    if (call->names_repository)
        reply_status(x,
                     status_new(STATUS_UNSUPPORTED, "'repository_name' specification is not "
                                                    "supported"),
                     content_json);
    return call->names_repository;
}

void admin_load(struct exchange *x)
{
    if (!names_repository(x))
        begin_admin_call(x, load_requested_model, true, control_of(x));
}

void admin_unload(struct exchange *x)
{
    if (!names_repository(x))
        begin_admin_call(x, unload_requested_model, false, control_of(x));
}
