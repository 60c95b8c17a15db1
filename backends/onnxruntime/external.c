/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ONNX file is a protobuf message. Here it is walked field by field, without a copy of it in
 * memory: only messages in which a tensor can be are entered, all else is skipped by its length.
 *
 * src/core/config/onnx_head.c walks such files, too. The two share no reader, since a plugin sees
 * public headers only (tools/checks/arrows) and is loaded by other servers with the same ABI. A
 * field that one table of `paths` gets belongs into the other.
 */
#include "onnxruntime/external.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* protobuf's own limit, beyond which ONNX Runtime refuses the file. */
#define MAX_NESTING 100

enum wire { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_GROUP, WIRE_GROUP_END, WIRE_32 };

enum kind {
    OTHER,
    MODEL,
    TRAINING,
    FUNCTION,
    GRAPH,
    NODE,
    ATTRIBUTE,
    SPARSE,
    TENSOR,
    ENTRY,
    VALUE,
    TYPE,
    TENSOR_TYPE
};

/* The fields of onnx.proto whose messages may contain tensors, inputs and outputs. */
static const struct {
    enum kind in;
    uint32_t field;
    enum kind is;
} paths[] = {
    {MODEL, 7, GRAPH},         {MODEL, 20, TRAINING},   {MODEL, 25, FUNCTION},
    {TRAINING, 1, GRAPH},      {TRAINING, 2, GRAPH},    {FUNCTION, 7, NODE},
    {FUNCTION, 11, ATTRIBUTE}, {GRAPH, 1, NODE},        {GRAPH, 5, TENSOR},
    {GRAPH, 15, SPARSE},       {NODE, 5, ATTRIBUTE},    {ATTRIBUTE, 5, TENSOR},
    {ATTRIBUTE, 6, GRAPH},     {ATTRIBUTE, 10, TENSOR}, {ATTRIBUTE, 11, GRAPH},
    {ATTRIBUTE, 22, SPARSE},   {ATTRIBUTE, 23, SPARSE}, {SPARSE, 1, TENSOR},
    {SPARSE, 2, TENSOR},       {TENSOR, 13, ENTRY},     {GRAPH, 11, VALUE},
    {GRAPH, 12, VALUE},        {VALUE, 2, TYPE},        {TYPE, 1, TENSOR_TYPE},
};
enum {
    TENSOR_NAME = 8,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    VALUE_NAME = 1,
    TENSOR_TYPE_SHAPE = 2,
    DEPTH_OF_VALUES = 2 /* of the model's own graph, not of one in a node */
};

struct walk {
    int fd;
    uint64_t at; /* in the file */
    bool wrong;  /* a malformed message, or a read error; the walk is over */
    uint64_t window_at;
    size_t window_len;
    unsigned char window[1 << 16];

    char *folder;                /* the file's folder, as realpath() gives it */
    char name[256];              /* of the current tensor; cut off if it is longer */
    char key[16];                /* of its current entry */
    char value[PATH_MAX];        /* the same; a longer value is no path, so it is cut off */
    TRITONSERVER_Error *refused; /* ends the walk, too */

    struct external external; /* so far; a location may be there more than once */
    size_t room;              /* for so many files */

    const char *wanted; /* an input or output of the model; NULL: no shape is wanted */
    bool has_shape;     /* of the current value */
    bool found;         /* the wanted value has a shape */
};

bool external_is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);

    return strncmp(path, folder, len) == 0 && path[len] == '/';
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

static unsigned char next_byte(struct walk *w)
{
    if (w->at < w->window_at || w->at - w->window_at >= w->window_len) {
        ssize_t n = pread(w->fd, w->window, sizeof(w->window), (off_t)w->at);

        w->window_at = w->at;
        w->window_len = n > 0 ? (size_t)n : 0;
        if (n <= 0) {
            w->wrong = true;
            return 0;
        }
    }
    return w->window[w->at++ - w->window_at];
}

static uint64_t next_varint(struct walk *w)
{
    uint64_t value = 0;

    for (unsigned int shift = 0; shift < 64; shift += 7) {
        unsigned char byte = next_byte(w);

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    w->wrong = true;
    return 0;
}

/* Returns where a field of this length ends, which must be before `end`. */
static uint64_t next_end(struct walk *w, uint64_t end)
{
    uint64_t len = next_varint(w);

    if (w->wrong || w->at > end || len > end - w->at) {
        w->wrong = true;
        return w->at;
    }
    return w->at + len;
}

static void next_text(struct walk *w, uint64_t end, char *to, size_t room)
{
    size_t n = 0;

    for (; w->at < end && !w->wrong && n < room - 1; n++)
        to[n] = (char)next_byte(w);
    to[n] = '\0';
    w->at = end;
}

/* ---- Files that are named -------------------------------------------------------------------- */

/* Not a location, but ONNX Runtime's marker for tensors that it has in memory already, at the
 * address in the entry "offset". Not every library refuses a file with it. */
static const char in_memory[] = "*/_ORT_MEM_ADDR_/*";

/* @real  NULL, with the reason in errno, if there is none */
static TRITONSERVER_Error *check_located_file(const struct walk *w, const char *location,
                                              const char *real)
{
    struct stat info;
    int why = errno;

    /* A missing file whose name leads out is outside as well: the error must not reveal that it
     * is missing. */
    if (real ? !external_is_below(real, w->folder) : backend_escapes_folder(location))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "external data of '%s' is in '%s', which is outside the folder of its "
                             "ONNX file, '%s'",
                             w->name, location, w->folder);
    if (!real)
        return backend_error(TRITONSERVER_ERROR_NOT_FOUND,
                             "external data of '%s' is in '%s', which cannot be opened: %s",
                             w->name, location, strerror(why));
    if (stat(real, &info) != 0 || !S_ISREG(info.st_mode))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "external data of '%s' is in '%s', which is no regular file", w->name,
                             location);
    return NULL;
}

static TRITONSERVER_Error *note_named_file(struct walk *w, const char *location, const char *real)
{
    struct external *e = &w->external;
    struct external_file *f;

    /* Most models have one file for all their tensors. */
    if (e->n_files > 0 && strcmp(e->files[e->n_files - 1].location, location) == 0)
        return NULL;
    if (e->n_files == w->room) {
        size_t room = w->room > 0 ? w->room * 2 : 4;

        f = reallocarray(e->files, room, sizeof(*f));
        if (!f)
            return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
        e->files = f;
        w->room = room;
    }
    f = &e->files[e->n_files];
    *f = (struct external_file){strdup(location), strdup(real)};
    e->n_files++;
    if (!f->location || !f->path)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    return NULL;
}

static TRITONSERVER_Error *check_location(struct walk *w)
{
    const char *location = w->value;
    char *path = NULL, *real;
    TRITONSERVER_Error *err;

    if (!*location)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "external data of '%s' is in a file without a name", w->name);
    if (strcmp(location, in_memory) == 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "external data of '%s' is in '%s', which is memory and no file",
                             w->name, location);
    if (asprintf(&path, "%s%s%s", *location == '/' ? "" : w->folder, *location == '/' ? "" : "/",
                 location) < 0)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    real = realpath(path, NULL);
    err = check_located_file(w, location, real);
    if (!err)
        err = note_named_file(w, location, real);
    free(real);
    free(path);
    return err;
}

/* ---- Walk ----------------------------------------------------------------------------------- */

static void skip_wire_field(struct walk *w, uint32_t wire, uint64_t end)
{
    switch (wire) {
    case WIRE_VARINT:
        next_varint(w);
        break;
    case WIRE_64:
        w->at += 8;
        break;
    case WIRE_BYTES:
        w->at = next_end(w, end);
        break;
    case WIRE_32:
        w->at += 4;
        break;
    default:
        w->wrong = true;
    }
    if (w->at > end)
        w->wrong = true;
}

/* ONNX has no groups, so a group is skipped, with the groups in it. */
static void skip_field_group(struct walk *w, uint64_t end)
{
    for (size_t depth = 1; depth > 0 && !w->wrong;) {
        uint32_t wire = (uint32_t)next_varint(w) & 7;

        if (wire == WIRE_GROUP)
            depth++;
        else if (wire == WIRE_GROUP_END)
            depth--;
        else
            skip_wire_field(w, wire, end);
    }
}

static enum kind kind_of_field(enum kind in, uint64_t field)
{
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (paths[i].in == in && paths[i].field == field)
            return paths[i].is;
    return OTHER;
}

static void walk_message(struct walk *w, enum kind kind, uint64_t end, int depth);

static void walk_bytes(struct walk *w, enum kind in, uint64_t field, uint64_t end, int depth)
{
    enum kind kind = kind_of_field(in, field);

    if (in == TENSOR && field == TENSOR_NAME)
        next_text(w, end, w->name, sizeof(w->name));
    else if (in == ENTRY && field == ENTRY_KEY)
        next_text(w, end, w->key, sizeof(w->key));
    else if (in == ENTRY && field == ENTRY_VALUE)
        next_text(w, end, w->value, sizeof(w->value));
    else if (in == VALUE && field == VALUE_NAME)
        next_text(w, end, w->name, sizeof(w->name));
    else if (in == TENSOR_TYPE && field == TENSOR_TYPE_SHAPE)
        w->has_shape = true;
    else if (kind != OTHER)
        walk_message(w, kind, end, depth + 1);
    w->at = end;
}

/* A tensor's name usually comes before its external data; otherwise the error has no name. */
static void walk_message(struct walk *w, enum kind kind, uint64_t end, int depth)
{
    if (depth > MAX_NESTING)
        w->wrong = true;
    if (kind == TENSOR || kind == VALUE)
        w->name[0] = '\0';
    if (kind == VALUE)
        w->has_shape = false;
    if (kind == ENTRY)
        w->key[0] = w->value[0] = '\0';
    while (w->at < end && !w->wrong && !w->refused) {
        uint64_t tag = next_varint(w);
        uint32_t wire = (uint32_t)tag & 7;

        if (wire == WIRE_BYTES)
            walk_bytes(w, kind, tag >> 3, next_end(w, end), depth);
        else if (wire == WIRE_GROUP)
            skip_field_group(w, end);
        else
            skip_wire_field(w, wire, end);
    }
    if (kind == ENTRY && !w->refused && strcmp(w->key, "location") == 0)
        w->refused = check_location(w);
    if (kind == ENTRY && !w->refused && strcmp(w->key, "length") == 0 &&
        __builtin_add_overflow(w->external.bytes, strtoull(w->value, NULL, 10), &w->external.bytes))
        w->external.bytes = UINT64_MAX;
    if (kind == VALUE && depth == DEPTH_OF_VALUES && w->wanted &&
        strncmp(w->wanted, w->name, sizeof(w->name) - 1) == 0)
        w->found |= w->has_shape;
}

/* ret_external may be NULL */
static TRITONSERVER_Error *walk_model_file(const char *file, const char *wanted, bool *ret_found,
                                           struct external *ret_external)
{
    struct walk *w = calloc(1, sizeof(*w));
    TRITONSERVER_Error *err;
    struct stat info;
    char *folder;

    if (!w)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    w->wanted = wanted;
    folder = strndup(file, (size_t)(strrchr(file, '/') - file));
    w->folder = folder ? realpath(folder, NULL) : NULL;
    w->fd = open(file, O_RDONLY | O_CLOEXEC);
    if (w->folder && w->fd >= 0 && fstat(w->fd, &info) == 0)
        walk_message(w, MODEL, (uint64_t)info.st_size, 0);
    if (w->fd >= 0)
        close(w->fd);
    err = w->refused;
    *ret_found = w->found;
    if (!err && ret_external)
        *ret_external = w->external;
    else
        external_done(&w->external);
    free(w->folder);
    free(folder);
    free(w);
    return err;
}

static int compare_files(const void *a, const void *b)
{
    const struct external_file *x = a, *y = b;
    int order = strcmp(x->path, y->path);

    return order != 0 ? order : strcmp(x->location, y->location);
}

static void drop_repeated_files(struct external *e)
{
    size_t kept = 0;

    if (e->n_files == 0)
        return;
    qsort(e->files, e->n_files, sizeof(*e->files), compare_files);
    for (size_t i = 1; i < e->n_files; i++) {
        if (strcmp(e->files[i].location, e->files[kept].location) != 0) {
            e->files[++kept] = e->files[i];
        } else {
            free(e->files[i].location);
            free(e->files[i].path);
        }
    }
    e->n_files = kept + 1;
}

TRITONSERVER_Error *external_check(const char *file, struct external *ret_external)
{
    bool found;

    *ret_external = (struct external){0};
    TRY(walk_model_file(file, NULL, &found, ret_external));
    drop_repeated_files(ret_external);
    return NULL;
}

void external_done(struct external *external)
{
    for (size_t i = 0; i < external->n_files; i++) {
        free(external->files[i].location);
        free(external->files[i].path);
    }
    free(external->files);
    *external = (struct external){0};
}

bool external_has_shape(const char *file, const char *name)
{
    bool found = false;

    /* It was walked before. */
    TRITONSERVER_ErrorDelete(walk_model_file(file, name, &found, NULL));
    return found;
}
