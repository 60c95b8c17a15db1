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
#include "frontends/http/reply.h"
#include "frontends/shm/regions.h"

static struct regions *regions_of(struct exchange *x)
{
    return call_ctx(x)->settings->regions;
}

static const char *region_name(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    return call->region;
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

/* The members of a body, as far as they could be read. */
struct register_text {
    bool has_key, has_offset, has_size;
    enum json_failure key_failure, offset_failure, size_failure;
    struct json_str key;
    uint64_t offset, size_bytes;
};

static enum json_failure read_register_count(struct json *j, uint64_t *ret)
{
    struct json value = *j;
    if (json_read_uint64(j, ret))
        return JSON_OK;
    enum json_failure failure = j->failure;
    *j = value;
    json_skip_value(j);
    return failure;
}

static enum json_failure read_register_text(struct json *j, struct json_str *ret)
{
    struct json value = *j;
    if (json_read_string(j, ret))
        return JSON_OK;
    enum json_failure failure = j->failure;
    *j = value;
    json_skip_value(j);
    return failure;
}

/* Reads a valid text; of members of the same name the first counts. */
static void read_register(struct admin_call *a, struct register_text *t)
{
    struct json j;
    struct json_str name;
    json_init(&j, a->x->body, a->x->body_size, &a->arena);
    if (a->x->body_size == 0 || !json_enter_object(&j))
        return;
    while (json_next_member(&j, &name)) {
        if (json_str_is(name, "key") && !t->has_key) {
            t->has_key = true;
            t->key_failure = read_register_text(&j, &t->key);
        } else if (json_str_is(name, "offset") && !t->has_offset) {
            t->has_offset = true;
            t->offset_failure = read_register_count(&j, &t->offset);
        } else if (json_str_is(name, "byte_size") && !t->has_size) {
            t->has_size = true;
            t->size_failure = read_register_count(&j, &t->size_bytes);
        } else {
            json_skip_value(&j);
        }
    }
}

static struct status *status_missing(const char *member)
{
    return status_new(STATUS_INVALID_ARG, "Shared memory register request has no '%s' field",
                      member);
}

static struct status *status_unread(enum json_failure failure)
{
    if (failure == JSON_OUT_OF_MEMORY)
        return status_no_memory();
    return status_new(STATUS_INTERNAL, "%s", json_failure_text(failure));
}

static struct status *check_register(const struct register_text *t)
{
    if (!t->has_key)
        return status_missing("key");
    if (t->key_failure)
        return status_unread(t->key_failure);
    if (t->offset_failure)
        return status_unread(t->offset_failure);
    if (!t->has_size)
        return status_missing("byte_size");
    return t->size_failure ? status_unread(t->size_failure) : NULL;
}

static struct status *register_region(struct admin_call *a)
{
    struct register_text t = {false};
    struct status *st = admin_call_check_body(a);
    if (st)
        return st;
    read_register(a, &t);
    st = check_register(&t);
    if (st)
        return st;
    /* It ends at its first zero byte, as in the reference. */
    const char *key = arena_strndup(&a->arena, t.key.at, t.key.length);
    if (!key)
        return status_no_memory();
    return regions_register(regions_of(a->x), region_name(a->x), key, t.offset, t.size_bytes);
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

void region_cuda_register(struct exchange *x)
{
    struct status *st = check_register_path(x, "cuda");
    if (!st)
        st = regions_register_cuda(regions_of(x), region_name(x), NULL, 0, 0, 0);
    reply_status(x, st, content_json);
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
