/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf's text format, to and from proto3 messages of protobuf-c. It accepts what protobuf's C++
 * parser accepts, with two exceptions that a C string asks for: a `string` field must be valid
 * UTF-8 and free of NUL bytes.
 *
 * Safe with any input: memory is bounded by the arena, nesting by PBTEXT_MAX_DEPTH, and the work is
 * linear in the text.
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
 * pbtext_parse - a message from its text form.
 *
 * Thread: any.
 * @name       what errors begin with: "<name>:<line>:<column>: "; usually a file's path
 * @arena      holds the message; what a failed call took stays until the arena ends
 * @positions  learns where each field stands; may be NULL
 * Errors:  STATUS_INVALID_ARG  the first thing that is wrong, what would have been right
 *                              when that can be told, and where
 */
NODISCARD struct status *pbtext_parse(const ProtobufCMessageDescriptor *type, const char *text,
                                      size_t length, const char *name, struct arena *arena,
                                      struct pb_positions *positions,
                                      ProtobufCMessage **ret_message);

/* Something that is wrong in a text. */
struct pbtext_fault {
    uint32_t line, column;
    const char *text;
    const char *advice; /* what would have been right: "did you mean \"input\"?"; or NULL */
};

/*
 * pbtext_parse_all - the same, but says everything that is wrong with the text: after a fault it
 * goes on at what looks like the next field, so that one mistake is told once. After
 * PBTEXT_MAX_FAULTS of them it stops: such a text is something else.
 *
 * @on_fault  called with each fault, in the order of the text
 * Errors: as above, but faults that were told make it no error and leave *ret_message NULL;
 *         what is an error has no position in the text (memory, a text that is too long)
 */
NODISCARD struct status *pbtext_parse_all(const ProtobufCMessageDescriptor *type, const char *text,
                                          size_t length, const char *name, struct arena *arena,
                                          struct pb_positions *positions,
                                          void (*on_fault)(void *arg, const struct pbtext_fault *),
                                          void *arg, ProtobufCMessage **ret_message);

/*
 * pbtext_print - appends the text form, as protobuf's own printers write it: a field per line,
 * indented by two, lists of numbers as [1, 2], maps by their keys, nothing that is at its default.
 *
 * @order  NULL for the order of field numbers
 */
void pbtext_print(const ProtobufCMessage *m, pb_order_fn order, struct buf *out);

#endif
