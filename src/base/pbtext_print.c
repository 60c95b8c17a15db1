/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the text format, byte for byte as protobuf's own printers do (Python's, with UTF-8 and
 * short lists), so that equal messages have equal texts.
 */
#include "base/pbtext.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/pbmsg.h"
#include "base/utf8.h"

static void print_fields(const ProtobufCMessage *m, pb_order_fn order, int depth, struct buf *out);

/* Valid UTF-8 stays readable; other bytes become octal escapes. */
static void print_string(const char *s, size_t length, struct buf *out)
{
    bool text = utf8_is_valid(s, length);
    buf_addc(out, '"');
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '\n')
            buf_adds(out, "\\n");
        else if (c == '\r')
            buf_adds(out, "\\r");
        else if (c == '\t')
            buf_adds(out, "\\t");
        else if (c == '"' || c == '\'' || c == '\\')
            buf_addf(out, "\\%c", c);
        else if (c < ' ' || c == 0x7f || (c >= 0x80 && !text))
            buf_addf(out, "\\%03o", c);
        else
            buf_addc(out, (char)c);
    }
    buf_addc(out, '"');
}

static void print_double(double d, bool single, struct buf *out)
{
    if (isnan(d))
        buf_adds(out, "nan");
    else if (isinf(d))
        buf_adds(out, d < 0 ? "-inf" : "inf");
    else
        buf_adds(out, pb_number(d, single).text);
}

static void print_scalar(const ProtobufCFieldDescriptor *f, const void *value, struct buf *out)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        buf_addf(out, "%" PRId32, *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        buf_addf(out, "%" PRId64, *(const int64_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        buf_addf(out, "%" PRIu32, *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        buf_addf(out, "%" PRIu64, *(const uint64_t *)value);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        print_double((double)*(const float *)value, true, out);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        print_double(*(const double *)value, false, out);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        buf_adds(out, *(const protobuf_c_boolean *)value ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumValue *v =
            protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)value);
        if (v)
            buf_adds(out, v->name);
        else
            buf_addf(out, "%d", *(const int *)value);
        break;
    }
    case PROTOBUF_C_TYPE_STRING: {
        const char *s = *(char *const *)value;
        print_string(s ? s : "", s ? strlen(s) : 0, out);
        break;
    }
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *bytes = value;
        print_string((const char *)bytes->data, bytes->len, out);
        break;
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        BUG_ON(true);
    }
}

static void put_indent(int depth, struct buf *out)
{
    for (int i = 0; i < depth; i++)
        buf_adds(out, "  ");
}

static void print_value(const ProtobufCFieldDescriptor *f, const void *value, pb_order_fn order,
                        int depth, struct buf *out)
{
    put_indent(depth, out);
    buf_adds(out, f->name);
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        buf_adds(out, " {\n");
        print_fields(*(ProtobufCMessage *const *)value, order, depth + 1, out);
        put_indent(depth, out);
        buf_adds(out, "}\n");
        return;
    }
    buf_adds(out, ": ");
    print_scalar(f, value, out);
    buf_addc(out, '\n');
}

static void print_list(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, int depth,
                       struct buf *out)
{
    put_indent(depth, out);
    buf_addf(out, "%s: [", f->name);
    for (size_t i = 0; i < pb_count(m, f); i++) {
        if (i)
            buf_adds(out, ", ");
        print_scalar(f, pb_element(m, f, i), out);
    }
    buf_adds(out, "]\n");
}

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

static int compare_keys(const void *a, const void *b, void *arg)
{
    const ProtobufCFieldDescriptor *key = *(const ProtobufCFieldDescriptor *const *)arg;
    const void *x = pb_value(*(ProtobufCMessage *const *)a, key);
    const void *y = pb_value(*(ProtobufCMessage *const *)b, key);
    switch (key->type) {
    case PROTOBUF_C_TYPE_STRING:
        return strcmp(*(char *const *)x, *(char *const *)y);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return COMPARE(*(const uint64_t *)x, *(const uint64_t *)y);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return COMPARE(*(const int64_t *)x, *(const int64_t *)y);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return COMPARE(*(const uint32_t *)x, *(const uint32_t *)y);
    default: /* the smaller signed ones, and bool */
        return COMPARE(*(const int32_t *)x, *(const int32_t *)y);
    }
}

/* The order of keys in a map has no meaning: entries are printed in the order of their keys. */
static void print_map(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                      pb_order_fn order, int depth, struct buf *out)
{
    const ProtobufCMessageDescriptor *entry = f->descriptor;
    const ProtobufCFieldDescriptor *key = &entry->fields[0];
    size_t n = pb_count(m, f);
    ProtobufCMessage **sorted = mem_try_zalloc(n, sizeof(*sorted));
    if (!sorted) {
        out->failed = true;
        return;
    }
    memcpy(sorted, pb_element(m, f, 0), n * sizeof(*sorted));
    qsort_r(sorted, n, sizeof(*sorted), compare_keys, &key);
    for (size_t i = 0; i < n; i++)
        print_value(f, &sorted[i], order, depth, out);
    mem_free(sorted);
}

static void print_field(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                        pb_order_fn order, int depth, struct buf *out)
{
    if (!pb_is_set(m, f))
        return;
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        print_value(f, pb_value(m, f), order, depth, out);
    } else if (pb_is_map(m->descriptor, f)) {
        print_map(m, f, order, depth, out);
    } else if (f->type == PROTOBUF_C_TYPE_MESSAGE || f->type == PROTOBUF_C_TYPE_STRING ||
               f->type == PROTOBUF_C_TYPE_BYTES) {
        for (size_t i = 0; i < pb_count(m, f); i++)
            print_value(f, pb_element(m, f, i), order, depth, out);
    } else {
        print_list(m, f, depth, out);
    }
}

static void print_fields(const ProtobufCMessage *m, pb_order_fn order, int depth, struct buf *out)
{
    const ProtobufCMessageDescriptor *d = m->descriptor;
    const uint32_t *ids = order ? order(d) : NULL;
    if (ids) {
        for (; *ids; ids++)
            print_field(m, protobuf_c_message_descriptor_get_field(d, *ids), order, depth, out);
        return;
    }
    for (unsigned i = 0; i < d->n_fields; i++)
        print_field(m, &d->fields[i], order, depth, out);
}

void pbtext_print(const ProtobufCMessage *m, pb_order_fn order, struct buf *out)
{
    print_fields(m, order, 0, out);
}
