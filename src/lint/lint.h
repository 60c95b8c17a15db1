/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One check of some repositories: list the models, look at each by itself (several at a time), then
 * at what only shows between them.
 */
#ifndef CONCH_LINT_LINT_H
#define CONCH_LINT_LINT_H

#include <stdbool.h>
#include <stddef.h>

#include "conch/check.h"
#include "lint/findings.h"

struct lint_model {
    char *name;
    char *directory;
    const char *root; /* the repository; borrowed */
    struct lint_findings found;
};

struct lint_run {
    const struct conch_check_options *options;
    bool ignored[N_LINT_CODES];
    int n_cpus;

    struct lint_findings own;  /* about repositories */
    bool unreadable;           /* one of them */
    struct lint_model *models; /* sorted by name, then by repository */
    size_t n_models;
};

/* lint_check_model - all that a model's folder can tell. Thread: any, once per model. */
void lint_check_model(const struct lint_run *run, struct lint_model *m);

#endif
