/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One model: its folder, its configuration, its versions.
 */
#include "lint/lint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cuda.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/agents/agent_chain.h"
#include "core/storage/storage.h"
#include "lint/backends.h"
#include "lint/model_check.h"

/* ---- findings -------------------------------------------------------------------------------- */

void lint_on_fault(void *arg, const struct config_fault *fault)
{
    static const enum lint_code codes[] = {
        [CONFIG_FAULT_TEXT] = LINT_SYNTAX,
        [CONFIG_FAULT_UNSUPPORTED] = LINT_UNSUPPORTED,
    };
    const struct lint_fault_sink *sink = arg;
    struct lint_position position = {
        .file = sink->file, .line = fault->line, .column = fault->column};
    enum lint_code code = fault->kind == CONFIG_FAULT_RULE ? sink->rule : codes[fault->kind];
    lint_add(sink->found, code, position, fault->advice, "%s", fault->text);
}

struct lint_position lint_at(const struct model_check *l, const void *message, const char *field,
                             size_t index)
{
    struct lint_position position = {.file = l->config_path};
    if (message && l->found->n < LINT_MAX_FINDINGS)
        model_config_where(l->config, message, field, index, &position.line, &position.column);
    return position;
}

void lint_add_status(struct lint_findings *f, enum lint_code code, const struct storage *s,
                     const char *path, struct status *st)
{
    char *file = storage_path(s, path);
    lint_add(f, code, (struct lint_position){.file = file}, NULL, "%s", status_message(st));
    status_free(st);
    mem_free(file);
}

bool lint_completes(const struct model_check *l)
{
    if (l->run->options->disable_auto_complete_config ||
        l->pb->scheduling_choice_case ==
            INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING)
        return false;
    if (!l->backend || l->backend->completes_more)
        return true; /* an unknown backend may do that */
    return l->backend->completes && (!l->pb->n_input || !l->pb->n_output);
}

int32_t lint_batch_size(const struct model_check *l)
{
    return l->pb->max_batch_size > 0 || !lint_completes(l) ? l->pb->max_batch_size : -1;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static int compare_version_numbers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void report_version_name(struct model_check *l, const char *name, enum scan_folder kind)
{
    char *path = mem_printf("%s/%s", l->m->name, name);
    char *file = storage_path(l->m->storage, path);
    struct lint_position position = {.file = file};
    if (kind == SCAN_LEADING_ZERO) {
        const char *number = name + strspn(name, "0");
        char *advice = mem_printf("rename it to %s", *number ? number : "0");
        lint_add(l->found, LINT_VERSION_NAME, position, advice,
                 "ignore version directory '%s' which contains leading zeros in its directory name",
                 name);
        mem_free(advice);
    } else {
        int digits = (int)strspn(name, "0123456789"); /* "2x", "1-old" */
        char *advice = digits ? mem_printf("rename it to %.*s", digits, name) : NULL;
        lint_add(l->found, LINT_VERSION_NAME, position, advice,
                 "ignore version directory '%s' which fails to convert to integral number", name);
        mem_free(advice);
    }
    mem_free(file);
    mem_free(path);
}

/* Reports a file that looks like the configuration. */
static void check_file_name(struct model_check *l, const char *name, bool has_config)
{
    static const char right[] = "config.pbtxt";
    size_t least = SIZE_MAX;
    bool json = strcmp(name, "config.json") == 0;
    bool other_case =
        strcmp(name, right) != 0 && str_equal_nocase_n(name, strlen(name), right, strlen(right));
    bool typo = !has_config && strcmp(name, right) != 0 && str_nearer(name, right, &least);
    if (!json && !other_case && !typo)
        return;
    char *path = mem_printf("%s/%s", l->m->name, name);
    char *file = storage_path(l->m->storage, path);
    lint_add(l->found, LINT_CONFIG_UNREAD, (struct lint_position){.file = file},
             json ? "a configuration in JSON comes with a load request only" : "rename it",
             "'%s' is not read: the configuration's name is config.pbtxt", name);
    mem_free(file);
    mem_free(path);
}

/* Reports an entry that cannot be read. A link that is no version is not followed: if it leads out
 * it is no fault, if it is broken it is a warning. */
static void add_closed(struct model_check *l, const char *name, bool is_unused, bool is_link,
                       enum file_kind kind, struct status *st)
{
    char *path = mem_printf("%s/%s", l->m->name, name);
    if (is_unused && kind != FILE_MISSING)
        status_free(st);
    else
        lint_add_status(l->found,
                        is_unused ? LINT_DANGLING_LINK
                        : is_link ? LINT_LINK
                                  : LINT_READ,
                        l->m->storage, path, st);
    mem_free(path);
}

/* Neither versions nor a configuration: is this folder a repository, and the folder above was
 * given? */
static void look_for_models(struct model_check *l, const struct file_list *list)
{
    bool found = false;
    for (size_t i = 0; i < list->count && !found; i++) {
        const char *name = list->entries[i].name;
        struct file_info info = {.kind = FILE_MISSING};
        if (list->entries[i].kind != FILE_FOLDER)
            continue;
        char *path = mem_printf("%s/%s/config.pbtxt", l->m->name, name);
        status_free(storage_stat(l->m->storage, path, &info));
        mem_free(path);
        found = info.kind == FILE_REGULAR;
        if (!found)
            continue;
        char *file = storage_path(l->m->storage, l->m->name);
        char *advice = mem_printf("name '%s' to have them checked", file);
        lint_add(l->found, LINT_NO_MODELS, (struct lint_position){.file = file}, advice,
                 "this is a folder of models, not a model: '%s' has a config.pbtxt", name);
        mem_free(advice);
        mem_free(file);
    }
}

/* Checks the versions, the files of the first one, and suspicious entries. */
static void check_model_folder(struct model_check *l, bool has_config)
{
    const struct storage *s = l->m->storage;
    struct file_list list;
    struct status *st = storage_list(s, l->m->name, &list);
    if (st) {
        lint_add_status(l->found, LINT_READ, l->m->storage, l->m->name, st);
        return;
    }
    const char *first = NULL;                     /* entries are sorted: "10" before "9" */
    status_free(scan_note_folder(&list, &l->sm)); /* without memory there is less advice */
    l->sm.versions = mem_zalloc((list.count + 1) * sizeof(*l->sm.versions));
    for (size_t i = 0; i < list.count; i++) {
        const char *name = list.entries[i].name;
        enum file_kind kind;
        int64_t version;
        enum scan_folder folder = scan_folder(name, &version);
        bool is_link = list.entries[i].kind == FILE_LINK;
        st = storage_kind(s, l->m->name, &list.entries[i], &kind);
        if (st) {
            add_closed(l, name, is_link && folder != SCAN_VERSION, is_link, kind, st);
        } else if (kind == FILE_REGULAR) {
            check_file_name(l, name, has_config);
        } else if (kind == FILE_FOLDER && folder == SCAN_VERSION) {
            l->sm.versions[l->sm.n_versions++] = version;
            first = first ? first : name;
        } else if (kind == FILE_FOLDER && folder != SCAN_RESERVED) {
            report_version_name(l, name, folder);
        }
    }
    if (l->sm.n_versions)
        qsort(l->sm.versions, l->sm.n_versions, sizeof(*l->sm.versions), compare_version_numbers);
    else if (!has_config)
        look_for_models(l, &list);
    if (first) {
        st = scan_list_files(s, l->m->name, first, &l->sm);
        if (st)
            status_free(st); /* files.c reports it again, version by version */
    }
    file_list_done(&list);
}

/* ---- the configuration ----------------------------------------------------------------------- */

/* Reads and parses the configuration. *ret_config is NULL after a fault. */
static struct status *read_config_file(const struct lint_model *m, struct lint_fault_sink *sink,
                                       struct config_listener *listener, const char *path,
                                       struct model_config **ret_config)
{
    AUTO(buf) text = BUF_INIT(CONFIG_MAX_BYTES);
    struct status *st = storage_read(m->storage, path, &text);
    if (st) /* in the server's words */
        return model_config_parse_file(st, &text, sink->file, ret_config);
    if (!listener)
        return model_config_parse_text(buf_text(&text), text.size, sink->file, ret_config);
    return model_config_parse_all(buf_text(&text), text.size, sink->file, listener, ret_config);
}

/* Returns the configuration, or NULL if it has a fault already. */
static struct model_config *open_config(struct model_check *l, struct lint_fault_sink *sink,
                                        struct config_listener *listener, bool *ret_exists)
{
    const struct conch_check_options *o = l->run->options;
    struct model_config *c = NULL;
    char *path = NULL;
    *ret_exists = false;
    struct status *st =
        scan_find_config(l->m->storage, l->m->name,
                         o->model_config_name ? o->model_config_name : "", ret_exists, &path);
    if (st) {
        bool is_link = status_code(st) == STATUS_INVALID_ARG || status_code(st) == STATUS_NOT_FOUND;
        lint_add_status(l->found, is_link ? LINT_LINK : LINT_READ, l->m->storage, l->m->name, st);
        *ret_exists = true;
        return NULL;
    }
    if (*ret_exists || o->disable_auto_complete_config) {
        mem_free(l->config_path);
        l->config_path = storage_path(l->m->storage, path);
        sink->file = l->config_path;
        st = read_config_file(l->m, sink, listener, path, &c);
        if (st)
            lint_add(l->found, LINT_READ, lint_at(l, NULL, NULL, 0), NULL, "%s",
                     status_message(st));
        status_free(st);
    } else {
        c = model_config_new();
        c->listener = listener;
    }
    mem_free(path);
    return c;
}

struct config_facts lint_facts(const struct model_check *l)
{
    return (struct config_facts){
        .model_name = l->m->name,
        .version_files = (const char *const *)l->sm.files,
        .n_version_files = l->sm.n_files,
        .folder_files = (const char *const *)l->sm.folder_files,
        .n_folder_files = l->sm.n_folder_files,
        .auto_complete = !l->run->options->disable_auto_complete_config,
        .count_gpus = cuda_count_devices,
    };
}

static void check_served_versions(struct model_check *l)
{
    const Inference__ModelVersionPolicy *policy = l->pb->version_policy;
    bool specific =
        policy->policy_choice_case == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC;
    scan_apply_version_policy(&l->sm);
    for (size_t i = 0; specific && i < policy->specific->n_versions; i++) {
        int64_t version = policy->specific->versions[i];
        bool found = false;
        for (size_t k = 0; k < l->sm.n_versions && !found; k++)
            found = l->sm.versions[k] == version;
        if (!found)
            lint_add(l->found, LINT_VERSION_MISSING, lint_at(l, policy->specific, "versions", i),
                     NULL,
                     "version %" PRId64 " is specified for model '%s', but the version directory "
                     "is not present",
                     version, l->m->name);
    }
    if (l->sm.n_versions)
        return;
    struct config_facts facts = lint_facts(l);
    char *advice = model_config_advise_files(&facts, false);
    lint_add(l->found, LINT_VERSION, lint_at(l, l->pb, "version_policy", 0), advice,
             "at least one version must be available under the version policy of model '%s'",
             l->m->name);
    mem_free(advice);
}

static void check_model_config(struct model_check *l, bool exists)
{
    struct config_facts facts = lint_facts(l);
    struct status *st = model_config_validate_all(l->sm.config, &facts);
    if (st) /* no memory */
        lint_add(l->found, LINT_READ, lint_at(l, NULL, NULL, 0), NULL, "%s", status_message(st));
    status_free(st);
    l->backend = backend_traits_of(l->pb->backend);
    if (!exists && *l->pb->backend && !lint_completes(l))
        lint_add(l->found, LINT_CONFIG, lint_at(l, NULL, NULL, 0), NULL,
                 "model configuration is not provided for model '%s'", l->m->name);
}

/* Keeps what later checks need: the versions, and of ensembles the configuration. */
static void keep_for_ensembles(struct model_check *l)
{
    struct lint_model *m = l->m;
    m->n_versions = l->sm.n_versions;
    m->versions = TAKE(l->sm.versions);
    for (size_t i = 0; i < m->found.n && !m->first_error; i++) {
        const struct lint_finding *item = &m->found.items[i];
        if (!lint_codes[item->code].is_warning && item->code != LINT_UNSUPPORTED &&
            !lint_codes[item->code].can_ignore)
            m->first_error = item->text;
    }
    if (!l->pb || l->pb->scheduling_choice_case !=
                      INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING)
        return;
    m->is_ensemble = true;
    m->is_complete = true;
    m->config = TAKE(l->sm.config);
    m->config->listener = NULL;
    m->config_path = TAKE(l->config_path);
}

/* Repository agents may bring other files than those that are there now. */
static void check_content(struct model_check *l)
{
    if (agent_chain_is_wanted(l->config)) {
        scan_apply_version_policy(&l->sm);
        return;
    }
    check_served_versions(l);
    lint_check_files(l);
    lint_check_onnx(l);
    lint_check_samples(l);
}

void lint_check_model(const struct lint_run *run, struct lint_model *m)
{
    struct model_check l = {.run = run, .m = m, .found = &m->found};
    l.config_path = storage_path(m->storage, m->name);
    struct lint_fault_sink sink = {.found = &m->found, .file = l.config_path, .rule = LINT_CONFIG};
    struct config_listener listener = {.on_fault = lint_on_fault, .arg = &sink};
    bool exists;

    l.sm.config = open_config(&l, &sink, &listener, &exists);
    check_model_folder(&l, exists);
    if (l.sm.config) {
        l.config = l.sm.config;
        l.pb = l.config->pb;
        check_model_config(&l, exists);
        check_content(&l);
        lint_check_batching(&l);
        lint_check_tensors(&l);
        lint_check_parameters(&l);
    }
    keep_for_ensembles(&l);
    scanned_model_done(&l.sm);
    mem_free(l.config_path);
}

void lint_read_again(const struct lint_run *run, struct lint_model *m)
{
    struct model_check l = {.run = run, .m = m, .found = &(struct lint_findings){0}};
    struct lint_fault_sink sink = {.found = l.found};
    bool exists;
    l.config_path = storage_path(m->storage, m->name);
    l.sm.config = open_config(&l, &sink, NULL, &exists);
    if (l.sm.config) {
        check_model_folder(&l, exists);
        struct config_facts facts = lint_facts(&l);
        status_free(model_config_validate_all(l.sm.config, &facts)); /* reported the first time */
        l.pb = l.sm.config->pb;
        l.backend = backend_traits_of(l.pb->backend);
        m->is_complete = !lint_completes(&l);
        m->config = TAKE(l.sm.config);
    }
    lint_findings_done(l.found);
    scanned_model_done(&l.sm);
    mem_free(l.config_path);
}
