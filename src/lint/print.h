/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three forms of a report: text for people, JSON, and annotations of a GitHub workflow. In each
 * of them a finding is one line, whatever names it contains. Bytes that are not UTF-8 are shown as
 * \xHH.
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
    size_t n_hidden; /* findings that were counted but not kept */
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
