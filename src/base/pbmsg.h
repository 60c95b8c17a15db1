/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building and walking protobuf-c messages by their descriptors, for the text and the JSON form
 * (pbtext, pbjson). Messages made here live in an arena: they end with it, and must never meet
 * protobuf_c_message_free_unpacked().
 *
 * A map field is what protobuf makes of it: a repeated field of entries with key = 1, value = 2.
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
 * Where fields stand in the text they were read from: a side table, so that messages stay plain.
 * Bounded: beyond the maximum nothing is recorded, and an error then comes without a position.
 */
struct pb_position {
    const void *message;
    uint32_t field_id;
    uint32_t index;        /* of a repeated field's element, else 0 */
    uint32_t line, column; /* from 1 */
};

struct pb_positions {
    struct pb_position *items;
    size_t count, capacity;
};

void pb_positions_done(struct pb_positions *p);
void pb_positions_add(struct pb_positions *p, const void *message, uint32_t field_id, size_t index,
                      uint32_t line, uint32_t column);
/* pb_positions_find - NULL when it is not known (not from a text, or added by us). */
const struct pb_position *pb_positions_find(const struct pb_positions *p, const void *message,
                                            uint32_t field_id, size_t index);

/* pb_new - an initialised message; NULL when the arena ends. */
ProtobufCMessage *pb_new(struct arena *a, const ProtobufCMessageDescriptor *d);

/* pb_copy - a deep copy in the arena, NULL when it ends. */
ProtobufCMessage *pb_copy(struct arena *a, const ProtobufCMessage *m);

/* pb_field_named, pb_enum_named - by exact name; NULL when there is none. */
const ProtobufCFieldDescriptor *pb_field_named(const ProtobufCMessageDescriptor *d,
                                               const char *name, size_t length);
const ProtobufCEnumValue *pb_enum_named(const ProtobufCEnumDescriptor *d, const char *name,
                                        size_t length);

/* pb_is_map - is this repeated field of `d` a map? */
bool pb_is_map(const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f);

/* pb_is_set - repeated: not empty; oneof: chosen; message: there; else differs from its default. */
bool pb_is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* pb_oneof_chosen - the member of f's oneof that is set, or NULL; f is in a oneof. */
const ProtobufCFieldDescriptor *pb_oneof_chosen(const ProtobufCMessage *m,
                                                const ProtobufCFieldDescriptor *f);

/*
 * pb_slot - where the value of a singular field goes, marked as set (has-flag, oneof case).
 */
void *pb_slot(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* pb_append - a zeroed new last element of a repeated field; NULL when the arena ends. */
void *pb_append(struct arena *a, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* pb_count, pb_element - the elements of a repeated field. */
size_t pb_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);
void *pb_element(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, size_t index);

/* pb_value - the value of a singular field; of a oneof's member, only if that is chosen. */
const void *pb_value(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* pb_element_size - bytes of one value of the field in a message or array. */
size_t pb_element_size(const ProtobufCFieldDescriptor *f);

/*
 * pb_map_settle - makes a map of the entries read so far: of entries with one key the last stays,
 * in the place of the first. False when memory ends.
 */
NODISCARD bool pb_map_settle(struct arena *a, ProtobufCMessage *m,
                             const ProtobufCFieldDescriptor *f);

/*
 * pb_suggest_field, pb_suggest_enum - the name that was probably meant, or NULL if none is close.
 */
const char *pb_suggest_field(const ProtobufCMessageDescriptor *d, const char *name, size_t length);
const char *pb_suggest_enum(const ProtobufCEnumDescriptor *d, const char *name, size_t length);

/* pb_suggest_home - the field whose message has a field of that name, or NULL. */
const char *pb_suggest_home(const ProtobufCMessageDescriptor *d, const char *name, size_t length);

/*
 * The order in which a printer shows the fields of such a message: their ids, ended by 0; NULL for
 * the order of the ids. (Descriptors do not keep the order of declaration.)
 */
typedef const uint32_t *(*pb_order_fn)(const ProtobufCMessageDescriptor *type);

/*
 * pb_number - a finite float or double in the digits that protobuf prints: as few as it can be
 * read back from, of 6 or 9 (float), 15 or 17 (double).
 */
struct pb_number {
    char text[32];
};
struct pb_number pb_number(double value, bool is_float);

#endif
