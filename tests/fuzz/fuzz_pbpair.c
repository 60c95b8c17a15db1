/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form and the JSON form of a configuration agree. What either parser accepts is the same
 * message after a conversion to the other form and back.
 *
 *     text → message → JSON → message → text → message
 *     JSON → message → text → message → JSON → message
 *
 * Messages are compared field by field. Two things may change: the sign of a zero (the reference's
 * JSON has none) and the bits of a NaN.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/pbjson.h"
#include "base/pbtext.h"
#include "base/status.h"
#include "proto/model_config.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BYTES = 64 << 20 };

static const ProtobufCMessageDescriptor *const type = &inference__model_config__descriptor;

/* ---- Comparison ------------------------------------------------------------------------------ */

static bool same(const ProtobufCMessage *a, const ProtobufCMessage *b);

static bool same_number(double a, double b)
{
    return (isnan(a) && isnan(b)) || !(a < b || a > b || isnan(a) || isnan(b));
}

static bool same_bytes(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static const char *text_of(const void *value)
{
    const char *s = *(const char *const *)value;
    return s ? s : "";
}

static bool same_value(const ProtobufCFieldDescriptor *f, const void *a, const void *b)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT:
        return same_number((double)*(const float *)a, (double)*(const float *)b);
    case PROTOBUF_C_TYPE_DOUBLE:
        return same_number(*(const double *)a, *(const double *)b);
    case PROTOBUF_C_TYPE_STRING:
        return strcmp(text_of(a), text_of(b)) == 0;
    case PROTOBUF_C_TYPE_BYTES:
        return same_bytes(a, b);
    case PROTOBUF_C_TYPE_MESSAGE:
        return same(*(ProtobufCMessage *const *)a, *(ProtobufCMessage *const *)b);
    default:
        return memcmp(a, b, pb_element_size(f)) == 0;
    }
}

/* The order of a map's entries has no meaning. */
static bool same_map(const ProtobufCFieldDescriptor *f, const ProtobufCMessage *a,
                     const ProtobufCMessage *b)
{
    for (size_t i = 0; i < pb_count(a, f); i++) {
        size_t k = 0;
        while (k < pb_count(b, f) && !same_value(f, pb_element(a, f, i), pb_element(b, f, k)))
            k++;
        if (k == pb_count(b, f))
            return false;
    }
    return true;
}

static bool same_field(const ProtobufCFieldDescriptor *f, const ProtobufCMessage *a,
                       const ProtobufCMessage *b)
{
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        if (pb_count(a, f) != pb_count(b, f))
            return false;
        if (pb_is_map(a->descriptor, f))
            return same_map(f, a, b);
        for (size_t i = 0; i < pb_count(a, f); i++) {
            if (!same_value(f, pb_element(a, f, i), pb_element(b, f, i)))
                return false;
        }
        return true;
    }
    /* A zero with a sign counts as set, one without does not: that is the sign again. */
    bool number = f->type == PROTOBUF_C_TYPE_FLOAT || f->type == PROTOBUF_C_TYPE_DOUBLE;
    if (number && !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        return same_value(f, pb_value(a, f), pb_value(b, f));
    if (pb_is_set(a, f) != pb_is_set(b, f))
        return false;
    return !pb_is_set(a, f) || same_value(f, pb_value(a, f), pb_value(b, f));
}

static bool same(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    for (unsigned i = 0; i < a->descriptor->n_fields; i++) {
        if (!same_field(&a->descriptor->fields[i], a, b))
            return false;
    }
    return true;
}

/* ---- The two forms --------------------------------------------------------------------------- */

struct form {
    struct status *(*parse)(const char *text, size_t size, struct arena *arena,
                            ProtobufCMessage **ret_m);
    void (*print)(const ProtobufCMessage *m, struct buf *out);
};

static struct status *parse_text(const char *text, size_t size, struct arena *arena,
                                 ProtobufCMessage **ret_m)
{
    return pbtext_parse(type, text, size, "text", arena, NULL, ret_m);
}

static struct status *parse_json(const char *text, size_t size, struct arena *arena,
                                 ProtobufCMessage **ret_m)
{
    return pbjson_parse(type, text, size, arena, ret_m);
}

static void print_text(const ProtobufCMessage *m, struct buf *out)
{
    pbtext_print(m, NULL, out);
}

static void print_json(const ProtobufCMessage *m, struct buf *out)
{
    pbjson_print(m, NULL, out);
}

static const struct form text_form = {parse_text, print_text};
static const struct form json_form = {parse_json, print_json};

/* Returns the message read from this form's print of m; NULL when the print exceeds the memory. */
static ProtobufCMessage *through(const struct form *form, const ProtobufCMessage *m,
                                 struct arena *arena)
{
    AUTO(buf) printed = BUF_INIT(MAX_BYTES);
    ProtobufCMessage *copy = NULL;
    form->print(m, &printed);
    if (printed.failed)
        return NULL;
    struct status *st = form->parse(buf_text(&printed), printed.size, arena, &copy);
    if (!st)
        return copy;
    BUG_ON(status_code(st) != STATUS_UNAVAILABLE);
    status_free(st);
    return NULL;
}

static void there_and_back(const struct form *from, const struct form *to, const char *text,
                           size_t size)
{
    struct arena arena;
    ProtobufCMessage *m = NULL;
    arena_init(&arena, NULL, 0, MAX_BYTES, NULL, NULL);
    struct status *st = from->parse(text, size, &arena, &m);
    status_free(st);
    ProtobufCMessage *there = m ? through(to, m, &arena) : NULL;
    ProtobufCMessage *back = there ? through(from, there, &arena) : NULL;
    BUG_ON(there && !same(m, there));
    BUG_ON(back && !same(m, back));
    arena_reset(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + !size); /* an exact copy, so that a read beyond its end is seen */
    memcpy(text, data, size);
    there_and_back(&text_form, &json_form, text, size);
    there_and_back(&json_form, &text_form, text, size);
    free(text);
    return 0;
}
