/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all forms of a report share: where it goes, how it looks, and the numbers at its end.
 */
#ifndef CONCH_LINT_PRINTER_H
#define CONCH_LINT_PRINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "conch/check.h"
#include "lint/source.h"

struct lint_totals {
    size_t n_models, n_errors, n_warnings;
    size_t n_hidden; /* findings that were counted but not kept */
    double seconds;
    const char *const *notes; /* what was checked instead of a path that is no repository */
    size_t n_notes;
    bool unreadable; /* a repository could not be read */
};

struct lint_printer {
    FILE *out;
    enum conch_check_format format;
    bool colour;
    bool comma; /* JSON, SARIF: a finding precedes */
    struct lint_sources sources;
    const char *explained; /* code of the first finding; NULL: there is none */
};

#endif
