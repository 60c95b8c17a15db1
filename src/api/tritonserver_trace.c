/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonserver.h: traces.
 */
#include "api/handles.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/trace/trace.h"

_Static_assert((int)TRACE_CUSTOM_ACTIVITY == (int)TRITONSERVER_TRACE_CUSTOM_ACTIVITY, "activities");
_Static_assert((int)TRACE_TENSORS == (int)TRITONSERVER_TRACE_LEVEL_TENSORS, "levels");

/* A trace of an embedder: our part, and the embedder's callbacks. */
struct api_trace {
    struct trace trace;
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn;
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_fn;
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn;
    void *data;
};

static struct api_trace *to_outer_trace(struct trace *t)
{
    return CONTAINER_OF(t, struct api_trace, trace);
}

static void report_activity(struct trace *t, enum trace_activity activity, uint64_t ns)
{
    to_outer_trace(t)->activity_fn(as_trace(t), (TRITONSERVER_InferenceTraceActivity)activity, ns,
                                   to_outer_trace(t)->data);
}

static void report_tensor(struct trace *t, enum trace_activity activity,
                          const struct trace_tensor *what)
{
    if (to_outer_trace(t)->tensor_fn)
        to_outer_trace(t)->tensor_fn(as_trace(t), (TRITONSERVER_InferenceTraceActivity)activity,
                                     what->name, (TRITONSERVER_DataType)what->dtype, what->base,
                                     what->size_bytes, what->shape, what->n_dims,
                                     (TRITONSERVER_MemoryType)what->memory_type,
                                     what->memory_type_id, to_outer_trace(t)->data);
}

static void report_release(struct trace *t)
{
    to_outer_trace(t)->release_fn(as_trace(t), to_outer_trace(t)->data); /* deletes it */
}

static struct trace *spawn_child(struct trace *t);

static void free_trace(struct trace *t)
{
    trace_done(t);
    mem_free(to_outer_trace(t));
}

static const struct trace_ops api_trace_ops = {
    .activity = report_activity,
    .tensor = report_tensor,
    .release = report_release,
    .spawn = spawn_child,
    .free = free_trace,
};

static struct api_trace *make_trace(unsigned int level, uint64_t parent_id)
{
    struct api_trace *a = mem_zalloc(sizeof(*a));
    trace_init(&a->trace, &api_trace_ops, level, parent_id);
    return a;
}

static struct trace *spawn_child(struct trace *t)
{
    const struct api_trace *parent = to_outer_trace(t);
    struct api_trace *child = make_trace(t->level, t->id);
    child->activity_fn = parent->activity_fn;
    child->tensor_fn = parent->tensor_fn;
    child->release_fn = parent->release_fn;
    child->data = parent->data;
    return &child->trace;
}

const char *TRITONSERVER_InferenceTraceLevelString(TRITONSERVER_InferenceTraceLevel level)
{
    return trace_level_name((unsigned int)level);
}

const char *TRITONSERVER_InferenceTraceActivityString(TRITONSERVER_InferenceTraceActivity activity)
{
    return trace_activity_name((unsigned int)activity);
}

TRITONSERVER_Error *TRITONSERVER_InferenceTraceTensorNew(
    TRITONSERVER_InferenceTrace **trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void *trace_userp)
{
    NEED(trace);
    NEED(activity_fn);
    NEED(release_fn);
    struct api_trace *a = make_trace((unsigned int)level, parent_id);
    a->activity_fn = activity_fn;
    a->tensor_fn = tensor_activity_fn;
    a->release_fn = release_fn;
    a->data = trace_userp;
    *trace = as_trace(&a->trace);
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceTraceNew(TRITONSERVER_InferenceTrace **trace,
                               TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
                               TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
                               TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void *trace_userp)
{
    return TRITONSERVER_InferenceTraceTensorNew(trace, level, parent_id, activity_fn, NULL,
                                                release_fn, trace_userp);
}

TRITONSERVER_Error *TRITONSERVER_InferenceTraceDelete(TRITONSERVER_InferenceTrace *trace)
{
    NEED(trace);
    trace_free(to_trace(trace));
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceTraceSpawnChildTrace(TRITONSERVER_InferenceTrace *trace,
                                           TRITONSERVER_InferenceTrace **child_trace)
{
    NEED(trace);
    NEED(child_trace);
    *child_trace = as_trace(trace_spawn(to_trace(trace)));
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceTraceReportActivity(TRITONSERVER_InferenceTrace *trace,
                                                              uint64_t timestamp,
                                                              const char *activity_name)
{
    NEED(trace);
    NEED(activity_name);
    trace_custom(to_trace(trace), activity_name, timestamp);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceTraceSetContext(TRITONSERVER_InferenceTrace *trace,
                                                          const char *trace_context)
{
    NEED(trace);
    NEED(trace_context);
    trace_set_context(to_trace(trace), trace_context);
    return NULL;
}

/* GETTER(function, result's type, result, its value) */
#define GETTER(function, type, result, value)                                                      \
    TRITONSERVER_Error *TRITONSERVER_InferenceTrace##function(TRITONSERVER_InferenceTrace *trace,  \
                                                              type *result)                        \
    {                                                                                              \
        NEED(trace);                                                                               \
        NEED(result);                                                                              \
        *result = value;                                                                           \
        return NULL;                                                                               \
    }

GETTER(Id, uint64_t, id, to_trace(trace)->id)
GETTER(ParentId, uint64_t, parent_id, to_trace(trace)->parent_id)
GETTER(ModelName, const char *, model_name, to_trace(trace)->model_name)
GETTER(ModelVersion, int64_t, model_version, to_trace(trace)->model_version)
GETTER(RequestId, const char *, request_id, to_trace(trace)->request_id)
GETTER(Context, const char *, context, trace_context(to_trace(trace)))
