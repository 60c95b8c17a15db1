/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the JSON form: one walk over the pull parser, by the message's descriptors.
 */
#include "base/pbjson.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/json_relaxed.h"
#include "base/pbjson_priv.h"
#include "base/status.h"
#include "base/str.h"
#include "base/utf8.h"

NODISCARD static struct status *fail_json_memory(const struct pbjson_reader *r)
{
    if (r->arena->starved)
        return status_no_memory();
    return status_new(STATUS_INVALID_ARG, "the message is larger than %zu bytes in memory",
                      r->arena->max_bytes);
}

/* The parser has failed: either the text is no JSON, or the value has the wrong type. */
NODISCARD static struct status *fail_json(const struct pbjson_reader *r,
                                          const struct pbjson_step *step, const char *wanted)
{
    const struct json *j = &r->json;
    struct json_error error;
    if (j->failure == JSON_OUT_OF_MEMORY)
        return fail_json_memory(r);
    if (!json_check(r->text, (size_t)(j->end - r->text), &error))
        return pbjson_fail(r, r->text + error.offset, step, "%s", error.text);
    return pbjson_fail_value(r, j->failed_at ? j->failed_at : j->p, step, "expected %s", wanted);
}

/* Compares the field's name in camelCase without building it. */
static bool is_camel_case_of(struct json_str name, const char *declared)
{
    size_t n = 0;
    bool upper = false;
    for (; *declared; declared++) {
        if (*declared == '_') {
            upper = true;
            continue;
        }
        char c = *declared;
        if (upper && c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        upper = false;
        if (n == name.length || name.at[n++] != c)
            return false;
    }
    return n == name.length;
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *d,
                                                  struct json_str name)
{
    const ProtobufCFieldDescriptor *f = pb_field_named(d, name.at, name.length);
    for (unsigned i = 0; !f && i < d->n_fields; i++) {
        if (is_camel_case_of(name, d->fields[i].name))
            f = &d->fields[i];
    }
    return f;
}

/* Returns where the next value begins, behind blanks. */
static const char *next_value(struct pbjson_reader *r)
{
    json_peek(&r->json);
    return r->json.p;
}

/* Reads a number, or a string that holds one. */
NODISCARD static struct status *read_number(struct pbjson_reader *r, const struct pbjson_step *step,
                                            const char *wanted, struct json_number *ret_number)
{
    struct json *j = &r->json;
    if (json_peek(j) != JSON_STRING)
        return json_read_number(j, ret_number) ? NULL : fail_json(r, step, wanted);

    const char *at = j->p;
    struct json_str s;
    struct json inside;
    if (!json_read_string(j, &s))
        return fail_json(r, step, wanted);
    json_init(&inside, s.at, s.length, NULL);
    bool blank = s.length == 0 || s.at[0] <= ' ' || s.at[s.length - 1] <= ' ';
    if (blank || !json_read_number(&inside, ret_number) || !json_end(&inside))
        return pbjson_fail_value(r, at, step, "expected %s", wanted);
    return NULL;
}

/* Reads an integer of a type with these limits; 1.0 and 1e3 are integers, too. */
NODISCARD static struct status *read_integer(struct pbjson_reader *r,
                                             const struct pbjson_step *step, int64_t min,
                                             uint64_t max, uint64_t *ret_bits)
{
    const char *at = next_value(r);
    struct json_number n;
    struct status *st = read_number(r, step, "an integer", &n);
    if (st)
        return st;
    if (n.kind == JSON_DOUBLE) {
        if (!(n.d == floor(n.d)) || isinf(n.d))
            return pbjson_fail_value(r, at, step, "expected an integer");
        if (n.d >= -0x1p63 && n.d < 0x1p63) {
            n.i64 = (int64_t)n.d;
            n.kind = JSON_INT64;
        } else if (n.d >= 0 && n.d < 0x1p64) {
            n.u64 = (uint64_t)n.d;
            n.kind = JSON_UINT64;
        }
    }
    bool fits = n.kind == JSON_INT64    ? n.i64 < 0 ? n.i64 >= min : (uint64_t)n.i64 <= max
                : n.kind == JSON_UINT64 ? n.u64 <= max
                                        : false;
    if (!fits)
        return pbjson_fail_value(r, at, step,
                                 "integer out of range, from %" PRId64 " to %" PRIu64 " are fine",
                                 min, max);
    *ret_bits = n.kind == JSON_INT64 ? (uint64_t)n.i64 : n.u64;
    return NULL;
}

NODISCARD static struct status *read_json_double(struct pbjson_reader *r,
                                                 const struct pbjson_step *step, double *ret_value)
{
    struct json_number n;
    struct status *st = read_number(r, step, "a number", &n);
    if (st)
        return st;
    *ret_value = n.kind == JSON_DOUBLE   ? n.d
                 : n.kind == JSON_UINT64 ? (double)n.u64
                                         : (double)n.i64;
    return NULL;
}

NODISCARD static struct status *
read_json_text(struct pbjson_reader *r, const struct pbjson_step *step, struct json_str *ret_text)
{
    const char *at = next_value(r);
    if (!json_read_string(&r->json, ret_text))
        return fail_json(r, step, "a string");
    if (memchr(ret_text->at, '\0', ret_text->length))
        return pbjson_fail(r, at, step, "the string contains a NUL byte");
    if (!utf8_is_valid(ret_text->at, ret_text->length))
        return pbjson_fail(r, at, step, "the string is not valid UTF-8");
    return NULL;
}

NODISCARD static struct status *read_json_enum(struct pbjson_reader *r,
                                               const struct pbjson_step *step,
                                               const ProtobufCEnumDescriptor *d, int *ret_value)
{
    const char *at = next_value(r);
    if (json_peek(&r->json) == JSON_NUMBER) {
        uint64_t bits = 0; /* a number without a name is right: enums of proto3 are open */
        struct status *st = read_integer(r, step, INT32_MIN, INT32_MAX, &bits);
        *ret_value = (int)(int64_t)bits;
        return st;
    }
    struct json_str name;
    if (!json_read_string(&r->json, &name))
        return fail_json(r, step, "a name or a number");
    for (unsigned i = 0; i < d->n_value_names; i++) {
        const char *candidate = d->values_by_name[i].name;
        if (str_equal_nocase_n(candidate, strlen(candidate), name.at, name.length)) {
            *ret_value = d->values[d->values_by_name[i].index].value;
            return NULL;
        }
    }
    const char *meant = pb_suggest_enum(d, name.at, name.length);
    if (meant)
        return pbjson_fail_value(r, at, step, "did you mean \"%s\"?", meant);
    return pbjson_fail_value(r, at, step, "no such name");
}

NODISCARD static struct status *read_json_bytes(struct pbjson_reader *r,
                                                const struct pbjson_step *step,
                                                ProtobufCBinaryData *ret_bytes)
{
    const char *at = next_value(r);
    struct json_str s;
    if (!json_read_string(&r->json, &s))
        return fail_json(r, step, "a string in base64");
    uint8_t *bytes = arena_alloc(r->arena, base64_room(s.length));
    size_t n;
    if (!bytes)
        return fail_json_memory(r);
    if (!base64_decode(s.at, s.length, bytes, &n))
        return pbjson_fail(r, at, step, "the string is not base64");
    *ret_bytes = (ProtobufCBinaryData){.len = n, .data = bytes};
    return NULL;
}

NODISCARD static struct status *read_object(struct pbjson_reader *r, const struct pbjson_step *step,
                                            ProtobufCMessage *m);

NODISCARD static struct status *read_json_message(struct pbjson_reader *r,
                                                  const struct pbjson_step *step,
                                                  const ProtobufCMessageDescriptor *d,
                                                  ProtobufCMessage **ret_message)
{
    if (r->depth == PBJSON_MAX_DEPTH)
        return pbjson_fail(r, next_value(r), step, "nested too deep, the limit is %d",
                           PBJSON_MAX_DEPTH);
    ProtobufCMessage *m = pb_new(r->arena, d);
    if (!m)
        return fail_json_memory(r);
    *ret_message = m;
    r->depth++;
    struct status *st = read_object(r, step, m);
    r->depth--;
    return st;
}

NODISCARD static struct status *read_json_value(struct pbjson_reader *r,
                                                const struct pbjson_step *step,
                                                const ProtobufCFieldDescriptor *f, void *slot)
{
    struct status *st;
    uint64_t bits = 0;
    double d = 0;

    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        st = read_integer(r, step, INT32_MIN, INT32_MAX, &bits);
        *(int32_t *)slot = (int32_t)(int64_t)bits;
        return st;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        st = read_integer(r, step, 0, UINT32_MAX, &bits);
        *(uint32_t *)slot = (uint32_t)bits;
        return st;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        st = read_integer(r, step, INT64_MIN, INT64_MAX, &bits);
        *(int64_t *)slot = (int64_t)bits;
        return st;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return read_integer(r, step, 0, UINT64_MAX, slot);
    case PROTOBUF_C_TYPE_FLOAT: {
        const char *at = next_value(r);
        st = read_json_double(r, step, &d);
        *(float *)slot = (float)d;
        if (!st && isfinite(d) && !isfinite((float)d))
            st = pbjson_fail_value(r, at, step, "the number is too large for a float");
        return st;
    }
    case PROTOBUF_C_TYPE_DOUBLE:
        return read_json_double(r, step, slot);
    case PROTOBUF_C_TYPE_BOOL: {
        bool value = false;
        if (!json_read_bool(&r->json, &value))
            return fail_json(r, step, "true or false");
        *(protobuf_c_boolean *)slot = value;
        return NULL;
    }
    case PROTOBUF_C_TYPE_ENUM:
        return read_json_enum(r, step, f->descriptor, slot);
    case PROTOBUF_C_TYPE_STRING: {
        struct json_str s;
        st = read_json_text(r, step, &s);
        if (st)
            return st;
        *(char **)slot = arena_strndup(r->arena, s.at, s.length);
        return *(char **)slot ? NULL : fail_json_memory(r);
    }
    case PROTOBUF_C_TYPE_BYTES:
        return read_json_bytes(r, step, slot);
    case PROTOBUF_C_TYPE_MESSAGE:
        return read_json_message(r, step, f->descriptor, slot);
    }
    BUG_ON(true);
}

/* Reads a value in place of a list as a list of one, as protobuf does. */
NODISCARD static struct status *read_only_element(struct pbjson_reader *r,
                                                  const struct pbjson_step *step,
                                                  ProtobufCMessage *m,
                                                  const ProtobufCFieldDescriptor *f)
{
    void *slot = pb_append(r->arena, m, f);
    return slot ? read_json_value(r, step, f, slot) : fail_json_memory(r);
}

NODISCARD static struct status *read_array(struct pbjson_reader *r, const struct pbjson_step *step,
                                           ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    if (json_peek(&r->json) != JSON_ARRAY && json_peek(&r->json) != JSON_NONE)
        return read_only_element(r, step, m, f);
    if (!json_enter_array(&r->json))
        return fail_json(r, step, "an array");
    struct pbjson_step element = {.outer = step, .field = f};
    while (json_next_element(&r->json)) {
        void *slot = pb_append(r->arena, m, f);
        if (!slot)
            return fail_json_memory(r);
        struct status *st = read_json_value(r, &element, f, slot);
        if (st)
            return st;
        element.index++;
    }
    return r->json.failure ? fail_json(r, step, "an array") : NULL;
}

/* Reads a map's key, which JSON writes as a name. */
NODISCARD static struct status *read_key(struct pbjson_reader *r, const struct pbjson_step *step,
                                         struct json_str name, const ProtobufCFieldDescriptor *f,
                                         void *slot)
{
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        if (memchr(name.at, '\0', name.length) || !utf8_is_valid(name.at, name.length))
            return pbjson_fail(r, next_value(r), step, "a key is not valid text");
        *(char **)slot = arena_strndup(r->arena, name.at, name.length);
        return *(char **)slot ? NULL : fail_json_memory(r);
    }

    /* Any other key is read like the value between the quotes. */
    struct pbjson_reader inside = {.arena = r->arena, .text = name.at};
    json_init(&inside.json, name.at, name.length, NULL);
    struct status *st = read_json_value(&inside, NULL, f, slot);
    if (!st && json_end(&inside.json))
        return NULL;
    status_free(st);
    return pbjson_fail(r, next_value(r), step, "the key \"%s\" is wrong for this map",
                       pbjson_shown(name).text);
}

NODISCARD static struct status *read_map(struct pbjson_reader *r, const struct pbjson_step *step,
                                         ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *entry_type = f->descriptor;
    struct json_str name;
    if (!json_enter_object(&r->json))
        return fail_json(r, step, "an object");
    while (json_next_member(&r->json, &name)) {
        ProtobufCMessage **slot = pb_append(r->arena, m, f);
        ProtobufCMessage *entry = slot ? pb_new(r->arena, entry_type) : NULL;
        if (!entry)
            return fail_json_memory(r);
        *slot = entry;
        struct pbjson_shown key = pbjson_shown(name);
        struct pbjson_step element = {
            .outer = step, .name = key.text, .field = &entry_type->fields[1]};
        struct status *st =
            read_key(r, step, name, &entry_type->fields[0], pb_slot(entry, &entry_type->fields[0]));
        if (!st)
            st = read_json_value(r, &element, &entry_type->fields[1],
                                 pb_slot(entry, &entry_type->fields[1]));
        if (st)
            return st;
    }
    if (r->json.failure)
        return fail_json(r, step, "an object");
    return pb_map_settle(r->arena, m, f) ? NULL : fail_json_memory(r);
}

NODISCARD static struct status *read_member(struct pbjson_reader *r,
                                            const struct pbjson_step *outer, struct json_str name,
                                            ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *d = m->descriptor;
    const ProtobufCFieldDescriptor *f = find_field(d, name);
    if (!f) {
        const char *meant = pb_suggest_field(d, name.at, name.length);
        return pbjson_fail_name(r, next_value(r), outer, pbjson_shown(name).text, meant);
    }

    struct pbjson_step step = {.outer = outer, .name = f->name, .field = f};
    if (json_peek(&r->json) == JSON_NULL)
        return json_read_null(&r->json) ? NULL : fail_json(r, &step, "a value");
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        if (pb_count(m, f))
            return pbjson_fail(r, next_value(r), &step, "given twice");
        return pb_is_map(d, f) ? read_map(r, &step, m, f) : read_array(r, &step, m, f);
    }
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        const ProtobufCFieldDescriptor *other = pb_oneof_chosen(m, f);
        if (other && other != f)
            return pbjson_fail(r, next_value(r), &step,
                               "given along with \"%s\", only one of them may be", other->name);
    }
    if (pb_is_set(m, f))
        return pbjson_fail(r, next_value(r), &step, "given twice");
    return read_json_value(r, &step, f, pb_slot(m, f));
}

NODISCARD static struct status *read_object(struct pbjson_reader *r, const struct pbjson_step *step,
                                            ProtobufCMessage *m)
{
    struct json_str name;
    if (!json_enter_object(&r->json))
        return fail_json(r, step, "an object");
    while (json_next_member(&r->json, &name)) {
        struct status *st = read_member(r, step, name, m);
        if (st)
            return st;
    }
    return r->json.failure ? fail_json(r, step, "an object") : NULL;
}

/* A text that is no JSON may be relaxed JSON; if not, the error is that of the text itself.
 * False: no memory. */
static bool as_json(struct pbjson_reader *r, const char **text, size_t *length)
{
    struct json_error error;
    const char *tidy;
    size_t tidy_length;
    if (json_check(*text, *length, &error))
        return true;
    if (!json_relaxed_tidy(*text, *length, r->arena, &tidy, &tidy_length))
        return false;
    if (json_check(tidy, tidy_length, &error)) {
        r->text = *text = tidy;
        *length = tidy_length;
    }
    return true;
}

struct status *pbjson_parse(const ProtobufCMessageDescriptor *type, const char *text, size_t length,
                            struct arena *arena, ProtobufCMessage **ret_message)
{
    struct pbjson_reader r = {.arena = arena, .text = text};
    if (!as_json(&r, &text, &length))
        return fail_json_memory(&r);
    json_init(&r.json, text, length, arena);
    ProtobufCMessage *m = NULL;
    struct status *st = read_json_message(&r, NULL, type, &m);
    if (!st && !json_end(&r.json))
        st = fail_json(&r, NULL, "the end of the text");
    if (!st)
        *ret_message = m;
    return st;
}
