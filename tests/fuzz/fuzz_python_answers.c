/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that comes up from the process of a Python model: notes with their messages, and the answers
 * to an execution. Nothing that it sends, and no allocation that fails meanwhile, harms the server:
 * each request has its one answer, what was allocated is freed, and every block is read inside the
 * memory.
 *
 *     byte 0   which allocation fails: 0 none, else the n-th of this input
 *     byte 1   the note's kind; 0: an answer to an execution of three requests
 *     byte 2   the key or the question: a request's (0 to 2), or a number
 *     the rest the message; the child's memory has it, and zeroes behind it
 *
 * The server's functions are replaced by those below, which accept nearly everything.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The functions in place of the server's take fewer arguments. */
#pragma GCC diagnostic ignored "-Waddress"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

static unsigned int allocations_left; /* 0: all succeed */
static long n_live;                   /* allocations and objects that are not freed */

static bool allocation_fails(void)
{
    return allocations_left && --allocations_left == 0;
}

static void *try_malloc(size_t n)
{
    void *p = allocation_fails() ? NULL : malloc(n);

    n_live += p != NULL;
    return p;
}

static void *try_calloc(size_t n, size_t size)
{
    void *p = allocation_fails() ? NULL : calloc(n, size);

    n_live += p != NULL;
    return p;
}

static void *try_realloc(void *old, size_t n)
{
    void *p = allocation_fails() ? NULL : realloc(old, n);

    n_live += p && !old;
    return p;
}

static void count_free(void *p)
{
    n_live -= p != NULL;
    free(p);
}

static char *try_strndup(const char *text, size_t n)
{
    char *p = allocation_fails() ? NULL : strndup(text, n);

    n_live += p != NULL;
    return p;
}

static char *try_strdup(const char *text)
{
    return try_strndup(text, strlen(text));
}

__attribute__((format(printf, 2, 0))) static int try_vasprintf(char **ret_text, const char *fmt,
                                                               va_list args)
{
    const int n = allocation_fails() ? -1 : vasprintf(ret_text, fmt, args);

    n_live += n >= 0;
    return n;
}

__attribute__((format(printf, 2, 3))) static int try_asprintf(char **ret_text, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int n = try_vasprintf(ret_text, fmt, args);
    va_end(args);
    return n;
}

/* Headers come before the names change. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The server, which the program has inside, has a function of that name. */
#define reply_error fuzz_reply_error

#include "common/bytes.h"
#include "conch/backend.h"
#include "python/call.h"
#include "python/control.h"
#include "python/families.h"
#include "python/instance.h"
#include "python/reply.h"
#include "python/respond.h"
#include "python/tensor.h"

#define malloc    try_malloc
#define calloc    try_calloc
#define realloc   try_realloc
#define free      count_free
#define strdup    try_strdup
#define strndup   try_strndup
#define vasprintf try_vasprintf
#define asprintf  try_asprintf

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_hold(bool fact, const char *what)
{
    if (fact)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* ---- The server ------------------------------------------------------------------------------ */

enum { N_REQUESTS = 3 };

struct TRITONBACKEND_Request {
    unsigned int n_final, n_released, n_rescheduled;
    bool was_refused; /* no memory for a response: the server answers when it is released */
};

struct TRITONBACKEND_Response {
    struct TRITONBACKEND_Request *request;
    void *outputs[16];
    unsigned int n_outputs;
};

static struct TRITONBACKEND_Request asked[N_REQUESTS];

static TRITONSERVER_Error *lack(void)
{
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static TRITONSERVER_Error *fuzz_ResponseNew(TRITONBACKEND_Response **response,
                                            TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *made = calloc(1, sizeof *made);

    if (!made) {
        request->was_refused = true;
        return lack();
    }
    made->request = request;
    *response = made;
    return NULL;
}

static TRITONSERVER_Error *fuzz_ResponseNewFromFactory(TRITONBACKEND_Response **response,
                                                       TRITONBACKEND_ResponseFactory *factory)
{
    return fuzz_ResponseNew(response, (TRITONBACKEND_Request *)factory);
}

static TRITONSERVER_Error *fuzz_ResponseDelete(TRITONBACKEND_Response *response)
{
    for (unsigned int i = 0; i < response->n_outputs; i++)
        free(response->outputs[i]);
    free(response);
    return NULL;
}

static TRITONSERVER_Error *fuzz_ResponseSend(TRITONBACKEND_Response *response, uint32_t flags,
                                             TRITONSERVER_Error *error)
{
    (void)error;
    must_hold(!response->request->n_final, "a response behind the final one");
    response->request->n_final += flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL;
    return fuzz_ResponseDelete(response);
}

static TRITONSERVER_Error *fuzz_ResponseFactoryNew(TRITONBACKEND_ResponseFactory **factory,
                                                   TRITONBACKEND_Request *request)
{
    if (allocation_fails())
        return lack();
    n_live++;
    *factory = (TRITONBACKEND_ResponseFactory *)request;
    return NULL;
}

static TRITONSERVER_Error *fuzz_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *factory)
{
    (void)factory;
    n_live--;
    return NULL;
}

static TRITONSERVER_Error *fuzz_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory *factory,
                                                         uint32_t flags)
{
    struct TRITONBACKEND_Request *request = (struct TRITONBACKEND_Request *)factory;

    must_hold(!request->n_final, "a flag behind the final one");
    request->n_final += flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL;
    return NULL;
}

static TRITONSERVER_Error *fuzz_IsCancelled(const void *object, bool *is_cancelled)
{
    *is_cancelled = object == &asked[0];
    return NULL;
}

static TRITONSERVER_Error *fuzz_RequestRelease(TRITONBACKEND_Request *request, uint32_t flags)
{
    request->n_released++;
    request->n_rescheduled += flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE;
    return NULL;
}

static TRITONSERVER_Error *fuzz_ResponseOutput(TRITONBACKEND_Response *response,
                                               TRITONBACKEND_Output **output, const char *name,
                                               TRITONSERVER_DataType datatype, const int64_t *shape,
                                               uint32_t dims_count)
{
    (void)datatype;
    must_hold(strlen(name) < TENSOR_MAX_NAME && dims_count <= PROTOCOL_MAX_RANK, "an output");
    for (uint32_t d = 0; d < dims_count; d++)
        must_hold(shape[d] >= 0, "a dimension");
    if (response->n_outputs == 16)
        return lack();
    *output = (TRITONBACKEND_Output *)response;
    return NULL;
}

static TRITONSERVER_Error *fuzz_OutputBuffer(TRITONBACKEND_Output *output, void **buffer,
                                             uint64_t size, TRITONSERVER_MemoryType *memory_type,
                                             int64_t *memory_type_id)
{
    TRITONBACKEND_Response *response = (TRITONBACKEND_Response *)output;

    (void)memory_type;
    (void)memory_type_id;
    *buffer = malloc(size ? size : 1);
    if (!*buffer)
        return lack();
    response->outputs[response->n_outputs++] = *buffer;
    return NULL;
}

static TRITONSERVER_Error *fuzz_Parameter(const void *object, const char *name)
{
    (void)object;
    must_hold(strlen(name) < SIZE_MAX, "a name");
    return NULL;
}

/* Objects of which only the number counts. */
static int thing;

static TRITONSERVER_Error *fuzz_New(void **object)
{
    if (allocation_fails())
        return lack();
    n_live++;
    *object = &thing;
    return NULL;
}

static TRITONSERVER_Error *fuzz_Delete(const void *object)
{
    must_hold(object == &thing, "an object that is none");
    n_live--;
    return NULL;
}

static TRITONSERVER_Error *fuzz_Accept(const void *object)
{
    must_hold(object != NULL, "no object");
    return NULL;
}

static TRITONSERVER_Error *fuzz_MetricValue(const void *metric, double *value)
{
    *value = 1;
    return fuzz_Accept(metric);
}

/* A call runs at once: its response has one output. */
static TRITONSERVER_ResponseAllocatorAllocFn_t call_allocate;
static TRITONSERVER_ResponseAllocatorReleaseFn_t call_free;
static TRITONSERVER_InferenceRequestReleaseFn_t call_released;
static TRITONSERVER_InferenceResponseCompleteFn_t call_responds;
static void *call_userp, *call_buffer, *call_buffer_userp;

static TRITONSERVER_Error *fuzz_AllocatorNew(TRITONSERVER_ResponseAllocator **allocator,
                                             TRITONSERVER_ResponseAllocatorAllocFn_t allocate,
                                             TRITONSERVER_ResponseAllocatorReleaseFn_t release)
{
    call_allocate = allocate;
    call_free = release;
    return fuzz_New((void **)allocator);
}

static TRITONSERVER_Error *
fuzz_SetReleaseCallback(TRITONSERVER_InferenceRequest *request,
                        TRITONSERVER_InferenceRequestReleaseFn_t released, void *userp)
{
    call_released = released;
    call_userp = userp;
    return fuzz_Accept(request);
}

static TRITONSERVER_Error *
fuzz_SetResponseCallback(TRITONSERVER_InferenceRequest *request,
                         TRITONSERVER_InferenceResponseCompleteFn_t responds)
{
    call_responds = responds;
    return fuzz_Accept(request);
}

static TRITONSERVER_Error *fuzz_AppendInputData(const void *request, const void *base, size_t size)
{
    unsigned int sum = 0;

    for (size_t i = 0; i < size; i++) /* all of it can be read */
        sum += ((const unsigned char *)base)[i];
    must_hold(sum < UINT_MAX, "the sum");
    return fuzz_Accept(request);
}

static TRITONSERVER_Error *fuzz_InferAsync(TRITONSERVER_InferenceRequest *request)
{
    TRITONSERVER_MemoryType type;
    int64_t type_id;

    if (allocation_fails())
        return lack();
    TRITONSERVER_Error *err = call_allocate(NULL, "OUT", 16, TRITONSERVER_MEMORY_CPU, 0, call_userp,
                                            &call_buffer, &call_buffer_userp, &type, &type_id);
    if (err)
        return err;
    call_responds((TRITONSERVER_InferenceResponse *)&thing, TRITONSERVER_RESPONSE_COMPLETE_FINAL,
                  call_userp);
    call_released(request, TRITONSERVER_REQUEST_RELEASE_ALL, call_userp);
    return NULL;
}

static TRITONSERVER_Error *fuzz_InferenceResponseDelete(TRITONSERVER_InferenceResponse *response)
{
    (void)response;
    return call_free(NULL, call_buffer, call_buffer_userp, 16, TRITONSERVER_MEMORY_CPU, 0);
}

static TRITONSERVER_Error *fuzz_OutputCount(uint32_t *count, uint32_t n)
{
    *count = n;
    return NULL;
}

static TRITONSERVER_Error *
fuzz_InferenceResponseOutput(const char **name, TRITONSERVER_DataType *type, const int64_t **shape,
                             uint64_t *rank, const void **base, size_t *size, void **userp)
{
    static const int64_t four = 4;

    *name = "OUT";
    *type = TRITONSERVER_TYPE_FP32;
    *shape = &four;
    *rank = 1;
    *base = call_buffer;
    *size = 16;
    *userp = call_buffer_userp;
    return NULL;
}

static TRITONSERVER_Error *fuzz_Transactions(uint32_t *flags)
{
    *flags = TRITONSERVER_TXN_ONE_TO_ONE;
    return NULL;
}

static TRITONSERVER_Error *fuzz_Ready(bool *ready)
{
    *ready = true;
    return NULL;
}

/* The backend declares them weak, and so not static. */
TRITONSERVER_Error *fuzz_set_parent(TRITONSERVER_InferenceRequest *request,
                                    TRITONBACKEND_Request *parent) __attribute__((weak));
TRITONSERVER_Error *fuzz_set_parent(TRITONSERVER_InferenceRequest *request,
                                    TRITONBACKEND_Request *parent)
{
    must_hold(parent >= asked && parent < asked + N_REQUESTS, "a parent");
    return fuzz_Accept(request);
}

TRITONSERVER_Error *fuzz_readiness_changed(TRITONBACKEND_ModelInstance *changed)
    __attribute__((weak));
TRITONSERVER_Error *fuzz_readiness_changed(TRITONBACKEND_ModelInstance *changed)
{
    (void)changed;
    return NULL;
}

#define conch_request_set_parent                                       fuzz_set_parent
#define conch_model_instance_readiness_changed                         fuzz_readiness_changed
#define TRITONBACKEND_ResponseNew                                      fuzz_ResponseNew
#define TRITONBACKEND_ResponseNewFromFactory                           fuzz_ResponseNewFromFactory
#define TRITONBACKEND_ResponseDelete                                   fuzz_ResponseDelete
#define TRITONBACKEND_ResponseSend                                     fuzz_ResponseSend
#define TRITONBACKEND_ResponseFactoryNew                               fuzz_ResponseFactoryNew
#define TRITONBACKEND_ResponseFactoryDelete                            fuzz_ResponseFactoryDelete
#define TRITONBACKEND_ResponseFactorySendFlags                         fuzz_ResponseFactorySendFlags
#define TRITONBACKEND_ResponseFactoryIsCancelled                       fuzz_IsCancelled
#define TRITONBACKEND_RequestIsCancelled                               fuzz_IsCancelled
#define TRITONBACKEND_RequestRelease                                   fuzz_RequestRelease
#define TRITONBACKEND_ResponseOutput                                   fuzz_ResponseOutput
#define TRITONBACKEND_OutputBuffer                                     fuzz_OutputBuffer
#define TRITONBACKEND_ResponseSetStringParameter(r, name, v)           fuzz_Parameter(r, name)
#define TRITONBACKEND_ResponseSetIntParameter(r, name, v)              fuzz_Parameter(r, name)
#define TRITONBACKEND_ResponseSetBoolParameter(r, name, v)             fuzz_Parameter(r, name)
#define TRITONBACKEND_ResponseSetDoubleParameter(r, name, v)           fuzz_Parameter(r, name)
#define TRITONBACKEND_ModelInstanceReportStatistics(...)               ((TRITONSERVER_Error *)NULL)
#define TRITONBACKEND_ModelInstanceReportBatchStatistics(...)          ((TRITONSERVER_Error *)NULL)
#define TRITONSERVER_MetricFamilyNew(f, kind, name, text)              fuzz_New((void **)(f))
#define TRITONSERVER_MetricFamilyDelete                                fuzz_Delete
#define TRITONSERVER_MetricNew(m, family, labels, n)                   fuzz_New((void **)(m))
#define TRITONSERVER_MetricDelete                                      fuzz_Delete
#define TRITONSERVER_MetricIncrement(m, v)                             fuzz_Accept(m)
#define TRITONSERVER_MetricSet(m, v)                                   fuzz_Accept(m)
#define TRITONSERVER_MetricValue                                       fuzz_MetricValue
#define TRITONSERVER_InferenceRequestNew(r, s, name, v)                fuzz_New((void **)(r))
#define TRITONSERVER_InferenceRequestDelete                            fuzz_Delete
#define TRITONSERVER_InferenceRequestCancel                            fuzz_Accept
#define TRITONSERVER_InferenceRequestSetId(r, v)                       fuzz_Accept(r)
#define TRITONSERVER_InferenceRequestSetFlags(r, v)                    fuzz_Accept(r)
#define TRITONSERVER_InferenceRequestSetCorrelationId(r, v)            fuzz_Accept(r)
#define TRITONSERVER_InferenceRequestSetCorrelationIdString(r, v)      fuzz_Accept(r)
#define TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(r, v)      fuzz_Accept(r)
#define TRITONSERVER_InferenceRequestSetPriorityUInt64(r, v)           fuzz_Accept(r)
#define TRITONSERVER_InferenceRequestSetStringParameter(r, name, v)    fuzz_Parameter(r, name)
#define TRITONSERVER_InferenceRequestSetIntParameter(r, name, v)       fuzz_Parameter(r, name)
#define TRITONSERVER_InferenceRequestSetBoolParameter(r, name, v)      fuzz_Parameter(r, name)
#define TRITONSERVER_InferenceRequestSetDoubleParameter(r, name, v)    fuzz_Parameter(r, name)
#define TRITONSERVER_InferenceRequestAddInput(r, name, type, shape, n) fuzz_Parameter(r, name)
#define TRITONSERVER_InferenceRequestAddRequestedOutput(r, name)       fuzz_Parameter(r, name)
#define TRITONSERVER_InferenceRequestAppendInputData(r, name, base, size, type, id)                \
    fuzz_AppendInputData(r, base, size)
#define TRITONSERVER_InferenceRequestSetReleaseCallback fuzz_SetReleaseCallback
#define TRITONSERVER_InferenceRequestSetResponseCallback(r, a, u, fn, v)                           \
    fuzz_SetResponseCallback(r, fn)
#define TRITONSERVER_ServerInferAsync(s, r, t)                              fuzz_InferAsync(r)
#define TRITONSERVER_ServerModelTransactionProperties(s, name, v, flags, p) fuzz_Transactions(flags)
#define TRITONSERVER_ServerModelIsReady(s, name, v, ready)                  fuzz_Ready(ready)
#define TRITONSERVER_ServerLoadModel(s, name)                               fuzz_Parameter(s, name)
#define TRITONSERVER_ServerLoadModelWithParameters(s, name, list, n)        fuzz_Parameter(s, name)
#define TRITONSERVER_ServerUnloadModel(s, name)                             fuzz_Parameter(s, name)
#define TRITONSERVER_ServerUnloadModelAndDependents(s, name)                fuzz_Parameter(s, name)
#define TRITONSERVER_ResponseAllocatorNew(a, alloc, release, s)             fuzz_AllocatorNew(a, alloc, release)
#define TRITONSERVER_ResponseAllocatorDelete                                fuzz_Delete
#define TRITONSERVER_InferenceResponseDelete                                fuzz_InferenceResponseDelete
#define TRITONSERVER_InferenceResponseError(r)                              ((TRITONSERVER_Error *)NULL)
#define TRITONSERVER_InferenceResponseOutputCount(r, n)                     fuzz_OutputCount(n, 1)
#define TRITONSERVER_InferenceResponseParameterCount(r, n)                  fuzz_OutputCount(n, 0)
#define TRITONSERVER_InferenceResponseOutput(r, i, name, type, shape, rank, base, size, mt, id, u) \
    fuzz_InferenceResponseOutput(name, type, shape, rank, base, size, u)
#define TRITONSERVER_LogMessage(level, file, line, text) fuzz_Parameter(text, file)

/* ---- The backend ------------------------------------------------------------------------------
 */

#include "common/backend.c"
#include "common/bytes.c"
#include "common/doc.c"
#include "python/call.c"
#include "python/channel.c"
#include "python/child.c"
#include "python/control.c"
#include "python/execute.c"
#include "python/families.c"
#include "python/instance.c"
#include "python/memory.c"
#include "python/pack.c"
#include "python/reply.c"
#include "python/respond.c"
#include "python/tensor.c"
#include "python/text.c"

#include "lib/python_stand_ins.h"

/* What has a process or a thread is not here. */
bool watcher_add(struct watch *w, int fd, uint32_t events)
{
    (void)w;
    (void)fd;
    (void)events;
    return true;
}

void watcher_change(struct watch *w, uint32_t events)
{
    (void)w;
    (void)events;
}

void watcher_remove(struct watch *w)
{
    (void)w;
}

TRITONSERVER_Error *watcher_run(void (*run)(void *arg), void *arg)
{
    if (allocation_fails())
        return lack();
    run(arg);
    return NULL;
}

TRITONSERVER_Error *process_spawn(struct process *p, const struct process_start *start)
{
    (void)p;
    (void)start;
    return lack();
}

void process_kill(const struct process *p)
{
    (void)p;
}

void process_reap(struct process *p)
{
    (void)p;
}

bool process_has_ended(const struct process *p)
{
    (void)p;
    return false;
}

void process_done(struct process *p)
{
    (void)p;
}

const char *environment_python(const struct environment *e)
{
    (void)e;
    return "";
}

const char *const *environment_variables(const struct environment *e)
{
    (void)e;
    return NULL;
}

/* ---- The target -------------------------------------------------------------------------------
 */

enum { UP_BYTES = 1 << 20, MESSAGE_AT = 128 };

static struct instance instance;
static struct child child;

static bool open_child(void)
{
    instance = (struct instance){.name = "m_0_0", .stage = STARTING};
    child = (struct child){.n_refs = 1000, .free_pending = UINT32_MAX, .kick = -1};
    child.name = (char *)(uintptr_t) "m_0_0";
    child.ops = &instance_ops;
    child.owner = &instance;
    child.server = (TRITONSERVER_Server *)&thing;
    child.has_greeted = true;
    child.channel.blocked = on_blocked;
    child.channel.arg = &child;
    pthread_mutex_init(&instance.mu, NULL);
    pthread_mutex_init(&child.mu, NULL);
    pthread_cond_init(&instance.changed, NULL);
    pthread_cond_init(&child.changed, NULL);
    TRITONSERVER_ErrorDelete(calls_open());
    child.calls = calls_new();
    child.families = families_new();
    TRITONSERVER_Error *err = channel_open(&child.channel, UP_BYTES, 4096, UP_BYTES);
    const bool opened =
        child.calls && child.families && !err && ftruncate(child.channel.up_fd, UP_BYTES) == 0;
    TRITONSERVER_ErrorDelete(err);
    return opened;
}

static void close_child(void)
{
    free_pendings(&child);
    calls_free(child.calls);
    calls_close();
    families_free(child.families);
    channel_close(&child.channel);
    free(child.cause);
    free(instance.why);
    pthread_mutex_destroy(&child.mu);
    pthread_cond_destroy(&child.changed);
    pthread_mutex_destroy(&instance.mu);
    pthread_cond_destroy(&instance.changed);
}

static bool begin_run(struct run *r)
{
    struct execution *e = &instance.execution;
    TRITONBACKEND_Request *all[N_REQUESTS];

    *r = (struct run){.in = &instance, .e = e, .child = &child, .n_sent = N_REQUESTS};
    if (!reserve_parts(e, N_REQUESTS))
        return false;
    e->n_parts = N_REQUESTS;
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        asked[i] = (struct TRITONBACKEND_Request){0};
        all[i] = &asked[i];
        e->parts[i] = (struct execute_part){.request = &asked[i], .is_sent = true, .rows = 1};
    }
    if (!child_register(&child, all, N_REQUESTS, e->keys))
        return false;
    note_keys(e);
    return true;
}

/* Every request is answered once, now or when its sender has gone with the child; or it goes back
 * to its queue. */
static void end_run(struct run *r, bool answered)
{
    if (!answered)
        fail_sent(r, child_ended_error(&child));
    finish_batch(r);
    sweep_pendings(&child);
    for (int i = 0; i < N_REQUESTS; i++) {
        must_hold(asked[i].n_released == 1, "a request is released once");
        if (!asked[i].was_refused)
            must_hold(asked[i].n_final == !asked[i].n_rescheduled, "a request is answered once");
    }
}

static void read_input(struct run *r, uint8_t kind, uint8_t id, size_t size)
{
    struct note n = {.kind = kind, .n_blocks = 1, .at = MESSAGE_AT, .size_bytes = size};

    r->at = MESSAGE_AT;
    r->size_bytes = size;
    if (!kind) {
        end_run(r, read_answer(r));
        return;
    }
    n.id = id < N_REQUESTS ? r->e->keys[id] : id;
    if (!read_note(&child, &n))
        child_condemn(&child, "has sent an impossible message");
    end_run(r, false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run r;

    if (size < 3 || size > 65536)
        return 0;
    must_hold(n_live == 0, "nothing is left of the input before");
    allocations_left = 0;
    if (open_child()) {
        memcpy(mapping_find(child.channel.up, MESSAGE_AT, size - 3), data + 3, size - 3);
        if (begin_run(&r)) {
            allocations_left = data[0];
            read_input(&r, data[1], data[2], size - 3);
            allocations_left = 0;
        }
    }
    close_child();
    execution_done(&instance.execution);
    must_hold(n_live == 0, "all memory is freed");
    return 0;
}
