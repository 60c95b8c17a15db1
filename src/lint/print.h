/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forms of a report: text for people, which quotes the configuration; the same with one line
 * for each finding; JSON; SARIF; and annotations of a GitHub workflow. Whatever names a finding
 * contains, they begin no line of their own. Bytes that are not UTF-8 are shown as \xHH.
 */
#ifndef CONCH_LINT_PRINT_H
#define CONCH_LINT_PRINT_H

#include "lint/printer.h"

struct lint_findings;

/* @totals  its notes count; the rest is for lint_print_end() */
void lint_print_start(struct lint_printer *p, const struct lint_totals *totals);
void lint_print_findings(struct lint_printer *p, const struct lint_findings *f);
void lint_print_end(struct lint_printer *p, const struct lint_totals *totals);

#endif
