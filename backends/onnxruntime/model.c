/* SPDX-License-Identifier: Apache-2.0 */
#include "onnxruntime/model.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static TRITONSERVER_Error *out_of_memory(void)
{
    return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
}

/* ---- Session -------------------------------------------------------------------------------- */

/* The .onnx file: in the version's folder, or in a folder there that is named like a file. */
static TRITONSERVER_Error *find_file(struct model *m, TRITONBACKEND_Model *handle)
{
    const char *file = doc_string(doc_get(doc_root(m->config), "default_model_filename"), "");
    TRITONBACKEND_ArtifactType type;
    const char *folder;
    uint64_t version;
    struct stat info;
    char *inner;

    TRY(TRITONBACKEND_ModelRepository(handle, &type, &folder));
    TRY(TRITONBACKEND_ModelVersion(handle, &version));
    if (asprintf(&m->path, "%s/%llu/%s", folder, (unsigned long long)version,
                 *file ? file : "model.onnx") < 0) {
        m->path = NULL;
        return out_of_memory();
    }
    if (stat(m->path, &info) == 0 && S_ISDIR(info.st_mode)) {
        if (asprintf(&inner, "%s/model.onnx", m->path) < 0)
            return out_of_memory();
        free(m->path);
        m->path = inner;
    }
    if (stat(m->path, &info) != 0)
        return backend_error(TRITONSERVER_ERROR_NOT_FOUND, "unable to read '%s' of model '%s': %s",
                             m->path, m->name, strerror(errno));
    return NULL;
}

/*
 * ONNX Runtime's own default is a thread per core of the machine, each bound to its core: too many
 * in a container or under taskset, and bound to cores that are not ours. So we count the CPUs that
 * this process may use; threads whose number is given are not bound.
 */
static int n_cpus(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return CPU_COUNT(&set);
}

/* Parameters that are named like options of ONNX Runtime are handed to it as they are. */
static TRITONSERVER_Error *pass_options(struct model *m, struct ort_options *options)
{
    const struct doc_value *p = doc_first(doc_get(doc_root(m->config), "parameters"));

    for (; p; p = p->next) {
        const char *value = doc_string(doc_get(p, "string_value"), "");

        if (strncmp(p->key, "session.", 8) == 0)
            TRY_ORT(m->rt, AddSessionConfigEntry(options, p->key, value));
    }
    return NULL;
}

static TRITONSERVER_Error *set_graph_level(struct model *m, struct ort_options *options)
{
    const struct doc_value *optimization = doc_get(doc_root(m->config), "optimization");
    enum ort_graph_level level = ORT_GRAPH_ALL;
    int64_t wanted = 0;

    doc_int(doc_get(doc_get(optimization, "graph"), "level"), &wanted);
    if (wanted == -1)
        level = ORT_GRAPH_BASIC;
    else if (wanted == 1)
        level = ORT_GRAPH_EXTENDED;
    else if (wanted == 2)
        level = ORT_GRAPH_NONE;
    TRY_ORT(m->rt, SetSessionGraphOptimizationLevel(options, level));
    return NULL;
}

/* What a configuration may ask of a backend, and this one cannot do, is refused by name. */
static TRITONSERVER_Error *refuse_unsupported(struct model *m)
{
    const struct doc_value *root = doc_root(m->config);
    const struct doc_value *accelerators =
        doc_get(doc_get(root, "optimization"), "execution_accelerators");
    const struct doc_value *cpu = doc_first(doc_get(accelerators, "cpu_execution_accelerator"));
    const struct {
        const char *field;
        const struct doc_value *list;
    } others[] = {
        {"model_operations.op_library_filename",
         doc_get(doc_get(root, "model_operations"), "op_library_filename")},
        {"batch_input", doc_get(root, "batch_input")},
        {"batch_output", doc_get(root, "batch_output")},
    };

    if (cpu)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': execution accelerator '%s' is not supported", m->name,
                             doc_string(doc_get(cpu, "name"), ""));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (doc_count(others[i].list) > 0)
            return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "model '%s': field '%s' is not supported by this backend", m->name,
                                 others[i].field);
    return NULL;
}

static TRITONSERVER_Error *set_options(struct model *m, struct ort_options *options)
{
    int64_t intra, inter, parallel, arena, pattern;

    TRY(backend_parameter_int(m->config, "intra_op_thread_count", 0, 4096, 0, &intra));
    TRY(backend_parameter_int(m->config, "inter_op_thread_count", 0, 4096, 0, &inter));
    TRY(backend_parameter_int(m->config, "execution_mode", 0, 1, 0, &parallel));
    TRY(backend_parameter_int(m->config, "enable_mem_arena", 0, 1, 1, &arena));
    TRY(backend_parameter_int(m->config, "enable_mem_pattern", 0, 1, 1, &pattern));

    TRY_ORT(m->rt, SetIntraOpNumThreads(options, intra > 0 ? (int)intra : n_cpus()));
    TRY_ORT(m->rt, SetInterOpNumThreads(options, inter > 0 ? (int)inter : n_cpus()));
    TRY_ORT(m->rt,
            SetSessionExecutionMode(options, parallel ? ORT_MODE_PARALLEL : ORT_MODE_SEQUENTIAL));
    if (!arena)
        TRY_ORT(m->rt, DisableCpuMemArena(options));
    if (!pattern)
        TRY_ORT(m->rt, DisableMemPattern(options));
    TRY(set_graph_level(m, options));
    TRY(refuse_unsupported(m));
    return pass_options(m, options);
}

static TRITONSERVER_Error *open_session(struct model *m)
{
    static const char shrink[] = "memory.enable_memory_arena_shrinkage";
    const char *arenas = backend_parameter(m->config, shrink);
    struct ort_options *options = NULL;
    TRITONSERVER_Error *err;

    TRY_ORT(m->rt, CreateSessionOptions(&options));
    err = set_options(m, options);
    if (!err)
        err = runtime_error(m->rt,
                            m->rt->api.CreateSession(m->rt->env, m->path, options, &m->session));
    m->rt->api.ReleaseSessionOptions(options);
    if (err || !arenas || !*arenas)
        return err;
    TRY_ORT(m->rt, CreateRunOptions(&m->run_options));
    TRY_ORT(m->rt, AddRunConfigEntry(m->run_options, shrink, arenas));
    return NULL;
}

/* ---- Tensors -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *read_shape(struct model *m, struct tensor *t,
                                      const struct ort_shape *shape)
{
    const char *symbols[MAX_RANK];
    enum ort_element element;

    TRY_ORT(m->rt, GetTensorElementType(shape, &element));
    t->type = element_type_of(element);
    if (!t->type)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s', tensor '%s': ONNX element type %d is not supported",
                             m->name, t->name, (int)element);
    TRY_ORT(m->rt, GetDimensionsCount(shape, &t->rank));
    if (t->rank > MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s', tensor '%s': %zu dimensions are more than %d", m->name,
                             t->name, t->rank, MAX_RANK);
    TRY_ORT(m->rt, GetDimensions(shape, t->dims, t->rank));
    TRY_ORT(m->rt, GetSymbolicDimensions(shape, symbols, t->rank));
    for (size_t i = 0; i < t->rank; i++) {
        if (t->dims[i] >= 0 || !symbols[i] || !*symbols[i])
            continue;
        t->symbols[i] = strdup(symbols[i]);
        if (!t->symbols[i])
            return out_of_memory();
    }
    return NULL;
}

static TRITONSERVER_Error *read_tensor(struct model *m, struct tensor *t, char *ort_name,
                                       const struct ort_type *type)
{
    const struct ort_shape *shape;
    enum ort_kind kind;

    t->name = strdup(ort_name);
    if (!t->name)
        return out_of_memory();
    TRY_ORT(m->rt, GetOnnxTypeFromTypeInfo(type, &kind));
    if (kind != ORT_KIND_TENSOR)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': '%s' is no tensor but another kind of ONNX value, which "
                             "is not supported",
                             m->name, t->name);
    TRY_ORT(m->rt, CastTypeInfoToTensorInfo(type, &shape)); /* belongs to type */
    return read_shape(m, t, shape);
}

static TRITONSERVER_Error *read_tensors(struct model *m, bool inputs, struct tensor **ret_tensors,
                                        size_t *ret_n)
{
    const struct ort_api *api = &m->rt->api;
    struct tensor *tensors;
    size_t n;

    TRY(runtime_error(m->rt, inputs ? api->SessionGetInputCount(m->session, &n)
                                    : api->SessionGetOutputCount(m->session, &n)));
    tensors = calloc(n + 1, sizeof(*tensors));
    if (!tensors)
        return out_of_memory();
    *ret_tensors = tensors; /* the model owns them from here, half-read too */
    *ret_n = n;
    for (size_t i = 0; i < n; i++) {
        struct ort_type *type = NULL;
        TRITONSERVER_Error *err;
        char *name = NULL;

        TRY(runtime_error(m->rt,
                          inputs ? api->SessionGetInputName(m->session, i, m->rt->heap, &name)
                                 : api->SessionGetOutputName(m->session, i, m->rt->heap, &name)));
        err = runtime_error(m->rt, inputs ? api->SessionGetInputTypeInfo(m->session, i, &type)
                                          : api->SessionGetOutputTypeInfo(m->session, i, &type));
        if (!err)
            err = read_tensor(m, &tensors[i], name, type);
        if (type)
            api->ReleaseTypeInfo(type);
        backend_ignore(runtime_error(m->rt, api->AllocatorFree(m->rt->heap, name)),
                       "freeing a tensor's name");
        if (err)
            return err;
    }
    return NULL;
}

/* Where does dimension d of output o come from? A name that an input's dimension has too settles
 * it; without names the batch dimension of a model that batches does. */
static bool find_source(const struct model *m, const struct tensor *o, size_t d,
                        struct dim_source *ret_source)
{
    for (size_t i = 0; i < m->n_inputs && o->symbols[d]; i++) {
        const struct tensor *in = &m->inputs[i];

        for (size_t k = 0; k < in->rank; k++) {
            if (in->symbols[k] && strcmp(in->symbols[k], o->symbols[d]) == 0) {
                *ret_source = (struct dim_source){.input = (int)i, .dim = (int)k};
                return true;
            }
        }
    }
    if (d == 0 && m->max_batch_size > 0 && m->n_inputs > 0) {
        *ret_source = (struct dim_source){.input = 0, .dim = 0};
        return true;
    }
    return false;
}

static void find_sources(struct model *m)
{
    for (size_t i = 0; i < m->n_outputs; i++) {
        struct tensor *o = &m->outputs[i];

        /* Strings have no fixed size, and rank 0 may mean that the model does not tell the rank. */
        o->predictable = o->type->size > 0 && o->rank > 0;
        for (size_t d = 0; d < o->rank; d++) {
            o->from[d].input = -1;
            if (o->dims[d] < 0 && !find_source(m, o, d, &o->from[d]))
                o->predictable = false;
        }
    }
}

struct tensor *model_tensor(struct tensor *tensors, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    return NULL;
}

/* ---- Life ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *load(struct model *m, TRITONBACKEND_Model *handle)
{
    bool complete;

    TRY(find_file(m, handle));
    TRY(open_session(m));
    TRY(read_tensors(m, true, &m->inputs, &m->n_inputs));
    TRY(read_tensors(m, false, &m->outputs, &m->n_outputs));
    TRY(TRITONBACKEND_ModelAutoCompleteConfig(handle, &complete));
    if (complete)
        TRY(model_complete_config(m, handle));
    m->max_batch_size = 0;
    doc_int(doc_get(doc_root(m->config), "max_batch_size"), &m->max_batch_size);
    TRY(model_check_config(m));
    find_sources(m);
    return NULL;
}

TRITONSERVER_Error *model_load(struct runtime *rt, TRITONBACKEND_Model *handle,
                               struct model **ret_model)
{
    struct model *m = calloc(1, sizeof(*m));
    TRITONSERVER_Error *err;
    const char *name;

    if (!m)
        return out_of_memory();
    m->rt = rt;
    atomic_init(&m->predict, true);
    err = TRITONBACKEND_ModelName(handle, &name);
    if (!err)
        err = backend_model_config(handle, &m->config);
    if (!err) {
        m->name = strdup(name);
        err = m->name ? load(m, handle) : out_of_memory();
    }
    if (err) {
        model_free(m);
        return err;
    }
    *ret_model = m;
    return NULL;
}

static void free_tensors(struct tensor *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(tensors[i].name);
        for (size_t d = 0; d < MAX_RANK; d++)
            free(tensors[i].symbols[d]);
    }
    free(tensors);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    free_tensors(m->inputs, m->n_inputs);
    free_tensors(m->outputs, m->n_outputs);
    if (m->run_options)
        m->rt->api.ReleaseRunOptions(m->run_options);
    if (m->session)
        m->rt->api.ReleaseSession(m->session);
    doc_free(m->config);
    free(m->path);
    free(m->name);
    free(m);
}
