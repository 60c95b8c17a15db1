/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of configurations that findings point at, for reports that quote them. One thread uses
 * a struct lint_sources.
 */
#ifndef CONCH_LINT_SOURCE_H
#define CONCH_LINT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct lint_finding;
struct storage;

/* The file that was read last. */
struct lint_sources {
    char *file;
    struct buf text;
    uint32_t line; /* a line of it, from 1, and where it begins */
    size_t line_at;
};

struct lint_line {
    const char *text; /* borrowed until the next call; without its newline, not NUL-terminated */
    size_t length;
    size_t at, width; /* the word that the finding is about: its first byte, its bytes (> 0) */
};

/*
 * lint_source_line - reads the line of a finding.
 *
 * @storage  of the finding's file; NULL: none
 * Returns false when the finding has no line, or the file has changed and does not have it.
 */
bool lint_source_line(struct lint_sources *s, const struct storage *storage,
                      const struct lint_finding *item, struct lint_line *ret_line);

void lint_sources_done(struct lint_sources *s);

#endif
