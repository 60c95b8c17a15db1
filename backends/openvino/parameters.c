/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters, their values and the texts of errors are those of Triton's OpenVINO backend, but
 * for INFERENCE_PRECISION_HINT, which is ours. Values may be written in any case. No state.
 */
#include "openvino/model.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

/* The properties of OpenVINO that parameters set. */
enum kind { NUMBER, STREAMS, BF16, PRECISION, HINT };

static const struct parameter {
    const char *name, *property;
    enum kind kind;
} parameters[] = {
    {"INFERENCE_NUM_THREADS", "INFERENCE_NUM_THREADS", NUMBER},
    {"COMPILATION_NUM_THREADS", "COMPILATION_NUM_THREADS", NUMBER},
    {"HINT_BF16", "INFERENCE_PRECISION_HINT", BF16},
    {"INFERENCE_PRECISION_HINT", "INFERENCE_PRECISION_HINT", PRECISION},
    {"NUM_STREAMS", "NUM_STREAMS", STREAMS},
    {"PERFORMANCE_HINT", "PERFORMANCE_HINT", HINT},
};

#define N_PARAMETERS (sizeof(parameters) / sizeof(parameters[0]))
_Static_assert(N_PARAMETERS + 1 < sizeof(((struct asked *)0)->properties) / sizeof(struct property),
               "one more for the number of streams, and the end");

static bool is_small_number(const char *value)
{
    size_t len = strlen(value);

    return len > 0 && len < 10 && strspn(value, "0123456789") == len;
}

static bool is_word_of(const char *value, const char *const *all)
{
    for (; *all; all++)
        if (strcmp(value, *all) == 0)
            return true;
    return false;
}

static const char *expected_value(enum kind kind, const char *value)
{
    static const char *const streams[] = {"AUTO", "NUMA", NULL};
    static const char *const precisions[] = {"F32", "BF16", "F16", NULL};
    static const char *const hints[] = {"LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT", NULL};

    if (kind == NUMBER)
        return is_small_number(value) ? NULL : "a non-negative number";
    if (kind == BF16)
        return strcmp(value, "YES") == 0 ? NULL : "YES";
    if (kind == PRECISION)
        return is_word_of(value, precisions) ? NULL : "F32/BF16/F16";
    if (kind == STREAMS)
        return is_small_number(value) || is_word_of(value, streams)
                   ? NULL
                   : "either AUTO/NUMA/<int_value>";
    return is_word_of(value, hints) ? NULL : "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT";
}

/* letter: toupper or tolower */
static void copy_letters(char *to, size_t size, const char *value, int (*letter)(int))
{
    size_t i = 0;

    for (; value[i] && i < size - 1; i++)
        to[i] = (char)letter((unsigned char)value[i]);
    to[i] = '\0';
}

static TRITONSERVER_Error *read_property(const struct doc *config, const struct parameter *p,
                                         struct property **at)
{
    const char *value = backend_parameter(config, p->name), *expected;
    struct property *to = *at;

    if (!value || !*value)
        return NULL;
    copy_letters(to->value, sizeof(to->value), value, toupper);
    expected = expected_value(p->kind, to->value);
    if (expected)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "expected the parameter '%s' to be %s, got %s", p->name, expected,
                             value);
    if (p->kind == BF16)
        snprintf(to->value, sizeof(to->value), "bf16");
    if (p->kind == PRECISION)
        copy_letters(to->value, sizeof(to->value), value, tolower);
    to->key = p->property;
    (*at)++;
    return NULL;
}

static bool is_parameter_yes(const struct doc *config, const char *name)
{
    const char *value = backend_parameter(config, name);

    return value && strcasecmp(value, "yes") == 0;
}

/* The number of instances, as the completed configuration has it. */
static int64_t count_configured_instances(const struct doc *config)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(config), "instance_group"));
    int64_t all = 0;

    for (; v; v = v->next) {
        int64_t n = 1;

        doc_int(doc_get(v, "count"), &n);
        all += n > 0 && n < 1024 ? n : 1;
    }
    return all;
}

static bool sets_property(const struct asked *a, const char *key)
{
    for (const struct property *p = a->properties; p->key; p++)
        if (strcmp(p->key, key) == 0)
            return true;
    return false;
}

/* Adds a property unless it is set. */
static void __attribute__((format(printf, 4, 5)))
add_property(const struct asked *a, struct property **at, const char *key, const char *fmt, ...)
{
    va_list args;

    if (sets_property(a, key))
        return;
    va_start(args, fmt);
    vsnprintf((*at)->value, sizeof((*at)->value), fmt, args);
    va_end(args);
    (*at)++->key = key;
}

/* OpenVINO executes as many requests at the same time as it has streams; by default that is one on
 * most machines, and the instances of a model would wait for each other. */
static void choose_streams(const struct doc *config, const struct asked *a, struct property **at)
{
    int64_t n = count_configured_instances(config);

    if (n > 1 && strcmp(a->device, "CPU") == 0 && !sets_property(a, "PERFORMANCE_HINT"))
        add_property(a, at, "NUM_STREAMS", "%lld", (long long)n);
}

/* Is the property unset, or this value? */
static bool leaves_property(const struct asked *a, const char *key, const char *value)
{
    for (const struct property *p = a->properties; p->key; p++)
        if (strcmp(p->key, key) == 0)
            return strcmp(p->value, value) == 0;
    return true;
}

void ask_for_callers_thread(struct asked *a)
{
    struct property *at = a->properties;

    while (at->key)
        at++;
    if (leaves_property(a, "INFERENCE_NUM_THREADS", "1") && !sets_property(a, "PERFORMANCE_HINT"))
        add_property(a, &at, "NUM_STREAMS", "0");
}

void heed_cpu_quota(struct asked *a)
{
    int limit = backend_cpu_limit(NULL);
    struct property *at = a->properties;

    while (at->key)
        at++;
    if (limit > 0 && strcmp(a->device, "CPU") == 0)
        add_property(a, &at, "INFERENCE_NUM_THREADS", "%d", limit);
}

TRITONSERVER_Error *read_parameters(const struct doc *config, const struct origin *origin,
                                    struct asked *ret_asked)
{
    struct asked a = {.device = "CPU"};
    const char *device = backend_parameter(config, "TARGET_DEVICE");
    const char *extension = backend_parameter(config, "CPU_EXTENSION_PATH");
    struct property *at = a.properties;

    if (device && strlen(device) >= sizeof(a.device))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "expected the parameter 'TARGET_DEVICE' to be a device, got %s",
                             device);
    if (device && *device)
        copy_letters(a.device, sizeof(a.device), device, toupper);
    a.extension = extension && *extension ? extension : NULL;
    a.fixed_batch = is_parameter_yes(config, "SKIP_OV_DYNAMIC_BATCHSIZE");
    a.pad = is_parameter_yes(config, "ENABLE_BATCH_PADDING");
    a.reshape = is_parameter_yes(config, "RESHAPE_IO_LAYERS") ||
                is_parameter_yes(config, "RESHAPE_IO_LAYOUTS");
    for (size_t i = 0; i < N_PARAMETERS; i++)
        TRY(read_property(config, &parameters[i], &at));
    if (origin && origin->threads > 0)
        add_property(&a, &at, "INFERENCE_NUM_THREADS", "%lld", (long long)origin->threads);
    if (origin && origin->exact)
        add_property(&a, &at, "INFERENCE_PRECISION_HINT", "f32");
    choose_streams(config, &a, &at);
    *ret_asked = a;
    return NULL;
}
