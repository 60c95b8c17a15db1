/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings that a client may read and change while the server runs. Both answers have all
 * settings; that of a change has them as they are after it. No request names a file.
 *
 * Thread: the loop's; no handler here blocks.
 */
#include "frontends/http/handlers.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "base/status.h"
#include "frontends/http/call.h"
#include "frontends/http/reply.h"
#include "frontends/http/settings_body.h"
#include "frontends/ops/log_settings.h"
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/tracer.h"

/* Checks the body and describes it for the functions that read it. */
static struct status *check_settings_body(struct exchange *x, struct settings_body *ret)
{
    *ret = (struct settings_body){x->body, x->body_size, &x->arena};
    return request_json_check(x->body, x->body_size, call_ctx(x)->settings->max_input_bytes);
}

/* Prints the reply. Errors: STATUS_UNAVAILABLE  no memory */
static struct status *print_log(void *arg, const struct ops_log_settings *now)
{
    struct exchange *x = arg;
    struct buf *json = &call_ctx(x)->json;
    struct json_writer w = {.out = json};
    buf_reset(json);
    json_put_open(&w, '{');
    json_put_name(&w, "log_file");
    json_put_text(&w, now->file);
    json_put_name(&w, "log_info");
    json_put_bool(&w, now->levels.info);
    json_put_name(&w, "log_warning");
    json_put_bool(&w, now->levels.warning);
    json_put_name(&w, "log_error");
    json_put_bool(&w, now->levels.error);
    json_put_name(&w, "log_verbose_level");
    json_put_uint64(&w, (uint32_t)now->levels.verbose_level);
    json_put_name(&w, "log_format");
    json_put_text(&w, ops_log_format_name(now->levels.format));
    json_put_close(&w, '}');
    return buf_status(json);
}

/* Replies with what is printed, or with the error, which is taken. */
static void reply_settings(struct exchange *x, struct status *st)
{
    if (st)
        reply_status(x, st, content_json);
    else
        reply_printed(x, 200, content_json);
}

void settings_show_log(struct exchange *x)
{
    struct ops_log_settings now;
    ops_log_settings(&now);
    reply_settings(x, print_log(x, &now));
}

void settings_change_log(struct exchange *x)
{
    struct settings_body body;
    const struct ops_log_change change = {
        .read = settings_body_read_log, .asked = &body, .answer = print_log, .arg = x};
    struct status *st = check_settings_body(x, &body);
    if (!st)
        st = ops_change_log_settings(&change);
    reply_settings(x, st);
}

/* ---- Traces --------------------------------------------------------------------------------- */

static void put_setting(struct json_writer *w, const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    json_put_name(w, name);
    json_put_text(w, text);
}

static void put_levels(struct json_writer *w, int64_t level)
{
    json_put_name(w, trace_field_name(TRACE_LEVEL));
    json_put_open(w, '[');
    if (level == TRACE_DISABLED)
        json_put_text(w, "OFF");
    if (level & TRACE_TIMESTAMPS)
        json_put_text(w, "TIMESTAMPS");
    if (level & TRACE_TENSORS)
        json_put_text(w, "TENSORS");
    json_put_close(w, ']');
}

/* Prints the reply. Errors: STATUS_UNAVAILABLE  no memory */
static struct status *print_trace(void *arg, const struct tracer_settings *now)
{
    struct exchange *x = arg;
    struct buf *json = &call_ctx(x)->json;
    struct json_writer w = {.out = json};
    buf_reset(json);
    json_put_open(&w, '{');
    put_levels(&w, now->values.of[TRACE_LEVEL]);
    for (int i = TRACE_RATE; i < tracer_settings_fields(now); i++)
        put_setting(&w, trace_field_name((enum trace_field)i), now->values.of[i]);
    if (!now->otlp) {
        json_put_name(&w, "trace_file");
        json_put_text(&w, now->path);
    }
    json_put_name(&w, "trace_mode");
    json_put_text(&w, now->otlp ? "opentelemetry" : "triton");
    for (size_t i = 0; now->otlp && i < now->otlp->shown.n; i++) {
        json_put_name(&w, now->otlp->shown.items[i].name);
        json_put_text(&w, now->otlp->shown.items[i].value);
    }
    json_put_close(&w, '}');
    return buf_status(json);
}

/* @model_name  "" for the server */
static void reply_trace(struct exchange *x, const char *model_name)
{
    struct tracer_settings now = tracer_settings(call_ctx(x)->settings->tracer, model_name);
    reply_settings(x, print_trace(x, &now));
}

static void change_trace(struct exchange *x, const char *model_name)
{
    struct settings_body body;
    struct trace_change change;
    const struct trace_answer answer = {.make = print_trace, .arg = x};
    struct status *st = check_settings_body(x, &body);
    if (!st)
        st = settings_body_read_trace(&body, &change);
    if (!st)
        st = tracer_change(call_ctx(x)->settings->tracer, model_name, &change, &answer);
    reply_settings(x, st);
}

/* Replies when the model is not there; else returns its name. */
static const char *find_traced_model(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct status *st = ops_model_to_trace(call_ctx(x)->settings->server, &call->model);
    if (!st)
        return call->model.name;
    reply_status(x, st, content_json);
    return NULL;
}

void settings_show_trace(struct exchange *x)
{
    const char *model_name = find_traced_model(x);
    if (model_name)
        reply_trace(x, model_name);
}

void settings_change_trace(struct exchange *x)
{
    const char *model_name = find_traced_model(x);
    if (model_name)
        change_trace(x, model_name);
}

void settings_show_global_trace(struct exchange *x)
{
    reply_trace(x, "");
}

void settings_change_global_trace(struct exchange *x)
{
    change_trace(x, "");
}
