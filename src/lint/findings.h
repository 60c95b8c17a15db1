/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a check found: one line each, with a code out of codes.def. A list belongs to one model (or
 * to the repositories themselves) and is filled by one thread.
 */
#ifndef CONCH_LINT_FINDINGS_H
#define CONCH_LINT_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "conch/check.h"

enum lint_code {
#define CODE(id, ...) LINT_##id,
#include "lint/codes.def"
#undef CODE
    N_LINT_CODES
};

extern const struct conch_check_code lint_codes[N_LINT_CODES];

/* lint_code_named - N_LINT_CODES when there is none. */
enum lint_code lint_code_named(const char *name, size_t length);

struct lint_finding {
    enum lint_code code;
    char *file;
    uint32_t line, column; /* 0: the file as a whole */
    char *text;
    char *advice; /* what would have been right, or NULL */
    char *model;  /* or NULL: about a repository */
};

/* Of one model at most so many are kept: nobody reads more, and files may be large. */
enum { LINT_MAX_FINDINGS = 200 };

struct lint_findings {
    const char *model;   /* borrowed; NULL for repositories */
    const bool *ignored; /* by code; borrowed; NULL: none is */
    struct lint_finding *items;
    size_t n, capacity;
    size_t n_errors, n_warnings; /* those that are not kept, too */
};

struct lint_position {
    const char *file;
    uint32_t line, column;
};

/* lint_wants - would such a finding be kept? For those that are costly to make. */
bool lint_wants(const struct lint_findings *f, enum lint_code code);

/* lint_add - @advice is copied; NULL for none */
void lint_add(struct lint_findings *f, enum lint_code code, struct lint_position position,
              const char *advice, const char *fmt, ...) PRINTF_LIKE(5, 6);

/* lint_sort - by file, line and column; equal ones stay in the order in which they were found. */
void lint_sort(struct lint_findings *f);
void lint_findings_done(struct lint_findings *f);

#endif
