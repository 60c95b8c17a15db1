/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of origins of web pages: "https://a.example,http://localhost:8080", or "*" for all origins.
 * An origin is written as browsers send it in the header Origin (RFC 6454 §6.2): scheme, host, and
 * the port unless it is the scheme's default. So origins are equal when their bytes are.
 * Thread: any.
 */
#ifndef CONCH_BASE_ORIGIN_H
#define CONCH_BASE_ORIGIN_H

#include <stddef.h>

enum { ORIGIN_LIST_MAX = 255, ORIGIN_MAX_BYTES = 512 };

/*
 * origin_list_check - finds the first item of a list that is no origin. "" is a list without items.
 *
 * Returns what is wrong with the item, as a constant text; NULL: the list is fine, and nothing is
 * written.
 *
 * @ret_item, @ret_length  the item, in the list
 */
const char *origin_list_check(const char *list, const char **ret_item, size_t *ret_length);

/* origin_check - what is wrong with one origin, as a constant text; NULL: nothing. */
const char *origin_check(const char *text, size_t length);

#endif
