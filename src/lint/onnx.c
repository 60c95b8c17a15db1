/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model files of the backend onnxruntime, of which only the heads are read. What the backend
 * would refuse is found here in its words (backends/onnxruntime/config.c and model.c): plugins see
 * public headers only, so that the rules stand there and here. Where the file does not say what
 * ONNX Runtime would infer, nothing is found.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/config/onnx_head.h"
#include "core/storage/storage.h"
#include "lint/model_check.h"

/* The newest that ONNX Runtime 1.31 reads. */
enum { NEWEST_OPSET = 26, NEWEST_IR_VERSION = 13 };

enum { MAX_TEXT_BYTES = 4096, FIRST_IR_WITH_DEFAULTS = 4 };

struct onnx_check {
    struct model_check *l;
    const struct onnx_head *head;
    const char *path; /* of the file, in the storage */
    bool batches;     /* the model gets batches … */
    bool may_batch;   /* … or the backend may decide that it does */
};

static void add_about_file(const struct onnx_check *c, enum lint_code code, const char *advice,
                           const char *fmt, ...) PRINTF_LIKE(4, 5);
static void add_about_file(const struct onnx_check *c, enum lint_code code, const char *advice,
                           const char *fmt, ...)
{
    char *file = storage_path(c->l->m->storage, c->path);
    char text[MAX_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    lint_add(c->l->found, code, (struct lint_position){.file = file}, advice, "%s", text);
    mem_free(file);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void check_versions(const struct onnx_check *c)
{
    const struct onnx_head *h = c->head;
    if (!h->has_graph)
        add_about_file(c, LINT_ONNX, NULL, "the file is no ONNX model: it has no graph");
    else if (!h->ir_version || !h->has_imports)
        add_about_file(c, LINT_ONNX, NULL, "the file is no ONNX model: it has no %s",
                       h->ir_version ? "opset" : "version of the format (ir_version)");
    else if (h->opset > NEWEST_OPSET)
        add_about_file(c, LINT_ONNX_VERSION, "export the model with an older opset",
                       "the ONNX file needs opset %" PRId64 ", ONNX Runtime 1.31 has %d", h->opset,
                       NEWEST_OPSET);
    else if (h->ir_version > NEWEST_IR_VERSION)
        add_about_file(c, LINT_ONNX_VERSION, "export the model with an older ir_version",
                       "the ONNX file has the format's version %" PRId64
                       ", ONNX Runtime 1.31 reads %d",
                       h->ir_version, NEWEST_IR_VERSION);
}

/* The folder of the ONNX file, in the storage; the caller frees it. */
static char *folder_of_file(const struct onnx_check *c)
{
    return mem_strndup(c->path, (size_t)(strrchr(c->path, '/') - c->path));
}

static void check_external_file(const struct onnx_check *c, const struct onnx_external *e)
{
    struct file_info info = {.kind = FILE_MISSING};
    char *folder = folder_of_file(c);
    if (!*e->location) {
        add_about_file(c, LINT_ONNX, NULL, "external data of '%s' is in a file without a name",
                       e->tensor);
    } else if (str_escapes_folder(e->location)) {
        add_about_file(c, LINT_ONNX, "put the file beside the ONNX file",
                       "external data of '%s' is in '%s', which is outside the folder of its ONNX "
                       "file",
                       e->tensor, e->location);
    } else {
        struct status *st = storage_stat_named(c->l->m->storage, folder, e->location, &info);
        if (!st && info.kind == FILE_MISSING)
            add_about_file(c, LINT_ONNX, "put the file there; the exporter has written it, too",
                           "external data of '%s' is in '%s', which cannot be opened: No such file "
                           "or directory",
                           e->tensor, e->location);
        else if (!st && info.kind != FILE_REGULAR)
            add_about_file(c, LINT_ONNX, NULL,
                           "external data of '%s' is in '%s', which is no regular file", e->tensor,
                           e->location);
        status_free(st); /* a link, which is reported with the folder's entries */
    }
    mem_free(folder);
}

/* ---- the tensors of the file ----------------------------------------------------------------- */

/* Inputs whose value is in the file: requests may replace them, but in old files. */
static bool is_session_input(const struct onnx_check *c, const struct onnx_value *v)
{
    return !v->has_default || c->head->ir_version >= FIRST_IR_WITH_DEFAULTS;
}

static void check_kind(const struct onnx_check *c, const struct onnx_value *v, bool is_input)
{
    const char *model = c->l->pb->name;
    if (v->kind == ONNX_UNTYPED && is_input && !v->has_default)
        add_about_file(c, LINT_ONNX, NULL, "input '%s' of the ONNX file has no type", v->name);
    else if (v->kind == ONNX_TENSOR && v->element && !onnx_config_type(v->element))
        add_about_file(c, LINT_ONNX, NULL,
                       "model '%s', tensor '%s': ONNX element type %d is not supported", model,
                       v->name, (int)v->element);
    else if (v->kind != ONNX_TENSOR && v->kind != ONNX_UNTYPED)
        add_about_file(c, LINT_ONNX,
                       v->has_maps ? "export the model with zipmap=False (skl2onnx: "
                                     "options={'zipmap': False}), which makes it a tensor"
                                   : NULL,
                       "model '%s': '%s' is no tensor but another kind of ONNX value, which is not "
                       "supported",
                       model, v->name);
}

static void check_kinds(const struct onnx_check *c)
{
    for (size_t i = 0; i < c->head->n_inputs; i++) {
        if (is_session_input(c, &c->head->inputs[i]))
            check_kind(c, &c->head->inputs[i], true);
    }
    for (size_t i = 0; i < c->head->n_outputs; i++)
        check_kind(c, &c->head->outputs[i], false);
}

static bool forbids_batches(const struct onnx_value *v)
{
    return v->has_shape && (v->rank == 0 || v->dims[0] >= 0);
}

/* Does a tensor of the file have a first dimension that no batch fits into? */
static bool cannot_batch(const struct onnx_check *c)
{
    bool cannot = false;
    for (size_t i = 0; i < c->head->n_inputs; i++)
        cannot |= !c->head->inputs[i].has_default && forbids_batches(&c->head->inputs[i]);
    for (size_t i = 0; i < c->head->n_outputs; i++)
        cannot |= forbids_batches(&c->head->outputs[i]);
    return cannot;
}

/* ---- the configuration beside the file ------------------------------------------------------- */

/* An input, output or state of the configuration. */
struct configured {
    const void *message; /* whose position is the finding's */
    const char *what, *name, *name_field;
    bool is_output, is_ragged, any_shape;
    Inference__DataType type;
    const int64_t *dims;
    size_t n_dims;
};

static const struct onnx_value *find_value(const struct onnx_check *c, bool is_output,
                                           const char *name)
{
    const struct onnx_value *values = is_output ? c->head->outputs : c->head->inputs;
    size_t n = is_output ? c->head->n_outputs : c->head->n_inputs;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(values[i].name, name) == 0 && (is_output || is_session_input(c, &values[i])))
            return &values[i];
    }
    return NULL;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_unexpected(const struct onnx_check *c, const struct configured *t)
{
    const struct onnx_value *values = t->is_output ? c->head->outputs : c->head->inputs;
    size_t n = t->is_output ? c->head->n_outputs : c->head->n_inputs, n_names = 0;
    size_t least = SIZE_MAX;
    const char **names = mem_alloc((n + 1) * sizeof(*names)), *nearest = NULL;
    AUTO(buf) list = BUF_INIT(MAX_TEXT_BYTES);

    for (size_t i = 0; i < n; i++) {
        if (t->is_output || is_session_input(c, &values[i]))
            names[n_names++] = values[i].name;
    }
    qsort(names, n_names, sizeof(*names), compare_texts);
    for (size_t i = 0; i < n_names; i++) {
        buf_addf(&list, "%s%s", i ? ", " : "", names[i]);
        if (str_nearer(t->name, names[i], &least))
            nearest = names[i];
    }
    char *advice = nearest        ? mem_printf("did you mean \"%s\"?", nearest)
                   : n_names == 1 ? mem_printf("name: \"%s\"", names[0])
                                  : NULL;
    const char *side = t->is_output ? "output" : "input";
    lint_add(c->l->found, LINT_ONNX_CONFIG, lint_at(c->l, t->message, t->name_field, 0), advice,
             "unexpected inference %s '%s', allowed %ss are: %s", side, t->name, side,
             buf_text(&list));
    mem_free(advice);
    mem_free(names);
}

static void compare_type(const struct onnx_check *c, const struct configured *t,
                         const struct onnx_value *v)
{
    const char *type = onnx_config_type(v->element);
    if (!type || !t->type || strcmp(type, lint_type_name(t->type)) == 0)
        return;
    char *advice = mem_printf("data_type: %s", type);
    lint_add(c->l->found, LINT_ONNX_CONFIG, lint_at(c->l, t->message, "data_type", 0), advice,
             "unable to load model '%s', configuration expects datatype %s for %s '%s', model "
             "provides %s",
             c->l->pb->name, lint_type_name(t->type), t->what, t->name, type);
    mem_free(advice);
}

static void add_shape_text(struct buf *out, const int64_t *dims, size_t n, const char *between)
{
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "%s%" PRId64, i ? between : "", dims[i]);
}

static bool shape_fits(const struct configured *t, const struct onnx_value *v, bool batches)
{
    size_t first = batches ? 1 : 0;
    if (v->rank == 0) { /* one value fits there */
        bool one = !batches;
        for (size_t i = 0; i < t->n_dims; i++)
            one &= t->dims[i] == 1;
        return one;
    }
    if (v->rank != t->n_dims + first || (batches && v->dims[0] >= 0))
        return false;
    for (size_t i = first; i < v->rank; i++) {
        if (v->dims[i] >= 0 && t->dims[i - first] >= 0 && v->dims[i] != t->dims[i - first])
            return false;
    }
    return true;
}

/* What dims would have to be; NULL when no dims fit. */
static char *right_dims(const struct onnx_check *c, const struct onnx_value *v)
{
    size_t first = c->batches ? 1 : 0;
    AUTO(buf) text = BUF_INIT(MAX_TEXT_BYTES);
    if (c->may_batch || v->rank < first || (c->batches && v->rank && v->dims[0] >= 0))
        return c->batches ? mem_strdup("max_batch_size: 0, if the model takes no batches") : NULL;
    buf_adds(&text, "dims: [ ");
    if (v->rank == first)
        buf_adds(&text, first ? "1 ] reshape { shape: [" : "1");
    else
        add_shape_text(&text, v->dims + first, v->rank - first, ", ");
    buf_adds(&text, v->rank == first && first ? " ] }" : " ]");
    return mem_strdup(buf_text(&text));
}

static void add_misfit(const struct onnx_check *c, const struct configured *t,
                       const struct onnx_value *v)
{
    AUTO(buf) is = BUF_INIT(MAX_TEXT_BYTES);
    AUTO(buf) said = BUF_INIT(MAX_TEXT_BYTES);
    char *advice = right_dims(c, v);
    struct lint_position position = lint_at(c->l, t->message, "dims", 0);

    add_shape_text(&is, v->dims, v->rank, ",");
    buf_adds(&said, c->batches ? (t->n_dims ? "-1," : "-1") : "");
    add_shape_text(&said, t->dims, t->n_dims, ",");
    if (v->rank == 0)
        lint_add(c->l->found, LINT_ONNX_CONFIG, position, advice,
                 "unable to load model '%s', scalar tensor '%s', should only provide 1 in the "
                 "model configuration when the model doesn't support batching. Model configuration "
                 "provided: [%s].",
                 c->l->pb->name, t->name, buf_text(&said));
    else if (c->batches && v->dims[0] >= 0)
        lint_add(c->l->found, LINT_ONNX_CONFIG, position, advice,
                 "model '%s', tensor '%s': max_batch_size > 0 needs a model whose first dimension "
                 "is -1, but the model expects shape [%s]",
                 c->l->pb->name, t->name, buf_text(&is));
    else
        lint_add(c->l->found, LINT_ONNX_CONFIG, position, advice,
                 "model '%s', tensor '%s': the model expects %zu dimensions (shape [%s]) but the "
                 "model configuration specifies %zu dimensions (%s [%s])",
                 c->l->pb->name, t->name, v->rank, buf_text(&is), t->n_dims + c->batches,
                 c->batches ? "an initial batch dimension because max_batch_size > 0 followed by "
                              "the explicit tensor shape, making complete shape"
                            : "shape",
                 buf_text(&said));
    mem_free(advice);
}

static void compare_shape(const struct onnx_check *c, const struct configured *t,
                          const struct onnx_value *v)
{
    if (!v->has_shape || t->any_shape)
        return;
    if (t->is_ragged) {
        if (v->rank > 1 || (v->rank == 1 && v->dims[0] >= 0))
            lint_add(c->l->found, LINT_ONNX_CONFIG, lint_at(c->l, t->message, "dims", 0), NULL,
                     "unable to load model '%s', configuration expects model provides input with "
                     "shape [-1] for ragged input '%s'",
                     c->l->pb->name, t->name);
        return;
    }
    if (!shape_fits(t, v, c->batches) && !(c->may_batch && shape_fits(t, v, true)))
        add_misfit(c, t, v);
}

static void compare_tensor(const struct onnx_check *c, const struct configured *t)
{
    const struct onnx_value *v = find_value(c, t->is_output, t->name);
    if (!v) {
        add_unexpected(c, t);
    } else if (v->kind == ONNX_TENSOR) {
        compare_type(c, t, v);
        compare_shape(c, t, v);
    }
}

static struct configured configured_input(const Inference__ModelInput *in)
{
    bool reshaped = in->reshape != NULL;
    return (struct configured){.message = in,
                               .what = "input",
                               .name = in->name,
                               .name_field = "name",
                               .is_ragged = in->allow_ragged_batch,
                               .type = in->data_type,
                               .dims = reshaped ? in->reshape->shape : in->dims,
                               .n_dims = reshaped ? in->reshape->n_shape : in->n_dims};
}

/* The inputs of a batch cut such an output into its responses, so that its shape is free. */
static bool is_batch_output(const Inference__ModelConfig *pb, const char *name)
{
    for (size_t i = 0; i < pb->n_batch_output; i++) {
        for (size_t k = 0; k < pb->batch_output[i]->n_target_name; k++) {
            if (strcmp(pb->batch_output[i]->target_name[k], name) == 0)
                return true;
        }
    }
    return false;
}

static struct configured configured_output(const Inference__ModelConfig *pb,
                                           const Inference__ModelOutput *out)
{
    bool reshaped = out->reshape != NULL;
    return (struct configured){.message = out,
                               .what = "output",
                               .name = out->name,
                               .name_field = "name",
                               .is_output = true,
                               .any_shape = is_batch_output(pb, out->name),
                               .type = out->data_type,
                               .dims = reshaped ? out->reshape->shape : out->dims,
                               .n_dims = reshaped ? out->reshape->n_shape : out->n_dims};
}

static void compare_state(const struct onnx_check *c,
                          const Inference__ModelSequenceBatching__State *s)
{
    struct configured t = {.message = s,
                           .what = "state input",
                           .name = s->input_name,
                           .name_field = "input_name",
                           .type = s->data_type,
                           .dims = s->dims,
                           .n_dims = s->n_dims};
    compare_tensor(c, &t);
    t.what = "state output";
    t.name = s->output_name;
    t.name_field = "output_name";
    t.is_output = true;
    compare_tensor(c, &t);
}

/* Inputs that the scheduler provides: controls and states of sequences, and batch inputs. */
static size_t count_provided(const Inference__ModelConfig *pb)
{
    size_t n = 0;
    if (pb->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING)
        n = pb->sequence_batching->n_control_input + pb->sequence_batching->n_state;
    for (size_t i = 0; i < pb->n_batch_input; i++)
        n += pb->batch_input[i]->n_target_name;
    return n;
}

static void compare_counts(const struct onnx_check *c)
{
    const Inference__ModelConfig *pb = c->l->pb;
    size_t expected = pb->n_input + count_provided(pb), required = 0, listed = 0, defaults = 0;
    for (size_t i = 0; i < c->head->n_inputs; i++) {
        required += !c->head->inputs[i].has_default;
        listed += is_session_input(c, &c->head->inputs[i]);
    }
    for (size_t i = 0; i < pb->n_input; i++) {
        const struct onnx_value *v = find_value(c, false, pb->input[i]->name);
        defaults += v && v->has_default;
    }
    if (expected >= required && expected <= listed && expected - defaults == required)
        return;
    lint_add(c->l->found, LINT_ONNX_CONFIG, lint_at(c->l, pb, "input", 0), NULL,
             "unable to load model '%s', configuration expects %zu inputs, model provides %zu",
             pb->name, expected, required);
}

static void compare_config(const struct onnx_check *c)
{
    const Inference__ModelConfig *pb = c->l->pb;
    size_t before = c->l->found->n;
    for (size_t i = 0; i < pb->n_input; i++) {
        const struct configured t = configured_input(pb->input[i]);
        compare_tensor(c, &t);
    }
    if (pb->scheduling_choice_case ==
        INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING) {
        for (size_t i = 0; i < pb->sequence_batching->n_state; i++)
            compare_state(c, pb->sequence_batching->state[i]);
    }
    /* The count says something new if each of them is right. */
    if (c->l->found->n == before && (pb->n_input || !lint_completes(c->l)))
        compare_counts(c);
    for (size_t i = 0; i < pb->n_output; i++) {
        const struct configured t = configured_output(pb, pb->output[i]);
        compare_tensor(c, &t);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void check_head(struct onnx_check *c)
{
    const Inference__ModelConfig *pb = c->l->pb;
    size_t before = c->l->found->n;
    check_versions(c);
    for (size_t i = 0; i < c->head->n_external; i++)
        check_external_file(c, &c->head->external[i]);
    if (c->head->is_partial || c->l->found->n > before || !c->head->has_graph)
        return;
    check_kinds(c);
    c->batches = pb->max_batch_size > 0;
    if (lint_completes(c->l) && c->batches && cannot_batch(c)) {
        lint_add(c->l->found, LINT_ONNX_CONFIG, lint_at(c->l, pb, "max_batch_size", 0),
                 "max_batch_size: 0",
                 "autofill failed for model '%s': model does not support batching while non-zero "
                 "max_batch_size is specified",
                 pb->name);
        return;
    }
    c->may_batch = lint_completes(c->l) && !c->batches && !cannot_batch(c);
    if (c->l->found->n == before)
        compare_config(c);
}

static void check_onnx_file(struct model_check *l, const char *path)
{
    struct onnx_check c = {.l = l, .path = path};
    char *folder = NULL, *name = strrchr(path, '/') + 1;
    char *parent = mem_strndup(path, (size_t)(name - path - 1));
    struct onnx_head *head = NULL;
    int fd = -1;
    struct status *st = storage_fetch(l->m->storage, parent, &folder);
    if (!st) {
        char *file = mem_printf("%s/%s", folder, name);
        st = file_open(file, 0, &fd);
        mem_free(file);
    }
    if (st) { /* reported with the folder's entries */
        status_free(st);
    } else {
        st = onnx_head_read(fd, &head);
        if (st)
            add_about_file(&c, LINT_ONNX, NULL, "%s", status_message(st));
        status_free(st);
        close(fd);
        c.head = head;
        if (head)
            check_head(&c);
    }
    onnx_head_free(head);
    storage_release(l->m->storage, folder);
    mem_free(parent);
}

/* Relative names begin in the model's folder. Others may lie anywhere in the repository. */
static void check_operators(struct model_check *l)
{
    const Inference__ModelOperations *o = l->pb->model_operations;
    for (size_t i = 0; o && i < o->n_op_library_filename; i++) {
        const char *name = o->op_library_filename[i];
        struct file_info info = {.kind = FILE_MISSING};
        if (str_escapes_folder(name))
            continue;
        struct status *st = storage_stat_named(l->m->storage, l->m->name, name, &info);
        if (!st && info.kind != FILE_REGULAR)
            lint_add(l->found, LINT_FILE, lint_at(l, o, "op_library_filename", i), NULL,
                     "library of custom operators '%s' (op_library_filename)%s", name,
                     info.kind == FILE_MISSING ? ": No such file or directory"
                                               : " is no regular file");
        status_free(st);
    }
}

static void check_graph_level(struct model_check *l)
{
    const Inference__ModelOptimizationPolicy *o = l->pb->optimization;
    if (o && o->graph && (o->graph->level < -1 || o->graph->level > 2))
        lint_add(l->found, LINT_CONFIG, lint_at(l, o->graph, "level", 0), NULL,
                 "field 'optimization.graph.level' must be -1 (basic), 0 (all), 1 (extended) or 2 "
                 "(none), got %d",
                 (int)o->graph->level);
}

void lint_check_onnx(struct model_check *l)
{
    const char *name =
        *l->pb->default_model_filename ? l->pb->default_model_filename : "model.onnx";
    if (strcmp(l->pb->backend, "onnxruntime") != 0 || str_escapes_folder(name))
        return;
    check_operators(l);
    check_graph_level(l);
    for (size_t i = 0; i < l->sm.n_versions; i++) {
        struct file_info info = {.kind = FILE_MISSING};
        char *path = mem_printf("%s/%" PRId64 "/%s", l->m->name, l->sm.versions[i], name);
        struct status *st = storage_stat(l->m->storage, path, &info);
        if (!st && info.kind == FILE_FOLDER) {
            char *inner = mem_printf("%s/model.onnx", path);
            mem_free(path);
            path = inner;
            st = storage_stat(l->m->storage, path, &info);
            if (!st && info.kind != FILE_REGULAR)
                lint_add_missing_file(l, path);
        }
        if (!st && info.kind == FILE_REGULAR)
            check_onnx_file(l, path);
        status_free(st);
        mem_free(path);
    }
}
