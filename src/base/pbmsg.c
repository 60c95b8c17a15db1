/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf-c describes each field of a message struct by offsets. All work by descriptor is done
 * here, so that pbtext and pbjson handle only syntax.
 *
 * A repeated field has no capacity of its own: arrays grow at powers of two, so the count shows
 * when.
 */
#include "base/pbmsg.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/search.h"
#include "base/str.h"

enum {
    MAX_POSITIONS = 1 << 16, /* 1.5 MB; a hand-written configuration has hundreds of fields */
    FEW_KEYS = 16,           /* up to this many, comparing all with all is faster than hashing */
    MAX_SUGGESTED = 64,      /* longer names are no typing errors */
};

void pb_positions_done(struct pb_positions *p)
{
    mem_free(p->items);
    *p = (struct pb_positions){0};
}

void pb_positions_add(struct pb_positions *p, const void *message, uint32_t field_id, size_t index,
                      uint32_t line, uint32_t column)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 64;
        if (capacity > MAX_POSITIONS)
            return;
        struct pb_position *items = mem_try_realloc(p->items, capacity * sizeof(*items));
        if (!items)
            return;
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->count++] = (struct pb_position){message, field_id, (uint32_t)index, line, column};
}

const struct pb_position *pb_positions_find(const struct pb_positions *p, const void *message,
                                            uint32_t field_id, size_t index)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct pb_position *at = &p->items[i];
        if (at->message == message && at->field_id == field_id && at->index == index)
            return at;
    }
    return NULL;
}

/* Returns the field's value (singular), array (repeated) or quantifier in the message. */
static void *member_at(const ProtobufCMessage *m, unsigned offset)
{
    return (char *)(uintptr_t)m + offset;
}

static size_t *counter_of(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    return member_at(m, f->quantifier_offset);
}

static bool in_oneof(const ProtobufCFieldDescriptor *f)
{
    return f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

size_t pb_element_size(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return 4;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    }
    BUG_ON(true);
}

ProtobufCMessage *pb_new(struct arena *a, const ProtobufCMessageDescriptor *d)
{
    ProtobufCMessage *m = arena_alloc(a, d->sizeof_message);
    if (m)
        d->message_init(m);
    return m;
}

static bool copy_value(struct arena *a, const ProtobufCFieldDescriptor *f, void *to,
                       const void *from)
{
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *sub = *(ProtobufCMessage *const *)from;
        ProtobufCMessage *copy = sub ? pb_copy(a, sub) : NULL;
        *(ProtobufCMessage **)to = copy;
        return copy || !sub;
    }
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        const char *s = *(char *const *)from;
        char *copy = s ? arena_strndup(a, s, strlen(s)) : NULL;
        *(char **)to = copy;
        return copy || !s;
    }
    if (f->type == PROTOBUF_C_TYPE_BYTES) {
        const ProtobufCBinaryData *bytes = from;
        ProtobufCBinaryData *copy = to;
        copy->len = bytes->len;
        copy->data = bytes->len ? arena_dup(a, bytes->data, bytes->len) : NULL;
        return copy->data || !bytes->len;
    }
    memcpy(to, from, pb_element_size(f));
    return true;
}

ProtobufCMessage *pb_copy(struct arena *a, const ProtobufCMessage *m)
{
    ProtobufCMessage *copy = pb_new(a, m->descriptor);
    if (!copy)
        return NULL;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (!pb_is_set(m, f))
            continue;
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            for (size_t k = 0; k < *counter_of(m, f); k++) {
                void *slot = pb_append(a, copy, f);
                if (!slot || !copy_value(a, f, slot, pb_element(m, f, k)))
                    return NULL;
            }
        } else if (!copy_value(a, f, pb_slot(copy, f), member_at(m, f->offset))) {
            return NULL;
        }
    }
    return copy;
}

/* The key of a look-up of a field or an enum value. */
struct name_key {
    const ProtobufCMessageDescriptor *d; /* for fields */
    const char *name;
    size_t length;
};

static int compare_name(const char *a, const struct name_key *key)
{
    int order = strncmp(a, key->name, key->length);
    return order ? order : a[key->length] != '\0';
}

static bool is_field_before(const void *index, const void *key)
{
    const struct name_key *k = key;
    return compare_name(k->d->fields[*(const unsigned *)index].name, k) < 0;
}

static bool is_value_before(const void *value, const void *key)
{
    return compare_name(((const ProtobufCEnumValueIndex *)value)->name, key) < 0;
}

const ProtobufCFieldDescriptor *pb_field_named(const ProtobufCMessageDescriptor *d,
                                               const char *name, size_t length)
{
    struct name_key key = {d, name, length};
    const unsigned *sorted = d->fields_sorted_by_name;
    size_t i = lower_bound(sorted, d->n_fields, sizeof(*sorted), is_field_before, &key);
    if (i == d->n_fields || compare_name(d->fields[sorted[i]].name, &key) != 0)
        return NULL;
    return &d->fields[sorted[i]];
}

const ProtobufCEnumValue *pb_enum_named(const ProtobufCEnumDescriptor *d, const char *name,
                                        size_t length)
{
    struct name_key key = {NULL, name, length};
    const ProtobufCEnumValueIndex *sorted = d->values_by_name;
    size_t i = lower_bound(sorted, d->n_value_names, sizeof(*sorted), is_value_before, &key);
    if (i == d->n_value_names || compare_name(sorted[i].name, &key) != 0)
        return NULL;
    return &d->values[sorted[i].index];
}

bool pb_is_map(const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f)
{
    if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;

    /* The compiler names the entry after the field, in camel case; users may not use that name. */
    const ProtobufCMessageDescriptor *entry = f->descriptor;
    if (entry->n_fields != 2 || strcmp(entry->fields[0].name, "key") != 0 ||
        strcmp(entry->fields[1].name, "value") != 0)
        return false;
    const char *at = entry->short_name;
    bool upper = true;
    for (const char *c = f->name; *c; c++) {
        if (*c == '_') {
            upper = true;
            continue;
        }
        if (*at++ != (upper ? toupper((unsigned char)*c) : *c))
            return false;
        upper = false;
    }
    return strcmp(at, "Entry") == 0;
}

static bool is_nonzero(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    static const char zeros[8];
    const void *value = member_at(m, f->offset);

    switch (f->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(void *const *)value != NULL;
    case PROTOBUF_C_TYPE_STRING: {
        const char *s = *(char *const *)value;
        return s && *s;
    }
    case PROTOBUF_C_TYPE_BYTES:
        return ((const ProtobufCBinaryData *)value)->len != 0;
    case PROTOBUF_C_TYPE_FLOAT: /* by bits: protobuf keeps a negative zero */
    default:
        return memcmp(value, zeros, pb_element_size(f)) != 0;
    }
}

bool pb_is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return *counter_of(m, f) != 0;
    if (in_oneof(f))
        return *(const uint32_t *)member_at(m, f->quantifier_offset) == f->id;
    return is_nonzero(m, f);
}

const ProtobufCFieldDescriptor *pb_oneof_chosen(const ProtobufCMessage *m,
                                                const ProtobufCFieldDescriptor *f)
{
    uint32_t chosen = *(const uint32_t *)member_at(m, f->quantifier_offset);
    return chosen ? protobuf_c_message_descriptor_get_field(m->descriptor, chosen) : NULL;
}

void *pb_slot(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    if (in_oneof(f))
        *(uint32_t *)member_at(m, f->quantifier_offset) = f->id;
    return member_at(m, f->offset);
}

const void *pb_value(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    return member_at(m, f->offset);
}

size_t pb_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    return *counter_of(m, f);
}

void *pb_element(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, size_t index)
{
    char *array = *(char **)member_at(m, f->offset);
    return array + index * pb_element_size(f);
}

void *pb_append(struct arena *a, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    size_t *count = counter_of(m, f), n = *count, size = pb_element_size(f);
    char **array = member_at(m, f->offset);

    /* A message has the number of elements, but not the capacity, which follows from the number. */
    bool full = n == 0 || (n >= ARENA_FIRST_ITEMS && (n & (n - 1)) == 0);
    uint32_t capacity = (uint32_t)n + !full;
    char *elements = n < UINT32_MAX ? arena_grow(a, *array, (uint32_t)n, &capacity, size) : NULL;
    if (!elements)
        return NULL;
    *array = elements;
    void *slot = elements + n * size;
    memset(slot, 0, size);
    *count = n + 1;
    return slot;
}

/* Returns the bytes by which a map distinguishes keys. */
static const char *key_bytes(const ProtobufCMessage *entry, size_t *ret_length)
{
    const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0];
    const void *value = member_at(entry, key->offset);
    if (key->type == PROTOBUF_C_TYPE_STRING) {
        const char *s = *(char *const *)value;
        *ret_length = strlen(s);
        return s;
    }
    *ret_length = pb_element_size(key);
    return value;
}

static ProtobufCMessage **find_same(struct map *seen, ProtobufCMessage **kept, size_t n_kept,
                                    ProtobufCMessage **place, bool hashed)
{
    size_t length;
    const char *key = key_bytes(*place, &length);
    if (hashed) {
        ProtobufCMessage **same = map_get(seen, key, length);
        if (!same)
            map_put(seen, key, length, kept + n_kept);
        return same;
    }
    for (size_t i = 0; i < n_kept; i++) {
        size_t other_length;
        const char *other = key_bytes(kept[i], &other_length);
        if (other_length == length && memcmp(other, key, length) == 0)
            return &kept[i];
    }
    return NULL;
}

bool pb_map_settle(struct arena *a, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    ProtobufCMessage **entries = *(ProtobufCMessage ***)member_at(m, f->offset);
    size_t *count = counter_of(m, f), n_kept = 0;
    bool hashed = *count > FEW_KEYS;
    struct map seen = MAP_INIT;
    bool fine = true;

    for (size_t i = 0; i < *count && fine; i++) {
        const ProtobufCFieldDescriptor *value = &entries[i]->descriptor->fields[1];
        if (value->type == PROTOBUF_C_TYPE_MESSAGE) {
            ProtobufCMessage **slot = member_at(entries[i], value->offset);
            if (!*slot)
                *slot = pb_new(a, value->descriptor);
            fine = *slot != NULL;
        }
        ProtobufCMessage **same = find_same(&seen, entries, n_kept, &entries[i], hashed);
        if (same)
            *same = entries[i]; /* equal keys, so the hash stays right; the old key stays in use */
        else
            entries[n_kept++] = entries[i];
    }
    map_done(&seen);
    *count = n_kept;
    return fine;
}

/* Folds a name to compare misspellings: lower case, without separators of words. */
static size_t fold_name(char *to, const char *name, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (name[i] != '_' && name[i] != '-')
            to[n++] = (char)tolower((unsigned char)name[i]);
    }
    to[n] = '\0';
    return n;
}

/* Smaller is closer; SIZE_MAX: too far for a suggestion. */
static size_t distance_to_name(const char *name, size_t length, const char *candidate)
{
    char a[MAX_SUGGESTED + 1], b[MAX_SUGGESTED + 1];
    size_t candidate_length = strlen(candidate);
    if (length > MAX_SUGGESTED || candidate_length > MAX_SUGGESTED)
        return SIZE_MAX;
    size_t n_a = fold_name(a, name, length), n_b = fold_name(b, candidate, candidate_length);
    if (n_a == 0)
        return SIZE_MAX;

    /* "FP32" for TYPE_FP32, "batching" for dynamic_batching: the end of the name, from the
     * beginning of a word. */
    if (candidate_length > length && candidate[candidate_length - length - 1] == '_' &&
        strncasecmp(candidate + candidate_length - length, name, length) == 0)
        return 1;
    /* "ensemble" for ensemble_scheduling: the first whole words of the name. */
    if (candidate_length > length && length >= 3 && candidate[length] == '_' &&
        strncasecmp(candidate, name, length) == 0)
        return 2;
    size_t d = str_edit_distance(a, b);
    size_t shorter = MIN(n_a, n_b);
    return d <= MAX((size_t)1, shorter / 3) ? d : SIZE_MAX;
}

const char *pb_suggest_field(const ProtobufCMessageDescriptor *d, const char *name, size_t length)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (unsigned i = 0; i < d->n_fields; i++) {
        size_t s = distance_to_name(name, length, d->fields[i].name);
        if (s < least) {
            least = s;
            best = d->fields[i].name;
        }
    }
    return best;
}

const char *pb_suggest_home(const ProtobufCMessageDescriptor *d, const char *name, size_t length)
{
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && pb_field_named(f->descriptor, name, length))
            return f->name;
    }
    return NULL;
}

/* Names of the same things in other systems, as the end of a name. */
static const struct {
    const char *theirs, *ours;
} other_words[] = {
    {"BYTES", "STRING"}, {"BFLOAT16", "BF16"}, {"FLOAT16", "FP16"}, {"HALF", "FP16"},
    {"FLOAT32", "FP32"}, {"FLOAT64", "FP64"},  {"FLOAT", "FP32"},   {"DOUBLE", "FP64"},
    {"BOOLEAN", "BOOL"}, {"INT", "INT32"},     {"LONG", "INT64"},
};

static bool ends_in(const char *name, size_t length, const char *word)
{
    size_t n = strlen(word);
    return n <= length && strncasecmp(name + length - n, word, n) == 0;
}

static const char *translate_enum_word(const ProtobufCEnumDescriptor *d, const char *name,
                                       size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(other_words); i++) {
        if (!ends_in(name, length, other_words[i].theirs))
            continue;
        for (unsigned k = 0; k < d->n_value_names; k++) {
            const char *candidate = d->values_by_name[k].name;
            const char *word = strrchr(candidate, '_');
            if (word && strcmp(word + 1, other_words[i].ours) == 0)
                return candidate;
        }
    }
    return NULL;
}

const char *pb_suggest_enum(const ProtobufCEnumDescriptor *d, const char *name, size_t length)
{
    const char *best = translate_enum_word(d, name, length);
    size_t least = best ? 2 : SIZE_MAX; /* it beats a name that needs two letters changed */
    for (unsigned i = 0; i < d->n_value_names; i++) {
        size_t s = distance_to_name(name, length, d->values_by_name[i].name);
        if (s < least) {
            least = s;
            best = d->values_by_name[i].name;
        }
    }
    return best;
}

struct pb_number pb_number(double value, bool is_float)
{
    struct pb_number n;
    snprintf(n.text, sizeof(n.text), "%.*g", is_float ? 6 : 15, value);
    bool exact = is_float ? strtof(n.text, NULL) == (float)value : strtod(n.text, NULL) == value;
    if (!exact)
        snprintf(n.text, sizeof(n.text), "%.*g", is_float ? 9 : 17, value);
    return n;
}
