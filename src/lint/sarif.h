/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report as a document of SARIF 2.1.0, which code scanners and editors read. The functions
 * print its begin, one result, and its end.
 */
#ifndef CONCH_LINT_SARIF_H
#define CONCH_LINT_SARIF_H

struct buf;
struct lint_finding;
struct lint_printer;
struct lint_totals;
struct storage;

void sarif_print_start(const struct lint_printer *p);
/* sarif_print_finding - adds the result to `line`. */
void sarif_print_finding(struct lint_printer *p, const struct storage *storage,
                         const struct lint_finding *item, struct buf *line);
void sarif_print_end(const struct lint_printer *p, const struct lint_totals *totals);

#endif
