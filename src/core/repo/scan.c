/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a scan, in order: find and read the configuration, find the versions, complete
 * and validate the configuration, apply the version policy, check the files that a backend will
 * open by itself. Everything is read through the storage, which ensures that no link leads out of
 * the repository.
 *
 * Nothing is kept between two scans.
 */
#include "core/repo/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/options/server_options.h"
#include "core/storage/storage.h"

/* Folders of a model that are no versions, and about which no line is logged. */
static const char *const reserved[] = {"configs", "initial_state", "warmup"};

static bool is_reserved(const char *name)
{
    if (name[0] == '.' && name[1] == '.') /* Kubernetes' names for the parts of a mounted volume */
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
        if (strcmp(name, reserved[i]) == 0)
            return true;
    }
    return false;
}

static int compare_scanned_versions(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Examines links, too: a backend opens these files by itself, without the storage. */
static struct status *note_files(const struct storage *s, const char *path,
                                 const struct file_list *list, struct scanned_model *sm)
{
    sm->files = mem_try_zalloc(list->count + 1, sizeof(*sm->files));
    if (!sm->files)
        return status_no_memory();
    for (size_t i = 0; i < list->count; i++) {
        enum file_kind kind;
        struct status *st = storage_kind(s, path, &list->entries[i], &kind);
        if (st)
            return st;
        sm->files[sm->n_files++] =
            mem_printf("%s%s", list->entries[i].name, kind == FILE_FOLDER ? "/" : "");
    }
    return NULL;
}

struct status *scan_note_folder(const struct file_list *list, struct scanned_model *sm)
{
    sm->folder_files = mem_try_zalloc(list->count + 1, sizeof(*sm->folder_files));
    if (!sm->folder_files)
        return status_no_memory();
    for (size_t i = 0; i < list->count; i++)
        sm->folder_files[sm->n_folder_files++] = mem_printf(
            "%s%s", list->entries[i].name, list->entries[i].kind == FILE_FOLDER ? "/" : "");
    return NULL;
}

struct status *scan_list_files(const struct storage *s, const char *folder, const char *version,
                               struct scanned_model *sm)
{
    struct file_list list;
    char *path = mem_printf("%s/%s", folder, version);
    struct status *st = storage_list(s, path, &list);
    if (!st) {
        st = note_files(s, path, &list, sm);
        file_list_done(&list);
    }
    mem_free(path);
    return st;
}

enum scan_folder scan_folder(const char *name, int64_t *ret_version)
{
    uint64_t version;
    if (is_reserved(name))
        return SCAN_RESERVED;
    if (name[0] == '0' && name[1] && strspn(name, "0123456789") == strlen(name))
        return SCAN_LEADING_ZERO;
    if (!str_to_uint64(name, strlen(name), &version) || version > INT64_MAX)
        return SCAN_NO_NUMBER;
    *ret_version = (int64_t)version;
    return SCAN_VERSION;
}

static bool is_version(const char *name, bool quiet, int64_t *ret_version)
{
    enum scan_folder folder = scan_folder(name, ret_version);
    if (folder == SCAN_LEADING_ZERO && !quiet)
        log_warn("ignore version directory '%s' which contains leading zeros in its directory name",
                 name);
    else if (folder == SCAN_NO_NUMBER && !quiet)
        log_warn("ignore version directory '%s' which fails to convert to integral number", name);
    return folder == SCAN_VERSION;
}

/* Notes the versions among the entries of a model's folder; returns the name of the first one,
 * if there is one. */
static struct status *note_versions(const struct storage *s, const char *folder,
                                    const struct file_list *list, bool quiet,
                                    struct scanned_model *sm, const char **ret_first)
{
    sm->versions = mem_try_zalloc(list->count + 1, sizeof(*sm->versions));
    if (!sm->versions)
        return status_no_memory();
    for (size_t i = 0; i < list->count; i++) {
        const struct file_entry *entry = &list->entries[i];
        enum file_kind kind;
        int64_t version;
        if (entry->kind == FILE_LINK && scan_folder(entry->name, &version) != SCAN_VERSION)
            continue; /* wherever it leads, it is not followed */
        struct status *st = storage_kind(s, folder, entry, &kind);
        if (st)
            return st;
        if (kind != FILE_FOLDER || !is_version(entry->name, quiet, &version))
            continue;
        sm->versions[sm->n_versions++] = version;
        if (!*ret_first) { /* entries are sorted: "10" before "9" */
            *ret_first = entry->name;
            sm->first_version = version;
        }
    }
    if (sm->n_versions)
        qsort(sm->versions, sm->n_versions, sizeof(*sm->versions), compare_scanned_versions);
    return NULL;
}

/* Finds the version folders of a model, and the entries of the first one in string order. */
static struct status *find_versions(const struct storage *s, const char *folder, bool quiet,
                                    struct scanned_model *sm)
{
    struct file_list list;
    const char *first = NULL;
    struct status *st = storage_list(s, folder, &list);
    if (st)
        return st;
    st = scan_note_folder(&list, sm);
    if (!st)
        st = note_versions(s, folder, &list, quiet, sm, &first);
    if (!st && first)
        st = scan_list_files(s, folder, first, sm);
    file_list_done(&list);
    return st;
}

struct status *scan_find_config(const struct storage *s, const char *folder,
                                const char *config_name, bool *ret_exists, char **ret_path)
{
    struct file_info info = {.kind = FILE_MISSING};
    struct status *st = NULL;
    char *path = NULL;
    if (config_name[0]) {
        path = mem_printf("%s/configs/%s.pbtxt", folder, config_name);
        st = storage_stat(s, path, &info);
    }
    if (!st && info.kind == FILE_MISSING) {
        mem_free(path);
        path = mem_printf("%s/config.pbtxt", folder);
        st = storage_stat(s, path, &info);
    }
    if (st) {
        mem_free(path);
        return st;
    }
    *ret_exists = info.kind != FILE_MISSING;
    *ret_path = path;
    return NULL;
}

static struct status *read_model_config(const struct storage *s, const char *folder,
                                        const struct server_options *options,
                                        struct model_config **ret_config)
{
    bool exists = false;
    char *path = NULL;
    struct status *st = scan_find_config(s, folder, options->model_config_name, &exists, &path);
    if (st)
        return st;
    if (!exists && !options->strict_model_config) {
        *ret_config = model_config_new();
    } else {
        char *name = storage_path(s, path);
        AUTO(buf) text = BUF_INIT(CONFIG_MAX_BYTES);
        st = model_config_parse_file(storage_read(s, path, &text), &text, name, ret_config);
        mem_free(name);
    }
    mem_free(path);
    return st;
}

struct config_facts scan_facts(const char *name, const struct scanned_model *scanned,
                               const struct server_options *options)
{
    return (struct config_facts){
        .model_name = name,
        .version_files = (const char *const *)scanned->files,
        .n_version_files = scanned->n_files,
        .folder_files = (const char *const *)scanned->folder_files,
        .n_folder_files = scanned->n_folder_files,
        .auto_complete = !options->strict_model_config,
    };
}

static bool is_specific_version(const Inference__ModelVersionPolicy__Specific *specific,
                                int64_t version)
{
    for (size_t i = 0; i < specific->n_versions; i++) {
        if (specific->versions[i] == version)
            return true;
    }
    return false;
}

void scan_apply_version_policy(struct scanned_model *sm)
{
    const Inference__ModelVersionPolicy *policy = sm->config->pb->version_policy;
    size_t kept = 0;

    switch (policy->policy_choice_case) {
    case INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC:
        for (size_t i = 0; i < sm->n_versions; i++) {
            if (is_specific_version(policy->specific, sm->versions[i]))
                sm->versions[kept++] = sm->versions[i];
        }
        break;
    case INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST: /* the highest ones */
        kept = MIN(sm->n_versions, (size_t)policy->latest->num_versions);
        memmove(sm->versions, sm->versions + sm->n_versions - kept, kept * sizeof(*sm->versions));
        break;
    default: /* `all`, and a policy without a choice */
        return;
    }
    sm->n_versions = kept;
}

/* Logs wanted versions that are missing; the others serve. */
static void warn_of_missing(const char *name, const struct scanned_model *sm)
{
    enum { MAX_LOGGED = 10 }; /* a configuration may list millions */
    const Inference__ModelVersionPolicy *policy = sm->config->pb->version_policy;
    if (policy->policy_choice_case != INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC)
        return;
    size_t n_missing = 0;
    for (size_t i = 0; i < policy->specific->n_versions; i++) {
        bool found = false;
        for (size_t j = 0; j < sm->n_versions; j++)
            found |= sm->versions[j] == policy->specific->versions[i];
        if (!found && n_missing++ < MAX_LOGGED)
            log_error("version %lld is specified for model '%s', but the version directory is not "
                      "present",
                      (long long)policy->specific->versions[i], name);
    }
    if (n_missing > MAX_LOGGED)
        log_error("so it is with %zu more versions of model '%s'", n_missing - MAX_LOGGED, name);
}

/* A file that the configuration names may lie deeper than the entries of the version's folder. */
static struct status *check_named(const struct storage *s, const char *folder, const char *version,
                                  const Inference__ModelConfig *pb)
{
    char *path = mem_printf("%s/%s", folder, version);
    struct status *st = NULL;
    if (*pb->default_model_filename)
        st = storage_check_named(s, path, pb->default_model_filename);
    for (size_t i = 0; i < pb->n_cc_model_filenames && !st; i++)
        st = storage_check_named(s, path, pb->cc_model_filenames[i]->value);
    mem_free(path);
    return st;
}

/* Checks the files of the versions that will be loaded; the first one's entries are given. */
static struct status *check_files(const struct storage *s, const char *folder,
                                  const struct scanned_model *sm)
{
    struct status *st = NULL;
    for (size_t i = 0; !st && i < sm->n_versions; i++) {
        struct scanned_model files = {0};
        char *version = mem_printf("%lld", (long long)sm->versions[i]);
        if (sm->versions[i] != sm->first_version)
            st = scan_list_files(s, folder, version, &files);
        scanned_model_done(&files);
        if (!st)
            st = check_named(s, folder, version, sm->config->pb);
        mem_free(version);
    }
    return st;
}

struct status *scan_config(const struct storage *storage, const char *folder, const char *config,
                           const struct server_options *options, struct model_config **ret_config)
{
    if (config)
        return status_prefix(model_config_parse_json(config, strlen(config), ret_config),
                             "Invalid config override: ");
    return read_model_config(storage, folder, options, ret_config);
}

struct status *scan_model(const char *name, const struct scan_place *place,
                          struct model_config *config, const struct server_options *options,
                          bool quiet, struct scanned_model *ret_scanned)
{
    struct scanned_model sm = {.config = config};
    struct status *st = find_versions(place->storage, place->folder, quiet, &sm);
    if (!st) {
        struct config_facts facts = scan_facts(name, &sm, options);
        facts.is_renamed = place->is_renamed;
        st = model_config_prepare(sm.config, &facts);
    }
    if (!st) {
        scan_apply_version_policy(&sm);
        if (!quiet)
            st = check_files(place->storage, place->folder, &sm);
    }
    if (st) {
        scanned_model_done(&sm);
        return st;
    }
    if (!quiet)
        warn_of_missing(name, &sm);
    *ret_scanned = sm;
    return NULL;
}

void scanned_model_done(struct scanned_model *scanned)
{
    model_config_free(scanned->config);
    mem_free(scanned->versions);
    for (size_t i = 0; i < scanned->n_files; i++)
        mem_free(scanned->files[i]);
    mem_free(scanned->files);
    for (size_t i = 0; i < scanned->n_folder_files; i++)
        mem_free(scanned->folder_files[i]);
    mem_free(scanned->folder_files);
    *scanned = (struct scanned_model){0};
}
