/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small functions on strings. Thread: any.
 */
#ifndef CONCH_BASE_STR_H
#define CONCH_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/*
 * str_to_int64, str_to_uint64 - read the whole text as a decimal number. str_to_int64() accepts a
 * '-' in front. Blanks, a '+', and anything behind the digits are not accepted. False when the text
 * is not such a number or does not fit; nothing is written then.
 */
NODISCARD bool str_to_int64(const char *s, size_t length, int64_t *ret_value);
NODISCARD bool str_to_uint64(const char *s, size_t length, uint64_t *ret_value);

/*
 * str_to_bool - reads true, on, 1, false, off, 0, in any case. False when the text is none of them;
 * nothing is written then.
 */
NODISCARD bool str_to_bool(const char *s, bool *ret_value);

/* str_is_identifier - whether s is [a-zA-Z_][a-zA-Z0-9_]*; `also` counts as a letter. */
bool str_is_identifier(const char *s, char also);

/*
 * str_equal_nocase_n - whether a and b are equal but for the case of ASCII letters, in any locale.
 */
bool str_equal_nocase_n(const char *a, size_t a_length, const char *b, size_t b_length);

/*
 * str_edit_distance - the number of letters to insert, remove, change or swap with their neighbour
 * to turn a into b. Case counts. SIZE_MAX when either is longer than STR_EDIT_MAX bytes. For "did
 * you mean".
 */
enum { STR_EDIT_MAX = 64 };
size_t str_edit_distance(const char *a, const char *b);

/*
 * str_nearer - whether the candidate is similar to name, and more so than all candidates before.
 *
 * @least  SIZE_MAX before the first candidate; receives the distance of the best one
 */
bool str_nearer(const char *name, const char *candidate, size_t *least);

/*
 * str_escapes_folder - whether this relative path leads out of the folder that it is relative to.
 * "a/b" does not; "/b", "a/../../b" and even "a/.." do.
 */
bool str_escapes_folder(const char *path);

#endif
