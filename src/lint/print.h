/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three forms of a report: for people, as JSON, as annotations of a GitHub workflow. In all of
 * them a finding is one line whatever its names hold; bytes that are no UTF-8 are shown as \xHH.
 */
#ifndef CONCH_LINT_PRINT_H
#define CONCH_LINT_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "conch/check.h"

struct lint_findings;

struct lint_totals {
    size_t n_models, n_errors, n_warnings;
    size_t n_hidden; /* findings that were counted and not kept */
    double seconds;
};

struct lint_printer {
    FILE *out;
    enum conch_check_format format;
    bool colour;
    bool comma; /* JSON: a finding precedes */
};

void lint_print_start(struct lint_printer *p);
void lint_print_findings(struct lint_printer *p, const struct lint_findings *f);
void lint_print_end(struct lint_printer *p, const struct lint_totals *totals);

#endif
