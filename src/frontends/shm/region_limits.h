/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many regions of shared memory there may be, and how many bytes; and who unmaps them. A region
 * counts from its registration until it is unmapped, whether it has a name or not. Shared by the
 * table of regions and by each region. Thread: any.
 */
#ifndef CONCH_FRONTENDS_SHM_REGION_LIMITS_H
#define CONCH_FRONTENDS_SHM_REGION_LIMITS_H

#include <stdint.h>

#include "base/compiler.h"
#include "core/threads/control.h"

struct region_limits;
struct server;
struct status;

enum region_kind { REGION_SYSTEM, REGION_CUDA };
enum { REGION_KINDS = 2 };

/*
 * region_limits_new - the caller has the first reference.
 *
 * @server  whose helper threads unmap regions; borrowed until region_limits_close(). NULL: none
 */
struct region_limits *region_limits_new(unsigned int max_regions, uint64_t max_bytes,
                                        struct server *server);
struct region_limits *region_limits_ref(struct region_limits *l);
void region_limits_unref(struct region_limits *l);

/* region_limits_close - from now on regions are unmapped by the thread that gives them up. */
void region_limits_close(struct region_limits *l);

/*
 * region_limits_take - counts one more region. One caller at a time.
 * region_limits_give - counts one less.
 *
 * @name   of the region, for the error
 * Errors: STATUS_EXHAUSTED  a limit is reached, by the regions of all kinds together
 */
NODISCARD struct status *region_limits_take(struct region_limits *l, enum region_kind kind,
                                            const char *name, uint64_t size_bytes);
void region_limits_give(struct region_limits *l, enum region_kind kind, uint64_t size_bytes);

/* The regions of a kind that count, whether they have a name or not. */
struct region_total {
    unsigned int n_regions;
    uint64_t n_bytes;
};

/* region_limits_count - what counts now. */
struct region_total region_limits_count(const struct region_limits *l, enum region_kind kind);

/* region_limits_run - runs a job that may take long, on a helper thread if there is one. */
void region_limits_run(struct region_limits *l, struct control_job *job);

#endif
