/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers of …/generate and …/generate_stream, the object of a response, and the reply of
 * …/generate, which has exactly one. Thread: the loop's.
 */
#include "frontends/http/generate.h"

#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/response.h"
#include "frontends/http/call.h"
#include "frontends/http/handlers.h"
#include "frontends/http/infer.h"
#include "frontends/http/load_metrics.h"
#include "frontends/http/reply.h"
#include "frontends/ops/ops.h"

/* ---- The object of a response --------------------------------------------------------------- */

/* A member of the object. */
struct member {
    const char *name;
    const char *text;                  /* or, NULL: */
    const struct parameter *parameter; /* or, NULL: */
    const struct output *output;
};

enum { FEW_MEMBERS = 32 };

/* Sorted by name; of equal ones the first stays. Few are usual, and they come nearly in order. */
static void add_member(struct member *members, size_t *n, struct member m)
{
    size_t at = *n;
    while (at > 0 && strcmp(members[at - 1].name, m.name) > 0)
        at--;
    if (at > 0 && strcmp(members[at - 1].name, m.name) == 0)
        return;
    memmove(members + at + 1, members + at, (*n - at) * sizeof(*members));
    members[at] = m;
    ++*n;
}

static size_t list_members(const struct response *resp, struct member *members)
{
    const struct request *r = resp->request;
    size_t n = 0;
    if (r->maker.id[0])
        add_member(members, &n, (struct member){.name = "id", .text = r->maker.id});
    add_member(members, &n, (struct member){.name = "model_name", .text = r->model->name});
    add_member(members, &n,
               (struct member){.name = "model_version", .text = r->model->version_text});
    for (uint32_t i = 0; i < resp->n_parameters; i++)
        add_member(
            members, &n,
            (struct member){.name = resp->parameters[i].name, .parameter = &resp->parameters[i]});
    for (uint32_t i = 0; i < resp->n_outputs; i++)
        add_member(members, &n,
                   (struct member){.name = resp->outputs[i]->name, .output = resp->outputs[i]});
    return n;
}

static struct status *print_parameter(struct json_writer *w, const struct parameter *p)
{
    switch (p->type) {
    case PARAMETER_STRING:
        json_put_text(w, p->string);
        break;
    case PARAMETER_INT:
        json_put_int64(w, p->int64);
        break;
    case PARAMETER_BOOL:
        json_put_bool(w, p->boolean);
        break;
    case PARAMETER_DOUBLE:
        json_put_double(w, p->float64);
        break;
    case PARAMETER_BYTES:
        return status_new(
            STATUS_UNSUPPORTED,
            "Response parameter '%s' has type 'TRITONSERVER_PARAMETER_BYTES' which is "
            "not currently supported",
            p->name);
    }
    return NULL;
}

static struct status *print_tensor(struct json_writer *w, const struct output *out,
                                   bool shortest_floats)
{
    struct buf *b = w->out;
    int64_t n_elements;
    struct status *st = infer_check_printable(out);
    if (st)
        return st;
    json_put_value(w);
    size_t from = b->size;
    st = infer_print_values(b, out, shortest_floats, &n_elements);
    if (st || n_elements != 1 || b->failed)
        return st;
    memmove(b->data + from, b->data + from + 1, b->size - from - 2); /* without its brackets */
    b->size -= 2;
    b->data[b->size] = '\0';
    return NULL;
}

static struct status *print_members(struct buf *b, const struct member *members, size_t n,
                                    bool shortest_floats)
{
    struct json_writer w = {.out = b};
    struct status *st = NULL;
    json_put_open(&w, '{');
    for (size_t i = 0; i < n && !st; i++) {
        const struct member *m = &members[i];
        json_put_name(&w, m->name);
        if (m->text)
            json_put_text(&w, m->text);
        else if (m->parameter)
            st = print_parameter(&w, m->parameter);
        else
            st = print_tensor(&w, m->output, shortest_floats);
    }
    json_put_close(&w, '}');
    return st ? st : buf_status(b);
}

struct status *generate_print(struct buf *b, struct response *resp, bool shortest_floats)
{
    struct member few[FEW_MEMBERS], *members = few;
    size_t most = 3 + (size_t)resp->n_parameters + resp->n_outputs, from = b->size;
    if (most > FEW_MEMBERS && !(members = arena_alloc(&resp->arena, most * sizeof(*members))))
        return status_no_memory();
    struct status *st = print_members(b, members, list_members(resp, members), shortest_floats);
    if (st)
        b->size = from;
    return st;
}

/* ---- Requests and replies ------------------------------------------------------------------- */

/* The answer has one response: prints it, or returns its error. */
static struct status *print_answer(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct buf *json = &call_ctx(x)->json;
    struct response *resp;
    if (atomic_load(&call->answer.n_responses) != 1)
        return status_new(STATUS_INTERNAL,
                          "generate expects model to produce exactly 1 response, use generate "
                          "stream for model that generates various number of responses");
    struct status *st = answer_read(&call->answer, &resp);
    if (st)
        return st;
    buf_reset(json);
    return generate_print(json, resp, call->facts.shortest_floats);
}

static void reply_generated(struct exchange *x)
{
    enum { COPIED_BYTES = 4096 };
    struct http_call *call = exchange_part(x);
    struct buf *json = &call_ctx(x)->json;
    char header[LOAD_METRICS_BYTES];
    struct status *st = print_answer(x);
    if (st) {
        traced_failed(call->traced, st);
        reply_stamp(x);
        reply_status(x, st, content_json);
        return;
    }
    answer_drop(&call->answer);
    struct iovec body = {.iov_len = json->size};
    if (json->size <= COPIED_BYTES)
        body.iov_base = arena_dup(&x->arena, json->data, json->size);
    else
        body.iov_base = call->json_taken = buf_take(json);
    if (!body.iov_base) {
        reply_status(x, status_no_memory(), content_json);
        return;
    }
    size_t n = load_metrics_header((enum load_metrics_form)call->facts.load_metrics, header);
    reply_traced(x, &(struct http_reply){.status = 200,
                                         .content_type = content_json,
                                         .headers = header,
                                         .headers_length = n,
                                         .body = &body,
                                         .n_body = 1});
}

static const struct infer_kind generate_kind = {
    .parse = generate_parse,
    .reply = reply_generated,
};

static void handle_kind(struct exchange *x, const struct infer_kind *kind)
{
    struct http_call *call = exchange_part(x);
    struct model *model;
    struct status *st = ops_model_to_infer(call_ctx(x)->settings->server, &call->model,
                                           &call_ctx(x)->access, &model);
    if (!st && call->facts.body_coding != CODING_IDENTITY) {
        model_unref(model);
        st = status_new(STATUS_INVALID_ARG,
                        "Unsupported content-encoding, only 'identity' is supported.");
    }
    if (st)
        reply_status(x, st, content_json);
    else
        infer_start(x, model, kind);
}

void generate_handle(struct exchange *x)
{
    handle_kind(x, &generate_kind);
}

void generate_stream_handle(struct exchange *x)
{
    handle_kind(x, &generate_stream_kind);
}
