/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf's text format, to and from proto3 messages of protobuf-c. The parser accepts what
 * protobuf's C++ parser accepts, except that a `string` field must be valid UTF-8 without NUL
 * bytes, since it becomes a C string.
 *
 * The parser is safe with any input: the arena limits the memory, PBTEXT_MAX_DEPTH the nesting, and
 * the work is linear in the text.
 */
#ifndef CONCH_BASE_PBTEXT_H
#define CONCH_BASE_PBTEXT_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/pbmsg.h"

struct arena;
struct buf;
struct status;

enum {
    PBTEXT_MAX_DEPTH = 100,
    PBTEXT_MAX_BYTES = 64 << 20,
    PBTEXT_MAX_FAULTS = 1000,
};

/*
 * pbtext_parse - reads a message from its text form.
 *
 * Thread: any.
 * @name       errors begin with "<name>:<line>:<column>: "; usually a file's path
 * @arena      holds the message; what a failed call allocated stays until the arena ends
 * @positions  receives the position of each field; may be NULL
 * Errors:  STATUS_INVALID_ARG  the first fault and its position; where possible, also what would
 *                              have been right
 */
NODISCARD struct status *pbtext_parse(const ProtobufCMessageDescriptor *type, const char *text,
                                      size_t length, const char *name, struct arena *arena,
                                      struct pb_positions *positions,
                                      ProtobufCMessage **ret_message);

/* A fault in a text. */
struct pbtext_fault {
    uint32_t line, column;
    const char *text;
    const char *advice; /* what would have been right: "did you mean \"input\"?"; or NULL */
};

/*
 * pbtext_parse_all - the same, but reports all faults of the text. After a fault it goes on at what
 * looks like the next field, so that one mistake is reported once. After PBTEXT_MAX_FAULTS faults
 * it stops, since such a text is probably not a configuration at all.
 *
 * @on_fault  called for each fault, in the order of the text
 * Returns   NULL also when there were faults; *ret_message is then NULL
 * Errors: as above, for what has no position in the text: no memory, a text that is too long
 */
NODISCARD struct status *pbtext_parse_all(const ProtobufCMessageDescriptor *type, const char *text,
                                          size_t length, const char *name, struct arena *arena,
                                          struct pb_positions *positions,
                                          void (*on_fault)(void *arg, const struct pbtext_fault *),
                                          void *arg, ProtobufCMessage **ret_message);

/*
 * pbtext_print - appends the text form, as protobuf's own printers write it: one field per line,
 * indented by two blanks, lists of numbers as [1, 2], and maps by their keys. Fields at their
 * defaults are left out.
 *
 * @order  NULL for the order of field numbers
 */
void pbtext_print(const ProtobufCMessage *m, pb_order_fn order, struct buf *out);

#endif
