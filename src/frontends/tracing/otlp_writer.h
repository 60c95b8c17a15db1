/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes messages of OTLP field by field, in one pass, as protobuf or as JSON. The fields and their
 * numbers are those of src/proto/otlp.proto, by which answers are read.
 *
 *     static const struct otlp_field event = {11, "events"}, name = {2, "name"};
 *     otlp_begin_list(&w, event);                  all items of a list follow one another
 *     struct otlp_mark item = otlp_begin_item(&w, event, 1);
 *     otlp_put_text(&w, name, "x", 1);
 *     otlp_end(&w, item);
 *     otlp_end_list(&w);
 *
 * Protobuf is written by inline functions, since a batch has tens of thousands of fields whose
 * numbers and lengths the compiler knows. A message in protobuf begins with its length, which is
 * known at its end: room is left for as many bytes as it is likely to have, and the message is
 * moved when that was wrong.
 *
 * What is too large for the buffer, or has no memory, is noted in the buffer (buf_status()).
 *
 * Thread: one at a time.
 */
#ifndef CONCH_FRONTENDS_TRACING_OTLP_WRITER_H
#define CONCH_FRONTENDS_TRACING_OTLP_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/json.h"
#include "base/pbwire.h"

struct otlp_field {
    uint32_t number;  /* in protobuf */
    const char *name; /* in JSON */
};

struct otlp_writer {
    struct buf *out;
    bool is_json;
    struct json_writer json;
};

/* Where a message has begun. */
struct otlp_mark {
    size_t at;              /* its length, in protobuf */
    uint8_t n_length_bytes; /* … has so many bytes of room */
};

/*
 * otlp_writer_init, otlp_writer_done - around the fields of the outermost message.
 *
 * @out  borrowed; the message is appended
 */
void otlp_writer_init(struct otlp_writer *w, struct buf *out, bool is_json);
void otlp_writer_done(struct otlp_writer *w);

/* ---- JSON, and what is rare: for the functions below ----------------------------------------- */

void otlp_json_begin(struct otlp_writer *w, const char *name, char bracket); /* NULL: an item */
void otlp_json_end(struct otlp_writer *w, char bracket);
void otlp_json_text(struct otlp_writer *w, const char *name, const char *text, size_t length);
void otlp_json_id(struct otlp_writer *w, const char *name, const uint8_t *id, size_t n_bytes);
void otlp_json_number(struct otlp_writer *w, const char *name, int64_t value);
void otlp_json_long(struct otlp_writer *w, const char *name, uint64_t value, bool is_signed);
void otlp_json_text_pair(struct otlp_writer *w, const char *key, size_t key_length,
                         const char *text, size_t length);
void otlp_json_int_pair(struct otlp_writer *w, const char *key, size_t key_length, int64_t value);
void otlp_json_event(struct otlp_writer *w, uint64_t ns, const char *name, size_t length);
bool otlp_move_message(struct otlp_writer *w, struct otlp_mark mark, size_t n_bytes, size_t need);

enum { OTLP_TAG_BYTES = 5 }; /* at most */
/* The fields of a KeyValue, of an AnyValue, and of an Event. */
enum {
    OTLP_KEY = 1,
    OTLP_VALUE = 2,
    OTLP_STRING_VALUE = 1,
    OTLP_INT_VALUE = 3,
    OTLP_EVENT_TIME = 1,
    OTLP_EVENT_NAME = 2,
};

/* otlp_find_room - room for that many bytes; NULL: the buffer has failed. otlp_take_room() ends its
 * use. */
static inline char *otlp_find_room(struct otlp_writer *w, size_t n_bytes)
{
    struct buf *b = w->out;
    if (LIKELY(!b->failed && b->capacity - b->size > n_bytes))
        return b->data + b->size;
    return buf_reserve(b, n_bytes);
}

static inline void otlp_take_room(struct otlp_writer *w, const char *end)
{
    w->out->size = (size_t)(end - w->out->data);
}

/* ---- Messages ------------------------------------------------------------------------------- */

/*
 * otlp_begin_message, otlp_begin_item - begins a field that is a message, or an item of a list of
 * messages. otlp_end() ends it.
 *
 * @n_length_bytes  that its length most likely has in protobuf; another number costs one move
 */
static inline struct otlp_mark otlp_begin_item(struct otlp_writer *w, struct otlp_field f,
                                               uint8_t n_length_bytes)
{
    struct otlp_mark mark = {0, n_length_bytes};
    if (UNLIKELY(w->is_json)) {
        otlp_json_begin(w, NULL, '{');
        return mark;
    }
    char *at = otlp_find_room(w, (size_t)OTLP_TAG_BYTES + n_length_bytes);
    if (UNLIKELY(!at))
        return mark;
    at = pbwire_put_tag(at, f.number, PBWIRE_BYTES);
    otlp_take_room(w, at + n_length_bytes);
    mark.at = (size_t)(at - w->out->data);
    return mark;
}

static inline struct otlp_mark otlp_begin_message(struct otlp_writer *w, struct otlp_field f,
                                                  uint8_t n_length_bytes)
{
    if (LIKELY(!w->is_json))
        return otlp_begin_item(w, f, n_length_bytes);
    otlp_json_begin(w, f.name, '{');
    return (struct otlp_mark){0};
}

static inline void otlp_end(struct otlp_writer *w, struct otlp_mark mark)
{
    if (UNLIKELY(w->is_json)) {
        otlp_json_end(w, '}');
        return;
    }
    if (UNLIKELY(w->out->failed))
        return;
    size_t n_bytes = w->out->size - mark.at - mark.n_length_bytes;
    size_t need = pbwire_varint_size(n_bytes);
    if (LIKELY(need == mark.n_length_bytes) || otlp_move_message(w, mark, n_bytes, need))
        pbwire_put_varint(w->out->data + mark.at, n_bytes);
}

/* otlp_begin_list, otlp_end_list - around the items of a list, of which there is at least one. */
static inline void otlp_begin_list(struct otlp_writer *w, struct otlp_field f)
{
    if (UNLIKELY(w->is_json))
        otlp_json_begin(w, f.name, '[');
}

static inline void otlp_end_list(struct otlp_writer *w)
{
    if (UNLIKELY(w->is_json))
        otlp_json_end(w, ']');
}

/* ---- Values --------------------------------------------------------------------------------- */

/* otlp_put_text - @text  UTF-8 */
static inline void otlp_put_text(struct otlp_writer *w, struct otlp_field f, const char *text,
                                 size_t length)
{
    if (UNLIKELY(w->is_json)) {
        otlp_json_text(w, f.name, text, length);
        return;
    }
    char *at = otlp_find_room(w, OTLP_TAG_BYTES + PBWIRE_MAX_VARINT + length);
    if (LIKELY(at != NULL))
        otlp_take_room(w, pbwire_put_bytes(at, f.number, text, length));
}

/* otlp_put_id - bytes, at most 16; JSON has them in hexadecimal. */
static inline void otlp_put_id(struct otlp_writer *w, struct otlp_field f, const uint8_t *id,
                               size_t n_bytes)
{
    if (UNLIKELY(w->is_json))
        otlp_json_id(w, f.name, id, n_bytes);
    else
        otlp_put_text(w, f, (const char *)id, n_bytes);
}

/* The lowest n_bytes of a number, as protobuf has it: little-endian. */
static inline void otlp_put_fixed(struct otlp_writer *w, struct otlp_field f, enum pbwire_type type,
                                  uint64_t value, size_t n_bytes)
{
    char *at = otlp_find_room(w, OTLP_TAG_BYTES + sizeof(value));
    if (UNLIKELY(!at))
        return;
    at = pbwire_put_tag(at, f.number, type);
    memcpy(at, &value, sizeof(value));
    otlp_take_room(w, at + n_bytes);
}

static inline void otlp_put_fixed64(struct otlp_writer *w, struct otlp_field f, uint64_t value)
{
    if (UNLIKELY(w->is_json))
        otlp_json_long(w, f.name, value, false);
    else
        otlp_put_fixed(w, f, PBWIRE_FIXED64, value, sizeof(uint64_t));
}

static inline void otlp_put_fixed32(struct otlp_writer *w, struct otlp_field f, uint32_t value)
{
    if (UNLIKELY(w->is_json))
        otlp_json_number(w, f.name, value);
    else
        otlp_put_fixed(w, f, PBWIRE_FIXED32, value, sizeof(uint32_t));
}

static inline void otlp_put_varint(struct otlp_writer *w, struct otlp_field f, uint64_t value)
{
    char *at = otlp_find_room(w, OTLP_TAG_BYTES + PBWIRE_MAX_VARINT);
    if (LIKELY(at != NULL))
        otlp_take_room(w, pbwire_put_number(at, f.number, value));
}

static inline void otlp_put_int32(struct otlp_writer *w, struct otlp_field f, int32_t value)
{
    if (UNLIKELY(w->is_json))
        otlp_json_number(w, f.name, value);
    else
        otlp_put_varint(w, f, (uint64_t)(int64_t)value);
}

/* ---- Messages whose length is known at their beginning -----------------------------------------
 */

/*
 * otlp_put_text_pair, otlp_put_int_pair - an item of a list of attributes: a key, and its value, in
 * OTLP's fields of that name.
 */
static inline void otlp_put_text_pair(struct otlp_writer *w, struct otlp_field list,
                                      const char *key, size_t key_length, const char *text,
                                      size_t length)
{
    if (UNLIKELY(w->is_json)) {
        otlp_json_text_pair(w, key, key_length, text, length);
        return;
    }
    size_t value_bytes = pbwire_bytes_size(OTLP_STRING_VALUE, length);
    size_t n_bytes =
        pbwire_bytes_size(OTLP_KEY, key_length) + pbwire_bytes_size(OTLP_VALUE, value_bytes);
    char *at = otlp_find_room(w, pbwire_bytes_size(list.number, n_bytes));
    if (UNLIKELY(!at))
        return;
    at = pbwire_put_head(at, list.number, n_bytes);
    at = pbwire_put_bytes(at, OTLP_KEY, key, key_length);
    at = pbwire_put_head(at, OTLP_VALUE, value_bytes);
    otlp_take_room(w, pbwire_put_bytes(at, OTLP_STRING_VALUE, text, length));
}

static inline void otlp_put_int_pair(struct otlp_writer *w, struct otlp_field list, const char *key,
                                     size_t key_length, int64_t value)
{
    if (UNLIKELY(w->is_json)) {
        otlp_json_int_pair(w, key, key_length, value);
        return;
    }
    size_t value_bytes = 1 + pbwire_varint_size((uint64_t)value);
    size_t n_bytes =
        pbwire_bytes_size(OTLP_KEY, key_length) + pbwire_bytes_size(OTLP_VALUE, value_bytes);
    char *at = otlp_find_room(w, pbwire_bytes_size(list.number, n_bytes));
    if (UNLIKELY(!at))
        return;
    at = pbwire_put_head(at, list.number, n_bytes);
    at = pbwire_put_bytes(at, OTLP_KEY, key, key_length);
    at = pbwire_put_head(at, OTLP_VALUE, value_bytes);
    otlp_take_room(w, pbwire_put_number(at, OTLP_INT_VALUE, (uint64_t)value));
}

/* otlp_put_event - an item of a list of events: a time and a name. */
static inline void otlp_put_event(struct otlp_writer *w, struct otlp_field list, uint64_t ns,
                                  const char *name, size_t length)
{
    if (UNLIKELY(w->is_json)) {
        otlp_json_event(w, ns, name, length);
        return;
    }
    size_t n_bytes = 1 + sizeof(ns) + pbwire_bytes_size(OTLP_EVENT_NAME, length);
    char *at = otlp_find_room(w, pbwire_bytes_size(list.number, n_bytes));
    if (UNLIKELY(!at))
        return;
    at = pbwire_put_head(at, list.number, n_bytes);
    at = pbwire_put_tag(at, OTLP_EVENT_TIME, PBWIRE_FIXED64);
    memcpy(at, &ns, sizeof(ns));
    otlp_take_room(w, pbwire_put_bytes(at + sizeof(ns), OTLP_EVENT_NAME, name, length));
}

#endif
