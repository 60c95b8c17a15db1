/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a session are a protobuf message, ConfigProto, of which these fields are written:
 *
 *     2 intra_op_parallelism_threads, 5 inter_op_parallelism_threads, 7 allow_soft_placement,
 *     9 use_per_session_threads, 10 graph_options (3 optimizer_options (5 global_jit_level))
 */
#include "tensorflow/tf_session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"

/* An execution of so few nodes takes less time than to hand it to another thread. */
#define SMALL_NODES 256

/* ---- Options --------------------------------------------------------------------------------- */

struct options_text {
    unsigned char bytes[64];
    size_t n;
};

static void put_session_option(struct options_text *to, unsigned int field, int64_t value)
{
    uint64_t left = (uint64_t)value;

    to->bytes[to->n++] = (unsigned char)(field << 3);
    for (; left > 0x7f; left >>= 7)
        to->bytes[to->n++] = (unsigned char)(left | 0x80);
    to->bytes[to->n++] = (unsigned char)left;
}

static void put_part(struct options_text *to, unsigned int field, const struct options_text *part)
{
    to->bytes[to->n++] = (unsigned char)(field << 3 | 2);
    to->bytes[to->n++] = (unsigned char)part->n;
    memcpy(to->bytes + to->n, part->bytes, part->n);
    to->n += part->n;
}

/* A level of the configuration as TensorFlow's: -1 off, 1, and 2 for all above. */
static void put_level(struct options_text *to, int64_t level)
{
    struct options_text optimizer = {{0}, 0}, graph = {{0}, 0};

    if (level == 0)
        return;
    put_session_option(&optimizer, 5, level < 0 ? -1 : level == 1 ? 1 : 2);
    put_part(&graph, 3, &optimizer);
    put_part(to, 10, &graph);
}

static TRITONSERVER_Error *make_options(const struct tf_loaded *l, struct tf_status *status,
                                        struct tf_session_options **ret_options)
{
    const struct tf_asked *a = &l->m->asked;
    const struct tf_api *api = &l->lib->api;
    struct options_text text = {{0}, 0};
    bool small = a->inter_threads == 0 && l->m->signature.facts.n_nodes <= SMALL_NODES;

    if (a->intra_threads > 0)
        put_session_option(&text, 2, a->intra_threads);
    if (small || a->inter_threads > 0)
        put_session_option(&text, 5, small ? -1 : a->inter_threads); /* -1: the caller's thread */
    put_session_option(&text, 7, 1);
    if (a->own_threads)
        put_session_option(&text, 9, 1);
    put_level(&text, a->graph_level);
    *ret_options = api->NewSessionOptions();
    api->SetConfig(*ret_options, text.bytes, text.n, status);
    return tf_library_error(l->lib, status, "setting options");
}

/* ---- Sessions -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *read_graph_file(const char *path, unsigned char **ret_data,
                                           size_t *ret_len)
{
    FILE *f = fopen(path, "re");
    char *data = NULL, chunk[1 << 16];
    size_t n;
    FILE *to = open_memstream(&data, ret_len);
    bool ok = f && to;

    while (ok && (n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        ok = fwrite(chunk, 1, n, to) == n;
    ok = ok && !ferror(f);
    if (f)
        fclose(f);
    if (to && fclose(to) != 0)
        ok = false;
    *ret_data = (unsigned char *)data;
    if (ok)
        return NULL;
    free(data);
    return backend_error(TRITONSERVER_ERROR_NOT_FOUND, "reading '%s': %s", path, strerror(errno));
}

static TRITONSERVER_Error *import_graph(const struct tf_loaded *l, struct tf_session *s,
                                        const struct tf_session_options *options,
                                        struct tf_status *status)
{
    const struct tf_api *api = &l->lib->api;
    struct tf_import_options *how = api->NewImportGraphDefOptions();
    struct tf_buffer_object *buffer;
    unsigned char *data;
    TRITONSERVER_Error *err;
    size_t len;

    err = read_graph_file(l->m->path, &data, &len);
    if (!err) {
        buffer = api->NewBufferFromString(data, len);
        free(data);
        api->GraphImportGraphDef(s->graph, buffer, how, status);
        api->DeleteBuffer(buffer);
        err = tf_library_error(l->lib, status, "reading the GraphDef");
    }
    api->DeleteImportGraphDefOptions(how);
    if (err)
        return err;
    s->object = api->NewSession(s->graph, options, status);
    return tf_library_error(l->lib, status, "making a session");
}

static TRITONSERVER_Error *load_saved_model(const struct tf_loaded *l, struct tf_session *s,
                                            const struct tf_session_options *options,
                                            struct tf_status *status)
{
    const struct saved_signature *from = &l->m->signature;
    const char *tags[sizeof(from->tags) / sizeof(from->tags[0])] = {NULL};
    size_t len = (size_t)(strrchr(l->m->path, '/') - l->m->path);
    char *folder = strndup(l->m->path, len);

    if (!folder)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < from->n_tags; i++)
        tags[i] = from->tags[i];
    s->object = l->lib->api.LoadSessionFromSavedModel(options, NULL, folder, tags,
                                                      (int)from->n_tags, s->graph, NULL, status);
    free(folder);
    return tf_library_error(l->lib, status, "loading the SavedModel");
}

/* Finds a tensor of the graph: "add:0", or "add", which is its output 0. */
static TRITONSERVER_Error *find_graph_place(const struct tf_loaded *l, const struct tf_session *s,
                                            const char *place, struct tf_port *ret_port)
{
    const char *colon = strrchr(place, ':');
    size_t len = colon ? (size_t)(colon - place) : strlen(place);
    char *name = strndup(place, len);

    if (!name)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    ret_port->operation = l->lib->api.GraphOperationByName(s->graph, name);
    free(name);
    ret_port->index = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
    if (ret_port->operation && ret_port->index >= 0 &&
        ret_port->index < l->lib->api.OperationNumOutputs(ret_port->operation))
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "unable to load model '%s', its graph has no tensor '%s'", l->m->name,
                         place);
}

static TRITONSERVER_Error *find_places(const struct tf_loaded *l, const struct tf_session *s,
                                       const struct saved_side *side, struct tf_port **ret_ports)
{
    *ret_ports = calloc(side->n + 1, sizeof(**ret_ports));
    if (!*ret_ports)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < side->n; i++) {
        struct tf_port *port = &(*ret_ports)[i];

        TRY(find_graph_place(l, s, side->tensors[i].place, port));
        if (l->lib->api.OperationOutputType(*port) != side->tensors[i].type)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "unable to load model '%s', tensor '%s' has another type in the "
                                 "graph than in the signature",
                                 l->m->name, side->tensors[i].name);
    }
    return NULL;
}

static TRITONSERVER_Error *open_session(const struct tf_loaded *l, struct tf_session *s)
{
    const struct tf_api *api = &l->lib->api;
    struct tf_status *status = api->NewStatus();
    struct tf_session_options *options = NULL;
    TRITONSERVER_Error *err;

    s->graph = api->NewGraph();
    err = make_options(l, status, &options);
    if (!err)
        err = (l->m->is_graph ? import_graph : load_saved_model)(l, s, options, status);
    if (options)
        api->DeleteSessionOptions(options);
    api->DeleteStatus(status);
    return err;
}

static void free_session(const struct tf_loaded *l, struct tf_session *s)
{
    const struct tf_api *api = &l->lib->api;
    struct tf_status *status = api->NewStatus();

    if (s->object) {
        api->CloseSession(s->object, status);
        api->DeleteSession(s->object, status);
    }
    if (s->graph)
        api->DeleteGraph(s->graph);
    api->DeleteStatus(status);
    free(s->inputs);
    free(s->outputs);
    free(s);
}

/* ---- The tensors of a GraphDef --------------------------------------------------------------- */

/* A list of names of the configuration: where, by which key. */
static const struct {
    const char *in, *list, *key; /* in: NULL, or the object that has the list */
    bool is_output;
} named_tensors[] = {
    {NULL, "input", "name", false},
    {NULL, "output", "name", true},
    {"sequence_batching", "control_input", "name", false},
    {"sequence_batching", "state", "input_name", false},
    {"sequence_batching", "state", "output_name", true},
};

static TRITONSERVER_Error *refuse_graph_name(const struct tf_loaded *l, const struct tf_session *s,
                                             const char *name, bool is_output)
{
    const struct tf_api *api = &l->lib->api;
    const char *names[32];
    struct tf_operation *o;
    size_t position = 0, n = 0;

    while (n < 32 && (o = api->GraphNextOperation(s->graph, &position)) != NULL)
        if (is_output || strncmp(api->OperationOpType(o), "Placeholder", 11) == 0)
            names[n++] = api->OperationName(o);
    return model_file_unexpected(is_output ? "output" : "input", name, names, n);
}

static TRITONSERVER_Error *add_graph_tensor(const struct tf_loaded *l, const struct tf_session *s,
                                            const char *name, bool is_output)
{
    struct saved_signature *sig = &l->m->signature;
    struct saved_side *side = is_output ? &sig->outputs : &sig->inputs;
    struct saved_tensor *grown, *t;
    struct tf_port port;
    TRITONSERVER_Error *err = find_graph_place(l, s, name, &port);

    if (err) {
        TRITONSERVER_ErrorDelete(err);
        return refuse_graph_name(l, s, name, is_output);
    }
    if (saved_tensor_named(side, name))
        return NULL;
    grown = realloc(side->tensors, (side->n + 1) * sizeof(*grown));
    if (!grown)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    side->tensors = grown;
    t = &grown[side->n++];
    *t = (struct saved_tensor){.name = strdup(name),
                               .place = strdup(name),
                               .type = l->lib->api.OperationOutputType(port),
                               .any_rank = true};
    return t->name && t->place ? NULL
                               : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

/* Takes the tensors that the configuration names; a GraphDef does not tell which are meant. */
static TRITONSERVER_Error *take_graph_tensors(const struct tf_loaded *l, const struct tf_session *s)
{
    const struct doc_value *root = doc_root(l->m->frame->config), *v;

    for (size_t i = 0; i < sizeof(named_tensors) / sizeof(named_tensors[0]); i++) {
        const char *in = named_tensors[i].in;

        v = doc_first(doc_get(in ? doc_get(root, in) : root, named_tensors[i].list));
        for (; v; v = v->next)
            TRY(add_graph_tensor(l, s, doc_string(doc_get(v, named_tensors[i].key), ""),
                                 named_tensors[i].is_output));
    }
    v = doc_first(doc_get(root, "batch_input"));
    for (; v; v = v->next)
        for (const struct doc_value *t = doc_first(doc_get(v, "target_name")); t; t = t->next)
            TRY(add_graph_tensor(l, s, doc_string(t, ""), false));
    l->m->signature.facts.n_nodes = SIZE_MAX; /* unknown */
    TRY(tf_take_signature(l->m));
    return tf_check_config(l->m);
}

/* ---- Models ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *add_session(struct tf_loaded *l)
{
    struct tf_session *s = calloc(1, sizeof(*s));
    TRITONSERVER_Error *err;

    if (!s)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    err = open_session(l, s);
    if (!err && l->m->is_graph && l->m->inputs.tensors == NULL)
        err = take_graph_tensors(l, s);
    if (!err)
        err = find_places(l, s, &l->m->signature.inputs, &s->inputs);
    if (!err)
        err = find_places(l, s, &l->m->signature.outputs, &s->outputs);
    if (err) {
        free_session(l, s);
        return err;
    }
    s->next = l->sessions;
    l->sessions = s;
    return NULL;
}

static bool is_configured_output(const struct tf_model *m, const struct tensor *t)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(m->frame->config), "output"));

    for (; v; v = v->next)
        if (strcmp(doc_string(doc_get(v, "name"), ""), t->name) == 0)
            return true;
    return false;
}

TRITONSERVER_Error *tf_session_load(const struct tf_library *lib, struct tf_model *m,
                                    struct tf_loaded **ret_loaded)
{
    struct tf_loaded *l = calloc(1, sizeof(*l));
    TRITONSERVER_Error *err;

    if (!l)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    l->lib = lib;
    l->m = m;
    pthread_mutex_init(&l->mu, NULL);
    err = add_session(l);
    if (!err) {
        l->in_place = !m->is_graph && !*m->signature.facts.writer;
        l->wanted = calloc(m->outputs.n + 1, sizeof(*l->wanted));
        if (!l->wanted)
            err = backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    }
    for (size_t i = 0; !err && i < m->outputs.n; i++)
        l->wanted[i] = is_configured_output(m, &m->outputs.tensors[i]);
    if (err)
        tf_session_unload(l);
    else
        *ret_loaded = l;
    return err;
}

void tf_session_unload(struct tf_loaded *l)
{
    while (l->sessions) {
        struct tf_session *s = l->sessions;

        l->sessions = s->next;
        free_session(l, s);
    }
    pthread_mutex_destroy(&l->mu);
    free(l->wanted);
    free(l);
}

TRITONSERVER_Error *tf_session_take(struct tf_loaded *l, const struct tf_session **ret_session)
{
    int64_t most = l->m->asked.sharers;
    TRITONSERVER_Error *err = NULL;

    pthread_mutex_lock(&l->mu);
    if (most > 0 && l->sessions->n_users >= most)
        err = add_session(l);
    if (!err) {
        l->sessions->n_users++;
        *ret_session = l->sessions;
    }
    pthread_mutex_unlock(&l->mu);
    return err;
}
