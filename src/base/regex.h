/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions for options that Triton's users write for RE2. PCRE2 reads them, which knows
 * all of RE2's syntax for bytes ('$' also matches before a last line end, though); a pattern may
 * not refer back to a group. Only whether a text has a match is told, not where. A text whose match
 * would need more than the limits in regex.c has none.
 *
 * Thread: a compiled expression is constant, so any thread may match.
 */
#ifndef CONCH_BASE_REGEX_H
#define CONCH_BASE_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct regex;
struct status;

/*
 * regex_new - compiles the pattern. The caller ends it with regex_free().
 *
 * @ignores_case  as if the pattern began with (?i)
 * Errors: STATUS_INVALID_ARG  the pattern is wrong, or too long
 */
NODISCARD struct status *regex_new(const char *pattern, bool ignores_case, struct regex **ret);
void regex_free(struct regex *r);

/* regex_matches - whether some part of the text matches. */
bool regex_matches(const struct regex *r, const char *text, size_t length);

#endif
