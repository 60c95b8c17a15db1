/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First a trace as its maker sees it; then the points at which the core reports. The maker's
 * functions are called directly, on the thread that has the request, with none of our locks held.
 */
#include "core/trace/trace.h"

#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "core/model.h"
#include "core/request.h"
#include "core/response.h"

enum { MAX_CONTEXT_BYTES = 1 << 20 };

const char *trace_level_name(unsigned int level)
{
    switch (level) {
    case TRACE_DISABLED:
        return "DISABLED";
    case TRACE_MIN:
        return "MIN";
    case TRACE_MAX:
        return "MAX";
    case TRACE_TIMESTAMPS:
        return "TIMESTAMPS";
    case TRACE_TENSORS:
        return "TENSORS";
    default:
        return "<unknown>";
    }
}

const char *trace_activity_name(unsigned int activity)
{
    static const char *const names[] = {
        "REQUEST_START",        "QUEUE_START",           "COMPUTE_START",   "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START", "COMPUTE_END",           "REQUEST_END",     "TENSOR_QUEUE_INPUT",
        "TENSOR_BACKEND_INPUT", "TENSOR_BACKEND_OUTPUT", "CUSTOM_ACTIVITY",
    };
    return activity < ARRAY_SIZE(names) ? names[activity] : "<unknown>";
}

void trace_init(struct trace *t, const struct trace_ops *ops, unsigned int level,
                uint64_t parent_id)
{
    static atomic_uint_least64_t next_id = 1;
    *t = (struct trace){
        .ops = ops,
        .level = level,
        .id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed),
        .parent_id = parent_id,
        .model_name = mem_strdup(""),
        .model_version = -1,
        .request_id = mem_strdup(""),
        .context = mem_strdup(""),
    };
}

void trace_done(struct trace *t)
{
    mem_free(t->model_name);
    mem_free(t->request_id);
    mem_free(t->context);
}

static void replace_text(char **text, const char *by)
{
    mem_free(*text);
    *text = mem_strdup(by);
}

void trace_set_context(struct trace *t, const char *context)
{
    replace_text(&t->context, context);
}

static void report_activity(struct trace *t, enum trace_activity activity, uint64_t ns)
{
    if (t->level & TRACE_TIMESTAMPS) {
        mutex_assert_none_held();
        t->ops->activity(t, activity, ns);
    }
}

void trace_custom(struct trace *t, const char *name, uint64_t ns)
{
    AUTO(buf) text = BUF_INIT(MAX_CONTEXT_BYTES);
    const char *end = strrchr(t->context, '}');
    bool is_object = t->context[0] == '{' && end;
    size_t length = is_object ? (size_t)(end - t->context) : 0;
    if (is_object)
        buf_add(&text, t->context, length);
    buf_addf(&text, "%s\"%llu\":",
             !is_object   ? "{"
             : length > 1 ? ","
                          : "",
             (unsigned long long)ns);
    json_write_string(&text, name, strlen(name));
    buf_addc(&text, '}');

    char *given = t->context;
    t->context = text.failed ? given : text.data;
    report_activity(t, TRACE_CUSTOM_ACTIVITY, ns);
    t->context = given;
}

/* ------------------------------------------------------------------------ what the core reports */

void trace_begin(struct request *r)
{
    struct trace *t = r->trace;
    if (LIKELY(!t))
        return;
    replace_text(&t->model_name, r->model->name);
    t->model_version = r->model->version;
    replace_text(&t->request_id, r->id);
    report_activity(t, TRACE_REQUEST_START, r->start_ns);
    trace_inputs(r, TRACE_TENSOR_QUEUE_INPUT);
    report_activity(t, TRACE_QUEUE_START, r->queue_ns);
}

void trace_end(struct request *r)
{
    struct trace *t = r->trace;
    if (LIKELY(!t))
        return;
    r->trace = NULL;
    report_activity(t, TRACE_REQUEST_END, monotonic_ns());
    t->ops->release(t);
}

void trace_inputs(struct request *r, enum trace_activity activity)
{
    struct trace *t = r->trace;
    if (LIKELY(!t) || !(t->level & TRACE_TENSORS) || !t->ops->tensor)
        return;
    mutex_assert_none_held();
    for (uint32_t i = 0; i < r->n_inputs; i++) {
        const struct input *in = r->inputs[i];
        for (uint32_t j = 0; j < in->n_buffers; j++) {
            const struct tensor_buffer *b = &in->buffers[j];
            const struct trace_tensor what = {
                .name = in->name,
                .dtype = (int)in->dtype,
                .base = b->base,
                .size_bytes = b->size_bytes,
                .shape = in->shape,
                .n_dims = in->n_dims,
                .memory_type = (int)b->type,
                .memory_type_id = b->type_id,
            };
            t->ops->tensor(t, activity, &what);
        }
    }
}

void trace_output(struct request *r, const struct output *out)
{
    struct trace *t = r->trace;
    if (LIKELY(!t) || !(t->level & TRACE_TENSORS) || !t->ops->tensor)
        return;
    mutex_assert_none_held();
    const struct trace_tensor what = {
        .name = out->name,
        .dtype = (int)out->dtype,
        .base = out->base,
        .size_bytes = out->size_bytes,
        .shape = out->shape,
        .n_dims = out->n_dims,
        .memory_type = (int)out->memory_type,
        .memory_type_id = out->memory_type_id,
    };
    t->ops->tensor(t, TRACE_TENSOR_BACKEND_OUTPUT, &what);
}

void trace_compute(const struct request *r, uint64_t exec_start_ns, uint64_t compute_start_ns,
                   uint64_t compute_end_ns, uint64_t exec_end_ns)
{
    struct trace *t = r->trace;
    if (LIKELY(!t))
        return;
    report_activity(t, TRACE_COMPUTE_START, exec_start_ns);
    report_activity(t, TRACE_COMPUTE_INPUT_END, compute_start_ns);
    report_activity(t, TRACE_COMPUTE_OUTPUT_START, compute_end_ns);
    report_activity(t, TRACE_COMPUTE_END, exec_end_ns);
}
