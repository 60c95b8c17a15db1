/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers of operations on the repository, or on all models. They may take long, so that
 * control threads do the work (admin_call.h). Threads: the handlers run on the loop, the functions
 * that they name on a control thread.
 */
#include "frontends/http/handlers.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"
#include "documents/documents.h"
#include "frontends/http/admin_call.h"
#include "frontends/http/call.h"
#include "frontends/http/load_body.h"
#include "frontends/http/reply.h"

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
    struct status *st = admin_call_check_body(a);
    if (!st)
        st = read_ready(a, &ready_only);
    if (!st)
        st = server_index(admin_call_server(a), ready_only, &rows, &n_rows);
    if (st)
        return st;
    document_index(rows, n_rows, &a->text);
    mem_free(rows);
    return buf_status(&a->text);
}

void admin_index(struct exchange *x)
{
    admin_call_begin(x, index_models, false, admin_call_control(x));
}

/* ---- Statistics ----------------------------------------------------------------------------- */

static struct status *print_statistics(struct admin_call *a)
{
    static const struct ops_model_ref all;
    struct server_statistics statistics;
    struct status *st = ops_statistics(admin_call_server(a), &all, &statistics);
    if (st)
        return st;
    document_statistics(&statistics, &a->text);
    server_statistics_done(&statistics);
    return buf_status(&a->text);
}

void admin_statistics(struct exchange *x)
{
    admin_call_begin(x, print_statistics, false, server_helpers(call_ctx(x)->settings->server));
}

/* ---- Loading and unloading ------------------------------------------------------------------ */

static struct status *load_requested_model(struct admin_call *a)
{
    struct load_parameter *list = NULL;
    size_t n = 0;
    struct status *st = admin_call_check_body(a);
    if (!st)
        st = load_body_read(a->x->body, a->x->body_size, &a->arena, &list, &n);
    if (!st)
        st = server_load_model(admin_call_server(a), a->name, list, n);
    mem_free(list);
    return st;
}

static struct status *unload_requested_model(struct admin_call *a)
{
    bool with_members = false;
    struct status *st = admin_call_check_body(a);
    if (!st)
        st = load_body_read_unload(a->x->body, a->x->body_size, &a->arena, &with_members);
    return st ? st : server_unload_model(admin_call_server(a), a->name, with_members);
}

static bool names_repository(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    if (call->facts.names_repository)
        reply_status(x,
                     status_new(STATUS_UNSUPPORTED, "'repository_name' specification is not "
                                                    "supported"),
                     content_json);
    return call->facts.names_repository;
}

void admin_load(struct exchange *x)
{
    if (!names_repository(x))
        admin_call_begin(x, load_requested_model, true, admin_call_control(x));
}

void admin_unload(struct exchange *x)
{
    if (!names_repository(x))
        admin_call_begin(x, unload_requested_model, false, admin_call_control(x));
}
