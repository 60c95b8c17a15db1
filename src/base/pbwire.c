/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf's wire format: the parts that are not inline in pbwire.h. A position never passes the
 * end, and after a failure no further byte is read. No state; any thread.
 */
#include "base/pbwire.h"

#include <endian.h>

enum { MAX_GROUPS = 32, MAX_NUMBER = (1 << 29) - 1 };

static bool fail(struct pbwire *in)
{
    in->bad = true;
    in->at = in->end;
    return false;
}

bool pbwire_varint_slow(struct pbwire *in, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned int shift = 0; shift < 7 * PBWIRE_MAX_VARINT; shift += 7) {
        if (in->at == in->end)
            return fail(in);
        unsigned char byte = (unsigned char)*in->at++;
        /* One bit of the tenth byte counts: bits beyond 64 are dropped, as by protobuf. */
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return fail(in);
}

static bool take_fixed(struct pbwire *in, size_t n_bytes, uint64_t *ret)
{
    uint64_t value = 0;
    if ((size_t)(in->end - in->at) < n_bytes)
        return fail(in);
    memcpy(&value, in->at, n_bytes);
    in->at += n_bytes;
    *ret = le64toh(value);
    return true;
}

static bool take_bytes(struct pbwire *in, struct pbwire_bytes *ret)
{
    uint64_t length;
    if (!pbwire_varint(in, &length))
        return false;
    if (length > (uint64_t)(in->end - in->at))
        return fail(in);
    *ret = (struct pbwire_bytes){in->at, (size_t)length};
    in->at += length;
    return true;
}

static bool take_tag(struct pbwire *in, struct pbwire_field *ret)
{
    uint64_t tag;
    if (!pbwire_varint(in, &tag))
        return false;
    if (tag >> 3 == 0 || tag >> 3 > MAX_NUMBER)
        return fail(in);
    ret->number = (uint32_t)(tag >> 3);
    ret->type = tag & 7;
    return true;
}

/* Reads the value behind the tag; a group has none. */
static bool take_value(struct pbwire *in, struct pbwire_field *ret)
{
    switch (ret->type) {
    case PBWIRE_VARINT:
        return pbwire_varint(in, &ret->value);
    case PBWIRE_FIXED64:
        return take_fixed(in, 8, &ret->value);
    case PBWIRE_BYTES:
        return take_bytes(in, &ret->bytes);
    case PBWIRE_FIXED32:
        return take_fixed(in, 4, &ret->value);
    case PBWIRE_GROUP_BEGIN:
    case PBWIRE_GROUP_END:
        return true;
    }
    return fail(in);
}

/* Skips the fields of an unknown group, up to its end. */
static bool skip_group(struct pbwire *in, uint32_t number)
{
    uint32_t open[MAX_GROUPS] = {number};
    unsigned int depth = 1;
    struct pbwire_field f;
    while (depth > 0) {
        if (!take_tag(in, &f) || !take_value(in, &f))
            return false;
        if (f.type == PBWIRE_GROUP_BEGIN) {
            if (depth == MAX_GROUPS)
                return fail(in);
            open[depth++] = f.number;
        } else if (f.type == PBWIRE_GROUP_END && open[--depth] != f.number) {
            return fail(in);
        }
    }
    return true;
}

bool pbwire_next_slow(struct pbwire *in, struct pbwire_field *ret)
{
    while (in->at < in->end) {
        if (!take_tag(in, ret) || !take_value(in, ret))
            return false;
        if (ret->type == PBWIRE_GROUP_END)
            return fail(in);
        if (ret->type != PBWIRE_GROUP_BEGIN)
            return true;
        if (!skip_group(in, ret->number))
            return false;
    }
    return false;
}

bool pbwire_count_varints(struct pbwire_bytes bytes, size_t *ret_count)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes.length; i++)
        n += !(bytes.at[i] & 0x80);
    if (bytes.length && bytes.at[bytes.length - 1] & 0x80)
        return false;
    *ret_count = n;
    return true;
}
