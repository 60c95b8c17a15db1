/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of backend libraries. The first thread that asks for a library loads and initialises
 * it, without a lock (its Initialize may take any time). Other threads that want the same one wait
 * for the result.
 */
#include "core/backend/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/dl.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "base/thread.h"
#include "core/options/server_options.h"

enum {
    REGISTRY_LEVEL = 200,
    MAX_CONFIG_BYTES = 1 << 20,
    MAX_SEARCHED = 16 << 10,
    MAX_HELPERS = 64,
};

/* As in the reference: 1 means yes, any other text no. */
static enum parallel_instances read_parallel_instances(void)
{
    const char *wanted = getenv("TRITON_PARALLEL_INSTANCE_LOADING");
    if (!wanted)
        return PARALLEL_AS_BACKEND_SAYS;
    return strcmp(wanted, "1") == 0 ? PARALLEL_ALWAYS : PARALLEL_NEVER;
}

/* ---- Settings -------------------------------------------------------------------------------- */

static bool is_setting_for(const struct backend_setting *s, const char *backend)
{
    return !*s->backend || strcmp(s->backend, backend) == 0;
}

/* Finds a value of the command line: the backend's own settings win over those for all backends
 * ("" finds only those), and the last of several counts. NULL: there is none. */
static const char *find_setting(const struct backend_registry *reg, const char *backend,
                                const char *key)
{
    const struct backend_setting *found = NULL;
    for (size_t i = 0; i < reg->n_settings; i++) {
        const struct backend_setting *s = &reg->settings[i];
        if (is_setting_for(s, backend) && strcmp(s->key, key) == 0 &&
            !(found && *found->backend && !*s->backend))
            found = s;
    }
    return found ? found->value : NULL;
}

/* Two settings for all backends are also the server's, whatever their names on the command line.
 * As in the reference, only the word true enables completion. */
static void read_settings(struct backend_registry *reg)
{
    const char *directory = find_setting(reg, "", "backend-directory");
    const char *complete = find_setting(reg, "", "auto-complete-config");
    if (directory)
        reg->directory = directory;
    if (complete && strcasecmp(complete, "true") != 0)
        reg->auto_complete = false;
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
        .parallel_instances = read_parallel_instances(),
    };
    read_settings(reg);
    atomic_init(&reg->n_free_helpers, MIN(options->load_threads, (unsigned int)MAX_HELPERS) - 1);
    mutex_init(&reg->mu, REGISTRY_LEVEL, "registry.mu");
    cond_init(&reg->changed);
    list_init(&reg->backends);
}

static void call_finalize(void *arg)
{
    struct backend *b = arg;
    log_status(LOG_ERROR, "failed to finalize backend", b->fns.finalize(b));
}

/* Afterwards the core calls nothing in the library; it stays loaded for the backend's own
 * threads. */
static void finalize_backend(struct backend *b)
{
    helpers_done(&b->askers);
    if (b->entered && b->fns.finalize && !backend_call("model-unload", call_finalize, b))
        backend_stays(b);
}

static void backend_free(struct backend *b)
{
    if (!b)
        return;
    if (b->library && atomic_load_explicit(&b->stays, memory_order_relaxed)) {
        if (dl_stay(b->library))
            log_info(
                "backend library '%s' stays in memory: it has run on threads that go on, such as "
                "those that read the network; if its file changes, a load takes the new one",
                b->library_path);
    } else {
        dl_close(b->library);
    }
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
    while ((link = list_pop(&reg->backends))) {
        struct backend *b = LIST_ENTRY(link, struct backend, link);
        finalize_backend(b);
        backend_free(b);
    }
    cond_done(&reg->changed);
    mutex_done(&reg->mu);
}

/* ---- Finding the library --------------------------------------------------------------------- */

static bool is_regular_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Returns the path of that file in the first of these folders, or NULL. */
static char *find_in(const char *const *folders, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        char *path = mem_printf("%s/%s", folders[i], name);
        if (is_regular_file(path))
            return path;
        mem_free(path);
    }
    return NULL;
}

char *backend_find_file(const struct backend_registry *reg, const char *backend,
                        const char *model_directory, const char *version_directory,
                        const char *name)
{
    char *own = mem_printf("%s/%s", reg->directory, backend);
    char *path = find_in((const char *const[]){version_directory, model_directory, own}, 3, name);
    mem_free(own);
    return path;
}

/* The folders that may have the files of one model's backend. */
struct search {
    const Inference__ModelConfig *pb;
    const char
        *search_folders[4]; /* folders of the version, the model, the backend, the Python backend */
};
enum { OWN = 2, ALL_BUT_PYTHON = 3, ALL = 4 };

/* Says what helps where a backend of Triton's is missing. */
static void add_cure(struct buf *to, const char *backend, const char *folder)
{
    static const struct {
        const char *name, *cure;
    } cures[] = {
        {"python", "install Conch's backend for Python, or"},
        {"pytorch", "install Conch's backend for PyTorch, or"},
        {"openvino", "install Conch's backend for OpenVINO, or"},
        {"tensorflow", "install Conch's backend for TensorFlow, or"},
        {"tensorrt", "install Conch's backend for TensorRT, or"},
        {"dali", "Conch does not come with it:"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cures); i++) {
        if (strcmp(backend, cures[i].name) == 0)
            buf_addf(to,
                     "; %s put the files of Triton's own (/opt/tritonserver/backends/%s) into '%s'",
                     cures[i].cure, backend, folder);
    }
}

/* The text depends on whether the model or the backend named the library. */
static struct status *not_found(const struct search *s, const char *name, size_t n_places)
{
    const char *backend = s->pb->backend;
    AUTO(buf) searched = BUF_INIT(MAX_SEARCHED);
    for (size_t i = 0; i < n_places; i++)
        buf_addf(&searched, "'%s' ", s->search_folders[i]);
    add_cure(&searched, backend, s->search_folders[strcmp(backend, "python") == 0 ? ALL - 1 : OWN]);
    if (!*s->pb->runtime && n_places < ALL)
        return status_new(STATUS_INVALID_ARG,
                          "unable to find backend library for backend '%s', try specifying runtime "
                          "on the model configuration. Searched for %s: %s",
                          backend, name, buf_text(&searched));
    return status_new(STATUS_INVALID_ARG,
                      "unable to find backend library '%s' for model '%s', searched: %s", name,
                      s->pb->name, buf_text(&searched));
}

static bool has_python_file(const struct search *s)
{
    char *path = find_in(&s->search_folders[OWN], 1, BACKEND_PYTHON_FILE);
    bool has = path;
    mem_free(path);
    return has;
}

/* A backend that is written in Python: a folder with its model.py, which the Python backend
 * runs. */
static struct status *find_python(const struct search *s, struct backend_files *f)
{
    const char *own = s->search_folders[OWN];
    f->library = find_in(s->search_folders, ALL, "libtriton_python.so");
    if (!f->library)
        return not_found(s, "libtriton_python.so", ALL);
    if (!has_python_file(s))
        return status_new(STATUS_INVALID_ARG,
                          "unable to find Python backend based backend library '%s' for model "
                          "'%s', searched: '%s/%s'",
                          BACKEND_PYTHON_FILE, s->pb->name, own, BACKEND_PYTHON_FILE);
    f->is_python = true;
    f->directory = mem_strdup(own);
    f->environment = find_in(&own, 1, "pb_exec_env_" BACKEND_PYTHON_FILE ".tar.gz");
    return NULL;
}

static char *copy_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_strndup(path, (size_t)(slash - path)) : mem_strdup(".");
}

static struct status *find_backend_library(const struct search *s, const char *name,
                                           struct backend_files *f)
{
    if (strcmp(s->pb->runtime, BACKEND_PYTHON_FILE) == 0)
        return find_python(s, f);
    f->library = find_in(s->search_folders, ALL_BUT_PYTHON, name);
    if (!f->library && !*s->pb->runtime && has_python_file(s))
        return find_python(s, f);
    if (!f->library)
        return not_found(s, name, ALL_BUT_PYTHON);
    f->directory = copy_folder_of(f->library);
    return NULL;
}

void backend_files_done(struct backend_files *f)
{
    mem_free(f->library);
    mem_free(f->directory);
    mem_free(f->environment);
    *f = (struct backend_files){0};
}

struct status *backend_find(const struct backend_registry *reg, const struct model_config *config,
                            const char *model_directory, const char *version_directory,
                            struct backend_files *ret_files)
{
    const Inference__ModelConfig *pb = config->pb;
    char *name = pb->runtime && pb->runtime[0] ? mem_strdup(pb->runtime)
                                               : mem_printf("libtriton_%s.so", pb->backend);
    char *own = mem_printf("%s/%s", reg->directory, pb->backend);
    char *python = mem_printf("%s/python", reg->directory);
    const struct search s = {pb, {version_directory, model_directory, own, python}};
    struct backend_files files = {0};
    struct status *st;

    if (str_escapes_folder(name) || str_escapes_folder(pb->backend) || strchr(pb->backend, '/'))
        st = status_new(STATUS_INVALID_ARG,
                        "backend library name '%s' escapes backend directory '%s', for model "
                        "'%s', check model config runtime field",
                        name, own, pb->name);
    else
        st = find_backend_library(&s, name, &files);
    if (st)
        backend_files_done(&files);
    else
        *ret_files = files;
    mem_free(python);
    mem_free(own);
    mem_free(name);
    return st;
}

/* ---- Loading --------------------------------------------------------------------------------- */

static void write_setting(struct buf *out, const char *key, const char *value)
{
    json_write_string(out, key, strlen(key));
    buf_addc(out, ':');
    json_write_string(out, value, strlen(value));
}

/* Is this setting in the text already: as one that every backend has, or under an earlier one's
 * name? */
static bool is_written(const struct backend_registry *reg, const char *backend, size_t i,
                       const struct backend_setting *common, size_t n_common)
{
    const char *key = reg->settings[i].key;
    for (size_t k = 0; k < n_common; k++) {
        if (strcmp(common[k].key, key) == 0)
            return true;
    }
    for (size_t k = 0; k < i; k++) {
        if (is_setting_for(&reg->settings[k], backend) && strcmp(reg->settings[k].key, key) == 0)
            return true;
    }
    return false;
}

/* Logs it in the words of the reference, for users who search a log for the settings of a
 * backend. */
static void log_default(const char *key, const char *given, const char *value)
{
    if (given)
        log_verbose(1, "Found overwritten default setting: %s,%s", key, given);
    else
        log_verbose(1, "Adding default backend config setting: %s,%s", key, value);
}

/* Prints the settings of a backend: those that every backend has, then the others. */
static struct status *config_json(const struct backend_registry *reg, const char *backend,
                                  char **ret_json)
{
    enum { DEFAULT_MAX_BATCH_SIZE = 2 };
    const struct backend_setting common[] = {
        {"", "auto-complete-config", reg->auto_complete ? "true" : "false"},
        {"", "backend-directory", reg->directory},
        [DEFAULT_MAX_BATCH_SIZE] = {"", "default-max-batch-size", "4"},
        {"", "min-compute-capability", "0.000000"},
    };
    AUTO(buf) out = BUF_INIT(MAX_CONFIG_BYTES);

    buf_adds(&out, "{\"cmdline\":{");
    for (size_t i = 0; i < ARRAY_SIZE(common); i++) {
        const char *given = find_setting(reg, backend, common[i].key);
        buf_adds(&out, i > 0 ? "," : "");
        write_setting(&out, common[i].key, given ? given : common[i].value);
        if (i == DEFAULT_MAX_BATCH_SIZE)
            log_default(common[i].key, given, common[i].value);
    }
    for (size_t i = 0; i < reg->n_settings; i++) {
        const struct backend_setting *s = &reg->settings[i];
        if (!is_setting_for(s, backend) || is_written(reg, backend, i, common, ARRAY_SIZE(common)))
            continue;
        buf_addc(&out, ',');
        write_setting(&out, s->key, find_setting(reg, backend, s->key));
    }
    buf_adds(&out, "}}");
    struct status *st = buf_status(&out);
    if (!st)
        *ret_json = buf_take(&out);
    return st;
}

static struct status *resolve_backend_functions(struct backend *b)
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

struct loading {
    struct backend *b;
    struct status *result;
};

static struct status *open_and_initialize(struct backend *b)
{
    dl_offer_self(); /* backends that do not name the server's library then find its functions */
    struct status *st = dl_open(b->library_path, &b->library);
    if (!st)
        st = resolve_backend_functions(b);
    if (st)
        return st;
    log_verbose(1, "backend configuration:\n%s", b->config.json);
    b->entered = true; /* whatever Initialize returns, as with models and instances */
    if (b->fns.initialize)
        st = b->fns.initialize(b);
    /* Attributes are optional: as in the reference, the backend runs without them. */
    if (!st && b->fns.get_attribute)
        log_status(LOG_WARN, "failed to get attributes of backend",
                   b->fns.get_attribute(b, &b->attribute));
    return st;
}

bool backend_call(const char *thread_name, void (*run)(void *arg), void *arg)
{
    struct status *st = thread_call(thread_name, run, arg);
    if (!st)
        return true;
    log_status(LOG_WARN, "a backend is called on a thread that goes on", st);
    run(arg);
    return false;
}

static void run_loading(void *arg)
{
    struct loading *l = arg;
    l->result = open_and_initialize(l->b);
}

/* If this fails, this thread closes the library, which has left nothing in the thread. */
static struct status *load_backend(struct backend *b)
{
    struct loading l = {.b = b};
    if (!backend_call("model-load", run_loading, &l))
        backend_stays(b);
    return l.result;
}

/* Backends in Python share one library, and each is a backend of its own. */
static struct backend *find_backend_locked(struct backend_registry *reg,
                                           const struct backend_files *f)
{
    LIST_FOR_EACH (link, &reg->backends) {
        struct backend *b = LIST_ENTRY(link, struct backend, link);
        if (strcmp(b->library_path, f->library) == 0 && strcmp(b->directory, f->directory) == 0)
            return b;
    }
    return NULL;
}

static struct backend *backend_new(struct backend_registry *reg, const char *name,
                                   const struct backend_files *files, char *settings)
{
    struct backend *b = mem_zalloc(sizeof(*b));
    b->name = mem_strdup(name);
    b->library_path = mem_strdup(files->library);
    b->directory = mem_strdup(files->directory);
    b->config.json = settings;
    b->config.size_bytes = strlen(settings);
    b->server = reg->server;
    b->stage = BACKEND_LOADING;
    helpers_init(&b->askers);
    return b;
}

/* Under mu. Drops one user of a backend whose load has ended; the last one ends the backend. */
static void put_backend_locked(struct backend_registry *reg, struct backend *b)
{
    mutex_assert_held(&reg->mu);
    if (--b->users > 0)
        return;
    /* It stays in the list, as loading, so that no thread loads it again before it is ended. */
    b->stage = BACKEND_LOADING;
    mutex_unlock(&reg->mu);
    finalize_backend(b);
    mutex_lock(&reg->mu);
    list_remove(&b->link);
    cond_broadcast(&reg->changed);
    mutex_unlock(&reg->mu);
    backend_free(b);
    mutex_lock(&reg->mu);
}

struct status *backend_get(struct backend_registry *reg, const char *name,
                           const struct backend_files *files, struct backend **ret_backend)
{
    char *settings;
    struct status *st = config_json(reg, name, &settings);
    if (st)
        return status_prefix(st, "settings of backend '%s'", name);
    mutex_lock(&reg->mu);
    struct backend *b;
    while ((b = find_backend_locked(reg, files)) && b->stage == BACKEND_LOADING)
        cond_wait(&reg->changed, &reg->mu);
    if (b && b->stage == BACKEND_LOADED) {
        b->users++;
        mutex_unlock(&reg->mu);
        mem_free(settings);
        *ret_backend = b;
        return NULL;
    }
    b = backend_new(reg, name, files, settings);
    b->users = 1;
    list_push(&reg->backends, &b->link);
    mutex_unlock(&reg->mu);

    log_verbose(1, "loading backend '%s' from %s", name, files->library);
    st = load_backend(b);

    mutex_lock(&reg->mu);
    if (st) {
        put_backend_locked(reg, b);
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
    put_backend_locked(reg, b);
    mutex_unlock(&reg->mu);
}
