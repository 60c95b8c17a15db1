/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed messages, and bodies of HTTP, whose format is detected. The first byte chooses. What
 * unpacks is packed again, and must unpack to the same bytes. Anything else is refused without a
 * leak.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compress.h"
#include "base/pool.h"
#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LEAD = 24 };

static void expect(bool fine)
{
    if (!fine)
        abort();
}

static void pack_again(struct compress *c, enum compress_format format, struct pool *pool,
                       char *bytes, size_t n, size_t max)
{
    struct iovec pieces[] = {{bytes, n / 2}, {bytes + n / 2, n - n / 2}};
    char *packed, *unpacked;
    size_t n_packed, n_unpacked;
    expect(!compress_pack(c, format, pieces, 2, pool, NULL, &packed, &n_packed));
    struct compress_target target = {.pool = pool, .lead_bytes = LEAD, .max_bytes = max};
    expect(!compress_unpack(c, format, packed, n_packed, &target, &unpacked, &n_unpacked));
    expect(n_unpacked == n && memcmp(unpacked + LEAD, bytes, n) == 0);
    pool_release(packed);
    pool_release(unpacked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAX = 1 << 20 };
    static struct pool *pool;
    static struct compress *c;
    struct pool_stats stats;
    char *block;
    size_t n;
    if (!pool) {
        pool = pool_new("fuzz", 1 << 20, 16 << 20);
        c = compress_new();
    }
    if (size == 0)
        return 0;
    static const enum compress_format formats[] = {COMPRESS_ZLIB, COMPRESS_GZIP, COMPRESS_DETECT,
                                                   COMPRESS_DETECT};
    enum compress_format format = formats[data[0] & 3];
    struct compress_target target = {.pool = pool, .lead_bytes = LEAD, .max_bytes = MAX};
    struct status *st = compress_unpack(c, format, data + 1, size - 1, &target, &block, &n);
    if (!st) {
        expect(n <= MAX);
        memset(block, 0, LEAD);
        pack_again(c, format == COMPRESS_DETECT ? COMPRESS_GZIP : format, pool, block + LEAD, n,
                   MAX);
        pool_release(block);
    }
    status_free(st);
    pool_stats(pool, &stats);
    expect(stats.used_bytes == 0);
    return 0;
}
