/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 as RFC 3629 has it: shortest forms only, no surrogates, nothing above U+10FFFF.
 */
#ifndef CONCH_BASE_UTF8_H
#define CONCH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool utf8_is_valid(const char *s, size_t length);

/* utf8_sequence - the bytes of the well-formed character at s, of which room are there; 0: none. */
size_t utf8_sequence(const char *s, size_t room);

/* utf8_encode - writes the code point into ret_bytes; how many bytes, or 0 for what is none. */
size_t utf8_encode(uint32_t code_point, char ret_bytes[4]);

/* utf8_printable - the text, with \xHH for each byte that is no UTF-8; the caller frees it. */
char *utf8_printable(const char *s);

#endif
