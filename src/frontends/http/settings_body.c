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
#include "frontends/tracing/trace_setting.h"

/* The error of a well-formed text; NULL without one. */
static struct status *value_status(const struct json *j)
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
    return value_status(&j);
}

/* Whether a member is there, and is not null. */
static bool has_value(struct json *value)
{
    return value->p && json_peek(value) != JSON_NULL;
}

/* Reads a string and ends it with a zero byte. */
static struct status *read_text_value(struct json *value, struct arena *arena, const char **ret)
{
    struct json_str s;
    if (!json_read_string(value, &s))
        return value_status(value);
    *ret = arena_strndup(arena, s.at, s.length);
    return *ret ? NULL : status_no_memory();
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

static struct status *take_switch(struct json *value, bool *ret)
{
    return !has_value(value) || json_read_bool(value, ret) ? NULL : value_status(value);
}

static struct status *take_verbose_level(struct json *value, int *ret)
{
    uint64_t level;
    if (!has_value(value))
        return NULL;
    if (!json_read_uint64(value, &level))
        return value_status(value);
    *ret = ops_log_verbose_level((uint32_t)level);
    return NULL;
}

static struct status *read_log_format(struct json *value, struct arena *arena, enum log_format *ret)
{
    const char *text;
    if (!has_value(value))
        return NULL;
    struct status *st = read_text_value(value, arena, &text);
    if (st)
        return st;
    if (!ops_log_format_of(text, ret))
        return status_new(STATUS_UNAVAILABLE, "invalid argument for --log_format, got: %s", text);
    return NULL;
}

struct status *settings_body_read_log(const void *request, struct log_settings *settings)
{
    const struct settings_body *body = request;
    struct json values[N_LOG_MEMBERS];
    struct status *st = find_values(body, log_members, N_LOG_MEMBERS, values);
    if (!st && has_value(&values[LOG_FILE]))
        st = ops_refuse_log_file();
    if (!st)
        st = take_switch(&values[INFO], &settings->info);
    if (!st)
        st = take_switch(&values[WARNING], &settings->warning);
    if (!st)
        st = take_switch(&values[ERROR], &settings->error);
    if (!st)
        st = take_verbose_level(&values[VERBOSE_LEVEL], &settings->verbose_level);
    if (!st)
        st = read_log_format(&values[FORMAT], body->arena, &settings->format);
    return st;
}

/* ---- Traces --------------------------------------------------------------------------------- */

static struct status *count_words(struct json list, size_t *ret_n)
{
    *ret_n = 0;
    if (!json_enter_array(&list))
        return value_status(&list);
    while (json_next_element(&list)) {
        json_skip_value(&list);
        ++*ret_n;
    }
    return value_status(&list);
}

static struct status *read_levels(struct json *value, struct arena *arena,
                                  struct trace_change *change)
{
    const char *word;
    size_t n;
    struct status *st = count_words(*value, &n);
    if (st || !json_enter_array(value))
        return st;
    while (!st && json_next_element(value)) {
        st = read_text_value(value, arena, &word);
        if (!st)
            st = trace_change_level(change, word, n);
    }
    return st;
}

static struct status *read_trace_field(struct json *value, struct arena *arena,
                                       enum trace_field field, struct trace_change *change)
{
    const char *text;
    if (!value->p)
        return NULL;
    if (!has_value(value)) {
        change->fields[field].kind = TRACE_CLEAR;
        return NULL;
    }
    if (field == TRACE_LEVEL)
        return read_levels(value, arena, change);
    struct status *st = read_text_value(value, arena, &text);
    return st ? st : trace_change_number(change, field, text, "");
}

struct status *settings_body_read_trace(const struct settings_body *body, struct trace_change *ret)
{
    const char *names[N_TRACE_FIELDS + 1] = {"trace_file"};
    struct json values[N_TRACE_FIELDS + 1];
    for (int i = 0; i < N_TRACE_FIELDS; i++)
        names[i + 1] = trace_field_name((enum trace_field)i);
    *ret = (struct trace_change){0};
    struct status *st = find_values(body, names, ARRAY_SIZE(names), values);
    if (!st && values[0].p)
        st = trace_refuse_file();
    for (int i = 0; i < N_TRACE_FIELDS && !st; i++)
        st = read_trace_field(&values[i + 1], body->arena, (enum trace_field)i, ret);
    return st;
}
