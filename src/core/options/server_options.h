/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of a server. This is TRITONSERVER_ServerOptions. Settings of features that do not
 * exist yet have no field here: their setters refuse values that ask for the feature.
 */
#ifndef CONCH_CORE_OPTIONS_SERVER_OPTIONS_H
#define CONCH_CORE_OPTIONS_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct clock;
struct status;

/* Which models are loaded, and when. */
enum control_mode {
    CONTROL_NONE,     /* all models, once at the start */
    CONTROL_POLL,     /* all models, at the start and as the repositories change */
    CONTROL_EXPLICIT, /* startup_models at the start, then those that clients load */
};

/* A setting of a backend; an empty name means all backends. */
struct backend_setting {
    const char *backend, *key, *value;
};

/* A setting of a host policy; core/backend/host_policy.h. */
struct host_policy_setting {
    const char *policy, *setting, *value;
};

/* The settings of a response cache, as a JSON object. */
struct cache_config {
    char *name, *json;
};

/* How much there is of a resource that instances share; core/sched/limiter.h. */
struct rate_resource {
    const char *name;
    uint64_t count;
    int device; /* -1: each device */
};

/* The types of members, as options.def names them. */
#define OPTION_MEMBER_BOOL(name)   bool name
#define OPTION_MEMBER_UINT(name)   unsigned int name
#define OPTION_MEMBER_UINT64(name) uint64_t name
#define OPTION_MEMBER_STRING(name) char *name

struct server_options {
    /* From options.def, which says what they mean: server_id, exit_timeout_s, load_threads … */
#define KEPT(type, name)            OPTION_MEMBER_##type(name);
#define FIELD(type, name, setter)   KEPT(type, name)
#define CHECKED(type, name, setter) KEPT(type, name)

#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help) keeper
#include "options.def"

    size_t n_repositories;
    char **repositories;
    enum control_mode control_mode;
    size_t n_startup_models;
    char **startup_models; /* sorted, each once; "*" stands for all */
    bool inline_execution; /* models may execute on the embedder's threads */
    char *backend_directory;
    char *cache_directory;
    char *repoagent_directory;
    size_t n_backend_settings;
    struct backend_setting *backend_settings;
    size_t n_cache_configs;
    struct cache_config *cache_configs; /* by name */
    size_t n_host_policies;
    struct host_policy_setting *host_policies;
    bool limits_rate; /* instances have their resources before they execute … */
    size_t n_rate_resources;
    struct rate_resource *rate_resources; /* … of these amounts */
    struct clock *clock; /* borrowed; NULL: the machine's. Tests have clocks of their own */
    bool counter_latencies, histogram_latencies; /* the metrics show latencies in these forms */
};

struct server_options *server_options_new(void);
struct server_options *server_options_copy(const struct server_options *o);
void server_options_free(struct server_options *o);

/* server_options_set_string - replaces one of the strings above. */
void server_options_set_string(char **slot, const char *value);
/* server_options_add_repository - adds a repository, unless its path is there already. */
void server_options_add_repository(struct server_options *o, const char *path);
void server_options_add_startup_model(struct server_options *o, const char *name);
void server_options_add_backend_setting(struct server_options *o, const char *backend,
                                        const char *key, const char *value);
/* server_options_set_cache_config - replaces the settings of the cache of that name. */
void server_options_set_cache_config(struct server_options *o, const char *name, const char *json);
void server_options_add_host_policy(struct server_options *o, const char *policy,
                                    const char *setting, const char *value);
/* server_options_add_rate_resource - replaces the amount of the same resource of the same device.
 */
void server_options_add_rate_resource(struct server_options *o, const char *name, uint64_t count,
                                      int device);
/*
 * server_options_set_metrics - a setting of --metrics-config.
 *
 * Errors: STATUS_INVALID_ARG  there is no setting of that name; the value is wrong for it
 *         STATUS_UNSUPPORTED  the setting asks for a feature that does not exist yet
 */
NODISCARD struct status *server_options_set_metrics(struct server_options *o, const char *setting,
                                                    const char *value);

#endif
