/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The findings of a check: one line each, with a code of codes.def. A list belongs to one model, or
 * to the repositories themselves. One thread fills it.
 */
#ifndef CONCH_LINT_FINDINGS_H
#define CONCH_LINT_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "conch/check.h"

struct storage;

enum lint_code {
#define CODE(id, ...) LINT_##id,
#include "lint/codes.def"
#undef CODE
    N_LINT_CODES
};

extern const struct conch_check_code lint_codes[N_LINT_CODES];

/* lint_code_named - the code with that name; N_LINT_CODES when there is none. */
enum lint_code lint_code_named(const char *name, size_t length);

struct lint_finding {
    enum lint_code code;
    char *file;
    uint32_t line, column; /* from 1; 0: the finding is about the whole file */
    char *text;
    char *advice; /* what would have been right, or NULL */
    char *model;  /* NULL: the finding is about a repository */
};

/* The most findings that are kept per list. Nobody reads more, and files may be large. */
enum { LINT_MAX_FINDINGS = 200 };

struct lint_findings {
    const char *model; /* borrowed; NULL for repositories */
    const struct storage
        *storage;        /* of the model, in which its files are; borrowed; NULL as well */
    const bool *ignored; /* indexed by code; borrowed; NULL: no code is ignored */
    struct lint_finding *items;
    size_t n, capacity;
    size_t n_errors, n_warnings; /* including those that are not kept */
};

struct lint_position {
    const char *file;
    uint32_t line, column;
};

/*
 * lint_wants - whether a finding with that code would be kept. For findings that are costly to
 * make.
 */
bool lint_wants(const struct lint_findings *f, enum lint_code code);

/*
 * lint_add - adds a finding.
 *
 * @position  position.file is copied
 * @advice    copied; NULL for none
 */
void lint_add(struct lint_findings *f, enum lint_code code, struct lint_position position,
              const char *advice, const char *fmt, ...) PRINTF_LIKE(5, 6);

/* lint_sort - sorts by file, line and column; findings at one position keep their order. */
void lint_sort(struct lint_findings *f);
void lint_findings_done(struct lint_findings *f);

#endif
