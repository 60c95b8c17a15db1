/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that the server makes itself: warm-up samples and initial states of sequences. Checks
 * whether they fit the model, and whether their data exists.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/model/tensor.h"
#include "core/storage/storage.h"
#include "lint/model_check.h"

enum { MAX_STRINGS_BYTES = 64 << 20, STRING_LENGTH_BYTES = 4, MAX_SHAPE_TEXT = 512 };

/* ---- a tensor's bytes in a file -------------------------------------------------------------- */

/* A tensor whose bytes are in a file. */
struct data_file {
    const void *message; /* of the configuration; its `field` names the file */
    const char *field;
    const char *folder; /* of the model: "warmup" */
    const char *file;
    Inference__DataType type;
    size_t n_dims;
    const int64_t *dims;
    const char *setting; /* the beginning of errors: "warmup setting" */
};

/* Counts the strings, each after its length; false: the last one is not whole. */
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

static void check_string_count(struct model_check *l, const struct data_file *d, const char *folder,
                               int64_t elements)
{
    AUTO(buf) text = BUF_INIT(MAX_STRINGS_BYTES);
    uint64_t n;
    struct status *st = storage_read_named(l->m->storage, folder, d->file, &text);
    if (st) {
        status_free(st); /* too large to count, or reported by lint_check_file() */
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

static void check_data_size(struct model_check *l, const struct data_file *d, const char *folder,
                            uint64_t size_bytes)
{
    int64_t elements = 0;
    uint64_t expected;
    if (shape_elements(d->dims, d->n_dims, &elements) != SHAPE_FINE)
        return; /* a broken rule reports it */
    if (d->type == INFERENCE__DATA_TYPE__TYPE_STRING) {
        check_string_count(l, d, folder, elements);
        return;
    }
    size_t element_bytes = dtype_size((enum dtype)d->type); /* the same numbers */
    if (!element_bytes || __builtin_mul_overflow((uint64_t)elements, element_bytes, &expected))
        return;
    struct lint_position position = lint_at(l, d->message, d->field, 0);
    if (size_bytes < expected)
        lint_add(l->found, LINT_FILE, position, NULL,
                 "%s expects %" PRIu64 " bytes, but the data provided from %s only has %" PRIu64
                 " bytes",
                 d->setting, expected, d->file, size_bytes);
    else if (size_bytes > expected)
        lint_add(l->found, LINT_DATA_SIZE, position, NULL,
                 "%s expects %" PRIu64 " bytes, but the data provided from %s has %" PRIu64
                 " bytes: the rest is not used",
                 d->setting, expected, d->file, size_bytes);
}

static void check_data_file(struct model_check *l, const struct data_file *d)
{
    struct file_info info = {.kind = FILE_MISSING};
    struct lint_position position = lint_at(l, d->message, d->field, 0);
    if (str_escapes_folder(d->file))
        return; /* a broken rule, reported already */
    char *folder = mem_printf("%s/%s", l->m->name, d->folder);
    char *path = mem_printf("%s/%s", folder, d->file);
    struct status *st = storage_stat_named(l->m->storage, folder, d->file, &info);
    if (st) {
        lint_add_status(l->found, LINT_LINK, l->m->storage, path, st);
    } else if (info.kind != FILE_REGULAR) {
        char *file = storage_path(l->m->storage, path);
        if (info.kind == FILE_MISSING)
            lint_add(l->found, LINT_FILE, position, NULL,
                     "failed to open text file for read %s: No such file or directory", file);
        else
            lint_add(l->found, LINT_FILE, position, NULL, "'%s' is not a regular file", file);
        mem_free(file);
    } else {
        lint_check_file(l, path);
        check_data_size(l, d, folder, info.size_bytes);
    }
    mem_free(path);
    mem_free(folder);
}

/* ---- the data of warm-up samples ------------------------------------------------------------- */

typedef Inference__ModelWarmup__InputsEntry sample_input;

static bool same_dims(const Inference__ModelInput *input, const Inference__ModelWarmup__Input *from)
{
    bool same = input->n_dims == from->n_dims;
    for (size_t i = 0; same && i < input->n_dims; i++)
        same = input->dims[i] == -1 || from->dims[i] == -1 || input->dims[i] == from->dims[i];
    return same; /* a wildcard in a sample is a broken rule, reported already */
}

static void check_sample_fits_input(struct model_check *l, const Inference__ModelWarmup *sample,
                                    const sample_input *entry, const Inference__ModelInput *input)
{
    const Inference__ModelWarmup__Input *from = entry->value;
    if (from->data_type != input->data_type)
        lint_add(l->found, LINT_BAD_SAMPLE, lint_at(l, from, "data_type", 0), NULL,
                 "warmup sample '%s': the data type of input '%s' is %s, but the model expects %s",
                 sample->name, input->name, lint_type_name(from->data_type),
                 lint_type_name(input->data_type));
    if (same_dims(input, from))
        return;
    AUTO(buf) dims = BUF_INIT(MAX_SHAPE_TEXT);
    AUTO(buf) expected = BUF_INIT(MAX_SHAPE_TEXT);
    shape_print(&dims, from->dims, from->n_dims);
    shape_print(&expected, input->dims, input->n_dims);
    lint_add(l->found, LINT_BAD_SAMPLE, lint_at(l, from, "dims", 0), NULL,
             "warmup sample '%s': the dims of input '%s' are %s, but the model expects %s",
             sample->name, input->name, buf_text(&dims), buf_text(&expected));
}

/* Are these the model's inputs? */
static void check_sample_inputs(struct model_check *l, const Inference__ModelWarmup *sample)
{
    struct map given = MAP_INIT;
    for (size_t i = 0; i < sample->n_inputs; i++)
        map_puts(&given, sample->inputs[i]->key, sample->inputs[i]);
    for (size_t i = 0; i < l->pb->n_input; i++) {
        const Inference__ModelInput *input = l->pb->input[i];
        const sample_input *entry = map_remove(&given, input->name, strlen(input->name));
        if (entry)
            check_sample_fits_input(l, sample, entry, input);
        else if (!input->optional)
            lint_add(l->found, LINT_BAD_SAMPLE, lint_at(l, sample, NULL, 0), NULL,
                     "warmup sample '%s' lacks the required input '%s'", sample->name, input->name);
    }
    for (size_t i = 0; i < sample->n_inputs && given.count; i++) {
        const sample_input *entry = sample->inputs[i];
        if (map_gets(&given, entry->key) && !lint_completes(l))
            lint_add(l->found, LINT_SAMPLE, lint_at(l, entry, "key", 0), NULL,
                     "warmup sample '%s' has an input '%s' that the model does not declare",
                     sample->name, entry->key);
    }
    map_done(&given);
}

static void check_warmup_sample(struct model_check *l, const Inference__ModelWarmup *sample)
{
    int32_t most = MAX(lint_batch_size(l), 1);
    if (sample->batch_size == 0) {
        lint_add(l->found, LINT_SAMPLE, lint_at(l, sample, "batch_size", 0), "set batch_size: 1",
                 "warmup sample '%s' is passed over: its batch_size is 0", sample->name);
        return;
    }
    if (sample->batch_size > (uint32_t)most && lint_batch_size(l) >= 0)
        lint_add(l->found, LINT_SAMPLE, lint_at(l, sample, "batch_size", 0), NULL,
                 "warmup sample '%s' runs a batch of %u, more than a client can bring about (%d)",
                 sample->name, sample->batch_size, most);
    if (l->pb->n_input || !lint_completes(l))
        check_sample_inputs(l, sample);
    for (size_t i = 0; i < sample->n_inputs; i++) {
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
        check_data_file(l, &d);
    }
}

/* ---- initial states -------------------------------------------------------------------------- */

static void check_state_data(struct model_check *l,
                             const Inference__ModelSequenceBatching__State *state)
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
        check_data_file(l, &d);
    }
}

void lint_check_samples(struct model_check *l)
{
    const Inference__ModelConfig *pb = l->pb;
    for (size_t i = 0; i < pb->n_model_warmup; i++)
        check_warmup_sample(l, pb->model_warmup[i]);
    if (pb->scheduling_choice_case != INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING)
        return;
    for (size_t i = 0; i < pb->sequence_batching->n_state; i++)
        check_state_data(l, pb->sequence_batching->state[i]);
}
