/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/server_options.h"

/* Folders of a model that are no versions, and that nobody needs to be told about. */
static const char *const reserved[] = {"configs", "initial_state", "warmup"};

static bool is_reserved(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
        if (strcmp(name, reserved[i]) == 0)
            return true;
    }
    return false;
}

static bool is_folder(const char *directory, const char *name)
{
    struct file_info info = {.kind = FILE_MISSING};
    char *path = mem_printf("%s/%s", directory, name);
    log_status(LOG_WARN, "an entry is left out", file_stat(path, &info));
    mem_free(path);
    return info.kind == FILE_FOLDER;
}

static int compare_versions(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The version folders of a model, and the entries of the first one in string order. */
static struct status *find_versions(const char *directory, bool quiet, struct scanned_model *sm)
{
    struct file_names entries;
    struct status *st = file_list(directory, &entries);
    if (st)
        return st;

    const char *first = NULL; /* entries come sorted: "10" before "9" */
    sm->versions = mem_zalloc((entries.count + 1) * sizeof(*sm->versions));
    for (size_t i = 0; i < entries.count; i++) {
        const char *name = entries.names[i];
        if (is_reserved(name) || !is_folder(directory, name))
            continue;
        uint64_t version;
        if (name[0] == '0' && name[1]) {
            if (!quiet)
                log_warn(
                    "ignore version directory '%s' which contains leading zeros in its directory "
                    "name",
                    name);
        } else if (!str_to_uint64(name, strlen(name), &version) || version > INT64_MAX) {
            if (!quiet)
                log_warn("ignore version directory '%s' which fails to convert to integral number",
                         name);
        } else {
            sm->versions[sm->n_versions++] = (int64_t)version;
            if (!first)
                first = name;
        }
    }
    qsort(sm->versions, sm->n_versions, sizeof(*sm->versions), compare_versions);

    if (first) {
        char *path = mem_printf("%s/%s", directory, first);
        struct file_names files;
        st = file_list(path, &files);
        mem_free(path);
        if (!st) {
            sm->files = files.names; /* taken */
            sm->n_files = files.count;
        }
    }
    file_names_done(&entries);
    return st;
}

/* The configuration's path: a custom one where it is wanted and there is one. */
static struct status *config_path(const char *directory, const struct server_options *options,
                                  bool *ret_exists, char **ret_path)
{
    struct file_info info;
    if (options->model_config_name[0]) {
        char *path = mem_printf("%s/configs/%s.pbtxt", directory, options->model_config_name);
        struct status *st = file_stat(path, &info);
        if (st || info.kind != FILE_MISSING) {
            *ret_exists = true;
            *ret_path = path;
            return st;
        }
        mem_free(path);
    }
    *ret_path = mem_printf("%s/config.pbtxt", directory);
    struct status *st = file_stat(*ret_path, &info);
    *ret_exists = !st && info.kind != FILE_MISSING;
    return st;
}

static struct status *read_config(const char *directory, const struct server_options *options,
                                  struct model_config **ret_config)
{
    bool exists = false;
    char *path = NULL;
    struct status *st = config_path(directory, options, &exists, &path);
    if (!st && !exists && !options->strict_model_config)
        *ret_config = model_config_new();
    else if (!st)
        st = model_config_read_file(path, ret_config);
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
        .auto_complete = !options->strict_model_config,
    };
}

static bool is_listed(const Inference__ModelVersionPolicy__Specific *specific, int64_t version)
{
    for (size_t i = 0; i < specific->n_versions; i++) {
        if (specific->versions[i] == version)
            return true;
    }
    return false;
}

/* Leaves of the versions that are there those that the policy serves. */
static void apply_version_policy(struct scanned_model *sm)
{
    const Inference__ModelVersionPolicy *policy = sm->config->pb->version_policy;
    size_t kept = 0;

    switch (policy->policy_choice_case) {
    case INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_ALL:
        return;
    case INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC:
        for (size_t i = 0; i < sm->n_versions; i++) {
            if (is_listed(policy->specific, sm->versions[i]))
                sm->versions[kept++] = sm->versions[i];
        }
        break;
    default: /* the highest ones */
        kept = MIN(sm->n_versions, (size_t)policy->latest->num_versions);
        memmove(sm->versions, sm->versions + sm->n_versions - kept, kept * sizeof(*sm->versions));
    }
    sm->n_versions = kept;
}

/* What is asked for and is not there is worth a line; the others serve. */
static void warn_of_missing(const char *name, const struct scanned_model *sm)
{
    const Inference__ModelVersionPolicy *policy = sm->config->pb->version_policy;
    if (policy->policy_choice_case != INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC)
        return;
    for (size_t i = 0; i < policy->specific->n_versions; i++) {
        bool found = false;
        for (size_t j = 0; j < sm->n_versions; j++)
            found |= sm->versions[j] == policy->specific->versions[i];
        if (!found)
            log_error("version %lld is specified for model '%s', but the version directory is not "
                      "present",
                      (long long)policy->specific->versions[i], name);
    }
}

struct status *scan_model(const char *name, const char *directory,
                          const struct server_options *options, bool quiet,
                          struct scanned_model *ret_scanned)
{
    struct scanned_model sm = {0};
    struct status *st = read_config(directory, options, &sm.config);
    if (!st)
        st = find_versions(directory, quiet, &sm);
    if (!st) {
        struct config_facts facts = scan_facts(name, &sm, options);
        st = model_config_prepare(sm.config, &facts);
    }
    if (st) {
        scanned_model_done(&sm);
        return st;
    }
    apply_version_policy(&sm);
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
    *scanned = (struct scanned_model){0};
}
