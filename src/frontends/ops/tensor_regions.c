/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list, since most requests have few tensors. An output that lies in a region has its entry in
 * output.maker_data. Threads: entries are constant once the core has the request.
 */
#include "frontends/ops/tensor_regions.h"

#include <string.h>

#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "frontends/ops/region_delivery.h"
#include "frontends/ops/tensor_blocks.h"
#include "frontends/shm/regions.h"

static bool is_own(const struct tensor_regions *t, const struct region_use *u)
{
    return u >= t->own && u < t->own + TENSOR_REGIONS_OWN;
}

static struct region_use *take_entry(struct tensor_regions *t, struct request *r)
{
    if (t->n_own < TENSOR_REGIONS_OWN)
        return &t->own[t->n_own++];
    return pool_alloc(r->pool, sizeof(struct region_use), r->model->owner);
}

static void give_entry(struct tensor_regions *t, struct region_use *u)
{
    if (!is_own(t, u))
        pool_release(u);
}

static struct status *add_use(struct tensor_regions *t, struct request *r,
                              const struct region_part *part, struct region_use **ret)
{
    struct region_use *u = take_entry(t, r);
    if (!u)
        return status_no_memory();
    struct status *st = regions_use(t->table, part->name, part->name_length, part->offset,
                                    part->size_bytes, &u->region, &u->base);
    if (st) {
        give_entry(t, u);
        return st;
    }
    u->offset = part->offset;
    u->size_bytes = part->size_bytes;
    u->output = NULL;
    u->copy = NULL;
    u->next = t->first;
    t->first = *ret = u;
    return NULL;
}

/* Lengths of strings are checked once and read again by backends: the client must not reach them.
 * Memory of a GPU has no address here. */
static struct status *plan_copy(struct tensor_regions *t, struct request *r,
                                struct tensor_blocks *blocks, struct region_use *u,
                                const void **ret_base)
{
    char *copy = tensor_blocks_add(blocks, r->pool, u->size_bytes, r->model->owner);
    if (!copy)
        return status_no_memory();
    u->copy = copy;
    t->copy_bytes += u->size_bytes; /* no overflow: the regions are mapped, each input has memory */
    *ret_base = copy;
    return NULL;
}

struct status *tensor_regions_copy(struct tensor_regions *t)
{
    t->copy_bytes = 0;
    for (struct region_use *u = t->first; u; u = u->next) {
        if (!u->copy)
            continue;
        struct status *st = region_read(u->region, u->offset, u->copy, u->size_bytes);
        u->copy = NULL;
        if (st)
            return st;
    }
    return NULL;
}

struct status *tensor_regions_add_input(struct tensor_regions *t, struct request *r,
                                        struct input *in, const struct region_part *part,
                                        struct tensor_blocks *blocks)
{
    struct region_use *u;
    struct status *st = add_use(t, r, part, &u);
    if (st)
        return st;
    struct tensor_buffer data = {.base = u->base, .size_bytes = u->size_bytes};
    t->waits_for_gpu |= !u->base;
    if (in->dtype == DTYPE_BYTES || !u->base)
        st = plan_copy(t, r, blocks, u, &data.base);
    return st ? st : request_add_data(r, in, &data);
}

static struct region_use *find_output(const struct tensor_regions *t, const char *name)
{
    struct region_use *u = t->first;
    while (u && (!u->output || strcmp(u->output, name) != 0))
        u = u->next;
    return u;
}

/* Copies the outputs that are to lie in memory of a GPU. Thread: a helper's. */
static struct status *write_outputs(const struct tensor_regions *t, struct response *resp)
{
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        struct output *out = resp->outputs[i];
        struct region_use *u = find_output(t, out->name);
        if (!u || u->base)
            continue;
        struct status *st = NULL;
        if (out->size_bytes > 0) /* no more than u->size_bytes: tensor_regions_alloc() */
            st = region_write(u->region, u->offset, out->base, out->size_bytes);
        if (st)
            return st;
        out->maker_data = u;
    }
    return NULL;
}

struct status *tensor_regions_add_output(struct tensor_regions *t, struct request *r,
                                         const char *name, const struct region_part *part)
{
    struct region_use *u;
    struct status *st = add_use(t, r, part, &u);
    if (st)
        return st;
    u->output = name;
    t->has_outputs = true;
    if (LIKELY(u->base || t->delivery))
        return NULL;
    t->delivery = region_delivery_new(r, t, write_outputs, u->region);
    return t->delivery ? NULL : status_no_memory();
}

struct status *tensor_regions_alloc(const struct tensor_regions *t, struct request *r,
                                    struct output *out, size_t size_bytes)
{
    struct region_use *u = find_output(t, out->name);
    if (!u)
        return response_alloc_pooled(r, out, size_bytes);
    if (size_bytes > u->size_bytes)
        return status_new(STATUS_INTERNAL,
                          "shared memory size specified with the request for output '%s' (%zu "
                          "bytes) should be at least %zu bytes to hold the results",
                          out->name, u->size_bytes, size_bytes);
    if (!u->base || (out->dtype == DTYPE_BYTES && r->model->members))
        return response_alloc_pooled(r, out, size_bytes);
    out->memory_type = MEMORY_CPU;
    out->memory_type_id = 0;
    out->base = u->base;
    out->maker_data = u;
    return NULL;
}

void tensor_regions_free(struct request *r, struct output *out)
{
    const struct region_use *u = out->maker_data;
    if (!u || out->base != u->base)
        response_free_pooled(r, out);
}

static void copy_outputs(const struct tensor_regions *t, struct response *resp)
{
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        struct output *out = resp->outputs[i];
        struct region_use *u = tensor_regions_holds(out) ? NULL : find_output(t, out->name);
        if (!u)
            continue;
        if (out->size_bytes > 0) /* no more than u->size_bytes: tensor_regions_alloc() */
            memcpy(u->base, out->base, out->size_bytes);
        out->maker_data = u;
    }
}

struct status *tensor_regions_finish_all(const struct tensor_regions *t, struct response *resp)
{
    if (UNLIKELY(t->has_outputs) && resp && !resp->error)
        copy_outputs(t, resp);
    for (const struct region_use *u = t->first; u; u = u->next) {
        struct status *st = region_check(u->region);
        if (UNLIKELY(st != NULL))
            return st;
    }
    return NULL;
}

void tensor_regions_release_all(struct tensor_regions *t)
{
    struct region_use *u = t->first;
    region_delivery_free(t->delivery);
    while (u) {
        struct region_use *next = u->next;
        region_unref(u->region);
        give_entry(t, u);
        u = next;
    }
    tensor_regions_init(t, t->table);
}
