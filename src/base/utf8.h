/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 as RFC 3629 defines it: shortest forms only, no surrogates, nothing above U+10FFFF.
 */
#ifndef CONCH_BASE_UTF8_H
#define CONCH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool utf8_is_valid(const char *s, size_t length);

/*
 * utf8_sequence - the number of bytes of the well-formed character at s, of which `room` bytes may
 * be read; 0 when there is none.
 */
size_t utf8_sequence(const char *s, size_t room);

/* utf8_encode - writes the code point into ret_bytes; returns the bytes written, 0 if invalid. */
size_t utf8_encode(uint32_t code_point, char ret_bytes[4]);

/* utf8_printable - a copy with \xHH for each byte that is not UTF-8; free it with mem_free(). */
char *utf8_printable(const char *s);

/* The bytes that utf8_mark_cut() may add behind a text. */
enum { UTF8_CUT_BYTES = 32 };

/*
 * utf8_mark_cut - appends the original length to a text that was cut: "…(62914560 bytes)". An
 * incomplete character at the cut is removed.
 *
 * @kept   bytes of the text that are left; there is room for UTF8_CUT_BYTES more behind them
 * @whole  bytes of the original text
 * Returns the new length of the text, without the zero byte at its end.
 */
size_t utf8_mark_cut(char *text, size_t kept, size_t whole);

#endif
