/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set_options() is the list of all options; the functions above it set those of one theme each.
 * What a model configuration names is checked here before ONNX Runtime sees it: numbers, paths of
 * libraries, and settings that name files (permit.h). One thread loads a model.
 */
#include "onnxruntime/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "onnxruntime/permit.h"
#include "onnxruntime/room.h"

#define MAX_THREADS   4096
#define SESSION_BYTES ((size_t)16 << 20) /* of address space, beside the model's weights */

static const char arena_shrinkage[] = "memory.enable_memory_arena_shrinkage";

/* ---- Threads -------------------------------------------------------------------------------- */

/*
 * A model shares the threads of all models, unless it asks for a number of its own, wants parallel
 * operators and the shared pool is not made for that, or is bound to other CPUs (host policy).
 */
static bool shares_threads(const struct model *m, const cpu_set_t *cpus, bool counted,
                           bool parallel)
{
    return m->rt->shares_threads && !counted && (!parallel || m->rt->inter_op_threads > 0) &&
           CPU_EQUAL(cpus, &m->rt->cpus);
}

/* The thread that runs a model counts as one thread of each of its pools. */
static TRITONSERVER_Error *set_crew(struct model *m, struct ort_options *options, size_t n)
{
    TRY(crew_new(n, &m->crew));
    TRY_ORT(&m->rt->lib, SessionOptionsSetCustomThreadCreationOptions(options, m->crew));
    TRY_ORT(&m->rt->lib, SessionOptionsSetCustomCreateThreadFn(options, crew_start_thread));
    TRY_ORT(&m->rt->lib, SessionOptionsSetCustomJoinThreadFn(options, crew_join_thread));
    return NULL;
}

/* Threads of a session's own pools spin for a while before they sleep. Where they are more than the
 * CPUs, they take these from threads that have work. */
static TRITONSERVER_Error *stop_spinning(struct model *m, struct ort_options *options)
{
    TRY_ORT(&m->rt->lib, AddSessionConfigEntry(options, "session.intra_op.allow_spinning", "0"));
    TRY_ORT(&m->rt->lib, AddSessionConfigEntry(options, "session.inter_op.allow_spinning", "0"));
    return NULL;
}

/*
 * ONNX Runtime's own default is a thread per core of the machine, each bound to its core: too many
 * in a container or under taskset, and bound to cores that are not ours. So we count the CPUs that
 * this thread may use, which its threads inherit. Threads whose number is given are not bound.
 */
static TRITONSERVER_Error *set_threads(struct model *m, struct ort_options *options)
{
    int64_t intra, inter, parallel, share;
    cpu_set_t cpus;
    bool shared;
    int n;

    TRY(backend_parameter_int(m->config, "intra_op_thread_count", 0, MAX_THREADS, 0, &intra));
    TRY(backend_parameter_int(m->config, "inter_op_thread_count", 0, MAX_THREADS, 0, &inter));
    TRY(backend_parameter_int(m->config, "execution_mode", 0, 1, 0, &parallel));
    TRY(backend_parameter_int(m->config, "enable_global_threadpool", 0, 1, 1, &share));
    if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
        cpus = m->rt->cpus;
    n = runtime_count_threads(&cpus);
    shared = share && shares_threads(m, &cpus, intra > 0 || inter > 0, parallel);
    if (shared)
        TRY_ORT(&m->rt->lib, DisablePerSessionThreads(options));
    intra = intra > 0 ? intra : m->rt->computes_alone ? 1 : n;
    inter = inter > 0 ? inter : n;
    if (!shared && (intra > n || (parallel && inter > n)))
        TRY(stop_spinning(m, options));
    TRY_ORT(&m->rt->lib, SetIntraOpNumThreads(options, (int)intra));
    TRY_ORT(&m->rt->lib, SetInterOpNumThreads(options, (int)inter));
    if (!shared)
        TRY(set_crew(m, options, (size_t)(intra - 1 + (parallel ? inter - 1 : 0))));
    TRY_ORT(&m->rt->lib,
            SetSessionExecutionMode(options, parallel ? ORT_MODE_PARALLEL : ORT_MODE_SEQUENTIAL));
    return NULL;
}

/* ---- Options that are passed on -------------------------------------------------------------- */

static const struct doc_value *parameters_of(const struct model *m)
{
    return doc_get(doc_root(m->config), "parameters");
}

static bool begins_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static const char *string_of_parameter(const struct doc_value *parameter)
{
    return doc_string(doc_get(parameter, "string_value"), "");
}

/* Parameters that are named like options of ONNX Runtime are passed to it unchanged. */
static TRITONSERVER_Error *pass_options(const struct model *m, struct ort_options *options)
{
    static const char *const prefixes[] = {"session.", "optimization.", "ep.", "mlas."};

    for (const struct doc_value *p = doc_first(parameters_of(m)); p; p = p->next) {
        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
            if (!begins_with(p->key, prefixes[i]))
                continue;
            TRY(permit_check("parameter", p->key, string_of_parameter(p), m->rt->allows_files));
            TRY_ORT(&m->rt->lib, AddSessionConfigEntry(options, p->key, string_of_parameter(p)));
        }
    }
    return NULL;
}

/* ONNX Runtime's run options have no common prefix, so ours is "run.". */
static TRITONSERVER_Error *pass_run_options(const struct model *m, struct ort_run_options *options)
{
    const char *arenas = backend_parameter(m->config, arena_shrinkage);

    if (arenas && *arenas)
        TRY_ORT(&m->rt->lib, AddRunConfigEntry(options, arena_shrinkage, arenas));
    for (const struct doc_value *p = doc_first(parameters_of(m)); p; p = p->next) {
        if (!begins_with(p->key, "run."))
            continue;
        TRY(permit_check("parameter", p->key + 4, string_of_parameter(p), m->rt->allows_files));
        TRY_ORT(&m->rt->lib, AddRunConfigEntry(options, p->key + 4, string_of_parameter(p)));
    }
    return NULL;
}

TRITONSERVER_Error *session_run_options(const struct model *m, struct ort_run_options **ret_options)
{
    struct ort_run_options *options = NULL;
    TRITONSERVER_Error *err;

    TRY_ORT(&m->rt->lib, CreateRunOptions(&options));
    err = pass_run_options(m, options);
    if (err)
        m->rt->lib.api.ReleaseRunOptions(options);
    else
        *ret_options = options;
    return err;
}

/* ---- Memory, graph -------------------------------------------------------------------------- */

/* Checks "cpu:0;gpu:1" here, because a wrong value would fail each run and not the load. */
static TRITONSERVER_Error *check_shrinkage(const struct model *m)
{
    const char *arenas = backend_parameter(m->config, arena_shrinkage), *at = arenas;

    while (at && *at) {
        size_t digits =
            begins_with(at, "cpu:") || begins_with(at, "gpu:") ? strspn(at + 4, "0123456789") : 0;

        if (digits == 0 || (at[4 + digits] != ';' && at[4 + digits] != '\0'))
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "parameter '%s' must be like 'cpu:0;gpu:0', got '%s'",
                                 arena_shrinkage, arenas);
        at += 4 + digits + (at[4 + digits] == ';');
    }
    return NULL;
}

static TRITONSERVER_Error *set_memory_options(const struct model *m, struct ort_options *options)
{
    int64_t arena, pattern;

    TRY(backend_parameter_int(m->config, "enable_mem_arena", 0, 1, 1, &arena));
    TRY(backend_parameter_int(m->config, "enable_mem_pattern", 0, 1, 1, &pattern));
    TRY(check_shrinkage(m));
    if (!arena)
        TRY_ORT(&m->rt->lib, DisableCpuMemArena(options));
    if (!pattern)
        TRY_ORT(&m->rt->lib, DisableMemPattern(options));
    return NULL;
}

static TRITONSERVER_Error *set_graph_level(const struct model *m, struct ort_options *options)
{
    static const struct {
        int64_t wanted;
        enum ort_graph_level level;
    } levels[] = {
        {-1, ORT_GRAPH_BASIC}, {0, ORT_GRAPH_ALL}, {1, ORT_GRAPH_EXTENDED}, {2, ORT_GRAPH_NONE}};
    const struct doc_value *optimization = doc_get(doc_root(m->config), "optimization");
    int64_t wanted = 0;

    doc_int(doc_get(doc_get(optimization, "graph"), "level"), &wanted);
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (levels[i].wanted != wanted)
            continue;
        TRY_ORT(&m->rt->lib, SetSessionGraphOptimizationLevel(options, levels[i].level));
        return NULL;
    }
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "field 'optimization.graph.level' must be -1 (basic), 0 (all), 1 "
                         "(extended) or 2 (none), got %lld",
                         (long long)wanted);
}

/* ---- Custom operators ----------------------------------------------------------------------- */

/* Is the path, as it is written, below the folder? */
static bool is_written_below(const char *path, const char *folder)
{
    int depth = 0;

    if (!external_is_below(path, folder))
        return false;
    for (const char *part = path + strlen(folder); *part && depth >= 0;) {
        size_t len;

        part += strspn(part, "/");
        len = strcspn(part, "/");
        if (len == 2 && strncmp(part, "..", 2) == 0)
            depth--;
        else if (len > 0 && !(len == 1 && *part == '.'))
            depth++;
        part += len;
    }
    return depth >= 0;
}

/* @full        the path without links; NULL, with the reason in errno, if it does not exist
 * @folder      the repository, as the server names it
 * @repository  the repository without links */
static TRITONSERVER_Error *check_library(const char *name, const char *path, const char *full,
                                         int why, const char *folder, const char *repository)
{
    bool inside =
        full ? repository && external_is_below(full, repository)
             : is_written_below(path, folder) || (repository && is_written_below(path, repository));
    struct stat info;

    /* The same text whether or not a file exists there. */
    if (!inside)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "library of custom operators '%s' (op_library_filename) is not in the "
                             "model repository '%s'",
                             name, repository ? repository : folder);
    if (!full)
        return backend_error(TRITONSERVER_ERROR_NOT_FOUND,
                             "library of custom operators '%s' (op_library_filename): %s", name,
                             strerror(why));
    if (stat(full, &info) != 0 || !S_ISREG(info.st_mode)) /* opening a pipe would wait */
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "library of custom operators '%s' (op_library_filename) is no regular "
                             "file",
                             name);
    return NULL;
}

/* A library is code, so it must come from where the model comes from: from the folder of its
 * repository. Relative names begin in the model's folder. */
static TRITONSERVER_Error *add_library(const struct model *m, struct ort_options *options,
                                       const char *name)
{
    const char *slash = strrchr(m->folder, '/');
    char *path = NULL, *full, *above, *repository;
    TRITONSERVER_Error *err;
    int why;

    if (asprintf(&path, "%s%s%s", *name == '/' ? "" : m->folder, *name == '/' ? "" : "/", name) < 0)
        path = NULL;
    above = slash ? strndup(m->folder, (size_t)(slash - m->folder)) : strdup(".");
    if (!path || !above) {
        free(path);
        free(above);
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    }
    full = realpath(path, NULL);
    why = errno;
    repository = realpath(above, NULL);
    err = check_library(name, path, full, why, above, repository);
    if (!err)
        err = library_error(&m->rt->lib, m->rt->lib.api.RegisterCustomOpsLibrary_V2(options, full));
    free(path);
    free(full);
    free(above);
    free(repository);
    return err;
}

static TRITONSERVER_Error *add_libraries(const struct model *m, struct ort_options *options)
{
    const struct doc_value *operations = doc_get(doc_root(m->config), "model_operations");
    const struct doc_value *v = doc_first(doc_get(operations, "op_library_filename"));

    for (; v; v = v->next)
        TRY(add_library(m, options, doc_string(v, "")));
    return NULL;
}

/* ---- External data --------------------------------------------------------------------------- */

/* ONNX Runtime makes up to two copies of what it gets, until there is a session. */
#define MOST_BYTES_READ ((uint64_t)1 << 30)

static const char direct_buffers[] = "session.use_external_initializer_file_buffers_directly";

/* ONNX Runtime would map the files: whoever writes one anew while the model serves would change
 * answers, or end the server. With accelerators it has to: they make further copies of a model in a
 * message of at most 2 GB, in which external data has no place but by its file's name. */
static TRITONSERVER_Error *add_weights(struct model *m, struct ort_options *options)
{
    uint64_t bytes = weights_bytes(&m->external);
    int64_t map;

    TRY(backend_parameter_int(m->config, "map_external_data", 0, 1, bytes > MOST_BYTES_READ, &map));
    if (map || m->external.n_files == 0 || session_has_accelerators(m) ||
        !m->rt->lib.api.AddExternalInitializersFromFilesInMemory) {
        if (m->external.n_files > 0)
            BACKEND_LOG(INFO,
                        "model '%s': its %.1f MB of external data are mapped; a file of them that "
                        "is written in place changes answers, one that is cut off ends the server",
                        m->name, (double)bytes / 1e6);
        return NULL;
    }
    TRY(weights_read(&m->external, &m->weights));
    return weights_give(m->weights, &m->rt->lib, options);
}

/* Once there is a session, it has a copy, unless the model asks for none. */
static void drop_weights(struct model *m)
{
    const char *direct = backend_parameter(m->config, direct_buffers);

    if (direct && strcmp(direct, "0") != 0)
        return;
    weights_free(m->weights);
    m->weights = NULL;
}

/* ---- Open ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *set_options(struct model *m, struct ort_options *options)
{
    TRY(set_threads(m, options));
    TRY(set_memory_options(m, options));
    TRY(set_graph_level(m, options));
    TRY(session_add_providers(m, options));
    TRY(add_libraries(m, options));
    TRY_ORT(&m->rt->lib, SetSessionLogId(options, m->name));
    TRY_ORT(&m->rt->lib, SetSessionLogSeverityLevel(options, (int)runtime_log_level()));
    return pass_options(m, options);
}

/* ONNX Runtime's texts name the highest IR version and opset that the library reads; we add
 * which library that is. */
static TRITONSERVER_Error *create_session(struct model *m, const struct ort_options *options)
{
    TRITONSERVER_Error *err = library_error(
        &m->rt->lib, m->rt->lib.api.CreateSession(m->rt->env, m->path, options, &m->session));
    TRITONSERVER_Error *named;

    if (!err)
        return NULL;
    named = backend_error(TRITONSERVER_ErrorCode(err), "%s (ONNX Runtime %s)",
                          TRITONSERVER_ErrorMessage(err), m->rt->lib.version);
    TRITONSERVER_ErrorDelete(err);
    return named;
}

TRITONSERVER_Error *session_open(struct model *m)
{
    struct ort_options *options = NULL;
    TRITONSERVER_Error *err;

    /* The server's log level may have changed since the last model. */
    TRY_ORT(&m->rt->lib, UpdateEnvWithCustomLogLevel(m->rt->env, runtime_log_level()));
    TRY_ORT(&m->rt->lib, CreateSessionOptions(&options));
    err = set_options(m, options);
    if (!err)
        err = add_weights(m, options);
    if (!err)
        err = room_check(SESSION_BYTES, "the session");
    if (!err)
        err = create_session(m, options);
    m->rt->lib.api.ReleaseSessionOptions(options);
    drop_weights(m);
    if (!err)
        crew_serve(m->crew);
    return err;
}
