/* SPDX-License-Identifier: Apache-2.0 */
/*
 * witness - a backend that reports what it was told about its instances, and where they ran.
 *
 * The model has an input IN (INT32, one element, which is not read) and an output OUT (one string):
 * a JSON document with `executed` (instance and place), `model` (the place of its initialisation)
 * and `instances`, in the order in which their initialisation ended. A place is the thread's id,
 * its CPUs and its memory nodes ("" without a policy). Ends of instances and models are log lines.
 * Executions are counted by the statistics, without times.
 *
 * Settings of the backend: parallel (instances may initialise at the same time), own-threads (each
 * instance has a thread for life), device-blocking, prefer-model (that many instances of KIND_MODEL
 * if the configuration has no group). Parameters of the model: meet (each initialisation waits, for
 * at most a minute, until this many are inside at once), fail (the name of the instance, or of the
 * model, whose initialisation fails), hold (the path of a file: executions wait while it exists,
 * and have made one with the suffix .reached.<name of the instance>).
 */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "conch/backend.h"
#include "triton/core/tritonbackend.h"

/* Triton does not have this function. */
extern __typeof__(conch_backend_attribute_set_instance_threads)
    conch_backend_attribute_set_instance_threads __attribute__((weak));

enum { MAX_INSTANCES = 64, TEXT_BYTES = 64 << 10, MEET_WITHIN_S = 60 };

struct place {
    long tid;
    char cpus[256], nodes[256];
};

struct witness {
    char *told; /* JSON members */
    struct place initialized;
};

struct model {
    struct place initialized;
    unsigned int meet;
    char *fail, *hold; /* NULL: none */

    pthread_mutex_t mu;
    pthread_cond_t entered;
    /* Under mu. */
    unsigned int n_inside, most_inside, n;
    struct witness *instances[MAX_INSTANCES];
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "witness: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static void say(const char *what, const char *who)
{
    char line[512];
    snprintf(line, sizeof(line), "witness: %s %s", what, who);
    must(TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, line));
}

struct text {
    size_t size;
    char bytes[TEXT_BYTES];
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->bytes + t->size, sizeof(t->bytes) - t->size, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(t->bytes) - t->size)
        abort();
    t->size += (size_t)n;
}

/* Returns the string after a key in a document whose form is known; NULL if the key is missing. */
static char *string_after(const char *json, size_t size, const char *key)
{
    char *copy = strndup(json, size), *found = NULL;
    char *at = strstr(copy, key);
    if (at) {
        at += strlen(key);
        found = strndup(at, strcspn(at, "\""));
    }
    free(copy);
    return found;
}

/* ---- Threads, CPUs and memory nodes ---------------------------------------------------------- */

static void list_bits(const unsigned long *bits, unsigned int n, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned int i = 0; i < n && used + 12 < size; i++) {
        if (bits[i / (8 * sizeof(long))] >> (i % (8 * sizeof(long))) & 1)
            used += (size_t)snprintf(out + used, size - used, used ? ",%u" : "%u", i);
    }
}

static void look_around(struct place *p)
{
    unsigned long nodes[1024 / (8 * sizeof(long))] = {0};
    cpu_set_t cpus;
    int mode = 0;

    p->tid = syscall(SYS_gettid);
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof(cpus), &cpus);
    list_bits((unsigned long *)&cpus, CPU_SETSIZE, p->cpus, sizeof(p->cpus));
    p->nodes[0] = '\0';
    if (syscall(SYS_get_mempolicy, &mode, nodes, 1024UL, NULL, 0UL) == 0 && mode != 0)
        list_bits(nodes, 1024, p->nodes, sizeof(p->nodes));
}

static void add_place(struct text *t, const struct place *p)
{
    add(t, "{\"tid\":%ld,\"cpus\":\"%s\",\"nodes\":\"%s\"}", p->tid, p->cpus, p->nodes);
}

/* ---- The backend ----------------------------------------------------------------------------- */

static char *backend_setting(TRITONBACKEND_Backend *backend, const char *key)
{
    TRITONSERVER_Message *message;
    const char *json;
    size_t size;
    must(TRITONBACKEND_BackendConfig(backend, &message));
    must(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
    return string_after(json, size, key);
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
    char *blocking = backend_setting(backend, "\"device-blocking\":\"");
    if (blocking)
        must(TRITONBACKEND_BackendSetExecutionPolicy(backend,
                                                     TRITONBACKEND_EXECUTION_DEVICE_BLOCKING));
    free(blocking);
    return NULL;
}

static void ask_for_threads(TRITONBACKEND_Backend *backend, TRITONBACKEND_BackendAttribute *to)
{
    char *own = backend_setting(backend, "\"own-threads\":\"");
    if (own && conch_backend_attribute_set_instance_threads)
        must(conch_backend_attribute_set_instance_threads(to, true));
    free(own);
}

TRITONSERVER_Error *TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend *backend,
                                                      TRITONBACKEND_BackendAttribute *attributes)
{
    char *parallel = backend_setting(backend, "\"parallel\":\"");
    char *prefer = backend_setting(backend, "\"prefer-model\":\"");
    if (parallel)
        must(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
            attributes, strcmp(parallel, "true") == 0));
    if (prefer)
        must(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
            attributes, TRITONSERVER_INSTANCEGROUPKIND_MODEL, strtoul(prefer, NULL, 10), NULL, 0));
    free(parallel);
    free(prefer);
    ask_for_threads(backend, attributes);
    return NULL;
}

/* ---- The model ------------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct model *m = calloc(1, sizeof(*m));
    TRITONSERVER_Message *message;
    const char *json, *name;
    size_t size;

    must(TRITONBACKEND_ModelConfig(model, 1, &message));
    must(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
    char *meet = string_after(json, size, "\"meet\":{\"string_value\":\"");
    m->meet = meet ? (unsigned int)strtoul(meet, NULL, 10) : 0;
    m->fail = string_after(json, size, "\"fail\":{\"string_value\":\"");
    m->hold = string_after(json, size, "\"hold\":{\"string_value\":\"");
    free(meet);
    look_around(&m->initialized);
    must(TRITONSERVER_MessageDelete(message));

    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&m->entered, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&m->mu, NULL);
    must(TRITONBACKEND_ModelSetState(model, m));
    must(TRITONBACKEND_ModelName(model, &name));
    if (m->fail && strcmp(m->fail, name) == 0)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "this model does not want to");
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    struct model *m;
    const char *name;
    must(TRITONBACKEND_ModelState(model, (void **)&m));
    must(TRITONBACKEND_ModelName(model, &name));
    say("finalized model", name);
    pthread_cond_destroy(&m->entered);
    pthread_mutex_destroy(&m->mu);
    free(m->fail);
    free(m->hold);
    free(m);
    return NULL;
}

static struct model *model_of(TRITONBACKEND_ModelInstance *instance)
{
    TRITONBACKEND_Model *model;
    void *state;
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, &state));
    return state;
}

/* ---- The instance ---------------------------------------------------------------------------- */

/* What the server says of the instance, as JSON members. */
static char *told(TRITONBACKEND_ModelInstance *instance)
{
    struct text *t = calloc(1, sizeof(*t));
    TRITONSERVER_InstanceGroupKind kind;
    TRITONSERVER_Message *policy;
    const char *name, *json, *text;
    uint32_t n;
    int64_t id;
    int32_t device;
    size_t size;
    bool passive;

    must(TRITONBACKEND_ModelInstanceName(instance, &name));
    must(TRITONBACKEND_ModelInstanceKind(instance, &kind));
    must(TRITONBACKEND_ModelInstanceDeviceId(instance, &device));
    must(TRITONBACKEND_ModelInstanceIsPassive(instance, &passive));
    must(TRITONBACKEND_ModelInstanceHostPolicy(instance, &policy));
    must(TRITONSERVER_MessageSerializeToJson(policy, &json, &size));
    add(t, "\"name\":\"%s\",\"kind\":\"%s\",\"device\":%d,\"passive\":%s,\"policy\":%.*s", name,
        TRITONSERVER_InstanceGroupKindString(kind), device, passive ? "true" : "false", (int)size,
        json);

    must(TRITONBACKEND_ModelInstanceProfileCount(instance, &n));
    add(t, ",\"profiles\":[");
    for (uint32_t i = 0; i < n; i++) {
        must(TRITONBACKEND_ModelInstanceProfileName(instance, i, &text));
        add(t, "%s\"%s\"", i ? "," : "", text);
    }
    must(TRITONBACKEND_ModelInstanceSecondaryDeviceCount(instance, &n));
    add(t, "],\"secondary\":[");
    for (uint32_t i = 0; i < n; i++) {
        must(TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(instance, i, &text, &id));
        add(t, "%s[\"%s\",%lld]", i ? "," : "", text, (long long)id);
    }
    add(t, "]");
    char *copy = strdup(t->bytes);
    free(t);
    return copy;
}

/* Waits for the other instances, if the model asks for that. */
static void meet(struct model *m)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += MEET_WITHIN_S;

    pthread_mutex_lock(&m->mu);
    if (++m->n_inside > m->most_inside)
        m->most_inside = m->n_inside;
    pthread_cond_broadcast(&m->entered);
    while (m->most_inside < m->meet && pthread_cond_timedwait(&m->entered, &m->mu, &until) == 0)
        ;
    m->n_inside--;
    pthread_mutex_unlock(&m->mu);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    struct model *m = model_of(instance);
    const char *name;
    must(TRITONBACKEND_ModelInstanceName(instance, &name));
    meet(m);
    if (m->fail && strcmp(m->fail, name) == 0)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "this instance does not want to");

    struct witness *w = calloc(1, sizeof(*w));
    w->told = told(instance);
    look_around(&w->initialized);
    must(TRITONBACKEND_ModelInstanceSetState(instance, w));
    say("initialized instance", name);
    pthread_mutex_lock(&m->mu);
    if (m->n == MAX_INSTANCES)
        abort();
    m->instances[m->n++] = w;
    pthread_mutex_unlock(&m->mu);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    struct model *m = model_of(instance);
    struct witness *w;
    const char *name;
    must(TRITONBACKEND_ModelInstanceState(instance, (void **)&w));
    must(TRITONBACKEND_ModelInstanceName(instance, &name));
    say("finalized instance", name);
    if (!w)
        return NULL; /* its initialisation failed */
    pthread_mutex_lock(&m->mu);
    for (unsigned int i = 0; i < m->n; i++) {
        if (m->instances[i] == w)
            m->instances[i] = m->instances[--m->n];
    }
    pthread_mutex_unlock(&m->mu);
    free(w->told);
    free(w);
    return NULL;
}

static void answer(TRITONBACKEND_Request *request, const struct text *t)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    uint32_t length = (uint32_t)t->size;
    int64_t memory_id = 0, one = 1;
    char *to;

    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_BYTES, &one, 1));
    must(TRITONBACKEND_OutputBuffer(output, (void **)&to, sizeof(length) + length, &memory,
                                    &memory_id));
    memcpy(to, &length, sizeof(length));
    memcpy(to + sizeof(length), t->bytes, length);
    must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

/* Waits while the test wants that. */
static void hold(const struct model *m, const char *name)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    char reached[4096];
    if (!m->hold || access(m->hold, F_OK) != 0)
        return;
    snprintf(reached, sizeof(reached), "%s.reached.%s", m->hold, name);
    FILE *file = fopen(reached, "w");
    if (!file)
        abort();
    fclose(file);
    while (access(m->hold, F_OK) == 0)
        nanosleep(&pause, NULL);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    struct model *m = model_of(instance);
    struct text *t = calloc(1, sizeof(*t));
    struct place here;
    const char *name;

    must(TRITONBACKEND_ModelInstanceName(instance, &name));
    hold(m, name);
    look_around(&here);
    add(t, "{\"executed\":{\"by\":\"%s\",\"at\":", name);
    add_place(t, &here);
    pthread_mutex_lock(&m->mu);
    add(t, "},\"model\":");
    add_place(t, &m->initialized);
    add(t, ",\"most_inside\":%u,\"instances\":[", m->most_inside);
    for (unsigned int i = 0; i < m->n; i++) {
        add(t, "%s{%s,\"initialized\":", i ? "," : "", m->instances[i]->told);
        add_place(t, &m->instances[i]->initialized);
        add(t, "}");
    }
    pthread_mutex_unlock(&m->mu);
    add(t, "]}");
    for (uint32_t i = 0; i < request_count; i++)
        must(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], true, 0, 0, 0, 0));
    must(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, request_count, 0, 0, 0, 0));
    for (uint32_t i = 0; i < request_count; i++)
        answer(requests[i], t);
    free(t);
    return NULL;
}
