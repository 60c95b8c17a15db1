/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the body of a registration of a region. The order of errors is the reference's: the key,
 * the offset, the size (reference/behaviours §9). Thread: any.
 */
#include "frontends/http/region_body.h"

#include <stdbool.h>

#include "base/arena.h"
#include "base/base64.h"
#include "base/json.h"
#include "base/status.h"
#include "frontends/shm/cuda_memory.h"

/* The members of a body, as far as they could be read. */
struct register_text {
    bool has_key, has_offset, has_size;
    enum json_failure key_failure, offset_failure, size_failure;
    struct json_str key;
    uint64_t offset, size_bytes;
};

/*
 * After a member was read, or was not: returns why not, and goes on behind its value, which began
 * at `value`.
 */
static enum json_failure skip_unread(struct json *j, const struct json *value, bool was_read)
{
    if (was_read)
        return JSON_OK;
    enum json_failure failure = j->failure;
    *j = *value;
    json_skip_value(j);
    return failure;
}

/* Reads a member if t, a struct …_text, has a place for it that is not taken. */
typedef bool (*member_fn)(struct json *j, const struct json *value, struct json_str name, void *t);

/*
 * Goes on behind an object, and has each member read; others are skipped. False: it is no object,
 * and nothing is skipped.
 */
static bool read_members(struct json *j, member_fn read_member, void *t)
{
    struct json_str name;
    if (!json_enter_object(j))
        return false;
    while (json_next_member(j, &name)) {
        struct json value = *j;
        if (!read_member(j, &value, name, t))
            json_skip_value(j);
    }
    return true;
}

/* Reads a valid text; of members of the same name the first counts. */
static void read_body(const char *body, size_t size, struct arena *arena, member_fn read_member,
                      void *t)
{
    struct json j;
    json_init(&j, body, size, arena);
    if (size > 0)
        (void)read_members(&j, read_member, t);
}

static bool read_register_member(struct json *j, const struct json *value, struct json_str name,
                                 void *to)
{
    struct register_text *t = to;
    if (json_str_is(name, "key") && !t->has_key) {
        t->has_key = true;
        t->key_failure = skip_unread(j, value, json_read_string(j, &t->key));
    } else if (json_str_is(name, "offset") && !t->has_offset) {
        t->has_offset = true;
        t->offset_failure = skip_unread(j, value, json_read_uint64(j, &t->offset));
    } else if (json_str_is(name, "byte_size") && !t->has_size) {
        t->has_size = true;
        t->size_failure = skip_unread(j, value, json_read_uint64(j, &t->size_bytes));
    } else {
        return false;
    }
    return true;
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

struct status *region_body_read(const char *body, size_t size, struct arena *arena,
                                struct region_body *ret)
{
    struct register_text t = {false};
    read_body(body, size, arena, read_register_member, &t);
    struct status *st = check_register(&t);
    if (st)
        return st;
    /* It ends at its first zero byte, as in the reference. */
    const char *key = arena_strndup(arena, t.key.at, t.key.length);
    if (!key)
        return status_no_memory();
    *ret = (struct region_body){.key = key, .offset = t.offset, .size_bytes = t.size_bytes};
    return NULL;
}

/* ---- Memory of a GPU ------------------------------------------------------------------------- */

/* As struct register_text. raw_handle is an object with the handle in base64, as its member b64. */
struct cuda_register_text {
    bool has_handle, has_base64, has_device, has_size;
    enum json_failure handle_failure, device_failure, size_failure;
    struct json_str base64;
    int64_t device_id;
    uint64_t size_bytes;
};

/* Of the object that is raw_handle. */
static bool read_handle_member(struct json *j, const struct json *value, struct json_str name,
                               void *to)
{
    struct cuda_register_text *t = to;
    if (!json_str_is(name, "b64") || t->has_base64)
        return false;
    t->has_base64 = true;
    t->handle_failure = skip_unread(j, value, json_read_string(j, &t->base64));
    return true;
}

static bool read_cuda_member(struct json *j, const struct json *value, struct json_str name,
                             void *to)
{
    struct cuda_register_text *t = to;
    if (json_str_is(name, "raw_handle") && !t->has_handle) {
        t->has_handle = true;
        if (!read_members(j, read_handle_member, t))
            t->handle_failure = skip_unread(j, value, false);
    } else if (json_str_is(name, "device_id") && !t->has_device) {
        t->has_device = true;
        t->device_failure = skip_unread(j, value, json_read_int64(j, &t->device_id));
    } else if (json_str_is(name, "byte_size") && !t->has_size) {
        t->has_size = true;
        t->size_failure = skip_unread(j, value, json_read_uint64(j, &t->size_bytes));
    } else {
        return false;
    }
    return true;
}

static struct status *check_cuda_register(const struct cuda_register_text *t)
{
    if (!t->has_handle)
        return status_missing("raw_handle");
    if (t->handle_failure)
        return status_unread(t->handle_failure);
    if (!t->has_base64)
        return status_missing("b64");
    if (!t->has_device)
        return status_missing("device_id");
    if (t->device_failure)
        return status_unread(t->device_failure);
    if (!t->has_size)
        return status_missing("byte_size");
    return t->size_failure ? status_unread(t->size_failure) : NULL;
}

static struct status *decode_handle(struct arena *arena, struct json_str text, uint8_t **ret)
{
    size_t n_bytes;
    *ret = arena_alloc(arena, base64_room(text.length));
    if (!*ret)
        return status_no_memory();
    if (base64_decode(text.at, text.length, *ret, &n_bytes) && n_bytes == CUDA_HANDLE_BYTES)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
}

struct status *region_body_read_cuda(const char *body, size_t size, struct arena *arena,
                                     struct cuda_region_body *ret)
{
    struct cuda_register_text t = {false};
    uint8_t *handle;
    read_body(body, size, arena, read_cuda_member, &t);
    struct status *st = check_cuda_register(&t);
    if (!st)
        st = decode_handle(arena, t.base64, &handle);
    if (st)
        return st;
    *ret = (struct cuda_region_body){
        .handle = handle, .device_id = t.device_id, .size_bytes = t.size_bytes};
    return NULL;
}
