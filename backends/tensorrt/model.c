/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first GPU of the configuration gets its engine when the model is loaded, since the
 * configuration is completed and checked by it; others get theirs with their first instance.
 */
#include "tensorrt/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"
#include "tensorrt/graphs.h"

/* ---- Parameters ------------------------------------------------------------------------------ */

static TRITONSERVER_Error *read_strategy(struct model *m)
{
    const char *key = "execution_context_allocation_strategy";
    const char *text = backend_parameter(m->frame->config, key);

    if (!text || strcmp(text, "STATIC") == 0)
        m->strategy = TRT_STATIC;
    else if (strcmp(text, "ON_PROFILE_CHANGE") == 0)
        m->strategy = TRT_ON_PROFILE_CHANGE;
    else
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "Invalid value for '%s': '%s' for model instance '%s'. Supported "
                             "values are 'STATIC' and 'ON_PROFILE_CHANGE'.",
                             key, text, m->name);
    return NULL;
}

/* Pinned memory is used unless the configuration says otherwise. */
static bool wants_pinned(const struct doc_value *tuning, const char *key)
{
    const struct doc_value *buffer = doc_get(tuning, key);

    return !buffer || doc_true(doc_get(buffer, "enable"));
}

static TRITONSERVER_Error *read_plan_parameters(struct model *m)
{
    const struct doc_value *tuning = doc_get(doc_root(m->frame->config), "optimization");
    const char *priority = doc_string(doc_get(tuning, "priority"), "");
    bool many;

    TRY(read_strategy(m));
    TRY(backend_parameter_bool(m->frame->config, "enable_multi_device", false, &many));
    if (many)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': enable_multi_device is not supported: an instance uses "
                             "one GPU",
                             m->name);
    m->pins_inputs = wants_pinned(tuning, "input_pinned_memory");
    m->pins_outputs = wants_pinned(tuning, "output_pinned_memory");
    m->priority = strcmp(priority, "PRIORITY_MAX") == 0   ? 1
                  : strcmp(priority, "PRIORITY_MIN") == 0 ? -1
                                                          : 0;
    return NULL;
}

TRITONSERVER_Error *model_profile(const struct model *m, const char *text, int32_t *ret_profile)
{
    char *end;
    long long number;

    errno = 0;
    number = strtoll(text, &end, 10);
    if (end == text || errno != 0 || number < 0 || number >= m->tensors.n_profiles)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration specified invalid profile "
                             "%s. Number of profiles supported by TensorRT engine: %d",
                             m->name, text, (int)m->tensors.n_profiles);
    *ret_profile = (int32_t)number;
    return NULL;
}

/* ---- Engines --------------------------------------------------------------------------------- */

/* A configuration may name a file for each compute capability. */
static TRITONSERVER_Error *find_plan(const struct model *m, int gpu, char **ret_path)
{
    const struct doc *config = m->frame->config;
    const struct doc_value *names = doc_get(doc_root(config), "cc_model_filenames");
    const char *file;
    char capability[32];

    if (doc_count(names) > 0) {
        TRY(cuda_capability(m->cuda, gpu, capability, sizeof(capability)));
        file = doc_string(doc_get(names, capability), "");
        if (*file)
            return model_file_find_named(m->frame->handle, m->name, file, "model.plan", ret_path);
    }
    return model_file_find(m->frame->handle, config, m->name, "model.plan", "model.plan", ret_path);
}

static TRITONSERVER_Error *add_engine(struct model *m, int gpu, int64_t dla_core,
                                      struct engine **ret_engine)
{
    struct engine_options o = {.lib = &m->rt->lib,
                               .cuda = m->cuda,
                               .model = m->name,
                               .version_compatible = m->rt->version_compatible};
    TRITONSERVER_Error *err;
    char *path;

    TRY(find_plan(m, gpu, &path));
    o.path = path;
    err = engine_new(&o, gpu, dla_core, ret_engine);
    if (!err) {
        BACKEND_LOG(VERBOSE, "model '%s': an engine on GPU %d from %s, %llu bytes", m->name, gpu,
                    path, (unsigned long long)(*ret_engine)->size);
        (*ret_engine)->next = m->engines;
        m->engines = *ret_engine;
    }
    free(path);
    return err;
}

TRITONSERVER_Error *model_engine(struct model *m, int gpu, int64_t dla_core,
                                 const struct engine **ret_engine)
{
    TRITONSERVER_Error *err = NULL;
    struct engine *e;

    pthread_mutex_lock(&m->mu);
    for (e = m->engines; e; e = e->next)
        if (e->place.number == gpu && e->dla_core == dla_core)
            break;
    if (!e)
        err = add_engine(m, gpu, dla_core, &e);
    pthread_mutex_unlock(&m->mu);
    *ret_engine = e;
    return err;
}

/* ---- The steps ------------------------------------------------------------------------------- */

/* The first GPU that the configuration names. Refuses groups that are on none. */
static TRITONSERVER_Error *find_first_gpu(const struct model *m, int *ret_gpu)
{
    const struct doc_value *groups = doc_get(doc_root(m->frame->config), "instance_group");
    const struct doc_value *first = NULL;
    int64_t gpu = 0;

    for (const struct doc_value *g = doc_first(groups); g; g = g->next) {
        if (strcmp(doc_string(doc_get(g, "kind"), ""), "KIND_GPU") != 0)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "unable to load model '%s', TensorRT backend supports only GPU "
                                 "device",
                                 m->name);
        if (!first)
            first = doc_first(doc_get(g, "gpus"));
    }
    if (first)
        doc_int(first, &gpu);
    *ret_gpu = (int)gpu;
    return NULL;
}

static TRITONSERVER_Error *load_plan_model(struct model *m)
{
    const struct engine *e;
    bool complete;
    int gpu;

    TRY(cuda_open(&m->cuda));
    TRY(find_first_gpu(m, &gpu));
    TRY(read_plan_parameters(m));
    TRY(model_engine(m, gpu, -1, &e));
    TRY(engine_tensors(e, m->name, &m->tensors));
    TRY(TRITONBACKEND_ModelAutoCompleteConfig(m->frame->handle, &complete));
    if (complete)
        TRY(complete_config(m));
    TRY(ragged_read(m->frame->config, &m->ragged));
    TRY(check_config(m));
    TRY(graphs_read(m));
    return backend_report_memory(m->frame->handle, NULL, e->size);
}

TRITONSERVER_Error *model_open(struct frame_model *frame)
{
    struct model *m = calloc(1, sizeof(*m));

    if (!m)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    frame->state = m;
    m->rt = frame->backend;
    m->frame = frame;
    m->name = frame->name;
    pthread_mutex_init(&m->mu, NULL);
    return load_plan_model(m);
}

void model_close(struct frame_model *frame)
{
    struct model *m = frame->state;

    if (!m)
        return;
    tensors_done(&m->tensors);
    ragged_done(&m->ragged);
    free(m->graph_specs);
    for (struct engine *e = m->engines, *next; e; e = next) {
        next = e->next;
        engine_free(e);
    }
    pthread_mutex_destroy(&m->mu);
    free(m);
}
