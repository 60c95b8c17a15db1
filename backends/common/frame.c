/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers around the functions of a backend, in the order of their life: backend, models,
 * instances, execution. `entered` says that the backend's own open function was called. Its close
 * function is called then, also after a failure. The file keeps no state of its own.
 */
#include "common/frame.h"

#include <stdlib.h>

static TRITONSERVER_Error *configure_backend(const struct frame *f, TRITONBACKEND_Backend *backend)
{
    TRITONBACKEND_ArtifactType type;
    TRITONSERVER_Error *err;
    struct doc *settings;
    const char *folder;

    TRY(TRITONBACKEND_BackendArtifacts(backend, &type, &folder));
    TRY(backend_settings(backend, &settings));
    err = f->configure(settings, folder);
    doc_free(settings);
    if (err && f->finalize)
        f->finalize(backend);
    return err;
}

TRITONSERVER_Error *frame_initialize(const struct frame *f, TRITONBACKEND_Backend *backend)
{
    TRY(backend_check_version());
    if (f->configure)
        TRY(configure_backend(f, backend));
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
    /* Triton gives a model without instance groups one on GPUs, where the machine has any. */
    if (f->refuses_gpu)
        TRY(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
            attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 0, NULL, 0));
    if (f->prefers_gpus)
        TRY(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
            attributes, TRITONSERVER_INSTANCEGROUPKIND_GPU, 1, NULL, 0));
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
    m->backend = f->backend;
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
    batch_done(&in->execution.batch);
    free(in);
}

static TRITONSERVER_Error *execute_instance(void *arg, struct batch *b)
{
    struct frame_instance *in = arg;

    return in->model->frame->execute(in, b);
}

static TRITONSERVER_Error *open_frame_instance(struct frame_instance *in)
{
    TRITONBACKEND_Model *model;
    void *m;

    TRY(TRITONBACKEND_ModelInstanceName(in->handle, &in->name));
    TRY(TRITONBACKEND_ModelInstanceModel(in->handle, &model));
    TRY(TRITONBACKEND_ModelState(model, &m));
    in->model = m;
    if (in->model->frame->refuses_gpu)
        TRY(backend_refuse_gpu(in->handle, in->model->name, in->model->frame->refuses_gpu));
    in->entered = true;
    if (in->model->frame->instance_open)
        TRY(in->model->frame->instance_open(in));
    in->execution = (struct frame_execution){.execute = execute_instance,
                                             .arg = in,
                                             .instance = in->handle,
                                             .model = in->model->name,
                                             .has_rows = in->model->max_batch_size > 0,
                                             .repeat_alone = in->model->frame->repeat_alone};
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

static TRITONSERVER_Error *execute_batch(const struct frame_execution *e, struct batch *b)
{
    return batch_empty(b) ? NULL : e->execute(e->arg, b);
}

/* Puts the model's name in front; takes the error. */
static TRITONSERVER_Error *name_model(const struct frame_execution *e, TRITONSERVER_Error *err)
{
    TRITONSERVER_Error *named;

    if (!err || !e->names_model)
        return err;
    named = backend_error(TRITONSERVER_ErrorCode(err), "model '%s': %s", e->model,
                          TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    return named;
}

static void execute_alone(const struct frame_execution *e, struct batch *b)
{
    for (uint32_t i = 0; i < b->n_parts; i++) {
        struct batch one;

        batch_single(b, i, &one);
        batch_drop_cancelled(&one);
        batch_finish(&one, name_model(e, execute_batch(e, &one)));
    }
}

TRITONSERVER_Error *frame_run(struct frame_execution *e, TRITONBACKEND_Request **requests,
                              uint32_t n)
{
    struct batch *b = &e->batch;
    TRITONSERVER_Error *err;

    TRY(batch_begin(b, e->instance, requests, n, e->has_rows));
    if (n > 1 && !b->has_rows) {
        execute_alone(e, b);
        return NULL;
    }
    err = execute_batch(e, b);
    if (err && n > 1 && e->repeat_alone) {
        BACKEND_LOG(VERBOSE, "model '%s': a batch of %u requests failed (%s); each runs alone",
                    e->model, (unsigned int)n, TRITONSERVER_ErrorMessage(err));
        TRITONSERVER_ErrorDelete(err);
        execute_alone(e, b);
        return NULL;
    }
    batch_finish(b, name_model(e, err));
    return NULL;
}

TRITONSERVER_Error *frame_execute(TRITONBACKEND_ModelInstance *instance,
                                  TRITONBACKEND_Request **requests, uint32_t n)
{
    struct frame_instance *in;
    void *state;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
    in = state;
    return frame_run(&in->execution, requests, n);
}
