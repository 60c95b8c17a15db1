/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled models have numbers, 1, 2, …. `broken` is the highest number of one that a run has
 * broken; all up to it are given up. A runner whose request is of one of these gets another request
 * when its next run begins. Requests that are not used are freed when the model is compiled anew,
 * so that at most those that are keep an old one in memory.
 *
 * A run counts only if no other run has broken its compiled model before its end. That other run
 * may have failed inside OpenVINO while its thread has not come to say so. So who ends asks
 * OpenVINO for the outcome of each run that is in progress. Where OpenVINO has one graph for all
 * runs, and executes one after the other, a run even waits until the one before has said it.
 *
 * OpenVINO's device CPU loses the errors of runs if it has one stream and one thread: the request
 * gets the outputs of an earlier run as if they were its own, and the failed task is executed again
 * later, even after its request is gone. With no stream at all it does the same work, on the
 * calling thread, and gives the errors.
 */
#include "openvino/compiled.h"

#include <string.h>
#include <time.h>

#include "openvino/model.h"

/* ---- Compile --------------------------------------------------------------------------------- */

static uint64_t read_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Is there key:1 in a list such as {CPU:{NUM_STREAMS:1,PERF_COUNT:NO}}? */
static bool lists_one(const char *list, const char *key)
{
    size_t len = strlen(key);

    for (const char *at = list; (at = strstr(at, key)) != NULL; at += len)
        if (strncmp(at + len, ":1", 2) == 0 && (at[len + 2] == ',' || at[len + 2] == '}'))
            return true;
    return false;
}

static TRITONSERVER_Error *has_property_value(const struct model *m,
                                              const struct ov_compiled *compiled, const char *key,
                                              const char *wanted, bool *ret_has)
{
    const struct library *l = &m->rt->lib;
    char *value = NULL;

    TRY_OV(l, "reading a property of the compiled model", compiled_model_get_property, compiled,
           key, &value);
    *ret_has = strcmp(value, wanted) == 0;
    l->api.free(value);
    return NULL;
}

/* Of a device that OpenVINO makes of others. Those that do not tell are taken as they are. */
static bool part_has_one_of_both(const struct model *m, const struct ov_compiled *compiled)
{
    const struct library *l = &m->rt->lib;
    char *parts = NULL;
    bool has;

    if (l->api.compiled_model_get_property(compiled, "DEVICE_PROPERTIES", &parts) != 0)
        return false;
    has = lists_one(parts, "NUM_STREAMS") && lists_one(parts, "INFERENCE_NUM_THREADS");
    l->api.free(parts);
    return has;
}

/* Does it lose errors, since it has one stream and one thread? */
static TRITONSERVER_Error *loses_errors(const struct model *m, const struct ov_compiled *compiled,
                                        bool *ret_it_does)
{
    bool one_stream, one_thread;

    if (strcmp(m->asked.device, "CPU") != 0) {
        *ret_it_does = part_has_one_of_both(m, compiled);
        return NULL;
    }
    TRY(has_property_value(m, compiled, "NUM_STREAMS", "1", &one_stream));
    TRY(has_property_value(m, compiled, "INFERENCE_NUM_THREADS", "1", &one_thread));
    *ret_it_does = one_stream && one_thread;
    return NULL;
}

/* Does it have one graph for all requests? */
static TRITONSERVER_Error *
executes_one_at_a_time(const struct model *m, const struct ov_compiled *compiled, bool *ret_it_does)
{
    bool none, one;

    *ret_it_does = true;
    if (strcmp(m->asked.device, "CPU") != 0)
        return NULL;
    TRY(has_property_value(m, compiled, "NUM_STREAMS", "0", &none));
    TRY(has_property_value(m, compiled, "NUM_STREAMS", "1", &one));
    *ret_it_does = none || one;
    return NULL;
}

static TRITONSERVER_Error *compile_as_asked(const struct model *m, struct ov_compiled **ret)
{
    TRY_OV(&m->rt->lib, "loading model", core_compile_model, m->core, m->read, m->asked.device, 0,
           ret);
    return NULL;
}

/* The core keeps the property, so later calls compile once. */
static TRITONSERVER_Error *compile_without_stream(const struct model *m, struct ov_compiled **ret)
{
    const struct library *l = &m->rt->lib;

    BACKEND_LOG(VERBOSE, "model '%s': OpenVINO computes in the calling thread, without a stream",
                m->name);
    l->api.compiled_model_free(*ret);
    *ret = NULL;
    TRY_OV(l, "configuring openvino core", core_set_property, m->core, "CPU", "NUM_STREAMS", "0");
    return compile_as_asked(m, ret);
}

/* @ret  the caller frees it, also after an error; NULL: there is none */
static TRITONSERVER_Error *compile_with_errors(const struct model *m, struct ov_compiled **ret)
{
    bool loses;

    TRY(compile_as_asked(m, ret));
    TRY(loses_errors(m, *ret, &loses));
    return loses ? compile_without_stream(m, ret) : NULL;
}

/* ---- The model's ----------------------------------------------------------------------------- */

/* Is this output an input as it is? Both then have the names of both. */
static bool is_also_input(const struct model *m, const struct tensor *t)
{
    struct ov_port *port = NULL;

    if (m->rt->lib.api.compiled_model_input_by_name(m->compiled.model, t->name, &port) != 0)
        return false;
    m->rt->lib.api.output_const_port_free(port);
    return true;
}

/* They serve for the requests of later compiled models, too: OpenVINO knows them by their names. */
static TRITONSERVER_Error *read_ports(struct model *m, struct side *side)
{
    const struct library *l = &m->rt->lib;

    for (size_t i = 0; i < side->n; i++) {
        struct tensor *t = &side->tensors[i];
        int type = 0;

        if ((side == &m->inputs
                 ? l->api.compiled_model_input_by_name
                 : l->api.compiled_model_output_by_name)(m->compiled.model, t->name, &t->port) != 0)
            return library_error(l, "reading a tensor of the compiled model");
        t->is_input = side == &m->outputs && is_also_input(m, t);
        TRY_OV(l, "reading the type of a tensor", port_get_element_type, t->port, &type);
        /* Memory is measured by our type. */
        if (type != t->type->ov)
            return backend_error(TRITONSERVER_ERROR_INTERNAL,
                                 "model '%s': %s '%s' has another type when it is compiled "
                                 "(number %d in OpenVINO)",
                                 m->name, side->what, t->name, type);
    }
    return NULL;
}

TRITONSERVER_Error *compiled_make(struct model *m)
{
    struct compiled *c = &m->compiled;
    uint64_t before_ms = read_clock_ms();

    pthread_mutex_init(&c->mu, NULL);
    pthread_mutex_init(&c->run_mu, NULL);
    c->has_mu = true;
    TRY(compile_with_errors(m, &c->model));
    c->cost_ms = read_clock_ms() - before_ms;
    c->number = 1;
    TRY(executes_one_at_a_time(m, c->model, &c->one_at_a_time));
    TRY(read_ports(m, &m->inputs));
    return read_ports(m, &m->outputs);
}

void compiled_done(struct model *m)
{
    struct compiled *c = &m->compiled;

    if (c->model)
        m->rt->lib.api.compiled_model_free(c->model);
    if (c->has_mu) {
        pthread_mutex_destroy(&c->mu);
        pthread_mutex_destroy(&c->run_mu);
    }
}

TRITONSERVER_Error *compiled_computes_in_caller(const struct model *m, bool *ret_it_does)
{
    return has_property_value(m, m->compiled.model, "NUM_STREAMS", "0", ret_it_does);
}

/* ---- Compile anew ---------------------------------------------------------------------------- */

static void free_request_locked(const struct model *m, struct runner *r)
{
    if (r->request)
        m->rt->lib.api.infer_request_free(r->request);
    r->request = NULL;
    r->number = 0;
}

/* The model of before stays in memory as long as a request of it is there. */
static TRITONSERVER_Error *compile_anew_locked(struct model *m)
{
    struct compiled *c = &m->compiled;
    uint64_t before_ms = read_clock_ms();
    TRITONSERVER_Error *err;
    stack_t stack;

    for (struct runner *r = c->first; r; r = r->next)
        if (!atomic_load(&r->used) && r->number <= c->broken)
            free_request_locked(m, r);
    if (c->model)
        m->rt->lib.api.compiled_model_free(c->model);
    c->model = NULL;
    (void)sigaltstack(NULL, &stack);
    err = compile_as_asked(m, &c->model);
    library_give_stack_back(&stack);
    if (err)
        return err;
    c->number++;
    BACKEND_LOG(INFO,
                "model '%s': compiled anew in %llu ms, since a run that failed or was ended has "
                "left the compiled model broken (%llu times so far)",
                m->name, (unsigned long long)(read_clock_ms() - before_ms),
                (unsigned long long)c->number - 1);
    return NULL;
}

static TRITONSERVER_Error *renew_request_locked(struct model *m, struct runner *r, bool alone,
                                                bool *ret_renewed)
{
    struct compiled *c = &m->compiled;

    if (!c->model || c->broken >= c->number || alone)
        TRY(compile_anew_locked(m));
    if (r->number == c->number)
        return NULL;
    free_request_locked(m, r);
    TRY_OV(&m->rt->lib, "creating infer request object", compiled_model_create_infer_request,
           c->model, &r->request);
    r->number = c->number;
    *ret_renewed = true;
    return NULL;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

TRITONSERVER_Error *runner_begin(struct model *m, struct runner *r, bool alone, bool *ret_renewed)
{
    struct compiled *c = &m->compiled;
    TRITONSERVER_Error *err;

    *ret_renewed = false;
    pthread_mutex_lock(&c->mu);
    err = renew_request_locked(m, r, alone, ret_renewed);
    atomic_store(&r->used, !err);
    if (err || !alone)
        pthread_mutex_unlock(&c->mu);
    return err;
}

static bool run_has_failed(const struct model *m, const struct runner *r)
{
    int status = m->rt->lib.api.infer_request_wait_for(r->request, 0);

    return status != 0 && status != OV_NOT_READY;
}

/* Has another run of the same compiled model failed in OpenVINO, whose thread has not said so? */
static bool another_failed_locked(const struct model *m, const struct runner *r)
{
    for (const struct runner *o = m->compiled.first; o; o = o->next)
        if (o != r && atomic_load(&o->used) && o->number == r->number && run_has_failed(m, o))
            return true;
    return false;
}

void runner_enter(struct model *m, bool alone)
{
    if (m->compiled.one_at_a_time && !alone)
        pthread_mutex_lock(&m->compiled.run_mu);
}

void runner_leave(struct model *m, bool alone)
{
    if (m->compiled.one_at_a_time && !alone)
        pthread_mutex_unlock(&m->compiled.run_mu);
}

bool runner_counts(struct model *m, struct runner *r, bool alone, bool failed)
{
    struct compiled *c = &m->compiled;
    bool counts;

    if (!alone)
        pthread_mutex_lock(&c->mu);
    counts = alone || (r->number > c->broken && !another_failed_locked(m, r));
    if ((failed || !counts) && c->broken < r->number)
        c->broken = r->number;
    pthread_mutex_unlock(&c->mu);
    return counts;
}

void runner_end(struct runner *r)
{
    atomic_store(&r->used, false);
}

TRITONSERVER_Error *runner_open(struct model *m, struct runner *r)
{
    struct compiled *c = &m->compiled;
    bool renewed;
    TRITONSERVER_Error *err;

    pthread_mutex_lock(&c->mu);
    r->next = c->first;
    c->first = r;
    err = renew_request_locked(m, r, false, &renewed);
    pthread_mutex_unlock(&c->mu);
    return err;
}

void runner_close(struct model *m, struct runner *r)
{
    struct compiled *c = &m->compiled;

    if (!c->has_mu)
        return;
    pthread_mutex_lock(&c->mu);
    for (struct runner **at = &c->first; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    free_request_locked(m, r);
    pthread_mutex_unlock(&c->mu);
}
