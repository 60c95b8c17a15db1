/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region: a part of a client's shared memory, which the client has registered under a name. It is
 * shared: the table of regions (regions.h) has a reference while the name is registered, and each
 * request that uses it has one. The last reference unmaps it.
 *
 * Constant from its making on, but for the count of references. Thread: any.
 */
#ifndef CONCH_FRONTENDS_SHM_REGION_H
#define CONCH_FRONTENDS_SHM_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/threads/control.h"
#include "frontends/shm/mapping.h"
#include "frontends/shm/region_limits.h"

struct status;

struct region {
    atomic_uint refs;
    enum region_kind kind;
    struct region_limits *limits; /* a reference: it counts there */
    char *name;
    char *key;           /* of shm_open(); of a system region */
    uint64_t offset;     /* in the object; of a system region */
    int64_t device_id;   /* of a CUDA region */
    uint64_t size_bytes; /* as the client said */
    int fd;              /* of the object, by which its size is asked; -1: none */
    struct mapping mapping;
    struct cuda_memory *cuda; /* of a CUDA region; NULL: it is a system region */
    struct control_job end;   /* unmaps it */
};

/*
 * region_open - opens and maps a client's object. The caller has the first reference.
 *
 * Thread: control: may block.
 * @limits where the region counts; one caller at a time
 * @key    the name of the object for shm_open(), without anything else in front or behind
 * Errors: STATUS_INTERNAL     the object cannot be opened, or is not a client's
 *         STATUS_EXHAUSTED    as region_limits_take()
 *         STATUS_INVALID_ARG  it has not that part; the offset is not at a page's beginning
 */
NODISCARD struct status *region_open(struct region_limits *limits, const char *name,
                                     const char *key, uint64_t offset, uint64_t size_bytes,
                                     struct region **ret_region);

/*
 * region_open_cuda - opens a client's memory of a GPU. Only where cuda_is_there(). The caller has
 * the first reference.
 *
 * Thread: control: may block.
 * @handle  CUDA_HANDLE_BYTES
 * Errors: STATUS_EXHAUSTED    as region_limits_take()
 *         those of cuda_memory_open()
 */
NODISCARD struct status *region_open_cuda(struct region_limits *limits, const char *name,
                                          const void *handle, int64_t device_id,
                                          uint64_t size_bytes, struct region **ret_region);

void region_ref(struct region *r);
/* region_unref - the last one has the region unmapped by a control thread. NULL is fine. */
void region_unref(struct region *r);

/*
 * region_view - the address of a part of the region; NULL for memory of a GPU, which only
 * region_read() and region_write() access. Asks the system for the object's present size.
 *
 * Errors: STATUS_INVALID_ARG  reference/behaviours §9.3; the object has been shrunk
 *         STATUS_INTERNAL     as region_check()
 */
NODISCARD struct status *region_view(const struct region *r, uint64_t offset, uint64_t size_bytes,
                                     char **ret_base);

/* region_check - Errors: STATUS_INTERNAL  a part was missing when it was accessed. */
NODISCARD struct status *region_check(const struct region *r);

/*
 * region_read, region_write - copy a part, for which region_view() had no error. Thread: any that
 * may block: a helper's for memory of a GPU.
 *
 * Errors: STATUS_INTERNAL  as region_check(); the driver's, with the region's name
 */
NODISCARD struct status *region_read(const struct region *r, uint64_t offset, void *to,
                                     size_t n_bytes);
NODISCARD struct status *region_write(const struct region *r, uint64_t offset, const void *from,
                                      size_t n_bytes);

#endif
