/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defaults, setters, copy and end of the options. A setter copies the texts that it is given. Each
 * server has a copy of its own, so the caller may change or free its options afterwards.
 *
 * Thread: one at a time for one object; there is no lock.
 */
#include "core/server_options.h"

#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/host_policy.h"

struct server_options *server_options_new(void)
{
    struct server_options *o = mem_zalloc(sizeof(*o));
    o->server_id = mem_strdup("triton");
    o->model_config_name = mem_strdup("");
    o->exit_on_error = true;
    o->strict_readiness = true;
    o->exit_timeout_s = 30;
    o->load_threads = 4;
    o->warmup_timeout_s = 600;
    o->metrics = true;
    o->cpu_metrics = true;
    o->metrics_interval_ms = 2000;
    o->counter_latencies = true;
    o->backend_directory = mem_strdup("/opt/tritonserver/backends");
    o->repoagent_directory = mem_strdup("/opt/tritonserver/repoagents");
    o->cache_directory = mem_strdup("/opt/tritonserver/caches");
    return o;
}

void server_options_set_string(char **slot, const char *value)
{
    char *copy = mem_strdup(value);
    mem_free(*slot);
    *slot = copy;
}

void server_options_add_repository(struct server_options *o, const char *path)
{
    for (size_t i = 0; i < o->n_repositories; i++) {
        if (strcmp(o->repositories[i], path) == 0)
            return;
    }
    o->repositories =
        mem_realloc(o->repositories, (o->n_repositories + 1) * sizeof(*o->repositories));
    o->repositories[o->n_repositories++] = mem_strdup(path);
}

void server_options_add_startup_model(struct server_options *o, const char *name)
{
    size_t at = 0;
    while (at < o->n_startup_models && strcmp(o->startup_models[at], name) < 0)
        at++;
    if (at < o->n_startup_models && strcmp(o->startup_models[at], name) == 0)
        return;
    o->startup_models =
        mem_realloc(o->startup_models, (o->n_startup_models + 1) * sizeof(*o->startup_models));
    memmove(o->startup_models + at + 1, o->startup_models + at,
            (o->n_startup_models - at) * sizeof(*o->startup_models));
    o->startup_models[at] = mem_strdup(name);
    o->n_startup_models++;
}

void server_options_add_backend_setting(struct server_options *o, const char *backend,
                                        const char *key, const char *value)
{
    o->backend_settings = mem_realloc(o->backend_settings,
                                      (o->n_backend_settings + 1) * sizeof(*o->backend_settings));
    o->backend_settings[o->n_backend_settings++] = (struct backend_setting){
        .backend = mem_strdup(backend),
        .key = mem_strdup(key),
        .value = mem_strdup(value),
    };
}

void server_options_add_host_policy(struct server_options *o, const char *policy,
                                    const char *setting, const char *value)
{
    o->host_policies =
        mem_realloc(o->host_policies, (o->n_host_policies + 1) * sizeof(*o->host_policies));
    o->host_policies[o->n_host_policies++] = (struct host_policy_setting){
        .policy = mem_strdup(policy),
        .setting = mem_strdup(setting),
        .value = mem_strdup(value),
    };
}

static struct status *parse_switch(const char *setting, const char *value, bool *ret)
{
    static const char *const words[] = {"false", "off", "0", "true", "on", "1"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcasecmp(value, words[i]) == 0) {
            *ret = i >= ARRAY_SIZE(words) / 2;
            return NULL;
        }
    }
    return status_new(STATUS_INVALID_ARG, "metrics setting '%s' is '%s', expected true or false",
                      setting, value);
}

struct status *server_options_set_metrics(struct server_options *o, const char *setting,
                                          const char *value)
{
    if (strcmp(setting, "counter_latencies") == 0)
        return parse_switch(setting, value, &o->counter_latencies);
    if (strcmp(setting, "histogram_latencies") == 0)
        return parse_switch(setting, value, &o->histogram_latencies);
    if (strcmp(setting, "summary_latencies") == 0) {
        bool wanted = false;
        struct status *st = parse_switch(setting, value, &wanted);
        if (!st && wanted)
            st = status_new(STATUS_UNSUPPORTED, "metrics setting 'summary_latencies' is 'true': "
                                                "quantiles are not supported yet");
        return st;
    }
    if (strcmp(setting, "summary_quantiles") == 0) {
        log_warn("metrics setting 'summary_quantiles' has no effect yet: it is for quantiles");
        return NULL;
    }
    return status_new(STATUS_INVALID_ARG,
                      "there is no metrics setting '%s': there are counter_latencies, "
                      "histogram_latencies, summary_latencies and summary_quantiles",
                      setting);
}

struct server_options *server_options_copy(const struct server_options *o)
{
    struct server_options *copy = mem_zalloc(sizeof(*copy));
    *copy = *o;
    copy->server_id = mem_strdup(o->server_id);
    copy->model_config_name = mem_strdup(o->model_config_name);
    copy->backend_directory = mem_strdup(o->backend_directory);
    copy->repoagent_directory = mem_strdup(o->repoagent_directory);
    copy->cache_directory = mem_strdup(o->cache_directory);
    copy->repositories = NULL;
    copy->n_repositories = 0;
    for (size_t i = 0; i < o->n_repositories; i++)
        server_options_add_repository(copy, o->repositories[i]);
    copy->startup_models = NULL;
    copy->n_startup_models = 0;
    for (size_t i = 0; i < o->n_startup_models; i++)
        server_options_add_startup_model(copy, o->startup_models[i]);
    copy->backend_settings = NULL;
    copy->n_backend_settings = 0;
    for (size_t i = 0; i < o->n_backend_settings; i++) {
        const struct backend_setting *s = &o->backend_settings[i];
        server_options_add_backend_setting(copy, s->backend, s->key, s->value);
    }
    copy->host_policies = NULL;
    copy->n_host_policies = 0;
    for (size_t i = 0; i < o->n_host_policies; i++) {
        const struct host_policy_setting *s = &o->host_policies[i];
        server_options_add_host_policy(copy, s->policy, s->setting, s->value);
    }
    return copy;
}

/* Of texts that belong to us and are const to everybody else. */
static void free_text(const char *text)
{
    mem_free((char *)(uintptr_t)text);
}

void server_options_free(struct server_options *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n_repositories; i++)
        mem_free(o->repositories[i]);
    for (size_t i = 0; i < o->n_backend_settings; i++) {
        free_text(o->backend_settings[i].backend);
        free_text(o->backend_settings[i].key);
        free_text(o->backend_settings[i].value);
    }
    for (size_t i = 0; i < o->n_host_policies; i++) {
        free_text(o->host_policies[i].policy);
        free_text(o->host_policies[i].setting);
        free_text(o->host_policies[i].value);
    }
    mem_free(o->host_policies);
    for (size_t i = 0; i < o->n_startup_models; i++)
        mem_free(o->startup_models[i]);
    mem_free(o->repositories);
    mem_free(o->startup_models);
    mem_free(o->backend_settings);
    mem_free(o->server_id);
    mem_free(o->model_config_name);
    mem_free(o->backend_directory);
    mem_free(o->repoagent_directory);
    mem_free(o->cache_directory);
    mem_free(o);
}
