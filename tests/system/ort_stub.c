/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is ONNX Runtime except for its execution providers. It claims to have those that
 * ORT_STUB_OFFERS names (with commas), and writes the calls about them to the file ORT_STUB_LOG.
 * The library ORT_STUB_REAL does everything else. So a test sees what reaches a provider without
 * having the provider.
 *
 *     cuda create                       an object for its options is made (or tensorrt)
 *     cuda update name=value …          … gets these
 *     append cuda name=value …          it becomes a provider of a session
 *     cuda release
 *     session                           the session is made
 *     SetIntraOpNumThreads to=2 …       with ORT_STUB_TELLS: other calls about options of
 *                                       threads, sessions and runs, under their own names
 *
 * An option `refuse_update` or `refuse_append` makes that call fail; ORT_STUB_FAILS=cuda or
 * tensorrt makes `create` fail. Built by test_onnx_providers.py from the backend's table of
 * functions.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime/ort_api.h"

#define PLACE(place, result, name, parameters) AT_##name = place,
enum { ORT_FUNCTIONS(PLACE) ORT_LATER_FUNCTIONS(PLACE) N_FUNCTIONS };

enum { CREATE_STATUS = 0, FAIL = 1, MAX_PROVIDERS = 8, MAX_TEXT = 4096 };

static const void *table[N_FUNCTIONS];
static struct ort_api real;
static struct ort_status *(*create_status)(int code, const char *message);

/* Writes one line in one call, because models are loaded in parallel. */
static void say(const char *what, const char *more)
{
    FILE *log = fopen(getenv("ORT_STUB_LOG"), "a");

    if (!log)
        abort();
    fprintf(log, "%s%s\n", what, more);
    fclose(log);
}

static void print(char *text, const char *const *names, const char *const *values, size_t n)
{
    size_t len = 0;

    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, len < MAX_TEXT ? MAX_TEXT - len : 0, " %s=%s", names[i],
                                values[i]);
    if (len >= MAX_TEXT)
        abort();
}

static struct ort_status *refusal(const char *text, const char *option)
{
    return strstr(text, option) ? create_status(FAIL, "the stub was told to refuse\nthis call")
                                : NULL;
}

/* ---- Providers ------------------------------------------------------------------------------ */

static char *offers[MAX_PROVIDERS];

static struct ort_status *available(char ***ret_names, int *ret_n)
{
    static char text[MAX_TEXT];
    int n = 0;

    snprintf(text, sizeof(text), "%s", getenv("ORT_STUB_OFFERS"));
    for (char *at = strtok(text, ","); at && n < MAX_PROVIDERS; at = strtok(NULL, ","))
        offers[n++] = at;
    *ret_names = offers;
    *ret_n = n;
    return NULL;
}

static struct ort_status *release_available(char **names, int n)
{
    (void)n;
    return names == offers ? NULL : create_status(FAIL, "these are not the names that were given");
}

static struct ort_status *append(struct ort_options *options, const char *name,
                                 const char *const *names, const char *const *values, size_t n)
{
    char text[MAX_TEXT], what[64];

    (void)options;
    print(text, names, values, n);
    snprintf(what, sizeof(what), "append %s", name);
    say(what, text);
    return refusal(text, "refuse_append");
}

/* The two that have objects for their options are alike. */
#define PROVIDER(word, type)                                                                       \
    struct type {                                                                                  \
        char text[MAX_TEXT];                                                                       \
    };                                                                                             \
    static struct ort_status *create_##word(struct type **ret_options)                             \
    {                                                                                              \
        const char *fails = getenv("ORT_STUB_FAILS");                                              \
                                                                                                   \
        if (fails && strcmp(fails, #word) == 0)                                                    \
            return create_status(FAIL, "no " #word " here");                                       \
        say(#word " create", "");                                                                  \
        *ret_options = calloc(1, sizeof(struct type));                                             \
        return NULL;                                                                               \
    }                                                                                              \
    static struct ort_status *update_##word(struct type *options, const char *const *names,        \
                                            const char *const *values, size_t n)                   \
    {                                                                                              \
        print(options->text, names, values, n);                                                    \
        say(#word " update", options->text);                                                       \
        return refusal(options->text, "refuse_update");                                            \
    }                                                                                              \
    static struct ort_status *append_##word(struct ort_options *options, const struct type *given) \
    {                                                                                              \
        (void)options;                                                                             \
        say("append " #word, given->text);                                                         \
        return refusal(given->text, "refuse_append");                                              \
    }                                                                                              \
    static void release_##word(struct type *options)                                               \
    {                                                                                              \
        say(#word " release", "");                                                                 \
        free(options);                                                                             \
    }

PROVIDER(cuda, ort_cuda)
PROVIDER(tensorrt, ort_tensorrt)

static struct ort_status *create_session(const struct ort_env *env, const char *path,
                                         const struct ort_options *options,
                                         struct ort_session **ret_session)
{
    say("session", "");
    return real.CreateSession(env, path, options, ret_session);
}

/* ---- Other options, which the real library gets, too ----------------------------------------- */

static void tell(const char *what, const char *name, const char *value)
{
    char text[MAX_TEXT];

    snprintf(text, sizeof(text), *name ? " %s=%s" : "", name, value);
    if (getenv("ORT_STUB_TELLS"))
        say(what, text);
}

#define SWITCHES(name)                                                                             \
    static struct ort_status *tell_##name(struct ort_options *options)                             \
    {                                                                                              \
        tell(#name, "", "");                                                                       \
        return real.name(options);                                                                 \
    }
#define SETS(name, of, type)                                                                       \
    static struct ort_status *tell_##name(struct of *options, type value)                          \
    {                                                                                              \
        char number[16];                                                                           \
                                                                                                   \
        snprintf(number, sizeof(number), "%d", (int)value);                                        \
        tell(#name, "to", number);                                                                 \
        return real.name(options, value);                                                          \
    }
#define HANDS_ON(name, of)                                                                         \
    static struct ort_status *tell_##name(struct of *options, const char *key, const char *value)  \
    {                                                                                              \
        tell(#name, key, value);                                                                   \
        return real.name(options, key, value);                                                     \
    }

SWITCHES(DisableCpuMemArena)
SWITCHES(DisableMemPattern)
SWITCHES(DisablePerSessionThreads)
SETS(SetIntraOpNumThreads, ort_options, int)
SETS(SetInterOpNumThreads, ort_options, int)
SETS(SetSessionExecutionMode, ort_options, enum ort_execution_mode)
SETS(SetSessionGraphOptimizationLevel, ort_options, enum ort_graph_level)
SETS(SetGlobalIntraOpNumThreads, ort_threading, int)
SETS(SetGlobalInterOpNumThreads, ort_threading, int)
SETS(SetGlobalSpinControl, ort_threading, int)
HANDS_ON(AddSessionConfigEntry, ort_options)
HANDS_ON(AddRunConfigEntry, ort_run_options)

/* ---- The library ---------------------------------------------------------------------------- */

#define TAKES(name, function) table[AT_##name] = (const void *)(uintptr_t)(function)

static void fill(const void *const *theirs)
{
    memcpy(table, theirs, sizeof(table));
#define TYPED(place, result, name, parameters)                                                     \
    real.name = (__typeof__(real.name))(uintptr_t)theirs[place];
    ORT_FUNCTIONS(TYPED)
    ORT_LATER_FUNCTIONS(TYPED)
    create_status = (__typeof__(create_status))(uintptr_t)theirs[CREATE_STATUS];
    TAKES(GetAvailableProviders, available);
    TAKES(ReleaseAvailableProviders, release_available);
    TAKES(SessionOptionsAppendExecutionProvider, append);
    TAKES(CreateCUDAProviderOptions, create_cuda);
    TAKES(UpdateCUDAProviderOptions, update_cuda);
    TAKES(SessionOptionsAppendExecutionProvider_CUDA_V2, append_cuda);
    TAKES(ReleaseCUDAProviderOptions, release_cuda);
    TAKES(CreateTensorRTProviderOptions, create_tensorrt);
    TAKES(UpdateTensorRTProviderOptions, update_tensorrt);
    TAKES(SessionOptionsAppendExecutionProvider_TensorRT_V2, append_tensorrt);
    TAKES(ReleaseTensorRTProviderOptions, release_tensorrt);
    TAKES(CreateSession, create_session);
    TAKES(DisableCpuMemArena, tell_DisableCpuMemArena);
    TAKES(DisableMemPattern, tell_DisableMemPattern);
    TAKES(DisablePerSessionThreads, tell_DisablePerSessionThreads);
    TAKES(SetIntraOpNumThreads, tell_SetIntraOpNumThreads);
    TAKES(SetInterOpNumThreads, tell_SetInterOpNumThreads);
    TAKES(SetSessionExecutionMode, tell_SetSessionExecutionMode);
    TAKES(SetSessionGraphOptimizationLevel, tell_SetSessionGraphOptimizationLevel);
    TAKES(SetGlobalIntraOpNumThreads, tell_SetGlobalIntraOpNumThreads);
    TAKES(SetGlobalInterOpNumThreads, tell_SetGlobalInterOpNumThreads);
    TAKES(SetGlobalSpinControl, tell_SetGlobalSpinControl);
    TAKES(AddSessionConfigEntry, tell_AddSessionConfigEntry);
    TAKES(AddRunConfigEntry, tell_AddRunConfigEntry);
}

static const struct ort_api_base *real_base(void)
{
    void *library = dlopen(getenv("ORT_STUB_REAL"), RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "OrtGetApiBase") : NULL;
    ort_get_api_base_fn *get;

    if (!symbol)
        abort();
    memcpy(&get, &symbol, sizeof(get));
    return get();
}

static const void *const *get_api(uint32_t version)
{
    const void *const *theirs = real_base()->GetApi(version);

    if (theirs)
        fill(theirs);
    return theirs ? table : NULL;
}

static const char *get_version(void)
{
    const char *version = getenv("ORT_STUB_VERSION");

    return version ? version : real_base()->GetVersionString();
}

ort_get_api_base_fn OrtGetApiBase;

const struct ort_api_base *OrtGetApiBase(void)
{
    static const struct ort_api_base base = {get_api, get_version};

    return &base;
}
