/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copies that an inference with tensors in shared memory needs before the core gets it
 * (tensor_regions.h): its strings, and what lies in memory of a GPU. Few bytes of strings are
 * copied at once; all else, which would hold the loop up, by a helper thread.
 *
 *     tensor_regions_add_input ─► region_copy_begin ─┬─► true: all is there
 *              (each input)                          └─► false: a helper copies ─► on_copied
 *
 * Thread: the loop's; the copies of a large tensor are made on a helper.
 */
#ifndef CONCH_FRONTENDS_OPS_REGION_COPY_H
#define CONCH_FRONTENDS_OPS_REGION_COPY_H

#include <stdbool.h>

#include "base/compiler.h"

struct loop;
struct request;
struct server;
struct status;
struct tensor_regions;

enum { REGION_COPY_HERE_BYTES = 32 << 10 }; /* up to this size the loop copies */

/* What follows a copy by a helper, on the loop: st is NULL, or the error, which is taken. */
typedef void (*region_copied_fn)(struct tensor_regions *t, struct status *st);

/*
 * region_copy_begin - copies what the inputs of t need. True: this is done, or nothing was to do.
 * False: a helper does it, and on_copied() follows, never before this returns; until then t, its
 * blocks and r stay as they are, except that the caller may note that nobody waits any more.
 *
 * @r       not with the core yet; its arena keeps the job
 * @ret_st  set with true: NULL, or the error
 *          STATUS_INTERNAL     as region_check()
 *          STATUS_UNAVAILABLE  no memory
 */
NODISCARD bool region_copy_begin(struct tensor_regions *t, struct request *r, struct server *server,
                                 struct loop *loop, region_copied_fn on_copied,
                                 struct status **ret_st);

#endif
