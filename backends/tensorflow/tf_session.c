/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model keeps one session at least: the first one tells what the graph has. tf_session_take()
 * adds others, and tf_session_give_back() frees one that no instance uses, unless it is the last
 * one. A GraphDef is checked, imported and looked at before there is a session; TensorFlow loads a
 * SavedModel and makes its session in one step.
 */
#include "tensorflow/tf_session.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/model_file.h"
#include "tensorflow/graph_check.h"
#include "tensorflow/tf_init.h"
#include "tensorflow/tf_options.h"

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
                                        const unsigned char *data, size_t len,
                                        struct tf_status *status)
{
    const struct tf_api *api = &l->lib->api;
    struct tf_import_options *how = api->NewImportGraphDefOptions();
    struct tf_buffer_object *buffer = api->NewBufferFromString(data, len);

    api->GraphImportGraphDef(s->graph, buffer, how, status);
    api->DeleteBuffer(buffer);
    api->DeleteImportGraphDefOptions(how);
    return tf_library_error(l->lib, status, "reading the GraphDef");
}

/* TensorFlow loads such a model: an init op may set its variables. */
static void warn_of_missing_variables(const struct tf_model *m, const char *folder)
{
    char *path = NULL;

    if (!m->signature.facts.variables ||
        asprintf(&path, "%s/variables/variables.index", folder) < 0)
        return;
    if (access(path, F_OK) != 0)
        BACKEND_LOG(WARN,
                    "model '%s' has variables, but there is no '%s': its requests fail, unless an "
                    "init op sets the variables",
                    m->name, path);
    free(path);
}

static TRITONSERVER_Error *load_saved_model(const struct tf_loaded *l, struct tf_session *s,
                                            const struct tf_session_options *options,
                                            struct tf_status *status)
{
    const struct saved_signature *from = &l->m->signature;
    const char *tags[sizeof(from->tags) / sizeof(from->tags[0])] = {NULL};
    char *folder;

    TRY(saved_model_folder(l->m->path, &folder));
    warn_of_missing_variables(l->m, folder);
    for (size_t i = 0; i < from->n_tags; i++)
        tags[i] = from->tags[i];
    s->object = l->lib->api.LoadSessionFromSavedModel(options, NULL, folder, tags,
                                                      (int)from->n_tags, s->graph, NULL, status);
    free(folder);
    return tf_library_error(l->lib, status, "loading the SavedModel");
}

/* Reads ":1", the number of an output, of which there are n; NULL: number 0. */
static bool read_output_number(const char *colon, int n, int *ret_number)
{
    long number = 0;
    char *end;

    if (colon) {
        if (colon[1] < '0' || colon[1] > '9')
            return false;
        number = strtol(colon + 1, &end, 10); /* LONG_MAX, if it is larger */
        if (*end)
            return false;
    }
    if (number >= n)
        return false;
    *ret_number = (int)number;
    return true;
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
    if (ret_port->operation &&
        read_output_number(colon, l->lib->api.OperationNumOutputs(ret_port->operation),
                           &ret_port->index))
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "unable to load model '%s', its graph has no tensor '%s'", l->m->name,
                         place);
}

/* The element type of a tensor. A variable of TensorFlow 1 is read as what it holds. */
static int type_of_port(const struct tf_loaded *l, struct tf_port port)
{
    int type = l->lib->api.OperationOutputType(port);

    return type > TF_REFERENCE ? type - TF_REFERENCE : type;
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
        if (type_of_port(l, *port) != side->tensors[i].type)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "unable to load model '%s', tensor '%s' has another type in the "
                                 "graph than in the signature",
                                 l->m->name, side->tensors[i].name);
    }
    return NULL;
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
                               .type = type_of_port(l, port),
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
    TRY(tf_take_signature(l->m));
    return tf_check_config(l->m);
}

/* Looks at what the outputs need, as is done with a SavedModel before it is loaded. */
static TRITONSERVER_Error *look_at_graph(const struct tf_loaded *l, const unsigned char *data,
                                         size_t len)
{
    struct saved_signature *sig = &l->m->signature;
    const char **places = calloc(sig->outputs.n + 1, sizeof(*places));
    TRITONSERVER_Error *err;
    bool ok;

    if (!places)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < sig->outputs.n; i++)
        places[i] = sig->outputs.tensors[i].place;
    err = graph_look((struct message_bytes){data, data + len}, places, sig->outputs.n, &sig->facts,
                     &ok);
    free(places);
    return err || ok ? err
                     : backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                     "unable to load model '%s', '%s' is damaged, or no GraphDef",
                                     l->m->name, l->m->path);
}

static TRITONSERVER_Error *read_graphdef(const struct tf_loaded *l, struct tf_session *s,
                                         struct tf_status *status)
{
    unsigned char *data;
    TRITONSERVER_Error *err;
    size_t len;

    TRY(read_graph_file(l->m->path, &data, &len));
    err = graph_check((struct message_bytes){data, data + len}, l->m->name, l->m->path);
    if (!err)
        err = import_graph(l, s, data, len, status);
    if (!err && l->m->inputs.tensors == NULL) {
        err = take_graph_tensors(l, s);
        if (!err)
            err = look_at_graph(l, data, len);
    }
    free(data);
    return err;
}

/* ---- Libraries of operators ------------------------------------------------------------------ */

/* A library has been loaded. Any model that is loaded later may have its operators in its graph,
 * and they may keep a tensor for later executions. */
static atomic_bool operators_loaded;

/* Loads a library of operators, which stays loaded. */
static TRITONSERVER_Error *load_operator_library(const struct tf_loaded *l, const char *name)
{
    const struct tf_api *api = &l->lib->api;
    struct tf_status *status;
    TRITONSERVER_Error *err;
    char *path = NULL;
    void *handle;

    /* Before the file is looked at: the answer is the same whether it exists or not. */
    if (!l->m->asked.allow_operators)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s': the library of operators '%s' (op_library_filename) is "
                             "code that would run in the server; "
                             "--backend-config=tensorflow,allow-extensions=1 permits it",
                             l->m->name, name);
    TRY(extension_find(l->m->frame->handle, l->m->name, "op_library_filename", name, &path));
    status = api->NewStatus();
    operators_loaded = true;
    handle = api->LoadLibrary(path, status);
    if (handle)
        api->DeleteLibraryHandle(handle);
    err = tf_library_error(l->lib, status, "loading a library of operators");
    if (!err)
        BACKEND_LOG(INFO, "model '%s': the library of operators %s is loaded", l->m->name, path);
    api->DeleteStatus(status);
    free(path);
    return err;
}

static TRITONSERVER_Error *load_operators(const struct tf_loaded *l)
{
    const struct doc_value *operations = doc_get(doc_root(l->m->frame->config), "model_operations");
    const struct doc_value *v = doc_first(doc_get(operations, "op_library_filename"));

    for (; v; v = v->next)
        TRY(load_operator_library(l, doc_string(v, "")));
    return NULL;
}

/* ---- Models ---------------------------------------------------------------------------------- */

/* ret_options is the caller's, after an error, too. */
static TRITONSERVER_Error *make_session(const struct tf_loaded *l, struct tf_session *s,
                                        struct tf_status *status,
                                        struct tf_session_options **ret_options)
{
    const struct tf_model *m = l->m;

    if (m->is_graph)
        TRY(read_graphdef(l, s, status));
    TRY(tf_make_options(l, status, ret_options));
    if (!m->is_graph)
        return load_saved_model(l, s, *ret_options, status);
    s->object = l->lib->api.NewSession(s->graph, *ret_options, status);
    return tf_library_error(l->lib, status, "making a session");
}

static TRITONSERVER_Error *open_session(const struct tf_loaded *l, struct tf_session *s)
{
    const struct tf_api *api = &l->lib->api;
    struct tf_status *status = api->NewStatus();
    struct tf_session_options *options = NULL;
    TRITONSERVER_Error *err;

    s->graph = api->NewGraph();
    err = make_session(l, s, status, &options);
    if (options)
        api->DeleteSessionOptions(options);
    if (!err && l->m->asked.init_ops_file)
        err = tf_run_init_ops(l, s, status);
    api->DeleteStatus(status);
    return err;
}

static TRITONSERVER_Error *count_saved_bytes(const struct tf_model *m, uint64_t *ret_bytes)
{
    char *folder = NULL;

    if (!m->is_graph)
        TRY(saved_model_folder(m->path, &folder));
    *ret_bytes = model_file_bytes(folder ? folder : m->path);
    free(folder);
    return NULL;
}

static TRITONSERVER_Error *report_sessions(const struct tf_loaded *l)
{
    uint64_t n = 0;

    for (const struct tf_session *s = l->sessions; s; s = s->next)
        n++;
    return backend_report_memory(l->m->frame->handle, NULL, n * l->bytes);
}

static TRITONSERVER_Error *add_session(struct tf_loaded *l)
{
    struct tf_session *s = calloc(1, sizeof(*s));
    TRITONSERVER_Error *err;

    if (!s)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    err = open_session(l, s);
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
    return report_sessions(l);
}

/* What the configuration says of an input or output; NULL: it has none of that name. */
static const struct doc_value *configured_tensor(const struct tf_model *m, const struct side *side,
                                                 const struct tensor *t)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(m->frame->config), side->what));

    while (v && strcmp(doc_string(doc_get(v, "name"), ""), t->name) != 0)
        v = v->next;
    return v;
}

/* Requests may lack an input if the graph has a value for it. */
static bool may_lack(const struct tf_loaded *l, size_t i)
{
    const struct tensor *t = &l->m->inputs.tensors[i];

    if (!doc_true(doc_get(configured_tensor(l->m, &l->m->inputs, t), "optional")))
        return false;
    if (strcmp(l->lib->api.OperationOpType(l->sessions->inputs[i].operation),
               "PlaceholderWithDefault") == 0)
        return true;
    BACKEND_LOG(WARN,
                "model '%s': input '%s' is optional, but the graph has no value for it: requests "
                "without it fail",
                l->m->name, t->name);
    return false;
}

static TRITONSERVER_Error *take_configured(struct tf_loaded *l)
{
    const struct tf_model *m = l->m;

    l->wanted = calloc(m->outputs.n + 1, sizeof(*l->wanted));
    l->optional = calloc(m->inputs.n + 1, sizeof(*l->optional));
    if (!l->wanted || !l->optional)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < m->outputs.n; i++)
        l->wanted[i] = configured_tensor(m, &m->outputs, &m->outputs.tensors[i]);
    for (size_t i = 0; i < m->inputs.n; i++)
        l->optional[i] = may_lack(l, i);
    return NULL;
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
    tf_warn_of_level(m);
    err = count_saved_bytes(m, &l->bytes);
    if (!err)
        err = load_operators(l);
    if (!err)
        err = add_session(l);
    l->in_place = !m->signature.facts.keeps && !operators_loaded;
    if (!err)
        err = take_configured(l);
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
    free(l->optional);
    free(l);
}

TRITONSERVER_Error *tf_session_take(struct tf_loaded *l, struct tf_session **ret_session)
{
    int64_t most = l->m->asked.sharers;
    TRITONSERVER_Error *err = NULL;
    struct tf_session *s;

    pthread_mutex_lock(&l->mu);
    for (s = l->sessions; s && most > 0 && s->n_users >= most;)
        s = s->next;
    if (!s) {
        err = add_session(l);
        s = l->sessions;
    }
    if (!err) {
        s->n_users++;
        *ret_session = s;
    }
    pthread_mutex_unlock(&l->mu);
    return err;
}

void tf_session_give_back(struct tf_loaded *l, struct tf_session *session)
{
    struct tf_session **at = &l->sessions;
    bool unused;

    pthread_mutex_lock(&l->mu);
    unused = --session->n_users == 0 && l->sessions->next;
    while (unused && *at != session)
        at = &(*at)->next;
    if (unused) {
        *at = session->next;
        backend_ignore(report_sessions(l), "reporting memory");
    }
    pthread_mutex_unlock(&l->mu);
    if (unused)
        free_session(l, session);
}
