/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of an ensemble's request. A step's output is the input of the steps behind it by
 * reference: its response lives until the last value of that response is gone. Nothing is copied.
 *
 * Threads: any. Values do not change; the counts of a response's values are atomic.
 */
#include <string.h>

#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/sched/ensemble_priv.h"

static struct ensemble_tensor_value *to_value(struct ensemble_value *v)
{
    return (struct ensemble_tensor_value *)(void *)v;
}

void ensemble_value_of_input(const struct request *outer, const struct input *in,
                             struct ensemble_tensor_value *ret_value)
{
    *ret_value =
        (struct ensemble_tensor_value){.input = in, .batch_size = outer->admitted.batch_size};
}

void ensemble_values_done(struct ensemble_values *values)
{
    /* The last one needs no read-modify-write: no value is added. Acquire: it sees what the others
     * have done. */
    if (atomic_load_explicit(&values->n_left, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&values->n_left, 1, memory_order_acq_rel) == 1)
        response_free(values->response);
}

bool ensemble_value_is_input(const struct ensemble_value *v)
{
    return ((const struct ensemble_tensor_value *)(const void *)v)->input != NULL;
}

void ensemble_value_free(struct ensemble_value *v)
{
    struct ensemble_tensor_value *value = to_value(v);
    if (value->input)
        return; /* the ensemble's request has it */
    struct output *out = value->output;
    if (out->allocated) { /* now, since other outputs may be needed for long */
        out->allocated = false;
        ensemble_free_output(out->response->request, out);
    }
    ensemble_values_done(value->values);
}

/* ---- Responses of steps ---------------------------------------------------------------------- */

NODISCARD static struct status *read_flag(const struct parameter *p, uint32_t flag,
                                          struct ensemble_sequence *s)
{
    if (p->type != PARAMETER_BOOL)
        return status_new(STATUS_INVALID_ARG,
                          "expect parameter '%s' to be TRITONSERVER_PARAMETER_BOOL", p->name);
    if (p->boolean)
        s->flags |= flag;
    return NULL;
}

NODISCARD static struct status *read_id(const struct parameter *p, struct ensemble_sequence *s)
{
    if (p->type == PARAMETER_INT)
        s->id = (struct correlation_id){.number = (uint64_t)p->int64};
    else if (p->type == PARAMETER_STRING)
        s->id = (struct correlation_id){.string = p->string};
    else
        return status_new(STATUS_INVALID_ARG,
                          "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or "
                          "TRITONSERVER_PARAMETER_STRING");
    return NULL;
}

/* What the steps behind this one inherit: the parameters of the response if it has any of the
 * three, otherwise what this step had. */
NODISCARD static struct status *read_sequence(const struct request *r, const struct response *resp,
                                              struct ensemble_sequence *ret)
{
    struct ensemble_sequence given = {.id = r->maker.correlation_id};
    struct status *st = NULL;
    bool any = false;
    for (uint32_t i = 0; i < resp->n_parameters && !st; i++) {
        const struct parameter *p = &resp->parameters[i];
        if (strcmp(p->name, "sequence_id") == 0)
            st = read_id(p, &given);
        else if (strcmp(p->name, "sequence_start") == 0)
            st = read_flag(p, REQUEST_SEQUENCE_START, &given);
        else if (strcmp(p->name, "sequence_end") == 0)
            st = read_flag(p, REQUEST_SEQUENCE_END, &given);
        else
            continue;
        any = true;
    }
    if (!any)
        given.flags = r->maker.flags;
    *ret = given;
    return st;
}

struct status *ensemble_take_response(struct ensemble_step_request *s, struct response *resp,
                                      struct ensemble_values **ret_response,
                                      struct ensemble_value *const **ret_values)
{
    uint32_t n = s->plan->n_outputs;
    struct ensemble_values *values =
        arena_alloc(&resp->arena, sizeof(*values) + n * (sizeof(struct ensemble_tensor_value) +
                                                         sizeof(struct ensemble_value *)));
    if (!values)
        return status_no_memory();
    struct status *st = read_sequence(&s->request, resp, &values->sequence);
    if (st)
        return st;
    struct ensemble_tensor_value *all = (struct ensemble_tensor_value *)(void *)(values + 1);
    struct ensemble_value **by_map = (struct ensemble_value **)(void *)(all + n);
    for (uint32_t i = 0; i < n; i++)
        by_map[i] = NULL;
    values->response = resp;
    unsigned int n_left = 1;
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        struct output *out = resp->outputs[i];
        uint32_t index = ensemble_find_output(s, out->name);
        if (index == ENSEMBLE_NONE || by_map[index])
            continue; /* it is freed with the response */
        all[index] = (struct ensemble_tensor_value){.values = values,
                                                    .output = out,
                                                    .leaving = ensemble_keep_output(out),
                                                    .batch_size = s->request.admitted.batch_size};
        by_map[index] = &all[index].head;
        n_left++;
    }
    atomic_init(&values->n_left, n_left);
    *ret_response = values;
    *ret_values = by_map;
    return NULL;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static void read_value_shape(const struct ensemble_tensor_value *v, struct ensemble_shape *ret)
{
    *ret = v->input ? (struct ensemble_shape){v->input->backend_shape, v->input->n_backend_dims, 0}
                    : (struct ensemble_shape){v->output->shape, v->output->n_dims, 0};
}

static bool fits(const struct ensemble_shape *s, const int64_t *dims, uint32_t n_dims)
{
    if (s->n_dims != n_dims)
        return false;
    for (uint32_t i = 0; i < n_dims; i++) {
        if (dims[i] != -1 && s->dims[i] != -1 && dims[i] != s->dims[i])
            return false;
    }
    return true;
}

struct ensemble_shape ensemble_shape_of(const struct ensemble_tensor_value *v, const int64_t *dims,
                                        uint32_t n_dims, bool batching)
{
    struct ensemble_shape s;
    read_value_shape(v, &s);
    if (LIKELY(batching == (v->batch_size != 0)))
        return s;
    bool same = fits(&s, dims, n_dims);
    if (batching) {
        s.add_one = same;
    } else if (!same && v->batch_size == 1 && s.n_dims > 0) {
        s.dims++;
        s.n_dims--;
    }
    return s;
}

/* ---- Requests of steps ----------------------------------------------------------------------- */

static void set_buffers(struct input *in, const struct ensemble_tensor_value *v)
{
    if (v->input) {
        in->buffers = v->input->buffers;
        in->n_buffers = in->buffer_capacity = v->input->n_buffers;
        in->size_bytes = v->input->size_bytes;
        return;
    }
    const struct output *out = v->output;
    if (out->size_bytes == 0)
        return;
    in->first = (struct tensor_buffer){.base = out->base,
                                       .size_bytes = out->size_bytes,
                                       .type = out->memory_type,
                                       .type_id = out->memory_type_id};
    in->n_buffers = 1;
    in->size_bytes = out->size_bytes;
}

/* Puts a batch dimension of 1 in front. */
NODISCARD static struct status *add_batch_of_one(struct request *r, struct ensemble_shape *shape)
{
    int64_t *dims = arena_alloc(&r->arena, (shape->n_dims + (size_t)1) * sizeof(*dims));
    if (!dims)
        return status_no_memory();
    dims[0] = 1;
    if (shape->n_dims)
        memcpy(dims + 1, shape->dims, shape->n_dims * sizeof(*dims));
    shape->dims = dims;
    shape->n_dims++;
    return NULL;
}

/* @spec  NULL: the model has no such input, which the check of the request says */
NODISCARD static struct status *add_step_input(struct request *r, const char *name,
                                               const struct tensor_spec *spec,
                                               const struct ensemble_tensor_value *v)
{
    static const int64_t no_dims[1];
    enum dtype dtype = v->input ? v->input->dtype : v->output->dtype;
    struct ensemble_shape shape = ensemble_shape_of(v, spec ? spec->dims : no_dims,
                                                    spec ? spec->n_dims : 0, r->model->batching);
    struct input *in;
    struct status *st = UNLIKELY(shape.add_one) ? add_batch_of_one(r, &shape) : NULL;
    if (!st && LIKELY(spec != NULL))
        st = request_add_known_input(r, spec, dtype, shape.dims, shape.n_dims, &in);
    else if (!st)
        st = request_add_input(r, name, strlen(name), dtype, shape.dims, shape.n_dims, &in);
    if (!st)
        set_buffers(in, v);
    return st;
}

/* What steps before it have set for the sequence; of several that differ the first counts. */
NODISCARD static struct status *inherit_sequence(struct request *r,
                                                 const struct ensemble_sequence *s)
{
    r->maker.flags = s->flags;
    if (!s->id.string) {
        r->maker.correlation_id = s->id;
        return NULL;
    }
    return request_set_correlation_string(r, s->id.string, strlen(s->id.string));
}

NODISCARD static struct status *add_inputs(struct ensemble_step_request *s)
{
    struct ensemble_run *run = s->parent->run;
    bool has_sequence = false;
    struct status *st = NULL;
    for (uint32_t i = 0; i < s->plan->n_inputs && !st; i++) {
        struct ensemble_value *head = ensemble_run_input(run, s->run, s->plan->inputs[i].tensor);
        struct ensemble_tensor_value *v = to_value(head);
        if (!v)
            continue;
        st = add_step_input(&s->request, s->plan->inputs[i].name, s->tensors->inputs[i], v);
        if (st || !v->values || has_sequence)
            continue;
        has_sequence = true;
        st = inherit_sequence(&s->request, &v->values->sequence);
    }
    return st;
}

/* Names and parameters are the ensemble's request's own, which lives longer. */
struct status *ensemble_step_fill(struct ensemble_step_request *s)
{
    const struct request *outer = s->parent->outer;
    struct request *r = &s->request;
    r->maker.id = outer->maker.id;
    r->maker.flags = outer->maker.flags;
    r->maker.correlation_id = outer->maker.correlation_id;
    r->maker.priority = outer->maker.priority;
    r->maker.timeout_us = outer->maker.timeout_us;
    r->maker.deadline_ns = outer->maker.deadline_ns;
    r->maker.goes_on = outer->maker.goes_on;
    r->maker.parameters = outer->maker.parameters;
    r->maker.n_parameters = r->maker.parameter_capacity = outer->maker.n_parameters;
    struct status *st = add_inputs(s);
    if (LIKELY(s->tensors->output_names != NULL)) {
        r->maker.outputs = s->tensors->output_names;
        r->maker.n_outputs = r->maker.output_capacity = s->plan->n_outputs;
        return st;
    }
    for (uint32_t i = 0; i < s->plan->n_outputs && !st; i++)
        st = request_add_output(r, s->plan->outputs[i].name, strlen(s->plan->outputs[i].name));
    return st;
}

/* ---- Conditions ------------------------------------------------------------------------------ */

/* The buffer of a tensor that has one byte; NULL: it has another size, or is not readable here. */
static const char *find_byte(const struct ensemble_tensor_value *v)
{
    if (v->output)
        return v->output->size_bytes == 1 && v->output->memory_type != MEMORY_GPU ? v->output->base
                                                                                  : NULL;
    for (uint32_t i = 0; v->input->size_bytes == 1 && i < v->input->n_buffers; i++) {
        const struct tensor_buffer *b = &v->input->buffers[i];
        if (b->size_bytes == 1 && !b->host_policy && b->type != MEMORY_GPU)
            return b->base;
    }
    return NULL;
}

struct status *ensemble_step_condition(const struct ensemble_request *er,
                                       const struct ensemble_step_run *s, bool *skip)
{
    const struct ensemble_plan *p = er->run->plan;
    const struct ensemble_step *step = &p->steps[s->step];
    if (LIKELY(step->condition == ENSEMBLE_NONE))
        return NULL;
    const struct ensemble_tensor_value *v =
        to_value(ensemble_run_input(er->run, s, step->condition));
    if (!v) {
        *skip = true;
        return NULL;
    }
    const char *byte = find_byte(v);
    if (!byte || (v->input ? v->input->dtype : v->output->dtype) != DTYPE_BOOL)
        return status_new(STATUS_INVALID_ARG,
                          "the tensor '%s' of " ENSEMBLE_CONDITION " is not BOOL with one element",
                          p->tensors[step->condition].name);
    *skip = *byte == 0;
    return NULL;
}
