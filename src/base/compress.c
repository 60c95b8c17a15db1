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
    MAX_HEAD_BYTES = 4096,
    MIN_BULK_BYTES = 64 << 10,
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

/* Joins the pieces, and packs them. 0: no memory. */
static size_t pack_joined(struct compress *c, enum compress_format format,
                          const struct iovec *pieces, size_t n_pieces, size_t total,
                          struct pool *pool, struct mem_owner *owner, char **ret_block)
{
    char *joined =
        n_pieces == 1 ? NULL : copy_pieces_together(pieces, n_pieces, total, pool, owner);
    const void *bytes = n_pieces == 1 ? pieces[0].iov_base : joined;
    size_t room = format == COMPRESS_GZIP ? libdeflate_gzip_compress_bound(c->pack, total)
                                          : libdeflate_zlib_compress_bound(c->pack, total);
    *ret_block = bytes || total == 0 ? pool_alloc(pool, room, owner) : NULL;
    size_t n = *ret_block ? pack_bytes(c, format, bytes ? bytes : "", total, *ret_block, room) : 0;
    pool_release(joined);
    return n;
}

/* ---- A short head and one large piece ------------------------------------------------------- */

/*
 * A reply is mostly a short text and one large tensor. Joining them would copy the tensor, which is
 * 0.7 % of the time that packing takes. So the head becomes a stored block of deflate (RFC 1951,
 * 3.2.4), and libdeflate makes the blocks of the large piece behind it.
 */

/* Whether the pieces are such: the bytes in front of the last are `head_bytes`. */
static bool has_short_head(const struct iovec *pieces, size_t n_pieces, size_t head_bytes)
{
    return n_pieces > 1 && head_bytes > 0 && head_bytes <= MAX_HEAD_BYTES &&
           pieces[n_pieces - 1].iov_len >= MIN_BULK_BYTES;
}

static char *copy_bytes_to(char *at, const void *bytes, size_t n_bytes)
{
    memcpy(at, bytes, n_bytes);
    return at + n_bytes;
}

static char *put_stored(char *at, const struct iovec *pieces, size_t n_pieces, size_t n_bytes)
{
    uint16_t length = htole16((uint16_t)n_bytes), complement = htole16((uint16_t)~n_bytes);
    *at++ = 0; /* stored, not the last block */
    at = copy_bytes_to(at, &length, sizeof(length));
    at = copy_bytes_to(at, &complement, sizeof(complement));
    for (size_t i = 0; i < n_pieces; i++) {
        if (pieces[i].iov_len)
            at = copy_bytes_to(at, pieces[i].iov_base, pieces[i].iov_len);
    }
    return at;
}

static uint32_t checksum_pieces(enum compress_format format, const struct iovec *pieces,
                                size_t n_pieces)
{
    uint32_t sum =
        format == COMPRESS_GZIP ? libdeflate_crc32(0, NULL, 0) : libdeflate_adler32(0, NULL, 0);
    for (size_t i = 0; i < n_pieces; i++) {
        if (pieces[i].iov_len == 0)
            continue;
        sum = format == COMPRESS_GZIP
                  ? libdeflate_crc32(sum, pieces[i].iov_base, pieces[i].iov_len)
                  : libdeflate_adler32(sum, pieces[i].iov_base, pieces[i].iov_len);
    }
    return sum;
}

/* The trailers of gzip (RFC 1952) and of zlib (RFC 1950). */
static char *put_trailer(char *at, enum compress_format format, uint32_t sum, size_t total)
{
    uint32_t gzip[] = {htole32(sum), htole32((uint32_t)total)}, zlib = htobe32(sum);
    return format == COMPRESS_GZIP ? copy_bytes_to(at, gzip, sizeof(gzip))
                                   : copy_bytes_to(at, &zlib, sizeof(zlib));
}

/* 0: no memory. */
static size_t pack_behind_head(struct compress *c, enum compress_format format,
                               const struct iovec *pieces, size_t n_pieces, size_t head_bytes,
                               struct pool *pool, struct mem_owner *owner, char **ret_block)
{
    static const char gzip_header[] = {'\x1f', '\x8b', 8, 0, 0, 0, 0, 0, 0, '\xff'};
    static const char zlib_header[] = {'\x78', '\x9c'};
    enum { AROUND_BYTES = sizeof(gzip_header) + 5 + 8 }; /* header, head of the block, trailer */
    const struct iovec *bulk = &pieces[n_pieces - 1];
    size_t room = libdeflate_deflate_compress_bound(c->pack, bulk->iov_len);
    char *block = *ret_block = pool_alloc(pool, AROUND_BYTES + head_bytes + room, owner), *at;
    if (!block)
        return 0;
    at = format == COMPRESS_GZIP ? copy_bytes_to(block, gzip_header, sizeof(gzip_header))
                                 : copy_bytes_to(block, zlib_header, sizeof(zlib_header));
    at = put_stored(at, pieces, n_pieces - 1, head_bytes);
    size_t n = libdeflate_deflate_compress(c->pack, bulk->iov_base, bulk->iov_len, at, room);
    if (n == 0)
        return 0;
    at = put_trailer(at + n, format, checksum_pieces(format, pieces, n_pieces),
                     head_bytes + bulk->iov_len);
    return (size_t)(at - block);
}

struct status *compress_pack(struct compress *c, enum compress_format format,
                             const struct iovec *pieces, size_t n_pieces, struct pool *pool,
                             struct mem_owner *owner, char **ret_block, size_t *ret_bytes)
{
    size_t total = 0, last_bytes = n_pieces ? pieces[n_pieces - 1].iov_len : 0;
    char *block = NULL;
    if (!c->pack)
        c->pack = libdeflate_alloc_compressor(LEVEL);
    if (!c->pack)
        return status_no_memory();
    for (size_t i = 0; i < n_pieces; i++)
        total += pieces[i].iov_len;
    size_t n =
        has_short_head(pieces, n_pieces, total - last_bytes)
            ? pack_behind_head(c, format, pieces, n_pieces, total - last_bytes, pool, owner, &block)
            : pack_joined(c, format, pieces, n_pieces, total, pool, owner, &block);
    if (n == 0) {
        pool_release(block);
        return status_no_memory();
    }
    *ret_block = block;
    *ret_bytes = n;
    return NULL;
}
