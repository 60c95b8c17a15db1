/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The errors of JSON that is no such message. The texts begin as those of protobuf's C++ library,
 * which people search for; the position and the expected value follow in brackets.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/buf.h"
#include "base/pbjson_priv.h"
#include "base/status.h"

enum { MAX_PATH_BYTES = 400, MAX_TEXT_BYTES = 2000 };

struct pbjson_shown pbjson_shown(struct json_str s)
{
    struct pbjson_shown result;
    size_t n = MIN(s.length, sizeof(result.text) - 1);
    while (n < s.length && n > 0 && ((unsigned char)s.at[n] & 0xc0) == 0x80)
        n--;
    for (size_t i = 0; i < n; i++)
        result.text[i] = (unsigned char)s.at[i] < ' ' ? '?' : s.at[i];
    result.text[n] = '\0';
    return result;
}

static void print_json_path(const struct pbjson_step *s, struct buf *out)
{
    if (!s)
        return;
    print_json_path(s->outer, out);
    if (s->name)
        buf_addf(out, "%s%s", out->size ? "." : "", s->name);
    else
        buf_addf(out, "[%zu]", s->index);
}

struct text_position {
    size_t line, column;
};

static struct text_position position_in_text(const struct pbjson_reader *r, const char *at)
{
    struct text_position p = {.line = 1};
    const char *start = r->text;
    for (const char *c = r->text; c < at; c++) {
        if (*c == '\n') {
            p.line++;
            start = c + 1;
        }
    }
    p.column = (size_t)(at - start) + 1;
    return p;
}

struct status *pbjson_fail(const struct pbjson_reader *r, const char *at,
                           const struct pbjson_step *step, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct status *st = status_newv(STATUS_INVALID_ARG, fmt, ap);
    va_end(ap);

    struct text_position position = position_in_text(r, at);
    AUTO(buf) path = BUF_INIT(MAX_PATH_BYTES);
    print_json_path(step, &path);
    return status_prefix(st, "%zu:%zu: %s%s", position.line, position.column, buf_text(&path),
                         path.size ? ": " : "");
}

/* protobuf names a position "(input[0].dims)", and has no name for the whole message. */
static void print_location(const struct pbjson_step *s, struct buf *out)
{
    AUTO(buf) path = BUF_INIT(MAX_PATH_BYTES);
    print_json_path(s, &path);
    if (path.size)
        buf_addf(out, "(%s)", buf_text(&path));
}

/* Prints "(input[0]) dims: ": a name and its position. */
static void print_name(const struct pbjson_step *outer, const char *name, struct buf *out)
{
    print_location(outer, out);
    buf_addf(out, "%s%s: ", out->size ? " " : "", name);
}

static void print_type(const ProtobufCFieldDescriptor *f, struct buf *out)
{
    static const char *const names[] = {
        [PROTOBUF_C_TYPE_INT32] = "INT32",       [PROTOBUF_C_TYPE_SINT32] = "SINT32",
        [PROTOBUF_C_TYPE_SFIXED32] = "SFIXED32", [PROTOBUF_C_TYPE_INT64] = "INT64",
        [PROTOBUF_C_TYPE_SINT64] = "SINT64",     [PROTOBUF_C_TYPE_SFIXED64] = "SFIXED64",
        [PROTOBUF_C_TYPE_UINT32] = "UINT32",     [PROTOBUF_C_TYPE_FIXED32] = "FIXED32",
        [PROTOBUF_C_TYPE_UINT64] = "UINT64",     [PROTOBUF_C_TYPE_FIXED64] = "FIXED64",
        [PROTOBUF_C_TYPE_FLOAT] = "FLOAT",       [PROTOBUF_C_TYPE_DOUBLE] = "DOUBLE",
        [PROTOBUF_C_TYPE_BOOL] = "BOOL",         [PROTOBUF_C_TYPE_STRING] = "STRING",
        [PROTOBUF_C_TYPE_BYTES] = "BYTES",
    };
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        buf_addf(out, "type.googleapis.com/%s",
                 ((const ProtobufCMessageDescriptor *)f->descriptor)->name);
    else if (f->type == PROTOBUF_C_TYPE_ENUM)
        buf_addf(out, "type.googleapis.com/%s",
                 ((const ProtobufCEnumDescriptor *)f->descriptor)->name);
    else
        buf_addf(out, "TYPE_%s", names[f->type]);
}

/* Returns the value at `at`, a string, a number or a word, as it is in the text. */
static struct pbjson_shown raw_value(const struct pbjson_reader *r, const char *at)
{
    const char *end = at;
    if (*at == '"') {
        for (end++; end < r->json.end && *end != '"'; end++)
            end += *end == '\\' && end + 1 < r->json.end;
        end += end < r->json.end;
    } else {
        while (end < r->json.end && !strchr(",]} \t\r\n", *end))
            end++;
    }
    return pbjson_shown((struct json_str){.at = at, .length = (size_t)(end - at)});
}

static void print_value_fault(const struct pbjson_reader *r, const char *at,
                              const struct pbjson_step *step, struct buf *out)
{
    if (!step) {
        buf_adds(out, ": Root element must be a message.");
    } else if (*at == '[' && step->name && step->field->label == PROTOBUF_C_LABEL_REPEATED) {
        print_location(step->outer, out);
        buf_addf(out, ": invalid value Cannot bind a list to map for field '%s'. for type Map",
                 step->name);
    } else if (*at == '[' && step->name) {
        print_name(step->outer, step->name, out);
        buf_adds(out, "Proto field is not repeating, cannot start list.");
    } else if (*at == '{' && step->name) {
        print_location(step->outer, out);
        buf_addf(out, ": invalid value Starting an object on a scalar field for type %s",
                 step->name);
    } else {
        print_location(step, out);
        buf_addf(out, ": invalid value %s for type ", raw_value(r, at).text);
        print_type(step->field, out);
    }
}

/* Makes the error: protobuf's text, and in brackets the position and our text. */
NODISCARD static struct status *status_of_fault(const struct pbjson_reader *r, const char *at,
                                                const struct buf *theirs, const char *ours)
{
    struct text_position position = position_in_text(r, at);
    return status_new(STATUS_INVALID_ARG, "%s (%zu:%zu%s%s)", buf_text(theirs), position.line,
                      position.column, *ours ? ": " : "", ours);
}

struct status *pbjson_fail_value(const struct pbjson_reader *r, const char *at,
                                 const struct pbjson_step *step, const char *fmt, ...)
{
    AUTO(buf) theirs = BUF_INIT(MAX_TEXT_BYTES);
    AUTO(buf) ours = BUF_INIT(MAX_TEXT_BYTES);
    va_list ap;
    va_start(ap, fmt);
    buf_addv(&ours, fmt, ap);
    va_end(ap);
    print_value_fault(r, at, step, &theirs);
    return status_of_fault(r, at, &theirs, buf_text(&ours));
}

struct status *pbjson_fail_name(const struct pbjson_reader *r, const char *at,
                                const struct pbjson_step *outer, const char *name,
                                const char *meant)
{
    AUTO(buf) theirs = BUF_INIT(MAX_TEXT_BYTES);
    AUTO(buf) ours = BUF_INIT(MAX_TEXT_BYTES);
    print_name(outer, name, &theirs);
    buf_adds(&theirs, "Cannot find field.");
    if (meant)
        buf_addf(&ours, "did you mean \"%s\"?", meant);
    return status_of_fault(r, at, &theirs, buf_text(&ours));
}
