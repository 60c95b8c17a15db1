/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf's wire format, field by field, on bytes that the caller has: for messages whose tensors
 * must not be copied. Other messages are read and written by protobuf-c (pbmsg.h).
 *
 *     struct pbwire in = pbwire_of(bytes, n_bytes);
 *     struct pbwire_field f;
 *     while (pbwire_next(&in, &f)) {
 *         if (pbwire_is(&f, 3, PBWIRE_BYTES)) …
 *     }
 *     if (in.bad) …                            the bytes are no protobuf message
 *
 * Nothing is copied: a field of bytes points into the message. Nothing is allocated. Thread: any.
 */
#ifndef CONCH_BASE_PBWIRE_H
#define CONCH_BASE_PBWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

/* The values are those of the wire. */
enum pbwire_type {
    PBWIRE_VARINT = 0,
    PBWIRE_FIXED64 = 1,
    PBWIRE_BYTES = 2,
    PBWIRE_GROUP_BEGIN = 3,
    PBWIRE_GROUP_END = 4,
    PBWIRE_FIXED32 = 5,
};

/* Borrowed bytes, without a zero byte at the end. */
struct pbwire_bytes {
    const char *at;
    size_t length;
};

struct pbwire {
    const char *at, *end;
    bool bad; /* the bytes at `at` are no protobuf field */
};

struct pbwire_field {
    uint32_t number;
    enum pbwire_type type;
    uint64_t value;            /* VARINT, FIXED32, FIXED64 */
    struct pbwire_bytes bytes; /* BYTES */
};

static inline struct pbwire pbwire_of(const void *bytes, size_t n_bytes)
{
    /* Without bytes the pointer may be NULL, to which nothing may be added. */
    const char *at = n_bytes ? bytes : "";
    return (struct pbwire){.at = at, .end = at + n_bytes};
}

bool pbwire_next_slow(struct pbwire *in, struct pbwire_field *ret);
bool pbwire_varint_slow(struct pbwire *in, uint64_t *ret);

/*
 * pbwire_varint - reads a varint. False: in->bad is set, since the bytes end within the varint, or
 * it has more than ten bytes.
 */
static inline bool pbwire_varint(struct pbwire *in, uint64_t *ret)
{
    if (LIKELY(in->at < in->end && !(*in->at & 0x80))) {
        *ret = (unsigned char)*in->at++;
        return true;
    }
    return pbwire_varint_slow(in, ret);
}

/*
 * pbwire_next - reads the next field, and skips groups. False: the message has ended, or in->bad is
 * set for a truncated field, an invalid number, an unknown wire type or a group without its end.
 */
static inline bool pbwire_next(struct pbwire *in, struct pbwire_field *ret)
{
    /* Most fields: numbers below 16, fewer than 128 bytes. */
    if (LIKELY(in->end - in->at >= 2)) {
        unsigned char tag = (unsigned char)in->at[0], length = (unsigned char)in->at[1];
        if ((tag & 0x87) == PBWIRE_BYTES && tag >= 8 && length < 0x80 &&
            in->end - in->at - 2 >= length) {
            ret->number = tag >> 3;
            ret->type = PBWIRE_BYTES;
            ret->bytes = (struct pbwire_bytes){in->at + 2, length};
            in->at += 2 + length;
            return true;
        }
    }
    return pbwire_next_slow(in, ret);
}

static inline bool pbwire_is(const struct pbwire_field *f, uint32_t number, enum pbwire_type type)
{
    return f->number == number && f->type == type;
}

/*
 * pbwire_count_varints - counts the varints in the bytes, by their last bytes.
 *
 * Returns false when the last varint is incomplete.
 */
bool pbwire_count_varints(struct pbwire_bytes bytes, size_t *ret_count);

/* ---- Writing -------------------------------------------------------------------------------- */

/* The most bytes of a varint. */
enum { PBWIRE_MAX_VARINT = 10 };

/* pbwire_varint_size - the bytes of a varint. */
static inline size_t pbwire_varint_size(uint64_t value)
{
    /* 7 bits a byte; a value of 0 takes one byte. */
    return (size_t)(63 - __builtin_clzll(value | 1)) / 7 + 1;
}

/* pbwire_bytes_size - the bytes of a field of that number with n_bytes, tag and length included. */
static inline size_t pbwire_bytes_size(uint32_t number, size_t n_bytes)
{
    return pbwire_varint_size((uint64_t)number << 3) + pbwire_varint_size(n_bytes) + n_bytes;
}

/* pbwire_put_… - write to `at`, where the caller has made room; return the address behind it. */
static inline char *pbwire_put_varint(char *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (char)(value | 0x80);
        value >>= 7;
    }
    *at++ = (char)value;
    return at;
}

static inline char *pbwire_put_tag(char *at, uint32_t number, enum pbwire_type type)
{
    return pbwire_put_varint(at, (uint64_t)number << 3 | type);
}

/* The tag and the length; the bytes are to follow. */
static inline char *pbwire_put_head(char *at, uint32_t number, size_t n_bytes)
{
    return pbwire_put_varint(pbwire_put_tag(at, number, PBWIRE_BYTES), n_bytes);
}

static inline char *pbwire_put_bytes(char *at, uint32_t number, const void *bytes, size_t n_bytes)
{
    at = pbwire_put_head(at, number, n_bytes);
    if (n_bytes)
        memcpy(at, bytes, n_bytes);
    return at + n_bytes;
}

static inline char *pbwire_put_number(char *at, uint32_t number, uint64_t value)
{
    return pbwire_put_varint(pbwire_put_tag(at, number, PBWIRE_VARINT), value);
}

#endif
