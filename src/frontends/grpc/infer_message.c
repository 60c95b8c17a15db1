/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a ModelInferRequest. One function for each message type reads fields until the bytes end.
 * Read infer_message_read() first.
 *
 * The elements of typed contents are only counted here, so that infer_decode.c can allocate them
 * once. Threads: no state.
 */
#include "frontends/grpc/infer_message.h"

#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"
#include "base/utf8.h"

/* The result of reading a field. */
enum read { READ_FINE, READ_BAD, READ_NO_MEMORY };

/*
 * The most items of an array. An item may take a hundred times the bytes that it has in the
 * message. Beyond MAX_ITEMS the arena counts as full.
 */
enum { MAX_ITEMS = 1 << 16 };

/* Adds one more item to an array in the arena, zeroed; NULL: no room. */
#define APPEND(arena, items, count, capacity)                                                      \
    (((items) = grow_message_list(arena, items, count, &(capacity), sizeof(*(items)))),            \
     (items) ? memset(&(items)[(count)++], 0, sizeof(*(items))) : NULL)

static void *grow_message_list(struct arena *a, void *items, uint32_t count, uint32_t *capacity,
                               size_t item_bytes)
{
    return count < MAX_ITEMS ? arena_grow(a, items, count, capacity, item_bytes) : NULL;
}

/* Reads a field of the type string. */
static enum read take_text(const struct pbwire_field *f, struct pbwire_bytes *ret)
{
    if (!utf8_is_valid(f->bytes.at, f->bytes.length))
        return READ_BAD;
    *ret = f->bytes;
    return READ_FINE;
}

/* ---- Parameters ----------------------------------------------------------------------------- */

/* Reads an InferParameter. Of several choices the last one counts. */
static enum read read_choice(struct infer_parameter *p, struct pbwire_bytes bytes)
{
    struct pbwire in = pbwire_of(bytes.at, bytes.length);
    struct pbwire_field f;
    enum read read = READ_FINE;
    while (read == READ_FINE && pbwire_next(&in, &f)) {
        if (pbwire_is(&f, INFER_BOOL, PBWIRE_VARINT)) {
            p->boolean = f.value != 0;
        } else if (pbwire_is(&f, INFER_INT64, PBWIRE_VARINT)) {
            p->int64 = (int64_t)f.value;
        } else if (pbwire_is(&f, INFER_UINT64, PBWIRE_VARINT)) {
            p->uint64 = f.value;
        } else if (pbwire_is(&f, INFER_DOUBLE, PBWIRE_FIXED64)) {
            memcpy(&p->float64, &f.value, sizeof(p->float64));
        } else if (pbwire_is(&f, INFER_STRING, PBWIRE_BYTES)) {
            read = take_text(&f, &p->string);
        } else {
            continue;
        }
        p->choice = f.number;
    }
    return in.bad ? READ_BAD : read;
}

/* Reads an entry of map<string, InferParameter>. */
static enum read read_parameter(struct infer_parameters *all, struct pbwire_bytes bytes,
                                struct arena *a)
{
    enum { KEY = 1, VALUE = 2 };
    struct infer_parameter *p = APPEND(a, all->items, all->count, all->capacity);
    struct pbwire in = pbwire_of(bytes.at, bytes.length);
    struct pbwire_field f;
    enum read read = READ_FINE;
    if (!p)
        return READ_NO_MEMORY;
    p->key.at = "";
    while (read == READ_FINE && pbwire_next(&in, &f)) {
        if (pbwire_is(&f, KEY, PBWIRE_BYTES))
            read = take_text(&f, &p->key);
        else if (pbwire_is(&f, VALUE, PBWIRE_BYTES))
            read = read_choice(p, f.bytes);
    }
    return in.bad ? READ_BAD : read;
}

/*
 * Marks entries that a later one with the same key replaces. No client library sends such entries.
 */
static void mark_replaced(struct infer_parameters *all)
{
    enum { FEW = 8 };
    if (all->count <= FEW) {
        for (uint32_t i = 0; i < all->count; i++) {
            const struct pbwire_bytes *key = &all->items[i].key;
            for (uint32_t k = i + 1; k < all->count && !all->items[i].replaced; k++) {
                const struct pbwire_bytes *other = &all->items[k].key;
                all->items[i].replaced =
                    key->length == other->length && memcmp(key->at, other->at, key->length) == 0;
            }
        }
        return;
    }
    struct map by_key = MAP_INIT;
    for (uint32_t i = 0; i < all->count; i++) {
        struct infer_parameter *p = &all->items[i];
        struct infer_parameter *before = map_put(&by_key, p->key.at, p->key.length, p);
        if (before)
            before->replaced = true;
    }
    map_done(&by_key);
}

const struct infer_parameter *infer_find_parameter(const struct infer_parameters *p,
                                                   const char *key)
{
    if (p->count == 0)
        return NULL;
    size_t length = strlen(key);
    for (uint32_t i = 0; i < p->count; i++) {
        const struct infer_parameter *item = &p->items[i];
        if (!item->replaced && item->key.length == length && memcmp(item->key.at, key, length) == 0)
            return item;
    }
    return NULL;
}

/* ---- Tensors -------------------------------------------------------------------------------- */

/* Counts a field of repeated numbers, packed or a single one. */
static enum read count_values(const struct pbwire_field *f, enum pbwire_type type, size_t *n)
{
    size_t more = 1;
    if (f->type == PBWIRE_BYTES) {
        size_t width = type == PBWIRE_FIXED32 ? 4 : 8;
        if (type == PBWIRE_VARINT) {
            if (!pbwire_count_varints(f->bytes, &more))
                return READ_BAD;
        } else {
            if (f->bytes.length % width)
                return READ_BAD;
            more = f->bytes.length / width;
        }
    } else if (f->type != type) {
        return READ_FINE; /* an unknown field */
    }
    *n += more;
    return READ_FINE;
}

static enum read count_contents(struct infer_tensor *t, struct pbwire_bytes bytes)
{
    static const enum pbwire_type types[N_CONTENTS] = {
        [CONTENTS_FP32] = PBWIRE_FIXED32,
        [CONTENTS_FP64] = PBWIRE_FIXED64,
    };
    struct pbwire in = pbwire_of(bytes.at, bytes.length);
    struct pbwire_field f;
    enum read read = READ_FINE;
    while (read == READ_FINE && pbwire_next(&in, &f)) {
        if (pbwire_is(&f, CONTENTS_BYTES, PBWIRE_BYTES)) {
            t->n_elements[CONTENTS_BYTES]++;
            t->string_bytes += f.bytes.length;
        } else if (f.number < CONTENTS_BYTES) {
            read = count_values(&f, types[f.number], &t->n_elements[f.number]);
        }
    }
    return in.bad ? READ_BAD : read;
}

static enum read add_dims(struct infer_tensor *t, const struct pbwire_field *f, struct arena *a)
{
    struct pbwire in;
    size_t n = 1;
    if (f->type == PBWIRE_BYTES) {
        if (!pbwire_count_varints(f->bytes, &n))
            return READ_BAD;
        in = pbwire_of(f->bytes.at, f->bytes.length);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t dim = f->value;
        if (f->type == PBWIRE_BYTES && !pbwire_varint(&in, &dim))
            return READ_BAD;
        int64_t *room = APPEND(a, t->shape, t->n_dims, t->dims_capacity);
        if (!room)
            return READ_NO_MEMORY;
        *room = (int64_t)dim;
    }
    return READ_FINE;
}

static enum read add_contents(struct infer_tensor *t, struct pbwire_bytes bytes, struct arena *a)
{
    struct pbwire_bytes *part = APPEND(a, t->parts, t->n_parts, t->parts_capacity);
    if (!part)
        return READ_NO_MEMORY;
    *part = bytes;
    return count_contents(t, bytes);
}

static enum read read_input(struct infer_tensors *all, struct pbwire_bytes bytes, struct arena *a)
{
    enum { NAME = 1, DATATYPE, SHAPE, PARAMETERS, CONTENTS };
    struct infer_tensor *t = APPEND(a, all->items, all->count, all->capacity);
    struct pbwire in = pbwire_of(bytes.at, bytes.length);
    struct pbwire_field f;
    enum read read = READ_FINE;
    if (!t)
        return READ_NO_MEMORY;
    t->name.at = t->datatype.at = "";
    while (read == READ_FINE && pbwire_next(&in, &f)) {
        if (pbwire_is(&f, NAME, PBWIRE_BYTES))
            read = take_text(&f, &t->name);
        else if (pbwire_is(&f, DATATYPE, PBWIRE_BYTES))
            read = take_text(&f, &t->datatype);
        else if (f.number == SHAPE && (f.type == PBWIRE_BYTES || f.type == PBWIRE_VARINT))
            read = add_dims(t, &f, a);
        else if (pbwire_is(&f, PARAMETERS, PBWIRE_BYTES))
            read = read_parameter(&t->parameters, f.bytes, a);
        else if (pbwire_is(&f, CONTENTS, PBWIRE_BYTES))
            read = add_contents(t, f.bytes, a);
    }
    mark_replaced(&t->parameters);
    return in.bad ? READ_BAD : read;
}

static enum read read_output(struct infer_tensors *all, struct pbwire_bytes bytes, struct arena *a)
{
    enum { NAME = 1, PARAMETERS };
    struct infer_tensor *t = APPEND(a, all->items, all->count, all->capacity);
    struct pbwire in = pbwire_of(bytes.at, bytes.length);
    struct pbwire_field f;
    enum read read = READ_FINE;
    if (!t)
        return READ_NO_MEMORY;
    t->name.at = "";
    while (read == READ_FINE && pbwire_next(&in, &f)) {
        if (pbwire_is(&f, NAME, PBWIRE_BYTES))
            read = take_text(&f, &t->name);
        else if (pbwire_is(&f, PARAMETERS, PBWIRE_BYTES))
            read = read_parameter(&t->parameters, f.bytes, a);
    }
    mark_replaced(&t->parameters);
    return in.bad ? READ_BAD : read;
}

/* ---- The whole message ----------------------------------------------------------------------- */

static enum read add_raw(struct infer_message *m, struct pbwire_bytes bytes, struct arena *a)
{
    struct pbwire_bytes *raw = APPEND(a, m->raw, m->n_raw, m->raw_capacity);
    if (!raw)
        return READ_NO_MEMORY;
    *raw = bytes;
    return READ_FINE;
}

static enum read read_field(struct infer_message *m, const struct pbwire_field *f, struct arena *a)
{
    enum { MODEL_NAME = 1, MODEL_VERSION, ID, PARAMETERS, INPUTS, OUTPUTS, RAW };
    if (f->type != PBWIRE_BYTES)
        return READ_FINE;
    switch (f->number) {
    case MODEL_NAME:
        return take_text(f, &m->model_name);
    case MODEL_VERSION:
        return take_text(f, &m->model_version);
    case ID:
        return take_text(f, &m->id);
    case PARAMETERS:
        return read_parameter(&m->parameters, f->bytes, a);
    case INPUTS:
        return read_input(&m->inputs, f->bytes, a);
    case OUTPUTS:
        return read_output(&m->outputs, f->bytes, a);
    case RAW:
        return add_raw(m, f->bytes, a);
    }
    return READ_FINE;
}

struct status *infer_message_read(struct infer_message *m, const void *bytes, size_t n_bytes,
                                  struct arena *arena)
{
    struct pbwire in = pbwire_of(bytes, n_bytes);
    struct pbwire_field f;
    enum read read = READ_FINE;

    *m = (struct infer_message){.model_name = {"", 0}, .model_version = {"", 0}, .id = {"", 0}};
    while (read == READ_FINE && pbwire_next(&in, &f))
        read = read_field(m, &f, arena);
    if (read == READ_NO_MEMORY)
        return arena->starved ? status_no_memory()
                              : status_new(STATUS_INVALID_ARG,
                                           "the request has more than %d parameters, dimensions, "
                                           "inputs or outputs in one list, or too many in all",
                                           MAX_ITEMS);
    if (in.bad || read == READ_BAD)
        return status_new(STATUS_INTERNAL, "Unable to parse request");
    mark_replaced(&m->parameters);
    return NULL;
}
