/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack - see pack.h. All fields go through memcpy(): a message has no alignment of its own, and an
 * unpacker reads memory that another process may write meanwhile, so each field is read once.
 */
#include "python/pack.h"

#include <string.h>

static void append_bytes(struct packer *p, const void *from, uint64_t n)
{
    if (p->to && p->used <= p->room && n <= p->room - p->used && n)
        memcpy(p->to + p->used, from, (size_t)n);
    p->used += n;
}

void pack_u8(struct packer *p, uint8_t value)
{
    append_bytes(p, &value, sizeof value);
}

void pack_u32(struct packer *p, uint32_t value)
{
    append_bytes(p, &value, sizeof value);
}

void pack_u64(struct packer *p, uint64_t value)
{
    append_bytes(p, &value, sizeof value);
}

void pack_i64(struct packer *p, int64_t value)
{
    append_bytes(p, &value, sizeof value);
}

void pack_f64(struct packer *p, double value)
{
    append_bytes(p, &value, sizeof value);
}

void pack_str(struct packer *p, const char *text, size_t len)
{
    if (!text)
        len = 0;
    if (len > UINT32_MAX) /* longer than any message may be: cut, so that the fields behind stay */
        len = UINT32_MAX;
    pack_u32(p, (uint32_t)len);
    append_bytes(p, text, len);
}

void pack_text(struct packer *p, const char *text)
{
    pack_str(p, text, text ? strlen(text) : 0);
}

void pack_align(struct packer *p, uint64_t to)
{
    static const char zeroes[64];
    uint64_t n = (to - (p->used & (to - 1))) & (to - 1);

    while (n) {
        const uint64_t part = n < sizeof zeroes ? n : sizeof zeroes;

        append_bytes(p, zeroes, part);
        n -= part;
    }
}

/* copy_field - copies a field out; zeroes after a mistake. */
static void copy_field(struct unpacker *u, void *to, uint64_t n)
{
    if (u->failed || n > u->left) {
        u->failed = true;
        u->left = 0;
        memset(to, 0, (size_t)n);
        return;
    }
    memcpy(to, u->at, (size_t)n);
    u->at += n;
    u->left -= n;
}

uint8_t unpack_u8(struct unpacker *u)
{
    uint8_t value;

    copy_field(u, &value, sizeof value);
    return value;
}

uint32_t unpack_u32(struct unpacker *u)
{
    uint32_t value;

    copy_field(u, &value, sizeof value);
    return value;
}

uint64_t unpack_u64(struct unpacker *u)
{
    uint64_t value;

    copy_field(u, &value, sizeof value);
    return value;
}

int64_t unpack_i64(struct unpacker *u)
{
    int64_t value;

    copy_field(u, &value, sizeof value);
    return value;
}

double unpack_f64(struct unpacker *u)
{
    double value;

    copy_field(u, &value, sizeof value);
    return value;
}

uint32_t unpack_count(struct unpacker *u, uint32_t most, uint32_t item_bytes)
{
    const uint32_t n = unpack_u32(u);

    if (n > most || (uint64_t)n * item_bytes > u->left) {
        u->failed = true;
        u->left = 0;
        return 0;
    }
    return n;
}

const char *unpack_str(struct unpacker *u, size_t *ret_len)
{
    const uint32_t len = unpack_u32(u);
    const char *text = u->at;

    if (u->failed || len > u->left) {
        u->failed = true;
        u->left = 0;
        *ret_len = 0;
        return "";
    }
    u->at += len;
    u->left -= len;
    *ret_len = len;
    return len ? text : "";
}
