/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configure - what rows are answered with, and whether the configuration's tensors fit. There is
 * one input, `input__0` with a row's features, and one output, `output__0`.
 */
#include <string.h>

#include "common/model_file.h"
#include "fil/model.h"

/* A model whose largest batch visits no more nodes than this is small: it may execute on the
 * threads that read the network. A visit takes 5 to 20 ns. */
#define SMALL_VISITS 20000

/* ---- What rows are answered with ------------------------------------------------------------- */

static bool is_classifier(const struct forest *forest, const struct forest_asked *asked)
{
    if (asked->classifier_known)
        return asked->is_classifier;
    return forest->task == FOREST_BINARY || forest->task == FOREST_CLASSES;
}

/* The size of the output's last dimension in the configuration; 0: it has none, or any size. */
static int64_t configured_columns(const struct doc *config)
{
    const struct doc_value *output = doc_first(doc_get(doc_root(config), "output"));
    const struct doc_value *v = doc_first(doc_get(output, "dims"));
    int64_t n = 0;

    for (; v; v = v->next)
        doc_int(v, &n);
    return n > 0 ? n : 0;
}

static TRITONSERVER_Error *choose_answer(struct forest_model *f, const struct doc *config,
                                         const struct forest_asked *asked)
{
    bool classifies = is_classifier(&f->forest, asked);

    if (classifies && f->forest.n_targets > 1)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s' has %d targets, which a classifier may not have", f->name,
                             (int)f->forest.n_targets);
    f->threshold = asked->threshold;
    f->n_values = f->n_scores;
    f->answer = ANSWER_SCORES;
    if (classifies && !asked->predict_proba) {
        f->answer = ANSWER_CLASS;
        f->n_values = 1;
    } else if (classifies && f->n_scores == 1 && configured_columns(config) == 2) {
        f->answer = ANSWER_BOTH;
        f->n_values = 2;
    }
    return NULL;
}

/* ---- Complete -------------------------------------------------------------------------------- */

static void write_forest_input(FILE *to, const void *arg)
{
    const struct forest_model *f = arg;

    fprintf(to, "[{\"name\":\"" INPUT_NAME "\",\"data_type\":\"TYPE_FP32\",\"dims\":[%d]}]",
            (int)f->forest.n_features);
}

static void write_forest_output(FILE *to, const void *arg)
{
    const struct forest_model *f = arg;

    fprintf(to, "[{\"name\":\"" OUTPUT_NAME "\",\"data_type\":\"TYPE_FP32\",\"dims\":[%zu]}]",
            f->n_values);
}

static TRITONSERVER_Error *complete_config(struct forest_model *f, struct frame_model *m,
                                           int64_t default_max_batch_size)
{
    struct model_file_parts parts = {.max_batch_size = m->max_batch_size,
                                     .write_inputs = write_forest_input,
                                     .write_outputs = write_forest_output,
                                     .arg = f};

    if (!model_file_lacks_tensors(m->config))
        return NULL;
    if (parts.max_batch_size == 0 && default_max_batch_size > 0) {
        parts.max_batch_size = default_max_batch_size;
        BACKEND_LOG(WARN,
                    "model '%s' can batch but its configuration has no max_batch_size: %lld is "
                    "used, this backend's default-max-batch-size; write max_batch_size: N in its "
                    "config.pbtxt to allow batches of N",
                    m->name, (long long)parts.max_batch_size);
    }
    TRY(model_file_complete(m->handle, &m->config, &parts));
    m->max_batch_size = parts.max_batch_size;
    return NULL;
}

/* ---- Check ----------------------------------------------------------------------------------- */

/* Finds the only tensor of a list. */
static TRITONSERVER_Error *find_only_tensor(const struct frame_model *m, const char *list,
                                            const char *name, const struct doc_value **ret_tensor)
{
    const struct doc_value *all = doc_get(doc_root(m->config), list), *v = doc_first(all);
    const char *have = doc_string(doc_get(v, "name"), "");

    if (strcmp(list, "output") == 0)
        for (const struct doc_value *o = v; o; o = o->next)
            if (strcmp(doc_string(doc_get(o, "name"), ""), "treeshap_output") == 0)
                return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                     "model '%s': the output treeshap_output (Shapley values) is "
                                     "not supported, because treelite does not compute them",
                                     m->name);
    if (doc_count(all) != 1)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration expects %zu %ss, model "
                             "provides 1",
                             m->name, doc_count(all), list);
    if (strcmp(have, name) != 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unexpected inference %s '%s', allowed %ss are: %s", list, have, list,
                             name);
    *ret_tensor = v;
    return NULL;
}

static TRITONSERVER_Error *check_forest_type(const struct frame_model *m, const char *list,
                                             const struct doc_value *tensor, bool *ret_double)
{
    const char *type = doc_string(doc_get(tensor, "data_type"), "");

    *ret_double = strcmp(type, "TYPE_FP64") == 0;
    if (*ret_double || strcmp(type, "TYPE_FP32") == 0)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "unable to load model '%s', configuration expects datatype %s for %s "
                         "'%s', model provides TYPE_FP32, or TYPE_FP64",
                         m->name, type, list, doc_string(doc_get(tensor, "name"), ""));
}

/* Reads the dimensions that the backend sees, without that of a batch: at most two. */
static TRITONSERVER_Error *read_forest_dims(const struct frame_model *m,
                                            const struct doc_value *tensor, int64_t *dims,
                                            size_t *ret_rank)
{
    const struct doc_value *reshape = doc_get(doc_get(tensor, "reshape"), "shape");
    const struct doc_value *v = doc_first(reshape ? reshape : doc_get(tensor, "dims"));
    size_t rank = 0;

    for (; v && rank < 2; v = v->next) {
        dims[rank] = -1;
        doc_int(v, &dims[rank++]);
    }
    if (v)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s', tensor '%s': a forest has rows and columns, the "
                             "configuration more than two dimensions",
                             m->name, doc_string(doc_get(tensor, "name"), ""));
    *ret_rank = rank;
    return NULL;
}

/* The input: rows, if max_batch_size is 0 and there are two dimensions, and features. */
static TRITONSERVER_Error *check_input_dims(struct forest_model *f, const struct frame_model *m,
                                            const struct doc_value *tensor)
{
    int64_t dims[2] = {0, 0}, columns;
    size_t rank = 0;

    TRY(read_forest_dims(m, tensor, dims, &rank));
    f->has_rows = m->max_batch_size > 0 || rank == 2;
    columns = rank > 0 ? dims[rank - 1] : 0;
    if (rank == 0 || (m->max_batch_size > 0 && rank != 1) ||
        (columns >= 0 && columns != f->forest.n_features))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s', tensor '" INPUT_NAME "': the model has %d features but "
                             "the model configuration specifies %lld in %zu dimensions",
                             m->name, (int)f->forest.n_features, (long long)columns, rank);
    return NULL;
}

/* The output: the same rows, and the values of each. */
static TRITONSERVER_Error *check_output_dims(struct forest_model *f, const struct frame_model *m,
                                             const struct doc_value *tensor)
{
    int64_t dims[2] = {0, 0}, columns;
    size_t rank = 0, n_rows = f->has_rows && m->max_batch_size == 0;

    TRY(read_forest_dims(m, tensor, dims, &rank));
    columns = rank > n_rows ? dims[rank - 1] : 1;
    if (rank > n_rows + 1 || rank < n_rows || (columns >= 0 && (size_t)columns != f->n_values))
        return backend_error(
            TRITONSERVER_ERROR_INVALID_ARG,
            "model '%s', tensor '" OUTPUT_NAME "': the model answers a row with %zu values (%s) "
            "but the model configuration specifies %lld in %zu dimensions",
            m->name, f->n_values,
            f->answer == ANSWER_CLASS ? "the number of its class; predict_proba gives probabilities"
                                      : "the forest's scores",
            (long long)columns, rank);
    /* As Triton's backend does: one value for each row is a list of rows. */
    f->has_columns = f->n_values > 1;
    return NULL;
}

static TRITONSERVER_Error *check_config(struct forest_model *f, const struct frame_model *m)
{
    const struct doc_value *input, *output;
    bool output_double;

    TRY(find_only_tensor(m, "input", INPUT_NAME, &input));
    TRY(find_only_tensor(m, "output", OUTPUT_NAME, &output));
    TRY(check_forest_type(m, "input", input, &f->is_double));
    TRY(check_forest_type(m, "output", output, &output_double));
    if (f->is_double != output_double)
        return backend_error(
            TRITONSERVER_ERROR_INVALID_ARG,
            "model '%s': " INPUT_NAME " and " OUTPUT_NAME " must have the same datatype", m->name);
    TRY(check_input_dims(f, m, input));
    return check_output_dims(f, m, output);
}

/* ---- All steps ------------------------------------------------------------------------------- */

static TRITONSERVER_Error *declare_small_forest(const struct forest_model *f,
                                                const struct frame_model *m)
{
    uint64_t rows = m->max_batch_size > 0 ? (uint64_t)m->max_batch_size : 1, visits;

    if (m->max_batch_size == 0 && f->has_rows)
        return NULL;
    if (__builtin_mul_overflow(f->forest.n_trees * f->forest.depth, rows, &visits) ||
        visits > SMALL_VISITS)
        return NULL;
    BACKEND_LOG(VERBOSE, "model '%s' is small: a run visits at most %llu nodes", m->name,
                (unsigned long long)visits);
    return backend_declare_bounded(m->handle);
}

TRITONSERVER_Error *forest_model_configure(struct forest_model *f, struct frame_model *m,
                                           const struct forest_asked *asked,
                                           int64_t default_max_batch_size)
{
    bool complete;

    TRY(choose_answer(f, m->config, asked));
    TRY(TRITONBACKEND_ModelAutoCompleteConfig(m->handle, &complete));
    if (complete)
        TRY(complete_config(f, m, default_max_batch_size));
    TRY(check_config(f, m));
    return declare_small_forest(f, m);
}
