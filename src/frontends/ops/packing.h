/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing and unpacking of the messages and bodies of a loop, whatever their protocol. What is
 * small is done on the loop; what would hold it up is left to helper threads (helpers.h).
 *
 *     packing_run ─┬─► packed and unpacked bytes are few: compress_… ─► on_done
 *                  ▼
 *     packing_begin ──► a packer is free: control_call_begin ─► compress_… ─► on_done
 *                  └──► or the job waits for one, in the order of its arrival
 *
 * A loop has PACKING_THREADS packers, each with tables of its own. So the messages of one loop
 * keep no more threads busy, and each call has one job each way at the most.
 *
 * Thread: the loop's; large jobs run on helpers.
 */
#ifndef CONCH_FRONTENDS_OPS_PACKING_H
#define CONCH_FRONTENDS_OPS_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/compress.h"
#include "base/list.h"

struct loop;
struct pool;
struct server;
struct status;

enum {
    PACKING_THREADS = 2,
    PACKING_HERE_BYTES = 32 << 10, /* up to this size, packed or not, the loop does it */
};

struct packing_job {
    /* Set by the owner, constant while the job runs. */
    bool unpacks;
    enum compress_format format;
    const struct iovec *pieces; /* their bytes stay as they are */
    uint32_t n_pieces;          /* to unpack: 1 */
    size_t lead_bytes;          /* to unpack: bytes of the block in front of the unpacked ones */
    size_t max_bytes;           /* … and the most that these may be */
    struct pool *pool;          /* of the result */
    const bool *is_over;        /* the loop's: nobody waits for the result; may become true */
    void (*on_done)(struct packing_job *job); /* on the loop; the job is the owner's again */

    /* The result: an error, or a block, which is the owner's. */
    struct status *error;
    char *block;
    size_t n_bytes;

    struct list link; /* while it waits for a packer */
};

struct packing;

/* packing_new - for the messages of one loop. The caller ends it by packing_free() without jobs. */
struct packing *packing_new(struct server *server, struct loop *loop);
void packing_free(struct packing *p);

/*
 * packing_begin - has a helper pack or unpack. on_done() follows in any case; without helper
 * threads before this returns. A job whose turn comes when *is_over is true ends with
 * STATUS_CANCELLED.
 *
 * Errors of a job: as compress_pack() and compress_unpack() have them
 */
void packing_begin(struct packing *p, struct packing_job *job);

/* packing_run - the same, but a small job is done before this returns. */
void packing_run(struct packing *p, struct packing_job *job);

#endif
