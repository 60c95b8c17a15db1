/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages and their fields, as far as they are read:
 *
 *     SavedModel     2 meta_graphs: MetaGraphDef, several
 *     MetaGraphDef   1 meta_info_def (4 tags, several), 5 signature_def: a map to SignatureDef
 *     SignatureDef   1 inputs, 2 outputs: maps to TensorInfo
 *     TensorInfo     1 name, 2 dtype, 3 tensor_shape
 *     tensor_shape   2 dim (1 size), 3 unknown_rank
 *     an entry of a map: 1 key, 2 value
 *
 * The graph itself is field 2 of MetaGraphDef (graph.h).
 */
#include "tensorflow/saved_model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/message.h"
#include "tensorflow/graph_check.h"

#define DEFAULT_TAG       "serve"
#define DEFAULT_SIGNATURE "serving_default"

enum {
    MAX_TENSORS = 4096, /* of a side */
    MAX_LISTED = 600,   /* bytes of a list in an error */
    MAX_NAME = 4096,
};

/* protobuf's own limit of a message. */
#define MAX_FILE ((off_t)INT32_MAX)

/* What is looked for, and where. */
struct reading {
    const char *model, *path, *tag, *signature;
};

static TRITONSERVER_Error *refuse_damaged(const struct reading *r)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "unable to load model '%s', '%s' is damaged, or no SavedModel", r->model,
                         r->path);
}

static TRITONSERVER_Error *no_saved_memory(void)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Copies a text of the file, which must have no zero bytes. */
static TRITONSERVER_Error *copy_saved_name(const struct reading *r, const struct message_bytes *b,
                                           char **ret_text)
{
    size_t n = (size_t)(b->end - b->at);

    if (n > MAX_NAME || memchr(b->at, '\0', n))
        return refuse_damaged(r);
    *ret_text = malloc(n + 1);
    if (!*ret_text)
        return no_saved_memory();
    memcpy(*ret_text, b->at, n);
    (*ret_text)[n] = '\0';
    return NULL;
}

/* A list of names for an error; it is cut off where it is too long. */
struct names {
    char text[MAX_LISTED];
    size_t len, n;
};

static void add_listed_name(struct names *to, const struct message_bytes *name)
{
    int room = (int)(sizeof(to->text) - to->len);
    int n = (int)(name->end - name->at < MAX_LISTED ? name->end - name->at : MAX_LISTED);

    n = snprintf(to->text + to->len, (size_t)room, "%s'%.*s'", to->n > 0 ? ", " : "", n,
                 (const char *)name->at);
    to->len += (size_t)(n < room ? n : room - 1);
    to->n++;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static bool read_dimension(struct message_bytes b, int64_t *ret_size)
{
    struct message_field f;

    *ret_size = 0;
    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return false;
        if (f.number == 1 && !f.is_bytes)
            *ret_size = (int64_t)f.value;
    }
    return *ret_size >= -1;
}

static bool read_tensor_shape_of(struct message_bytes b, struct saved_tensor *t)
{
    struct message_field f;

    t->any_rank = false;
    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return false;
        if (f.number == 3 && !f.is_bytes)
            t->any_rank = f.value != 0;
        if (f.number != 2 || !f.is_bytes)
            continue;
        if (t->rank == SAVED_MAX_RANK || !read_dimension(f.bytes, &t->dims[t->rank]))
            return false;
        t->rank++;
    }
    if (t->any_rank)
        t->rank = 0;
    return true;
}

/* Reads a TensorInfo. */
static TRITONSERVER_Error *read_tensor_info(const struct reading *r, struct message_bytes b,
                                            struct saved_tensor *t)
{
    struct message_bytes place = {b.end, b.end};
    struct message_field f;

    t->any_rank = true; /* unless there is a shape */
    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return refuse_damaged(r);
        if (f.number == 1 && f.is_bytes)
            place = f.bytes;
        else if (f.number == 2 && !f.is_bytes)
            t->type = f.value <= INT32_MAX ? (int)f.value : 0;
        else if (f.number == 3 && f.is_bytes && !read_tensor_shape_of(f.bytes, t))
            return refuse_damaged(r);
    }
    return place.at < place.end ? copy_saved_name(r, &place, &t->place) : NULL;
}

static void free_saved_tensor(struct saved_tensor *t)
{
    free(t->name);
    free(t->place);
}

/* Adds an entry of `inputs` or `outputs`; one of the same name takes the place of the former. */
static TRITONSERVER_Error *add_saved_tensor(const struct reading *r, struct saved_side *side,
                                            struct message_bytes entry)
{
    struct message_bytes key, value;
    struct saved_tensor t = {0}, *same;
    TRITONSERVER_Error *err;

    if (!message_find(entry, 1, &key) || !message_find(entry, 2, &value) || side->n == MAX_TENSORS)
        return refuse_damaged(r);
    err = copy_saved_name(r, &key, &t.name);
    if (!err)
        err = read_tensor_info(r, value, &t);
    if (err) {
        free_saved_tensor(&t);
        return err;
    }
    same = (struct saved_tensor *)(uintptr_t)saved_tensor_named(side, t.name);
    if (same) {
        free_saved_tensor(same);
        *same = t;
        return NULL;
    }
    side->tensors[side->n++] = t;
    return NULL;
}

static int compare_saved_names(const void *a, const void *b)
{
    return strcmp(((const struct saved_tensor *)a)->name, ((const struct saved_tensor *)b)->name);
}

/* Reads the entries of one map of a SignatureDef. */
static TRITONSERVER_Error *read_saved_side(const struct reading *r, struct message_bytes signature,
                                           uint32_t number, struct saved_side *side)
{
    struct message_bytes b = signature;
    struct message_field f;
    size_t n = 0;

    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return refuse_damaged(r);
        n += f.is_bytes && f.number == number;
    }
    side->tensors = calloc(n + 1, sizeof(*side->tensors));
    if (!side->tensors)
        return no_saved_memory();
    for (b = signature; b.at < b.end && message_next(&b, &f);)
        if (f.is_bytes && f.number == number)
            TRY(add_saved_tensor(r, side, f.bytes));
    qsort(side->tensors, side->n, sizeof(*side->tensors), compare_saved_names);
    return NULL;
}

/* ---- Graphs and signatures ------------------------------------------------------------------- */

/* A meta graph that fits the tag. */
struct found {
    bool there, exact; /* exact: it has no other tag */
    struct message_bytes graph;
};

static bool look_at_tags(const struct reading *r, struct message_bytes info, struct found *f,
                         struct names *all)
{
    struct message_field tag;
    size_t n = 0;

    f->there = false;
    while (info.at < info.end) {
        if (!message_next(&info, &tag))
            return false;
        if (tag.number != 4 || !tag.is_bytes)
            continue;
        n++;
        f->there |= message_is_text(&tag.bytes, r->tag);
        add_listed_name(all, &tag.bytes);
    }
    f->exact = f->there && n == 1;
    return true;
}

static TRITONSERVER_Error *find_graph(const struct reading *r, struct message_bytes file,
                                      struct message_bytes *ret_graph)
{
    struct found best = {0};
    struct names all = {{0}, 0, 0};
    struct message_field f;

    while (file.at < file.end) {
        struct found this;
        struct message_bytes info;

        if (!message_next(&file, &f))
            return refuse_damaged(r);
        if (f.number != 2 || !f.is_bytes)
            continue;
        this.graph = f.bytes;
        if (!message_find_single(f.bytes, 1, &info) || !look_at_tags(r, info, &this, &all))
            return refuse_damaged(r);
        if (this.there && (!best.there || (this.exact && !best.exact)))
            best = this;
    }
    if (!best.there)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', expected '%s' tag; '%s' has the tags: %s",
                             r->model, r->tag, r->path, all.n > 0 ? all.text : "none");
    *ret_graph = best.graph;
    return NULL;
}

static TRITONSERVER_Error *copy_tags(const struct reading *r, struct message_bytes graph,
                                     struct saved_signature *s)
{
    struct message_bytes info;
    struct message_field f;

    if (!message_find_single(graph, 1, &info))
        return refuse_damaged(r);
    while (info.at < info.end && message_next(&info, &f)) {
        if (f.number != 4 || !f.is_bytes)
            continue;
        if (s->n_tags == sizeof(s->tags) / sizeof(s->tags[0]))
            return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "unable to load model '%s', the graph with the tag '%s' of '%s' "
                                 "has more than %zu tags",
                                 r->model, r->tag, r->path, s->n_tags);
        TRY(copy_saved_name(r, &f.bytes, &s->tags[s->n_tags]));
        s->n_tags++;
    }
    return NULL;
}

/* Signatures that TensorFlow itself uses. */
static bool is_internal(const struct message_bytes *name)
{
    return message_is_text(name, "__saved_model_init_op") ||
           message_is_text(name, "__saved_model_train_op");
}

/* A signature of a graph. */
struct named {
    struct message_bytes name, value;
};

/* The signature that was asked for, or the default one, or else the only one. */
static TRITONSERVER_Error *find_signature(const struct reading *r, struct message_bytes graph,
                                          struct named *ret)
{
    const char *wanted = r->signature ? r->signature : DEFAULT_SIGNATURE;
    struct names all = {{0}, 0, 0};
    bool found = false, is_wanted;
    struct message_field f;

    while (graph.at < graph.end) {
        struct named this;

        if (!message_next(&graph, &f))
            return refuse_damaged(r);
        if (f.number != 5 || !f.is_bytes)
            continue;
        if (!message_find(f.bytes, 1, &this.name) || !message_find(f.bytes, 2, &this.value))
            return refuse_damaged(r);
        if (is_internal(&this.name))
            continue;
        add_listed_name(&all, &this.name);
        /* Of several of the same name the last one counts, as in any map. */
        is_wanted = message_is_text(&this.name, wanted);
        if (is_wanted || !found)
            *ret = this;
        found |= is_wanted;
    }
    if (found || (!r->signature && all.n == 1))
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "unable to load model '%s', expected '%s' signature; '%s' has the "
                         "signatures: %s (the parameter TF_SIGNATURE_DEF names one)",
                         r->model, wanted, r->path, all.n > 0 ? all.text : "none");
}

/* Looks at the part of the graph that the outputs need. */
static TRITONSERVER_Error *read_facts(const struct reading *r, struct message_bytes meta,
                                      struct saved_signature *s)
{
    const char **places = calloc(s->outputs.n + 1, sizeof(*places));
    struct message_bytes graph;
    TRITONSERVER_Error *err;
    size_t n = 0;
    bool ok = message_find_single(meta, 2, &graph);

    if (!places)
        return no_saved_memory();
    for (size_t i = 0; i < s->outputs.n; i++)
        if (s->outputs.tensors[i].place)
            places[n++] = s->outputs.tensors[i].place;
    err = ok ? graph_check(graph, r->model, r->path) : NULL;
    if (!err && ok)
        err = graph_look(graph, places, n, &s->facts, &ok);
    free(places);
    return err || ok ? err : refuse_damaged(r);
}

static TRITONSERVER_Error *read_signature(const struct reading *r, struct message_bytes file,
                                          struct saved_signature *s)
{
    struct message_bytes graph;
    struct named found = {{NULL, NULL}, {NULL, NULL}};

    TRY(find_graph(r, file, &graph));
    TRY(copy_tags(r, graph, s));
    TRY(find_signature(r, graph, &found));
    TRY(copy_saved_name(r, &found.name, &s->name));
    s->is_default = strcmp(s->name, DEFAULT_SIGNATURE) == 0 && strcmp(r->tag, DEFAULT_TAG) == 0;
    TRY(read_saved_side(r, found.value, 1, &s->inputs));
    TRY(read_saved_side(r, found.value, 2, &s->outputs));
    return read_facts(r, graph, s);
}

/* ---- The file -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *refuse_unread_file(const struct reading *r, const char *why)
{
    return backend_error(TRITONSERVER_ERROR_NOT_FOUND, "unable to load model '%s', '%s': %s",
                         r->model, r->path, why);
}

static TRITONSERVER_Error *read_whole(const struct reading *r, int fd, unsigned char **ret_data,
                                      size_t *ret_len)
{
    struct stat st;
    size_t len = 0;
    ssize_t n = 1;

    if (fd < 0 || fstat(fd, &st) != 0)
        return refuse_unread_file(r, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE)
        return refuse_unread_file(r, "it is no file of at most 2 GiB");
    *ret_data = malloc((size_t)st.st_size + 1);
    if (!*ret_data)
        return no_saved_memory();
    while (n > 0 && len < (size_t)st.st_size) {
        n = read(fd, *ret_data + len, (size_t)st.st_size - len);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            len += (size_t)n;
    }
    *ret_len = len;
    return n < 0 ? refuse_unread_file(r, strerror(errno)) : NULL;
}

TRITONSERVER_Error *saved_model_read(const char *model, const char *path, const char *tag,
                                     const char *signature, struct saved_signature *ret)
{
    struct reading r = {model, path, tag ? tag : DEFAULT_TAG, signature};
    struct saved_signature s = {0};
    unsigned char *data = NULL;
    TRITONSERVER_Error *err;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    err = read_whole(&r, fd, &data, &len);
    if (fd >= 0)
        close(fd);
    if (!err)
        err = read_signature(&r, (struct message_bytes){data, data + len}, &s);
    free(data);
    if (err)
        saved_signature_done(&s);
    else
        *ret = s;
    return err;
}

const struct saved_tensor *saved_tensor_named(const struct saved_side *side, const char *name)
{
    for (size_t i = 0; i < side->n; i++)
        if (strcmp(side->tensors[i].name, name) == 0)
            return &side->tensors[i];
    return NULL;
}

static void free_saved_side(struct saved_side *side)
{
    for (size_t i = 0; i < side->n; i++)
        free_saved_tensor(&side->tensors[i]);
    free(side->tensors);
}

void saved_signature_done(struct saved_signature *s)
{
    free(s->name);
    for (size_t i = 0; i < s->n_tags; i++)
        free(s->tags[i]);
    free_saved_side(&s->inputs);
    free_saved_side(&s->outputs);
    *s = (struct saved_signature){0};
}

TRITONSERVER_Error *saved_model_folder(const char *path, char **ret_folder)
{
    *ret_folder = strndup(path, (size_t)(strrchr(path, '/') - path));
    return *ret_folder ? NULL : no_saved_memory();
}
