/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fil - forests of XGBoost, LightGBM and others on CPUs, predicted by treelite.
 *
 * Parameters are listed in docs/forests.md.
 *
 *   fil.c         what the server calls
 *   treelite.c    treelite's library
 *   model.c       a model: file, forest
 *   parameters.c  what is asked of it
 *   configure.c   complete, check
 *   predict.c     requests
 *   treefile.c    the file's check: which of these
 *   xgboost.c       XGBoost's models, read by json.c, ubjson.c
 *   lightgbm.c      LightGBM's text
 *   legacy.c        XGBoost's old format
 *   checkpoint.c    treelite's own format
 *   forest.c      what treelite has made of it
 *   pack.c        where its small arrays lie
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

static struct fil fil;

static TRITONSERVER_Error *configure_fil(const struct doc *settings, const char *folder)
{
    static const char *const known[] = {"library-path", NULL};

    settings_warn_of_unknown(settings, "fil", known);
    TRY(settings_int(settings, "fil", "default-max-batch-size", 0, INT32_MAX,
                     DEFAULT_MAX_BATCH_SIZE, &fil.default_max_batch_size));
    TRY(treelite_open(folder, backend_setting(settings, "library-path"), &fil.treelite));
    BACKEND_LOG(INFO, "treelite %s from %s", fil.treelite.version,
                fil.treelite.path ? fil.treelite.path : "?");
    return NULL;
}

static void finalize_fil(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    treelite_done(&fil.treelite);
}

static const struct frame frame = {.configure = configure_fil,
                                   .backend = &fil,
                                   .finalize = finalize_fil,
                                   .model_open = forest_model_open,
                                   .model_close = forest_model_close,
                                   .instance_open = predictor_open,
                                   .instance_close = predictor_close,
                                   .execute = predictor_run,
                                   .repeat_alone = true,
                                   .parallel_instances = true,
                                   .refuses_gpu = "GPU instances not supported"};
BACKEND_FRAME(frame)
