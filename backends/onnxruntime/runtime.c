/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begin at the end: runtime_open() loads the library, open_env() reads the settings, and
 * make_env() makes the environment, with threads for all models (make_shared_env()) or without
 * (make_own_env()). One thread opens and closes a runtime. broken_library is the only state of the
 * process; broken_mu guards it, and it outlasts the backend.
 */
#include "onnxruntime/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/settings.h"
#include "onnxruntime/room.h"

#define MAX_THREADS            4096
#define ENV_BYTES              ((size_t)32 << 20) /* of address space, at the start */
#define DEFAULT_MAX_BATCH_SIZE 4

/* ---- Log ------------------------------------------------------------------------------------ */

enum ort_severity runtime_log_level(void)
{
    return TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE) ? ORT_VERBOSE
           : TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_WARN)  ? ORT_WARNING
                                                               : ORT_ERROR;
}

/* Logs a line of ONNX Runtime as one of the server's. Its position is "file.cc:123 function",
 * and logid names the session. Its information lines matter only to users who examine ONNX
 * Runtime, so they are verbose here. */
static void forward_log(void *param, enum ort_severity severity, const char *category,
                        const char *logid, const char *code_location, const char *message)
{
    TRITONSERVER_LogLevel level = severity >= ORT_ERROR     ? TRITONSERVER_LOG_ERROR
                                  : severity == ORT_WARNING ? TRITONSERVER_LOG_WARN
                                                            : TRITONSERVER_LOG_VERBOSE;
    const char *colon = strchr(code_location, ':');
    int line = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
    int file_len = colon ? (int)(colon - code_location) : (int)strlen(code_location);
    char file[64];

    if (!TRITONSERVER_LogIsEnabled(level))
        return;
    snprintf(file, sizeof(file), "%.*s", file_len, code_location);
    backend_log(level, file, line, "ONNX Runtime%s%s: %s", logid && *logid ? ", " : "",
                logid ? logid : "", message);
}

/* ---- Settings ------------------------------------------------------------------------------- */

static const char *const known_settings[] = {"allow-file-settings",
                                             "allow-spinning",
                                             "enable-global-threadpool",
                                             "inter_op_thread_count",
                                             "intra_op_thread_count",
                                             "library-path",
                                             NULL};

static TRITONSERVER_Error *setting_int(const struct doc *settings, const char *name, int64_t max,
                                       int64_t otherwise, int64_t *ret_number)
{
    return settings_int(settings, "onnxruntime", name, 0, max, otherwise, ret_number);
}

static TRITONSERVER_Error *setting_bool(const struct doc *settings, const char *name,
                                        bool otherwise, bool *ret_yes)
{
    return settings_bool(settings, "onnxruntime", name, otherwise, ret_yes);
}

/* ---- Threads -------------------------------------------------------------------------------- */

int runtime_count_threads(const cpu_set_t *cpus)
{
    int n = CPU_COUNT(cpus), limit = backend_cpu_limit(NULL);

    return limit > 0 && limit < n ? limit : n;
}

/* Chooses the size of the pools of all models: as many threads as the process has CPUs, unless a
 * setting gives another number, or room is limited (crew.h). The thread that runs a model counts
 * as one of them. */
static TRITONSERVER_Error *size_pools(struct runtime *rt, const struct doc *settings,
                                      struct ort_threading *threads, size_t *ret_n_own)
{
    /* 1: the pool has no threads of its own. Models that need one bring their own pool
     * (session.c). */
    int64_t intra, inter = rt->inter_op_threads > 0 ? rt->inter_op_threads : 1;
    bool spin;

    TRY(setting_int(settings, "intra_op_thread_count", MAX_THREADS, 0, &intra));
    TRY(setting_bool(settings, "allow-spinning", false, &spin));
    if (intra == 0)
        intra = rt->computes_alone ? 1 : runtime_count_threads(&rt->cpus);
    TRY_ORT(&rt->lib, SetGlobalIntraOpNumThreads(threads, (int)intra));
    TRY_ORT(&rt->lib, SetGlobalInterOpNumThreads(threads, (int)inter));
    TRY_ORT(&rt->lib, SetGlobalSpinControl(threads, spin));
    *ret_n_own = (size_t)(intra - 1 + inter - 1);
    return NULL;
}

static TRITONSERVER_Error *make_env_with_crew(struct runtime *rt, struct ort_threading *threads,
                                              size_t n)
{
    TRY(crew_new(n, &rt->crew));
    TRY_ORT(&rt->lib, SetGlobalCustomThreadCreationOptions(threads, rt->crew));
    TRY_ORT(&rt->lib, SetGlobalCustomCreateThreadFn(threads, crew_start_thread));
    TRY_ORT(&rt->lib, SetGlobalCustomJoinThreadFn(threads, crew_join_thread));
    /* Once more: the threads have taken some. */
    TRY(room_check(ENV_BYTES, "ONNX Runtime"));
    rt->begun = true;
    TRY_ORT(&rt->lib, CreateEnvWithCustomLoggerAndGlobalThreadPools(
                          forward_log, NULL, runtime_log_level(), "", threads, &rt->env));
    return NULL;
}

static TRITONSERVER_Error *make_shared_env(struct runtime *rt, const struct doc *settings)
{
    struct ort_threading *threads = NULL;
    TRITONSERVER_Error *err;
    cpu_set_t ours;
    size_t n = 0;

    TRY_ORT(&rt->lib, CreateThreadingOptions(&threads));
    err = size_pools(rt, settings, threads, &n);
    if (!err) {
        /* Threads inherit their CPUs, and this thread may be bound for the first model. */
        bool bound = sched_getaffinity(0, sizeof(ours), &ours) == 0 &&
                     sched_setaffinity(0, sizeof(rt->cpus), &rt->cpus) == 0;

        err = make_env_with_crew(rt, threads, n);
        if (bound && sched_setaffinity(0, sizeof(ours), &ours) != 0)
            BACKEND_LOG(WARN, "a thread stays on other CPUs than it was on");
    }
    rt->lib.api.ReleaseThreadingOptions(threads);
    return err;
}

static TRITONSERVER_Error *make_own_env(struct runtime *rt)
{
    rt->begun = true;
    TRY_ORT(&rt->lib,
            CreateEnvWithCustomLogger(forward_log, NULL, runtime_log_level(), "", &rt->env));
    return NULL;
}

/* ---- Lack of memory -------------------------------------------------------------------------- */

/*
 * An exception while ONNX Runtime makes its environment, such as std::bad_alloc, leaves its C API
 * as an error, but leaves its globals half made: the next attempt would crash in them. So this
 * process makes no further attempt with that library.
 */
static pthread_mutex_t broken_mu = PTHREAD_MUTEX_INITIALIZER;
static char *broken_library; /* under broken_mu; its path */

static bool is_broken(const struct library *lib)
{
    pthread_mutex_lock(&broken_mu);
    bool broken = broken_library && lib->path && strcmp(broken_library, lib->path) == 0;
    pthread_mutex_unlock(&broken_mu);
    return broken;
}

static void note_broken(const struct library *lib)
{
    pthread_mutex_lock(&broken_mu);
    free(broken_library);
    broken_library = lib->path ? strdup(lib->path) : NULL;
    pthread_mutex_unlock(&broken_mu);
    /* This note must outlive the backend, which is unloaded after the error, and loaded again. */
    library_keep_backend();
}

static TRITONSERVER_Error *make_env(struct runtime *rt, const struct doc *settings)
{
    if (is_broken(&rt->lib))
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "ONNX Runtime from %s could not begin before, for want of memory, "
                             "and cannot be asked again: the server must be started anew",
                             rt->lib.path);
    /* Also before CreateThreadingOptions(): an exception in there ends the process. */
    TRY(room_check(ENV_BYTES, "ONNX Runtime"));
    TRITONSERVER_Error *err = rt->shares_threads ? make_shared_env(rt, settings) : make_own_env(rt);
    if (err && rt->begun)
        note_broken(&rt->lib);
    if (!err)
        crew_serve(rt->crew);
    return err;
}

/* ---- Life ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *open_env(struct runtime *rt, const struct doc *settings)
{
    settings_warn_of_unknown(settings, "onnxruntime", known_settings);
    TRY(setting_int(settings, "default-max-batch-size", INT32_MAX, DEFAULT_MAX_BATCH_SIZE,
                    &rt->default_max_batch_size));
    TRY(setting_int(settings, "inter_op_thread_count", MAX_THREADS, 0, &rt->inter_op_threads));
    TRY(setting_bool(settings, "enable-global-threadpool", true, &rt->shares_threads));
    TRY(setting_bool(settings, "allow-file-settings", false, &rt->allows_files));
    if (sched_getaffinity(getpid(), sizeof(rt->cpus), &rt->cpus) != 0) /* of the first thread */
        CPU_SET(0, &rt->cpus);
    rt->computes_alone = room_is_limited();
    if (rt->computes_alone)
        BACKEND_LOG(INFO, "memory is limited (ulimit -v or -d): an operator computes on one "
                          "thread, unless intra_op_thread_count says more");
    TRY(make_env(rt, settings));
    TRY_ORT(&rt->lib, CreateCpuMemoryInfo(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &rt->cpu));
    TRY_ORT(&rt->lib, GetAllocatorWithDefaultOptions(&rt->heap));
    return watch_new(&rt->watch);
}

TRITONSERVER_Error *runtime_open(const char *backend_dir, const struct doc *settings,
                                 struct runtime **ret_runtime)
{
    struct runtime *rt = calloc(1, sizeof(*rt));
    TRITONSERVER_Error *err;

    if (!rt)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    err = library_open(backend_dir, backend_setting(settings, "library-path"), &rt->lib);
    if (!err)
        err = open_env(rt, settings);
    if (err) {
        runtime_close(rt);
        return err;
    }
    BACKEND_LOG(INFO, "ONNX Runtime %s from %s, providers: %s", rt->lib.version,
                rt->lib.path ? rt->lib.path : "?", rt->lib.providers);
    *ret_runtime = rt;
    return NULL;
}

void runtime_close(struct runtime *rt)
{
    if (!rt)
        return;
    watch_free(rt->watch);
    if (rt->cpu)
        rt->lib.api.ReleaseMemoryInfo(rt->cpu);
    crew_retire(rt->crew);
    if (rt->env)
        rt->lib.api.ReleaseEnv(rt->env);
    crew_free(rt->crew);
    library_done(&rt->lib);
    free(rt);
}
