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

/* Room that utf8_mark_cut() takes behind a text. */
enum { UTF8_CUT_BYTES = 32 };

/*
 * utf8_mark_cut - says of a text of which only the first bytes are there how long it was:
 * "…(62914560 bytes)". A character that is not whole goes.
 *
 * @kept   bytes of the text; UTF8_CUT_BYTES more follow it
 * @whole  bytes that it had
 * Returns the length of what is there now, without the zero byte at its end.
 */
size_t utf8_mark_cut(char *text, size_t kept, size_t whole);

#endif
