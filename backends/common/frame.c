/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers around the functions of a backend, in the order of their life: backend, models,
 * instances, execution. `entered` says that the backend's own open function was called. Its close
 * function is called then, also after a failure. The file keeps no state of its own.
 */
#include "common/frame.h"

#include <stdlib.h>

TRITONSERVER_Error *frame_initialize(const struct frame *f, TRITONBACKEND_Backend *backend)
{
    TRY(backend_check_version());
    return f->initialize ? f->initialize(backend) : NULL;
}

TRITONSERVER_Error *frame_finalize(const struct frame *f, TRITONBACKEND_Backend *backend)
{
    if (f->finalize)
        f->finalize(backend);
    return NULL;
}

TRITONSERVER_Error *frame_attributes(const struct frame *f,
                                     TRITONBACKEND_BackendAttribute *attributes)
{
    if (!f->parallel_instances)
        return NULL;
    return TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, true);
}

/* ---- Models --------------------------------------------------------------------------------- */

static void model_free(struct frame_model *m)
{
    if (m->entered && m->frame->model_close)
        m->frame->model_close(m);
    doc_free(m->config);
    free(m);
}

static TRITONSERVER_Error *open_frame_model(struct frame_model *m)
{
    TRY(TRITONBACKEND_ModelName(m->handle, &m->name));
    TRY(backend_model_config(m->handle, &m->config));
    doc_int(doc_get(doc_root(m->config), "max_batch_size"), &m->max_batch_size);
    m->entered = true;
    if (m->frame->model_open)
        TRY(m->frame->model_open(m));
    return TRITONBACKEND_ModelSetState(m->handle, m);
}

TRITONSERVER_Error *frame_model_open(const struct frame *f, TRITONBACKEND_Model *model)
{
    struct frame_model *m = calloc(1, sizeof(*m));
    TRITONSERVER_Error *err;

    if (!m)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    m->handle = model;
    m->frame = f;
    err = open_frame_model(m);
    if (err)
        model_free(m);
    return err;
}

TRITONSERVER_Error *frame_model_close(TRITONBACKEND_Model *model)
{
    void *m;

    TRY(TRITONBACKEND_ModelState(model, &m));
    if (m) /* NULL if opening it failed */
        model_free(m);
    return NULL;
}

/* ---- Instances ------------------------------------------------------------------------------ */

static void instance_free(struct frame_instance *in)
{
    if (in->entered && in->model->frame->instance_close)
        in->model->frame->instance_close(in);
    batch_done(&in->batch);
    free(in);
}

static TRITONSERVER_Error *open_frame_instance(struct frame_instance *in)
{
    TRITONBACKEND_Model *model;
    void *m;

    TRY(TRITONBACKEND_ModelInstanceName(in->handle, &in->name));
    TRY(TRITONBACKEND_ModelInstanceModel(in->handle, &model));
    TRY(TRITONBACKEND_ModelState(model, &m));
    in->model = m;
    in->entered = true;
    if (in->model->frame->instance_open)
        TRY(in->model->frame->instance_open(in));
    return TRITONBACKEND_ModelInstanceSetState(in->handle, in);
}

TRITONSERVER_Error *frame_instance_open(TRITONBACKEND_ModelInstance *instance)
{
    struct frame_instance *in = calloc(1, sizeof(*in));
    TRITONSERVER_Error *err;

    if (!in)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    in->handle = instance;
    err = open_frame_instance(in);
    if (err)
        instance_free(in);
    return err;
}

TRITONSERVER_Error *frame_instance_close(TRITONBACKEND_ModelInstance *instance)
{
    void *in;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &in));
    if (in) /* NULL if opening it failed */
        instance_free(in);
    return NULL;
}

TRITONSERVER_Error *frame_instance_ready(TRITONBACKEND_ModelInstance *instance)
{
    struct frame_instance *in;
    void *state;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
    in = state;
    return in->model->frame->ready ? in->model->frame->ready(in) : NULL;
}

/* ---- Execution ------------------------------------------------------------------------------ */

static void execute_alone(struct frame_instance *in, struct batch *b)
{
    for (uint32_t i = 0; i < b->n_parts; i++) {
        struct batch one;

        batch_single(b, i, &one);
        batch_finish(&one, one.parts->err ? NULL : in->model->frame->execute(in, &one));
    }
}

TRITONSERVER_Error *frame_execute(TRITONBACKEND_ModelInstance *instance,
                                  TRITONBACKEND_Request **requests, uint32_t n)
{
    struct frame_instance *in;
    TRITONSERVER_Error *err;
    const struct frame *f;
    struct batch *b;
    void *state;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
    in = state;
    f = in->model->frame;
    b = &in->batch;
    TRY(batch_begin(b, instance, requests, n, in->model->max_batch_size > 0));
    if (n > 1 && !b->has_rows) {
        execute_alone(in, b);
        return NULL;
    }
    err = batch_empty(b) ? NULL : f->execute(in, b);
    if (err && n > 1 && f->repeat_alone) {
        BACKEND_LOG(VERBOSE, "model '%s': a batch of %u requests failed (%s); each runs alone",
                    in->model->name, (unsigned int)n, TRITONSERVER_ErrorMessage(err));
        TRITONSERVER_ErrorDelete(err);
        execute_alone(in, b);
        return NULL;
    }
    batch_finish(b, err);
    return NULL;
}
