/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonserver.h: the options of a server.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/handles.h"
#include "base/log.h"
#include "base/status.h"
#include "base/str.h"
#include "conch/conch.h"
#include "core/backend/host_policy.h"
#include "core/options/server_options.h"

TRITONSERVER_Error *TRITONSERVER_ServerOptionsNew(TRITONSERVER_ServerOptions **options)
{
    NEED(options);
    *options = as_options(server_options_new());
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsDelete(TRITONSERVER_ServerOptions *options)
{
    server_options_free(to_options(options));
    return NULL;
}

/* ---- From options.def ------------------------------------------------------------------------ */

#define ARGUMENT_BOOL(name)        bool name
#define ARGUMENT_UINT(name)        unsigned int name
#define ARGUMENT_UINT64(name)      uint64_t name
#define ARGUMENT_STRING(name)      const char *name
#define KEEP_BOOL(member, value)   to_options(options)->member = value
#define KEEP_UINT(member, value)   to_options(options)->member = value
#define KEEP_UINT64(member, value) to_options(options)->member = value
#define KEEP_STRING(member, value)                                                                 \
    NEED(value);                                                                                   \
    server_options_set_string(&to_options(options)->member, value)

#define FIELD(type, name, setter)                                                                  \
    TRITONSERVER_Error *setter(TRITONSERVER_ServerOptions *options, ARGUMENT_##type(name))         \
    {                                                                                              \
        NEED(options);                                                                             \
        KEEP_##type(name, name);                                                                   \
        return NULL;                                                                               \
    }
#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help) keeper
#include "options.def"

/* ---- By the flag ----------------------------------------------------------------------------- */

static struct status *invalid_value(const char *flag, const char *text, const char *expected)
{
    return status_new(STATUS_INVALID_ARG, "option '%s' is '%s', expected %s", flag, text, expected);
}

static struct status *parse_bool(const char *flag, const char *text, bool *ret_value)
{
    return str_to_bool(text, ret_value) ? NULL : invalid_value(flag, text, "true or false");
}

static struct status *parse_number(const char *flag, const char *text, int64_t min, int64_t max,
                                   int64_t *ret_value)
{
    if (!str_to_int64(text, strlen(text), ret_value))
        return invalid_value(flag, text, "a number");
    if (*ret_value < min || *ret_value > max)
        return status_new(STATUS_INVALID_ARG,
                          "option '%s' is '%s', expected a number from %lld to %lld", flag, text,
                          (long long)min, (long long)max);
    return NULL;
}

/* Parses a value of each type into `value`, or returns the error of the text. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        struct status *st = (call);                                                                \
        if (st)                                                                                    \
            return as_status(st);                                                                  \
    } while (0)
#define PARSE_BOOL                                                                                 \
    bool value;                                                                                    \
    TRY(parse_bool(flag, text, &value))
#define PARSE_INT                                                                                  \
    int64_t number;                                                                                \
    TRY(parse_number(flag, text, INT32_MIN, INT32_MAX, &number));                                  \
    int value = (int)number
#define PARSE_UINT                                                                                 \
    int64_t number;                                                                                \
    TRY(parse_number(flag, text, 0, UINT32_MAX, &number));                                         \
    unsigned int value = (unsigned int)number
#define PARSE_UINT64                                                                               \
    int64_t number;                                                                                \
    TRY(parse_number(flag, text, 0, INT64_MAX, &number));                                          \
    uint64_t value = (uint64_t)number
#define PARSE_STRING const char *value = text

#define SETTER(type, setter)                                                                       \
    {                                                                                              \
        PARSE_##type;                                                                              \
        return setter(options, value);                                                             \
    }
#define FIELD(type, name, setter)   SETTER(type, setter)
#define CHECKED(type, name, setter) SETTER(type, setter)
#define EACH(setter)                return setter(options, text);
#define KEPT(type, name)                                                                           \
    {                                                                                              \
        PARSE_##type;                                                                              \
        KEEP_##type(name, value);                                                                  \
        return NULL;                                                                               \
    }
TRITONSERVER_Error *conch_server_options_set(TRITONSERVER_ServerOptions *options, const char *flag,
                                             const char *text)
{
    NEED(options);
    NEED(flag);
    NEED(text);
#define OPTION(group, id, name_of_flag, kind, argument, initial, check, effect, keeper, help)      \
    if (strcmp(flag, name_of_flag) == 0) {                                                         \
        keeper                                                                                     \
    }
#include "options.def"
    return as_status(
        status_new(STATUS_NOT_FOUND, "there is no option '%s' that is a server's value", flag));
}

/* ---- Identity, repository, life -------------------------------------------------------------- */

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelRepositoryPath(TRITONSERVER_ServerOptions *options,
                                                 const char *model_repository_path)
{
    NEED(options);
    NEED(model_repository_path);
    server_options_add_repository(to_options(options), model_repository_path);
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelControlMode(TRITONSERVER_ServerOptions *options,
                                              TRITONSERVER_ModelControlMode mode)
{
    NEED(options);
    switch (mode) {
    case TRITONSERVER_MODEL_CONTROL_NONE:
        to_options(options)->control_mode = CONTROL_NONE;
        return NULL;
    case TRITONSERVER_MODEL_CONTROL_EXPLICIT:
        to_options(options)->control_mode = CONTROL_EXPLICIT;
        return NULL;
    case TRITONSERVER_MODEL_CONTROL_POLL:
        to_options(options)->control_mode = CONTROL_POLL;
        return NULL;
    }
    return as_status(status_new(STATUS_INVALID_ARG, "unknown model control mode '%d'", (int)mode));
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetStartupModel(TRITONSERVER_ServerOptions *options,
                                                              const char *model_name)
{
    NEED(options);
    NEED(model_name);
    server_options_add_startup_model(to_options(options), model_name);
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelConfigName(TRITONSERVER_ServerOptions *options,
                                             const char *model_config_name)
{
    NEED(options);
    NEED(model_config_name);
    if (str_escapes_folder(model_config_name))
        return as_status(status_new(
            STATUS_INVALID_ARG, "model configuration name '%s' leads out of the folder 'configs'",
            model_config_name));
    server_options_set_string(&to_options(options)->model_config_name, model_config_name);
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelLoadThreadCount(TRITONSERVER_ServerOptions *options,
                                                  unsigned int thread_count)
{
    NEED(options);
    if (thread_count == 0)
        return as_status(
            status_new(STATUS_INVALID_ARG, "model load thread count must be at least 1, got 0"));
    to_options(options)->load_threads = thread_count;
    return NULL;
}

TRITONSERVER_Error *conch_server_options_set_inline_execution(TRITONSERVER_ServerOptions *options,
                                                              bool inline_execution)
{
    NEED(options);
    to_options(options)->inline_execution = inline_execution;
    return NULL;
}

TRITONSERVER_Error *
conch_server_options_set_connection_memory_budget(TRITONSERVER_ServerOptions *options,
                                                  uint64_t bytes)
{
    enum { LEAST_MIB = 16 };
    NEED(options);
    if (bytes > 0 && bytes < (uint64_t)LEAST_MIB << 20)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "connection memory budget: %llu bytes, must be 0 or at least "
                                    "%d MiB",
                                    (unsigned long long)bytes, LEAST_MIB));
    to_options(options)->connection_memory_bytes = bytes;
    return NULL;
}

/* ---- Limits, memory, devices ----------------------------------------------------------------- */

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetRateLimiterMode(TRITONSERVER_ServerOptions *options,
                                             TRITONSERVER_RateLimitMode mode)
{
    NEED(options);
    if (mode != TRITONSERVER_RATE_LIMIT_OFF && mode != TRITONSERVER_RATE_LIMIT_EXEC_COUNT)
        return as_status(status_new(STATUS_INVALID_ARG, "unknown rate limit mode '%d'", (int)mode));
    to_options(options)->limits_rate = mode == TRITONSERVER_RATE_LIMIT_EXEC_COUNT;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsAddRateLimiterResource(TRITONSERVER_ServerOptions *options,
                                                 const char *resource_name,
                                                 const size_t resource_count, const int device)
{
    NEED(options);
    NEED(resource_name);
    server_options_add_rate_resource(to_options(options), resource_name, resource_count, device);
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(TRITONSERVER_ServerOptions *options,
                                                      uint64_t size)
{
    NEED(options);
    (void)size; /* sizes a pool that exists with a GPU only */
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(TRITONSERVER_ServerOptions *options,
                                                    int gpu_device, uint64_t size)
{
    NEED(options);
    (void)gpu_device;
    (void)size;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(
    TRITONSERVER_ServerOptions *options, int gpu_device, size_t cuda_virtual_address_size)
{
    NEED(options);
    (void)gpu_device;
    (void)cuda_virtual_address_size;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(TRITONSERVER_ServerOptions *options,
                                                           double cc)
{
    NEED(options);
    (void)cc;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(TRITONSERVER_ServerOptions *options,
                                                      unsigned int thread_count)
{
    NEED(options);
    (void)thread_count;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetEnablePeerAccess(TRITONSERVER_ServerOptions *options,
                                              bool enable_peer_access)
{
    NEED(options);
    (void)enable_peer_access; /* between GPUs, of which there are none */
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(TRITONSERVER_ServerOptions *options,
                                                  const TRITONSERVER_InstanceGroupKind kind,
                                                  const int device_id, const double fraction)
{
    NEED(options);
    if (device_id < 0)
        return as_status(
            status_new(STATUS_INVALID_ARG, "expects device ID >= 0, got %d", device_id));
    if (!(fraction >= 0.0 && fraction <= 1.0))
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "expects limit fraction to be in range [0.0, 1.0], got %f",
                                    fraction));
    if (kind != TRITONSERVER_INSTANCEGROUPKIND_GPU)
        return as_status(status_new(STATUS_UNSUPPORTED,
                                    "given device kind is not supported, got: %s",
                                    TRITONSERVER_InstanceGroupKindString(kind)));
    return NULL; /* there is no GPU whose memory could run short */
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetHostPolicy(TRITONSERVER_ServerOptions *options,
                                                            const char *policy_name,
                                                            const char *setting, const char *value)
{
    NEED(options);
    NEED(policy_name);
    NEED(setting);
    NEED(value);
    struct status *st = host_policy_check_setting(setting);
    if (!st)
        server_options_add_host_policy(to_options(options), policy_name, setting, value);
    return as_status(st);
}

/* ---- Cache, log, metrics, backends ----------------------------------------------------------- */

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetResponseCacheByteSize(TRITONSERVER_ServerOptions *options,
                                                   uint64_t size)
{
    NEED(options);
    char json[64];
    if (size == 0)
        return NULL;
    snprintf(json, sizeof(json), "{\"size\":\"%" PRIu64 "\"}", size);
    server_options_set_cache_config(to_options(options), "local", json);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCacheConfig(TRITONSERVER_ServerOptions *options,
                                                             const char *cache_name,
                                                             const char *config_json)
{
    NEED(options);
    NEED(cache_name);
    NEED(config_json);
    server_options_set_cache_config(to_options(options), cache_name, config_json);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCacheDirectory(TRITONSERVER_ServerOptions *options,
                                                                const char *cache_dir)
{
    NEED(options);
    NEED(cache_dir);
    server_options_set_string(&to_options(options)->cache_directory, cache_dir);
    return NULL;
}

/* The log belongs to the process, not to the server. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogFile(TRITONSERVER_ServerOptions *options,
                                                         const char *file)
{
    NEED(options);
    return as_status(log_open_file(file));
}

#define CHANGE_LOG(field, value)                                                                   \
    do {                                                                                           \
        struct log_settings was, settings;                                                         \
        NEED(options);                                                                             \
        do {                                                                                       \
            log_get_settings(&was);                                                                \
            settings = was;                                                                        \
            settings.field = (value);                                                              \
        } while (!log_replace_settings(&was, &settings));                                          \
        return NULL;                                                                               \
    } while (0)

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogInfo(TRITONSERVER_ServerOptions *options,
                                                         bool log)
{
    CHANGE_LOG(info, log);
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogWarn(TRITONSERVER_ServerOptions *options,
                                                         bool log)
{
    CHANGE_LOG(warning, log);
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogError(TRITONSERVER_ServerOptions *options,
                                                          bool log)
{
    CHANGE_LOG(error, log);
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogFormat(TRITONSERVER_ServerOptions *options,
                                                           const TRITONSERVER_LogFormat format)
{
    CHANGE_LOG(format, (enum log_format)format);
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogVerbose(TRITONSERVER_ServerOptions *options,
                                                            int level)
{
    CHANGE_LOG(verbose_level, level);
}

/* Without GPUs there are none, whatever the value. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetGpuMetrics(TRITONSERVER_ServerOptions *options,
                                                            bool gpu_metrics)
{
    NEED(options);
    (void)gpu_metrics;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMetricsConfig(TRITONSERVER_ServerOptions *options,
                                                               const char *name,
                                                               const char *setting,
                                                               const char *value)
{
    NEED(options);
    NEED(name);
    NEED(setting);
    NEED(value);
    if (*name)
        return as_status(status_new(STATUS_UNSUPPORTED,
                                    "metrics settings of '%s': there are only those of all metrics",
                                    name));
    return as_status(server_options_set_metrics(to_options(options), setting, value));
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetBackendDirectory(TRITONSERVER_ServerOptions *options,
                                              const char *backend_dir)
{
    NEED(options);
    NEED(backend_dir);
    server_options_set_string(&to_options(options)->backend_directory, backend_dir);
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetRepoAgentDirectory(TRITONSERVER_ServerOptions *options,
                                                const char *repoagent_dir)
{
    NEED(options);
    NEED(repoagent_dir);
    server_options_set_string(&to_options(options)->repoagent_directory, repoagent_dir);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetBackendConfig(TRITONSERVER_ServerOptions *options,
                                                               const char *backend_name,
                                                               const char *setting,
                                                               const char *value)
{
    NEED(options);
    NEED(backend_name);
    NEED(setting);
    NEED(value);
    server_options_add_backend_setting(to_options(options), backend_name, setting, value);
    return NULL;
}
