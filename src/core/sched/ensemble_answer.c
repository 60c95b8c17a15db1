/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The responses of an ensemble. An output that the client wants is allocated by the maker of the
 * ensemble's request when the backend of the step asks for memory, so that nothing is copied. For
 * that the response of the ensemble is made then, before its wave is complete. It is in
 * ensemble_request.responses until it is sent.
 *
 * The response belongs to the wave of the step. A decoupled step makes a wave with each of its
 * responses; its outputs find each other by the ensemble's response that they have in common.
 *
 * Threads: steps that run at the same time may allocate outputs of one response, under steps.mu.
 * One thread at a time sends.
 */
#include <string.h>

#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/sched/ensemble_priv.h"
#include "core/sched/spare_block.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

/* The ensemble's tensor that the step's output is; NULL when no client wants it. */
static const struct ensemble_tensor *wanted_tensor(const struct ensemble_step_request *s,
                                                   const char *name)
{
    const struct ensemble_run *run = s->parent->run;
    uint32_t i = ensemble_find_output(s, name);
    if (i == ENSEMBLE_NONE)
        return NULL;
    const struct ensemble_tensor *t = &run->plan->tensors[s->plan->outputs[i].tensor];
    bool wanted = t->output != ENSEMBLE_NONE && ensemble_set_has(run->requested, t->output);
    return wanted ? t : NULL;
}

static bool makes_waves(const struct ensemble_step_request *s)
{
    return s->plan->makes != s->plan->kind;
}

/* A step that is not decoupled answers once; the response of its wave may be sent from then on. */
static bool has_answered_locked(const struct ensemble_step_request *s)
{
    return s->run->has_answered && !makes_waves(s);
}

/* The ensemble's response for this output, if there is one already. */
static struct response *find_response_locked(const struct ensemble_step_request *s,
                                             const struct output *out)
{
    if (!makes_waves(s))
        return s->run->wave->data;
    for (uint32_t i = 0; i < out->response->n_outputs; i++) {
        const struct output *other = out->response->outputs[i];
        if (other->allocated && other->maker_data)
            return ((struct output *)other->maker_data)->response;
    }
    return NULL;
}

static void remove_output_locked(struct output *out)
{
    struct response *resp = out->response;
    uint32_t n = 0;
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        if (resp->outputs[i] != out)
            resp->outputs[n++] = resp->outputs[i];
    }
    resp->n_outputs = n;
}

/* Returns the ensemble's response for this output, made if the step or its wave has none yet. */
NODISCARD static struct status *get_response_locked(struct ensemble_step_request *s,
                                                    const struct output *out,
                                                    struct response **ret_response)
{
    struct ensemble_request *er = s->parent;
    *ret_response = find_response_locked(s, out);
    if (*ret_response)
        return NULL;
    struct status *st = response_new(er->outer, ret_response);
    if (st)
        return st;
    list_push(&er->responses, &(*ret_response)->link);
    if (!makes_waves(s))
        s->run->wave->data = *ret_response;
    return NULL;
}

/*
 * Adds an output to the ensemble's response, with memory if it comes from the core's own pools:
 * small pieces lie in the response itself, which several steps may share. NULL: the step has
 * answered already.
 */
NODISCARD static struct status *add_leaving_locked(struct ensemble_step_request *s,
                                                   const char *name, struct output *out,
                                                   size_t size_bytes, struct output **ret_output)
{
    struct ensemble_request *er = s->parent;
    struct response *resp;
    struct output *leaving;
    *ret_output = NULL;
    if (has_answered_locked(s))
        return NULL;
    struct status *st = get_response_locked(s, out, &resp);
    if (!st)
        st = response_add_output(resp, name, out->dtype, out->shape, out->n_dims, &leaving);
    if (st)
        return st;
    leaving->memory_type = out->memory_type;
    leaving->memory_type_id = out->memory_type_id;
    if (er->outer->ops->alloc_output == response_alloc_pooled)
        st = output_alloc(leaving, size_bytes);
    if (st)
        remove_output_locked(leaving);
    else
        *ret_output = leaving;
    return st;
}

/* Has the maker of the ensemble's request allocate, without the lock. */
NODISCARD static struct status *alloc_leaving(struct ensemble_request *er, struct output *leaving,
                                              size_t size_bytes)
{
    struct status *st = leaving->allocated ? NULL : output_alloc(leaving, size_bytes);
    if (!st)
        return NULL;
    mutex_lock(&er->steps.mu);
    remove_output_locked(leaving);
    mutex_unlock(&er->steps.mu);
    return st;
}

/* Memory that only steps see. */
NODISCARD static struct status *alloc_between(struct request *r, struct output *out,
                                              size_t size_bytes)
{
    void *spare = UNLIKELY(size_bytes >= SPARE_BLOCK_LEAST_BYTES)
                      ? spare_block_take(r->pool, size_bytes, r->model->owner)
                      : NULL;
    if (!spare)
        return response_alloc_pooled(r, out, size_bytes);
    out->base = spare;
    out->memory_type = MEMORY_CPU;
    out->memory_type_id = 0;
    return NULL;
}

static void free_between(struct request *r, struct output *out)
{
    if (UNLIKELY(out->size_bytes >= SPARE_BLOCK_LEAST_BYTES))
        spare_block_release(out->base);
    else
        response_free_pooled(r, out);
}

struct status *ensemble_alloc_output(struct request *r, struct output *out, size_t size_bytes)
{
    struct ensemble_step_request *s = to_ensemble_step(r);
    struct ensemble_request *er = s->parent;
    const struct ensemble_tensor *t = wanted_tensor(s, out->name);
    struct output *leaving;
    out->maker_data = NULL;
    if (!t)
        return alloc_between(r, out, size_bytes);
    mutex_lock(&er->steps.mu);
    struct status *st = add_leaving_locked(s, t->name, out, size_bytes, &leaving);
    mutex_unlock(&er->steps.mu);
    if (!st && leaving)
        st = alloc_leaving(er, leaving, size_bytes);
    if (st)
        return st;
    if (!leaving)
        return alloc_between(r, out, size_bytes);
    out->base = leaving->base;
    out->memory_type = leaving->memory_type;
    out->memory_type_id = leaving->memory_type_id;
    out->maker_data = leaving;
    return NULL;
}

void ensemble_free_output(struct request *r, struct output *out)
{
    struct ensemble_step_request *s = to_ensemble_step(r);
    struct output *leaving = out->maker_data;
    if (!leaving) {
        free_between(r, out);
        return;
    }
    /* The backend has given the response up. */
    struct ensemble_request *er = s->parent;
    mutex_lock(&er->steps.mu);
    remove_output_locked(leaving);
    mutex_unlock(&er->steps.mu);
    er->outer->ops->free_output(er->outer, leaving);
}

struct output *ensemble_keep_output(struct output *out)
{
    struct output *leaving = out->allocated ? out->maker_data : NULL;
    if (leaving)
        out->allocated = false;
    return leaving;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Copies an input of the ensemble that is an output, too. */
NODISCARD static struct status *copy_passed_input(struct response *resp, const char *name,
                                                  const struct input *in,
                                                  struct output **ret_output)
{
    struct output *out;
    size_t at = 0;
    struct status *st =
        response_add_output(resp, name, in->dtype, in->backend_shape, in->n_backend_dims, &out);
    if (!st)
        st = output_alloc(out, in->size_bytes);
    if (!st && in->size_bytes && (!out->base || out->memory_type == MEMORY_GPU))
        st = status_new(STATUS_INTERNAL, "failed to allocate buffer for output '%s'", name);
    for (uint32_t i = 0; i < in->n_buffers && !st; i++) {
        const struct tensor_buffer *b = &in->buffers[i];
        if (b->host_policy)
            continue;
        memcpy((char *)out->base + at, b->base, b->size_bytes);
        at += b->size_bytes;
    }
    *ret_output = out;
    return st;
}

/* Gives the output the shape that the ensemble's configuration wants. */
NODISCARD static struct status *set_shape(struct response *resp, struct output *out,
                                          const struct ensemble_tensor_value *v)
{
    const struct model *m = resp->request->model;
    const struct tensor_spec *spec = model_find_output(m, out->name);
    bool reshape = spec && spec->has_reshape;
    struct ensemble_shape shape =
        ensemble_shape_of(v, !spec ? NULL : (reshape ? spec->reshape_dims : spec->dims),
                          !spec ? 0 : (reshape ? spec->n_reshape_dims : spec->n_dims), m->batching);
    int64_t *dims =
        arena_alloc(&resp->arena, (shape.n_dims + (size_t)shape.add_one) * sizeof(*dims));
    if (!dims)
        return status_no_memory();
    dims[0] = 1;
    if (shape.n_dims)
        memcpy(dims + shape.add_one, shape.dims, shape.n_dims * sizeof(*dims));
    out->shape = dims;
    out->n_dims = shape.n_dims + shape.add_one;
    out->dtype = v->input ? v->input->dtype : v->output->dtype;
    return NULL;
}

/* One output of the response. Usually its memory is there already. */
NODISCARD static struct status *finish_output(struct response *resp, const char *name,
                                              const struct ensemble_tensor_value *v,
                                              struct output **ret_output)
{
    struct status *st = NULL;
    *ret_output = v->leaving;
    if (v->input)
        st = copy_passed_input(resp, name, v->input, ret_output);
    else if (!v->leaving) /* the backend has allocated nothing: it has no bytes */
        st = response_add_output(resp, name, v->output->dtype, v->output->shape, v->output->n_dims,
                                 ret_output);
    return st ? st : set_shape(resp, *ret_output, v);
}

NODISCARD static struct status *add_sequence(struct response *resp,
                                             const struct ensemble_sequence *s)
{
    struct parameter id = {
        .name = "sequence_id", .type = PARAMETER_INT, .int64 = (int64_t)s->id.number};
    struct parameter start = {.name = "sequence_start",
                              .type = PARAMETER_BOOL,
                              .boolean = s->flags & REQUEST_SEQUENCE_START};
    struct parameter end = {
        .name = "sequence_end", .type = PARAMETER_BOOL, .boolean = s->flags & REQUEST_SEQUENCE_END};
    if (s->id.string) {
        id.type = PARAMETER_STRING;
        id.string = s->id.string;
    }
    struct status *st = response_add_named_parameter(resp, &id);
    if (!st)
        st = response_add_named_parameter(resp, &start);
    return st ? st : response_add_named_parameter(resp, &end);
}

/* Puts the outputs of the wave into the response, in the order of the configuration. */
NODISCARD static struct status *
finish_response(struct ensemble_request *er, const struct ensemble_wave *w, struct response *resp)
{
    const struct ensemble_plan *p = er->run->plan;
    bool has_sequence = false;
    struct status *st = NULL;
    struct output **sorted = arena_alloc(&resp->arena, p->n_outputs * sizeof(*sorted));
    uint32_t n = 0;
    if (!sorted)
        return status_no_memory();
    for (uint32_t i = 0; i < p->n_outputs && !st; i++) {
        struct ensemble_tensor_value *v =
            (struct ensemble_tensor_value *)(void *)ensemble_run_output(er->run, w, i);
        if (!v || !ensemble_set_has(er->run->requested, i))
            continue;
        st = finish_output(resp, p->tensors[p->outputs[i]].name, v, &sorted[n]);
        n++;
        if (st || !v->values || has_sequence)
            continue;
        has_sequence = true;
        st = add_sequence(resp, &v->values->sequence);
    }
    if (st)
        return st;
    BUG_ON(n > resp->n_outputs);
    if (n)
        memcpy(resp->outputs, sorted, n * sizeof(*sorted));
    resp->n_outputs = n;
    return NULL;
}

struct response *ensemble_take_response_of(struct ensemble_wave *w)
{
    struct response *resp = TAKE(w->data);
    if (resp)
        list_remove(&resp->link);
    return resp;
}

NODISCARD static struct status *send_wave_response(struct ensemble_request *er,
                                                   const struct ensemble_answer *a,
                                                   struct response *resp)
{
    struct status *st = NULL;
    if (!resp)
        st = response_new(er->outer, &resp);
    if (st)
        return st;
    st = finish_response(er, a->wave, resp);
    if (st) {
        response_free(resp);
        return st;
    }
    /* An embedder that has cancelled the request may have it answered already. */
    status_free(response_send(resp, a->is_final ? RESPONSE_FINAL : 0, NULL));
    return NULL;
}

NODISCARD static struct status *deadlock(const struct ensemble_request *er)
{
    return status_new(STATUS_INVALID_ARG,
                      "[request id: %s] unexpected deadlock, at least one output is not set while "
                      "no more ensemble steps can be made",
                      request_log_name(er->outer));
}

struct status *ensemble_send(struct ensemble_request *er, const struct ensemble_answer *a,
                             struct response *resp)
{
    struct status *st = a->is_deadlock ? deadlock(er) : a->error;
    if (a->wave)
        st = send_wave_response(er, a, resp);
    else if (!st)
        status_free(request_send_flags(er->outer, RESPONSE_FINAL));
    if (!st || !a->is_final)
        return st;
    er->has_failed = true;
    request_fail(er->outer, status_prefix(st, "in ensemble '%s', ", er->outer->model->name));
    return NULL;
}

void ensemble_drop_responses(struct ensemble_request *er)
{
    struct list *link;
    while ((link = list_pop(&er->responses)))
        response_free(LIST_ENTRY(link, struct response, link));
}
