/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a model's folder: its configuration and its versions (reference/features §8.1).
 */
#ifndef CONCH_CORE_REPO_SCAN_H
#define CONCH_CORE_REPO_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config/config.h"

struct file_list;
struct model_config;
struct server_options;
struct storage;

struct scanned_model {
    struct model_config *config; /* prepared */
    size_t n_versions;           /* those that the version policy serves, ascending */
    int64_t *versions;
    int64_t first_version; /* of all in the folder, the first one in string order */
    size_t n_files;        /* entries of that version's folder; the name of a folder ends in '/' */
    char **files;
    size_t n_folder_files; /* entries of the model's folder, in the same form */
    char **folder_files;
};

/*
 * scan_config - reads a model's configuration, which is neither completed nor checked.
 *
 * Thread: control.
 * @folder      of the model, in the storage
 * @config      the configuration as JSON (a load request's override); NULL: the one in the folder
 * @ret_config  the caller ends it with model_config_free(), or scan_model() takes it
 * Errors: those of model_config_parse_json() and model_config_parse_file()
 */
NODISCARD struct status *scan_config(const struct storage *storage, const char *folder,
                                     const char *config, const struct server_options *options,
                                     struct model_config **ret_config);

/* Where the versions of a model are. Borrowed. */
struct scan_place {
    const struct storage *storage;
    const char *folder; /* of the model, in the storage */
    bool is_renamed;    /* the model has another name than the folder of its repository */
};

/*
 * scan_model - finds the versions in a model's folder, and completes and checks the configuration.
 *
 * Thread: control. Reads folders.
 * @config  taken, also on error
 * @quiet   do not warn of what is left out or missing, nor look at the files of every version: an
 *          earlier scan has done that
 * @ret_scanned  the caller ends it with scanned_model_done()
 * Errors: why the model cannot be served; the text names file and cause
 */
NODISCARD struct status *scan_model(const char *name, const struct scan_place *place,
                                    struct model_config *config,
                                    const struct server_options *options, bool quiet,
                                    struct scanned_model *ret_scanned);
void scanned_model_done(struct scanned_model *scanned);

/* The steps of a scan, which the linter (lint/) calls by itself. They do not log. */

/* The kinds of folders in a model's folder, by their names. */
enum scan_folder { SCAN_VERSION, SCAN_RESERVED, SCAN_LEADING_ZERO, SCAN_NO_NUMBER };
enum scan_folder scan_folder(const char *name, int64_t *ret_version);

/* scan_find_config - the path of the configuration in the storage: configs/<config_name>.pbtxt if
 * there is such a file. The caller frees it. */
NODISCARD struct status *scan_find_config(const struct storage *s, const char *folder,
                                          const char *config_name, bool *ret_exists,
                                          char **ret_path);

/*
 * scan_note_folder - notes the entries of the model's folder in sm->folder_files.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *scan_note_folder(const struct file_list *list, struct scanned_model *sm);

/*
 * scan_list_files - reads the entries of a version folder into sm->files.
 *
 * Errors: STATUS_INVALID_ARG, STATUS_NOT_FOUND  an entry is a link that leads out of the storage,
 *                                               or to nothing
 */
NODISCARD struct status *scan_list_files(const struct storage *s, const char *folder,
                                         const char *version, struct scanned_model *sm);

/* scan_apply_version_policy - removes from sm->versions those that the policy does not serve. */
void scan_apply_version_policy(struct scanned_model *sm);

/* scan_facts - the facts for completing the configuration; borrows from scanned. */
struct config_facts scan_facts(const char *name, const struct scanned_model *scanned,
                               const struct server_options *options);

#endif
