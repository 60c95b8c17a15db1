/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies that change settings. Whatever they hold, what is accepted is a possible setting, and
 * a refused body names no file.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "base/status.h"
#include "frontends/http/settings_body.h"
#include "frontends/tracing/trace_setting.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void change_log(const struct settings_body *body)
{
    struct log_settings settings = {.info = true, .verbose_level = 1};
    struct status *st = settings_body_read_log(body, &settings);
    if (!st && (settings.verbose_level < 0 ||
                (settings.format != LOG_FORMAT_DEFAULT && settings.format != LOG_FORMAT_ISO8601)))
        abort();
    status_free(st);
}

static void change_trace(const struct settings_body *body)
{
    struct trace_change change;
    struct status *st = settings_body_read_trace(body, &change);
    for (int i = 0; i < N_TRACE_FIELDS && !st; i++) {
        int64_t least = i == TRACE_COUNT ? -1 : 0, most = i == TRACE_COUNT ? INT32_MAX : UINT32_MAX;
        if (change.fields[i].kind == TRACE_SET &&
            (change.fields[i].to < least || change.fields[i].to > most))
            abort();
    }
    status_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_error error;
    struct arena arena;
    if (size > 0 && !json_check((const char *)data, size, &error))
        return 0;
    arena_init(&arena, NULL, 0, 4 * size + (1 << 16), NULL, NULL);
    struct settings_body body = {(const char *)data, size, &arena};
    change_log(&body);
    change_trace(&body);
    arena_reset(&arena);
    return 0;
}
