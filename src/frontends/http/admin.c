/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the repository may take long. So the loop hands it to a control thread, bodies
 * included, which may be large, and goes on; the answer comes back as a message:
 *
 *     admin_load ──► control_post ─► run ─► work ──► loop_post ─► on_done ─► reply
 *
 * The exchange waits meanwhile, whatever becomes of its connection: it is the handler's until the
 * reply. A client that goes away does not end what it has asked for.
 */
#include "frontends/http/admin.h"

#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/control.h"
#include "documents/documents.h"
#include "frontends/http/call.h"
#include "frontends/http/load_body.h"

struct admin_call {
    struct exchange *x;
    struct status *(*work)(struct admin_call *a);
    char *name; /* of the model; NULL without */
    struct control_job job;
    struct message done;

    struct arena arena; /* for what is read of the body */

    /* The answer. */
    struct status *st;
    struct model_index_row *rows; /* of the index */
    size_t n_rows;
};

static struct server *server_of(const struct admin_call *a)
{
    return call_ctx(a->x)->settings->server;
}

/* ---- On the loop ---------------------------------------------------------------------------- */

static void reply(struct admin_call *a)
{
    struct exchange *x = a->x;
    struct buf *json = &call_ctx(x)->json;
    if (a->st) {
        reply_status(x, a->st, content_json);
    } else if (a->rows) {
        buf_reset(json);
        document_index(a->rows, a->n_rows, json);
        reply_printed(x, 200, content_json);
    } else {
        exchange_reply_text(x, 200, content_json, "", 0);
    }
    mem_free(a->rows);
    arena_reset(&a->arena);
    mem_free(a->name);
    mem_free(a);
}

static void on_done(struct message *m)
{
    reply(CONTAINER_OF(m, struct admin_call, done));
}

/* ---- On a control thread -------------------------------------------------------------------- */

static void run(struct control_job *job)
{
    struct admin_call *a = CONTAINER_OF(job, struct admin_call, job);
    a->st = a->work(a);
    loop_post(a->x->env->loop, &a->done);
}

static void begin(struct exchange *x, struct status *(*work)(struct admin_call *a), bool is_load)
{
    struct http_call *call = exchange_part(x);
    struct control *control = ops_control(call_ctx(x)->settings->server);
    struct admin_call *a = mem_zalloc(sizeof(*a));
    a->x = x;
    a->work = work;
    a->done.deliver = on_done;
    arena_init(&a->arena, NULL, 0, load_body_arena_bytes(x->body_size), NULL, NULL);
    if (call->model.name)
        a->name = mem_strndup(call->model.name, call->model.name_length);
    a->job = (struct control_job){.key = a->name, .is_load = is_load, .run = run};
    if (control) {
        control_post(control, &a->job);
        return;
    }
    a->st = work(a);
    reply(a);
}

/* ---- Bodies --------------------------------------------------------------------------------- */

/*
 * The body of such a request: JSON of any kind, or nothing (behaviours §3.4, §3.5). Members of a
 * body that is no object are those of an empty one, as the reference has it.
 */
static struct status *check_body(const struct admin_call *a)
{
    const struct exchange *x = a->x;
    size_t max_bytes = call_ctx(a->x)->settings->max_input_bytes;
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

/* ---- The index ------------------------------------------------------------------------------ */

/* The first member `ready`; the text has been checked. */
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
    struct status *st = check_body(a);
    if (!st)
        st = read_ready(a, &ready_only);
    return st ? st : ops_repository_index(server_of(a), ready_only, &a->rows, &a->n_rows);
}

void admin_index(struct exchange *x)
{
    begin(x, index_models, false);
}

/* ---- Loading and unloading ------------------------------------------------------------------ */

static struct status *load(struct admin_call *a)
{
    struct load_parameter *list = NULL;
    size_t n = 0;
    struct status *st = check_body(a);
    if (!st)
        st = load_body_read(a->x->body, a->x->body_size, &a->arena, &list, &n);
    if (!st)
        st = ops_model_load(server_of(a), a->name, list, n);
    mem_free(list);
    return st;
}

static struct status *unload(struct admin_call *a)
{
    struct status *st = check_body(a);
    if (!st)
        st = load_body_check_unload(a->x->body, a->x->body_size, &a->arena);
    return st ? st : ops_model_unload(server_of(a), a->name);
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
        begin(x, load, true);
}

void admin_unload(struct exchange *x)
{
    if (!names_repository(x))
        begin(x, unload, false);
}
