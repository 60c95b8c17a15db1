/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fil - forests of XGBoost, LightGBM and others on CPUs, predicted by treelite.
 *
 * Parameters are listed in docs/forests.md.
 *
 *   fil.c         what the server calls      treefile.c    the file's check: which of these
 *   treelite.c    treelite's library         xgboost.c     XGBoost's models, read by json.c,
 * ubjson.c model.c       a model: file, forest      lightgbm.c    LightGBM's text parameters.c what
 * is asked of it        legacy.c      XGBoost's old format configure.c   complete, check
 * checkpoint.c  treelite's own format predict.c     requests                   forest.c      what
 * treelite has made of it
 */
#include "common/framework.h"
#include "common/settings.h"
#include "fil/predict.h"

#define DEFAULT_MAX_BATCH_SIZE 4

/* Only for `conch --version`; see src/version.h. */
__attribute__((visibility("default"))) char *conch_backend_version(const char *folder,
                                                                   const char *library_path);

char *conch_backend_version(const char *folder, const char *library_path)
{
    struct treelite found = {0};
    TRITONSERVER_Error *err = treelite_open(folder, library_path, &found);
    char *text = framework_version_text(err, "treelite", found.version, found.path, "");

    treelite_done(&found);
    return text;
}

/* Set when the server initialises the backend, constant until it finalises it. */
static struct treelite library;
static int64_t default_max_batch_size;

static TRITONSERVER_Error *read_fil_settings(const struct doc *settings, const char *folder)
{
    static const char *const known[] = {"library-path", NULL};

    settings_warn_of_unknown(settings, "fil", known);
    TRY(settings_int(settings, "fil", "default-max-batch-size", 0, INT32_MAX,
                     DEFAULT_MAX_BATCH_SIZE, &default_max_batch_size));
    TRY(treelite_open(folder, backend_setting(settings, "library-path"), &library));
    BACKEND_LOG(INFO, "treelite %s from %s", library.version, library.path ? library.path : "?");
    return NULL;
}

static TRITONSERVER_Error *initialize_fil(TRITONBACKEND_Backend *backend)
{
    TRITONBACKEND_ArtifactType type;
    TRITONSERVER_Error *err;
    struct doc *settings;
    const char *folder;

    TRY(TRITONBACKEND_BackendArtifacts(backend, &type, &folder));
    TRY(backend_settings(backend, &settings));
    err = read_fil_settings(settings, folder);
    doc_free(settings);
    return err;
}

static void finalize_fil(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    treelite_done(&library);
}

static TRITONSERVER_Error *open_model(struct frame_model *m)
{
    struct forest_model *f;

    TRY(forest_model_open(&library, m, default_max_batch_size, &f));
    m->state = f;
    return NULL;
}

static void close_model(struct frame_model *m)
{
    forest_model_close(m->state);
}

static TRITONSERVER_Error *open_instance(struct frame_instance *in)
{
    TRITONSERVER_InstanceGroupKind kind;
    struct predictor *p;

    TRY(TRITONBACKEND_ModelInstanceKind(in->handle, &kind));
    if (kind == TRITONSERVER_INSTANCEGROUPKIND_GPU)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "GPU instances not supported");
    TRY(predictor_new(in->model->state, &p));
    in->state = p;
    return NULL;
}

static void close_instance(struct frame_instance *in)
{
    predictor_free(in->state);
}

static TRITONSERVER_Error *execute(struct frame_instance *in, struct batch *b)
{
    return predictor_run(in->state, b);
}

static const struct frame frame = {.initialize = initialize_fil,
                                   .finalize = finalize_fil,
                                   .model_open = open_model,
                                   .model_close = close_model,
                                   .instance_open = open_instance,
                                   .instance_close = close_instance,
                                   .execute = execute,
                                   .repeat_alone = true,
                                   .parallel_instances = true};
BACKEND_FRAME(frame)
