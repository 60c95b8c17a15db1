/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64, either alphabet (RFC 4648 §4, §5), with or without the '=' at the end.
 */
#ifndef CONCH_BASE_BASE64_H
#define CONCH_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* base64_room - the most bytes that a text of that length can decode to. */
static inline size_t base64_room(size_t length)
{
    return length / 4 * 3 + 3;
}

/*
 * base64_decode - decodes the whole text; false when the text is not base64.
 *
 * @out  room for base64_room(length); may be the text itself
 */
NODISCARD bool base64_decode(const char *text, size_t length, uint8_t *out, size_t *ret_size);

#endif
