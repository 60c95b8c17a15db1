/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf's JSON form, to and from proto3 messages of protobuf-c.
 *
 * Reading: field names as declared or in camelCase, enums by name (in any case) or number, 64-bit
 * integers as numbers or strings, null for a default, one value for a list of it, relaxed syntax
 * (json_relaxed.h); unknown and repeated names are errors.
 * Memory is bounded by the arena, nesting by PBJSON_MAX_DEPTH.
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
 * pbjson_parse - a message from its JSON form.
 *
 * Thread: any.
 * @arena  holds the message; what a failed call took stays until the arena ends
 * Errors: STATUS_INVALID_ARG  the first thing that is wrong: "<line>:<column>: <path>: <what>"
 */
NODISCARD struct status *pbjson_parse(const ProtobufCMessageDescriptor *type, const char *text,
                                      size_t length, struct arena *arena,
                                      ProtobufCMessage **ret_message);

/* How to print. All may be NULL. */
struct pbjson_style {
    pb_order_fn order; /* of fields */
    /* May this 64-bit integer be a number? protobuf's own answer is never: they are strings. */
    bool (*is_number)(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *f);
};

/*
 * pbjson_print - appends the JSON form on one line: declared names, fields at their defaults too
 * (but no messages that are not there), floats in the digits that protobuf gives them.
 */
void pbjson_print(const ProtobufCMessage *m, const struct pbjson_style *style, struct buf *out);

#endif
