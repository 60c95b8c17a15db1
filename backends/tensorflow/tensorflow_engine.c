/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow_engine - models executed by TensorFlow itself, by its C interface.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/framework.h"
#include "tensorflow/engines.h"
#include "tensorflow/tf_run.h"

static struct {
    char *folder, *file; /* set by configure */

    pthread_mutex_t mu;
    bool found; /* under mu */
    struct tf_library library;
} tensorflow = {.mu = PTHREAD_MUTEX_INITIALIZER};

static TRITONSERVER_Error *find_tensorflow_once(void)
{
    TRITONSERVER_Error *err = NULL;

    pthread_mutex_lock(&tensorflow.mu);
    if (!tensorflow.found) {
        err = tf_library_open(tensorflow.folder, tensorflow.file, &tensorflow.library);
        tensorflow.found = !err;
        if (!err)
            BACKEND_LOG(INFO, "TensorFlow %s from %s", tensorflow.library.version,
                        tensorflow.library.path ? tensorflow.library.path : "?");
    }
    pthread_mutex_unlock(&tensorflow.mu);
    return err;
}

TRITONSERVER_Error *tensorflow_engine_configure(const struct doc *settings, const char *folder)
{
    const char *file = backend_setting(settings, "library-path");

    tensorflow.folder = strdup(folder);
    tensorflow.file = file ? strdup(file) : NULL;
    return tensorflow.folder && (!file || tensorflow.file)
               ? NULL
               : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

void tensorflow_engine_finalize(void)
{
    tf_library_done(&tensorflow.library);
    free(tensorflow.folder);
    free(tensorflow.file);
    tensorflow.folder = tensorflow.file = NULL;
    tensorflow.found = false;
}

char *tensorflow_engine_version(const char *folder, const char *file)
{
    struct tf_library found = {0};
    TRITONSERVER_Error *err;
    char *text;

    /* While it is loaded it tells that it has oneDNN, whatever its log level. This process executes
     * no model. */
    setenv("TF_ENABLE_ONEDNN_OPTS", "0", 1);
    err = tf_library_open(folder, file, &found);
    text = framework_version_text(err, "TensorFlow", found.version, found.path, "");
    tf_library_done(&found);
    return text;
}

/* ---- Models ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *open_by_tensorflow(struct tf_model *m, void **ret_loaded)
{
    struct tf_loaded *l = NULL;

    TRY(find_tensorflow_once());
    TRY(tf_session_load(&tensorflow.library, m, &l));
    *ret_loaded = l;
    return NULL;
}

static void close_by_tensorflow(void *loaded)
{
    tf_session_unload(loaded);
}

static TRITONSERVER_Error *open_runner(void *loaded, void **ret_instance)
{
    struct tf_runner *r = NULL;
    TRITONSERVER_Error *err = tf_runner_new(loaded, &r);

    *ret_instance = r;
    return err;
}

static void close_runner(void *instance)
{
    tf_runner_free(instance);
}

static TRITONSERVER_Error *execute_by_tensorflow(void *instance, struct batch *b)
{
    return tf_runner_run(instance, b);
}

const struct engine tensorflow_engine = {.name = "tensorflow",
                                         .open = open_by_tensorflow,
                                         .close = close_by_tensorflow,
                                         .open_instance = open_runner,
                                         .close_instance = close_runner,
                                         .execute = execute_by_tensorflow};
