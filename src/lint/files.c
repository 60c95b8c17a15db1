/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a model: the contents of its version folders, and the files that its configuration
 * names.
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
#include "core/model/labels.h"
#include "core/model/tensor.h"
#include "core/sched/batch_strategy.h"
#include "core/storage/storage.h"
#include "lint/backends.h"
#include "lint/model_check.h"

enum { MAX_POINTER_BYTES = 1024 };

static bool is_ensemble(const struct model_check *l)
{
    return l->pb->scheduling_choice_case ==
           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
}

static void add_at_path(struct model_check *l, enum lint_code code, const char *path,
                        const char *advice, const char *text)
{
    char *file = storage_path(l->m->storage, path);
    lint_add(l->found, code, (struct lint_position){.file = file}, advice, "%s", text);
    mem_free(file);
}

/* ---- files in general ------------------------------------------------------------------------ */

/* Reads small files completely; others are only opened. */
void lint_check_file(struct model_check *l, const char *path)
{
    static const char mark[] = "version https://git-lfs";
    AUTO(buf) text = BUF_INIT(MAX_POINTER_BYTES);
    struct status *st = storage_read(l->m->storage, path, &text);
    if (!st && text.size >= strlen(mark) && memcmp(text.data, mark, strlen(mark)) == 0)
        add_at_path(l, LINT_LFS_POINTER, path, "get the content: git lfs pull",
                    "this is a pointer of git-lfs, not the file that it stands for");
    if (st && status_code(st) != STATUS_INVALID_ARG) { /* it only says that the file is larger */
        lint_add_status(l->found, LINT_READ, l->m->storage, path, st);
        return;
    }
    status_free(st);
}

/* ---- version folders ------------------------------------------------------------------------- */

/* Checks every entry; true if there is one. */
static bool check_version_entries(struct model_check *l, const char *folder)
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
            lint_check_file(l, path);
        mem_free(path);
    }
    file_list_done(&list);
    return any;
}

void lint_add_missing_file(struct model_check *l, const char *path)
{
    bool needed = l->backend && l->backend->needs_file;
    char *file = storage_path(l->m->storage, path);
    struct config_facts facts = lint_facts(l);
    char *advice = model_config_advise_files(&facts, true);
    lint_add(l->found, needed ? LINT_FILE : LINT_MODEL_FILE,
             lint_at(l, l->pb, "default_model_filename", 0), advice,
             "the model file '%s' of backend '%s' is missing", file, l->pb->backend);
    mem_free(advice);
    mem_free(file);
}

/* Returns the name under which the backend looks for its file; "": the check does not know it. */
static const char *expected_file(const struct model_check *l)
{
    const Inference__ModelConfig *pb = l->pb;
    return *pb->default_model_filename || strcmp(pb->backend, "fil") != 0
               ? pb->default_model_filename
               : backend_forest_file(pb);
}

static void check_model_file(struct model_check *l, const char *folder)
{
    const char *name = expected_file(l);
    struct file_info info = {.kind = FILE_MISSING};
    if (!*name)
        return;
    if (str_escapes_folder(name))
        return; /* a broken rule, reported already */
    char *path = mem_printf("%s/%s", folder, name);
    struct status *st = storage_stat_named(l->m->storage, folder, name, &info);
    if (st && !strchr(name, '/')) { /* reported with the folder's other entries */
        status_free(st);
        mem_free(path);
        return;
    }
    if (!st && info.kind == FILE_FOLDER)
        st = storage_check_named(l->m->storage, folder, name);
    if (st)
        lint_add_status(l->found, LINT_LINK, l->m->storage, path, st);
    else if (info.kind == FILE_MISSING)
        lint_add_missing_file(l, path);
    mem_free(path);
}

static void check_version_folder(struct model_check *l, int64_t version)
{
    char *folder = mem_printf("%s/%" PRId64, l->m->name, version);
    bool any = check_version_entries(l, folder);
    if (is_ensemble(l))
        ; /* no file is needed */
    else if (any || (l->backend && l->backend->needs_file))
        check_model_file(l, folder);
    else if (!l->backend && *l->pb->backend) /* the known ones need no file */
        add_at_path(l, LINT_EMPTY_VERSION, folder, NULL, "the version folder is empty");
    mem_free(folder);
}

/* ---- the backend ----------------------------------------------------------------------------- */

static void check_backend_library(struct model_check *l)
{
    const Inference__ModelConfig *pb = l->pb;
    const struct backend_registry registry = {.directory = l->run->options->backend_directory};
    if (!*pb->backend || is_ensemble(l) || !l->sm.n_versions)
        return;
    if (str_escapes_folder(pb->backend) || strchr(pb->backend, '/') ||
        (*pb->runtime && str_escapes_folder(pb->runtime))) {
        char *own = registry.directory ? mem_printf(" '%s/%s'", registry.directory, pb->backend)
                                       : mem_strdup("");
        lint_add(l->found, LINT_CONFIG, lint_at(l, pb, *pb->runtime ? "runtime" : "backend", 0),
                 NULL,
                 "backend library name '%s' escapes backend directory%s, for model '%s', check "
                 "model config runtime field",
                 *pb->runtime ? pb->runtime : pb->backend, own, pb->name);
        mem_free(own);
        return;
    }
    if (!l->run->has_backends || !lint_wants(l->found, LINT_BACKEND))
        return;
    char *directory = storage_path(l->m->storage, l->m->name);
    char *version = mem_printf("%s/%" PRId64, directory, l->sm.versions[0]);
    struct backend_files files = {0};
    struct status *st = backend_find(&registry, l->config, directory, version, &files);
    if (st) {
        const char *meant = l->backend ? NULL : backend_nearest(pb->backend);
        char *advice = meant ? mem_printf("did you mean \"%s\"?", meant) : NULL;
        lint_add(l->found, LINT_BACKEND, lint_at(l, pb, "backend", 0), advice, "%s",
                 status_message(st));
        mem_free(advice);
    }
    status_free(st);
    backend_files_done(&files);
    mem_free(version);
    mem_free(directory);
}

/* ---- the batching library -------------------------------------------------------------------- */

/* The position of the library's name in the configuration, or its folder. */
static struct lint_position strategy_position(const struct model_check *l)
{
    for (size_t i = 0; i < l->pb->n_parameters; i++) {
        if (strcmp(l->pb->parameters[i]->key, BATCH_STRATEGY_PARAMETER) == 0)
            return lint_at(l, l->pb->parameters[i], "value", 0);
    }
    return (struct lint_position){.file = l->config_path};
}

static void check_one_strategy(struct model_check *l, const struct batch_strategy_search *search)
{
    bool named = model_config_parameter(l->config, BATCH_STRATEGY_PARAMETER) != NULL;
    char *path = NULL;
    struct status *st = batch_strategy_find(search, &path);
    if (st)
        lint_add(l->found, status_code(st) == STATUS_NOT_FOUND ? LINT_BATCH_LIBRARY : LINT_FILE,
                 strategy_position(l), NULL, "%s", status_message(st));
    if (!path) {
        status_free(st);
        return;
    }
    st = batch_strategy_check(search, path);
    size_t n = strlen(search->version_directory);
    bool reported =
        strncmp(path, search->version_directory, n) == 0; /* with that folder's entries */
    if (st && named)
        lint_add(l->found, LINT_FILE, strategy_position(l), NULL, "%s", status_message(st));
    else if (st && !reported)
        lint_add(l->found, LINT_LINK, (struct lint_position){.file = path}, NULL, "%s",
                 status_message(st));
    status_free(st);
    mem_free(path);
}

/* Checks the library of the first served version; other versions find the same one, or one in
 * their own folders. */
static void check_batch_strategy(struct model_check *l)
{
    const char *backends = l->run->options->backend_directory;
    const struct backend_registry registry = {.directory = backends ? backends : ""};
    if (is_ensemble(l) || !l->sm.n_versions)
        return;
    if (model_config_sequences(l->config) &&
        model_config_parameter(l->config, BATCH_STRATEGY_PARAMETER)) {
        lint_add(l->found, LINT_PARAMETER, strategy_position(l), NULL,
                 "parameter '" BATCH_STRATEGY_PARAMETER "' has no effect: a sequence batcher makes "
                 "its batches without a library");
        return;
    }
    char *directory = storage_path(l->m->storage, l->m->name);
    char *version_directory = mem_printf("%s/%" PRId64, directory, l->sm.versions[0]);
    const struct batch_strategy_search search = {
        .backends = &registry,
        .config = l->config,
        .storage = l->m->storage,
        .folder = l->m->name,
        .directory = directory,
        .version_directory = version_directory,
    };
    check_one_strategy(l, &search);
    mem_free(version_directory);
    mem_free(directory);
}

/* ---- labels ---------------------------------------------------------------------------------- */

static void check_label_file(struct model_check *l, const Inference__ModelOutput *output)
{
    struct lint_position position = lint_at(l, output, "label_filename", 0);
    struct labels *labels = NULL;
    int64_t classes = 0;
    if (str_escapes_folder(output->label_filename))
        return; /* a broken rule, reported already */
    struct status *st = labels_read(l->m->name, output->name, l->m->storage, l->m->name,
                                    output->label_filename, &labels);
    if (st) {
        lint_add(l->found, LINT_FILE, position, NULL, "%s", status_message(st));
        status_free(st);
        return;
    }
    bool sized = shape_elements(output->dims, output->n_dims, &classes) == SHAPE_FINE;
    if (labels->count == 0)
        lint_add(l->found, LINT_LABELS, position, NULL, "label file '%s' of output '%s' is empty",
                 output->label_filename, output->name);
    else if (sized && (uint64_t)classes > labels->count)
        lint_add(l->found, LINT_LABELS, position, NULL,
                 "label file '%s' has labels for %zu of the %" PRId64 " classes of output '%s'",
                 output->label_filename, labels->count, classes, output->name);
    labels_free(labels);

    char *path = mem_printf("%s/%s", l->m->name, output->label_filename);
    lint_check_file(l, path);
    mem_free(path);
}

void lint_check_files(struct model_check *l)
{
    const Inference__ModelConfig *pb = l->pb;
    for (size_t i = 0; i < l->sm.n_versions; i++)
        check_version_folder(l, l->sm.versions[i]);
    check_backend_library(l);
    check_batch_strategy(l);
    for (size_t i = 0; i < pb->n_output; i++) {
        if (*pb->output[i]->label_filename)
            check_label_file(l, pb->output[i]);
    }
}
