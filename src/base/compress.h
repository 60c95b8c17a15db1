/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole messages and bodies in gzip and in zlib's format (which protocols call deflate), both ways,
 * by libdeflate.
 *
 * A struct compress keeps the library's state and tables from one message to the next, so that only
 * the results are allocated in the long run. It takes some 10 KiB for unpacking and 700 KiB for
 * packing, each made at its first use. Thread: one at a time.
 */
#ifndef CONCH_BASE_COMPRESS_H
#define CONCH_BASE_COMPRESS_H

#include <stddef.h>
#include <sys/uio.h>

#include "base/compiler.h"

struct compress;
struct mem_owner;
struct pool;
struct status;

/* COMPRESS_DETECT, for unpacking alone: gzip of one or more members, or zlib, as the bytes begin.
 */
enum compress_format { COMPRESS_ZLIB, COMPRESS_GZIP, COMPRESS_DETECT };

/* compress_new - the caller ends it with compress_free(), where NULL is fine. */
struct compress *compress_new(void);
void compress_free(struct compress *c);

/* Where unpacked bytes go. */
struct compress_target {
    struct pool *pool;
    struct mem_owner *owner; /* the account that is charged for the block; NULL: none */
    size_t lead_bytes;       /* at the beginning of the block, which stay free */
    size_t max_bytes;        /* … and the most that follow them */
};

/*
 * compress_unpack - the unpacked bytes in a block of the pool, which the caller releases.
 *
 * The block never has more than the target allows, and at most some times the packed bytes or twice
 * the unpacked ones, whatever the packed bytes promise.
 *
 * @ret_bytes  the unpacked bytes, without those in front of them
 * Errors: STATUS_INVALID_ARG  the bytes are not of that format, end early or go on behind their end
 *         STATUS_UNSUPPORTED  the bytes unpack to more than target->max_bytes
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *compress_unpack(struct compress *c, enum compress_format format,
                                         const void *bytes, size_t n_bytes,
                                         const struct compress_target *target, char **ret_block,
                                         size_t *ret_bytes);

/*
 * compress_pack - the packed bytes in a block of the pool, which the caller releases.
 *
 * @pieces  the bytes; several are copied together first, unless they are a short head (up to 4 KiB)
 *          and one large piece
 * @owner   the account that is charged for the block; NULL: none
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *compress_pack(struct compress *c, enum compress_format format,
                                       const struct iovec *pieces, size_t n_pieces,
                                       struct pool *pool, struct mem_owner *owner, char **ret_block,
                                       size_t *ret_bytes);

#endif
