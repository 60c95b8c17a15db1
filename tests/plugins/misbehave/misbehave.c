/* SPDX-License-Identifier: Apache-2.0 */
/*
 * misbehave - a backend that breaks the rules of tritonbackend.h on purpose.
 *
 * The model has one input IN and one output OUT, INT32 [-1]. The request parameter `do` (a string)
 * chooses what the backend does with the request; without it OUT is IN, by the rules. The server
 * must answer each of these requests exactly once and clearly, and go on. The behaviours that
 * answer or release late do so after `ms` (an integer) milliseconds, or once the file `hold` (its
 * path) does not exist.
 *
 * The parameter `array` chooses what happens to the array of requests: `zeroed`, `reversed` or
 * `shifted` before the call returns, `released` as RequestsRespondWithError() of the public backend
 * repository does it. With the parameter `fail` the call then returns an error. In a batch, the
 * parameters of the first request hold.
 *
 * Every behaviour is a function, named in the table at the end.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "triton/core/tritonbackend.h"

#define FINAL TRITONSERVER_RESPONSE_COMPLETE_FINAL
#define ALL   TRITONSERVER_REQUEST_RELEASE_ALL

typedef TRITONSERVER_Error *behaviour_fn(TRITONBACKEND_Request *request);

/* Frees an error that is expected, or that cannot be handled. */
static void drop(TRITONSERVER_Error *err)
{
    if (err)
        TRITONSERVER_ErrorDelete(err);
}

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "misbehave: %s\n", TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
}

static void pause_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&left, &left) != 0)
        ;
}

/* Returns the parameter's value: a string, or the address of an integer. */
static const void *parameter(TRITONBACKEND_Request *request, const char *wanted,
                             TRITONSERVER_ParameterType wanted_type)
{
    uint32_t n = 0;

    must(TRITONBACKEND_RequestParameterCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const void *value;
        const char *key;

        must(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        if (strcmp(key, wanted) == 0 && type == wanted_type)
            return value;
    }
    return NULL;
}

struct delay {
    int64_t ms;
    char hold[512];
};

static struct delay delay_of(TRITONBACKEND_Request *request)
{
    const int64_t *ms = parameter(request, "ms", TRITONSERVER_PARAMETER_INT);
    const char *hold = parameter(request, "hold", TRITONSERVER_PARAMETER_STRING);
    struct delay delay = {.ms = ms ? *ms : 0};

    snprintf(delay.hold, sizeof(delay.hold), "%s", hold ? hold : "");
    return delay;
}

static void wait_for(const struct delay *delay)
{
    if (!delay->hold[0])
        pause_ms(delay->ms);
    while (delay->hold[0] && access(delay->hold, F_OK) == 0)
        pause_ms(1);
}

/* ---- What a good backend does, in parts ------------------------------------------------------ */

static void put_ints(TRITONBACKEND_Response *response, const int32_t *values, int64_t n)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Output *output;
    int64_t memory_id = 0;
    void *to;

    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, &n, 1));
    must(TRITONBACKEND_OutputBuffer(output, &to, (uint64_t)n * sizeof(*values), &memory,
                                    &memory_id));
    if (n > 0)
        memcpy(to, values, (size_t)n * sizeof(*values));
}

/* OUT := IN. */
static void echo(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Input *input;
    const void *data = NULL;
    int64_t memory_id = 0;
    uint64_t size = 0;
    uint32_t n_buffers;

    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    must(TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, NULL, &n_buffers));
    if (n_buffers > 0)
        must(TRITONBACKEND_InputBuffer(input, 0, &data, &size, &memory, &memory_id));
    put_ints(response, data, (int64_t)(size / sizeof(int32_t)));
}

static TRITONBACKEND_Response *echo_response(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *response = NULL;

    must(TRITONBACKEND_ResponseNew(&response, request));
    echo(request, response);
    return response;
}

static void release(TRITONBACKEND_Request *request)
{
    must(TRITONBACKEND_RequestRelease(request, ALL));
}

static TRITONSERVER_Error *be_good(TRITONBACKEND_Request *request)
{
    must(TRITONBACKEND_ResponseSend(echo_response(request), FINAL, NULL));
    release(request);
    return NULL;
}

/* Answers with an error that has this text. */
static TRITONSERVER_Error *say(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response,
                               const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static TRITONSERVER_Error *say(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response,
                               const char *fmt, ...)
{
    TRITONSERVER_Error *err;
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (!response)
        must(TRITONBACKEND_ResponseNew(&response, request));
    err = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
    must(TRITONBACKEND_ResponseSend(response, FINAL, err));
    TRITONSERVER_ErrorDelete(err);
    release(request);
    return NULL;
}

/* Answers with the text of an error that a call should have returned, and frees the error. */
static TRITONSERVER_Error *say_error(TRITONBACKEND_Request *request,
                                     TRITONBACKEND_Response *response, TRITONSERVER_Error *err)
{
    say(request, response, "%s", err ? TRITONSERVER_ErrorMessage(err) : "the call was accepted");
    drop(err);
    return NULL;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *execute_error(TRITONBACKEND_Request *request)
{
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "execute has failed");
}

static TRITONSERVER_Error *error_response(TRITONBACKEND_Request *request)
{
    return say(request, NULL, "this request is no good");
}

static TRITONSERVER_Error *error_with_outputs(TRITONBACKEND_Request *request)
{
    return say(request, echo_response(request), "too late");
}

/* Not allowed: after an answer the error has no request left. */
static TRITONSERVER_Error *answer_then_error(TRITONBACKEND_Request *request)
{
    must(TRITONBACKEND_ResponseSend(echo_response(request), FINAL, NULL));
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL,
                                 "execute has failed after its answer");
}

static TRITONSERVER_Error *release_then_error(TRITONBACKEND_Request *request)
{
    be_good(request);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL,
                                 "execute has failed after its release");
}

static TRITONSERVER_Error *lose_then_error(TRITONBACKEND_Request *request)
{
    release(request);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL,
                                 "execute has failed after its release");
}

/* ---- Too few answers ------------------------------------------------------------------------- */

static TRITONSERVER_Error *no_answer(TRITONBACKEND_Request *request)
{
    release(request);
    return NULL;
}

static TRITONSERVER_Error *unsent_answer(TRITONBACKEND_Request *request)
{
    must(TRITONBACKEND_ResponseDelete(echo_response(request)));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *no_final(TRITONBACKEND_Request *request)
{
    must(TRITONBACKEND_ResponseSend(echo_response(request), 0, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *only_final(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_ResponseFactory *factory;

    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    must(TRITONBACKEND_ResponseFactorySendFlags(factory, FINAL));
    release(request);
    must(TRITONBACKEND_ResponseFactoryDelete(factory));
    return NULL;
}

/* A factory could answer after the release, but its deletion says that it does not. */
static TRITONSERVER_Error *unused_factory(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_ResponseFactory *factory;

    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    release(request);
    must(TRITONBACKEND_ResponseFactoryDelete(factory));
    return NULL;
}

/* ---- Too many answers ------------------------------------------------------------------------ */

static TRITONSERVER_Error *two_responses(TRITONBACKEND_Request *request)
{
    must(TRITONBACKEND_ResponseSend(echo_response(request), 0, NULL));
    drop(TRITONBACKEND_ResponseSend(echo_response(request), FINAL, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *after_final(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *first = echo_response(request), *second = echo_response(request);

    must(TRITONBACKEND_ResponseSend(first, FINAL, NULL));
    drop(TRITONBACKEND_ResponseSend(second, 0, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *two_finals(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *first = echo_response(request), *second = echo_response(request);

    must(TRITONBACKEND_ResponseSend(first, FINAL, NULL));
    drop(TRITONBACKEND_ResponseSend(second, FINAL, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *release_twice(TRITONBACKEND_Request *request)
{
    must(TRITONBACKEND_ResponseSend(echo_response(request), FINAL, NULL));
    release(request);
    drop(TRITONBACKEND_RequestRelease(request, ALL));
    return NULL;
}

static TRITONSERVER_Error *reschedule(TRITONBACKEND_Request *request)
{
    TRITONSERVER_Error *err =
        TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE);

    /* If accepted, the response would no longer be ours. */
    return err ? say_error(request, NULL, err) : NULL;
}

/* ---- Late, which is allowed ------------------------------------------------------------------ */

struct later {
    TRITONBACKEND_Request *request;         /* NULL: not released */
    TRITONBACKEND_ResponseFactory *factory; /* NULL: no answer by it */
    TRITONBACKEND_Response *response;       /* NULL: not sent */
    struct delay delay;
};

static void *do_later(void *arg)
{
    struct later *later = arg;

    wait_for(&later->delay);
    if (later->factory) {
        static const int32_t values[] = {7, 7};
        TRITONBACKEND_Response *response;

        must(TRITONBACKEND_ResponseNewFromFactory(&response, later->factory));
        put_ints(response, values, 2);
        drop(TRITONBACKEND_ResponseSend(response, FINAL, NULL)); /* had an answer? */
        must(TRITONBACKEND_ResponseFactoryDelete(later->factory));
    }
    if (later->response)
        drop(TRITONBACKEND_ResponseSend(later->response, FINAL, NULL));
    if (later->request)
        release(later->request);
    free(later);
    return NULL;
}

static const char home = 'h'; /* an address in this library */

/* Threads that are never joined may still run in the library after its last model has ended, so
 * the library is never unloaded. */
static void stay(void)
{
    Dl_info own;

    if (!dladdr(&home, &own) || !dlopen(own.dli_fname, RTLD_NOW | RTLD_NODELETE))
        abort();
}

static void start_later(struct later what)
{
    static atomic_uint n_late;
    struct later *later = malloc(sizeof(*later));
    pthread_t thread;
    char text[64];

    if (!later)
        abort();
    stay();
    snprintf(text, sizeof(text), "somebody is late, number %u", atomic_fetch_add(&n_late, 1) + 1);
    drop(TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, text));
    *later = what;
    if (pthread_create(&thread, NULL, do_later, later) != 0)
        abort();
    pthread_detach(thread);
}

static TRITONSERVER_Error *late_answer(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_ResponseFactory *factory;
    struct delay delay = delay_of(request);

    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    release(request);
    start_later((struct later){.factory = factory, .delay = delay});
    return NULL;
}

static TRITONSERVER_Error *late_release(TRITONBACKEND_Request *request)
{
    struct delay delay = delay_of(request);

    must(TRITONBACKEND_ResponseSend(echo_response(request), FINAL, NULL));
    start_later((struct later){.request = request, .delay = delay});
    return NULL;
}

static TRITONSERVER_Error *late_both(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_ResponseFactory *factory;
    struct delay delay = delay_of(request);

    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    start_later((struct later){.request = request, .factory = factory, .delay = delay});
    return NULL;
}

/* A response can send, too. */
static TRITONSERVER_Error *late_response(TRITONBACKEND_Request *request)
{
    struct delay delay = delay_of(request);
    TRITONBACKEND_Response *response = echo_response(request);

    release(request);
    start_later((struct later){.response = response, .delay = delay});
    return NULL;
}

/* The call itself takes as long as the test wants. */
static TRITONSERVER_Error *stuck(TRITONBACKEND_Request *request)
{
    struct delay delay = delay_of(request);

    wait_for(&delay);
    drop(TRITONBACKEND_ResponseSend(echo_response(request), FINAL, NULL)); /* had an answer? */
    release(request);
    return NULL;
}

/* ---- Late, which is not allowed -------------------------------------------------------------- */

static TRITONSERVER_Error *late_second_answer(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_ResponseFactory *factory;
    struct delay delay = delay_of(request);

    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    be_good(request);
    start_later((struct later){.factory = factory, .delay = delay});
    return NULL;
}

/* The error answers the request, and gives it back to the server, while a thread still wants to
 * answer it. */
static TRITONSERVER_Error *error_then_late_answer(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_ResponseFactory *factory;
    struct delay delay = delay_of(request);

    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    start_later((struct later){.factory = factory, .delay = delay});
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "execute has failed");
}

/* ---- Wrong outputs --------------------------------------------------------------------------- */

static TRITONSERVER_Error *wrong_output(TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    int64_t memory_id = 0, n = 1;
    TRITONSERVER_Error *err;
    void *to;

    must(TRITONBACKEND_ResponseNew(&response, request));
    err = TRITONBACKEND_ResponseOutput(response, &output, "NOPE", TRITONSERVER_TYPE_INT32, &n, 1);
    if (err)
        return say_error(request, response, err);
    must(TRITONBACKEND_OutputBuffer(output, &to, sizeof(int32_t), &memory, &memory_id));
    memset(to, 0, sizeof(int32_t));
    drop(TRITONBACKEND_ResponseSend(response, FINAL, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *no_outputs(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *response;

    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseSend(response, FINAL, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *no_buffer(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    int64_t n = 1000;

    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, &n, 1));
    drop(TRITONBACKEND_ResponseSend(response, FINAL, NULL));
    release(request);
    return NULL;
}

/* Asks for this number of bytes for OUT, whose shape has n elements. */
static TRITONSERVER_Error *ask_for(TRITONBACKEND_Request *request, int64_t n, uint64_t size)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    TRITONSERVER_Error *err;
    int64_t memory_id = 0;
    void *to;

    must(TRITONBACKEND_ResponseNew(&response, request));
    err = TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, &n, 1);
    if (!err)
        err = TRITONBACKEND_OutputBuffer(output, &to, size, &memory, &memory_id);
    if (err)
        return say_error(request, response, err);
    memset(to, 0, size);
    drop(TRITONBACKEND_ResponseSend(response, FINAL, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *huge_buffer(TRITONBACKEND_Request *request)
{
    return ask_for(request, INT64_C(1) << 60, UINT64_C(1) << 62);
}

static TRITONSERVER_Error *short_buffer(TRITONBACKEND_Request *request)
{
    return ask_for(request, 1000, 8);
}

static TRITONSERVER_Error *long_buffer(TRITONBACKEND_Request *request)
{
    return ask_for(request, 2, 4096);
}

/* The shape has as many elements as the bytes: more than any machine has, but not an absurd
 * number. */
static TRITONSERVER_Error *beyond_memory(TRITONBACKEND_Request *request)
{
    return ask_for(request, INT64_C(1) << 45, UINT64_C(1) << 47);
}

/* Asks for size bytes for an output with this type and shape. */
static TRITONSERVER_Error *describe(TRITONBACKEND_Request *request, TRITONSERVER_DataType type,
                                    const int64_t *shape, uint32_t rank, uint64_t size)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    TRITONSERVER_Error *err;
    int64_t memory_id = 0;
    void *to;

    must(TRITONBACKEND_ResponseNew(&response, request));
    err = TRITONBACKEND_ResponseOutput(response, &output, "OUT", type, shape, rank);
    if (!err)
        err = TRITONBACKEND_OutputBuffer(output, &to, size, &memory, &memory_id);
    if (err)
        return say_error(request, response, err);
    memset(to, 0, size);
    drop(TRITONBACKEND_ResponseSend(response, FINAL, NULL));
    release(request);
    return NULL;
}

/* The product of the dimensions wraps to 0. */
static TRITONSERVER_Error *overflowing_shape(TRITONBACKEND_Request *request)
{
    static const int64_t shape[] = {INT64_C(1) << 62, INT64_C(1) << 62, 4};

    return describe(request, TRITONSERVER_TYPE_INT32, shape, 3, 8);
}

static TRITONSERVER_Error *many_dimensions(TRITONBACKEND_Request *request)
{
    enum { MANY = 100000 };
    int64_t *shape = malloc(MANY * sizeof(*shape));

    if (!shape)
        abort();
    for (int i = 0; i < MANY; i++)
        shape[i] = 1;
    describe(request, TRITONSERVER_TYPE_INT32, shape, MANY, 4);
    free(shape);
    return NULL;
}

static TRITONSERVER_Error *no_dimensions(TRITONBACKEND_Request *request)
{
    return describe(request, TRITONSERVER_TYPE_INT32, NULL, 0, 4);
}

static TRITONSERVER_Error *no_such_type(TRITONBACKEND_Request *request)
{
    int64_t n = 2;

    return describe(request, (TRITONSERVER_DataType)99, &n, 1, 8);
}

static TRITONSERVER_Error *other_type(TRITONBACKEND_Request *request)
{
    int64_t n = 2;

    return describe(request, TRITONSERVER_TYPE_FP64, &n, 1, 16);
}

/* Zeros are no strings: four lengths of 0 are, but six bytes are not. */
static TRITONSERVER_Error *broken_strings(TRITONBACKEND_Request *request)
{
    int64_t n = 2;

    return describe(request, TRITONSERVER_TYPE_BYTES, &n, 1, 6);
}

static TRITONSERVER_Error *output_twice(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *response = echo_response(request);
    TRITONBACKEND_Output *output;
    TRITONSERVER_Error *err;
    int64_t n = 2;

    err = TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, &n, 1);
    if (err)
        return say_error(request, response, err);
    drop(TRITONBACKEND_ResponseSend(response, FINAL, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *negative_shape(TRITONBACKEND_Request *request)
{
    return ask_for(request, -1, 8);
}

static TRITONSERVER_Error *buffer_twice(TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    int64_t memory_id = 0, n = 1;
    void *to;

    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, &n, 1));
    must(TRITONBACKEND_OutputBuffer(output, &to, 4, &memory, &memory_id));
    return say_error(request, response,
                     TRITONBACKEND_OutputBuffer(output, &to, 4, &memory, &memory_id));
}

/* ---- Wrong arguments ------------------------------------------------------------------------- */

static TRITONSERVER_Error *unknown_input(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Input *input;

    return say_error(request, NULL, TRITONBACKEND_RequestInput(request, "NOPE", &input));
}

static TRITONSERVER_Error *input_index(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Input *input;

    return say_error(request, NULL, TRITONBACKEND_RequestInputByIndex(request, 99, &input));
}

static TRITONSERVER_Error *buffer_index(TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Input *input;
    int64_t memory_id = 0;
    const void *data;
    uint64_t size;

    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    return say_error(request, NULL,
                     TRITONBACKEND_InputBuffer(input, 99, &data, &size, &memory, &memory_id));
}

static TRITONSERVER_Error *output_index(TRITONBACKEND_Request *request)
{
    const char *name;

    return say_error(request, NULL, TRITONBACKEND_RequestOutputName(request, 99, &name));
}

static TRITONSERVER_Error *parameter_index(TRITONBACKEND_Request *request)
{
    TRITONSERVER_ParameterType type;
    const void *value;
    const char *key;

    return say_error(request, NULL,
                     TRITONBACKEND_RequestParameter(request, 99, &key, &type, &value));
}

static TRITONSERVER_Error *string_correlation_id(TRITONBACKEND_Request *request)
{
    const char *id;

    return say_error(request, NULL, TRITONBACKEND_RequestCorrelationIdString(request, &id));
}

static TRITONSERVER_Error *number_correlation_id(TRITONBACKEND_Request *request)
{
    uint64_t id;

    return say_error(request, NULL, TRITONBACKEND_RequestCorrelationId(request, &id));
}

/* There is no GPU: the server gives other memory, and reports its type. */
static TRITONSERVER_Error *gpu_output(TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_GPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    TRITONSERVER_Error *err;
    int64_t memory_id = 7, n = 1;
    void *to;

    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, &n, 1));
    err = TRITONBACKEND_OutputBuffer(output, &to, sizeof(int32_t), &memory, &memory_id);
    if (err)
        return say_error(request, response, err);
    if (memory == TRITONSERVER_MEMORY_GPU)
        return say(request, response, "memory of a GPU");
    memset(to, 0, sizeof(int32_t));
    drop(TRITONBACKEND_ResponseSend(response, FINAL, NULL));
    release(request);
    return NULL;
}

static TRITONSERVER_Error *null_response(TRITONBACKEND_Request *request)
{
    return say_error(request, NULL, TRITONBACKEND_ResponseSend(NULL, FINAL, NULL));
}

/* Every call with NULL for an object or a name must be refused. The answer says how many of how
 * many were. */
static TRITONSERVER_Error *null_arguments(TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response = NULL, *other = NULL;
    TRITONBACKEND_ResponseFactory *factory = NULL;
    TRITONBACKEND_Output *output = NULL;
    TRITONBACKEND_Input *input = NULL;
    int64_t memory_id = 0, n = 1;
    const void *data;
    uint32_t count;
    uint64_t size;
    void *to;
    unsigned int refused = 0, n_calls;

    must(TRITONBACKEND_ResponseNew(&response, request));
    TRITONSERVER_Error *errors[] = {
        TRITONBACKEND_RequestInputCount(NULL, &count),
        TRITONBACKEND_RequestInput(request, NULL, &input),
        TRITONBACKEND_RequestInput(NULL, "IN", &input),
        TRITONBACKEND_RequestRelease(NULL, ALL),
        TRITONBACKEND_InputProperties(NULL, NULL, NULL, NULL, NULL, NULL, &count),
        TRITONBACKEND_InputBuffer(NULL, 0, &data, &size, &memory, &memory_id),
        TRITONBACKEND_ResponseNew(&other, NULL),
        TRITONBACKEND_ResponseOutput(NULL, &output, "OUT", TRITONSERVER_TYPE_INT32, &n, 1),
        TRITONBACKEND_ResponseOutput(response, &output, NULL, TRITONSERVER_TYPE_INT32, &n, 1),
        TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, NULL, 1),
        TRITONBACKEND_OutputBuffer(NULL, &to, 4, &memory, &memory_id),
        TRITONBACKEND_ResponseFactoryNew(&factory, NULL),
        TRITONBACKEND_ResponseFactoryDelete(NULL),
        TRITONBACKEND_ResponseFactorySendFlags(NULL, FINAL),
        TRITONBACKEND_ResponseNewFromFactory(&other, NULL),
        TRITONBACKEND_ResponseDelete(NULL),
    };
    n_calls = sizeof(errors) / sizeof(errors[0]);
    for (unsigned int i = 0; i < n_calls; i++) {
        refused += errors[i] != NULL;
        drop(errors[i]);
    }
    return say(request, response, "refused %u of %u calls", refused, n_calls);
}

/* ---- The table ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    behaviour_fn *run;
} behaviours[] = {
    {"execute-error", execute_error},
    {"error-response", error_response},
    {"error-with-outputs", error_with_outputs},
    {"answer-then-error", answer_then_error},
    {"release-then-error", release_then_error},
    {"lose-then-error", lose_then_error},
    {"no-answer", no_answer},
    {"unsent-answer", unsent_answer},
    {"no-final", no_final},
    {"only-final", only_final},
    {"unused-factory", unused_factory},
    {"two-responses", two_responses},
    {"after-final", after_final},
    {"two-finals", two_finals},
    {"release-twice", release_twice},
    {"reschedule", reschedule},
    {"late-answer", late_answer},
    {"late-release", late_release},
    {"late-both", late_both},
    {"late-response", late_response},
    {"stuck", stuck},
    {"late-second-answer", late_second_answer},
    {"error-then-late-answer", error_then_late_answer},
    {"wrong-output", wrong_output},
    {"no-outputs", no_outputs},
    {"no-buffer", no_buffer},
    {"huge-buffer", huge_buffer},
    {"short-buffer", short_buffer},
    {"long-buffer", long_buffer},
    {"beyond-memory", beyond_memory},
    {"overflowing-shape", overflowing_shape},
    {"many-dimensions", many_dimensions},
    {"no-dimensions", no_dimensions},
    {"no-such-type", no_such_type},
    {"other-type", other_type},
    {"broken-strings", broken_strings},
    {"output-twice", output_twice},
    {"negative-shape", negative_shape},
    {"buffer-twice", buffer_twice},
    {"unknown-input", unknown_input},
    {"input-index", input_index},
    {"buffer-index", buffer_index},
    {"output-index", output_index},
    {"parameter-index", parameter_index},
    {"string-correlation-id", string_correlation_id},
    {"number-correlation-id", number_correlation_id},
    {"gpu-output", gpu_output},
    {"null-response", null_response},
    {"null-arguments", null_arguments},
};

static behaviour_fn *find_behaviour(const char *name)
{
    if (!name)
        return be_good;
    for (size_t i = 0; i < sizeof(behaviours) / sizeof(behaviours[0]); i++)
        if (strcmp(behaviours[i].name, name) == 0)
            return behaviours[i].run;
    return NULL;
}

/* ---- The array of requests ------------------------------------------------------------------- */

static void zero(TRITONBACKEND_Request **requests, uint32_t n)
{
    memset(requests, 0, n * sizeof(*requests));
}

static void reverse(TRITONBACKEND_Request **requests, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        TRITONBACKEND_Request *first = requests[i];
        requests[i] = requests[n - 1 - i];
        requests[n - 1 - i] = first;
    }
}

/* The first request is removed, and the others move up: it is at no index, the last one at two. */
static void shift(TRITONBACKEND_Request **requests, uint32_t n)
{
    memmove(requests, requests + 1, (n - 1) * sizeof(*requests));
}

static const struct {
    const char *name;
    void (*damage)(TRITONBACKEND_Request **requests, uint32_t n);
} arrays[] = {{"zeroed", zero}, {"reversed", reverse}, {"shifted", shift}};

/* All requests are answered with an error and released. */
static void respond_with_error(TRITONBACKEND_Request **requests, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        say(requests[i], NULL, "the whole batch is no good");
        requests[i] = NULL;
    }
}

static TRITONSERVER_Error *run_one(TRITONBACKEND_Request *request)
{
    const char *name = parameter(request, "do", TRITONSERVER_PARAMETER_STRING);
    behaviour_fn *run = find_behaviour(name);
    return run ? run(request) : say(request, NULL, "unknown behaviour '%s'", name);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    const char *wanted = parameter(requests[0], "array", TRITONSERVER_PARAMETER_STRING);
    TRITONSERVER_Error *err = NULL;
    char array[16], fail[64];

    snprintf(array, sizeof(array), "%s", wanted ? wanted : "");
    wanted = parameter(requests[0], "fail", TRITONSERVER_PARAMETER_STRING);
    snprintf(fail, sizeof(fail), "%s", wanted ? wanted : "");
    if (strcmp(array, "released") == 0)
        respond_with_error(requests, request_count);
    for (uint32_t i = 0; i < request_count && requests[i] && !err; i++)
        err = run_one(requests[i]);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        if (strcmp(array, arrays[i].name) == 0)
            arrays[i].damage(requests, request_count);
    }
    if (!err && fail[0])
        err = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, fail);
    return err;
}
