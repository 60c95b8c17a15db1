/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small questions about strings.
 */
#ifndef CONCH_BASE_STR_H
#define CONCH_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/*
 * str_to_int64, str_to_uint64 - the number that the whole text is: decimal digits, for the first
 * with a '-' in front if need be; no blanks, no '+', nothing behind. False (nothing written) when
 * it is something else or does not fit.
 */
NODISCARD bool str_to_int64(const char *s, size_t length, int64_t *ret_value);
NODISCARD bool str_to_uint64(const char *s, size_t length, uint64_t *ret_value);

/* str_is_identifier - [a-zA-Z_][a-zA-Z0-9_]*, where `also` may stand as a letter, too. */
bool str_is_identifier(const char *s, char also);

/* The same, except for the case of ASCII letters; the locale has no say. */
bool str_equal_nocase_n(const char *a, size_t a_length, const char *b, size_t b_length);

/*
 * str_edit_distance - how many letters must be put in, taken out, changed or exchanged with their
 * neighbour to make b of a. Case counts. For "did you mean": SIZE_MAX when either is longer than
 * STR_EDIT_MAX bytes.
 */
enum { STR_EDIT_MAX = 64 };
size_t str_edit_distance(const char *a, const char *b);

/*
 * str_nearer - may the candidate be what was meant by name, rather than those asked about before?
 *
 * @least  SIZE_MAX for the first candidate; keeps how near the best one is
 */
bool str_nearer(const char *name, const char *candidate, size_t *least);

/*
 * str_escapes_folder - would this relative path lead out of the folder that it is relative to?
 * ("a/b" is fine, "/b" and "a/../../b" and even "a/.." are not.)
 */
bool str_escapes_folder(const char *path);

#endif
