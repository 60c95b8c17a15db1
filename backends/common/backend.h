/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend - what every backend needs: errors with a format, log lines, configuration, time, and
 * the few steps with requests that are always the same.
 *
 * Only the public interface is used, so a backend built on this loads into Conch and into Triton.
 */
#ifndef BACKENDS_COMMON_BACKEND_H
#define BACKENDS_COMMON_BACKEND_H

#include "common/doc.h"
#include "triton/core/tritonbackend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* TRY - leave the function with the error of a call that failed. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        TRITONSERVER_Error *try_err = (call);                                                      \
        if (try_err)                                                                               \
            return try_err;                                                                        \
    } while (0)

/* backend_error - a new error with a formatted message; the caller owns it. */
TRITONSERVER_Error *backend_error(TRITONSERVER_Error_Code code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), returns_nonnull));

/*
 * backend_ignore - log an error that has no receiver, and free it.
 * @err   taken; NULL is fine
 * @what  the step that failed, for the log line
 */
void backend_ignore(TRITONSERVER_Error *err, const char *what);

/* BACKEND_LOG - one line in the server's log. Arguments are evaluated only if it is written.
 * @level  INFO, WARN, ERROR or VERBOSE */
#define BACKEND_LOG(level, ...)                                                                    \
    do {                                                                                           \
        if (TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_##level))                                   \
            backend_log(TRITONSERVER_LOG_##level, __FILE__, __LINE__, __VA_ARGS__);                \
    } while (0)
void backend_log(TRITONSERVER_LogLevel level, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* backend_check_version - can this server run a backend compiled with these headers? */
TRITONSERVER_Error *backend_check_version(void);

/*
 * backend_refuse_gpu - an error if this instance is to be on a GPU.
 * @model  its name, which the text has at the first "%s", if there is one
 * @text   the error's
 * Errors: INVALID_ARG  it is
 */
TRITONSERVER_Error *backend_refuse_gpu(TRITONBACKEND_ModelInstance *instance, const char *model,
                                       const char *text);

/*
 * backend_report_memory - tell the server how much of the machine's memory a model keeps, or one of
 * its instances: memory_usage of the statistics. Replaces what was told before.
 * @instance  NULL: the model itself
 */
TRITONSERVER_Error *backend_report_memory(TRITONBACKEND_Model *model,
                                          TRITONBACKEND_ModelInstance *instance, uint64_t bytes);

/*
 * backend_declare_bounded - declare that the size of the inputs bounds the time of an execution
 * (include/conch/backend.h). No effect on a server without that function.
 */
TRITONSERVER_Error *backend_declare_bounded(TRITONBACKEND_Model *model);

/*
 * backend_cpu_limit - how many threads a framework should compute with, where the server may use
 * less CPU time than its CPUs have (conch_cpu_count() in include/conch/backend.h). 0: there is no
 * such limit, or the server does not say; frameworks count the CPUs by themselves.
 * @variable  of the environment, by which users tell the framework the number: where it is set,
 *            there is no limit. NULL: the framework reads none
 */
int backend_cpu_limit(const char *variable);

/* backend_now_ns - the clock of the statistics. */
uint64_t backend_now_ns(void);

/* backend_pause_ms - sleep; signals do not end it early. */
void backend_pause_ms(int64_t ms);

/* backend_setting - a setting of the backend from the command line; NULL if it was not given.
 * @config  as backend_settings() gives it */
const char *backend_setting(const struct doc *config, const char *name);
TRITONSERVER_Error *backend_settings(TRITONBACKEND_Backend *backend, struct doc **ret_config);

/* backend_model_config - a model's configuration; the caller ends it with doc_free(). */
TRITONSERVER_Error *backend_model_config(TRITONBACKEND_Model *model, struct doc **ret_config);

/* backend_parameter - the string_value of a model's parameter; NULL if it has none. Borrowed. */
const char *backend_parameter(const struct doc *config, const char *key);

/*
 * backend_parameter_int - the same as a number.
 * @otherwise  the result if the model has no such parameter
 * Errors: INVALID_ARG  the parameter is no whole number from min to max
 */
TRITONSERVER_Error *backend_parameter_int(const struct doc *config, const char *key, int64_t min,
                                          int64_t max, int64_t otherwise, int64_t *ret_number);

/* backend_read_bool - reads yes or no as Triton does: true, on, 1; false, off, 0; in small or large
 * letters. False: the text is none of them. */
bool backend_read_bool(const char *text, bool *ret_yes);

/*
 * backend_parameter_bool - a parameter as yes or no.
 * Errors: INVALID_ARG  backend_read_bool() does not know the word
 */
TRITONSERVER_Error *backend_parameter_bool(const struct doc *config, const char *key,
                                           bool otherwise, bool *ret_yes);

/*
 * backend_first_accelerator - the first of a model's execution accelerators, which has a name and
 * parameters; `next` leads to the others. NULL if there is none. Borrowed.
 * @side  "cpu_execution_accelerator" or "gpu_execution_accelerator"
 */
const struct doc_value *backend_first_accelerator(const struct doc *config, const char *side);

/*
 * backend_escapes_folder - does this relative path lead out of its folder? True for absolute paths
 * and for all with "..". The file system is not read, so that an error does not tell what is there.
 */
bool backend_escapes_folder(const char *path);

/*
 * backend_input_copy - all bytes of an input, from however many buffers, into one.
 * @to  room for size bytes
 * Errors: INTERNAL     the buffers do not hold size bytes
 *         UNSUPPORTED  one of them lives on a GPU
 */
TRITONSERVER_Error *backend_input_copy(TRITONBACKEND_Input *input, uint32_t n_buffers, void *to,
                                       uint64_t size);

/*
 * backend_output_alloc - memory for an output, which must be on the host.
 * Errors: UNSUPPORTED  the server gave memory of a GPU
 *         UNAVAILABLE  the server or the client's allocator returned neither memory nor an error
 */
TRITONSERVER_Error *backend_output_alloc(TRITONBACKEND_Output *output, uint64_t size,
                                         void **ret_buffer);

/*
 * backend_send_error - send a request's only response: an error.
 * @response  taken; NULL: one is made
 * @err       taken
 * The caller still has the request, and releases it.
 */
void backend_send_error(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response,
                        TRITONSERVER_Error *err);

#ifdef __cplusplus
}
#endif
#endif
