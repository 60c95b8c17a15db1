/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maker's functions are called directly, on the thread that has the request, with none of our
 * locks held.
 */
#include "core/trace/trace.h"

#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/mutex.h"

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
        .model_name = "",
        .model_version = -1,
        .request_id = "",
    };
}

void trace_done(struct trace *t)
{
    mem_free(t->long_texts);
    mem_free(t->context);
}

struct trace *trace_spawn(struct trace *t)
{
    mutex_assert_none_held();
    return t->ops->spawn(t);
}

void trace_free(struct trace *t)
{
    if (t)
        t->ops->free(t);
}

const char *trace_context(struct trace *t)
{
    if (!t->context && t->ops->make_context)
        t->ops->make_context(t);
    return t->context ? t->context : "";
}

void trace_set_context(struct trace *t, const char *context)
{
    mem_free(t->context);
    t->context = mem_strdup(context);
}

void trace_set_request(struct trace *t, const char *model_name, int64_t model_version,
                       const char *request_id)
{
    size_t name_bytes = strlen(model_name) + 1, id_bytes = strlen(request_id) + 1;
    char *was = t->long_texts, *at = t->texts;
    t->long_texts = NULL;
    if (UNLIKELY(name_bytes + id_bytes > sizeof(t->texts)))
        at = t->long_texts = mem_alloc(name_bytes + id_bytes);
    t->model_name = memcpy(at, model_name, name_bytes);
    t->model_version = model_version;
    t->request_id = memcpy(at + name_bytes, request_id, id_bytes);
    mem_free(was);
}

void trace_report(struct trace *t, enum trace_activity activity, uint64_t ns)
{
    if (t->level & TRACE_TIMESTAMPS) {
        mutex_assert_none_held();
        t->ops->activity(t, activity, ns);
    }
}

void trace_custom(struct trace *t, const char *name, uint64_t ns)
{
    AUTO(buf) text = BUF_INIT(MAX_CONTEXT_BYTES);
    const char *context = trace_context(t), *end = strrchr(context, '}');
    bool is_object = context[0] == '{' && end;
    size_t length = is_object ? (size_t)(end - context) : 0;
    if (is_object)
        buf_add(&text, context, length);
    buf_addf(&text, "%s\"%llu\":",
             !is_object   ? "{"
             : length > 1 ? ","
                          : "",
             (unsigned long long)ns);
    json_write_string(&text, name, strlen(name));
    buf_addc(&text, '}');

    char *given = t->context;
    t->context = text.failed ? given : text.data;
    trace_report(t, TRACE_CUSTOM_ACTIVITY, ns);
    t->context = given;
}
