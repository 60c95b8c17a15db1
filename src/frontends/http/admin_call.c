/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     admin_call_begin ──► control_call_begin ─► work ─► on_done ─► reply
 *            the loop                  a control thread         the loop
 *
 * The handler owns the exchange until the reply, whatever happens to its connection. If the client
 * leaves, the operation is completed all the same.
 */
#include "frontends/http/admin_call.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "frontends/http/call.h"
#include "frontends/http/load_body.h"
#include "frontends/http/reply.h"

enum { MAX_DOCUMENT = INT32_MAX };

struct server *admin_call_server(const struct admin_call *a)
{
    return call_ctx(a->x)->settings->server;
}

struct control *admin_call_control(struct exchange *x)
{
    return ops_control(call_ctx(x)->settings->server);
}

/* ---- On the loop ---------------------------------------------------------------------------- */

/* Replies with the text itself, which may be long; it is freed when the reply has been sent. */
static void reply_text(struct admin_call *a)
{
    struct http_call *call = exchange_part(a->x);
    struct iovec body = {.iov_len = a->text.size};
    body.iov_base = call->text_taken = buf_take(&a->text);
    struct http_reply reply = {
        .status = 200, .content_type = a->content_type, .headers = "", .body = &body, .n_body = 1};
    exchange_reply(a->x, &reply);
}

static void reply_and_free_call(struct admin_call *a)
{
    struct exchange *x = a->x;
    if (a->st) {
        reply_status(x, a->st, a->content_type);
    } else if (a->text.size) {
        reply_text(a);
    } else {
        exchange_reply_text(x, a->bare_status ? a->bare_status : 200, a->content_type, "", 0);
    }
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

static struct admin_call *new_call(struct exchange *x, struct status *(*work)(struct admin_call *a))
{
    struct http_call *call = exchange_part(x);
    struct admin_call *a = mem_zalloc(sizeof(*a));
    a->x = x;
    a->work = work;
    a->content_type = content_json;
    a->call.work = run_admin_call;
    a->call.on_done = on_done;
    buf_init_pooled(&a->text, MAX_DOCUMENT, x->env->net.pool);
    arena_init(&a->arena, NULL, 0, load_body_arena_bytes(x->body_size), NULL, NULL);
    if (call->model.name)
        a->name = mem_strndup(call->model.name, call->model.name_length);
    return a;
}

void admin_call_begin(struct exchange *x, struct status *(*work)(struct admin_call *a),
                      bool is_load, struct control *control)
{
    struct admin_call *a = new_call(x, work);
    control_call_begin(&a->call, control, x->env->net.loop, a->name, is_load);
}

void admin_call_begin_in_line(struct exchange *x, struct status *(*work)(struct admin_call *a),
                              struct control *control, const char *line)
{
    control_call_begin(&new_call(x, work)->call, control, x->env->net.loop, line, false);
}

/* ---- Bodies --------------------------------------------------------------------------------- */

/* As in the reference, a body that is no object counts as an empty one. */
struct status *admin_call_check_body(const struct admin_call *a)
{
    const struct exchange *x = a->x;
    return request_json_check(x->body, x->body_size, call_ctx(a->x)->settings->max_input_bytes);
}
