/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow - models of TensorFlow: SavedModels, and GraphDefs.
 *
 * Parameters are listed in docs/tensorflow.md.
 *
 *   tensorflow.c   what the server calls; which engine executes a model
 *   saved_model.c  signatures of SavedModels      parameters.c  what is asked of a model
 *   graph.c        what an execution does         openvino_engine.c  models executed by OpenVINO
 *   graph_check.c  what TensorFlow cannot read    tf_init.c     init ops
 *   config.c       complete, check                tensorflow_engine.c  those by TensorFlow itself:
 *                                                 tf_library.c, tf_options.c, tf_session.c,
 *                                                 tf_run.c
 */
#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"
#include "common/settings.h"
#include "tensorflow/engines.h"

/* Only for `conch --version`; see src/version.h. */
__attribute__((visibility("default"))) char *conch_backend_version(const char *folder,
                                                                   const char *library_path);

char *conch_backend_version(const char *folder, const char *library_path)
{
    char *openvino = openvino_engine_version(folder);
    char *tensorflow = tensorflow_engine_version(folder, library_path), *text = NULL;

    if (openvino && tensorflow && asprintf(&text, "%s; %s", openvino, tensorflow) < 0)
        text = NULL;
    free(openvino);
    free(tensorflow);
    return text;
}

/* Set when the server initialises the backend, constant until it finalises it. */
static struct {
    int64_t default_max_batch_size;
    bool soft_placement, allow_operators;
    const struct engine *engines[3]; /* to be tried, in this order; up to a NULL */
} settings_of_all;

/* ---- The engine ------------------------------------------------------------------------------ */

static TRITONSERVER_Error *choose_engines(const char *word)
{
    const struct engine **at = settings_of_all.engines;
    bool any = !word || strcmp(word, "auto") == 0;

    if (any || strcmp(word, openvino_engine.name) == 0)
        *at++ = &openvino_engine;
    if (any || strcmp(word, tensorflow_engine.name) == 0)
        *at++ = &tensorflow_engine;
    *at = NULL;
    return at > settings_of_all.engines
               ? NULL
               : backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                               "--backend-config=tensorflow,engine=%s: it is auto, tensorflow or "
                               "openvino",
                               word);
}

/* The error of an engine, and those of the engines before. Takes both. */
static TRITONSERVER_Error *join_errors(TRITONSERVER_Error *before, TRITONSERVER_Error *err)
{
    TRITONSERVER_Error *both;

    if (!before)
        return err;
    both = backend_error(TRITONSERVER_ErrorCode(err), "%s; %s", TRITONSERVER_ErrorMessage(before),
                         TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(before);
    TRITONSERVER_ErrorDelete(err);
    return both;
}

static TRITONSERVER_Error *open_by_engine(struct tf_model *m)
{
    TRITONSERVER_Error *errors = NULL;

    for (const struct engine **e = settings_of_all.engines; *e; e++) {
        TRITONSERVER_Error *err = (*e)->open(m, &m->loaded);

        if (err) {
            bool no_memory = TRITONSERVER_ErrorCode(err) == TRITONSERVER_ERROR_UNAVAILABLE;

            errors = join_errors(errors, err);
            if (no_memory) /* it says nothing about the model */
                break;
            continue;
        }
        m->engine = *e;
        BACKEND_LOG(INFO, "model '%s' is executed by the engine %s%s%s", m->name, (*e)->name,
                    errors ? ": " : "", errors ? TRITONSERVER_ErrorMessage(errors) : "");
        if (errors)
            TRITONSERVER_ErrorDelete(errors);
        return NULL;
    }
    return errors;
}

/* ---- Models ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *find_tensorflow_file(struct tf_model *m)
{
    const char *platform = doc_string(doc_get(doc_root(m->frame->config), "platform"), "");

    m->is_graph = strcmp(platform, "tensorflow_graphdef") == 0;
    if (!m->is_graph && strcmp(platform, "tensorflow_savedmodel") != 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "platform %s not supported for TensorFlow model '%s'", platform,
                             m->name);
    return model_file_find(m->frame->handle, m->frame->config, m->name,
                           m->is_graph ? "model.graphdef" : "model.savedmodel", "saved_model.pb",
                           &m->path);
}

/* Reads the signature, and compares it with the configuration. */
static TRITONSERVER_Error *read_saved_model(struct tf_model *m)
{
    bool complete;

    TRY(saved_model_read(m->name, m->path, m->asked.tag, m->asked.signature, &m->signature));
    TRY(tf_take_signature(m));
    TRY(TRITONBACKEND_ModelAutoCompleteConfig(m->frame->handle, &complete));
    if (complete)
        TRY(tf_complete_config(m, settings_of_all.default_max_batch_size));
    return tf_check_config(m);
}

static TRITONSERVER_Error *load_tensorflow_model(struct tf_model *m)
{
    TRY(tf_read_parameters(m->frame->config, m->name, &m->asked));
    TRY(find_tensorflow_file(m));
    if (!m->is_graph)
        TRY(read_saved_model(m));
    /* Again: what it borrows is of the configuration before. */
    TRY(tf_read_parameters(m->frame->config, m->name, &m->asked));
    m->asked.soft_placement = settings_of_all.soft_placement;
    m->asked.allow_operators = settings_of_all.allow_operators;
    tf_warn_of_accelerators(m->frame->config, m->name);
    return open_by_engine(m);
}

static void close_tensorflow_model(struct frame_model *frame)
{
    struct tf_model *m = frame->state;

    if (!m)
        return;
    if (m->engine)
        m->engine->close(m->loaded);
    free(m->inputs.tensors);
    free(m->outputs.tensors);
    saved_signature_done(&m->signature);
    ragged_done(&m->ragged);
    free(m->path);
    free(m);
}

static TRITONSERVER_Error *open_tensorflow_model(struct frame_model *frame)
{
    struct tf_model *m = calloc(1, sizeof(*m));

    if (!m)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    m->frame = frame;
    m->name = frame->name;
    frame->state = m;
    return load_tensorflow_model(m);
}

/* ---- The server's calls ---------------------------------------------------------------------- */

static TRITONSERVER_Error *configure_tensorflow(const struct doc *settings, const char *folder)
{
    /* The last two are Triton's; without a GPU they have no effect there, either. */
    static const char *const known[] = {
        "engine",    "library-path",         "openvino-library-path", "allow-extensions",
        "cache-dir", "allow-soft-placement", "gpu-memory-fraction",   "version",
        NULL};

    settings_warn_of_unknown(settings, "tensorflow", known);
    TRY(settings_int(settings, "tensorflow", "default-max-batch-size", 0, INT32_MAX, 4,
                     &settings_of_all.default_max_batch_size));
    TRY(settings_bool(settings, "tensorflow", "allow-soft-placement", true,
                      &settings_of_all.soft_placement));
    TRY(settings_bool(settings, "tensorflow", "allow-extensions", false,
                      &settings_of_all.allow_operators));
    TRY(choose_engines(backend_setting(settings, "engine")));
    TRY(openvino_engine_configure(settings, folder));
    return tensorflow_engine_configure(settings, folder);
}

static void finalize_tensorflow(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    openvino_engine_finalize();
    tensorflow_engine_finalize();
}

static TRITONSERVER_Error *open_tensorflow_instance(struct frame_instance *in)
{
    const struct tf_model *m = in->model->state;

    return m->engine->open_instance(m->loaded, &in->state);
}

static void close_tensorflow_instance(struct frame_instance *in)
{
    const struct tf_model *m = in->model->state;

    if (in->state)
        m->engine->close_instance(in->state);
}

static TRITONSERVER_Error *execute_tensorflow(struct frame_instance *in, struct batch *b)
{
    const struct tf_model *m = in->model->state;

    return m->engine->execute(in->state, b);
}

static const struct frame frame = {
    .configure = configure_tensorflow,
    .finalize = finalize_tensorflow,
    .model_open = open_tensorflow_model,
    .model_close = close_tensorflow_model,
    .instance_open = open_tensorflow_instance,
    .instance_close = close_tensorflow_instance,
    .execute = execute_tensorflow,
    .repeat_alone = true,
    .parallel_instances = true,
    .refuses_gpu = "unable to load model '%s', GPU instances not supported",
};
BACKEND_FRAME(frame)
