/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of one inference that lie in regions of the client's (shm/region.h): inputs, which
 * are used where they lie, and outputs, which the backend writes there. Strings are copied before
 * the core gets the request (region_copy.h), since the client could change their lengths after the
 * check. Inputs in memory of a GPU are copied then, too; outputs get memory of the host, and are
 * copied to the GPU before the response leaves (region_delivery.h).
 *
 * Each entry has a reference to its region. A few lie in the struct itself, further ones in blocks
 * of the request's pool. Thread: one at a time.
 */
#ifndef CONCH_FRONTENDS_OPS_TENSOR_REGIONS_H
#define CONCH_FRONTENDS_OPS_TENSOR_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/request/response.h"

struct region;
struct region_delivery;
struct regions;
struct tensor_blocks;

/* A tensor in a region. */
struct region_use {
    struct region_use *next;
    struct region *region; /* a reference */
    char *base;            /* NULL: in memory of a GPU */
    uint64_t offset;
    size_t size_bytes;
    const char *output; /* its name; NULL: an input */
    char *copy;         /* the block into which the input is still to be copied; NULL: none */
};

enum { TENSOR_REGIONS_OWN = 4 };

struct tensor_regions {
    struct regions *table;    /* that knows the names; borrowed; NULL: an empty one */
    struct region_use *first; /* NULL: none */
    uint32_t n_own;           /* of those in `own` that are in use */
    bool has_outputs;
    bool waits_for_gpu;               /* an input lies in memory of a GPU */
    struct region_delivery *delivery; /* an output is to lie there; or NULL */
    size_t copy_bytes;                /* of all inputs that are still to be copied */
    struct region_use own[TENSOR_REGIONS_OWN];
};

/* tensor_regions_init - begins without tensors. */
static inline void tensor_regions_init(struct tensor_regions *t, struct regions *table)
{
    t->table = table;
    t->first = NULL;
    t->n_own = 0;
    t->has_outputs = t->waits_for_gpu = false;
    t->delivery = NULL;
    t->copy_bytes = 0;
}

/* A part of a region, as a request names it. */
struct region_part {
    const char *name;
    size_t name_length;
    uint64_t offset, size_bytes;
};

/*
 * tensor_regions_add_input - appends the part to the data of an input. The bytes of strings are
 * there only after tensor_regions_copy().
 *
 * @blocks  gets the memory for a copy of strings
 * Errors: those of regions_use(); STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *tensor_regions_add_input(struct tensor_regions *t, struct request *r,
                                                  struct input *in, const struct region_part *part,
                                                  struct tensor_blocks *blocks);

/*
 * tensor_regions_copy - copies the strings, and inputs in memory of a GPU. To be called before the
 * core gets the request, by region_copy.c. Thread: any; takes as long as the copies.
 *
 * Errors: STATUS_INTERNAL  as region_read()
 */
NODISCARD struct status *tensor_regions_copy(struct tensor_regions *t);

/*
 * tensor_regions_add_output - has that output written there.
 *
 * @name    of the output; borrowed until tensor_regions_release()
 * Errors: as tensor_regions_add_input()
 */
NODISCARD struct status *tensor_regions_add_output(struct tensor_regions *t, struct request *r,
                                                   const char *name,
                                                   const struct region_part *part);

/*
 * tensor_regions_alloc, tensor_regions_free - alloc_output and free_output of struct request_ops.
 * Outputs that were requested elsewhere, or in memory of a GPU, come from the pool, as with
 * response_alloc_pooled(). So do strings of an ensemble: they may be the input of another step,
 * too, which relies on lengths that the client could change.
 *
 * Thread: any.
 * Errors: STATUS_INTERNAL  the part is too small (reference/behaviours §9.6)
 */
NODISCARD struct status *tensor_regions_alloc(const struct tensor_regions *t, struct request *r,
                                              struct output *out, size_t size_bytes);
void tensor_regions_free(struct request *r, struct output *out);

/* tensor_regions_holds - whether the output lies in a region. Thread: any. */
static inline bool tensor_regions_holds(const struct output *out)
{
    return out->maker_data != NULL;
}

/* What the two functions below do for a request that has tensors in regions. */
NODISCARD struct status *tensor_regions_finish_all(const struct tensor_regions *t,
                                                   struct response *resp);
void tensor_regions_release_all(struct tensor_regions *t);

/*
 * tensor_regions_finish - to be called before a response is sent: copies outputs that could not be
 * written to their regions, and looks whether the regions are whole.
 *
 * @resp   NULL: a response without outputs
 * Errors: STATUS_INTERNAL  a region was shrunk while it was in use
 */
NODISCARD static inline struct status *tensor_regions_finish(const struct tensor_regions *t,
                                                             struct response *resp)
{
    return LIKELY(!t->first) ? NULL : tensor_regions_finish_all(t, resp);
}

/* tensor_regions_release - gives up the references. Neither backend nor response uses them. */
static inline void tensor_regions_release(struct tensor_regions *t)
{
    if (UNLIKELY(t->first != NULL))
        tensor_regions_release_all(t);
}

#endif
