/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One check of some repositories. It lists the models, checks each model by itself (several at a
 * time), and then checks what involves several models.
 */
#ifndef CONCH_LINT_LINT_H
#define CONCH_LINT_LINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "conch/check.h"
#include "core/config/config.h"
#include "lint/findings.h"
#include "lint/place.h"

struct status;
struct storage;

struct lint_model {
    char *name;
    const struct storage *storage; /* of the model's repository; borrowed */
    size_t root;                   /* index of the repository in lint_run.storages */
    struct lint_findings found;
    bool is_quiet; /* only other models of the repository are wanted; it is checked for ensembles */
    bool is_closed; /* its folder cannot be read, which is among the findings already */

    /* Set by lint_check_model(). */
    size_t n_versions;
    int64_t *versions; /* the versions that the server would load */
    bool is_ensemble;
    /*
     * Ensembles keep it. For another model it is read again when an ensemble needs it. NULL when
     * the model has no configuration or cannot be loaded.
     */
    struct model_config *config;
    bool is_complete;  /* see struct ensemble_member */
    char *config_path; /* set together with config */
    /*
     * Borrowed from `found`. NULL: the model would load, as soon as Conch has all features that it
     * needs, and the machine all libraries.
     */
    const char *first_error;
};

struct lint_run {
    const struct conch_check_options *options;
    bool ignored[N_LINT_CODES];
    int n_cpus;
    bool has_backends; /* there is a folder in which backends can be looked up */

    struct lint_places places;
    struct storage **storages; /* of the places, in their order; NULL: could not be opened */
    struct lint_findings own;  /* about repositories */
    bool unreadable;           /* a repository could not be read */
    struct lint_model *models; /* sorted by name, then in the order of the repositories */
    size_t n_models;
};

/*
 * lint_check_model - makes all findings for which the model's folder suffices. Thread: any, once
 * per model.
 */
void lint_check_model(const struct lint_run *run, struct lint_model *m);

/*
 * lint_add_status - adds an error of a storage about a path in it as a finding.
 *
 * @st  taken
 */
void lint_add_status(struct lint_findings *f, enum lint_code code, const struct storage *s,
                     const char *path, struct status *st);

/*
 * lint_read_again - reads and completes m->config of a model that is not an ensemble; adds no
 * findings.
 */
void lint_read_again(const struct lint_run *run, struct lint_model *m);

/*
 * lint_check_between - checks for duplicates and for names that differ in case only, and checks the
 * ensembles. Thread: one, after all models have been checked.
 */
void lint_check_between(struct lint_run *run);

/*
 * lint_on_fault - a function for struct config_listener, which adds each fault as a finding. Its
 * arg is a struct lint_fault_sink.
 */
struct lint_fault_sink {
    struct lint_findings *found;
    const char *file;
    enum lint_code rule; /* the code for a fault against a rule */
};
void lint_on_fault(void *arg, const struct config_fault *fault);

#endif
