/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both functions walk once through the JSON with the pull parser (base/json.h). Names and values
 * of parameters lie in the arena; the list is the caller's. json_status() turns the parser's
 * failures into texts. No state; any thread.
 */
#include "frontends/http/load_body.h"

#include <string.h>

#include "base/arena.h"
#include "base/base64.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/repo/load_parameter.h"

/* The error of a well-formed text; NULL without one. */
static struct status *json_status(const struct json *j)
{
    if (j->failure == JSON_OK)
        return NULL;
    if (j->failure == JSON_OUT_OF_MEMORY)
        return status_no_memory();
    return status_new(STATUS_INTERNAL, "%s", json_failure_text(j->failure));
}

/* Enters the first member `parameters`; there may be none. */
static struct status *find_parameters(const char *body, size_t size, struct arena *arena,
                                      struct json *j, bool *ret_found)
{
    struct json_str key;
    *ret_found = false;
    json_init(j, body, size, arena);
    if (size == 0 || !json_enter_object(j))
        return NULL;
    while (json_next_member(j, &key)) {
        if (!json_str_is(key, "parameters")) {
            json_skip_value(j);
            continue;
        }
        *ret_found = true;
        if (!json_enter_object(j))
            return status_new(STATUS_INTERNAL, "attempt to get members for non-object");
        return NULL;
    }
    return json_status(j);
}

/* Keeps a string of the body, ended by a zero byte. */
static struct status *keep_string(struct arena *arena, struct json_str s, const char **ret_text)
{
    char *text = arena_strndup(arena, s.at, s.length);
    if (!text)
        return status_no_memory();
    if (strlen(text) != s.length)
        return status_new(STATUS_INVALID_ARG, "a zero byte in the parameter '%s'", text);
    *ret_text = text;
    return NULL;
}

static struct status *decode_file(struct arena *arena, struct json_str value,
                                  struct load_parameter *p)
{
    uint8_t *bytes = arena_alloc(arena, base64_room(value.length));
    if (!bytes)
        return status_no_memory();
    if (!base64_decode(value.at, value.length, bytes, &p->size_bytes))
        return status_new(STATUS_INVALID_ARG, "the value of parameter '%s' is not base64", p->name);
    p->type = PARAMETER_BYTES;
    p->bytes = bytes;
    return NULL;
}

static struct status *read_parameter(struct arena *arena, struct json *j, struct json_str key,
                                     struct load_parameter *p)
{
    static const char file_prefix[] = "file:";
    struct json_str value;
    struct status *st = keep_string(arena, key, &p->name);
    if (st)
        return st;
    if (!json_read_string(j, &value))
        return json_status(j);
    if (strncmp(p->name, file_prefix, sizeof(file_prefix) - 1) == 0)
        return decode_file(arena, value, p);
    if (strcmp(p->name, "config") != 0)
        return status_new(STATUS_INTERNAL,
                          "unexpected error on creating Triton parameter: '%s' is neither 'config' "
                          "nor 'file:<path>'",
                          p->name);
    const char *text = NULL;
    st = keep_string(arena, value, &text);
    p->type = PARAMETER_STRING;
    p->bytes = text;
    return st;
}

struct status *load_body_read(const char *body, size_t size, struct arena *arena,
                              struct load_parameter **ret_list, size_t *ret_n)
{
    struct json j;
    struct json_str key;
    struct load_parameter *list = NULL;
    size_t n = 0, capacity = 0;
    bool found;
    struct status *st = find_parameters(body, size, arena, &j, &found);
    while (!st && found && json_next_member(&j, &key)) {
        if (n == capacity) {
            capacity = 2 * capacity + 4;
            struct load_parameter *more = mem_try_realloc(list, capacity * sizeof(*list));
            if (!more) {
                st = status_no_memory();
                break;
            }
            list = more;
        }
        list[n] = (struct load_parameter){0};
        st = read_parameter(arena, &j, key, &list[n++]);
    }
    if (!st && found)
        st = json_status(&j);
    if (st) {
        mem_free(list);
        return st;
    }
    *ret_list = list;
    *ret_n = n;
    return NULL;
}

struct status *load_body_read_unload(const char *body, size_t size, struct arena *arena,
                                     bool *ret_with_members)
{
    struct json j;
    struct json_str key;
    bool found;
    *ret_with_members = false;
    struct status *st = find_parameters(body, size, arena, &j, &found);
    while (!st && found && json_next_member(&j, &key)) {
        if (!json_str_is(key, "unload_dependents"))
            json_skip_value(&j);
        else if (!json_read_bool(&j, ret_with_members))
            st = status_new(STATUS_INVALID_ARG,
                            "Unable to parse 'unload_dependents', should be boolean value");
    }
    return st || !found ? st : json_status(&j);
}
