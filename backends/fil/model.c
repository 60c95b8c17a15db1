/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forest_model_open() is the list of all steps: the parameters, the file, its check before treelite
 * reads it (treefile.h), treelite, the check of what treelite has made (forest.h), the place of its
 * small arrays (pack.h), the configuration (configure.c).
 */
#include "fil/model.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/model_file.h"
#include "fil/pack.h"

/* Bytes behind the file's, all zero: treelite prints what surrounds a mistake. */
#define PADDING 256

/* A file in memory. */
struct loaded_file {
    char *path, *data;
    size_t size;
};

/* ---- The file -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *refuse_file(const struct loaded_file *file, const char *why)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "unable to read '%s': %s", file->path,
                         why);
}

/* Reads all bytes. The file may shrink meanwhile, which is an error. */
static TRITONSERVER_Error *fill_loaded_file(struct loaded_file *file, int fd)
{
    struct stat info;
    size_t done = 0;

    if (fstat(fd, &info) != 0)
        return refuse_file(file, strerror(errno));
    file->size = (size_t)info.st_size;
    file->data = calloc(1, file->size + PADDING);
    if (!file->data)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for the %zu bytes of '%s'",
                             file->size, file->path);
    while (done < file->size) {
        ssize_t n = read(fd, file->data + done, file->size - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return refuse_file(file, n < 0 ? strerror(errno) : "it has become shorter");
        done += (size_t)n;
    }
    return NULL;
}

static TRITONSERVER_Error *read_whole_file(struct loaded_file *file)
{
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    TRITONSERVER_Error *err;

    if (fd < 0)
        return refuse_file(file, strerror(errno));
    err = fill_loaded_file(file, fd);
    close(fd);
    return err;
}

static void free_file(struct loaded_file *file)
{
    free(file->path);
    free(file->data);
}

/* ---- treelite -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *call_loader(struct forest_model *f, const struct loaded_file *file,
                                       bool allow_unknown)
{
    const struct treelite *t = f->t;
    const char *config =
        allow_unknown ? "{\"allow_unknown_field\": true}" : "{\"allow_unknown_field\": false}";
    int failed = 0;

    treelite_log_here(t);
    switch (f->format) {
    case TREE_XGBOOST_JSON:
        failed = t->LoadXGBoostModelFromJSONString(file->data, file->size, config, &f->model);
        break;
    case TREE_XGBOOST_UBJSON:
        failed = t->LoadXGBoostModelFromUBJSONString(file->data, file->size, config, &f->model);
        break;
    case TREE_XGBOOST_LEGACY:
        failed = t->LoadXGBoostModelLegacyBinaryFromMemoryBuffer(file->data, file->size, "{}",
                                                                 &f->model);
        break;
    case TREE_LIGHTGBM:
        failed = t->LoadLightGBMModelFromString(file->data, "{}", &f->model);
        break;
    case TREE_CHECKPOINT:
        failed = t->DeserializeModelFromBytes(file->data, file->size, &f->model);
        break;
    }
    return failed ? treelite_error(t, TRITONSERVER_ERROR_INVALID_ARG, file->path) : NULL;
}

static TRITONSERVER_Error *load_file(struct forest_model *f, struct loaded_file *file,
                                     bool allow_unknown)
{
    struct treefile_why why;
    TRITONSERVER_Error *err;

    TRY(read_whole_file(file));
    if (!treefile_check(f->format, file->data, file->size, &file->size, &why))
        return refuse_file(file, why.text);
    file->data[file->size] = '\0'; /* where the text for treelite ends */
    TRY(call_loader(f, file, allow_unknown));
    err = forest_read(f->t, f->model, &f->forest);
    if (err) {
        TRITONSERVER_Error *named = refuse_file(file, TRITONSERVER_ErrorMessage(err));

        TRITONSERVER_ErrorDelete(err);
        return named;
    }
    return NULL;
}

static TRITONSERVER_Error *load_forest(struct forest_model *f, struct frame_model *m,
                                       const struct forest_asked *asked)
{
    static const char *const names[] = {[TREE_XGBOOST_LEGACY] = "xgboost.model",
                                        [TREE_XGBOOST_JSON] = "xgboost.json",
                                        [TREE_XGBOOST_UBJSON] = "xgboost.ubj",
                                        [TREE_LIGHTGBM] = "model.txt",
                                        [TREE_CHECKPOINT] = "checkpoint.tl"};
    struct loaded_file file = {0};
    TRITONSERVER_Error *err;

    f->format = asked->format;
    err = model_file_find(m->handle, m->config, m->name, names[f->format], names[f->format],
                          &file.path);
    if (!err)
        err = load_file(f, &file, asked->allow_unknown);
    free_file(&file);
    return err ? err : forest_pack(f->t, f->model, f->forest.n_trees, &f->small_arrays);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static TRITONSERVER_Error *make_config(const struct treelite *t, int64_t n_threads,
                                       treelite_config *ret_config)
{
    char text[80];

    snprintf(text, sizeof(text), "{\"predict_type\": \"default\", \"nthread\": %lld}",
             (long long)n_threads);
    if (t->GTILParseConfig(text, ret_config) != 0)
        return treelite_error(t, TRITONSERVER_ERROR_INTERNAL, "a configuration of prediction");
    return NULL;
}

/* treelite refuses more threads than the process has processors, or than its OpenMP was told; -1
 * are all of them. */
static int64_t bound_threads(int64_t n_threads)
{
    cpu_set_t cpus;

    if (n_threads < 1) {
        int limit = backend_cpu_limit("OMP_NUM_THREADS");

        return limit > 0 ? limit : -1;
    }
    if (sched_getaffinity(getpid(), sizeof(cpus), &cpus) == 0 && n_threads >= CPU_COUNT(&cpus))
        return CPU_COUNT(&cpus) == 1 ? 1 : -1;
    return n_threads;
}

static TRITONSERVER_Error *make_configs(struct forest_model *f, const struct forest_asked *asked)
{
    f->n_threads = bound_threads(asked->n_threads);
    TRY(make_config(f->t, 1, &f->on_one));
    return make_config(f->t, f->n_threads, &f->on_many);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Predicts one row of missing values: a forest whose scores treelite cannot transform is refused
 * when it loads, not when it is asked. */
static TRITONSERVER_Error *try_prediction(const struct forest_model *f)
{
    size_t n = (size_t)f->forest.n_features;
    float *row = calloc(n, sizeof(*row)), *scores = calloc(f->n_scores, sizeof(*scores));
    TRITONSERVER_Error *err = NULL;

    if (!row || !scores)
        err = backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; !err && i < n; i++)
        row[i] = NAN;
    if (!err && f->t->GTILPredict(f->model, row, "float32", 1, scores, f->on_one) != 0)
        err = treelite_error(f->t, TRITONSERVER_ERROR_INVALID_ARG, "a trial prediction");
    free(row);
    free(scores);
    return err;
}

/* Ask treelite itself how many values a row has. */
static TRITONSERVER_Error *read_scores(struct forest_model *f)
{
    const uint64_t *shape;
    uint64_t rank, n = 1;

    if (f->t->GTILGetOutputShape(f->model, 1, f->on_one, &shape, &rank) != 0)
        return treelite_error(f->t, TRITONSERVER_ERROR_INTERNAL, "the shape of a prediction");
    for (uint64_t i = 0; i < rank; i++)
        n *= shape[i];
    if (n != (uint64_t)f->forest.n_targets * (uint64_t)f->forest.n_classes)
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "treelite predicts %llu values for %d targets of %d classes",
                             (unsigned long long)n, (int)f->forest.n_targets,
                             (int)f->forest.n_classes);
    f->n_scores = n;
    return NULL;
}

static TRITONSERVER_Error *open_forest(struct forest_model *f, struct frame_model *m,
                                       int64_t default_max_batch_size)
{
    struct forest_asked asked;

    TRY(forest_read_parameters(m->config, m->name, &asked));
    TRY(load_forest(f, m, &asked));
    TRY(make_configs(f, &asked));
    TRY(read_scores(f));
    TRY(try_prediction(f));
    TRY(forest_model_configure(f, m, &asked, default_max_batch_size));
    return backend_report_memory(m->handle, NULL, f->forest.size);
}

TRITONSERVER_Error *forest_model_open(struct frame_model *m)
{
    const struct fil *fil = m->backend;
    struct forest_model *f = calloc(1, sizeof(*f));

    if (!f)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    m->state = f;
    f->t = &fil->treelite;
    f->name = m->name;
    return open_forest(f, m, fil->default_max_batch_size);
}

void forest_model_close(struct frame_model *m)
{
    struct forest_model *f = m->state;

    if (!f)
        return;
    if (f->on_one)
        (void)f->t->GTILDeleteConfig(f->on_one);
    if (f->on_many)
        (void)f->t->GTILDeleteConfig(f->on_many);
    if (f->model)
        (void)f->t->FreeModel(f->model);
    free(f->forest.base_scores);
    free(f->small_arrays);
    free(f);
}
