/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a model: what is in its version folders, and what its configuration names.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/backend/backend.h"
#include "core/labels.h"
#include "core/repo/storage.h"
#include "core/tensor.h"
#include "lint/backends.h"
#include "lint/look.h"

enum { MAX_POINTER_BYTES = 1024, MAX_STRINGS_BYTES = 64 << 20, STRING_LENGTH_BYTES = 4 };

static bool is_ensemble(const struct look *l)
{
    return l->pb->scheduling_choice_case ==
           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
}

static void add_at_path(struct look *l, enum lint_code code, const char *path, const char *advice,
                        const char *text)
{
    char *file = storage_path(l->m->storage, path);
    lint_add(l->found, code, (struct lint_place){.file = file}, advice, "%s", text);
    mem_free(file);
}

/* ---- files in general ------------------------------------------------------------------------ */

/* Can it be read, and is it what it seems to be? Reads small files only; others are just opened. */
static void look_at_file(struct look *l, const char *path)
{
    static const char mark[] = "version https://git-lfs";
    AUTO(buf) text = BUF_INIT(MAX_POINTER_BYTES);
    struct status *st = storage_read(l->m->storage, path, &text);
    if (!st && text.size >= strlen(mark) && memcmp(text.data, mark, strlen(mark)) == 0)
        add_at_path(l, LINT_LFS_POINTER, path, "get the content: git lfs pull",
                    "this is a pointer of git-lfs, not the file that it stands for");
    if (st && status_code(st) != STATUS_INVALID_ARG) { /* that one says that it is larger */
        lint_add_status(l->found, LINT_READ, l->m->storage, path, st);
        return;
    }
    status_free(st);
}

/* ---- version folders ------------------------------------------------------------------------- */

/* Everything in it; true if there is anything. */
static bool look_at_entries(struct look *l, const char *folder)
{
    struct file_list list;
    struct status *st = storage_list(l->m->storage, folder, &list);
    if (st) {
        lint_add_status(l->found, LINT_READ, l->m->storage, folder, st);
        return true;
    }
    bool any = list.count > 0;
    for (size_t i = 0; i < list.count; i++) {
        enum file_kind kind = FILE_OTHER;
        char *path = mem_printf("%s/%s", folder, list.entries[i].name);
        st = storage_kind(l->m->storage, folder, &list.entries[i], &kind);
        if (st)
            lint_add_status(l->found, list.entries[i].kind == FILE_LINK ? LINT_LINK : LINT_READ,
                            l->m->storage, path, st);
        else if (kind == FILE_REGULAR)
            look_at_file(l, path);
        mem_free(path);
    }
    file_list_done(&list);
    return any;
}

static void look_at_model_file(struct look *l, const char *folder)
{
    const char *name = l->pb->default_model_filename;
    struct file_info info = {.kind = FILE_MISSING};
    if (!*name)
        return;
    if (str_escapes_folder(name)) {
        lint_add(l->found, LINT_FILE, lint_at(l, l->pb, "default_model_filename", 0), NULL,
                 "default_model_filename '%s' leads out of the version folder", name);
        return;
    }
    char *path = mem_printf("%s/%s", folder, name);
    struct status *st = storage_stat(l->m->storage, path, &info);
    status_free(st); /* told with the folder's other entries */
    if (!st && info.kind == FILE_MISSING) {
        bool needed = l->backend && l->backend->needs_file;
        char *file = storage_path(l->m->storage, path);
        lint_add(l->found, needed ? LINT_FILE : LINT_MODEL_FILE,
                 lint_at(l, l->pb, "default_model_filename", 0), NULL,
                 "the model file '%s' of backend '%s' is missing", file, l->pb->backend);
        mem_free(file);
    }
    mem_free(path);
}

static void look_at_version(struct look *l, int64_t version)
{
    char *folder = mem_printf("%s/%" PRId64, l->m->name, version);
    bool any = look_at_entries(l, folder);
    if (is_ensemble(l))
        ; /* nothing needs to be there */
    else if (any || (l->backend && l->backend->needs_file))
        look_at_model_file(l, folder);
    else if (!l->backend && *l->pb->backend) /* the known ones need nothing */
        add_at_path(l, LINT_EMPTY_VERSION, folder, NULL, "the version folder is empty");
    mem_free(folder);
}

/* ---- the backend ----------------------------------------------------------------------------- */

static void look_at_backend(struct look *l)
{
    const Inference__ModelConfig *pb = l->pb;
    const struct backend_registry registry = {.directory = l->run->options->backend_directory};
    if (!*pb->backend || is_ensemble(l) || !l->sm.n_versions)
        return;
    if (str_escapes_folder(pb->backend) || strchr(pb->backend, '/') ||
        (*pb->runtime && str_escapes_folder(pb->runtime))) {
        lint_add(l->found, LINT_CONFIG, lint_at(l, pb, *pb->runtime ? "runtime" : "backend", 0),
                 NULL,
                 "backend library name '%s' escapes backend directory, for model '%s', check "
                 "model config runtime field",
                 *pb->runtime ? pb->runtime : pb->backend, pb->name);
        return;
    }
    if (!l->run->has_backends || !lint_wants(l->found, LINT_BACKEND))
        return;
    char *directory = storage_path(l->m->storage, l->m->name), *library = NULL;
    char *version = mem_printf("%s/%" PRId64, directory, l->sm.versions[0]);
    struct status *st = backend_find_library(&registry, l->config, directory, version, &library);
    if (st) {
        const char *meant = l->backend ? NULL : backend_nearest(pb->backend);
        char *advice = meant ? mem_printf("did you mean \"%s\"?", meant) : NULL;
        lint_add(l->found, LINT_BACKEND, lint_at(l, pb, "backend", 0), advice, "%s",
                 status_message(st));
        mem_free(advice);
    }
    status_free(st);
    mem_free(library);
    mem_free(version);
    mem_free(directory);
}

/* ---- labels ---------------------------------------------------------------------------------- */

static void look_at_labels(struct look *l, const Inference__ModelOutput *output)
{
    struct lint_place place = lint_at(l, output, "label_filename", 0);
    struct labels *labels = NULL;
    int64_t classes = 0;
    struct status *st =
        labels_read(l->m->name, output->name, l->m->storage, output->label_filename, &labels);
    if (st) {
        lint_add(l->found, LINT_FILE, place, NULL, "%s", status_message(st));
        status_free(st);
        return;
    }
    bool sized = shape_elements(output->dims, output->n_dims, &classes) == SHAPE_FINE;
    if (labels->count == 0)
        lint_add(l->found, LINT_LABELS, place, NULL, "label file '%s' of output '%s' is empty",
                 output->label_filename, output->name);
    else if (sized && (uint64_t)classes > labels->count)
        lint_add(l->found, LINT_LABELS, place, NULL,
                 "label file '%s' has labels for %zu of the %" PRId64 " classes of output '%s'",
                 output->label_filename, labels->count, classes, output->name);
    labels_free(labels);

    char *path = mem_printf("%s/%s", l->m->name, output->label_filename);
    look_at_file(l, path);
    mem_free(path);
}

/* ---- warm-up and initial states -------------------------------------------------------------- */

/* A tensor whose bytes are in a file. */
struct data_file {
    const void *message; /* of the configuration, whose `field` names the file */
    const char *field;
    const char *folder; /* of the model: "warmup" */
    const char *file;
    Inference__DataType type;
    size_t n_dims;
    const int64_t *dims;
    const char *setting; /* how errors begin: "warmup setting" */
};

/* How many strings there are, each after its length; false: the last one is not whole. */
static bool count_strings(const struct buf *text, uint64_t *ret_n)
{
    size_t at = 0;
    *ret_n = 0;
    while (at < text->size) {
        uint32_t length;
        if (text->size - at < STRING_LENGTH_BYTES)
            return false;
        memcpy(&length, text->data + at, STRING_LENGTH_BYTES);
        at += STRING_LENGTH_BYTES;
        if (text->size - at < length)
            return false;
        at += length;
        ++*ret_n;
    }
    return true;
}

static void look_at_strings(struct look *l, const struct data_file *d, const char *path,
                            int64_t elements)
{
    AUTO(buf) text = BUF_INIT(MAX_STRINGS_BYTES);
    uint64_t n;
    struct status *st = storage_read(l->m->storage, path, &text);
    if (st) {
        status_free(st); /* too large to count, or told by look_at_file() */
        return;
    }
    if (!count_strings(&text, &n))
        lint_add(l->found, LINT_FILE, lint_at(l, d->message, d->field, 0),
                 "each string follows its length, four bytes with the lowest first",
                 "%s: in %s the last string is not whole", d->setting, d->file);
    else if (n != (uint64_t)elements)
        lint_add(l->found, LINT_FILE, lint_at(l, d->message, d->field, 0), NULL,
                 "%s expects %" PRId64 " strings, but the data provided from %s has %" PRIu64,
                 d->setting, elements, d->file, n);
}

static void look_at_size(struct look *l, const struct data_file *d, const char *path,
                         uint64_t size_bytes)
{
    int64_t elements = 0;
    uint64_t expected;
    if (shape_elements(d->dims, d->n_dims, &elements) != SHAPE_FINE)
        return; /* the rules have something to say about that */
    if (d->type == INFERENCE__DATA_TYPE__TYPE_STRING) {
        look_at_strings(l, d, path, elements);
        return;
    }
    size_t element_bytes = dtype_size((enum dtype)d->type); /* the same numbers */
    if (!element_bytes || __builtin_mul_overflow((uint64_t)elements, element_bytes, &expected))
        return;
    struct lint_place place = lint_at(l, d->message, d->field, 0);
    if (size_bytes < expected)
        lint_add(l->found, LINT_FILE, place, NULL,
                 "%s expects %" PRIu64 " bytes, but the data provided from %s only has %" PRIu64
                 " bytes",
                 d->setting, expected, d->file, size_bytes);
    else if (size_bytes > expected)
        lint_add(l->found, LINT_DATA_SIZE, place, NULL,
                 "%s expects %" PRIu64 " bytes, but the data provided from %s has %" PRIu64
                 " bytes: the rest is not used",
                 d->setting, expected, d->file, size_bytes);
}

static void look_at_data(struct look *l, const struct data_file *d)
{
    struct file_info info = {.kind = FILE_MISSING};
    struct lint_place place = lint_at(l, d->message, d->field, 0);
    if (str_escapes_folder(d->file))
        return; /* a broken rule, which was told */
    char *path = mem_printf("%s/%s/%s", l->m->name, d->folder, d->file);
    struct status *st = storage_stat(l->m->storage, path, &info);
    if (st) {
        lint_add_status(l->found, LINT_LINK, l->m->storage, path, st);
    } else if (info.kind != FILE_REGULAR) {
        char *file = storage_path(l->m->storage, path);
        if (info.kind == FILE_MISSING)
            lint_add(l->found, LINT_FILE, place, NULL,
                     "failed to open text file for read %s: No such file or directory", file);
        else
            lint_add(l->found, LINT_FILE, place, NULL, "'%s' is not a regular file", file);
        mem_free(file);
    } else {
        look_at_file(l, path);
        look_at_size(l, d, path, info.size_bytes);
    }
    mem_free(path);
}

static void look_at_warmup(struct look *l, const Inference__ModelWarmup *sample)
{
    for (size_t i = 0; i < sample->n_inputs && sample->batch_size; i++) {
        const Inference__ModelWarmup__Input *input = sample->inputs[i]->value;
        if (input->input_data_type_case !=
            INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_INPUT_DATA_FILE)
            continue;
        struct data_file d = {.message = input,
                              .field = "input_data_file",
                              .folder = "warmup",
                              .file = input->input_data_file,
                              .type = input->data_type,
                              .n_dims = input->n_dims,
                              .dims = input->dims,
                              .setting = "warmup setting"};
        look_at_data(l, &d);
    }
}

static void look_at_state(struct look *l, const Inference__ModelSequenceBatching__State *state)
{
    for (size_t i = 0; i < state->n_initial_state; i++) {
        const Inference__ModelSequenceBatching__InitialState *initial = state->initial_state[i];
        if (initial->state_data_case !=
            INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE)
            continue;
        struct data_file d = {.message = initial,
                              .field = "data_file",
                              .folder = "initial_state",
                              .file = initial->data_file,
                              .type = initial->data_type,
                              .n_dims = initial->n_dims,
                              .dims = initial->dims,
                              .setting = "initial_state setting"};
        look_at_data(l, &d);
    }
}

void lint_look_at_files(struct look *l)
{
    const Inference__ModelConfig *pb = l->pb;
    for (size_t i = 0; i < l->sm.n_versions; i++)
        look_at_version(l, l->sm.versions[i]);
    look_at_backend(l);
    for (size_t i = 0; i < pb->n_output; i++) {
        if (*pb->output[i]->label_filename)
            look_at_labels(l, pb->output[i]);
    }
    for (size_t i = 0; i < pb->n_model_warmup; i++)
        look_at_warmup(l, pb->model_warmup[i]);
    if (pb->scheduling_choice_case != INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING)
        return;
    for (size_t i = 0; i < pb->sequence_batching->n_state; i++)
        look_at_state(l, pb->sequence_batching->state[i]);
}
