/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions with the syntax of RE2, for options that Triton's users write in it. Only
 * whether a text has a match is told, not where. Matching takes time in proportion to the text
 * times the program, whatever the pattern is, and no memory but the stack.
 *
 * Texts are bytes; a pattern has ASCII only. All of RE2's syntax is known but classes of Unicode
 * (\pN).
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
 * Errors: STATUS_INVALID_ARG  the pattern is wrong, or too long
 */
NODISCARD struct status *regex_new(const char *pattern, struct regex **ret);
void regex_free(struct regex *r);

/* regex_matches - whether some part of the text matches. */
bool regex_matches(const struct regex *r, const char *text, size_t length);

#endif
