/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each request is answered from the descriptors as protoc has written them (proto/descriptors.h):
 * they are searched field by field, without an index, since they have 30 KB and tools ask seldom.
 *
 * No state; any thread.
 */
#include "frontends/grpc/reflection.h"

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/pbwire.h"
#include "base/status.h"
#include "frontends/ops/errors.h"
#include "proto/descriptors.h"

typedef struct pbwire_bytes bytes;

/* ---- Descriptors ---------------------------------------------------------------------------- */

/* The kinds of declarations, and the numbers of the fields in which google.protobuf has them. */
enum declaration {
    DECLARED_NOTHING,
    DECLARED_MESSAGE,
    DECLARED_ENUM,
    DECLARED_SERVICE,
    DECLARED_OTHER, /* a field, a oneof, a method, a value of an enum, an extension */
};

enum { FILE_NAME = 1, FILE_PACKAGE = 2, FILE_DEPENDENCY = 3, FILE_SERVICE = 6 };

/* The fields of a descriptor that declare names. */
struct declares {
    uint32_t number;
    enum declaration kind;
};

static const struct declares of_file[] = {{4, DECLARED_MESSAGE},
                                          {5, DECLARED_ENUM},
                                          {FILE_SERVICE, DECLARED_SERVICE},
                                          {7, DECLARED_OTHER},
                                          {0, DECLARED_NOTHING}};
static const struct declares of_message[] = {{2, DECLARED_OTHER}, {3, DECLARED_MESSAGE},
                                             {4, DECLARED_ENUM},  {6, DECLARED_OTHER},
                                             {8, DECLARED_OTHER}, {0, DECLARED_NOTHING}};
static const struct declares of_enum[] = {{2, DECLARED_OTHER}, {0, DECLARED_NOTHING}};
static const struct declares of_service[] = {{2, DECLARED_OTHER}, {0, DECLARED_NOTHING}};
static const struct declares of_nothing[] = {{0, DECLARED_NOTHING}};

static const struct declares *const members[] = {
    [DECLARED_NOTHING] = of_nothing, [DECLARED_MESSAGE] = of_message, [DECLARED_ENUM] = of_enum,
    [DECLARED_SERVICE] = of_service, [DECLARED_OTHER] = of_nothing,
};

static bool bytes_are_equal(bytes a, bytes b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

/* The last field of that number, which is bytes; empty without one. */
static bytes find_bytes_field(bytes message, uint32_t number)
{
    struct pbwire in = pbwire_of(message.at, message.length);
    bytes found = {"", 0};
    struct pbwire_field f;
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, number, PBWIRE_BYTES))
            found = f.bytes;
    }
    return found;
}

static bytes get_file(size_t i)
{
    const struct proto_descriptor *d = &proto_descriptors[i];
    return find_bytes_field((bytes){(const char *)d->set, d->n_bytes}, 1);
}

/* Removes `scope` and a dot from the front of the name. False: the name is not in that scope. */
static bool enter_scope(bytes *name, bytes scope)
{
    if (scope.length == 0)
        return true;
    if (name->length <= scope.length || name->at[scope.length] != '.' ||
        memcmp(name->at, scope.at, scope.length) != 0)
        return false;
    name->at += scope.length + 1;
    name->length -= scope.length + 1;
    return true;
}

static enum declaration find_member_that_declares(bytes descriptor, const struct declares *declares,
                                                  bytes name);

/* Finds the name as that declaration or within it. */
static enum declaration find_within(bytes descriptor, enum declaration kind, bytes name)
{
    bytes own = find_bytes_field(descriptor, 1);
    if (bytes_are_equal(own, name))
        return kind;
    /* A value of an enum is named beside the enum, not within it. */
    if (kind != DECLARED_ENUM && !enter_scope(&name, own))
        return DECLARED_NOTHING;
    return find_member_that_declares(descriptor, members[kind], name);
}

/* Finds what the name declares among the fields of a descriptor. */
static enum declaration find_member_that_declares(bytes descriptor, const struct declares *declares,
                                                  bytes name)
{
    struct pbwire in = pbwire_of(descriptor.at, descriptor.length);
    struct pbwire_field f;
    while (pbwire_next(&in, &f)) {
        for (const struct declares *d = declares; d->number; d++) {
            enum declaration found = pbwire_is(&f, d->number, PBWIRE_BYTES)
                                         ? find_within(f.bytes, d->kind, name)
                                         : DECLARED_NOTHING;
            if (found != DECLARED_NOTHING)
                return found;
        }
    }
    return DECLARED_NOTHING;
}

/* Finds the file that declares a full name. */
static enum declaration find_symbol(bytes name, size_t *ret_file)
{
    if (name.length > 0 && name.at[0] == '.') /* a full name may begin with a dot */
        name = (bytes){name.at + 1, name.length - 1};
    for (size_t i = 0; i < proto_n_descriptors; i++) {
        bytes file = get_file(i), rest = name;
        if (!enter_scope(&rest, find_bytes_field(file, FILE_PACKAGE)))
            continue;
        enum declaration found = find_member_that_declares(file, of_file, rest);
        *ret_file = i;
        if (found != DECLARED_NOTHING)
            return found;
    }
    return DECLARED_NOTHING;
}

static bool find_descriptor(bytes name, size_t *ret_file)
{
    for (size_t i = 0; i < proto_n_descriptors; i++) {
        *ret_file = i;
        if (bytes_are_equal(find_bytes_field(get_file(i), FILE_NAME), name))
            return true;
    }
    return false;
}

/* ---- Writing -------------------------------------------------------------------------------- */

static void add_bytes_field(struct buf *out, uint32_t number, const void *at, size_t length)
{
    char head[2 * PBWIRE_MAX_VARINT];
    buf_add(out, head, (size_t)(pbwire_put_head(head, number, length) - head));
    buf_add(out, at, length);
}

static void add_number_field(struct buf *out, uint32_t number, uint64_t value)
{
    char field[2 * PBWIRE_MAX_VARINT];
    buf_add(out, field, (size_t)(pbwire_put_number(field, number, value) - field));
}

/* The fields of a ServerReflectionResponse. */
enum {
    ANSWER_HOST = 1,
    ANSWER_REQUEST = 2,
    ANSWER_FILES = 4,
    ANSWER_EXTENSIONS = 5,
    ANSWER_SERVICES = 6,
    ANSWER_ERROR = 7,
};

enum { MAX_BODY = 1 << 20 };

/* Adds the made part of an answer as that field. */
static void add_message(struct buf *out, uint32_t number, const struct buf *part)
{
    add_bytes_field(out, number, buf_text(part), part->size);
    out->failed |= part->failed;
}

static void add_error(struct buf *out, enum status_code code, const char *what, bytes name)
{
    AUTO(buf) part = BUF_INIT(MAX_BODY);
    AUTO(buf) text = BUF_INIT(1024);
    enum { MAX_NAME = 512 }; /* of a name in an error */
    buf_addf(&text, "%s: %.*s", what, (int)MIN(name.length, (size_t)MAX_NAME), name.at);
    add_number_field(&part, 1, (uint64_t)ops_error_of(code)->grpc_status);
    add_bytes_field(&part, 2, buf_text(&text), text.size);
    add_message(out, ANSWER_ERROR, &part);
}

/* Adds the file to the list, after the files that it imports; `seen` has a bit for each file. */
static void add_descriptor(struct buf *part, size_t file, uint64_t *seen)
{
    bytes descriptor = get_file(file);
    struct pbwire in = pbwire_of(descriptor.at, descriptor.length);
    struct pbwire_field f;
    size_t imported;
    if (*seen & (uint64_t)1 << file)
        return;
    *seen |= (uint64_t)1 << file;
    add_bytes_field(part, 1, descriptor.at, descriptor.length);
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, FILE_DEPENDENCY, PBWIRE_BYTES) && find_descriptor(f.bytes, &imported))
            add_descriptor(part, imported, seen);
    }
}

static void add_files(struct buf *out, size_t file)
{
    AUTO(buf) part = BUF_INIT(MAX_BODY);
    uint64_t seen = 0;
    add_descriptor(&part, file, &seen);
    add_message(out, ANSWER_FILES, &part);
}

/* ---- Answers -------------------------------------------------------------------------------- */

static void answer_file(bytes name, struct buf *out)
{
    size_t file;
    if (find_descriptor(name, &file))
        add_files(out, file);
    else
        add_error(out, STATUS_NOT_FOUND, "File not found", name);
}

static void answer_symbol(bytes name, struct buf *out)
{
    size_t file;
    if (find_symbol(name, &file) != DECLARED_NOTHING)
        add_files(out, file);
    else
        add_error(out, STATUS_NOT_FOUND, "Symbol not found", name);
}

/* None of our files declares an extension. */
static void answer_extension(bytes request, struct buf *out)
{
    add_error(out, STATUS_NOT_FOUND, "Extension not found", find_bytes_field(request, 1));
}

static void answer_extension_numbers(bytes type, struct buf *out)
{
    AUTO(buf) part = BUF_INIT(MAX_BODY);
    size_t file;
    if (find_symbol(type, &file) != DECLARED_MESSAGE) {
        add_error(out, STATUS_NOT_FOUND, "Type not found", type);
        return;
    }
    add_bytes_field(&part, 1, type.at, type.length);
    add_message(out, ANSWER_EXTENSIONS, &part);
}

/* Adds the full names of the file's services, each a message with the field 1. */
static void add_services(struct buf *part, bytes file)
{
    struct pbwire in = pbwire_of(file.at, file.length);
    bytes package = find_bytes_field(file, FILE_PACKAGE);
    struct pbwire_field f;
    while (pbwire_next(&in, &f)) {
        AUTO(buf) name = BUF_INIT(1024);
        AUTO(buf) service = BUF_INIT(2048);
        if (!pbwire_is(&f, FILE_SERVICE, PBWIRE_BYTES))
            continue;
        bytes own = find_bytes_field(f.bytes, 1);
        buf_addf(&name, "%.*s.%.*s", (int)package.length, package.at, (int)own.length, own.at);
        add_bytes_field(&service, 1, buf_text(&name), name.size);
        add_message(part, 1, &service);
    }
}

static void answer_services(struct buf *out)
{
    AUTO(buf) part = BUF_INIT(MAX_BODY);
    for (size_t i = 0; i < proto_n_descriptors; i++)
        add_services(&part, get_file(i));
    add_message(out, ANSWER_SERVICES, &part);
}

/* The fields of a ServerReflectionRequest; those from FIRST on are a oneof. */
enum {
    ASK_HOST = 1,
    ASK_FIRST = 3,
    ASK_FILE = 3,
    ASK_SYMBOL = 4,
    ASK_EXTENSION = 5,
    ASK_EXTENSION_NUMBERS = 6,
    ASK_SERVICES = 7,
    ASK_LAST = 7,
};

static void answer_question(uint32_t number, bytes question, struct buf *out)
{
    switch (number) {
    case ASK_FILE:
        answer_file(question, out);
        break;
    case ASK_SYMBOL:
        answer_symbol(question, out);
        break;
    case ASK_EXTENSION:
        answer_extension(question, out);
        break;
    case ASK_EXTENSION_NUMBERS:
        answer_extension_numbers(question, out);
        break;
    case ASK_SERVICES:
        answer_services(out);
        break;
    default:
        add_error(out, STATUS_INVALID_ARG, "The request asks for nothing that is known", question);
    }
}

struct status *reflection_answer(const char *at, size_t n_bytes, struct buf *out)
{
    struct pbwire in = pbwire_of(at, n_bytes);
    bytes host = {"", 0}, question = {"", 0};
    uint32_t number = 0;
    struct pbwire_field f;
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, ASK_HOST, PBWIRE_BYTES))
            host = f.bytes;
        if (f.type == PBWIRE_BYTES && f.number >= ASK_FIRST && f.number <= ASK_LAST) {
            number = f.number;
            question = f.bytes;
        }
    }
    if (in.bad)
        return status_new(STATUS_INTERNAL, "Unable to parse request");
    if (host.length > 0)
        add_bytes_field(out, ANSWER_HOST, host.at, host.length);
    add_bytes_field(out, ANSWER_REQUEST, at, n_bytes);
    answer_question(number, question, out);
    return out->failed ? status_no_memory() : NULL;
}
