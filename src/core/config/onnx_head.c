/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ONNX file is a protobuf message, ModelProto, which may be larger than memory. Here it is
 * walked field by field through a small window: messages in which a name that is wanted can be are
 * entered (the table `paths`), all else is skipped by its length. Small messages (a type, an
 * import) are read as a whole and parsed by base/pbwire.h.
 *
 * The file is walked twice, since the names of initializers come before those of the inputs to
 * which they give a value. All sizes are bounded; what is beyond a bound is left out, and
 * `is_partial` says so.
 *
 * backends/onnxruntime/external.c has the same paths and says why it has a reader of its own.
 */
#include "core/config/onnx_head.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/pbwire.h"
#include "base/status.h"

enum {
    WINDOW_BYTES = 8 << 10,
    MAX_HEAD_BYTES = 16 << 20, /* of all that is kept */
    MAX_MESSAGE_BYTES = 1 << 20,
    MAX_VALUES = 1 << 16, /* inputs, and outputs */
    MAX_FILES = 256,
    MAX_NAME_BYTES = 4096,
    MAX_DIMS = 1024,
    MAX_NESTING = 100, /* protobuf's own limit */
    MAX_TYPES = 8      /* optionals and sequences in each other */
};

enum message { OTHER, MODEL, TRAINING, FUNCTION, GRAPH, NODE, ATTRIBUTE, SPARSE, TENSOR, ENTRY };

/* The fields of onnx.proto whose messages may have a tensor with external data in them. */
static const struct {
    enum message in;
    uint32_t field;
    enum message is;
} paths[] = {
    {MODEL, 7, GRAPH},         {MODEL, 20, TRAINING},   {MODEL, 25, FUNCTION},
    {TRAINING, 1, GRAPH},      {TRAINING, 2, GRAPH},    {FUNCTION, 7, NODE},
    {FUNCTION, 11, ATTRIBUTE}, {GRAPH, 1, NODE},        {GRAPH, 5, TENSOR},
    {GRAPH, 15, SPARSE},       {NODE, 5, ATTRIBUTE},    {ATTRIBUTE, 5, TENSOR},
    {ATTRIBUTE, 6, GRAPH},     {ATTRIBUTE, 10, TENSOR}, {ATTRIBUTE, 11, GRAPH},
    {ATTRIBUTE, 22, SPARSE},   {ATTRIBUTE, 23, SPARSE}, {SPARSE, 1, TENSOR},
    {SPARSE, 2, TENSOR},       {TENSOR, 13, ENTRY},
};

/* Numbers of fields in onnx.proto. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_IMPORT = 8,
    IMPORT_DOMAIN = 1,
    IMPORT_VERSION = 2,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    TENSOR_NAME = 8,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TYPE_SEQUENCE = 4,
    TYPE_MAP = 5,
    TYPE_OPTIONAL = 9,
    CONTAINED_TYPE = 1, /* of a sequence and of an optional */
    TENSOR_ELEMENT = 1,
    TENSOR_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
};

struct walk {
    int fd;
    uint64_t at, size; /* in the file */
    struct status *failed;
    struct onnx_head *head;
    bool second;                /* the walk that looks for initializers */
    struct onnx_value **sorted; /* in it: the inputs by their names */
    struct buf message;
    char name[MAX_NAME_BYTES]; /* of the current tensor; cut off if it is longer */
    char key[16];              /* of its current entry */
    char value[MAX_NAME_BYTES];
    uint64_t window_at;
    size_t window_length;
    unsigned char window[WINDOW_BYTES];
};

/* ---- bytes ----------------------------------------------------------------------------------- */

static void refuse_onnx_bytes(struct walk *w)
{
    if (!w->failed)
        w->failed = status_new(STATUS_INVALID_ARG,
                               "the file is no ONNX model: at byte %" PRIu64 " of %" PRIu64
                               " there is no field of a protobuf message",
                               w->at, w->size);
    w->at = w->size;
}

static void refuse_cut(struct walk *w, uint64_t end)
{
    if (!w->failed)
        w->failed = status_new(STATUS_INVALID_ARG,
                               "the file is cut short: it has %" PRIu64
                               " bytes, and what it has begun goes on to byte %" PRIu64,
                               w->size, end);
    w->at = w->size;
}

static void fill_window(struct walk *w)
{
    ssize_t n;
    do
        n = pread(w->fd, w->window, sizeof(w->window), (off_t)w->at);
    while (n < 0 && errno == EINTR);
    if (n < 0 && !w->failed)
        w->failed = status_new(STATUS_INTERNAL, "cannot read the file: %s", strerror(errno));
    else if (n == 0)
        refuse_cut(w, w->at + 1);
    w->window_at = w->at;
    w->window_length = n > 0 ? (size_t)n : 0;
}

static unsigned char take_onnx_byte(struct walk *w)
{
    if (w->at < w->window_at || w->at - w->window_at >= w->window_length)
        fill_window(w);
    return w->failed ? 0 : w->window[w->at++ - w->window_at];
}

static uint64_t take_onnx_varint(struct walk *w, uint64_t end)
{
    uint64_t value = 0;
    for (unsigned int shift = 0; shift < 7 * PBWIRE_MAX_VARINT && w->at < end; shift += 7) {
        unsigned char byte = take_onnx_byte(w);
        if (w->failed)
            return 0;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (byte < 0x80)
            return value;
    }
    if (w->at == w->size && end == w->size)
        refuse_cut(w, w->at + 1);
    refuse_onnx_bytes(w);
    return 0;
}

/* Returns where a field of n bytes ends, which must not be behind `end`. */
static uint64_t field_end(struct walk *w, uint64_t n, uint64_t end)
{
    if (w->failed)
        return w->at;
    if (n <= end - w->at)
        return w->at + n;
    /* At the end of the file it is the file that is too short. */
    if (end == w->size && n <= INT64_MAX - w->at)
        refuse_cut(w, w->at + n);
    refuse_onnx_bytes(w);
    return w->at;
}

/* Copies the bytes up to `end`, as far as there is room. */
static void take_onnx_text(struct walk *w, uint64_t end, char *to, size_t room)
{
    size_t n = 0;
    while (w->at < end && n < room - 1 && !w->failed)
        to[n++] = (char)take_onnx_byte(w);
    to[n] = '\0';
    if (w->at < end && to != w->key) /* a key that is so long is none of ours */
        w->head->is_partial = true;
}

/* Reads the message up to `end`; false, if it is too large or cannot be read. */
static bool take_onnx_message(struct walk *w, uint64_t end, struct pbwire *ret)
{
    buf_reset(&w->message);
    if (end - w->at > MAX_MESSAGE_BYTES) {
        w->head->is_partial = true;
        return false;
    }
    while (w->at < end && !w->failed) {
        char byte = (char)take_onnx_byte(w);
        buf_addc(&w->message, byte);
    }
    *ret = pbwire_of(buf_text(&w->message), w->message.size);
    if (w->message.failed)
        w->head->is_partial = true;
    return !w->failed && !w->message.failed;
}

/* ---- inputs, outputs, imports ---------------------------------------------------------------- */

static void *keep(struct walk *w, const void *bytes, size_t n_bytes)
{
    char *kept = arena_alloc(&w->head->arena, n_bytes + 1);
    if (!kept) {
        w->head->is_partial = true;
        return NULL;
    }
    if (n_bytes)
        memcpy(kept, bytes, n_bytes);
    kept[n_bytes] = '\0';
    return kept;
}

static struct pbwire inside(const struct pbwire_field *f)
{
    return pbwire_of(f->bytes.at, f->bytes.length);
}

static int64_t read_onnx_dim(struct pbwire in)
{
    struct pbwire_field f;
    int64_t dim = -1;
    while (pbwire_next(&in, &f)) {
        if (f.number == DIM_VALUE)
            dim = f.type == PBWIRE_VARINT ? (int64_t)f.value : dim;
        else
            dim = -1; /* a name: the last of the two counts */
    }
    return dim < 0 ? -1 : dim;
}

static void read_onnx_shape(struct walk *w, struct pbwire in, struct onnx_value *v)
{
    struct pbwire_field f;
    int64_t dims[MAX_DIMS];
    size_t n = 0;
    while (pbwire_next(&in, &f)) {
        if (!pbwire_is(&f, SHAPE_DIM, PBWIRE_BYTES))
            continue;
        if (n == MAX_DIMS) {
            w->head->is_partial = true;
            return;
        }
        dims[n++] = read_onnx_dim(inside(&f));
    }
    v->dims = keep(w, dims, n * sizeof(*dims));
    v->has_shape = v->dims != NULL;
    v->rank = v->has_shape ? n : 0;
}

static void read_onnx_tensor_type(struct walk *w, struct pbwire in, struct onnx_value *v)
{
    struct pbwire_field f;
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, TENSOR_ELEMENT, PBWIRE_VARINT))
            v->element = (int32_t)f.value;
        else if (pbwire_is(&f, TENSOR_SHAPE, PBWIRE_BYTES))
            read_onnx_shape(w, inside(&f), v);
    }
}

/* Returns the type inside a sequence or an optional. */
static struct pbwire contained_type(struct pbwire in)
{
    struct pbwire_field f;
    struct pbwire type = pbwire_of(NULL, 0);
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, CONTAINED_TYPE, PBWIRE_BYTES))
            type = inside(&f);
    }
    return type;
}

static bool is_map_type(struct pbwire in)
{
    struct pbwire_field f;
    bool map = false;
    while (pbwire_next(&in, &f))
        map |= pbwire_is(&f, TYPE_MAP, PBWIRE_BYTES);
    return map;
}

/* Reads a TypeProto; an optional is what is in it. */
static void read_type(struct walk *w, struct pbwire in, struct onnx_value *v)
{
    for (int depth = 0; depth < MAX_TYPES; depth++) {
        struct pbwire_field f, last = {0};
        while (pbwire_next(&in, &f)) {
            if (f.type == PBWIRE_BYTES && f.number < 10 && f.number != 6) /* 6: a denotation */
                last = f;
        }
        if (last.number == TYPE_OPTIONAL) {
            in = contained_type(inside(&last));
            continue;
        }
        if (last.number == TYPE_TENSOR) {
            v->kind = ONNX_TENSOR;
            read_onnx_tensor_type(w, inside(&last), v);
        } else if (last.number == TYPE_SEQUENCE) {
            v->kind = ONNX_SEQUENCE;
            v->has_maps = is_map_type(contained_type(inside(&last)));
        } else if (last.number == TYPE_MAP) {
            v->kind = ONNX_MAP;
            v->has_maps = true;
        } else if (last.number) {
            v->kind = ONNX_OTHER;
        }
        return;
    }
    v->kind = ONNX_OTHER;
}

static void read_onnx_value(struct walk *w, struct pbwire in, struct onnx_value **values, size_t *n)
{
    struct onnx_value v = {.name = ""};
    struct pbwire_field f;
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, VALUE_NAME, PBWIRE_BYTES))
            v.name = keep(w, f.bytes.at, f.bytes.length);
        else if (pbwire_is(&f, VALUE_TYPE, PBWIRE_BYTES))
            read_type(w, inside(&f), &v);
        if (!v.name)
            return;
    }
    if (in.bad)
        refuse_onnx_bytes(w);
    if (*n == MAX_VALUES) {
        w->head->is_partial = true;
        return;
    }
    if ((*n & (*n - 1)) == 0) /* a power of two, or the first */
        *values = mem_realloc(*values, (*n ? *n * 2 : 1) * sizeof(**values));
    (*values)[(*n)++] = v;
}

static void read_import(struct walk *w, struct pbwire in)
{
    struct pbwire_bytes domain = {.at = ""};
    struct pbwire_field f;
    int64_t version = 0;
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, IMPORT_DOMAIN, PBWIRE_BYTES))
            domain = f.bytes;
        else if (pbwire_is(&f, IMPORT_VERSION, PBWIRE_VARINT))
            version = (int64_t)f.value;
    }
    w->head->has_imports = true;
    if (!domain.length || (domain.length == 7 && memcmp(domain.at, "ai.onnx", 7) == 0))
        w->head->opset = version;
}

/* ---- external data, initializers ------------------------------------------------------------- */

static void add_external(struct walk *w)
{
    struct onnx_head *h = w->head;
    for (size_t i = 0; i < h->n_external; i++) {
        if (strcmp(h->external[i].location, w->value) == 0)
            return;
    }
    if (h->n_external == MAX_FILES) {
        h->is_partial = true;
        return;
    }
    struct onnx_external e = {.location = keep(w, w->value, strlen(w->value)),
                              .tensor = keep(w, w->name, strlen(w->name))};
    if (!e.location || !e.tensor)
        return;
    if (!h->external)
        h->external = mem_alloc(MAX_FILES * sizeof(*h->external));
    h->external[h->n_external++] = e;
}

static int compare_values(const void *a, const void *b)
{
    const struct onnx_value *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static void note_initializer(struct walk *w)
{
    const struct onnx_value key = {.name = w->name};
    const struct onnx_value *sought = &key;
    struct onnx_value **found =
        bsearch(&sought, w->sorted, w->head->n_inputs, sizeof(*w->sorted), compare_values);
    if (found)
        (*found)->has_default = true;
}

static void sort_inputs(struct walk *w)
{
    w->sorted = mem_alloc(w->head->n_inputs * sizeof(struct onnx_value *));
    for (size_t i = 0; i < w->head->n_inputs; i++)
        w->sorted[i] = &w->head->inputs[i];
    qsort(w->sorted, w->head->n_inputs, sizeof(*w->sorted), compare_values);
}

/* ---- the walk -------------------------------------------------------------------------------- */

static enum message message_of_field(enum message in, uint64_t field)
{
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        if (paths[i].in == in && paths[i].field == field)
            return paths[i].is;
    }
    return OTHER;
}

static void skip_value(struct walk *w, uint32_t type, uint64_t end)
{
    switch (type) {
    case PBWIRE_VARINT:
        take_onnx_varint(w, end);
        break;
    case PBWIRE_FIXED64:
        w->at = field_end(w, 8, end);
        break;
    case PBWIRE_BYTES:
        w->at = field_end(w, take_onnx_varint(w, end), end);
        break;
    case PBWIRE_FIXED32:
        w->at = field_end(w, 4, end);
        break;
    default:
        refuse_onnx_bytes(w);
    }
}

/* ONNX has no groups, so a group is skipped, with the groups in it. */
static void skip_unknown_group(struct walk *w, uint64_t end)
{
    for (int depth = 1; depth > 0 && !w->failed;) {
        uint32_t type = (uint32_t)take_onnx_varint(w, end) & 7;
        if (type == PBWIRE_GROUP_BEGIN)
            depth++;
        else if (type == PBWIRE_GROUP_END)
            depth--;
        else
            skip_value(w, type, end);
        if (depth > MAX_NESTING)
            refuse_onnx_bytes(w);
    }
}

static void walk_fields(struct walk *w, enum message is, uint64_t end, int depth);

/* Is this graph the model's own, and not one inside a node? */
static bool is_own_graph(enum message in, int depth)
{
    return in == GRAPH && depth == 1;
}

static void take_value_info(struct walk *w, uint64_t field, uint64_t end)
{
    struct pbwire in;
    if (w->second || !take_onnx_message(w, end, &in))
        return;
    if (field == GRAPH_INPUT)
        read_onnx_value(w, in, &w->head->inputs, &w->head->n_inputs);
    else
        read_onnx_value(w, in, &w->head->outputs, &w->head->n_outputs);
}

static void walk_bytes_field(struct walk *w, enum message in, uint64_t field, uint64_t end,
                             int depth)
{
    enum message is = message_of_field(in, field);
    struct pbwire import;

    if (in == TENSOR && field == TENSOR_NAME)
        take_onnx_text(w, end, w->name, sizeof(w->name));
    else if (in == ENTRY && field == ENTRY_KEY)
        take_onnx_text(w, end, w->key, sizeof(w->key));
    else if (in == ENTRY && field == ENTRY_VALUE)
        take_onnx_text(w, end, w->value, sizeof(w->value));
    else if (in == MODEL && field == MODEL_IMPORT && take_onnx_message(w, end, &import))
        read_import(w, import);
    else if (is_own_graph(in, depth) && (field == GRAPH_INPUT || field == GRAPH_OUTPUT))
        take_value_info(w, field, end);
    else if (is == TENSOR || is == SPARSE || !w->second || is_own_graph(is, depth + 1))
        if (is != OTHER)
            walk_fields(w, is, end, depth + 1);
    if (!w->failed)
        w->at = end;
}

static void begin_onnx_message(struct walk *w, enum message is, int depth)
{
    if (depth > MAX_NESTING)
        refuse_onnx_bytes(w);
    if (is == TENSOR)
        w->name[0] = '\0';
    if (is == ENTRY)
        w->key[0] = w->value[0] = '\0';
    if (is_own_graph(is, depth))
        w->head->has_graph = true;
}

static void walk_fields(struct walk *w, enum message is, uint64_t end, int depth)
{
    begin_onnx_message(w, is, depth);
    while (w->at < end && !w->failed) {
        uint64_t tag = take_onnx_varint(w, end);
        uint32_t type = (uint32_t)tag & 7;
        if (w->failed)
            return;
        if (tag >> 3 == 0 || tag >> 32) {
            refuse_onnx_bytes(w);
        } else if (type == PBWIRE_BYTES) {
            uint64_t field = field_end(w, take_onnx_varint(w, end), end);
            if (!w->failed)
                walk_bytes_field(w, is, tag >> 3, field, depth);
        } else if (type == PBWIRE_GROUP_BEGIN) {
            skip_unknown_group(w, end);
        } else if (is == MODEL && tag >> 3 == MODEL_IR_VERSION && type == PBWIRE_VARINT) {
            w->head->ir_version = (int64_t)take_onnx_varint(w, end);
        } else {
            skip_value(w, type, end);
        }
    }
    if (is == ENTRY && !w->failed && strcmp(w->key, "location") == 0 && !w->second)
        add_external(w);
    if (is == TENSOR && w->second) /* only the own graph's are entered then */
        note_initializer(w);
}

static struct status *walk_file(struct walk *w)
{
    struct stat info;
    if (fstat(w->fd, &info) != 0)
        return status_new(STATUS_INTERNAL, "cannot read the file: %s", strerror(errno));
    if (info.st_size == 0)
        return status_new(STATUS_INVALID_ARG, "the file is empty");
    w->size = (uint64_t)info.st_size;
    walk_fields(w, MODEL, w->size, 0);
    if (!w->failed && w->head->n_inputs) {
        w->second = true;
        sort_inputs(w);
        w->at = 0;
        walk_fields(w, MODEL, w->size, 0);
    }
    return w->failed;
}

struct status *onnx_head_read(int fd, struct onnx_head **ret_head)
{
    struct walk *w = mem_zalloc(sizeof(*w));
    struct onnx_head *head = mem_zalloc(sizeof(*head));
    arena_init(&head->arena, NULL, 0, MAX_HEAD_BYTES, NULL, NULL);
    w->fd = fd;
    w->head = head;
    buf_init(&w->message, MAX_MESSAGE_BYTES + 1);
    struct status *st = walk_file(w);
    buf_done(&w->message);
    mem_free(w->sorted);
    mem_free(w);
    if (st) {
        onnx_head_free(head);
        return st;
    }
    *ret_head = head;
    return NULL;
}

void onnx_head_free(struct onnx_head *head)
{
    if (!head)
        return;
    mem_free(head->inputs);
    mem_free(head->outputs);
    mem_free(head->external);
    arena_done(&head->arena);
    mem_free(head);
}

/* ---- types ----------------------------------------------------------------------------------- */

const char *onnx_config_type(int32_t element)
{
    static const char *const types[] = {
        [1] = "TYPE_FP32",    [2] = "TYPE_UINT8", [3] = "TYPE_INT8",  [4] = "TYPE_UINT16",
        [5] = "TYPE_INT16",   [6] = "TYPE_INT32", [7] = "TYPE_INT64", [8] = "TYPE_STRING",
        [9] = "TYPE_BOOL",    [10] = "TYPE_FP16", [11] = "TYPE_FP64", [12] = "TYPE_UINT32",
        [13] = "TYPE_UINT64", [16] = "TYPE_BF16",
    };
    return element > 0 && (size_t)element < ARRAY_SIZE(types) ? types[element] : NULL;
}
