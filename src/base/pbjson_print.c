/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the JSON form.
 */
#include "base/pbjson.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"

static void print_message(const ProtobufCMessage *m, const struct pbjson_style *style,
                          struct json_writer *w);

/*
 * Triton passes protobuf's digits through another JSON library. It reads them as a double or,
 * without point and exponent, as an integer, and prints that.
 */
static void print_json_double(double d, bool is_float, struct json_writer *w)
{
    if (isnan(d)) {
        json_put_text(w, "NaN");
        return;
    }
    if (isinf(d)) {
        json_put_text(w, d < 0 ? "-Infinity" : "Infinity");
        return;
    }
    struct pb_number digits = pb_number(d, is_float);
    if (strpbrk(digits.text, ".e"))
        json_put_double(w, strtod(digits.text, NULL));
    else
        json_put_int64(w, strtoll(digits.text, NULL, 10));
}

static void print_bytes(const ProtobufCBinaryData *bytes, struct json_writer *w)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    json_put_value(w);
    buf_addc(w->out, '"');
    for (size_t i = 0; i < bytes->len; i += 3) {
        size_t n = MIN(bytes->len - i, (size_t)3);
        uint32_t group = (uint32_t)bytes->data[i] << 16;
        if (n > 1)
            group |= (uint32_t)bytes->data[i + 1] << 8;
        if (n > 2)
            group |= bytes->data[i + 2];
        for (size_t k = 0; k < 4; k++)
            buf_addc(w->out, k <= n ? digits[(group >> (18 - 6 * k)) & 63] : '=');
    }
    buf_addc(w->out, '"');
}

static void print_wide(bool as_number, bool is_signed, const void *value, struct json_writer *w)
{
    int64_t i = *(const int64_t *)value;
    uint64_t u = *(const uint64_t *)value;
    if (as_number && is_signed) {
        json_put_int64(w, i);
    } else if (as_number) {
        json_put_uint64(w, u);
    } else {
        char text[24];
        if (is_signed)
            snprintf(text, sizeof(text), "%" PRId64, i);
        else
            snprintf(text, sizeof(text), "%" PRIu64, u);
        json_put_text(w, text);
    }
}

static void print_json_value(const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f,
                             const void *value, const struct pbjson_style *style,
                             struct json_writer *w)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        json_put_int64(w, *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        json_put_uint64(w, *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        print_wide(style->is_number && style->is_number(d, f), true, value, w);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        print_wide(style->is_number && style->is_number(d, f), false, value, w);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        print_json_double((double)*(const float *)value, true, w);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        print_json_double(*(const double *)value, false, w);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        json_put_bool(w, *(const protobuf_c_boolean *)value != 0);
        break;
    case PROTOBUF_C_TYPE_ENUM: {
        int number = *(const int *)value;
        const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(f->descriptor, number);
        if (v)
            json_put_text(w, v->name);
        else
            json_put_int64(w, number);
        break;
    }
    case PROTOBUF_C_TYPE_STRING: {
        const char *s = *(char *const *)value;
        json_put_text(w, s ? s : "");
        break;
    }
    case PROTOBUF_C_TYPE_BYTES:
        print_bytes(value, w);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        print_message(*(ProtobufCMessage *const *)value, style, w);
        break;
    }
}

/* Prints a map's key as a member's name. */
static void print_key(const ProtobufCFieldDescriptor *f, const void *value, struct json_writer *w)
{
    char text[24];
    switch (pb_element_size(f)) {
    case 4:
        if (f->type == PROTOBUF_C_TYPE_BOOL)
            snprintf(text, sizeof(text), "%s",
                     *(const protobuf_c_boolean *)value ? "true" : "false");
        else if (f->type == PROTOBUF_C_TYPE_UINT32 || f->type == PROTOBUF_C_TYPE_FIXED32)
            snprintf(text, sizeof(text), "%" PRIu32, *(const uint32_t *)value);
        else
            snprintf(text, sizeof(text), "%" PRId32, *(const int32_t *)value);
        json_put_name(w, text);
        break;
    default:
        if (f->type == PROTOBUF_C_TYPE_STRING) {
            json_put_name(w, *(char *const *)value);
            break;
        }
        if (f->type == PROTOBUF_C_TYPE_UINT64 || f->type == PROTOBUF_C_TYPE_FIXED64)
            snprintf(text, sizeof(text), "%" PRIu64, *(const uint64_t *)value);
        else
            snprintf(text, sizeof(text), "%" PRId64, *(const int64_t *)value);
        json_put_name(w, text);
    }
}

static void print_json_map(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                           const struct pbjson_style *style, struct json_writer *w)
{
    const ProtobufCMessageDescriptor *entry_type = f->descriptor;
    json_put_open(w, '{');
    for (size_t i = 0; i < pb_count(m, f); i++) {
        const ProtobufCMessage *entry = *(ProtobufCMessage **)pb_element(m, f, i);
        print_key(&entry_type->fields[0], pb_value(entry, &entry_type->fields[0]), w);
        print_json_value(entry_type, &entry_type->fields[1],
                         pb_value(entry, &entry_type->fields[1]), style, w);
    }
    json_put_close(w, '}');
}

static void print_json_field(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                             const struct pbjson_style *style, struct json_writer *w)
{
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        bool shown_by_default =
            f->type != PROTOBUF_C_TYPE_MESSAGE && !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
        if (!shown_by_default && !pb_is_set(m, f))
            return;
        json_put_name(w, f->name);
        print_json_value(m->descriptor, f, pb_value(m, f), style, w);
        return;
    }
    json_put_name(w, f->name);
    if (pb_is_map(m->descriptor, f)) {
        print_json_map(m, f, style, w);
        return;
    }
    json_put_open(w, '[');
    for (size_t i = 0; i < pb_count(m, f); i++)
        print_json_value(m->descriptor, f, pb_element(m, f, i), style, w);
    json_put_close(w, ']');
}

static void print_message(const ProtobufCMessage *m, const struct pbjson_style *style,
                          struct json_writer *w)
{
    const ProtobufCMessageDescriptor *d = m->descriptor;
    const uint32_t *ids = style->order ? style->order(d) : NULL;

    json_put_open(w, '{');
    if (ids) {
        for (; *ids; ids++)
            print_json_field(m, protobuf_c_message_descriptor_get_field(d, *ids), style, w);
    } else {
        for (unsigned i = 0; i < d->n_fields; i++)
            print_json_field(m, &d->fields[i], style, w);
    }
    json_put_close(w, '}');
}

void pbjson_print(const ProtobufCMessage *m, const struct pbjson_style *style, struct buf *out)
{
    static const struct pbjson_style plain;
    struct json_writer w = {.out = out};
    print_message(m, style ? style : &plain, &w);
}
