/* SPDX-License-Identifier: Apache-2.0 */
/*
 * These functions wrap calls of the public interface. The file keeps no state, so any thread may
 * call them. Those of conch/backend.h are weak symbols: only Conch has them.
 */
#include "common/backend.h"

#include "conch/backend.h"

#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

TRITONSERVER_Error *backend_error(TRITONSERVER_Error_Code code, const char *fmt, ...)
{
    TRITONSERVER_Error *err;
    char *text = NULL;
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    err = TRITONSERVER_ErrorNew(code, text ? text : "out of memory");
    free(text);
    return err;
}

void backend_ignore(TRITONSERVER_Error *err, const char *what)
{
    if (!err)
        return;
    BACKEND_LOG(ERROR, "%s: %s - %s", what, TRITONSERVER_ErrorCodeString(err),
                TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
}

void backend_log(TRITONSERVER_LogLevel level, const char *file, int line, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    if (text)
        TRITONSERVER_ErrorDelete(TRITONSERVER_LogMessage(level, file, line, text));
    free(text);
}

/* These backends call nothing younger than version 1.15, so they also run in servers older than
 * the headers. */
#define NEEDED_MINOR 15

/* Functions of Conch only; in other servers the loader leaves NULL. */
extern __typeof__(conch_model_declare_bounded) conch_model_declare_bounded __attribute__((weak));
extern __typeof__(conch_cpu_count) conch_cpu_count __attribute__((weak));

TRITONSERVER_Error *backend_refuse_gpu(TRITONBACKEND_ModelInstance *instance, const char *model,
                                       const char *text)
{
    const char *place = strstr(text, "%s");
    TRITONSERVER_InstanceGroupKind kind;

    TRY(TRITONBACKEND_ModelInstanceKind(instance, &kind));
    if (kind != TRITONSERVER_INSTANCEGROUPKIND_GPU)
        return NULL;
    if (!place)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "%s", text);
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "%.*s%s%s", (int)(place - text), text,
                         model, place + 2);
}

TRITONSERVER_Error *backend_report_memory(TRITONBACKEND_Model *model,
                                          TRITONBACKEND_ModelInstance *instance, uint64_t bytes)
{
    TRITONSERVER_BufferAttributes *usage;
    TRITONSERVER_Error *err;

    TRY(TRITONSERVER_BufferAttributesNew(&usage)); /* of the machine's memory, device 0 */
    err = TRITONSERVER_BufferAttributesSetByteSize(usage, bytes);
    if (!err)
        err = instance ? TRITONBACKEND_ModelInstanceReportMemoryUsage(instance, &usage, 1)
                       : TRITONBACKEND_ModelReportMemoryUsage(model, &usage, 1);
    backend_ignore(TRITONSERVER_BufferAttributesDelete(usage), "ending a report of memory");
    return err;
}

TRITONSERVER_Error *backend_declare_bounded(TRITONBACKEND_Model *model)
{
    return conch_model_declare_bounded ? conch_model_declare_bounded(model) : NULL;
}

int backend_cpu_limit(const char *variable)
{
    cpu_set_t cpus;
    int n;

    if (!conch_cpu_count || (variable && getenv(variable)))
        return 0;
    n = conch_cpu_count();
    /* Of the first thread: the one that calls may be bound for a model. */
    return sched_getaffinity(getpid(), sizeof(cpus), &cpus) == 0 && n < CPU_COUNT(&cpus) ? n : 0;
}

TRITONSERVER_Error *backend_check_version(void)
{
    uint32_t major, minor;

    TRY(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != TRITONBACKEND_API_VERSION_MAJOR || minor < NEEDED_MINOR)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "the server's backend API is version %u.%u, this backend needs %d.%d",
                             (unsigned int)major, (unsigned int)minor,
                             TRITONBACKEND_API_VERSION_MAJOR, NEEDED_MINOR);
    return NULL;
}

uint64_t backend_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void backend_pause_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    if (ms == 0) /* nanosleep(0) still sleeps, 50 us and more */
        return;
    while (nanosleep(&left, &left) != 0)
        ;
}

static TRITONSERVER_Error *parse_message(TRITONSERVER_Message *message, struct doc **ret_doc)
{
    const char *text, *why;
    struct doc *d;
    size_t len;

    TRY(TRITONSERVER_MessageSerializeToJson(message, &text, &len));
    d = doc_parse(text, len, &why);
    if (!d)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "the server's JSON is wrong: %s", why);
    *ret_doc = d;
    return NULL;
}

TRITONSERVER_Error *backend_settings(TRITONBACKEND_Backend *backend, struct doc **ret_config)
{
    TRITONSERVER_Message *message;

    TRY(TRITONBACKEND_BackendConfig(backend, &message));
    return parse_message(message, ret_config);
}

const char *backend_setting(const struct doc *config, const char *name)
{
    return doc_string(doc_get(doc_get(doc_root(config), "cmdline"), name), NULL);
}

TRITONSERVER_Error *backend_model_config(TRITONBACKEND_Model *model, struct doc **ret_config)
{
    TRITONSERVER_Message *message;
    TRITONSERVER_Error *err;

    TRY(TRITONBACKEND_ModelConfig(model, 1, &message));
    err = parse_message(message, ret_config);
    backend_ignore(TRITONSERVER_MessageDelete(message), "deleting a message");
    return err;
}

const char *backend_parameter(const struct doc *config, const char *key)
{
    const struct doc_value *parameters = doc_get(doc_root(config), "parameters");

    return doc_string(doc_get(doc_get(parameters, key), "string_value"), NULL);
}

TRITONSERVER_Error *backend_parameter_int(const struct doc *config, const char *key, int64_t min,
                                          int64_t max, int64_t otherwise, int64_t *ret_number)
{
    const struct doc_value *parameters = doc_get(doc_root(config), "parameters");
    const struct doc_value *value = doc_get(doc_get(parameters, key), "string_value");
    int64_t number = otherwise;

    if (value && (!doc_int(value, &number) || number < min || number > max))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "parameter '%s' must be a whole number from %lld to %lld, got '%s'",
                             key, (long long)min, (long long)max, doc_string(value, ""));
    *ret_number = number;
    return NULL;
}

static bool is_bool_word(const char *text, const char *a, const char *b, const char *c)
{
    return strcasecmp(text, a) == 0 || strcasecmp(text, b) == 0 || strcasecmp(text, c) == 0;
}

bool backend_read_bool(const char *text, bool *ret_yes)
{
    bool yes = is_bool_word(text, "true", "on", "1");

    if (!yes && !is_bool_word(text, "false", "off", "0"))
        return false;
    *ret_yes = yes;
    return true;
}

TRITONSERVER_Error *backend_parameter_bool(const struct doc *config, const char *key,
                                           bool otherwise, bool *ret_yes)
{
    const char *text = backend_parameter(config, key);

    *ret_yes = otherwise;
    if (text && !backend_read_bool(text, ret_yes))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "parameter '%s' must be true or false, got '%s'", key, text);
    return NULL;
}

const struct doc_value *backend_first_accelerator(const struct doc *config, const char *side)
{
    const struct doc_value *optimization = doc_get(doc_root(config), "optimization");

    return doc_first(doc_get(doc_get(optimization, "execution_accelerators"), side));
}

bool backend_escapes_folder(const char *path)
{
    if (*path == '/')
        return true;
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

TRITONSERVER_Error *backend_input_copy(TRITONBACKEND_Input *input, uint32_t n_buffers, void *to,
                                       uint64_t size)
{
    uint64_t done = 0;

    for (uint32_t i = 0; i < n_buffers; i++) {
        TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
        int64_t type_id = 0;
        const void *from;
        uint64_t n;

        TRY(TRITONBACKEND_InputBuffer(input, i, &from, &n, &type, &type_id));
        if (type == TRITONSERVER_MEMORY_GPU)
            return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "input data in GPU memory is not supported");
        if (n > size - done)
            return backend_error(TRITONSERVER_ERROR_INTERNAL,
                                 "input has more data than its %llu bytes",
                                 (unsigned long long)size);
        if (n > 0)
            memcpy((char *)to + done, from, n);
        done += n;
    }
    if (done != size)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "input has %llu of its %llu bytes",
                             (unsigned long long)done, (unsigned long long)size);
    return NULL;
}

TRITONSERVER_Error *backend_output_alloc(TRITONBACKEND_Output *output, uint64_t size,
                                         void **ret_buffer)
{
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t type_id = 0;
    void *buffer = NULL;

    TRY(TRITONBACKEND_OutputBuffer(output, &buffer, size, &type, &type_id));
    if (!buffer && size > 0)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "the response allocator gave no memory for an output of %llu bytes",
                             (unsigned long long)size);
    if (type == TRITONSERVER_MEMORY_GPU)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "output data in GPU memory is not supported");
    *ret_buffer = buffer;
    return NULL;
}

void backend_send_error(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response,
                        TRITONSERVER_Error *err)
{
    if (!response)
        backend_ignore(TRITONBACKEND_ResponseNew(&response, request), "making an error response");
    if (response)
        backend_ignore(
            TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, err),
            "sending an error response");
    TRITONSERVER_ErrorDelete(err);
}
