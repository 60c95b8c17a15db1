/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - see model.h. A configuration is completed in a child that the first instance then takes
 * as its own: the interpreter, NumPy and the model are imported once until that instance is ready.
 * Further instances, and those that are started anew, have a fresh process.
 */
#include "python/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)
#define NS_PER_S  UINT64_C(1000000000)

static TRITONSERVER_Error *no_memory(void)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static TRITONSERVER_Error *print_text(char **ret_text, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static TRITONSERVER_Error *print_text(char **ret_text, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (vasprintf(ret_text, fmt, args) < 0)
        *ret_text = NULL;
    va_end(args);
    return *ret_text ? NULL : no_memory();
}

/* ---- Arguments ------------------------------------------------------------------------------ */

static TRITONSERVER_Error *read_final_config(struct arguments *a)
{
    const char *why;

    TRY(TRITONSERVER_MessageSerializeToJson(a->config, &a->config_text, &a->config_len));
    struct doc *config = doc_parse(a->config_text, a->config_len, &why);
    if (!config)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "the configuration is no JSON: %s", why);
    const struct doc_value *root = doc_root(config), *batch = doc_get(root, "max_batch_size"),
                           *policy =
                               doc_get(doc_get(root, "model_transaction_policy"), "decoupled");
    a->max_batch_size = batch && batch->type == DOC_NUMBER ? strtoll(batch->raw, NULL, 10) : 0;
    a->is_decoupled = policy && policy->type == DOC_BOOL && policy->boolean;
    doc_free(config);
    return NULL;
}

TRITONSERVER_Error *model_arguments(const struct model *m, TRITONBACKEND_ModelInstance *instance,
                                    struct arguments *ret_arguments)
{
    struct arguments a = {.kind = "CPU",
                          .instance = m->name,
                          .repository = m->repository,
                          .version = m->version,
                          .model = m->name,
                          .folder = m->folder,
                          .file = m->file,
                          .is_initialize = instance != NULL,
                          .force_cpu = m->force_cpu};

    if (instance) {
        TRITONSERVER_InstanceGroupKind kind;

        TRY(TRITONBACKEND_ModelInstanceKind(instance, &kind));
        TRY(TRITONBACKEND_ModelInstanceName(instance, &a.instance));
        TRY(TRITONBACKEND_ModelInstanceDeviceId(instance, &a.device));
        a.kind = TRITONSERVER_InstanceGroupKindString(kind);
    }
    TRY(TRITONBACKEND_ModelConfig(m->handle, 1, &a.config));
    TRITONSERVER_Error *err = read_final_config(&a);
    if (err) {
        arguments_done(&a);
        return err;
    }
    *ret_arguments = a;
    return NULL;
}

void arguments_done(struct arguments *a)
{
    if (a->config)
        TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(a->config));
    *a = (struct arguments){0};
}

static void pack_pair(struct packer *p, const char *key, const char *value)
{
    pack_text(p, key);
    pack_text(p, value);
}

static void pack_command(struct packer *p, const void *arg)
{
    const struct arguments *a = arg;
    char device[16];

    snprintf(device, sizeof device, "%d", (int)a->device);
    pack_u32(p, a->is_initialize ? COMMAND_INITIALIZE : COMMAND_COMPLETE);
    pack_text(p, a->folder);
    pack_text(p, a->file);
    pack_u32(p, 7);
    pack_text(p, "model_config");
    pack_str(p, a->config_text, a->config_len);
    pack_pair(p, "model_instance_kind", a->kind);
    pack_pair(p, "model_instance_name", a->instance);
    pack_pair(p, "model_instance_device_id", device);
    pack_pair(p, "model_repository", a->repository);
    pack_pair(p, "model_version", a->version);
    pack_pair(p, "model_name", a->model);
    if (!a->is_initialize)
        return;
    pack_u8(p, a->is_decoupled);
    pack_u8(p, a->force_cpu);
}

bool model_command(struct child *c, const struct arguments *a)
{
    uint64_t at, size_bytes;

    if (!channel_pack(&c->channel, pack_command, a, &at, &size_bytes))
        return false;
    channel_ring(&c->channel, at, size_bytes);
    return true;
}

void model_start(const struct model *m, struct child_start *ret_start)
{
    *ret_start = (struct child_start){.script = m->python->script,
                                      .server = m->server,
                                      .settings = &m->python->settings,
                                      .variable = m->spin_variable,
                                      .environment = m->environment};
}

/* ---- Completion of the configuration -------------------------------------------------------- */

/* A process that completes a configuration, and then waits for an instance to take it. */
struct completion {
    const struct model *model;
    struct arguments arguments;
    cpu_set_t processors; /* that the process has inherited */
    bool has_processors;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* Under mu. */
    struct child *child; /* a reference; NULL: an instance has it, or it could not be started */
    bool is_answered, has_ended;
    bool goes_on;       /* the child has said that it may become an instance's */
    bool is_refused;    /* it does not suit the first instance */
    char *config, *why; /* one of them; config may be empty */
};

static void on_completion_greeted(void *owner, struct child *c)
{
    struct completion *k = owner;

    if (!model_command(c, &k->arguments))
        child_condemn(c, "had no memory for a message");
}

static bool on_completion_reported(void *owner, struct child *c, uint32_t kind, struct unpacker *u)
{
    struct completion *k = owner;
    const uint8_t failed = unpack_u8(u);
    size_t len;
    const char *text = unpack_str(u, &len);
    const bool goes_on = !failed && unpack_u8(u);

    (void)c;
    if (u->failed || failed > 1 || kind != NOTE_COMPLETED)
        return false;
    pthread_mutex_lock(&k->mu);
    if (!k->is_answered) {
        k->is_answered = true;
        k->goes_on = goes_on;
        char *copy = strndup(text, len);

        if (failed || !copy)
            k->why = copy;
        else
            k->config = copy;
    }
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->mu);
    return true;
}

static void on_completion_ended(void *owner, struct child *c)
{
    struct completion *k = owner;

    (void)c;
    pthread_mutex_lock(&k->mu);
    k->has_ended = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->mu);
}

static const struct child_owner completion_ops = {.greeted = on_completion_greeted,
                                                  .reported = on_completion_reported,
                                                  .ended = on_completion_ended};

static TRITONSERVER_Error *set_completed_config(const struct model *m, const char *config)
{
    TRITONSERVER_Message *message;

    if (!*config)
        return NULL;
    TRY(TRITONSERVER_MessageNewFromSerializedJson(&message, config, strlen(config)));
    TRITONSERVER_Error *err = TRITONBACKEND_ModelSetConfig(m->handle, 1, message);
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(message));
    return err;
}

static TRITONSERVER_Error *await_completion(struct completion *k)
{
    pthread_mutex_lock(&k->mu);
    while (!k->is_answered && !k->has_ended)
        pthread_cond_wait(&k->changed, &k->mu);
    pthread_mutex_unlock(&k->mu);
    if (k->why)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "%s", k->why);
    if (k->config)
        return set_completed_config(k->model, k->config);
    return k->is_answered ? no_memory()
                          : backend_error(TRITONSERVER_ERROR_INTERNAL,
                                          "Auto-complete failed for %s: its process %s",
                                          k->model->name, child_cause(k->child));
}

static TRITONSERVER_Error *start_completion(struct completion *k)
{
    struct child_start start;

    TRY(model_arguments(k->model, NULL, &k->arguments));
    k->has_processors = sched_getaffinity(0, sizeof k->processors, &k->processors) == 0;
    model_start(k->model, &start);
    start.name = k->model->name;
    start.ops = &completion_ops;
    start.owner = k;
    return child_start(&start, &k->child);
}

/* complete_by_child - its process goes on, and waits for the first instance. */
static TRITONSERVER_Error *complete_by_child(struct model *m)
{
    TRY(watcher_ref());
    struct completion *k = calloc(1, sizeof *k);

    if (!k) {
        watcher_unref();
        return no_memory();
    }
    k->model = m;
    pthread_mutex_init(&k->mu, NULL);
    pthread_cond_init(&k->changed, NULL);
    m->completion = k;
    TRY(start_completion(k));
    return await_completion(k);
}

static void close_completion(struct completion *k)
{
    if (!k)
        return;
    if (k->child) { /* constant by now: no instance is left */
        child_dismiss(k->child, "is not needed any more");
        pthread_mutex_lock(&k->mu);
        while (!k->has_ended)
            pthread_cond_wait(&k->changed, &k->mu);
        pthread_mutex_unlock(&k->mu);
        child_unref(k->child);
    }
    watcher_unref();
    arguments_done(&k->arguments);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->mu);
    free(k->config);
    free(k->why);
    free(k);
}

/* has_processors_of - a process keeps the processors of the thread that started it. */
static bool has_processors_of(const struct completion *k, const struct child_start *start)
{
    return k->has_processors && start->processors && CPU_EQUAL(&k->processors, start->processors);
}

struct child *model_give_child(const struct model *m, const struct child_start *start)
{
    struct completion *k = m->completion;
    struct child *c = NULL;

    if (!k)
        return NULL;
    pthread_mutex_lock(&k->mu);
    if (k->child && !k->is_refused) {
        const bool suits = k->goes_on && !k->has_ended && has_processors_of(k, start);

        if (suits && child_adopt(k->child, start)) {
            c = k->child;
            k->child = NULL;
        } else {
            k->is_refused = true;
            child_dismiss(k->child, "is not needed any more");
        }
    }
    pthread_mutex_unlock(&k->mu);
    return c;
}

/* ---- Opening -------------------------------------------------------------------------------- */

static const char *get_text(const struct doc *config, const char *field)
{
    const struct doc_value *v = doc_get(doc_root(config), field);

    return v && v->type == DOC_STRING ? v->string : "";
}

/* Without a slash: in the folder of the version. */
static TRITONSERVER_Error *locate_python_file(struct model *m, const struct doc *config)
{
    const char *backend = get_text(config, "backend"), *runtime = get_text(config, "runtime"),
               *file = get_text(config, "default_model_filename");

    if (*backend && strcmp(backend, "python") != 0 && *runtime) {
        if (!m->python->settings.backend_directory || backend_escapes_folder(runtime) ||
            backend_escapes_folder(backend))
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "the folder of backend '%s', which is written in Python, is not "
                                 "known",
                                 backend);
        return print_text(&m->file, "%s/%s/%s", m->python->settings.backend_directory, backend,
                          runtime);
    }
    if (backend_escapes_folder(file))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "default_model_filename '%s' of model '%s' leads out of its folder",
                             file, m->name);
    return print_text(&m->file, "%s", *file ? file : "model.py");
}

static TRITONSERVER_Error *check_python_file(const struct model *m)
{
    char *path;

    TRY(strchr(m->file, '/') ? print_text(&path, "%s", m->file)
                             : print_text(&path, "%s/%s", m->folder, m->file));
    const bool there = access(path, F_OK) == 0;
    free(path);
    return there ? NULL
                 : backend_error(TRITONSERVER_ERROR_INTERNAL,
                                 "Python model file not found in '%s/%s'", m->folder, m->file);
}

static TRITONSERVER_Error *read_parameters(struct model *m, const struct doc *config)
{
    const char *force = backend_parameter(config, "FORCE_CPU_ONLY_INPUT_TENSORS"),
               *environment = backend_parameter(config, "EXECUTION_ENV_PATH");
    int64_t timeout_ms, spin_us;

    m->force_cpu = true;
    if (force && strcasecmp(force, "no") == 0)
        m->force_cpu = false;
    else if (force && strcasecmp(force, "yes") != 0)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: %s'", force);
    TRY(backend_parameter_int(config, "CONCH_EXECUTE_TIMEOUT_MS", 0, INT64_C(1) << 40, 0,
                              &timeout_ms));
    TRY(backend_parameter_int(config, "CONCH_PYTHON_SPIN_US", 0, 1000000, 0, &spin_us));
    m->execute_timeout_ns = (uint64_t)timeout_ms * NS_PER_MS;
    m->spin_ns = (uint64_t)spin_us * NS_PER_US;
    if (spin_us)
        TRY(print_text(&m->spin_variable, "CONCH_PYTHON_SPIN_US=%lld", (long long)spin_us));
    return environment && *environment ? print_text(&m->environment_path, "%s", environment) : NULL;
}

static TRITONSERVER_Error *read_config(struct model *m)
{
    struct doc *config;

    TRY(backend_model_config(m->handle, &config));
    TRITONSERVER_Error *err = locate_python_file(m, config);
    if (!err)
        err = read_parameters(m, config);
    doc_free(config);
    return err;
}

static TRITONSERVER_Error *find_folder(struct model *m)
{
    TRITONBACKEND_ArtifactType type;
    const char *repository;
    uint64_t version;

    TRY(TRITONBACKEND_ModelRepository(m->handle, &type, &repository));
    if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "unsupported artifact type for model '%s'", m->name);
    TRY(TRITONBACKEND_ModelVersion(m->handle, &version));
    TRY(print_text(&m->repository, "%s", repository));
    TRY(print_text(&m->version, "%llu", (unsigned long long)version));
    return print_text(&m->folder, "%s/%s", repository, m->version);
}

static TRITONSERVER_Error *fill_model(struct model *m)
{
    TRITONBACKEND_Backend *backend;
    void *state;
    bool complete;

    TRY(TRITONBACKEND_ModelName(m->handle, &m->name));
    TRY(TRITONBACKEND_ModelServer(m->handle, &m->server));
    TRY(TRITONBACKEND_ModelBackend(m->handle, &backend));
    TRY(TRITONBACKEND_BackendState(backend, &state));
    m->python = state;
    TRY(find_folder(m));
    TRY(read_config(m));
    TRY(check_python_file(m));
    TRY(environment_open(m->repository, m->environment_path, &m->environment));
    TRY(TRITONBACKEND_ModelAutoCompleteConfig(m->handle, &complete));
    return complete ? complete_by_child(m) : NULL;
}

TRITONSERVER_Error *model_open(TRITONBACKEND_Model *handle, struct model **ret_model)
{
    struct model *m = calloc(1, sizeof *m);

    if (!m)
        return no_memory();
    m->handle = handle;
    TRITONSERVER_Error *err = fill_model(m);
    if (err)
        model_close(m);
    else
        *ret_model = m;
    return err;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    close_completion(m->completion);
    environment_close(m->environment);
    free(m->version);
    free(m->repository);
    free(m->folder);
    free(m->file);
    free(m->environment_path);
    free(m->spin_variable);
    free(m);
}
