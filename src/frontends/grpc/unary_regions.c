/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods for shared memory of clients (reference/features §2 rows 13 to 18). Threads: a
 * control thread's for registering and unregistering, which may block; the loop's for the status.
 */
#include <string.h>

#include "base/status.h"
#include "frontends/grpc/unary_priv.h"
#include "frontends/shm/regions.h"
#include "proto/inference.pb-c.h"

/* ---- Status ---------------------------------------------------------------------------------- */

typedef Inference__SystemSharedMemoryStatusResponse system_answer;
typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus system_region;
typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry system_entry;
typedef Inference__CudaSharedMemoryStatusResponse cuda_answer;
typedef Inference__CudaSharedMemoryStatusResponse__RegionStatus cuda_region;
typedef Inference__CudaSharedMemoryStatusResponse__RegionsEntry cuda_entry;

static char *copy_region_text(struct unary_call *c, const char *text)
{
    return arena_strndup(c->arena, text, strlen(text));
}

static bool add_system_region(struct unary_call *c, system_answer *answer, const struct region *r)
{
    system_entry *entry = UNARY_NEW(
        c, system_entry, inference__system_shared_memory_status_response__regions_entry__init);
    system_region *value = UNARY_NEW(
        c, system_region, inference__system_shared_memory_status_response__region_status__init);
    if (!entry || !value)
        return false;
    value->name = entry->key = copy_region_text(c, r->name);
    value->key = copy_region_text(c, r->key);
    value->offset = r->offset;
    value->byte_size = r->size_bytes;
    entry->value = value;
    answer->regions[answer->n_regions++] = entry;
    return value->name && value->key;
}

static bool add_cuda_region(struct unary_call *c, cuda_answer *answer, const struct region *r)
{
    cuda_entry *entry = UNARY_NEW(
        c, cuda_entry, inference__cuda_shared_memory_status_response__regions_entry__init);
    cuda_region *value = UNARY_NEW(
        c, cuda_region, inference__cuda_shared_memory_status_response__region_status__init);
    if (!entry || !value)
        return false;
    value->name = entry->key = copy_region_text(c, r->name);
    value->device_id = (uint64_t)r->device_id;
    value->byte_size = r->size_bytes;
    entry->value = value;
    answer->regions[answer->n_regions++] = entry;
    return value->name != NULL;
}

struct status *unary_system_memory_status(struct unary_call *c)
{
    const Inference__SystemSharedMemoryStatusRequest *asked =
        (const Inference__SystemSharedMemoryStatusRequest *)c->request;
    system_answer *answer = (system_answer *)c->answer;
    struct region **list;
    size_t n;
    struct status *st = regions_list(c->regions, asked->name, REGION_SYSTEM, &list, &n);
    if (st)
        return st;
    answer->regions = unary_alloc(c, n, sizeof(*answer->regions));
    bool fine = answer->regions != NULL;
    for (size_t i = 0; fine && i < n; i++)
        fine = add_system_region(c, answer, list[i]);
    regions_list_free(list, n);
    return fine ? NULL : status_no_memory();
}

struct status *unary_cuda_memory_status(struct unary_call *c)
{
    const Inference__CudaSharedMemoryStatusRequest *asked =
        (const Inference__CudaSharedMemoryStatusRequest *)c->request;
    cuda_answer *answer = (cuda_answer *)c->answer;
    struct region **list;
    size_t n;
    struct status *st = regions_list(c->regions, asked->name, REGION_CUDA, &list, &n);
    if (st)
        return st;
    answer->regions = unary_alloc(c, n, sizeof(*answer->regions));
    bool fine = answer->regions != NULL;
    for (size_t i = 0; fine && i < n; i++)
        fine = add_cuda_region(c, answer, list[i]);
    regions_list_free(list, n);
    return fine ? NULL : status_no_memory();
}

/* ---- Registering ----------------------------------------------------------------------------- */

struct status *unary_system_memory_register(struct unary_call *c)
{
    const Inference__SystemSharedMemoryRegisterRequest *asked =
        (const Inference__SystemSharedMemoryRegisterRequest *)c->request;
    return regions_register(c->regions, asked->name, asked->key, asked->offset, asked->byte_size);
}

struct status *unary_cuda_memory_register(struct unary_call *c)
{
    const Inference__CudaSharedMemoryRegisterRequest *asked =
        (const Inference__CudaSharedMemoryRegisterRequest *)c->request;
    return regions_register_cuda(c->regions, asked->name, asked->raw_handle.data,
                                 asked->raw_handle.len, asked->device_id, asked->byte_size);
}

struct status *unary_system_memory_unregister(struct unary_call *c)
{
    const Inference__SystemSharedMemoryUnregisterRequest *asked =
        (const Inference__SystemSharedMemoryUnregisterRequest *)c->request;
    return regions_unregister(c->regions, asked->name, REGION_SYSTEM);
}

struct status *unary_cuda_memory_unregister(struct unary_call *c)
{
    const Inference__CudaSharedMemoryUnregisterRequest *asked =
        (const Inference__CudaSharedMemoryUnregisterRequest *)c->request;
    return regions_unregister(c->regions, asked->name, REGION_CUDA);
}
