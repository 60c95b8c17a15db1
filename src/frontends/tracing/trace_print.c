/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of the root come first, between the frontend's stamps, then those of its children, in
 * the order of their ids. Values of tensors are one text, as C++'s streams print numbers. What each
 * trace has is printed without formats: those took 50 000 instructions of a trace. Thread: the
 * writer's.
 */
#include "frontends/tracing/trace_print.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "core/model/tensor.h"
#include "frontends/tracing/trace_file.h"
#include "frontends/tracing/traced.h"

struct printer {
    struct trace_file *file;
    struct buf *out;
    bool comma;
};

static void begin_record(struct printer *p, uint64_t id)
{
    if (p->comma)
        buf_addc(p->out, ',');
    p->comma = true;
    buf_adds(p->out, "{\"id\":");
    json_write_uint64(p->out, id);
}

static void print_word(struct printer *p, const char *text)
{
    json_write_string(p->out, text, strlen(text));
}

/* @name  as it stands between the quotes */
static void print_time(struct printer *p, uint64_t id, const char *name, uint64_t ns)
{
    begin_record(p, id);
    buf_adds(p->out, ",\"timestamps\":[{\"name\":\"");
    buf_adds(p->out, name);
    buf_adds(p->out, "\",\"ns\":");
    json_write_uint64(p->out, ns);
    buf_adds(p->out, "}]}");
}

static void print_stamps(struct printer *p, const struct traced *t, int from, int to)
{
    bool wanted = t->root.trace.level & TRACE_TIMESTAMPS;
    for (int i = from; i < to; i++) {
        if (wanted && t->stamps[i])
            print_time(p, t->root.trace.id, stamp_names[i], t->stamps[i]);
    }
}

static void print_identity(struct printer *p, const struct trace *trace)
{
    begin_record(p, trace->id);
    buf_adds(p->out, ",\"model_name\":");
    print_word(p, trace->model_name);
    buf_adds(p->out, ",\"model_version\":");
    json_write_int64(p->out, trace->model_version);
    if (*trace->request_id) {
        buf_adds(p->out, ",\"request_id\":");
        print_word(p, trace->request_id);
    }
    if (trace->parent_id) {
        buf_adds(p->out, ",\"parent_id\":");
        json_write_uint64(p->out, trace->parent_id);
    }
    buf_addc(p->out, '}');
}

/* ---- Tensors -------------------------------------------------------------------------------- */

/* Prints a string within a string: "\"…\"". */
static void print_quoted(struct printer *p, const char *text, size_t length)
{
    struct buf *out = p->out;
    buf_addf(out, "\\\"");
    size_t at = out->size;
    json_write_string(out, text, length);
    if (out->failed)
        return;
    memmove(out->data + at, out->data + at + 1, out->size - at - 1); /* without its own quotes */
    out->size -= 2;
    buf_addf(out, "\\\"");
}

static void print_texts(struct printer *p, const struct trace_record *r)
{
    const char *at = r->data, *end = at + r->size_bytes;
    uint32_t length;
    while ((size_t)(end - at) >= sizeof(length)) {
        memcpy(&length, at, sizeof(length));
        if (length > (size_t)(end - at) - sizeof(length))
            return;
        if (at != (const char *)r->data)
            buf_addc(p->out, ',');
        print_quoted(p, at + sizeof(length), length);
        at += sizeof(length) + length;
        trace_file_flush(p->file);
    }
}

/* PRINT(dtype, type, format, argument's type): the elements of that datatype. */
#define PRINT(dtype, type, format, as)                                                             \
    case dtype:                                                                                    \
        for (size_t i = 0; i < r->size_bytes / sizeof(type); i++) {                                \
            type value;                                                                            \
            memcpy(&value, (const char *)r->data + i * sizeof(type), sizeof(value));               \
            buf_addf(p->out, i ? "," format : format, (as)value);                                  \
            trace_file_flush(p->file);                                                             \
        }                                                                                          \
        break;

static void print_values(struct printer *p, const struct trace_record *r)
{
    switch ((enum dtype)r->dtype) {
        PRINT(DTYPE_BOOL, bool, "%d", int)
        PRINT(DTYPE_UINT8, uint8_t, "%d", int)
        PRINT(DTYPE_UINT16, uint16_t, "%d", int)
        PRINT(DTYPE_UINT32, uint32_t, "%" PRIu32, uint32_t)
        PRINT(DTYPE_UINT64, uint64_t, "%" PRIu64, uint64_t)
        PRINT(DTYPE_INT8, int8_t, "%d", int)
        PRINT(DTYPE_INT16, int16_t, "%d", int)
        PRINT(DTYPE_INT32, int32_t, "%" PRId32, int32_t)
        PRINT(DTYPE_INT64, int64_t, "%" PRId64, int64_t)
        PRINT(DTYPE_FP32, float, "%g", double)
        PRINT(DTYPE_FP64, double, "%g", double)
    case DTYPE_BYTES:
        print_texts(p, r);
        break;
    default: /* FP16 and BF16 are empty, as in the reference */
        break;
    }
}

static void print_tensor(struct printer *p, uint64_t id, const struct trace_record *r)
{
    begin_record(p, id);
    buf_addf(p->out,
             ",\"activity\":\"%s\",\"tensor\":{\"name\":", trace_activity_name(r->activity));
    print_word(p, r->name);
    buf_addf(p->out, ",\"data\":\"");
    print_values(p, r);
    buf_addf(p->out, "\",\"shape\":\"");
    for (uint32_t i = 0; i < r->n_dims; i++)
        buf_addf(p->out, i ? ",%" PRId64 : "%" PRId64, r->shape[i]);
    buf_addf(p->out, "\",\"dtype\":\"%s\"}}", dtype_name((enum dtype)r->dtype));
}

/* ---- A trace -------------------------------------------------------------------------------- */

static void print_part(struct printer *p, const struct trace_part *part)
{
    uint64_t id = part->trace.id;
    for (const struct trace_record *r = part->records; r; r = r->next) {
        if (r->activity == TRACE_REQUEST_START)
            print_identity(p, &part->trace);
        if (r->is_tensor)
            print_tensor(p, id, r);
        else
            print_time(p, id, r->name ? r->name : trace_activity_name(r->activity), r->ns);
        trace_file_flush(p->file);
    }
}

/* The child whose id follows; NULL: there is none. */
static const struct trace_part *next_child(const struct traced *t, uint64_t id)
{
    const struct trace_part *found = NULL;
    for (const struct trace_part *p = atomic_load(&t->parts); p; p = p->next) {
        if (p->trace.id > id && (!found || p->trace.id < found->trace.id))
            found = p;
    }
    return found;
}

bool trace_print(const struct traced *t, struct trace_file *f)
{
    struct printer p = {f, &f->text, false};
    print_stamps(&p, t, 0, N_STAMPS_BEFORE);
    print_part(&p, &t->root);
    print_stamps(&p, t, N_STAMPS_BEFORE, N_STAMPS);
    for (const struct trace_part *c = &t->root; (c = next_child(t, c->trace.id));)
        print_part(&p, c);
    return p.comma;
}
