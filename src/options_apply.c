/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes the command line to the C API: each value of options.def goes to the keeper beside it. A
 * server's values go by conch_server_options_set(), by the name of their flag; the functions here
 * are for values whose text has several parts.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "conch/conch.h"
#include "options_priv.h"
#include "triton/core/tritonserver.h"

/* ---- Values of several parts ----------------------------------------------------------------- */

static TRITONSERVER_Error *apply_log_format(TRITONSERVER_ServerOptions *so, const char *text)
{
    bool iso = strcmp(text, "ISO8601") == 0;
    return TRITONSERVER_ServerOptionsSetLogFormat(so, iso ? TRITONSERVER_LOG_ISO8601
                                                          : TRITONSERVER_LOG_DEFAULT);
}

static TRITONSERVER_Error *apply_log_file(TRITONSERVER_ServerOptions *so, const char *text)
{
    return *text ? TRITONSERVER_ServerOptionsSetLogFile(so, text) : NULL;
}

static TRITONSERVER_Error *apply_control_mode(TRITONSERVER_ServerOptions *so, const char *text)
{
    return TRITONSERVER_ServerOptionsSetModelControlMode(
        so, strcasecmp(text, "explicit") == 0 ? TRITONSERVER_MODEL_CONTROL_EXPLICIT
            : strcasecmp(text, "poll") == 0   ? TRITONSERVER_MODEL_CONTROL_POLL
                                              : TRITONSERVER_MODEL_CONTROL_NONE);
}

const char *options_backend_directory(void)
{
    static char path[4096];
    static const char *const places[] = {"../lib/conch/backends", "../backends"};
    char program[2048];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length > 0) {
        program[length] = '\0';
        *(strrchr(program, '/') + 1) = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
            snprintf(path, sizeof(path), "%s%s", program, places[i]);
            char *real = realpath(path, NULL);
            if (real) {
                snprintf(path, sizeof(path), "%s", real);
                free(real);
                return path;
            }
        }
    }
    return "/opt/tritonserver/backends";
}

static TRITONSERVER_Error *apply_backend_directory(TRITONSERVER_ServerOptions *so, const char *text)
{
    return TRITONSERVER_ServerOptionsSetBackendDirectory(so,
                                                         text ? text : options_backend_directory());
}

/* Copies `text` up to its end; the program ends when there is no memory. */
static char *copy_until(const char *text, const char *end)
{
    char *copy = strndup(text, (size_t)(end - text));
    if (!copy)
        abort();
    return copy;
}

/* Applies [backend,]setting=value, which was checked. */
static TRITONSERVER_Error *apply_backend_config(TRITONSERVER_ServerOptions *so, const char *text)
{
    const char *comma = strchr(text, ','), *equals = strchr(text, '=');
    if (comma && comma > equals)
        comma = NULL;
    if (comma)
        equals = strchr(comma, '=');
    char *backend = copy_until(text, comma ? comma : text);
    char *setting = copy_until(comma ? comma + 1 : text, equals);
    TRITONSERVER_Error *error =
        TRITONSERVER_ServerOptionsSetBackendConfig(so, backend, setting, equals + 1);
    free(backend);
    free(setting);
    return error;
}

/* Applies policy,setting=value, whose form was checked. */
static TRITONSERVER_Error *apply_host_policy(TRITONSERVER_ServerOptions *so, const char *text)
{
    const char *comma = strchr(text, ','), *equals = strchr(comma, '=');
    char *policy = copy_until(text, comma);
    char *setting = copy_until(comma + 1, equals);
    TRITONSERVER_Error *error =
        TRITONSERVER_ServerOptionsSetHostPolicy(so, policy, setting, equals + 1);
    free(policy);
    free(setting);
    return error;
}

/* Applies setting=value, whose form was checked. */
static TRITONSERVER_Error *apply_metrics_config(TRITONSERVER_ServerOptions *so, const char *text)
{
    const char *equals = strchr(text, '=');
    char *setting = copy_until(text, equals);
    TRITONSERVER_Error *error =
        TRITONSERVER_ServerOptionsSetMetricsConfig(so, "", setting, equals + 1);
    free(setting);
    return error;
}

/* ---- The server's options -------------------------------------------------------------------- */

/* The keeper of each option's value: a function, conch_server_options_set(), or none. */
static const struct keeper {
    TRITONSERVER_Error *(*apply)(TRITONSERVER_ServerOptions *so, const char *text);
    const char *what; /* its name in errors */
    bool by_flag;
} keepers[N_OPTIONS] = {
#define KEPT(type, name)            .by_flag = true
#define FIELD(type, name, setter)   .by_flag = true
#define CHECKED(type, name, setter) .by_flag = true
#define SETTER(type, setter)        .by_flag = true
#define EACH(setter)                .by_flag = true
#define APPLY(function, words)      .apply = function, .what = words
#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help)              \
    [OPT_##id] = {keeper},
#include "options.def"
};

/* Prints a value as the C API reads it: numbers in digits, without a fraction. */
static const char *text_of(const struct option *option, const struct option_value *v, char *buffer,
                           size_t size)
{
    switch (option->kind) {
    case KIND_NONE:
    case KIND_BOOL:
        return v->number ? "true" : "false";
    case KIND_INT:
    case KIND_INT64:
    case KIND_LEVEL:
        snprintf(buffer, size, "%" PRId64, v->number);
        return buffer;
    case KIND_REAL:
        snprintf(buffer, size, "%" PRId64, (int64_t)v->real);
        return buffer;
    case KIND_TEXT:
    case KIND_LIST:
        break;
    }
    return v->text;
}

static TRITONSERVER_Error *apply_value(enum option_id id, TRITONSERVER_ServerOptions *so,
                                       const char *text)
{
    if (keepers[id].apply)
        return keepers[id].apply(so, text);
    return text ? conch_server_options_set(so, option_table[id].flag, text) : NULL;
}

static TRITONSERVER_Error *apply_option(const struct options *o, enum option_id id,
                                        TRITONSERVER_ServerOptions *so)
{
    const struct option_value *v = &o->values[id];
    char buffer[32];
    TRITONSERVER_Error *error = NULL;
    if (option_table[id].kind != KIND_LIST)
        return apply_value(id, so, text_of(&option_table[id], v, buffer, sizeof(buffer)));
    for (size_t i = 0; i < v->n_list && !error; i++)
        error = apply_value(id, so, v->list[i]);
    return error;
}

TRITONSERVER_Error *options_apply(const struct options *o, bool of_log,
                                  TRITONSERVER_ServerOptions *so, const char **ret_what)
{
    static char what[64];
    for (int id = 0; id < N_OPTIONS; id++) {
        if ((option_table[id].group == GROUP_LOGGING) != of_log ||
            !(keepers[id].apply || keepers[id].by_flag))
            continue;
        TRITONSERVER_Error *error = apply_option(o, id, so);
        if (error) {
            snprintf(what, sizeof(what), "setting %s%s", keepers[id].what ? "" : "--",
                     keepers[id].what ? keepers[id].what : option_table[id].flag);
            *ret_what = what;
            return error;
        }
    }
    return NULL;
}

/* ---- The frontends' options ------------------------------------------------------------------ */

static int64_t scale_value(const struct option_value *v, int64_t factor)
{
    return v->number * factor;
}

#define SET_MEMBER(options, member, factor)                                                        \
    (options)->member = (__typeof__((options)->member))scale_value(v, factor);

void options_apply_http(const struct options *o, struct conch_http_options *http)
{
    const struct option_value *v = o->values;
#define HTTP(member, factor) SET_MEMBER(http, member, factor)
#define HTTP_TEXT(member)    http->member = v->text;
#define HTTP_LIST(member)                                                                          \
    http->member = v->list;                                                                        \
    http->n_##member = v->n_list;

#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help) keeper v++;
#include "options.def"
    http->write_timeout_ms = http->body_timeout_ms;
}

/* The platforms in front of these services speak neither TLS nor to several processes. */
static void apply_for_platform(const struct options *o, struct conch_http_options *http,
                               enum option_id port, enum option_id threads)
{
    options_apply_http(o, http);
    http->port = (int)option_int(o, port);
    http->n_threads = (int)option_int(o, threads);
    http->reuse_port = http->use_ssl = http->use_ssl_mutual = false;
    http->header_forward_pattern = "";
    http->server_cert = http->server_key = http->root_cert = "";
}

void options_apply_sagemaker(const struct options *o, struct conch_http_options *http)
{
    apply_for_platform(o, http, OPT_SAGEMAKER_PORT, OPT_SAGEMAKER_THREAD_COUNT);
}

void options_apply_vertex_ai(const struct options *o, struct conch_http_options *http)
{
    apply_for_platform(o, http, OPT_VERTEX_AI_PORT, OPT_VERTEX_AI_THREAD_COUNT);
}

void options_apply_grpc(const struct options *o, struct conch_grpc_options *grpc)
{
    const struct option_value *v = o->values;
#define GRPC(member, factor) SET_MEMBER(grpc, member, factor)
#define GRPC_TEXT(member)    grpc->member = v->text;
#define GRPC_LIST(member)                                                                          \
    grpc->member = v->list;                                                                        \
    grpc->n_##member = v->n_list;

#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help) keeper v++;
#include "options.def"
    bool given = o->values[OPT_GRPC_INFER_THREAD_COUNT].given;
    grpc->n_threads =
        (int)option_int(o, given ? OPT_GRPC_INFER_THREAD_COUNT : OPT_HTTP_THREAD_COUNT);
}

void options_apply_metrics(const struct options *o, struct conch_metrics_options *metrics)
{
    const struct option_value *v = o->values;
#define METRICS(member, factor) SET_MEMBER(metrics, member, factor)
#define METRICS_TEXT(member)    metrics->member = v->text;

#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help) keeper v++;
#include "options.def"
    const char *address = option_text(o, OPT_METRICS_ADDRESS);
    metrics->address = address ? address : option_text(o, OPT_HTTP_ADDRESS);
}

/* ---- Traces --------------------------------------------------------------------------------- */

/* The last value of a setting in --trace-config, else that of the deprecated flag. */
static const char *trace_text(const struct options *o, const char *name, enum option_id deprecated)
{
    const struct option_value *config = &o->values[OPT_TRACE_CONFIG];
    const char *found = option_text(o, deprecated);
    for (size_t i = 0; i < config->n_list; i++) {
        const char *value = trace_config_value(config->list[i], name);
        if (value)
            found = value;
    }
    return found;
}

/* Adds a level to those before it; OFF wins over all others. */
static void add_trace_level(const char *text, bool *is_off, unsigned int *level)
{
    if (trace_level_is_off(text))
        *is_off = true;
    else
        *level |= trace_level_has_tensors(text) ? TRITONSERVER_TRACE_LEVEL_TENSORS
                                                : TRITONSERVER_TRACE_LEVEL_TIMESTAMPS;
}

static unsigned int trace_level(const struct options *o)
{
    const struct option_value *config = &o->values[OPT_TRACE_CONFIG];
    const struct option_value *flag = &o->values[OPT_TRACE_LEVEL];
    unsigned int level = 0;
    bool is_off = false;
    for (size_t i = 0; i < flag->n_list; i++)
        add_trace_level(flag->list[i], &is_off, &level);
    for (size_t i = 0; i < config->n_list; i++) {
        const char *text = trace_config_value(config->list[i], "level");
        if (text)
            add_trace_level(text, &is_off, &level);
    }
    return is_off ? 0 : level;
}

static int32_t trace_number(const struct options *o, const char *name, enum option_id deprecated)
{
    return (int32_t)strtol(trace_text(o, name, deprecated), NULL, 10); /* it was checked */
}

void options_apply_trace(const struct options *o, struct conch_trace_options *trace)
{
    trace->file = trace_text(o, "triton,file", OPT_TRACE_FILE);
    trace->level = trace_level(o);
    trace->rate = (uint32_t)trace_number(o, "rate", OPT_TRACE_RATE);
    trace->count = trace_number(o, "count", OPT_TRACE_COUNT);
    trace->log_frequency =
        (uint32_t)trace_number(o, "triton,log-frequency", OPT_TRACE_LOG_FREQUENCY);
}
