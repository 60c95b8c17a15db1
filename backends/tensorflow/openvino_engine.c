/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openvino_engine - SavedModels executed by OpenVINO, with the code of the backend openvino.
 *
 * That code has the frame's model and instance; here it gets copies of its own, whose state is
 * OpenVINO's. The configuration is complete by then, so it replaces nothing in them.
 *
 * OpenVINO reads one signature of a SavedModel, the default one, and may give out its tensors under
 * other names. So each is found by the name that the signature has.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/framework.h"
#include "openvino/execute.h"
#include "tensorflow/engines.h"

static struct {
    char *folder, *file; /* set by configure */

    pthread_mutex_t mu;
    bool started; /* under mu */
    struct runtime runtime;
} openvino = {.mu = PTHREAD_MUTEX_INITIALIZER};

static TRITONSERVER_Error *start_openvino_once(void)
{
    TRITONSERVER_Error *err = NULL;

    pthread_mutex_lock(&openvino.mu);
    if (!openvino.started) {
        err = runtime_start(&openvino.runtime, openvino.folder, openvino.file);
        openvino.started = !err;
    }
    pthread_mutex_unlock(&openvino.mu);
    return err;
}

TRITONSERVER_Error *openvino_engine_configure(const struct doc *settings, const char *folder)
{
    const char *file = backend_setting(settings, "openvino-library-path");

    TRY(runtime_read(settings, "tensorflow", &openvino.runtime));
    openvino.folder = strdup(folder);
    openvino.file = file ? strdup(file) : NULL;
    return openvino.folder && (!file || openvino.file)
               ? NULL
               : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

void openvino_engine_finalize(void)
{
    runtime_done(&openvino.runtime);
    free(openvino.folder);
    free(openvino.file);
    openvino.folder = openvino.file = NULL;
    openvino.started = false;
}

char *openvino_engine_version(const char *folder)
{
    struct library found = {0};
    TRITONSERVER_Error *err = library_open(folder, NULL, &found);
    char *text = framework_version_text(err, "OpenVINO", found.version, found.path, "");

    library_done(&found);
    return text;
}

/* ---- Models ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *list_names(const struct side *side, const char ***ret_names)
{
    const char **names = calloc(side->n + 1, sizeof(*names));

    if (!names)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < side->n; i++)
        names[i] = side->tensors[i].name;
    *ret_names = names;
    return NULL;
}

static TRITONSERVER_Error *open_with_names(const struct tf_model *m, struct origin *o,
                                           struct frame_model *inner)
{
    const char **inputs = NULL, **outputs = NULL;
    TRITONSERVER_Error *err = list_names(&m->inputs, &inputs);

    if (!err)
        err = list_names(&m->outputs, &outputs);
    if (!err) {
        o->inputs = inputs;
        o->n_inputs = m->inputs.n;
        o->outputs = outputs;
        o->n_outputs = m->outputs.n;
        err = model_open_from(inner, o);
    }
    free(inputs);
    free(outputs);
    return err;
}

static void close_by_openvino(void *loaded)
{
    model_close(loaded);
    free(loaded);
}

static void close_openvino_instance(void *instance)
{
    executor_close(instance);
    free(instance);
}

static bool has_operators(const struct tf_model *m)
{
    const struct doc_value *v = doc_get(doc_root(m->frame->config), "model_operations");

    return doc_count(doc_get(v, "op_library_filename")) > 0;
}

static void warn_of_graph_level(const struct tf_model *m)
{
    if (m->asked.graph_level > 0)
        BACKEND_LOG(WARN,
                    "model '%s': optimization.graph.level %lld has no effect: it is for "
                    "TensorFlow's compiler XLA, and OpenVINO executes this model",
                    m->name, (long long)m->asked.graph_level);
}

static TRITONSERVER_Error *open_by_openvino(struct tf_model *m, void **ret_loaded)
{
    struct origin o = {.threads = m->asked.intra_threads, .exact = true};
    struct frame_model *inner;
    TRITONSERVER_Error *err;
    char *folder;

    if (m->is_graph)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': OpenVINO does not tell the names of a GraphDef's tensors",
                             m->name);
    if (!m->signature.is_default)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': OpenVINO reads the signature 'serving_default' of the "
                             "tag 'serve' alone",
                             m->name);
    if (*m->signature.facts.writer)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s' changes its variables (%s), and OpenVINO does not",
                             m->name, m->signature.facts.writer);
    if (m->asked.init_ops_file || has_operators(m))
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s' has %s, which OpenVINO does not know", m->name,
                             m->asked.init_ops_file ? "init ops (TF_INIT_OPS_FILE)"
                                                    : "operators of TensorFlow "
                                                      "(op_library_filename)");
    TRY(start_openvino_once());
    TRY(saved_model_folder(m->path, &folder));
    inner = malloc(sizeof(*inner));
    if (!inner) {
        free(folder);
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    }
    *inner = *m->frame;
    inner->backend = &openvino.runtime;
    inner->state = NULL;
    o.path = folder;
    err = open_with_names(m, &o, inner);
    free(folder);
    if (err) {
        close_by_openvino(inner);
        return err;
    }
    warn_of_graph_level(m);
    *ret_loaded = inner;
    return NULL;
}

static TRITONSERVER_Error *open_openvino_instance(void *loaded, void **ret_instance)
{
    struct frame_instance *inner = calloc(1, sizeof(*inner));
    TRITONSERVER_Error *err;

    if (!inner)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    inner->model = loaded;
    err = executor_open(inner);
    if (err)
        close_openvino_instance(inner);
    else
        *ret_instance = inner;
    return err;
}

static TRITONSERVER_Error *execute_by_openvino(void *instance, struct batch *b)
{
    return executor_run(instance, b);
}

const struct engine openvino_engine = {.name = "openvino",
                                       .open = open_by_openvino,
                                       .close = close_by_openvino,
                                       .open_instance = open_openvino_instance,
                                       .close_instance = close_openvino_instance,
                                       .execute = execute_by_openvino};
