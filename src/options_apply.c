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
    return TRITONSERVER_ServerOptionsSetLogFormat(
        so, strcmp(text, "ISO8601") == 0 ? TRITONSERVER_LOG_ISO8601
            : strcmp(text, "json") == 0  ? CONCH_LOG_JSON
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

/* Finds the folder of that kind of plugins beside the program, else the reference's. */
static const char *plugin_directory(const char *kind, char *path, size_t size)
{
    static const char *const places[] = {"../lib/conch", ".."};
    char program[2048];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length > 0) {
        program[length] = '\0';
        *(strrchr(program, '/') + 1) = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
            snprintf(path, size, "%s%s/%s", program, places[i], kind);
            char *real = realpath(path, NULL);
            if (real) {
                snprintf(path, size, "%s", real);
                free(real);
                return path;
            }
        }
    }
    snprintf(path, size, "/opt/tritonserver/%s", kind);
    return path;
}

const char *options_backend_directory(void)
{
    static char path[4096];
    return plugin_directory("backends", path, sizeof(path));
}

const char *options_cache_directory(void)
{
    static char path[4096];
    return plugin_directory("caches", path, sizeof(path));
}

static TRITONSERVER_Error *apply_cache_directory(TRITONSERVER_ServerOptions *so, const char *text)
{
    return TRITONSERVER_ServerOptionsSetCacheDirectory(so, text ? text : options_cache_directory());
}

static TRITONSERVER_Error *apply_agent_directory(TRITONSERVER_ServerOptions *so, const char *text)
{
    static char path[4096];
    return TRITONSERVER_ServerOptionsSetRepoAgentDirectory(
        so, text ? text : plugin_directory("repoagents", path, sizeof(path)));
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

/* ---- Caches --------------------------------------------------------------------------------- */

struct text_out {
    char *text;
    size_t n, capacity;
};

static void append_json_text(struct text_out *out, const char *text, size_t length)
{
    if (out->n + length + 1 > out->capacity) {
        out->capacity = 2 * (out->n + length + 1);
        out->text = realloc(out->text, out->capacity);
        if (!out->text)
            abort();
    }
    memcpy(out->text + out->n, text, length);
    out->n += length;
    out->text[out->n] = '\0';
}

/* Prints the characters up to `end` as a string of JSON. */
static void append_json_string(struct text_out *out, const char *text, const char *end)
{
    append_json_text(out, "\"", 1);
    for (; text < end; text++) {
        char escaped[8];
        unsigned char c = (unsigned char)*text;
        bool plain = c >= ' ' && c != '"' && c != '\\';
        snprintf(escaped, sizeof(escaped), "\\u%04x", c);
        append_json_text(out, plain ? text : escaped, plain ? 1 : 6);
    }
    append_json_text(out, "\"", 1);
}

/* Does an earlier value name this value's cache (or, with_setting, its setting, too)? */
static bool is_named_before(const struct option_value *v, size_t index, bool with_setting)
{
    const char *text = v->list[index];
    size_t n = (size_t)(strchr(text, ',') - text) + 1;
    if (with_setting)
        n = (size_t)(strchr(text + n, '=') - text) + 1;
    for (size_t i = 0; i < index; i++) {
        if (strncmp(v->list[i], text, n) == 0)
            return true;
    }
    return false;
}

/* Returns the value of the last setting of that name for that cache; `text` is one of them. */
static const char *last_setting(const struct option_value *v, const char *text)
{
    size_t n = (size_t)(strchr(strchr(text, ','), '=') - text) + 1;
    const char *found = text + n;
    for (size_t i = 0; i < v->n_list; i++) {
        if (strncmp(v->list[i], text, n) == 0)
            found = v->list[i] + n;
    }
    return found;
}

/* Applies all values cache,setting=value of the cache that the indexed one names. */
static TRITONSERVER_Error *apply_cache(const struct option_value *v, size_t index,
                                       TRITONSERVER_ServerOptions *so)
{
    const char *first = v->list[index];
    size_t n = (size_t)(strchr(first, ',') - first);
    struct text_out json = {0};
    append_json_text(&json, "{", 1);
    for (size_t i = index; i < v->n_list; i++) {
        const char *text = v->list[i];
        if (strncmp(text, first, n + 1) != 0 || is_named_before(v, i, true))
            continue;
        const char *value = last_setting(v, text);
        append_json_text(&json, ",", i > index);
        append_json_string(&json, text + n + 1, strchr(text + n + 1, '='));
        append_json_text(&json, ":", 1);
        append_json_string(&json, value, value + strlen(value));
    }
    append_json_text(&json, "}", 1);
    char *name = copy_until(first, first + n);
    TRITONSERVER_Error *error = TRITONSERVER_ServerOptionsSetCacheConfig(so, name, json.text);
    free(name);
    free(json.text);
    return error;
}

static TRITONSERVER_Error *apply_caches(const struct options *o, TRITONSERVER_ServerOptions *so)
{
    const struct option_value *v = &o->values[OPT_CACHE_CONFIG];
    TRITONSERVER_Error *error = NULL;
    for (size_t i = 0; i < v->n_list && !error; i++) {
        if (!is_named_before(v, i, false))
            error = apply_cache(v, i, so);
    }
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

static TRITONSERVER_Error *apply_rate_limit(TRITONSERVER_ServerOptions *so, const char *text)
{
    return TRITONSERVER_ServerOptionsSetRateLimiterMode(so, strcasecmp(text, "execution_count") == 0
                                                                ? TRITONSERVER_RATE_LIMIT_EXEC_COUNT
                                                                : TRITONSERVER_RATE_LIMIT_OFF);
}

/* Applies name:count[:device], whose form was checked. */
static TRITONSERVER_Error *apply_rate_resource(TRITONSERVER_ServerOptions *so, const char *text)
{
    const char *colon = strchr(text + 1, ':'), *device = strchr(colon + 1, ':');
    char *name = copy_until(text, colon);
    TRITONSERVER_Error *error = TRITONSERVER_ServerOptionsAddRateLimiterResource(
        so, name, (size_t)strtoul(colon + 1, NULL, 10),
        device ? (int)strtol(device + 1, NULL, 10) : -1);
    free(name);
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
    *ret_what = "setting cache configuration";
    return of_log ? NULL : apply_caches(o, so);
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

/* The platforms in front of these services speak neither TLS nor to several processes, nor for
 * browsers. */
static void apply_for_platform(const struct options *o, struct conch_http_options *http,
                               enum option_id port, enum option_id threads)
{
    options_apply_http(o, http);
    http->port = (int)option_int(o, port);
    http->n_threads = (int)option_int(o, threads);
    http->reuse_port = http->use_ssl = http->use_ssl_mutual = false;
    http->header_forward_pattern = http->cors_origins = "";
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

/* Sets the mode, and the settings of the exporter. */
static void apply_trace_mode(const struct options *o, struct conch_trace_options *trace)
{
    const struct option_value *config = &o->values[OPT_TRACE_CONFIG];
    const char **settings = calloc(config->n_list + 1, sizeof(*settings));
    trace->settings = settings;
    trace->n_settings = 0;
    for (size_t i = 0; i < config->n_list; i++) {
        const char *mode = trace_config_value(config->list[i], "mode");
        const char *setting = trace_config_exporter(config->list[i]);
        if (mode)
            trace->opentelemetry = trace_mode_is_opentelemetry(mode);
        if (setting && settings)
            settings[trace->n_settings++] = setting;
    }
}

void options_apply_trace(const struct options *o, struct conch_trace_options *trace)
{
    apply_trace_mode(o, trace);
    trace->file = trace_text(o, "triton,file", OPT_TRACE_FILE);
    trace->level = trace_level(o);
    trace->rate = (uint32_t)trace_number(o, "rate", OPT_TRACE_RATE);
    trace->count = trace_number(o, "count", OPT_TRACE_COUNT);
    trace->log_frequency =
        (uint32_t)trace_number(o, "triton,log-frequency", OPT_TRACE_LOG_FREQUENCY);
}
