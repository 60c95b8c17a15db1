/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in a model's folder: its configuration and its versions (reference/features §8.1).
 */
#ifndef CONCH_CORE_REPO_SCAN_H
#define CONCH_CORE_REPO_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config/config.h"

struct server_options;
struct storage;

struct scanned_model {
    struct model_config *config; /* prepared */
    size_t n_versions;           /* those that the version policy serves, ascending */
    int64_t *versions;
    int64_t first_version; /* in string order, of all that are there */
    size_t n_files;        /* the entries of its folder; the name of a folder ends in '/' */
    char **files;
};

/*
 * scan_model - reads one model's folder.
 *
 * Thread: control. Reads folders and the configuration.
 * @folder  of the model, in the storage
 * @config  the configuration as JSON (a load request's override); NULL: as the folder has it
 * @quiet   do not warn of what is left out or missing, nor look at the files of every version:
 *          that has been done
 * Errors: why the model cannot be served; the text names file and cause
 */
NODISCARD struct status *scan_model(const char *name, const struct storage *storage,
                                    const char *folder, const char *config,
                                    const struct server_options *options, bool quiet,
                                    struct scanned_model *ret_scanned);
void scanned_model_done(struct scanned_model *scanned);

/* The steps of scan_model() that a check takes by itself (lint/): nothing here writes to the log.
 */

/* What the name of a folder in a model's folder says. */
enum scan_folder { SCAN_VERSION, SCAN_RESERVED, SCAN_LEADING_ZERO, SCAN_NO_NUMBER };
enum scan_folder scan_folder(const char *name, int64_t *ret_version);

/* scan_find_config - its path in the storage: configs/<config_name>.pbtxt where there is that. */
NODISCARD struct status *scan_find_config(const struct storage *s, const char *folder,
                                          const char *config_name, bool *ret_exists,
                                          char **ret_path);

/*
 * scan_list_files - reads the entries of a version folder into sm->files.
 *
 * Errors: STATUS_INVALID_ARG, STATUS_NOT_FOUND  one is a link that leads out of the storage, or
 *                                               nowhere
 */
NODISCARD struct status *scan_list_files(const struct storage *s, const char *folder,
                                         const char *version, struct scanned_model *sm);

/* scan_apply_version_policy - of sm->versions leaves those that the policy serves. */
void scan_apply_version_policy(struct scanned_model *sm);

/* scan_facts - what completion may know about the model; borrows from scanned. */
struct config_facts scan_facts(const char *name, const struct scanned_model *scanned,
                               const struct server_options *options);

#endif
