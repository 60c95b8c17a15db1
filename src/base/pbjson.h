/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf's JSON form, to and from proto3 messages of protobuf-c.
 *
 * The reader accepts field names as declared or in camelCase, enums by name (in any case) or
 * number, and 64-bit integers as numbers or strings. It accepts null for a default, a single value
 * for a list of one, and relaxed syntax (json_relaxed.h). Unknown and repeated names are errors.
 * The arena limits the memory, PBJSON_MAX_DEPTH the nesting.
 */
#ifndef CONCH_BASE_PBJSON_H
#define CONCH_BASE_PBJSON_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "base/pbmsg.h"

struct arena;
struct buf;
struct status;

enum { PBJSON_MAX_DEPTH = 100 };

/*
 * pbjson_parse - reads a message from its JSON form.
 *
 * Thread: any.
 * @arena  holds the message; what a failed call allocated stays until the arena ends
 * Errors: STATUS_INVALID_ARG  the first fault: "<line>:<column>: <path>: <what>"
 */
NODISCARD struct status *pbjson_parse(const ProtobufCMessageDescriptor *type, const char *text,
                                      size_t length, struct arena *arena,
                                      ProtobufCMessage **ret_message);

/* How to print. Each member may be NULL. */
struct pbjson_style {
    pb_order_fn order; /* of fields */
    /* Whether to print this 64-bit integer as a number. protobuf itself prints a string. */
    bool (*is_number)(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *f);
};

/*
 * pbjson_print - appends the JSON form on one line: names as declared, and floats in the digits
 * that protobuf prints. Fields at their defaults are printed, unset messages are not.
 */
void pbjson_print(const ProtobufCMessage *m, const struct pbjson_style *style, struct buf *out);

#endif
