/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing and unpacking of whole messages by libdeflate.
 *
 * The size of an unpacked message is not known beforehand. The last four bytes of gzip promise a
 * size, which anybody may write there, so it is believed up to 1 MiB or BELIEVED_RATIO times the
 * packed size. That is the room of the first attempt; without a promise it is MODEST_RATIO times
 * the packed size. Each further attempt has twice the room of the last, up to the maximum. All
 * attempts together do at most twice the work of the last one. Threads: the owner's.
 */
#include "base/compress.h"

#include <endian.h>
#include <libdeflate.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"

enum {
    LEVEL = 6,          /* of 1 to 12, the default of gzip and zlib */
    FIRST_BYTES = 4096, /* the least room */
    MODEST_RATIO = 4,
    BELIEVED_RATIO = 16,
    BELIEVED_BYTES = 1 << 20,
    MAX_RATIO = 1032, /* of deflate: 258 bytes take at least two bits */
};

struct compress {
    struct libdeflate_decompressor *unpack; /* NULL: not used yet */
    struct libdeflate_compressor *pack;
};

struct compress *compress_new(void)
{
    return mem_zalloc(sizeof(struct compress));
}

void compress_free(struct compress *c)
{
    if (!c)
        return;
    if (c->unpack)
        libdeflate_free_decompressor(c->unpack);
    if (c->pack)
        libdeflate_free_compressor(c->pack);
    mem_free(c);
}

/* ---- Unpacking ------------------------------------------------------------------------------ */

/* Saturates: a packed message of 16 MiB may promise more bytes than there are addresses. */
static size_t multiply(size_t n, size_t by)
{
    size_t product;
    return __builtin_mul_overflow(n, by, &product) ? SIZE_MAX : product;
}

static size_t first_room(enum compress_format format, const char *bytes, size_t n_bytes)
{
    uint32_t promised = 0;
    if (format == COMPRESS_GZIP && n_bytes >= sizeof(promised)) {
        memcpy(&promised, bytes + n_bytes - sizeof(promised), sizeof(promised));
        promised = le32toh(promised);
    }
    size_t most = multiply(n_bytes, promised <= BELIEVED_BYTES ? MAX_RATIO : BELIEVED_RATIO);
    size_t room = promised ? MIN((size_t)promised, most) : multiply(n_bytes, MODEST_RATIO);
    return MAX(room, (size_t)FIRST_BYTES);
}

/* The packed bytes of one message. */
struct packed {
    enum compress_format format;
    bool has_members; /* of gzip: more may follow the first */
    const char *bytes;
    size_t n_bytes;
};

static bool begins_gzip(const char *bytes, size_t n_bytes)
{
    static const char magic[] = {'\x1f', '\x8b'};
    return n_bytes >= sizeof(magic) && memcmp(bytes, magic, sizeof(magic)) == 0;
}

static struct packed find_format(enum compress_format format, const char *bytes, size_t n_bytes)
{
    struct packed p = {.format = format, .bytes = bytes, .n_bytes = n_bytes};
    if (format == COMPRESS_DETECT) {
        p.format = begins_gzip(bytes, n_bytes) ? COMPRESS_GZIP : COMPRESS_ZLIB;
        p.has_members = p.format == COMPRESS_GZIP;
    }
    return p;
}

/* Unpacks all members. A message has one, unless it may have more. */
static enum libdeflate_result unpack_into(struct compress *c, const struct packed *p, char *out,
                                          size_t room, size_t *ret_written)
{
    const char *at = p->bytes, *end = at + p->n_bytes;
    size_t n_read, n_written;
    *ret_written = 0;
    do {
        enum libdeflate_result result =
            p->format == COMPRESS_GZIP
                ? libdeflate_gzip_decompress_ex(c->unpack, at, (size_t)(end - at), out, room,
                                                &n_read, &n_written)
                : libdeflate_zlib_decompress_ex(c->unpack, at, (size_t)(end - at), out, room,
                                                &n_read, &n_written);
        if (result != LIBDEFLATE_SUCCESS)
            return result;
        at += n_read;
        out += n_written;
        room -= n_written;
        *ret_written += n_written;
    } while (p->has_members && begins_gzip(at, (size_t)(end - at)));
    return at == end ? LIBDEFLATE_SUCCESS : LIBDEFLATE_BAD_DATA;
}

static const char *format_name(enum compress_format format)
{
    return format == COMPRESS_GZIP ? "gzip" : "deflate";
}

struct status *compress_unpack(struct compress *c, enum compress_format format, const void *bytes,
                               size_t n_bytes, const struct compress_target *target,
                               char **ret_block, size_t *ret_bytes)
{
    struct packed p = find_format(format, bytes, n_bytes);
    size_t most = target->max_bytes, room = MIN(first_room(p.format, bytes, n_bytes), most), total;
    if (!c->unpack)
        c->unpack = libdeflate_alloc_decompressor();
    if (!c->unpack)
        return status_no_memory();
    for (;;) {
        if (__builtin_add_overflow(target->lead_bytes, room, &total))
            return status_no_memory();
        char *block = pool_alloc(target->pool, total, target->owner);
        if (!block)
            return status_no_memory();
        enum libdeflate_result result =
            unpack_into(c, &p, block + target->lead_bytes, room, ret_bytes);
        if (result == LIBDEFLATE_SUCCESS) {
            *ret_block = block;
            return NULL;
        }
        pool_release(block);
        if (result != LIBDEFLATE_INSUFFICIENT_SPACE)
            return status_new(STATUS_INVALID_ARG, "%zu bytes are not valid %s", n_bytes,
                              format_name(p.format));
        if (room == most)
            return status_new(STATUS_UNSUPPORTED, "%zu bytes unpack to more than %zu bytes",
                              n_bytes, most);
        room = MIN(multiply(room, 2), most);
    }
}

/* ---- Packing -------------------------------------------------------------------------------- */

/* Joins all pieces in one block; NULL: no memory. */
static char *copy_pieces_together(const struct iovec *pieces, size_t n_pieces, size_t total,
                                  struct pool *pool, struct mem_owner *owner)
{
    char *joined = pool_alloc(pool, total, owner), *at = joined;
    for (size_t i = 0; joined && i < n_pieces; i++) {
        if (pieces[i].iov_len)
            memcpy(at, pieces[i].iov_base, pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    return joined;
}

static size_t pack_bytes(struct compress *c, enum compress_format format, const void *bytes,
                         size_t n_bytes, char *out, size_t room)
{
    return format == COMPRESS_GZIP ? libdeflate_gzip_compress(c->pack, bytes, n_bytes, out, room)
                                   : libdeflate_zlib_compress(c->pack, bytes, n_bytes, out, room);
}

struct status *compress_pack(struct compress *c, enum compress_format format,
                             const struct iovec *pieces, size_t n_pieces, struct pool *pool,
                             struct mem_owner *owner, char **ret_block, size_t *ret_bytes)
{
    size_t total = 0;
    if (!c->pack)
        c->pack = libdeflate_alloc_compressor(LEVEL);
    if (!c->pack)
        return status_no_memory();
    for (size_t i = 0; i < n_pieces; i++)
        total += pieces[i].iov_len;
    char *joined =
        n_pieces == 1 ? NULL : copy_pieces_together(pieces, n_pieces, total, pool, owner);
    const void *bytes = n_pieces == 1 ? pieces[0].iov_base : joined;
    size_t room = format == COMPRESS_GZIP ? libdeflate_gzip_compress_bound(c->pack, total)
                                          : libdeflate_zlib_compress_bound(c->pack, total);
    char *block = bytes || total == 0 ? pool_alloc(pool, room, owner) : NULL;
    size_t n = block ? pack_bytes(c, format, bytes ? bytes : "", total, block, room) : 0;
    pool_release(joined);
    if (n == 0) {
        pool_release(block);
        return status_no_memory();
    }
    *ret_block = block;
    *ret_bytes = n;
    return NULL;
}
