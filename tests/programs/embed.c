/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embed - a program that embeds the server by its public ABI and executes its input line by line;
 * tests drive it. It links with any libtritonserver.so, also the genuine one.
 *
 *     embed REPOSITORY BACKEND_DIRECTORY [poll|explicit|namespaces [MODEL…]]
 *
 *     infer ID MODEL VERSION OUTPUTS INPUT…   and wait for the end; OUTPUTS: name,… or -
 *     start ID MODEL VERSION OUTPUTS INPUT…   and go on
 *     wait ID, cancel ID
 *     answered ID                             wait for its last response, but not for its release
 *     join                                    wait for all requests, whose IDs may be used again
 *     load MODEL PARAMETER…
 *     unload MODEL, unload-all MODEL, ready MODEL, metadata MODEL, config MODEL, statistics MODEL
 *     register REPOSITORY PARAMETER…, unregister REPOSITORY
 *     index
 *
 * INPUT is NAME:TYPE:SHAPE:ELEMENTS, separated by commas, or one of @priority:N,
 * @timeout:MICROSECONDS, @id:NUMBER, @name:TEXT, @start, @end (of a sequence), @trace,
 * @labels, @PARAMETER:TEXT. A traced request ends with the release of its trace. With @labels each
 * output has the label of its first class behind it, in brackets.
 * PARAMETER of a load is TYPE:NAME=VALUE, its type being string, bytes, int, bool or double.
 *
 * It prints one line for each event:
 *
 *     ID response OUTPUT… [final] · ID error CODE: TEXT [final] · ID final · ID refused CODE: TEXT
 *     ID trace [PARENT'S MODEL>]MODEL:VERSION ACTIVITY [TENSOR] · … released
 *     COMMAND MODEL ok|CODE: TEXT · joined · and documents as they are
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "triton/core/tritonserver.h"

enum { MAX_WORDS = 64, MAX_REQUESTS = 256, MAX_INPUTS = 16, MAX_DIMS = 8, MAX_TRACES = 16 };

struct running {
    char id[64];
    TRITONSERVER_InferenceRequest *request;
    void *data[MAX_INPUTS];
    size_t n_data;
    bool traced, labelled;
    bool final, released; /* this and the next under mu */
    size_t n_traces;
    struct seen_trace {
        uint64_t id;
        char model[64];
        bool ended;
    } traces[MAX_TRACES];
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct running requests[MAX_REQUESTS];
static size_t n_requests;
static TRITONSERVER_Server *server;
static TRITONSERVER_ResponseAllocator *allocator;

/* Prints one line in one call, so that lines of several threads do not mix. */
static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    char line[1 << 16];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    for (char *p = line; *p; p++)
        *p = *p == '\n' ? ' ' : *p;
    flockfile(stdout);
    puts(line);
    fflush(stdout);
    funlockfile(stdout);
}

static void must(TRITONSERVER_Error *error)
{
    if (!error)
        return;
    fprintf(stderr, "embed: %s: %s\n", TRITONSERVER_ErrorCodeString(error),
            TRITONSERVER_ErrorMessage(error));
    exit(1);
}

/* Prints how a command ended. */
static void ended(const char *command, const char *what, TRITONSERVER_Error *error)
{
    if (error)
        say("%s %s %s: %s", command, what, TRITONSERVER_ErrorCodeString(error),
            TRITONSERVER_ErrorMessage(error));
    else
        say("%s %s ok", command, what);
    TRITONSERVER_ErrorDelete(error);
}

/* ---- Tensors as text ------------------------------------------------------------------------ */

static TRITONSERVER_DataType type_of(const char *name)
{
    return TRITONSERVER_StringToDataType(name);
}

/* Returns the elements of a text as bytes, which NULL elements end. */
static void *elements(TRITONSERVER_DataType type, char *text, size_t *ret_size)
{
    size_t size = 0, capacity = 4 * strlen(text) + 64;
    char *data = calloc(1, capacity * 2), *rest = text, *word;
    if (!data)
        abort();
    while (*text && (word = strsep(&rest, ",")) != NULL) {
        double number = strtod(word, NULL);
        uint32_t width = TRITONSERVER_DataTypeByteSize(type);
        if (type == TRITONSERVER_TYPE_BYTES) {
            uint32_t length = (uint32_t)strlen(word);
            memcpy(data + size, &length, 4);
            memcpy(data + size + 4, word, length);
            size += 4 + length;
            continue;
        }
        if (type == TRITONSERVER_TYPE_FP32) {
            float value = (float)number;
            memcpy(data + size, &value, 4);
        } else if (type == TRITONSERVER_TYPE_FP64) {
            memcpy(data + size, &number, 8);
        } else {
            int64_t value = (int64_t)number;
            memcpy(data + size, &value, width);
        }
        size += width;
    }
    *ret_size = size;
    return data;
}

static void print_elements(FILE *to, TRITONSERVER_DataType type, const char *base, size_t size)
{
    uint32_t width = TRITONSERVER_DataTypeByteSize(type);
    for (size_t at = 0; at < size;) {
        fprintf(to, "%s", at ? "," : "");
        if (type == TRITONSERVER_TYPE_BYTES) {
            uint32_t length;
            memcpy(&length, base + at, 4);
            fprintf(to, "%.*s", (int)length, base + at + 4);
            at += 4 + length;
            continue;
        }
        if (type == TRITONSERVER_TYPE_FP32) {
            float value;
            memcpy(&value, base + at, 4);
            fprintf(to, "%.9g", (double)value);
        } else if (type == TRITONSERVER_TYPE_FP64) {
            double value;
            memcpy(&value, base + at, 8);
            fprintf(to, "%.17g", value);
        } else {
            int64_t value = 0;
            memcpy(&value, base + at, width);
            fprintf(to, "%" PRId64, width == 4 ? (int64_t)(int32_t)value : value);
        }
        at += width;
    }
}

/* ---- Callbacks ------------------------------------------------------------------------------ */

static TRITONSERVER_Error *allocate(TRITONSERVER_ResponseAllocator *a, const char *name,
                                    size_t byte_size, TRITONSERVER_MemoryType type, int64_t type_id,
                                    void *userp, void **buffer, void **buffer_userp,
                                    TRITONSERVER_MemoryType *actual_type, int64_t *actual_id)
{
    (void)a;
    (void)name;
    (void)type;
    (void)type_id;
    (void)userp;
    *buffer = byte_size ? malloc(byte_size) : NULL;
    *buffer_userp = NULL;
    *actual_type = TRITONSERVER_MEMORY_CPU;
    *actual_id = 0;
    return NULL;
}

static TRITONSERVER_Error *give_back(TRITONSERVER_ResponseAllocator *a, void *buffer,
                                     void *buffer_userp, size_t byte_size,
                                     TRITONSERVER_MemoryType type, int64_t type_id)
{
    (void)a;
    (void)buffer_userp;
    (void)byte_size;
    (void)type;
    (void)type_id;
    free(buffer);
    return NULL;
}

static void print_label(FILE *to, TRITONSERVER_InferenceResponse *response, uint32_t index)
{
    const char *label;
    must(TRITONSERVER_InferenceResponseOutputClassificationLabel(response, index, 0, &label));
    fprintf(to, " [%s]", label ? label : "");
}

static void print_outputs(FILE *to, TRITONSERVER_InferenceResponse *response, bool labelled)
{
    uint32_t n = 0;
    must(TRITONSERVER_InferenceResponseOutputCount(response, &n));
    for (uint32_t i = 0; i < n; i++) {
        const char *name;
        TRITONSERVER_DataType type;
        TRITONSERVER_MemoryType memory_type;
        const int64_t *shape;
        uint64_t n_dims;
        const void *base;
        size_t size;
        int64_t memory_id;
        void *userp;
        must(TRITONSERVER_InferenceResponseOutput(response, i, &name, &type, &shape, &n_dims, &base,
                                                  &size, &memory_type, &memory_id, &userp));
        fprintf(to, " %s:%s:", name, TRITONSERVER_DataTypeString(type));
        for (uint64_t d = 0; d < n_dims; d++)
            fprintf(to, "%s%" PRId64, d ? "," : "", shape[d]);
        fputc(':', to);
        print_elements(to, type, base, size);
        if (labelled)
            print_label(to, response, i);
    }
}

static void on_response(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp)
{
    struct running *r = userp;
    bool final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        abort();
    fprintf(to, "%s", r->id);
    if (response) {
        TRITONSERVER_Error *error = TRITONSERVER_InferenceResponseError(response);
        if (error)
            fprintf(to, " error %s: %s", TRITONSERVER_ErrorCodeString(error),
                    TRITONSERVER_ErrorMessage(error));
        else
            fprintf(to, " response");
        if (!error)
            print_outputs(to, response, r->labelled);
        must(TRITONSERVER_InferenceResponseDelete(response));
    }
    fprintf(to, "%s", final ? " final" : "");
    fclose(to);
    say("%s", text);
    free(text);
    pthread_mutex_lock(&mu);
    r->final |= final;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static void on_release(TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp)
{
    struct running *r = userp;
    (void)request;
    (void)flags;
    pthread_mutex_lock(&mu);
    r->released = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

/* ---- Traces --------------------------------------------------------------------------------- */

/* Returns what is known of a trace of that request, which begins now if it is a new one. */
static struct seen_trace *find_trace_locked(struct running *r, uint64_t id)
{
    for (size_t i = 0; i < r->n_traces; i++) {
        if (r->traces[i].id == id)
            return &r->traces[i];
    }
    if (r->n_traces == MAX_TRACES)
        abort();
    r->traces[r->n_traces].id = id;
    return &r->traces[r->n_traces++];
}

static void say_traced(struct running *r, TRITONSERVER_InferenceTrace *trace, const char *what,
                       const char *tensor, bool end)
{
    char parent_text[80] = "";
    const char *model, *id_text;
    uint64_t id, parent;
    int64_t version;
    must(TRITONSERVER_InferenceTraceId(trace, &id));
    must(TRITONSERVER_InferenceTraceParentId(trace, &parent));
    must(TRITONSERVER_InferenceTraceModelName(trace, &model));
    must(TRITONSERVER_InferenceTraceModelVersion(trace, &version));
    must(TRITONSERVER_InferenceTraceRequestId(trace, &id_text));
    pthread_mutex_lock(&mu);
    struct seen_trace *seen = find_trace_locked(r, id);
    snprintf(seen->model, sizeof(seen->model), "%s", model);
    if (parent)
        snprintf(parent_text, sizeof(parent_text), "%s>", find_trace_locked(r, parent)->model);
    pthread_mutex_unlock(&mu);
    say("%s trace %s%s:%" PRId64 " %s%s%s", id_text, parent_text, model, version, what,
        *tensor ? " " : "", tensor);
    pthread_mutex_lock(&mu);
    seen->ended |= end;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static void on_activity(TRITONSERVER_InferenceTrace *trace,
                        TRITONSERVER_InferenceTraceActivity activity, uint64_t ns, void *userp)
{
    (void)ns;
    say_traced(userp, trace, TRITONSERVER_InferenceTraceActivityString(activity), "", false);
}

static void on_tensor(TRITONSERVER_InferenceTrace *trace,
                      TRITONSERVER_InferenceTraceActivity activity, const char *name,
                      TRITONSERVER_DataType type, const void *base, size_t size,
                      const int64_t *shape, uint64_t n_dims, TRITONSERVER_MemoryType memory_type,
                      int64_t memory_id, void *userp)
{
    (void)type, (void)base, (void)size, (void)shape, (void)n_dims, (void)memory_type;
    (void)memory_id;
    say_traced(userp, trace, TRITONSERVER_InferenceTraceActivityString(activity), name, false);
}

static void on_trace_release(TRITONSERVER_InferenceTrace *trace, void *userp)
{
    say_traced(userp, trace, "released", "", true);
    must(TRITONSERVER_InferenceTraceDelete(trace));
}

/* Returns NULL for a request that is not traced. */
static TRITONSERVER_InferenceTrace *make_trace(struct running *r)
{
    TRITONSERVER_InferenceTrace *trace = NULL;
    if (r->traced)
        must(TRITONSERVER_InferenceTraceTensorNew(
            &trace, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS | TRITONSERVER_TRACE_LEVEL_TENSORS, 0,
            on_activity, on_tensor, on_trace_release, r));
    return trace;
}

/* Have all traces of the request been released? They may be before the request, or after it. */
static bool is_traced_locked(const struct running *r)
{
    for (size_t i = 0; i < r->n_traces; i++) {
        if (!r->traces[i].ended)
            return false;
    }
    return true;
}

/* ---- Commands ------------------------------------------------------------------------------- */

static struct running *find(const char *id)
{
    for (size_t i = 0; i < n_requests; i++) {
        if (strcmp(requests[i].id, id) == 0)
            return &requests[i];
    }
    fprintf(stderr, "embed: no request '%s'\n", id);
    exit(1);
}

static void wait_for_answer(struct running *r)
{
    pthread_mutex_lock(&mu);
    while (!r->final)
        pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
}

static void wait_for(struct running *r)
{
    pthread_mutex_lock(&mu);
    while (r->request && (!r->final || !r->released || !is_traced_locked(r)))
        pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
    if (r->request)
        must(TRITONSERVER_InferenceRequestDelete(r->request));
    r->request = NULL;
    while (r->n_data)
        free(r->data[--r->n_data]);
}

static void join(void)
{
    for (size_t i = 0; i < n_requests; i++)
        wait_for(&requests[i]);
    memset(requests, 0, sizeof(requests));
    n_requests = 0;
    say("joined");
}

static TRITONSERVER_Error *add_input(struct running *r, char *text)
{
    char *rest = text, *name = strsep(&rest, ":"), *type_name = strsep(&rest, ":"),
         *dims = strsep(&rest, ":"), *dim;
    int64_t shape[MAX_DIMS];
    uint64_t n_dims = 0;
    size_t size;
    if (!rest || r->n_data == MAX_INPUTS)
        abort();
    while (*dims && (dim = strsep(&dims, ",")) != NULL && n_dims < MAX_DIMS) {
        shape[n_dims++] = strtoll(dim, NULL, 10);
        if (!dims)
            break;
    }
    TRITONSERVER_DataType type = type_of(type_name);
    void *data = elements(type, rest, &size);
    r->data[r->n_data++] = data;
    TRITONSERVER_Error *error =
        TRITONSERVER_InferenceRequestAddInput(r->request, name, type, shape, n_dims);
    if (error)
        return error;
    return TRITONSERVER_InferenceRequestAppendInputData(r->request, name, data, size,
                                                        TRITONSERVER_MEMORY_CPU, 0);
}

static TRITONSERVER_Error *set_flag(struct running *r, uint32_t flag)
{
    uint32_t flags;
    must(TRITONSERVER_InferenceRequestFlags(r->request, &flags));
    return TRITONSERVER_InferenceRequestSetFlags(r->request, flags | flag);
}

/* Sets a property of a request that is not an input. */
static TRITONSERVER_Error *set_option(struct running *r, char *text)
{
    char *rest = text, *name = strsep(&rest, ":");
    if (strcmp(text, "@start") == 0)
        return set_flag(r, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START);
    if (strcmp(text, "@end") == 0)
        return set_flag(r, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END);
    if (strcmp(text, "@trace") == 0) {
        r->traced = true;
        return NULL;
    }
    if (strcmp(text, "@labels") == 0) {
        r->labelled = true;
        return NULL;
    }
    if (!rest)
        abort();
    if (strcmp(name, "@priority") == 0)
        return TRITONSERVER_InferenceRequestSetPriorityUInt64(r->request, strtoull(rest, NULL, 10));
    if (strcmp(name, "@timeout") == 0)
        return TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(r->request,
                                                                   strtoull(rest, NULL, 10));
    if (strcmp(name, "@id") == 0)
        return TRITONSERVER_InferenceRequestSetCorrelationId(r->request, strtoull(rest, NULL, 10));
    if (strcmp(name, "@name") == 0)
        return TRITONSERVER_InferenceRequestSetCorrelationIdString(r->request, rest);
    return TRITONSERVER_InferenceRequestSetStringParameter(r->request, name + 1, rest);
}

static TRITONSERVER_Error *prepare(struct running *r, char **words, int n)
{
    char *rest = words[2], *output;
    TRITONSERVER_Error *error = TRITONSERVER_InferenceRequestNew(&r->request, server, words[0],
                                                                 strtoll(words[1], NULL, 10));
    if (error)
        return error;
    must(TRITONSERVER_InferenceRequestSetId(r->request, r->id));
    must(TRITONSERVER_InferenceRequestSetReleaseCallback(r->request, on_release, r));
    must(TRITONSERVER_InferenceRequestSetResponseCallback(r->request, allocator, NULL, on_response,
                                                          r));
    while (strcmp(words[2], "-") != 0 && (output = strsep(&rest, ",")) != NULL && !error)
        error = TRITONSERVER_InferenceRequestAddRequestedOutput(r->request, output);
    for (int i = 3; i < n && !error; i++)
        error = words[i][0] == '@' ? set_option(r, words[i]) : add_input(r, words[i]);
    return error;
}

static struct running *start_request(char **words, int n)
{
    if (n_requests == MAX_REQUESTS || n < 4)
        abort();
    struct running *r = &requests[n_requests++];
    snprintf(r->id, sizeof(r->id), "%s", words[0]);
    TRITONSERVER_InferenceTrace *trace = NULL;
    TRITONSERVER_Error *error = prepare(r, words + 1, n - 1);
    if (!error)
        error = TRITONSERVER_ServerInferAsync(server, r->request, trace = make_trace(r));
    if (!error)
        return r;
    if (trace && r->n_traces == 0) /* a request that does not fit its model leaves it to us */
        must(TRITONSERVER_InferenceTraceDelete(trace));
    ended(r->id, "refused", error);
    if (r->request)
        must(TRITONSERVER_InferenceRequestDelete(r->request));
    r->request = NULL;
    return r;
}

static void print_document(const char *command, const char *what, TRITONSERVER_Error *error,
                           TRITONSERVER_Message *message)
{
    const char *base;
    size_t size;
    if (error) {
        ended(command, what, error);
        return;
    }
    must(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
    say("%.*s", (int)size, base);
    must(TRITONSERVER_MessageDelete(message));
}

static TRITONSERVER_Parameter *parameter_of(char *text)
{
    char *rest = text, *type = strsep(&rest, ":"), *name = strsep(&rest, "=");
    int64_t number = rest ? strtoll(rest, NULL, 10) : 0;
    double real = (double)number;
    bool truth = number != 0;
    if (!rest)
        abort();
    if (strcmp(type, "string") == 0)
        return TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_STRING, rest);
    if (strcmp(type, "int") == 0)
        return TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_INT, &number);
    if (strcmp(type, "bool") == 0)
        return TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_BOOL, &truth);
    if (strcmp(type, "double") == 0)
        return TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_DOUBLE, &real);
    return TRITONSERVER_ParameterBytesNew(name, rest, strlen(rest));
}

/* Executes the commands that have parameters: loads a model, or registers a repository. */
static TRITONSERVER_Error *with_parameters(const char *command, const char *what, char **words,
                                           int n)
{
    TRITONSERVER_Parameter *parameters[MAX_WORDS];
    const TRITONSERVER_Parameter *list[MAX_WORDS];
    for (int i = 0; i < n; i++)
        list[i] = parameters[i] = parameter_of(words[i]);
    TRITONSERVER_Error *error =
        strcmp(command, "register") == 0
            ? TRITONSERVER_ServerRegisterModelRepository(server, what, list, (uint32_t)n)
        : n ? TRITONSERVER_ServerLoadModelWithParameters(server, what, list, (uint64_t)n)
            : TRITONSERVER_ServerLoadModel(server, what);
    for (int i = 0; i < n; i++)
        TRITONSERVER_ParameterDelete(parameters[i]);
    return error;
}

static void obey(char **words, int n)
{
    const char *command = words[0], *what = n > 1 ? words[1] : "";
    TRITONSERVER_Message *message = NULL;
    bool ready = false;

    if (strcmp(command, "infer") == 0) {
        wait_for(start_request(words + 1, n - 1));
    } else if (strcmp(command, "start") == 0) {
        start_request(words + 1, n - 1);
    } else if (strcmp(command, "wait") == 0) {
        wait_for(find(what));
    } else if (strcmp(command, "answered") == 0) {
        wait_for_answer(find(what));
    } else if (strcmp(command, "join") == 0) {
        join();
    } else if (strcmp(command, "cancel") == 0) {
        must(TRITONSERVER_InferenceRequestCancel(find(what)->request));
    } else if (strcmp(command, "ready") == 0) {
        TRITONSERVER_Error *error = TRITONSERVER_ServerModelIsReady(server, what, -1, &ready);
        if (error)
            ended(command, what, error);
        else
            say("ready %s %s", what, ready ? "yes" : "no");
    } else if (strcmp(command, "metadata") == 0) {
        TRITONSERVER_Error *error = TRITONSERVER_ServerModelMetadata(server, what, -1, &message);
        print_document(command, what, error, message);
    } else if (strcmp(command, "config") == 0) {
        TRITONSERVER_Error *error = TRITONSERVER_ServerModelConfig(server, what, -1, 1, &message);
        print_document(command, what, error, message);
    } else if (strcmp(command, "statistics") == 0) {
        TRITONSERVER_Error *error = TRITONSERVER_ServerModelStatistics(server, what, -1, &message);
        print_document(command, what, error, message);
    } else if (strcmp(command, "index") == 0) {
        TRITONSERVER_Error *error = TRITONSERVER_ServerModelIndex(server, 0, &message);
        print_document(command, what, error, message);
    } else if (strcmp(command, "load") == 0 || strcmp(command, "register") == 0) {
        ended(command, what, with_parameters(command, what, words + 2, n > 2 ? n - 2 : 0));
    } else if (strcmp(command, "unregister") == 0) {
        ended(command, what, TRITONSERVER_ServerUnregisterModelRepository(server, what));
    } else if (strcmp(command, "unload") == 0) {
        ended(command, what, TRITONSERVER_ServerUnloadModel(server, what));
    } else if (strcmp(command, "unload-all") == 0) {
        ended(command, what, TRITONSERVER_ServerUnloadModelAndDependents(server, what));
    } else {
        fprintf(stderr, "embed: unknown command '%s'\n", command);
        exit(2);
    }
}

static void start_server(int argc, char **argv)
{
    TRITONSERVER_ServerOptions *options;
    must(TRITONSERVER_ServerOptionsNew(&options));
    must(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, argv[1]));
    must(TRITONSERVER_ServerOptionsSetBackendDirectory(options, argv[2]));
    must(TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(options, 6.0));
    must(TRITONSERVER_ServerOptionsSetExitOnError(options, false));
    must(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
    if (argc > 3 && strcmp(argv[3], "poll") == 0)
        must(TRITONSERVER_ServerOptionsSetModelControlMode(options,
                                                           TRITONSERVER_MODEL_CONTROL_POLL));
    else if (argc > 3)
        must(TRITONSERVER_ServerOptionsSetModelControlMode(options,
                                                           TRITONSERVER_MODEL_CONTROL_EXPLICIT));
    if (argc > 3 && strcmp(argv[3], "namespaces") == 0)
        must(TRITONSERVER_ServerOptionsSetModelNamespacing(options, true));
    for (int i = 4; i < argc; i++)
        must(TRITONSERVER_ServerOptionsSetStartupModel(options, argv[i]));
    must(TRITONSERVER_ServerNew(&server, options));
    must(TRITONSERVER_ServerOptionsDelete(options));
    must(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, NULL));
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t capacity = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: embed REPOSITORY BACKEND_DIRECTORY "
                        "[poll|explicit|namespaces [MODEL…]]\n");
        return 2;
    }
    start_server(argc, argv);
    while (getline(&line, &capacity, stdin) > 0) {
        char *words[MAX_WORDS], *rest = line, *word;
        int n = 0;
        line[strcspn(line, "\n")] = '\0';
        while (n < MAX_WORDS && (word = strsep(&rest, " ")) != NULL) {
            if (*word)
                words[n++] = word;
        }
        if (n)
            obey(words, n);
    }
    free(line);
    for (size_t i = 0; i < n_requests; i++)
        wait_for(&requests[i]);
    must(TRITONSERVER_ServerStop(server));
    must(TRITONSERVER_ServerDelete(server));
    must(TRITONSERVER_ResponseAllocatorDelete(allocator));
    say("stopped");
    return 0;
}
