/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message - reads a protobuf message field by field: every length is checked, nothing is copied.
 *
 *     while (b.at < b.end) {
 *         if (!message_next(&b, &f))
 *             … it is malformed
 *         …
 *     }
 *
 * Groups, which no format that we read has, are malformed. No state; any thread.
 */
#ifndef BACKENDS_COMMON_MESSAGE_H
#define BACKENDS_COMMON_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A message, or a text; borrowed. */
struct message_bytes {
    const unsigned char *at, *end;
};

/* A field: a number, or bytes (those of a fixed number, too). */
struct message_field {
    uint32_t number;
    bool is_bytes;
    uint64_t value;
    struct message_bytes bytes;
};

/* message_next - take the next field. False: it is malformed. */
bool message_next(struct message_bytes *b, struct message_field *ret_field);

/* message_number - take a number, of a list of them. False: it is malformed. */
bool message_number(struct message_bytes *b, uint64_t *ret_value);

/* message_is_text, message_is_same - are these bytes that text, those bytes? */
bool message_is_text(const struct message_bytes *b, const char *text);
bool message_is_same(const struct message_bytes *a, const struct message_bytes *b);

/* message_compare - an order of them, as strcmp() has one of texts. */
int message_compare(const struct message_bytes *a, const struct message_bytes *b);

/* message_find - the last field of this number whose bytes are a message or a text, or no bytes.
 * False: the message is malformed before its end. */
bool message_find(struct message_bytes b, uint32_t number, struct message_bytes *ret_bytes);

/* message_find_single - the same, but false, too, if there are several: protobuf would join them.
 */
bool message_find_single(struct message_bytes b, uint32_t number, struct message_bytes *ret_bytes);

#ifdef __cplusplus
}
#endif
#endif
