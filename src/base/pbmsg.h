/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building and reading protobuf-c messages by their descriptors, for the text and the JSON form
 * (pbtext, pbjson). Messages made here live in an arena and are freed with it. They must never be
 * passed to protobuf_c_message_free_unpacked().
 *
 * A map field is a repeated field of entries with key = 1 and value = 2, as protobuf defines it.
 */
#ifndef CONCH_BASE_PBMSG_H
#define CONCH_BASE_PBMSG_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct arena;

/*
 * The positions of fields in the text that they were read from. They are in a side table, so that
 * messages stay plain. The table has a maximum: beyond it nothing is recorded, and an error then
 * has no position.
 */
struct pb_position {
    const void *message;
    uint32_t field_id;
    uint32_t index;        /* of an element of a repeated field; else 0 */
    uint32_t line, column; /* from 1 */
};

struct pb_positions {
    struct pb_position *items;
    size_t count, capacity;
};

void pb_positions_done(struct pb_positions *p);
void pb_positions_add(struct pb_positions *p, const void *message, uint32_t field_id, size_t index,
                      uint32_t line, uint32_t column);
/* pb_positions_find - NULL for an unknown position: beyond the maximum, or not from a text. */
const struct pb_position *pb_positions_find(const struct pb_positions *p, const void *message,
                                            uint32_t field_id, size_t index);

/* pb_new - an initialised message; NULL when the arena is full. */
ProtobufCMessage *pb_new(struct arena *a, const ProtobufCMessageDescriptor *d);

/* pb_copy - a deep copy in the arena; NULL when the arena is full. */
ProtobufCMessage *pb_copy(struct arena *a, const ProtobufCMessage *m);

/* pb_field_named, pb_enum_named - found by exact name; NULL when there is none. */
const ProtobufCFieldDescriptor *pb_field_named(const ProtobufCMessageDescriptor *d,
                                               const char *name, size_t length);
const ProtobufCEnumValue *pb_enum_named(const ProtobufCEnumDescriptor *d, const char *name,
                                        size_t length);

/* pb_is_map - whether this repeated field of `d` is a map. */
bool pb_is_map(const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f);

/*
 * pb_is_set - whether a field is set. A repeated field is when it has elements; a member of a oneof
 * when it is chosen; a message when it exists; any other field when it differs from its default.
 */
bool pb_is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* pb_oneof_chosen - the chosen member of f's oneof, or NULL; f must be in a oneof. */
const ProtobufCFieldDescriptor *pb_oneof_chosen(const ProtobufCMessage *m,
                                                const ProtobufCFieldDescriptor *f);

/*
 * pb_slot - marks a singular field as set (has-flag, oneof case) and returns where to write its
 * value.
 */
void *pb_slot(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* pb_append - adds a zeroed last element to a repeated field; NULL when the arena is full. */
void *pb_append(struct arena *a, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* pb_count, pb_element - the elements of a repeated field. */
size_t pb_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);
void *pb_element(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, size_t index);

/* pb_value - the value of a singular field. A member of a oneof must be the chosen one. */
const void *pb_value(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* pb_element_size - the size in bytes of one value of the field. */
size_t pb_element_size(const ProtobufCFieldDescriptor *f);

/*
 * pb_map_settle - makes a map of the entries that were read so far. Of several entries with one key
 * the last value stays, at the position of the first. False when the arena is full.
 */
NODISCARD bool pb_map_settle(struct arena *a, ProtobufCMessage *m,
                             const ProtobufCFieldDescriptor *f);

/*
 * pb_suggest_field, pb_suggest_enum - the name that was probably meant, or NULL if none is similar.
 */
const char *pb_suggest_field(const ProtobufCMessageDescriptor *d, const char *name, size_t length);
const char *pb_suggest_enum(const ProtobufCEnumDescriptor *d, const char *name, size_t length);

/* pb_suggest_home - the field of `d` whose message has a field of that name, or NULL. */
const char *pb_suggest_home(const ProtobufCMessageDescriptor *d, const char *name, size_t length);

/*
 * Returns the order in which to print the fields of such a message: their ids, ended by 0. NULL
 * means the order of the ids. (Descriptors do not keep the order of declaration.)
 */
typedef const uint32_t *(*pb_order_fn)(const ProtobufCMessageDescriptor *type);

/*
 * pb_number - a finite float or double in the digits that protobuf prints: 6 for a float, or 9 if 6
 * do not read back as the same value; for a double 15, or 17.
 */
struct pb_number {
    char text[32];
};
struct pb_number pb_number(double value, bool is_float);

#endif
