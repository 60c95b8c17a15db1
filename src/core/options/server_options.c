/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defaults, setters, copy and end of the options. A setter copies the texts that it is given. Each
 * server has a copy of its own, so the caller may change or free its options afterwards.
 *
 * Thread: one at a time for one object; there is no lock.
 */
#include "core/options/server_options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"

/* The members that options.def names. */
static const struct member {
    const char *initial; /* NULL: false, 0, "" */
    enum { NO_MEMBER, MEMBER_BOOL, MEMBER_UINT, MEMBER_UINT64, MEMBER_STRING } type;
    size_t offset;
} members[] = {
#define KEPT(kind_of, name)                                                                        \
    .type = MEMBER_##kind_of, .offset = offsetof(struct server_options, name)
#define FIELD(type, name, setter)   KEPT(type, name)
#define CHECKED(type, name, setter) KEPT(type, name)
#define OPTION(group, id, flag, kind, argument, value, check, effect, keeper, help)                \
    {.initial = value, keeper},
#include "options.def"
};

static void *member_of(struct server_options *o, const struct member *m)
{
    return (char *)o + m->offset;
}

static void set_default(struct server_options *o, const struct member *m)
{
    const char *text = m->initial ? m->initial : "";
    switch (m->type) {
    case NO_MEMBER:
        break;
    case MEMBER_BOOL:
        *(bool *)member_of(o, m) = strcmp(text, "true") == 0;
        break;
    case MEMBER_UINT:
        *(unsigned int *)member_of(o, m) = (unsigned int)strtoul(text, NULL, 10);
        break;
    case MEMBER_UINT64:
        *(uint64_t *)member_of(o, m) = strtoull(text, NULL, 10);
        break;
    case MEMBER_STRING:
        *(char **)member_of(o, m) = mem_strdup(text);
        break;
    }
}

struct server_options *server_options_new(void)
{
    struct server_options *o = mem_zalloc(sizeof(*o));
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        set_default(o, &members[i]);
    o->counter_latencies = true;
    o->backend_directory = mem_strdup("/opt/tritonserver/backends");
    o->cache_directory = mem_strdup("/opt/tritonserver/caches");
    o->repoagent_directory = mem_strdup("/opt/tritonserver/repoagents");
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

void server_options_set_cache_config(struct server_options *o, const char *name, const char *json)
{
    for (size_t i = 0; i < o->n_cache_configs; i++) {
        if (strcmp(o->cache_configs[i].name, name) == 0) {
            server_options_set_string(&o->cache_configs[i].json, json);
            return;
        }
    }
    o->cache_configs =
        mem_realloc(o->cache_configs, (o->n_cache_configs + 1) * sizeof(*o->cache_configs));
    o->cache_configs[o->n_cache_configs++] =
        (struct cache_config){.name = mem_strdup(name), .json = mem_strdup(json)};
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

void server_options_add_rate_resource(struct server_options *o, const char *name, uint64_t count,
                                      int device)
{
    for (size_t i = 0; i < o->n_rate_resources; i++) {
        if (o->rate_resources[i].device == device && strcmp(o->rate_resources[i].name, name) == 0) {
            o->rate_resources[i].count = MIN(o->rate_resources[i].count, count);
            return;
        }
    }
    o->rate_resources =
        mem_realloc(o->rate_resources, (o->n_rate_resources + 1) * sizeof(*o->rate_resources));
    o->rate_resources[o->n_rate_resources++] =
        (struct rate_resource){.name = mem_strdup(name), .count = count, .device = device};
}

static struct status *parse_switch(const char *setting, const char *value, bool *ret)
{
    if (str_to_bool(value, ret))
        return NULL;
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
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        char **string = member_of(copy, &members[i]);
        if (members[i].type == MEMBER_STRING)
            *string = mem_strdup(*string);
    }
    copy->backend_directory = mem_strdup(o->backend_directory);
    copy->cache_directory = mem_strdup(o->cache_directory);
    copy->repoagent_directory = mem_strdup(o->repoagent_directory);
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
    copy->cache_configs = NULL;
    copy->n_cache_configs = 0;
    for (size_t i = 0; i < o->n_cache_configs; i++)
        server_options_set_cache_config(copy, o->cache_configs[i].name, o->cache_configs[i].json);
    copy->host_policies = NULL;
    copy->n_host_policies = 0;
    for (size_t i = 0; i < o->n_host_policies; i++) {
        const struct host_policy_setting *s = &o->host_policies[i];
        server_options_add_host_policy(copy, s->policy, s->setting, s->value);
    }
    copy->rate_resources = NULL;
    copy->n_rate_resources = 0;
    for (size_t i = 0; i < o->n_rate_resources; i++) {
        const struct rate_resource *r = &o->rate_resources[i];
        server_options_add_rate_resource(copy, r->name, r->count, r->device);
    }
    return copy;
}

/* Frees a text that the options own, const for all others. */
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
    for (size_t i = 0; i < o->n_cache_configs; i++) {
        mem_free(o->cache_configs[i].name);
        mem_free(o->cache_configs[i].json);
    }
    mem_free(o->cache_configs);
    for (size_t i = 0; i < o->n_host_policies; i++) {
        free_text(o->host_policies[i].policy);
        free_text(o->host_policies[i].setting);
        free_text(o->host_policies[i].value);
    }
    mem_free(o->host_policies);
    for (size_t i = 0; i < o->n_rate_resources; i++)
        free_text(o->rate_resources[i].name);
    mem_free(o->rate_resources);
    for (size_t i = 0; i < o->n_startup_models; i++)
        mem_free(o->startup_models[i]);
    mem_free(o->repositories);
    mem_free(o->startup_models);
    mem_free(o->backend_settings);
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        if (members[i].type == MEMBER_STRING)
            mem_free(*(char **)member_of(o, &members[i]));
    }
    mem_free(o->backend_directory);
    mem_free(o->cache_directory);
    mem_free(o->repoagent_directory);
    mem_free(o);
}
