/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The method for the log's settings, and the method for traces, which answers that this server does
 * not support them yet. Thread: the loop's.
 */
#include <string.h>

#include "base/status.h"
#include "core/model/model.h"
#include "frontends/grpc/unary_priv.h"
#include "frontends/ops/log_settings.h"
#include "proto/inference.pb-c.h"

/* ---- The log -------------------------------------------------------------------------------- */

typedef Inference__LogSettingsRequest__SettingValue value_message;
typedef Inference__LogSettingsResponse__SettingsEntry entry_message;
typedef Inference__LogSettingsResponse__SettingValue answer_value;

#define GIVEN(name) INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_##name##_PARAM
#define ANSWER(name)                                                                               \
    INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_##name##_PARAM

/* Finds the value of that name, the last of several. NULL: the request lacks the name. */
static const value_message *find_log_setting(const Inference__LogSettingsRequest *asked,
                                             const char *name)
{
    static const value_message none;
    for (size_t i = asked->n_settings; i > 0; i--) {
        if (strcmp(asked->settings[i - 1]->key, name) == 0)
            return asked->settings[i - 1]->value ? asked->settings[i - 1]->value : &none;
    }
    return NULL;
}

static struct status *read_switch(const Inference__LogSettingsRequest *asked, const char *name,
                                  bool *setting)
{
    const value_message *value = find_log_setting(asked, name);
    if (!value)
        return NULL;
    if (value->parameter_choice_case != GIVEN(BOOL))
        return status_new(STATUS_INVALID_ARG, "expect boolean for '%s'", name);
    *setting = value->bool_param;
    return NULL;
}

static struct status *read_verbose_level(const Inference__LogSettingsRequest *asked, int *setting)
{
    const value_message *value = find_log_setting(asked, "log_verbose_level");
    if (!value)
        return NULL;
    if (value->parameter_choice_case != GIVEN(UINT32))
        return status_new(STATUS_INVALID_ARG, "expect int32 for 'log_verbose_level'");
    *setting = ops_log_verbose_level(value->uint32_param);
    return NULL;
}

static struct status *read_format(const Inference__LogSettingsRequest *asked,
                                  enum log_format *setting)
{
    const value_message *value = find_log_setting(asked, "log_format");
    if (!value)
        return NULL;
    if (value->parameter_choice_case != GIVEN(STRING))
        return status_new(STATUS_INVALID_ARG, "expect string for 'log_format'");
    if (!ops_log_format_of(value->string_param, setting))
        return status_new(STATUS_INVALID_ARG, "invalid argument for log_format, got: %s",
                          value->string_param);
    return NULL;
}

static struct status *read_log_settings(const void *request, struct log_settings *settings)
{
    const Inference__LogSettingsRequest *asked = request;
    struct status *st = find_log_setting(asked, "log_file") ? ops_refuse_log_file() : NULL;
    if (!st)
        st = read_switch(asked, "log_info", &settings->info);
    if (!st)
        st = read_switch(asked, "log_warning", &settings->warning);
    if (!st)
        st = read_switch(asked, "log_error", &settings->error);
    if (!st)
        st = read_verbose_level(asked, &settings->verbose_level);
    if (!st)
        st = read_format(asked, &settings->format);
    return st;
}

/* Adds one more line to the answer, whose list has room for it; NULL: no memory. */
static answer_value *add_setting(struct unary_call *c, const char *name)
{
    Inference__LogSettingsResponse *answer = (Inference__LogSettingsResponse *)c->answer;
    entry_message *entry =
        UNARY_NEW(c, entry_message, inference__log_settings_response__settings_entry__init);
    answer_value *value =
        UNARY_NEW(c, answer_value, inference__log_settings_response__setting_value__init);
    if (!entry || !value)
        return NULL;
    entry->key = unary_borrow(name);
    entry->value = value;
    answer->settings[answer->n_settings++] = entry;
    return value;
}

static bool add_switch(struct unary_call *c, const char *name, bool setting)
{
    answer_value *value = add_setting(c, name);
    if (!value)
        return false;
    value->parameter_choice_case = ANSWER(BOOL);
    value->bool_param = setting;
    return true;
}

static bool add_text(struct unary_call *c, const char *name, const char *setting)
{
    answer_value *value = add_setting(c, name);
    if (!value)
        return false;
    value->parameter_choice_case = ANSWER(STRING);
    value->string_param = arena_strndup(c->arena, setting, strlen(setting));
    return value->string_param != NULL;
}

static bool add_log_number(struct unary_call *c, const char *name, int setting)
{
    answer_value *value = add_setting(c, name);
    if (!value)
        return false;
    value->parameter_choice_case = ANSWER(UINT32);
    value->uint32_param = (uint32_t)setting;
    return true;
}

struct status *unary_log_settings(struct unary_call *c)
{
    enum { N_SETTINGS = 6 };
    Inference__LogSettingsResponse *answer = (Inference__LogSettingsResponse *)c->answer;
    struct ops_log_settings now;
    struct status *st = ops_change_log_settings(read_log_settings, c->request);
    if (st)
        return st;
    ops_log_settings(&now);
    answer->settings = unary_alloc(c, N_SETTINGS, sizeof(*answer->settings));
    bool fine = answer->settings && add_text(c, "log_file", now.file) &&
                add_switch(c, "log_info", now.levels.info) &&
                add_switch(c, "log_warning", now.levels.warning) &&
                add_switch(c, "log_error", now.levels.error) &&
                add_log_number(c, "log_verbose_level", now.levels.verbose_level) &&
                add_text(c, "log_format", ops_log_format_name(now.levels.format));
    return fine ? NULL : status_no_memory();
}

/* ---- Features that are refused --------------------------------------------------------------- */

struct status *unary_trace_setting(struct unary_call *c)
{
    const Inference__TraceSettingRequest *asked =
        (const Inference__TraceSettingRequest *)c->request;
    struct ops_model_ref ref = unary_model_ref(asked->model_name, "");
    struct model *m;
    if (ref.name_length > 0) {
        struct status *st = ops_model_find(c->server, &ref, &m);
        if (st)
            return st;
        model_unref(m);
    }
    return status_new(STATUS_UNSUPPORTED, "tracing is not supported by this server");
}
