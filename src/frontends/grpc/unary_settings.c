/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods for the settings of the log and of traces. Thread: the loop's.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "frontends/grpc/unary_priv.h"
#include "frontends/ops/log_settings.h"
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/tracer.h"
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

static struct status *answer_log_settings(void *arg, const struct ops_log_settings *now)
{
    enum { N_SETTINGS = 6 };
    struct unary_call *c = arg;
    Inference__LogSettingsResponse *answer = (Inference__LogSettingsResponse *)c->answer;
    answer->n_settings = 0;
    answer->settings = unary_alloc(c, N_SETTINGS, sizeof(*answer->settings));
    bool fine = answer->settings && add_text(c, "log_file", now->file) &&
                add_switch(c, "log_info", now->levels.info) &&
                add_switch(c, "log_warning", now->levels.warning) &&
                add_switch(c, "log_error", now->levels.error) &&
                add_log_number(c, "log_verbose_level", now->levels.verbose_level) &&
                add_text(c, "log_format", ops_log_format_name(now->levels.format));
    return fine ? unary_reserve(c) : status_no_memory();
}

struct status *unary_log_settings(struct unary_call *c)
{
    const struct ops_log_change change = {
        .read = read_log_settings, .asked = c->request, .answer = answer_log_settings, .arg = c};
    return ops_change_log_settings(&change);
}

/* ---- Traces --------------------------------------------------------------------------------- */

typedef Inference__TraceSettingRequest__SettingValue trace_words;
typedef Inference__TraceSettingResponse__SettingsEntry trace_entry;
typedef Inference__TraceSettingResponse__SettingValue trace_answer;

/* Finds the words of that name, the last of several. NULL: the request lacks the name. */
static const trace_words *find_trace_setting(const Inference__TraceSettingRequest *asked,
                                             const char *name)
{
    static const trace_words none;
    for (size_t i = asked->n_settings; i > 0; i--) {
        if (strcmp(asked->settings[i - 1]->key, name) == 0)
            return asked->settings[i - 1]->value ? asked->settings[i - 1]->value : &none;
    }
    return NULL;
}

static struct status *read_trace_words(const trace_words *words, enum trace_field field,
                                       struct trace_change *change)
{
    struct status *st = NULL;
    if (words->n_value == 0)
        change->fields[field].kind = TRACE_CLEAR;
    else if (field == TRACE_LEVEL)
        for (size_t i = 0; i < words->n_value && !st; i++)
            st = trace_change_level(change, words->value[i], words->n_value);
    else if (words->n_value > 1)
        st =
            status_new(STATUS_INVALID_ARG, "expect only 1 value for '%s'", trace_field_name(field));
    else
        st = trace_change_number(change, field, words->value[0], " ");
    return st;
}

static struct status *read_trace_change(const Inference__TraceSettingRequest *asked,
                                        struct trace_change *ret)
{
    struct status *st = find_trace_setting(asked, "trace_file") ? trace_refuse_file() : NULL;
    *ret = (struct trace_change){0};
    for (int i = 0; i < N_TRACE_FIELDS && !st; i++) {
        enum trace_field field = (enum trace_field)i;
        const trace_words *words = find_trace_setting(asked, trace_field_name(field));
        if (words)
            st = read_trace_words(words, field, ret);
    }
    return st;
}

/* Adds one more line to the answer, whose list has room for it; false: no memory. */
static bool add_words(struct unary_call *c, const char *name, const char *const words[], size_t n)
{
    Inference__TraceSettingResponse *answer = (Inference__TraceSettingResponse *)c->answer;
    trace_entry *entry =
        UNARY_NEW(c, trace_entry, inference__trace_setting_response__settings_entry__init);
    trace_answer *value =
        UNARY_NEW(c, trace_answer, inference__trace_setting_response__setting_value__init);
    if (!entry || !value || !(value->value = unary_alloc(c, n, sizeof(*value->value))))
        return false;
    for (; value->n_value < n; value->n_value++) {
        char *word = arena_strndup(c->arena, words[value->n_value], strlen(words[value->n_value]));
        if (!word)
            return false;
        value->value[value->n_value] = word;
    }
    entry->key = unary_borrow(name);
    entry->value = value;
    answer->settings[answer->n_settings++] = entry;
    return true;
}

static bool add_levels(struct unary_call *c, int64_t level)
{
    const char *words[2];
    size_t n = 0;
    if (level & TRACE_TIMESTAMPS)
        words[n++] = "TIMESTAMPS";
    if (level & TRACE_TENSORS)
        words[n++] = "TENSORS";
    if (n == 0)
        words[n++] = "OFF";
    return add_words(c, trace_field_name(TRACE_LEVEL), words, n);
}

static bool add_trace_number(struct unary_call *c, const char *name, int64_t number)
{
    char text[24];
    const char *word = text;
    snprintf(text, sizeof(text), "%" PRId64, number);
    return add_words(c, name, &word, 1);
}

/* The settings of the exporter; several of one name stand side by side, and are one list. */
static bool add_exporter_settings(struct unary_call *c, const struct otlp_settings *otlp)
{
    const struct otlp_pairs *shown = &otlp->shown;
    bool fine = true;
    for (size_t i = 0, n; i < shown->n && fine; i += n) {
        for (n = 1; i + n < shown->n && !strcmp(shown->items[i].name, shown->items[i + n].name);)
            n++;
        const char **words = unary_alloc(c, n, sizeof(*words));
        for (size_t k = 0; words && k < n; k++)
            words[k] = shown->items[i + k].value;
        fine = words && add_words(c, shown->items[i].name, words, n);
    }
    return fine;
}

static struct status *answer_trace_settings(void *arg, const struct tracer_settings *now)
{
    struct unary_call *c = arg;
    Inference__TraceSettingResponse *answer = (Inference__TraceSettingResponse *)c->answer;
    const char *mode = now->otlp ? "opentelemetry" : "triton";
    size_t n_shown = now->otlp ? now->otlp->shown.n : 0;
    answer->settings = unary_alloc(c, N_TRACE_FIELDS + 2 + n_shown, sizeof(*answer->settings));
    bool fine = answer->settings && add_levels(c, now->values.of[TRACE_LEVEL]);
    for (int i = TRACE_RATE; i < tracer_settings_fields(now) && fine; i++)
        fine = add_trace_number(c, trace_field_name((enum trace_field)i), now->values.of[i]);
    fine = fine && add_words(c, "trace_mode", &mode, 1) &&
           (now->otlp ? add_exporter_settings(c, now->otlp)
                      : add_words(c, "trace_file", &now->path, 1));
    return fine ? unary_reserve(c) : status_no_memory();
}

struct status *unary_trace_setting(struct unary_call *c)
{
    const Inference__TraceSettingRequest *asked =
        (const Inference__TraceSettingRequest *)c->request;
    struct ops_model_ref ref = unary_model_ref(asked->model_name, "");
    struct trace_change change;
    struct status *st = ref.name_length > 0 ? ops_model_to_trace(c->server, &ref) : NULL;
    if (!st)
        st = read_trace_change(asked, &change);
    if (st)
        return st;
    struct tracer *tracer = tracer_get(c->server);
    if (asked->n_settings > 0) {
        const struct trace_answer answer = {.make = answer_trace_settings, .arg = c};
        st = tracer_change(tracer, asked->model_name, &change, &answer);
    } else {
        struct tracer_settings now = tracer_settings(tracer, asked->model_name);
        st = answer_trace_settings(c, &now);
    }
    tracer_put(tracer);
    return st;
}
