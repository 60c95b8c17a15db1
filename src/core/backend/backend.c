/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of backend libraries. A library is loaded and initialised by the first thread that
 * asks for it, without a lock (its Initialize may take as long as it likes); others that want the
 * same one wait for the outcome.
 */
#include "core/backend/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/dl.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/server_options.h"

enum {
    REGISTRY_LEVEL = 200,
    MAX_CONFIG_BYTES = 1 << 20,
    MAX_SEARCHED = 16 << 10,
    MAX_HELPERS = 64,
};

/* As in the reference: 1 is yes, anything else no. */
static enum parallel_instances read_environment(void)
{
    const char *wanted = getenv("TRITON_PARALLEL_INSTANCE_LOADING");
    if (!wanted)
        return PARALLEL_AS_BACKEND_SAYS;
    return strcmp(wanted, "1") == 0 ? PARALLEL_ALWAYS : PARALLEL_NEVER;
}

void backend_registry_init(struct backend_registry *reg, struct server *server,
                           const struct server_options *options)
{
    *reg = (struct backend_registry){
        .server = server,
        .directory = options->backend_directory,
        .settings = options->backend_settings,
        .n_settings = options->n_backend_settings,
        .auto_complete = !options->strict_model_config,
        .parallel_instances = read_environment(),
    };
    atomic_init(&reg->n_free_helpers, MIN(options->load_threads, (unsigned int)MAX_HELPERS) - 1);
    mutex_init(&reg->mu, REGISTRY_LEVEL, "registry.mu");
    cond_init(&reg->changed);
    list_init(&reg->backends);
}

static void backend_free(struct backend *b)
{
    if (!b)
        return;
    if (b->library)
        dl_close(b->library);
    mem_free(b->attribute.groups);
    mem_free(b->name);
    mem_free(b->library_path);
    mem_free(b->directory);
    mem_free(b->config.json);
    mem_free(b);
}

void backend_registry_done(struct backend_registry *reg)
{
    struct list *link;
    while ((link = list_pop(&reg->backends)))
        backend_free(LIST_ENTRY(link, struct backend, link));
    cond_done(&reg->changed);
    mutex_done(&reg->mu);
}

/* ------------------------------------------------------------------------ finding the library */

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

char *backend_find_file(const struct backend_registry *reg, const char *backend,
                        const char *model_directory, const char *version_directory,
                        const char *name)
{
    char *paths[] = {
        mem_printf("%s/%s", version_directory, name),
        mem_printf("%s/%s", model_directory, name),
        mem_printf("%s/%s/%s", reg->directory, backend, name),
    };
    char *found = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        if (!found && is_file(paths[i]))
            found = TAKE(paths[i]);
        mem_free(paths[i]);
    }
    return found;
}

/* The texts tell whether the model or the backend named the library. */
static struct status *not_found(const Inference__ModelConfig *pb, const char *own_directory,
                                const char *searched)
{
    if (!*pb->runtime)
        return status_new(STATUS_INVALID_ARG,
                          "unable to find backend library for backend '%s', try specifying runtime "
                          "on the model configuration. Searched for libtriton_%s.so: %s",
                          pb->backend, pb->backend, searched);
    if (strcmp(pb->runtime, "model.py") == 0)
        return status_new(STATUS_INVALID_ARG,
                          "unable to find Python backend based backend library 'model.py' for "
                          "model '%s', searched: '%s/model.py'",
                          pb->name, own_directory);
    return status_new(STATUS_INVALID_ARG,
                      "unable to find backend library '%s' for model '%s', searched: %s",
                      pb->runtime, pb->name, searched);
}

struct status *backend_find_library(const struct backend_registry *reg,
                                    const struct model_config *config, const char *model_directory,
                                    const char *version_directory, char **ret_path)
{
    const Inference__ModelConfig *pb = config->pb;
    struct status *st = NULL;
    char *name = pb->runtime && pb->runtime[0] ? mem_strdup(pb->runtime)
                                               : mem_printf("libtriton_%s.so", pb->backend);
    char *own_directory = mem_printf("%s/%s", reg->directory, pb->backend);
    const char *const places[] = {version_directory, model_directory, own_directory};
    AUTO(buf) searched = BUF_INIT(MAX_SEARCHED);

    if (str_escapes_folder(name) || str_escapes_folder(pb->backend) || strchr(pb->backend, '/')) {
        st = status_new(STATUS_INVALID_ARG,
                        "backend library name '%s' escapes backend directory '%s', for model "
                        "'%s', check model config runtime field",
                        name, own_directory, pb->name);
        goto out;
    }
    /* "model.py" asks for a backend that is written in Python, of which there are none. */
    bool is_python = strcmp(pb->runtime, "model.py") == 0;
    char *path =
        is_python ? NULL
                  : backend_find_file(reg, pb->backend, model_directory, version_directory, name);
    if (path) {
        *ret_path = path;
        goto out;
    }
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        buf_addf(&searched, "'%s' ", places[i]);
    st = not_found(pb, own_directory, buf_text(&searched));
out:
    mem_free(own_directory);
    mem_free(name);
    return st;
}

/* ----------------------------------------------------------------------------------- loading */

/*
 * The settings that a backend sees: those for all, then its own, which win; behind the ones that
 * every backend has.
 */
static char *config_json(const struct backend_registry *reg, const char *backend)
{
    struct {
        const char *key, *value;
    } all[] = {
        {"auto-complete-config", reg->auto_complete ? "true" : "false"},
        {"backend-directory", reg->directory},
        {"default-max-batch-size", "4"},
        {"min-compute-capability", "0.000000"},
    };
    AUTO(buf) out = BUF_INIT(MAX_CONFIG_BYTES);
    bool first = true;

    buf_adds(&out, "{\"cmdline\":{");
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        for (size_t j = 0; j < reg->n_settings; j++) {
            const struct backend_setting *s = &reg->settings[j];
            bool ours = strcmp(s->backend, backend) == 0 || !s->backend[0];
            if (ours && strcmp(s->key, all[i].key) == 0)
                all[i].value = s->value;
        }
        buf_adds(&out, first ? "" : ",");
        first = false;
        json_write_string(&out, all[i].key, strlen(all[i].key));
        buf_addc(&out, ':');
        json_write_string(&out, all[i].value, strlen(all[i].value));
    }
    for (size_t j = 0; j < reg->n_settings; j++) {
        const struct backend_setting *s = &reg->settings[j];
        bool known = strcmp(s->backend, backend) != 0 && s->backend[0];
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
            known |= strcmp(s->key, all[i].key) == 0;
        for (size_t k = j + 1; k < reg->n_settings; k++) /* a later or more special one wins */
            known |= strcmp(s->key, reg->settings[k].key) == 0 &&
                     (strcmp(reg->settings[k].backend, backend) == 0 ||
                      (!reg->settings[k].backend[0] && !s->backend[0]));
        for (size_t k = 0; k < j; k++)
            known |= !s->backend[0] && strcmp(s->key, reg->settings[k].key) == 0 &&
                     strcmp(reg->settings[k].backend, backend) == 0;
        if (known)
            continue;
        buf_addc(&out, ',');
        json_write_string(&out, s->key, strlen(s->key));
        buf_addc(&out, ':');
        json_write_string(&out, s->value, strlen(s->value));
    }
    buf_adds(&out, "}}");
    return buf_take(&out);
}

static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_strndup(path, (size_t)(slash - path)) : mem_strdup(".");
}

static struct status *resolve(struct backend *b)
{
    const struct {
        const char *symbol;
        void **slot;
        bool mandatory;
    } wanted[] = {
        {"TRITONBACKEND_Initialize", (void **)&b->fns.initialize, false},
        {"TRITONBACKEND_Finalize", (void **)&b->fns.finalize, false},
        {"TRITONBACKEND_GetBackendAttribute", (void **)&b->fns.get_attribute, false},
        {"TRITONBACKEND_ModelInitialize", (void **)&b->fns.model_initialize, false},
        {"TRITONBACKEND_ModelFinalize", (void **)&b->fns.model_finalize, false},
        {"TRITONBACKEND_ModelInstanceInitialize", (void **)&b->fns.instance_initialize, false},
        {"TRITONBACKEND_ModelInstanceFinalize", (void **)&b->fns.instance_finalize, false},
        {"TRITONBACKEND_ModelInstanceReady", (void **)&b->fns.instance_ready, false},
        {"TRITONBACKEND_ModelInstanceExecute", (void **)&b->fns.instance_execute, true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct status *st =
            wanted[i].mandatory ? dl_symbol(b->library, wanted[i].symbol, wanted[i].slot) : NULL;
        if (st)
            return st;
        if (!wanted[i].mandatory)
            *wanted[i].slot = dl_optional_symbol(b->library, wanted[i].symbol);
    }
    return NULL;
}

static struct status *load(struct backend *b)
{
    dl_offer_self(); /* backends that do not say where the server's functions are find them */
    struct status *st = dl_open(b->library_path, &b->library);
    if (!st)
        st = resolve(b);
    if (st)
        return st;
    b->entered = true; /* whatever Initialize returns: as with models and instances */
    if (b->fns.initialize)
        st = b->fns.initialize(b);
    /* Attributes are wishes: without them the backend runs, too, as in the reference. */
    if (!st && b->fns.get_attribute)
        log_status(LOG_WARN, "failed to get attributes of backend",
                   b->fns.get_attribute(b, &b->attribute));
    return st;
}

static struct backend *find_locked(struct backend_registry *reg, const char *library_path)
{
    LIST_FOR_EACH (link, &reg->backends) {
        struct backend *b = LIST_ENTRY(link, struct backend, link);
        if (strcmp(b->library_path, library_path) == 0)
            return b;
    }
    return NULL;
}

static struct backend *backend_new(struct backend_registry *reg, const char *name, const char *path)
{
    struct backend *b = mem_zalloc(sizeof(*b));
    b->name = mem_strdup(name);
    b->library_path = mem_strdup(path);
    b->directory = directory_of(path);
    b->config.json = config_json(reg, name);
    b->config.size_bytes = strlen(b->config.json);
    b->server = reg->server;
    b->stage = BACKEND_LOADING;
    return b;
}

/* Under mu. One user less of a backend whose outcome is known; the last one ends it. */
static void put_locked(struct backend_registry *reg, struct backend *b)
{
    mutex_assert_held(&reg->mu);
    if (--b->users > 0)
        return;
    /* It stays in the list, as loading, so that nobody loads it anew before it is gone. */
    b->stage = BACKEND_LOADING;
    mutex_unlock(&reg->mu);
    if (b->entered && b->fns.finalize)
        log_status(LOG_ERROR, "failed to finalize backend", b->fns.finalize(b));
    mutex_lock(&reg->mu);
    list_remove(&b->link);
    cond_broadcast(&reg->changed);
    mutex_unlock(&reg->mu);
    backend_free(b);
    mutex_lock(&reg->mu);
}

struct status *backend_get(struct backend_registry *reg, const char *name, const char *library_path,
                           struct backend **ret_backend)
{
    mutex_lock(&reg->mu);
    struct backend *b;
    while ((b = find_locked(reg, library_path)) && b->stage == BACKEND_LOADING)
        cond_wait(&reg->changed, &reg->mu);
    if (b && b->stage == BACKEND_LOADED) {
        b->users++;
        mutex_unlock(&reg->mu);
        *ret_backend = b;
        return NULL;
    }
    b = backend_new(reg, name, library_path);
    b->users = 1;
    list_push(&reg->backends, &b->link);
    mutex_unlock(&reg->mu);

    log_verbose(1, "loading backend '%s' from %s", name, library_path);
    struct status *st = load(b);

    mutex_lock(&reg->mu);
    if (st) {
        put_locked(reg, b);
    } else {
        b->stage = BACKEND_LOADED;
        cond_broadcast(&reg->changed);
    }
    mutex_unlock(&reg->mu);
    if (st)
        return st;
    *ret_backend = b;
    return NULL;
}

void backend_put(struct backend_registry *reg, struct backend *b)
{
    if (!b)
        return;
    mutex_lock(&reg->mu);
    put_locked(reg, b);
    mutex_unlock(&reg->mu);
}
