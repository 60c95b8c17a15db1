/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers of shared memory (reference/features §1.1 rows 18 to 23). Registering and
 * unregistering may block, so a control thread does them (admin_call.h); the status is read on the
 * loop.
 */
#include "frontends/http/handlers.h"

#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "frontends/http/admin_call.h"
#include "frontends/http/call.h"
#include "frontends/http/region_body.h"
#include "frontends/http/reply.h"
#include "frontends/shm/cuda_memory.h"
#include "frontends/shm/regions.h"

static struct regions *regions_of(struct exchange *x)
{
    return call_ctx(x)->settings->regions;
}

static const char *region_name(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    return call->region ? call->region : "";
}

/* ---- Status ---------------------------------------------------------------------------------- */

static void print_region(struct json_writer *w, const struct region *r)
{
    json_put_open(w, '{');
    json_put_name(w, "name");
    json_put_text(w, r->name);
    if (r->kind == REGION_SYSTEM) {
        json_put_name(w, "key");
        json_put_text(w, r->key);
        json_put_name(w, "offset");
        json_put_uint64(w, r->offset);
    } else {
        json_put_name(w, "device_id");
        json_put_uint64(w, (uint64_t)r->device_id);
    }
    json_put_name(w, "byte_size");
    json_put_uint64(w, r->size_bytes);
    json_put_close(w, '}');
}

static void reply_regions(struct exchange *x, enum region_kind kind)
{
    struct buf *json = &call_ctx(x)->json;
    struct json_writer w = {.out = json};
    struct region **list;
    size_t n;
    struct status *st = regions_list(regions_of(x), region_name(x), kind, &list, &n);
    if (st) {
        reply_status(x, st, content_json);
        return;
    }
    buf_reset(json);
    json_put_open(&w, '[');
    for (size_t i = 0; i < n; i++)
        print_region(&w, list[i]);
    json_put_close(&w, ']');
    regions_list_free(list, n);
    reply_printed(x, 200, content_json);
}

void region_status(struct exchange *x)
{
    reply_regions(x, REGION_SYSTEM);
}

void region_cuda_status(struct exchange *x)
{
    reply_regions(x, REGION_CUDA);
}

/* ---- Registering ----------------------------------------------------------------------------- */

static struct status *register_region(struct admin_call *a)
{
    struct region_body body;
    struct status *st = admin_call_check_body(a);
    if (!st)
        st = region_body_read(a->x->body, a->x->body_size, &a->arena, &body);
    if (st)
        return st;
    return regions_register(regions_of(a->x), region_name(a->x), body.key, body.offset,
                            body.size_bytes);
}

/* What comes before the body is read. */
static struct status *check_register_path(struct exchange *x, const char *kind)
{
    struct status *st = regions_allow(regions_of(x));
    if (!st && !region_name(x)[0])
        st = status_new(STATUS_INVALID_ARG,
                        "'region name' is necessary to register %s shared memory region", kind);
    return st;
}

void region_register(struct exchange *x)
{
    struct status *st = check_register_path(x, "system");
    if (st)
        reply_status(x, st, content_json);
    else
        admin_call_begin(x, register_region, false, admin_call_control(x));
}

/* ---- Registering memory of a GPU ------------------------------------------------------------- */

static struct status *register_cuda_region(struct admin_call *a)
{
    struct cuda_region_body body;
    struct regions *regions = regions_of(a->x);
    struct status *st = regions_allow_cuda(regions, region_name(a->x));
    if (!st)
        st = admin_call_check_body(a);
    if (!st)
        st = region_body_read_cuda(a->x->body, a->x->body_size, &a->arena, &body);
    if (st)
        return st;
    return regions_register_cuda(regions, region_name(a->x), body.handle, CUDA_HANDLE_BYTES,
                                 body.device_id, body.size_bytes);
}

void region_cuda_register(struct exchange *x)
{
    struct status *st = check_register_path(x, "cuda");
    if (st)
        reply_status(x, st, content_json);
    else
        admin_call_begin(x, register_cuda_region, false, admin_call_control(x));
}

/* ---- Unregistering --------------------------------------------------------------------------- */

static struct status *unregister_region(struct admin_call *a)
{
    return regions_unregister(regions_of(a->x), region_name(a->x), REGION_SYSTEM);
}

static struct status *unregister_cuda_region(struct admin_call *a)
{
    return regions_unregister(regions_of(a->x), region_name(a->x), REGION_CUDA);
}

void region_unregister(struct exchange *x)
{
    admin_call_begin(x, unregister_region, false, admin_call_control(x));
}

void region_cuda_unregister(struct exchange *x)
{
    admin_call_begin(x, unregister_cuda_region, false, admin_call_control(x));
}
