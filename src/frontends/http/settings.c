/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings that a client may read and change while the server runs. Both answers have all
 * settings; that of a change has them as they are after it. No request names a file.
 *
 * Thread: the loop's; no handler here blocks.
 */
#include "frontends/http/handlers.h"

#include "base/json.h"
#include "base/status.h"
#include "frontends/http/call.h"
#include "frontends/http/reply.h"
#include "frontends/http/settings_body.h"
#include "frontends/ops/log_settings.h"

/* Checks the body and describes it for the functions that read it. */
static struct status *take_body(struct exchange *x, struct settings_body *ret)
{
    *ret = (struct settings_body){x->body, x->body_size, &x->arena};
    return request_json_check(x->body, x->body_size, call_ctx(x)->settings->max_input_bytes);
}

void settings_show_log(struct exchange *x)
{
    struct ops_log_settings now;
    ops_log_settings(&now);
    struct buf *json = &call_ctx(x)->json;
    struct json_writer w = {.out = json};
    buf_reset(json);
    json_put_open(&w, '{');
    json_put_name(&w, "log_file");
    json_put_text(&w, now.file);
    json_put_name(&w, "log_info");
    json_put_bool(&w, now.levels.info);
    json_put_name(&w, "log_warning");
    json_put_bool(&w, now.levels.warning);
    json_put_name(&w, "log_error");
    json_put_bool(&w, now.levels.error);
    json_put_name(&w, "log_verbose_level");
    json_put_uint64(&w, (uint32_t)now.levels.verbose_level);
    json_put_name(&w, "log_format");
    json_put_text(&w, ops_log_format_name(now.levels.format));
    json_put_close(&w, '}');
    reply_printed(x, 200, content_json);
}

void settings_change_log(struct exchange *x)
{
    struct settings_body body;
    struct status *st = take_body(x, &body);
    if (!st)
        st = ops_change_log_settings(settings_body_read_log, &body);
    if (st)
        reply_status(x, st, content_json);
    else
        settings_show_log(x);
}
