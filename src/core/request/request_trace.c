/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The points at which the core reports the life of a request. The maker's functions are called
 * directly, on the thread that has the request, with none of our locks held.
 */
#include "core/request/request_trace.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "core/model/model.h"
#include "core/request/response.h"

void trace_step(struct request *step, const struct request *ensemble)
{
    BUG_ON(step->maker.trace);
    if (UNLIKELY(ensemble->maker.trace))
        step->maker.trace = trace_spawn(ensemble->maker.trace);
}

void trace_drop(struct request *r)
{
    trace_free(TAKE(r->maker.trace));
}

void trace_begin(struct request *r)
{
    struct trace *t = r->maker.trace;
    if (LIKELY(!t))
        return;
    trace_set_request(t, r->model->name, r->model->version, r->maker.id);
    trace_report(t, TRACE_REQUEST_START, r->admitted.start_ns);
    trace_report(t, TRACE_QUEUE_START, r->admitted.queue_ns);
    trace_inputs(r, TRACE_TENSOR_QUEUE_INPUT);
}

void trace_end(struct request *r)
{
    struct trace *t = r->maker.trace;
    if (LIKELY(!t))
        return;
    r->maker.trace = NULL;
    trace_report(t, TRACE_REQUEST_END, clock_now_ns(r->model->clock));
    t->ops->release(t);
}

void trace_inputs(struct request *r, enum trace_activity activity)
{
    struct trace *t = r->maker.trace;
    if (LIKELY(!t) || !(t->level & TRACE_TENSORS) || !t->ops->tensor)
        return;
    mutex_assert_none_held();
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        const struct input *in = r->maker.inputs[i];
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

/* The first request of the batch whose trace has that maker. */
static struct trace *find_first_traced(struct request *const batch[], const struct trace_ops *ops)
{
    while (!(*batch)->maker.trace || (*batch)->maker.trace->ops != ops)
        batch++;
    return (*batch)->maker.trace;
}

void trace_execution(struct request *const batch[], uint32_t i, uint32_t n_requests)
{
    struct trace *t = batch[i]->maker.trace;
    if (LIKELY(!t))
        return;
    if (n_requests > 1 && t->ops->batch && t->level & TRACE_TIMESTAMPS)
        t->ops->batch(t, find_first_traced(batch, t->ops), n_requests);
    trace_inputs(batch[i], TRACE_TENSOR_BACKEND_INPUT);
}

void trace_output(struct request *r, const struct output *out)
{
    struct trace *t = r->maker.trace;
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
    struct trace *t = r->maker.trace;
    if (LIKELY(!t))
        return;
    trace_report(t, TRACE_COMPUTE_START, exec_start_ns);
    trace_report(t, TRACE_COMPUTE_INPUT_END, compute_start_ns);
    trace_report(t, TRACE_COMPUTE_OUTPUT_START, compute_end_ns);
    trace_report(t, TRACE_COMPUTE_END, exec_end_ns);
}
