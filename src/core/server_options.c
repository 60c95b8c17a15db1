/* SPDX-License-Identifier: Apache-2.0 */
#include "core/server_options.h"

#include "base/mem.h"
#include "core/backend/backend.h"

struct server_options *server_options_new(void)
{
    struct server_options *o = mem_zalloc(sizeof(*o));
    o->server_id = mem_strdup("triton");
    o->model_config_name = mem_strdup("");
    o->exit_on_error = true;
    o->strict_readiness = true;
    o->exit_timeout_s = 30;
    o->load_threads = 4;
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
    o->repositories =
        mem_realloc(o->repositories, (o->n_repositories + 1) * sizeof(*o->repositories));
    o->repositories[o->n_repositories++] = mem_strdup(path);
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
    copy->backend_settings = NULL;
    copy->n_backend_settings = 0;
    for (size_t i = 0; i < o->n_backend_settings; i++) {
        const struct backend_setting *s = &o->backend_settings[i];
        server_options_add_backend_setting(copy, s->backend, s->key, s->value);
    }
    return copy;
}

void server_options_free(struct server_options *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n_repositories; i++)
        mem_free(o->repositories[i]);
    for (size_t i = 0; i < o->n_backend_settings; i++) {
        mem_free((char *)(uintptr_t)o->backend_settings[i].backend);
        mem_free((char *)(uintptr_t)o->backend_settings[i].key);
        mem_free((char *)(uintptr_t)o->backend_settings[i].value);
    }
    mem_free(o->repositories);
    mem_free(o->backend_settings);
    mem_free(o->server_id);
    mem_free(o->model_config_name);
    mem_free(o->backend_directory);
    mem_free(o->repoagent_directory);
    mem_free(o->cache_directory);
    mem_free(o);
}
