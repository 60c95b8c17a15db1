/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - compares the engine and the configuration, and completes the configuration.
 *
 * An engine batches if the first dimension of all its tensors is open; the largest batch is what
 * its optimization profiles allow.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"
#include "tensorrt/model.h"

#define config_error(...) backend_error(TRITONSERVER_ERROR_INVALID_ARG, __VA_ARGS__)

static const struct doc_value *first_configured(const struct model *m, const char *key)
{
    return doc_first(doc_get(doc_root(m->frame->config), key));
}

/* ---- Batches --------------------------------------------------------------------------------- */

static bool engine_batches(const struct model *m)
{
    bool has_input = false;

    for (size_t i = 0; i < m->tensors.n; i++) {
        const struct tensor *t = &m->tensors.list[i];

        if (!t->is_shape && (t->dims.rank == 0 || t->dims.d[0] != -1))
            return false;
        has_input |= t->is_input && !t->is_shape;
    }
    return has_input;
}

/* The largest batch of one profile. */
static int64_t profile_batch(const struct model *m, int32_t profile)
{
    int64_t most = INT32_MAX;

    for (size_t i = 0; i < m->tensors.n; i++) {
        const struct tensor *t = &m->tensors.list[i];

        if (t->is_input && !t->is_shape && t->limits[profile].most.d[0] < most)
            most = t->limits[profile].most.d[0];
    }
    return most;
}

/* The largest batch of the profiles that the configuration names, or else of the first. */
static TRITONSERVER_Error *largest_batch(const struct model *m, int64_t *ret_most)
{
    int64_t most = 0;
    bool named = false;

    for (const struct doc_value *g = first_configured(m, "instance_group"); g; g = g->next)
        for (const struct doc_value *v = doc_first(doc_get(g, "profile")); v; v = v->next) {
            int64_t this_most;
            int32_t profile;

            TRY(model_profile(m, doc_string(v, ""), &profile));
            this_most = profile_batch(m, profile);
            most = this_most > most ? this_most : most;
            named = true;
        }
    *ret_most = !engine_batches(m) ? 0 : named ? most : profile_batch(m, 0);
    return NULL;
}

/* Do the tensors that the configuration has leave out the batch? True if it has none. */
static bool config_leaves_out_batch(const struct model *m)
{
    static const char *const lists[] = {"input", "output"};

    for (size_t i = 0; i < 2; i++)
        for (const struct doc_value *v = first_configured(m, lists[i]); v; v = v->next) {
            const struct tensor *t = tensors_find(&m->tensors, doc_string(doc_get(v, "name"), ""));
            const struct doc_value *reshape = doc_get(doc_get(v, "reshape"), "shape");
            size_t n = doc_count(reshape ? reshape : doc_get(v, "dims"));

            if (t && !t->is_shape && (n > 0 || reshape) &&
                !doc_true(doc_get(v, "allow_ragged_batch")))
                return n + 1 == (size_t)t->dims.rank;
        }
    return true;
}

/* ---- Complete -------------------------------------------------------------------------------- */

/* A completed configuration of this model. */
struct completion {
    const struct model *m;
    bool batches;
};

static void write_engine_tensors(FILE *to, const struct completion *c, bool inputs)
{
    const char *between = "";

    fputs("[", to);
    for (size_t i = 0; i < c->m->tensors.n; i++) {
        const struct tensor *t = &c->m->tensors.list[i];

        if (t->is_input != inputs)
            continue;
        fputs(between, to);
        between = ",";
        if (t->is_shape) {
            fputs("{\"name\":", to);
            doc_write_string(to, t->name);
            fprintf(to, ",\"data_type\":\"%s\",\"dims\":[%lld],\"is_shape_tensor\":true}",
                    type_name(t->type),
                    t->dims.rank > 0 ? (long long)t->dims.d[0] - c->batches : 1LL);
        } else {
            model_file_write_tensor(to, t->name, type_name(t->type), t->dims.d,
                                    (size_t)t->dims.rank, c->batches);
        }
    }
    fputs("]", to);
}

static void write_engine_inputs(FILE *to, const void *arg)
{
    write_engine_tensors(to, arg, true);
}

static void write_engine_outputs(FILE *to, const void *arg)
{
    write_engine_tensors(to, arg, false);
}

TRITONSERVER_Error *complete_config(struct model *m)
{
    struct completion c = {.m = m};
    struct model_file_parts parts = {.max_batch_size = m->frame->max_batch_size,
                                     .write_inputs = write_engine_inputs,
                                     .write_outputs = write_engine_outputs,
                                     .arg = &c};
    int64_t most;

    TRY(largest_batch(m, &most));
    if (parts.max_batch_size > most)
        return config_error("autofill failed for model '%s': configuration specified max-batch "
                            "%lld but TensorRT engine only supports max-batch %lld",
                            m->name, (long long)parts.max_batch_size, (long long)most);
    if (parts.max_batch_size == 0 && most > 0 && config_leaves_out_batch(m))
        parts.max_batch_size = most;
    else if (!model_file_lacks_tensors(m->frame->config))
        return NULL;
    c.batches = parts.max_batch_size > 0;
    TRY(model_file_complete(m->frame->handle, &m->frame->config, &parts));
    m->frame->max_batch_size = parts.max_batch_size;
    return NULL;
}

/* ---- Check ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *refuse_tensor_name(const struct model *m, const char *what,
                                              const char *name)
{
    const char **names = calloc(m->tensors.n + 1, sizeof(*names));
    bool inputs = strcmp(what, "input") == 0;
    TRITONSERVER_Error *err;
    size_t n = 0;

    if (!names)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < m->tensors.n; i++)
        if (m->tensors.list[i].is_input == inputs)
            names[n++] = m->tensors.list[i].name;
    err = model_file_unexpected(what, name, names, n);
    free(names);
    return err;
}

static TRITONSERVER_Error *find_engine_tensor(struct model *m, const char *what, const char *name,
                                              struct tensor **ret_tensor)
{
    struct tensor *t = tensors_find(&m->tensors, name);

    if (!t || t->is_input != (strcmp(what, "input") == 0))
        return refuse_tensor_name(m, what, name);
    if (t->configured && t->is_input)
        return config_error("input '%s' has already appeared as an input or output for %s", name,
                            m->name);
    t->configured = true;
    *ret_tensor = t;
    return NULL;
}

static TRITONSERVER_Error *check_engine_type(const struct model *m, const char *what,
                                             const struct tensor *t, const char *type)
{
    if (*type && strcmp(type, type_name(t->type)) != 0)
        return config_error("unexpected datatype %s for inference %s '%s', expecting %s for %s",
                            type_name(t->type), what, t->name, type, m->name);
    return NULL;
}

/* The values of a shape are a list of as many as the model needs, without the batch. */
static TRITONSERVER_Error *check_values(const struct model *m, const struct tensor *t,
                                        const struct doc_value *v)
{
    int64_t of_engine = t->dims.rank == 0 ? 1 : t->dims.d[0] - (m->frame->max_batch_size > 0);
    int64_t n = 0;

    if (!t->is_input && m->frame->max_batch_size > 0)
        return config_error("unable to load model '%s', its output '%s' has the values of a shape, "
                            "which a model that batches cannot answer with",
                            m->name, t->name);
    if (t->dims.rank > 1)
        return config_error("unable to load model '%s', shape binding '%s' can only be 0-d or 1-D "
                            "tensor, got %s",
                            m->name, t->name,
                            model_file_shape_text(t->dims.d, (size_t)t->dims.rank).text);
    if (doc_count(doc_get(v, "dims")) != 1 || !doc_int(doc_first(doc_get(v, "dims")), &n) ||
        n != of_engine)
        return config_error("unable to load model '%s', binding '%s' shape expected by framework "
                            "%s doesn't match model configuration",
                            m->name, t->name,
                            model_file_shape_text(t->dims.d, (size_t)t->dims.rank).text);
    if (t->type != TRITONSERVER_TYPE_INT32 && t->type != TRITONSERVER_TYPE_INT64)
        return config_error("unexpected datatype %s in engine for shape input '%s', expecting "
                            "TYPE_INT32 or TYPE_INT64 for %s",
                            type_name(t->type), t->name, m->name);
    return NULL;
}

static TRITONSERVER_Error *check_engine_shape(const struct model *m, struct tensor *t,
                                              const struct doc_value *v)
{
    bool batches = m->frame->max_batch_size > 0;
    int64_t dims[BATCH_MAX_RANK];
    size_t rank;
    bool fits;

    TRY(model_file_config_shape(m->name, v, batches, BATCH_MAX_RANK, dims, &rank));
    fits = rank == (size_t)t->dims.rank && (!batches || t->dims.d[0] == -1);
    for (size_t d = 0; d < rank && fits; d++)
        fits = dims[d] == t->dims.d[d] || dims[d] == -1 || t->dims.d[d] == -1;
    /* A configuration without batches cannot have no dimensions. */
    t->is_scalar = !batches && t->dims.rank == 0 && rank == 1 && dims[0] == 1;
    if (fits || t->is_scalar)
        return NULL;
    return config_error("model '%s', tensor '%s': the model expects %d dimensions (shape %s) but "
                        "the model configuration specifies %zu dimensions (%sshape %s%s",
                        m->name, t->name, (int)t->dims.rank,
                        model_file_shape_text(t->dims.d, (size_t)t->dims.rank).text, rank,
                        batches ? "an initial batch dimension because max_batch_size > 0 followed "
                                  "by the explicit tensor shape, making complete "
                                : "",
                        model_file_shape_text(dims, rank).text, ")");
}

static TRITONSERVER_Error *check_mark(const struct model *m, const char *what,
                                      const struct tensor *t, const struct doc_value *v)
{
    bool marked = doc_true(doc_get(v, "is_shape_tensor"));

    if (t->is_shape && !marked)
        return config_error("%s '%s' for model '%s' is a shape tensor but the model configuration "
                            "doesn't mark it as a shape tensor.",
                            what, t->name, m->name);
    if (!t->is_shape && marked)
        return config_error("%s '%s' for model '%s' is incorrectly marked as a shape tensor in the "
                            "model configuration.",
                            what, t->name, m->name);
    if (doc_true(doc_get(v, "is_non_linear_format_io")))
        return config_error("%s '%s' for model '%s' uses a linear IO format, but "
                            "'is_non_linear_format_io' is incorrectly set to true in the model "
                            "configuration.",
                            what, t->name, m->name);
    return NULL;
}

static TRITONSERVER_Error *check_engine_side(struct model *m, const char *what)
{
    uint32_t position = 0;

    for (const struct doc_value *v = first_configured(m, what); v; v = v->next, position++) {
        const char *name = doc_string(doc_get(v, "name"), "");
        struct tensor *t;

        TRY(find_engine_tensor(m, what, name, &t));
        TRY(check_engine_type(m, what, t, doc_string(doc_get(v, "data_type"), "")));
        TRY(check_mark(m, what, t, v));
        t->ragged = doc_true(doc_get(v, "allow_ragged_batch"));
        t->source = t->is_input ? NULL : ragged_source(&m->ragged, name);
        t->is_output = !t->is_input;
        t->hint = position;
        if (t->is_shape)
            TRY(check_values(m, t, v));
        else if (!t->ragged && !t->source)
            TRY(check_engine_shape(m, t, v));
    }
    return NULL;
}

/* What the scheduler makes: controls and states of sequences, and batch inputs. */
static TRITONSERVER_Error *check_scheduler_inputs(struct model *m)
{
    const struct doc_value *sequence = doc_get(doc_root(m->frame->config), "sequence_batching");
    const struct doc_value *v;
    struct tensor *t;

    for (size_t i = 0; i < m->ragged.n_inputs; i++) {
        const struct ragged_input *made = &m->ragged.inputs[i];

        TRY(find_engine_tensor(m, "input", made->name, &t));
        if (t->type != made->type)
            return config_error("unexpected datatype %s for inference input '%s', expecting %s "
                                "for %s",
                                type_name(t->type), t->name, type_name(made->type), m->name);
        t->made = made;
    }
    for (v = doc_first(doc_get(sequence, "control_input")); v; v = v->next)
        TRY(find_engine_tensor(m, "input", doc_string(doc_get(v, "name"), ""), &t));
    for (v = doc_first(doc_get(sequence, "state")); v; v = v->next) {
        const char *type = doc_string(doc_get(v, "data_type"), "");

        TRY(find_engine_tensor(m, "input", doc_string(doc_get(v, "input_name"), ""), &t));
        TRY(check_engine_type(m, "input", t, type));
        TRY(check_engine_shape(m, t, v));
        TRY(find_engine_tensor(m, "output", doc_string(doc_get(v, "output_name"), ""), &t));
        TRY(check_engine_type(m, "output", t, type));
        TRY(check_engine_shape(m, t, v));
        t->is_state = true;
    }
    return NULL;
}

static TRITONSERVER_Error *check_all_inputs(const struct model *m)
{
    for (size_t i = 0; i < m->tensors.n; i++)
        if (m->tensors.list[i].is_input && !m->tensors.list[i].configured)
            return config_error("unable to load model '%s', the model has an input '%s', which the "
                                "configuration lacks",
                                m->name, m->tensors.list[i].name);
    return NULL;
}

TRITONSERVER_Error *check_config(struct model *m)
{
    int64_t most;

    TRY(check_engine_side(m, "input"));
    TRY(check_engine_side(m, "output"));
    TRY(check_scheduler_inputs(m));
    TRY(check_all_inputs(m));
    TRY(largest_batch(m, &most));
    if (m->frame->max_batch_size > most && m->ragged.n_inputs == 0)
        return config_error("unable to load model '%s', configuration specified max-batch %lld but "
                            "TensorRT engine only supports max-batch %lld",
                            m->name, (long long)m->frame->max_batch_size, (long long)most);
    return NULL;
}
