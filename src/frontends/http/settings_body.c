/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk through the JSON finds where the values of all known members are. They are then read in
 * the order of the table of names, since the reference looks for errors in that order. Of members
 * with one name the first counts. No state.
 */
#include "frontends/http/settings_body.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "base/status.h"
#include "frontends/ops/log_settings.h"

/* The error of a well-formed text; NULL without one. */
static struct status *json_status(const struct json *j)
{
    if (j->failure == JSON_OK)
        return NULL;
    if (j->failure == JSON_OUT_OF_MEMORY)
        return status_no_memory();
    return status_new(STATUS_INTERNAL, "%s", json_failure_text(j->failure));
}

/* Finds the values of the names; .p of a value that is not there is NULL. */
static struct status *find_values(const struct settings_body *body, const char *const names[],
                                  size_t n_names, struct json values[])
{
    struct json j;
    struct json_str key;
    memset(values, 0, n_names * sizeof(*values));
    json_init(&j, body->text, body->size_bytes, body->arena);
    if (body->size_bytes == 0 || json_peek(&j) != JSON_OBJECT || !json_enter_object(&j))
        return NULL;
    while (json_next_member(&j, &key)) {
        for (size_t i = 0; i < n_names; i++) {
            if (!values[i].p && json_str_equals(key, names[i]))
                values[i] = j;
        }
        json_skip_value(&j);
    }
    return json_status(&j);
}

/* Whether a member is there, and is not null. */
static bool is_given(struct json *value)
{
    return value->p && json_peek(value) != JSON_NULL;
}

/* ---- The log -------------------------------------------------------------------------------- */

enum log_member { LOG_FILE, INFO, WARNING, ERROR, VERBOSE_LEVEL, FORMAT, N_LOG_MEMBERS };

static const char *const log_members[] = {
    [LOG_FILE] = "log_file",
    [INFO] = "log_info",
    [WARNING] = "log_warning",
    [ERROR] = "log_error",
    [VERBOSE_LEVEL] = "log_verbose_level",
    [FORMAT] = "log_format",
};

static struct status *read_switch(struct json *value, bool *ret)
{
    return !is_given(value) || json_read_bool(value, ret) ? NULL : json_status(value);
}

static struct status *read_verbose_level(struct json *value, int *ret)
{
    uint64_t level;
    if (!is_given(value))
        return NULL;
    if (!json_read_uint64(value, &level))
        return json_status(value);
    *ret = ops_log_verbose_level((uint32_t)level);
    return NULL;
}

static struct status *read_format(struct json *value, struct arena *arena, enum log_format *ret)
{
    struct json_str name;
    if (!is_given(value))
        return NULL;
    if (!json_read_string(value, &name))
        return json_status(value);
    const char *text = arena_strndup(arena, name.at, name.length);
    if (!text)
        return status_no_memory();
    if (!ops_log_format_of(text, ret))
        return status_new(STATUS_UNAVAILABLE, "invalid argument for --log_format, got: %s", text);
    return NULL;
}

struct status *settings_body_read_log(const void *request, struct log_settings *settings)
{
    const struct settings_body *body = request;
    struct json values[N_LOG_MEMBERS];
    struct status *st = find_values(body, log_members, N_LOG_MEMBERS, values);
    if (!st && is_given(&values[LOG_FILE]))
        st = ops_refuse_log_file();
    if (!st)
        st = read_switch(&values[INFO], &settings->info);
    if (!st)
        st = read_switch(&values[WARNING], &settings->warning);
    if (!st)
        st = read_switch(&values[ERROR], &settings->error);
    if (!st)
        st = read_verbose_level(&values[VERBOSE_LEVEL], &settings->verbose_level);
    if (!st)
        st = read_format(&values[FORMAT], body->arena, &settings->format);
    return st;
}
