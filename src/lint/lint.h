/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One check of some repositories: list the models, check each by itself (several at a time), then
 * what only shows between them.
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

struct status;
struct storage;

struct lint_model {
    char *name;
    const struct storage *storage; /* its repository; borrowed */
    size_t root;                   /* which one */
    struct lint_findings found;
    bool is_closed; /* its folder cannot be looked into; that has been said */

    /* Set by lint_check_model(). */
    size_t n_versions;
    int64_t *versions; /* those that would be served */
    bool is_ensemble;
    /* Kept of ensembles; of other models read again when an ensemble asks for them. NULL when the
     * model has no configuration or cannot be served. */
    struct model_config *config;
    bool is_complete;  /* see struct ensemble_member */
    char *config_path; /* with config */
    /* Borrowed from found; NULL: it would be served, as soon as Conch has all that it asks for. */
    const char *first_error;
};

struct lint_run {
    const struct conch_check_options *options;
    bool ignored[N_LINT_CODES];
    int n_cpus;
    bool has_backends; /* there is a folder in which they can be looked for */

    size_t n_storages;
    struct storage **storages; /* in the order of the options; NULL: cannot be opened */
    struct lint_findings own;  /* about repositories */
    bool unreadable;           /* one of them */
    struct lint_model *models; /* by name; of the same name in the order of the repositories */
    size_t n_models;
};

/* lint_check_model - all that a model's folder can tell. Thread: any, once per model. */
void lint_check_model(const struct lint_run *run, struct lint_model *m);

/* lint_add_status - what a storage has against a path in it; taken. */
void lint_add_status(struct lint_findings *f, enum lint_code code, const struct storage *s,
                     const char *path, struct status *st);

/* lint_read_again - m->config of a model that is no ensemble, completed; no findings. */
void lint_read_again(const struct lint_run *run, struct lint_model *m);

/* lint_check_between - duplicates, names in other case, ensembles. One thread, after all models. */
void lint_check_between(struct lint_run *run);

/* lint_on_fault - the function of a struct config_listener whose arg is a struct lint_fault_sink.
 */
struct lint_fault_sink {
    struct lint_findings *found;
    const char *file;
    enum lint_code rule; /* what a broken rule counts as */
};
void lint_on_fault(void *arg, const struct config_fault *fault);

#endif
